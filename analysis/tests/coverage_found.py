"""How often intervals hold the truth: `python -m analysis.tests.coverage_found [RECORDS]`.

Prints the table of docs/statistics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import e, exp, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.statistics.describe import describe

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator

STATISTICS: Final = ("mean", "deviation", "median", "p5", "p95", "p99")
_Z95: Final = 1.6448536269514722
_Z99: Final = 2.3263478740408408
_NORMAL: Final = (0.0, 1.0, 0.0, -_Z95, _Z95, _Z99)
_LOGNORMAL: Final = (exp(0.5), sqrt((e - 1) * e), 1.0, exp(-_Z95), exp(_Z95), exp(_Z99))


def normal(chance: Generator, n: int) -> Floats:
    return chance.normal(size=n)


def lognormal(chance: Generator, n: int) -> Floats:
    return np.exp(chance.normal(size=n))


def autoregressive(strength: float) -> Callable[[Generator, int], Floats]:
    """First-order autoregression of variance 1, long after its start."""

    def of(chance: Generator, n: int) -> Floats:
        noise = chance.normal(size=n) * sqrt(1 - strength**2)
        noise[0] = chance.normal()
        values = np.empty(n)
        last = 0.0
        for place, each in enumerate(noise):
            last = strength * last + each
            values[place] = last
        return values

    return of


KINDS: Final[dict[str, tuple[Callable[[Generator, int], Floats], tuple[float, ...]]]] = {
    "normal": (normal, _NORMAL),
    "lognormal": (lognormal, _LOGNORMAL),
    "AR(1) 0.6": (autoregressive(0.6), _NORMAL),
    "AR(1) 0.9": (autoregressive(0.9), _NORMAL),
}


def coverage(kind: str, n: int, records: int, seed: int = 1) -> dict[str, float]:
    """Share of the records whose 95 % interval of each statistic holds the true value."""
    make, truth = KINDS[kind]
    chance = np.random.default_rng(seed)
    held = dict.fromkeys(STATISTICS, 0)
    for _ in range(records):
        found = describe(make(chance, n))
        assert found is not None
        for name, true in zip(STATISTICS, truth, strict=True):
            estimate = getattr(found, name)
            low = -np.inf if estimate.low is None else estimate.low
            high = np.inf if estimate.high is None else estimate.high
            held[name] += bool(low <= true <= high)
    return {name: count / records for name, count in held.items()}


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print(f"share of {records} records whose 95 % interval holds the true value, in %")
    print(f"{'values':<12}{'n':>6}" + "".join(f"{name:>11}" for name in STATISTICS))
    for kind in KINDS:
        for n in (20, 50, 100, 500):
            found = coverage(kind, n, records)
            print(f"{kind:<12}{n:>6}" + "".join(f"{100 * v:>11.1f}" for v in found.values()))


if __name__ == "__main__":
    main()
