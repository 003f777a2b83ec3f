"""Random datagrams by the million through the RTL, each answer compared with the reference's.

    python -m broker.rtl.sim.endurance --datagrams 10000000

Traffic comes in rounds, each with its own settings, after a reset in the middle of the one before;
the same seed and round are the same traffic: `--seed 1 --first 17 --datagrams 20000` repeats one.
What is compared: every octet that leaves and to whom, residences, and all counters at the end of
a round. Everything is simulated: mqtick_bench.sv, compiled by Verilator, in three sizes.
"""

from __future__ import annotations

import argparse
import random
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

from broker.rtl.sim.comparison import Comparison, Out, calm
from broker.rtl.sim.golden import REFUSALS, REFUSED_FILTERS, Golden, Sent, Settings
from broker.rtl.sim.traffic import Datagram, Traffic

ROOT: Final = Path(__file__).resolve().parents[3]
ROUND: Final = 20_000
"""Datagrams between two resets."""
BURSTS: Final = (4, 12, 40, 120)
"""Datagrams at most in one burst."""
BUSY: Final = ((0, 0),) * 12 + ((200, 0), (0, 200), (128, 128), (240, 240))
"""Of 256 cycles, so many in which receivers take no header, no word."""
GAPS: Final = (0,) * 6 + (64, 200)
"""Of 256 cycles, so many in which no word comes."""
DAMAGED: Final = 0.02
SWEEP_CYCLES: Final = 1_024
"""The end of a lease is counted when it is found: one subscriber is looked at in so many cycles."""
MOST_CYCLES: Final = 65_535
"""That the program runs without being asked again."""
MOST_LEFT_OVER: Final = 400
"""Cycles after the last burst of a round, until its reset."""

COUNTERS: Final = (*REFUSALS, *REFUSED_FILTERS, "challenges", "pool", "leases_ended", "damaged")
COUNTERS_AT: Final = 0x100
COPIES: Final = 0x15C
LEASE_S, SHAPES, SHARE, ADDRESS_SHARE, PUBLISHERS = 0x0C, 0x10, 0x14, 0x18, 0x40


@dataclass(frozen=True)
class Size:
    """What the RTL is built with, how many subscribers there are, and how often it is used."""

    parameters: dict[str, int]
    subscribers: int
    weight: int


SIZES: Final = {
    # Tables that are full, keys whose short hashes are equal.
    "small": Size(
        {
            "TOPICS": 64, "SUBSCRIPTIONS": 64, "CLIENTS": 32, "KEY_POOL": 8, "RETAINED": 4,
            "TAG": 3,
        },
        subscribers=40, weight=5,
    ),
    "roomy": Size(
        {"TOPICS": 1024, "SUBSCRIPTIONS": 2048, "CLIENTS": 512, "SHAPES": 32, "SLOTS": 8},
        subscribers=12, weight=3,
    ),
    "published": Size(
        {
            "TOPICS": 65_536, "SUBSCRIPTIONS": 65_536, "CLIENTS": 16_384, "KEY_POOL": 4096,
            "SLOTS": 8,
        },
        subscribers=24, weight=2,
    ),
}  # fmt: skip


class HangError(AssertionError):
    """The broker did not come to its rest."""


@lru_cache(65_536)
def _text(ip: int) -> str:
    return str(IPv4Address(ip))


@lru_cache(65_536)
def _number(ip: str) -> int:
    return int(IPv4Address(ip))


