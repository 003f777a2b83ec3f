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
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.harness import Ratio, Report, Row, progress
from mqtick.analysis.clocks.deviation import Deviation
from mqtick.analysis.clocks.stability import adev, mtie, tdev

_ROOT = Path(__file__).resolve().parents[1]
_PYTHON = _ROOT / ".venv-drivers" / "bin" / "python"
_SCRIPT = _ROOT / "analysis" / "tests" / "foreign" / "allantools_deviations.py"
_NS = 1e9
FACTORS = [2**power for power in range(13)]
GOAL = 0.05
_ROUNDING = 1e-8

# Ours, what allantools calls it, and our unit in theirs.
MEASURES: dict[str, tuple[Callable[..., Deviation], str, float]] = {
    "MTIE": (mtie, "mtie", 1 / _NS),
    "TDEV": (tdev, "tdev", 1 / _NS),
    "ADEV": (adev, "oadev", 1.0),
}


def time_error(points: int) -> npt.NDArray[np.float64]:
    """Return the time error of a simulated clock, s."""
    chance = np.random.default_rng(20261121)
    frequency = np.cumsum(chance.normal(0.0, 1e-12, points))
    return np.asarray(np.cumsum(frequency) + chance.normal(0.0, 1e-8, points), np.float64)


def theirs(name: str, path: Path, out: Path) -> tuple[npt.NDArray[np.float64], float]:
    """Let allantools compute one measure; return its values and the seconds that it took."""
    subprocess.run(
        [_PYTHON, _SCRIPT, path, "1.0", out, name, *map(str, FACTORS)], check=True, timeout=900
    )
    found = json.loads(out.read_text())
    if found["factors"] != FACTORS:
        raise ValueError(f"allantools computed {name} at {found['factors']} s, not at {FACTORS} s.")
    return np.array(found["values"]), found["seconds"]


def check_equal(name: str, ours: npt.NDArray[np.float64], peer: npt.NDArray[np.float64]) -> float:
    """Return the largest difference as a share; ValueError where it is more than rounding."""
    share = float(np.max(np.abs(ours / peer - 1)))
    if not share <= _ROUNDING:
        raise ValueError(f"{name}: ours and allantools' differ by a share of {share:.2g}.")
    return share


def measure(points: int, rounds: int) -> Report:
    """Run all rounds."""
    report = Report("mtie")
    x_s = time_error(points)
    times_ms: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        np.save(path, x_s)
        x_ns = np.load(path) * _NS
        for number in range(rounds):
            for name, (measure_ours, their_name, scale) in MEASURES.items():
                progress(f"round {number + 1} of {rounds}: {name}")
                begun = time.perf_counter()
                ours = measure_ours(x_ns, 1.0, FACTORS)
                times_ms[name, "ours"].append((time.perf_counter() - begun) * 1000)
                peer, seconds = theirs(their_name, path, Path(folder) / "out.json")
                times_ms[name, "allantools"].append(seconds * 1000)
                share = check_equal(name, ours.value * scale, peer)
                if not number:
                    print(f"{name}: equal at {len(FACTORS)} intervals, within {share:.1g}")
                begun = time.perf_counter()
                whole = measure_ours(x_ns, 1.0)
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
    if not _PYTHON.exists():
        print("allantools is not installed; `make setup-drivers` does it.", file=sys.stderr)
        return 1
    measure(args.points, args.rounds).finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
