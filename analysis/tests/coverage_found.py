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
BOUNDED: Final = ("mean", "deviation")
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


STALL: Final = 30.0
"""A rare stall lasts so many times as long as the usual value, 1."""


def stalling(chance: Generator, n: int) -> Floats:
    """Usual values of 1 +- 0.1, one in a hundred of them a stall."""
    return chance.normal(1, 0.1, n) * np.where(chance.random(n) < 0.01, STALL, 1.0)


def _of_stalls() -> tuple[float, float]:
    mean = 0.99 + 0.01 * STALL
    square = 1.01 * (0.99 + 0.01 * STALL**2)
    return mean, sqrt(square - mean**2)


KINDS: Final[dict[str, tuple[Callable[[Generator, int], Floats], tuple[float, ...]]]] = {
    "normal": (normal, _NORMAL),
    "lognormal": (lognormal, _LOGNORMAL),
    # Its quantiles have no formula.
    "stalls": (stalling, _of_stalls()),
    "AR(1) 0.6": (autoregressive(0.6), _NORMAL),
    "AR(1) 0.9": (autoregressive(0.9), _NORMAL),
}


def coverage(kind: str, n: int, records: int, seed: int = 1) -> dict[str, float]:
    """Share of the records whose 95 % interval of each statistic holds the true value.

    "mean below" and "deviation below": whose one-sided 95 % bound, by which a limit holds, is not
    below the true value.
    """
    make, truth = KINDS[kind]
    known = dict(zip(STATISTICS, truth, strict=False))
    chance = np.random.default_rng(seed)
    held = dict.fromkeys((*known, *(f"{name} below" for name in BOUNDED)), 0)
    for _ in range(records):
        values = make(chance, n)
        found = describe(values)
        # The upper end of a two-sided interval of 90 % is the one-sided bound of 95 %.
        bounds = describe(values, 0.9)
        assert found is not None
        assert bounds is not None
        for name, true in known.items():
            estimate = getattr(found, name)
            low = -np.inf if estimate.low is None else estimate.low
            high = np.inf if estimate.high is None else estimate.high
            held[name] += bool(low <= true <= high)
        for name in BOUNDED:
            high = getattr(bounds, name).high
            held[f"{name} below"] += high is None or known[name] <= high
    return {name: count / records for name, count in held.items()}


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print(f"share of {records} records whose 95 % interval holds the true value, in %;")
    print("below: whose one-sided 95 % bound is not below it")
    columns = [each for name in STATISTICS for each in (name, f"{name} below")]
    columns = [each for each in columns if each.split(" ")[0] in BOUNDED or " " not in each]
    print(
        f"{'values':<12}{'n':>6}" + "".join(f"{name:>{max(len(name) + 2, 8)}}" for name in columns)
    )
    for kind in KINDS:
        for n in (20, 50, 100, 500):
            found = coverage(kind, n, records)
            cells = [f"{100 * found[name]:.1f}" if name in found else "" for name in columns]
            print(
                f"{kind:<12}{n:>6}"
                + "".join(
                    f"{cell:>{max(len(name) + 2, 8)}}"
                    for name, cell in zip(columns, cells, strict=True)
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
