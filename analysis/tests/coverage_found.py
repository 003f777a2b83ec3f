"""How often intervals hold the truth: `python -m analysis.tests.coverage_found [RECORDS]`.

Prints the table of docs/statistics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import e, exp, log, sqrt
from typing import Final

import numpy as np
import pandas as pd

from analysis.tests.known import known
from mqtick.analysis.statistics.describe import describe
from mqtick.recording.units import Floats

Generator = np.random.Generator

STATISTICS: Final = ("mean", "deviation", "median", "p5", "p95", "p99")
BOUNDED: Final = ("mean", "deviation")
COLUMNS: Final = ("mean", "mean below", "deviation", "deviation below", *STATISTICS[2:])
_Z95: Final = 1.6448536269514722
_Z99: Final = 2.3263478740408408
_NORMAL: Final = (0.0, 1.0, 0.0, -_Z95, _Z95, _Z99)
_LOGNORMAL: Final = (exp(0.5), sqrt((e - 1) * e), 1.0, exp(-_Z95), exp(_Z95), exp(_Z99))


def normal(chance: Generator, n: int) -> Floats:
    return chance.normal(size=n)


def lognormal(chance: Generator, n: int) -> Floats:
    return np.exp(chance.normal(size=n))


def exponential(chance: Generator, n: int) -> Floats:
    return chance.exponential(size=n)


def bimodal(chance: Generator, n: int) -> Floats:
    """Three of ten ten deviations away, as those that wait for a broker's next round."""
    return chance.normal(size=n) + np.where(chance.random(n) < 0.3, 10.0, 0.0)


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
    "exponential": (exponential, (1.0, 1.0, *(-log(1 - each) for each in (0.5, 0.05, 0.95, 0.99)))),
    "lognormal": (lognormal, _LOGNORMAL),
    # Its quantiles have no formula.
    "stalls": (stalling, _of_stalls()),
    "bimodal": (bimodal, (3.0, sqrt(22.0))),
    "AR(1) 0.6": (autoregressive(0.6), _NORMAL),
    "AR(1) 0.9": (autoregressive(0.9), _NORMAL),
}


def coverage(kind: str, n: int, records: int, seed: int = 1) -> dict[str, float]:
    """Share of the records whose 95 % interval of each statistic holds the true value.

    "mean below" and "deviation below": whose one-sided 95 % bound, by which a limit holds, is not
    below the true value. Records without any interval of a statistic are left out; NaN where none
    has one.
    """
    make, truth = KINDS[kind]
    truths = dict(zip(STATISTICS, truth, strict=False))
    chance = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {
        name: [] for name in (*truths, *(f"{name} below" for name in BOUNDED))
    }
    for _ in range(records):
        values = make(chance, n)
        # The upper end of a two-sided interval of 90 % is the one-sided bound of 95 %.
        found, bounds = known(describe(values)), known(describe(values, 0.9))
        for name, true in truths.items():
            low, high = (getattr(getattr(found, name), end) for end in ("low", "high"))
            if low is not None or high is not None:
                below, above = -np.inf if low is None else low, np.inf if high is None else high
                held[name].append(below <= true <= above)
        for name in BOUNDED:
            high = getattr(bounds, name).high
            if high is not None:
                held[f"{name} below"].append(truths[name] <= high)
    return {name: float(np.mean(each)) if each else np.nan for name, each in held.items()}


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"share of {records} records whose 95 % interval holds the true value, in %;")
    print("below: whose one-sided 95 % bound is not below it")
    rows = {(kind, n): coverage(kind, n, records) for kind in KINDS for n in (5, 10, 20, 100)}
    table = (100 * pd.DataFrame(rows).T[list(COLUMNS)]).rename_axis(["values", "n"]).reset_index()
    print(table.to_string(index=False, float_format="{:.1f}".format, na_rep="-"))


if __name__ == "__main__":
    main()
