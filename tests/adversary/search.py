#!/usr/bin/env python3
"""Play many scenarios by chance, and say which of them end with a client that says too much.

search.py --scenarios 100000 --first 0      (what `make test-adversary` does)
search.py --seed 4711                       one of them again, with everything that is known of it
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from attacks import KINDS
from scenarios import Scenario, of_seed, without

_CHUNK = 200


@dataclass
class Outcome:
    """What came of a stretch of seeds.

    Attributes:
        judged: Answers that were compared with the truth.
        handed: Samples that chronyd was handed.
        synchronised: Scenarios at whose end the client knew the time.
    """

    count: int = 0
    judged: int = 0
    handed: int = 0
    synchronised: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Add another stretch."""
        for name in ("count", "judged", "handed", "synchronised"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kinds += other.kinds
        self.failed |= other.failed


def fault_of(scenario: Scenario) -> str:
    """Return the first thing that must never happen and did, or nothing."""
    try:
        play = scenario.play()
    except Exception:
        return traceback.format_exc()
    return play.faults[0] if play.faults else ""


def stretch(first: int, count: int) -> Outcome:
    """Play the scenarios of these seeds."""
    outcome = Outcome(count)
    for seed in range(first, first + count):
        scenario = of_seed(seed)
        outcome.kinds.update({move.kind for move in scenario.moves})
        try:
            play = scenario.play()
        except Exception:
            outcome.failed[seed] = traceback.format_exc()
            continue
        if play.faults:
            outcome.failed[seed] = play.faults[0]
        outcome.judged += play.judged
        outcome.handed += len(play.handed_ns)
        outcome.synchronised += play.state != "unsynchronised"
    return outcome


def _one(seed: int) -> int:
    """Play one again; leave out the moves that it fails without."""
    scenario = of_seed(seed)
    fault = fault_of(scenario)
    index = 0
    while fault and index < len(scenario.moves):
        smaller = without(scenario, index)
        if said := fault_of(smaller):
            scenario, fault = smaller, said
        else:
            index += 1
    print(f"seed {seed}: {'holds' if not fault else 'FAILS'}")
    print(f"  {scenario.conditions}")
    print(f"  with the broadcast key: {scenario.broadcast_key}")
    for move in scenario.moves:
        print(f"  {move}")
    print(fault, end="\n" if fault else "")
    return 1 if fault else 0


def _many(first: int, count: int, processes: int) -> int:
    began = time.monotonic()
    stretches = [
        (start, min(_CHUNK, first + count - start)) for start in range(first, first + count, _CHUNK)
    ]
    total = Outcome()
    with multiprocessing.Pool(processes) as pool:
        for outcome in pool.imap_unordered(_stretch, stretches):
            total.add(outcome)
            for seed, fault in sorted(outcome.failed.items()):
                print(f"seed {seed}: {fault.splitlines()[-1]}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{total.count} of {count}", end="", file=sys.stderr)
    took_s = time.monotonic() - began
    print(
        f"{total.count} scenarios, seeds {first} to {first + count - 1}, in {took_s:.0f} s "
        f"({1e3 * took_s * processes / total.count:.1f} ms each on {processes} processors): "
        f"{total.judged} answers and {total.handed} samples for chronyd judged, "
        f"{total.synchronised} scenarios end with a client that knows the time"
    )
    print("moves: " + ", ".join(f"{kind} {total.kinds[kind]}" for kind in KINDS))
    failed = sorted(total.failed)
    print(f"{len(failed)} failed" + (f": {failed[:20]}" if failed else ""))
    if failed:
        print(f"again: .venv/bin/python tests/adversary/search.py --seed {failed[0]}")
    return 1 if failed else 0


def _stretch(what: tuple[int, int]) -> Outcome:
    return stretch(*what)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every scenario held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--scenarios", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="this one only")
    given = parser.parse_args(arguments)
    logging.getLogger("mqtick").setLevel(logging.CRITICAL)
    if given.seed is not None:
        return _one(given.seed)
    return _many(given.first, given.scenarios, given.processes)


if __name__ == "__main__":
    sys.exit(main())