class Door:
    """The program of bursts.cpp, around one size of the RTL."""

    def __init__(self, name: str, size: Size) -> None:
        folder = Path(__file__).parent / "bursts"
        parameters = " ".join(f"-G{key}={value}" for key, value in size.parameters.items())
        call = ["make", "-s", "--no-print-directory", "-f", str(folder / "Makefile")]
        subprocess.run([*call, f"SIZE={name}", f"PARAMETERS={parameters}"], check=True)
        self.program = subprocess.Popen(
            [ROOT / "build/rtl/bursts" / name / "bursts"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.into, self.out = self.program.stdin, self.program.stdout
        self.now = 0

    def close(self) -> None:
        """End the program."""
        self.into.close()
        self.program.wait()
        self.out.close()

    def _take(self, form: str) -> int:
        self.into.flush()
        (value,) = struct.unpack(form, self.out.read(struct.calcsize(form)))
        return int(value)

    def reset(self, settings: Settings) -> None:
        """Reset the broker and set it up."""
        self.into.write(b"R" + settings.secret)
        self.now = self._take("<Q")
        for at, value in (
            (LEASE_S, settings.lease_s),
            (SHAPES, settings.shapes),
            (SHARE, settings.subscriptions_a_subscriber),
            (ADDRESS_SHARE, settings.subscribers_an_address),
            (PUBLISHERS, int(settings.publishers[0].network_address)),
            (PUBLISHERS + 4, int(settings.publishers[0].netmask)),
        ):
            self.into.write(b"W" + struct.pack("<HI", at, value))
            assert self._take("<I") == 0, f"register {at:03x} does not take {value}"

    def jump(self, at_ns: int) -> None:
        """Go on to this time, if it is not over."""
        self.into.write(b"J" + struct.pack("<Q", at_ns << 16))
        self.now = max(self.now, at_ns << 16)

    def busy(self, header: int, word: int) -> None:
        """Of 256 cycles, let receivers not be ready in so many."""
        self.into.write(b"P" + bytes([header, word]))

    def add(
        self, datagram: Datagram, *, flags: int = 0, gaps: int = 0, length: int | None = None
    ) -> None:
        """Put a datagram into the next burst."""
        octets = datagram.octets
        said = len(octets) if length is None else length
        self.into.write(
            struct.pack(
                "<cBBIHHH",
                *(b"D", flags, gaps, _number(datagram.ip), datagram.port, said, len(octets)),
            )
        )
        self.into.write(octets)

    def run(self, count: int) -> tuple[list[int], list[Out]]:
        """Send the burst; return the stamps of its datagrams, and what left."""
        self.into.write(b"Q")
        octets = self.out.read(self._take("<I"))
        what, self.now = struct.unpack_from("<BQ", octets)
        if what == 1:
            raise HangError("the broker hangs")
        assert what == 0, "a stream is broken: words without a header, or of another length"
        stamps = list(struct.unpack_from(f"<{count}Q", octets, 9))
        return stamps, list(self._left(octets, 9 + 8 * count))

    @staticmethod
    def _left(octets: bytes, at: int) -> Iterator[Out]:
        while at < len(octets):
            ip, port, fill, left, length = struct.unpack_from("<IHBQH", octets, at)
            at += 17
            yield Out(Sent(_text(ip), port, octets[at : at + length]), bool(fill), left)
            at += length

    def abandon(self, cycles: int) -> None:
        """Send the burst, if there is one, and stop after so many cycles."""
        self.into.write(b"X" + struct.pack("<H", cycles))

    def counter(self, name: str) -> int:
        """Read one counter."""
        at = COPIES if name == "copies" else COUNTERS_AT + 4 * COUNTERS.index(name)
        self.into.write(b"C" + struct.pack("<H", at))
        return self._take("<I")

    def counters(self) -> Counter[str]:
        """Read all counters."""
        return Counter({name: self.counter(name) for name in (*COUNTERS, "copies")})


def settings_of(draw: random.Random, size: Size) -> Settings:
    """Draw the settings of a round; half of them are as delivered."""
    most = size.parameters.get("SHAPES", 8)
    delivered = Settings(
        secret=draw.randbytes(16),
        shapes=most,
        subscriptions=2**31,
        retained=size.parameters.get("RETAINED", 64),
    )
    if draw.random() < 0.5:
        return delivered
    return replace(
        delivered,
        lease_s=draw.choice((1, 20, 90, 600)),
        subscriptions_a_subscriber=draw.choice((0, 3, 20, 32)),
        subscribers_an_address=draw.choice((1, 2, 1024)),
        shapes=draw.choice((2, 5, most)),
        publishers=(IPv4Network(draw.choice(("0.0.0.0/0", "10.0.0.0/23"))),),
    )


def one_round(door: Door, size: Size, seed: str, datagrams: int) -> Counter[str]:
    """Serve so many datagrams; return what was counted. AssertionError where something differs."""
    draw = random.Random(seed)
    settings = settings_of(draw, size)
    door.reset(settings)
    golden = Golden(settings)
    comparison = Comparison(golden)
    traffic = Traffic(draw.randrange(2**32), golden, subscribers=size.subscribers)
    done = 0
    while done < datagrams:
        at_ns = calm(golden, max(traffic.now_ns, door.now >> 16))
        door.jump(at_ns)
        golden.end_leases(at_ns)
        traffic.now_ns = door.now >> 16
        door.busy(*draw.choice(BUSY))
        gaps = draw.choice(GAPS)
        burst: list[Datagram | None] = []
        for _ in range(draw.randrange(draw.choice(BURSTS)) + 1):
            datagram = traffic.next()
            if draw.random() < DAMAGED:
                _add_damaged(door, draw, datagram)
                golden.counters["damaged"] += 1
                burst.append(None)
            else:
                door.add(datagram, flags=draw.choice((0, 2)), gaps=gaps)
                burst.append(datagram)
        try:
            stamps, out = door.run(len(burst))
        except HangError as error:
            raise HangError(f"after {burst}") from error
        for one, stamp in zip(burst, stamps, strict=True):
            if one is not None:
                comparison.check(one, stamp, out)
        assert not out, f"nothing asked for {out} after {burst}"
        done += len(burst)
    for _ in range(0, size.parameters["CLIENTS"] * SWEEP_CYCLES, MOST_CYCLES):
        if door.counter("leases_ended") >= golden.counters["leases_ended"]:
            break
        door.abandon(MOST_CYCLES)
    counted = door.counters()
    _compare_counters(counted, golden.counters)
    for _ in range(3):
        door.add(traffic.next())
    door.abandon(draw.randrange(1, MOST_LEFT_OVER))
    counted["datagrams"] = done
    return counted


def _add_damaged(door: Door, draw: random.Random, datagram: Datagram) -> None:
    """Put in one whose checksum was wrong, or whose header says another length."""
    more = draw.choice((0, 1, 8, -1))
    length = max(0, len(datagram.octets) + more)
    same = length == len(datagram.octets)
    door.add(datagram, flags=1 if same else draw.choice((0, 2)), length=length)


def _compare_counters(theirs: Counter[str], ours: Counter[str]) -> None:
    mine = {name: ours[name] for name in theirs}
    other = dict(theirs)
    if mine["leases_ended"]:
        # Entries of a lease that ended are freed one after another: until then their shapes are in
        # use, where the reference sees a table without room.
        for counters in (mine, other):
            counters["shape"] += counters.pop("table")
    assert other == mine, f"counted {other}, not {mine}"


def endure(
    datagrams: int,
    *,
    seed: int = 1,
    first: int = 0,
    seconds: float = float("inf"),
    sizes: tuple[str, ...] = tuple(SIZES),
    progress: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """Serve so many datagrams, or as many as the time allows; return all that was counted."""
    turns = [name for name in sizes for _ in range(SIZES[name].weight)]
    total: Counter[str] = Counter()
    began, number = time.monotonic(), first
    with ExitStack() as stack:
        doors: dict[str, Door] = {}
        while total["datagrams"] < datagrams and time.monotonic() - began < seconds:
            # Sizes take turns evenly: 7 has no factor in common with the number of turns.
            name = turns[number * 7 % len(turns)]
            if name not in doors:
                doors[name] = Door(name, SIZES[name])
                stack.callback(doors[name].close)
            count = min(ROUND, datagrams - total["datagrams"])
            try:
                counted = one_round(doors[name], SIZES[name], f"{seed} {number}", count)
            except AssertionError as error:
                raise type(error)(f"seed {seed}, round {number} ({name}): {error}") from error
            total += counted
            number += 1
            total["rounds"] += 1
            progress(f"{total['datagrams']} datagrams, {total['copies']} copies")
    return total


def main() -> int:
    """Run it; 1 if something differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--datagrams", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="round to begin with")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="no round after so many"
    )
    parser.add_argument("--size", action="append", choices=SIZES, help="only this one")
    given = parser.parse_args()
    began = time.monotonic()
    try:
        total = endure(
            given.datagrams,
            seed=given.seed,
            first=given.first,
            seconds=given.seconds,
            sizes=tuple(given.size or SIZES),
            progress=lambda text: print(text, file=sys.stderr, flush=True),
        )
    except AssertionError as error:
        print(f"wrong: {error}")
        return 1
    took = time.monotonic() - began
    refused = sum(total[name] for name in (*REFUSALS, "damaged"))
    print(
        f"{total['datagrams']} datagrams in {total['rounds']} rounds (simulated), "
        f"{total['copies']} copies, {refused} refused: 0 wrong deliveries, 0 lost octets, 0 hangs; "
        f"{total['datagrams'] / took:.0f} datagrams a second"
    )
    print({name: total[name] for name in (*COUNTERS, "copies")})
    return 0


if __name__ == "__main__":
    sys.exit(main())
