"""Plays what plays.py has: `--attacks` for a table, `--scripts N --first F` for random ones."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[place]) for place in (0, 1, 2)]
from below import AT_ONCE, Watched, play_all, world_of  # noqa: E402
from plays import (  # noqa: E402
    ATTACKS,
    HONEST,
    SCHEMES,
    Play,
    client_name,
    random_play,
    random_play_of,
)
from rig import Rig  # noqa: E402
from tcp_broker import MS  # noqa: E402

_LOTS = 4
"""So often as many clients as there may be at the same time have the same server."""
_ASKED, _PATIENCE_S = 12, 20.0
"""A script has ended after so many requests, or at the latest after so many seconds."""


@dataclass
class Outcome:
    """What random scripts have shown."""

    played: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    known: int = 0
    failed: dict[int, list[str]] = field(default_factory=dict)
    """By seed, what was wrong."""


def stretch(first: int, count: int) -> Outcome:
    """Play the random scripts of these seeds."""
    outcome, seeds = Outcome(), list(range(first, first + count))
    while seeds:
        lot, seeds = seeds[: AT_ONCE * _LOTS], seeds[AT_ONCE * _LOTS :]
        _play_lot(lot, outcome)
    return outcome


def _play_lot(seeds: list[int], outcome: Outcome) -> None:
    """Play scripts to clients of one server, whose own connections are attacked, too."""
    chance, rig = random.Random(seeds[0]), Rig()
    version = chance.choice((1, 2))
    server = Play(version, chance.choice(SCHEMES))
    if chance.random() < 0.7:
        server = random_play(chance, server.version, server.scheme, client_name(0), "rq")
        server.only = False
    slew = (chance.randrange(-5 * MS, 5 * MS), chance.randrange(100_000))
    try:
        with world_of(rig) as world:
            world.server(server, slew if chance.random() < 0.5 else None)
            while seeds:
                now, seeds = seeds[:AT_ONCE], seeds[AT_ONCE:]
                watched = [
                    world.client(random_play_of(seed, version), client_name(seed)) for seed in now
                ]
                is_over = partial(_have_asked, watched)
                world.judge(is_over, _PATIENCE_S)
                for seed, one in zip(now, watched, strict=True):
                    one.client.stop()
                    one.judge_samples()
                    world.watched.remove(one)
                    outcome.looks += one.looks
                    outcome.known += one.known
                    outcome.played += one.play.count
                    if one.faults:
                        outcome.failed[seed] = [*one.faults[:3], repr(one.play), repr(server)]
    finally:
        rig.close()
    outcome.played += server.count


def _have_asked(watched: list[Watched]) -> bool:
    return all(one.play.count["asked"] >= _ASKED for one in watched)


def _row(name: str, watched: Watched) -> str:
    claim = "-"
    if watched.outside:
        claim = f"{watched.worst_ns / MS:+.1f} ms / {watched.bound_ns / MS:.1f} ms"
    errors = list(watched.handed.values())
    got = f"{len(errors)}" + (f", {max(errors, key=abs) / 1e6:+.1f} ms" if errors else "")
    return f"| {name} | {watched.known} | {watched.outside} | {claim} | {got} |"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", nargs="*", help="a table of these attacks by name, or of all")
    parser.add_argument("--scripts", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args(arguments)
    failed = 0
    if args.attacks is not None:
        print("| attack | looks that know | outside | error / stated bound | chronyd got, worst |")
        print("|---|---|---|---|---|")
        wanted = {
            n: m for n, m in (HONEST | ATTACKS).items() if not args.attacks or n in args.attacks
        }
        for name, attack, watched in play_all(wanted):
            print(_row(name, watched), flush=True)
            failed += bool(watched.faults) or attack.made < attack.times
            if attack.made < attack.times:
                print(f"{name} was made {attack.made} times only", file=sys.stderr)
    if args.scripts:
        outcome = stretch(args.first, args.scripts)
        for seed, faults in outcome.failed.items():
            print(f"seed {seed}: FAILS", *faults, sep="\n  ")
        print(
            f"{args.scripts} scripts, {outcome.known} of {outcome.looks} looks know the time, "
            f"{len(outcome.failed)} scripts failed; played: {dict(outcome.played)}"
        )
        failed += len(outcome.failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
