"""mtie: MTIE, TDEV and ADEV of 1,000,000 points, ours against allantools.

Both compute the same observation intervals of the same time error (simulated: white phase noise and
a random walk of frequency, one value a second), in turn, and time themselves. Ours gives confidence
intervals too. The results have to be equal within rounding, or nothing is reported.

The time that allantools takes for MTIE grows with the interval, so the common ones are octaves up
to 4096 s; ours alone then does what a report asks for: ten intervals a decade up to half a record.

    python -m bench.mtie                    1,000,000 points, 3 rounds
    python -m bench.mtie --short            100,000 points, 1 round
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from analysis.tests.foreign_clocks import PYTHON, allantools
from bench.harness import Ratio, Report, Row, progress
from mqtick.analysis.clocks.stability import Deviation, adev, mtie, tdev
from mqtick.recording.units import NS_PER_S, Floats

FACTORS = [2**power for power in range(13)]
GOAL = 0.05
_ROUNDING = 1e-8

# Our function, its name in allantools, and our unit in theirs.
MEASURES: dict[str, tuple[Callable[..., Deviation], str, float]] = {
    "MTIE": (mtie, "mtie", 1 / NS_PER_S),
    "TDEV": (tdev, "tdev", 1 / NS_PER_S),
    "ADEV": (adev, "oadev", 1.0),
}


def time_error(points: int) -> Floats:
    """Return the time error of a simulated clock, s."""
    chance = np.random.default_rng(20261121)
    frequency = np.cumsum(chance.normal(0.0, 1e-12, points))
    return np.cumsum(frequency) + chance.normal(0.0, 1e-8, points)


def check_equal(name: str, ours: Floats, peer: Floats) -> float:
    """Return the largest relative difference; ValueError if it is larger than rounding."""
    share = float(np.max(np.abs(ours / peer - 1)))
    if not share <= _ROUNDING:
        raise ValueError(f"{name}: ours and allantools' differ by a share of {share:.2g}.")
    return share


def measure(points: int, rounds: int) -> Report:
    """Run all rounds."""
    report = Report("mtie")
    x_s = time_error(points)
    x_ns = x_s * NS_PER_S
    times_ms: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(rounds):
        for name, (measure_ours, their_name, scale) in MEASURES.items():
            progress(f"round {number + 1} of {rounds}: {name}")
            begun = time.perf_counter()
            ours = measure_ours([x_ns], 1.0, FACTORS)
            times_ms[name, "ours"].append((time.perf_counter() - begun) * 1000)
            theirs = allantools(their_name, x_s, 1.0, FACTORS)
            times_ms[name, "allantools"].append(theirs["seconds"] * 1000)
            share = check_equal(name, ours.value * scale, np.array(theirs["values"]))
            if not number:
                print(f"{name}: equal at {len(FACTORS)} intervals, within {share:.1g}")
            begun = time.perf_counter()
            whole = measure_ours([x_ns], 1.0)
            key = f"{name}, {whole.tau_s.size} intervals up to {whole.tau_s[-1]:,.0f} s"
            times_ms[key, "ours"].append((time.perf_counter() - begun) * 1000)
    for (name, who), values in times_ms.items():
        common = f"{name}, {len(FACTORS)} intervals up to {FACTORS[-1]:,} s"
        quantity = common if name in MEASURES else name
        report.rows.append(Row.of(f"{points:,} points: {quantity}", "ms", who, values, digits=1))
    for name in MEASURES:
        ours_ms, peer_ms = (
            round(float(np.median(times_ms[name, who])), 1) for who in ("ours", "allantools")
        )
        goal = GOAL if name == "MTIE" else None
        report.ratios.append(Ratio.of(f"{name}: ours / allantools", ours_ms, peer_ms, goal))
    return report


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="100,000 points, 1 round")
    args = parser.parse_args()
    if args.short:
        args.points, args.rounds = 100_000, 1
    if not PYTHON.exists():
        print("allantools is not installed; `make setup-drivers` does it.", file=sys.stderr)
        return 1
    measure(args.points, args.rounds).finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
