"""wan: what time do clients have at the ends of long wires, and what does chronyd make of it?

Real clients, a Mosquitto and a time server in network namespaces, with a wire in user space
between them (bench/wire.py). Each link has half its round trip of 0.2 to 300 ms, the same both ways
or split 60 to 5, with and without 2 % of lost packets, with and without 30 % of jitter. Each client
hands its samples to a chronyd of its own that steers nothing (-x). Needs root.

    python -m bench.wan                      the whole matrix, 90 s each
    python -m bench.wan --short              a corner of it
    python -m bench.wan --before PYTHON      and the programs of another checkout, in turn
    python -m bench.wan --soak-s 3600        an hour with loss, and a broker that restarts
    python -m bench.wan --traffic-s 900      octets a day with traffic = low, after 3 minutes
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.harness import Report, options, progress
from bench.wan_world import Cell, Place, running

_MS = 1_000_000
_DELAYS_MS = (0.2, 5.0, 20.0, 40.0, 80.0, 300.0)
_SHORT_MS = (40.0,)
_ASYMMETRIC = 60 / 65
# From this delay on, half the round trip is beyond the default limit of a known time.
_LONG_MS = 80.0
_LIMIT = ("--estimator-unsynchronised-bound-us", "500000")
_AT_ONCE = 16
_SETTLE_S = 180.0
_SOAKED = (
    Cell(5.0, 0.5, 0.02, 0.3),
    Cell(40.0, 0.5, 0.02, 0.3),
    Cell(40.0, _ASYMMETRIC, 0.05, 0.3, ("--traffic", "low", *_LIMIT)),
    Cell(300.0, _ASYMMETRIC, 0.02, 0.3, _LIMIT),
)
_BROKER_RUNS_S, _BROKER_STOPS_S = (60.0, 240.0), (0.5, 30.0)
_OCTETS = "octets on the wire"


def matrix(delays_ms: Sequence[float] = _DELAYS_MS) -> list[Cell]:
    """Return the links; those beyond the default limit with a higher one."""
    return [
        Cell(delay_ms, share, loss, jitter, _LIMIT if delay_ms >= _LONG_MS else ())
        for delay_ms, share, loss, jitter in itertools.product(
            delays_ms, (0.5, _ASYMMETRIC), (0.0, 0.02), (0.0, 0.3)
        )
    ]


def watched(cells: Sequence[Cell], python: str, seconds: float) -> list[Place]:
    """Run a client on each link for so long."""
    with tempfile.TemporaryDirectory(prefix="wan-") as name:
        folder = Path(name)
        with running(folder, cells, python) as world:
            world.watch(seconds)
            return world.places


def _milliseconds(values_ns: Sequence[int]) -> list[float]:
    return [abs(value) / _MS for value in values_ns]


def report_places(report: Report, who: str, places: Sequence[Place]) -> None:
    """Add what was seen."""
    for place in places:
        if place.seen.steered_ns:
            errors = _milliseconds(place.seen.steered_ns)
            report.add(f"|steered clock - truth|, {place.cell.name}", "ms", who, errors)
    for delay_ms in sorted({place.cell.delay_ms for place in places}):
        same = [place.seen for place in places if place.cell.delay_ms == delay_ms]
        link = f"half a round trip of {delay_ms:g} ms"
        for quantity, unit, values in (
            ("until the time is known", "s", [one.good_s for one in same if one.good_s]),
            ("bound", "ms", [b for one in same for b in _milliseconds(one.bounds_ns)]),
            ("root distance", "ms", [d for one in same for d in _milliseconds(one.distances_ns)]),
        ):
            if values:
                report.add(f"{quantity}, {link}", unit, who, values)
    seen = [place.seen for place in places]
    for quantity, count, looks in (
        ("truth outside the stated interval", "outside", "looks"),
        ("steered clock outside the client's interval", "steered_outside", "steered_looks"),
        ("steered clock outside chronyd's root distance", "uncertified", "steered_looks"),
    ):
        if count != "uncertified" and not any(one.looks for one in seen):
            continue  # an older client's status cannot be read by today's rules
        total = sum(getattr(one, looks) for one in seen)
        found = sum(getattr(one, count) for one in seen)
        report.add(f"looks: {quantity}", f"of {total}", who, [found])


def traffic(report: Report, seconds: float) -> None:
    """Count octets on a link of 40 ms each way, with loss and jitter, in the steady state."""
    cells = [Cell(40.0, 0.5, 0.02, 0.3, (*_LIMIT, "--traffic", what)) for what in ("normal", "low")]
    with (
        tempfile.TemporaryDirectory(prefix="wan-") as name,
        running(Path(name), cells) as world,
    ):
        world.watch(_SETTLE_S)
        before = [(place.octets(), len(place.seen.bounds_ns)) for place in world.places]
        world.watch(seconds)
        a_day: list[float] = []
        for place, (octets, looks), who in zip(
            world.places, before, ("traffic = normal", "traffic = low"), strict=True
        ):
            a_day.append((place.octets() - octets) / seconds * 86400 / 1e6)
            report.add(f"{_OCTETS}, {place.cell.name}", "MB a day", who, a_day[-1:])
            bounds = _milliseconds(place.seen.bounds_ns[looks:])
            report.add(f"bound, {place.cell.name}", "ms", who, bounds)
            outside = [place.seen.outside]
            report.add(f"truth outside the interval, {place.cell.name}", "looks", who, outside)
        normal, low = a_day
        report.compare(f"{_OCTETS}, traffic = low / 2 MB a day", low, 2.0, 1.0)
        report.compare(f"{_OCTETS}, traffic = low / normal", low, normal)


def soak(seconds: float) -> int:
    """Restart the broker again and again; return how often anything was wrong."""
    with tempfile.TemporaryDirectory(prefix="wan-") as name, running(Path(name), _SOAKED) as world:
        world.wait_all_good(60.0)
        end_s, restarts = time.monotonic() + seconds, 0
        began = [place.memory_kib() for place in world.places]
        while (left_s := end_s - time.monotonic()) > 0:
            world.watch(min(random.uniform(*_BROKER_RUNS_S), left_s))
            world.stop_broker()
            world.watch(random.uniform(*_BROKER_STOPS_S))
            world.start_broker()
            restarts += 1
        world.watch(60.0)
        wrong = 0
        for place, kib in zip(world.places, began, strict=True):
            seen = place.seen
            wrong += seen.outside + seen.uncertified + seen.uncovered
            print(
                f"{place.cell.name} {' '.join(place.cell.flags)}: {seen.looks} looks, "
                f"{seen.outside} outside; {seen.steered_looks} at chronyd, {seen.steered_outside} "
                f"outside the interval, {seen.uncertified} outside its root distance, "
                f"{seen.uncovered} with less than our bound; memory {kib} -> "
                f"{place.memory_kib()} KiB; {place.seen.why or 'knows the time'}"
            )
        print(f"{seconds:.0f} s, {restarts} restarts of the broker")
        return wrong


def measure(report: Report, args: argparse.Namespace) -> None:
    """Run the matrix, and the programs of the other checkout in turn."""
    cells = matrix(args.delay_ms or (_SHORT_MS if args.short else _DELAYS_MS))
    contestants = {"now": sys.executable} | ({"before": args.before} if args.before else {})
    found: dict[str, list[Place]] = {who: [] for who in contestants}
    groups = -(-len(cells) // _AT_ONCE)
    for number in range(groups):
        for who, python in contestants.items():
            progress(f"{who}: group {number + 1} of {groups}")
            found[who] += watched(cells[number::groups], python, args.seconds)
    for who, places in found.items():
        report_places(report, who, places)
    if args.before:
        now, before = (
            sum(place.seen.uncertified for place in found[who]) for who in ("now", "before")
        )
        what = "looks with the steered clock outside chronyd's root distance, now / before"
        report.compare(what, now, before, 0.0)


def main() -> None:
    """Run the benchmark."""
    short = {"seconds": 40.0}
    args = options(
        __doc__, short, seconds=90.0, before="", traffic_s=0.0, soak_s=0.0, delay_ms=list[str]()
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the programs, too
    if args.soak_s:
        sys.exit(soak(args.soak_s) > 0)
    args.delay_ms = [float(each) for each in args.delay_ms]
    report = Report("wan")
    of_traffic = _OCTETS, "bound, 40/40", "truth "
    if args.traffic_s:
        report.keep(lambda quantity: not quantity.startswith(of_traffic))
        traffic(report, args.traffic_s)
    else:
        report.keep(lambda quantity: quantity.startswith(of_traffic))
        measure(report, args)
    report.finish()


if __name__ == "__main__":
    main()
