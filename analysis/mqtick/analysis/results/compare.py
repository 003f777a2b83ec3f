"""A measurement held against another one, in numbers: differences, ratios, a test of ranks.

Intervals are made of those of the two measurements, in which the dependence between shots is
counted: MOVER (Zou and Donner, Statistics in Medicine 27, 2008), of ratios in logarithms. They
assume that the two measurements are independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mqtick.analysis.results.result import NOT_SHOWN, Comparison, QuantityResult, Result
from mqtick.analysis.statistics.dependence import autocorrelation_time
from mqtick.analysis.statistics.estimate import Estimate
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN
from mqtick.recording.units import Floats

_LEAST: Final = 8
"""Of fewer values the test of ranks says nothing."""
_STATISTICS: Final = ("mean", "median", "p95")


@dataclass(frozen=True, slots=True)
class RatioLimit:
    """The most that a statistic may be of the first measurement's: `latency.mean<0.8x`."""

    name: str
    quantity: str
    statistic: str
    most: float


def compare(
    reference: Result, result: Result, limits: Sequence[RatioLimit] = ()
) -> tuple[Comparison, ...]:
    """Hold a measurement against another one: every quantity and N that both have."""
    tests: dict[tuple[str, int], tuple[float, bool]] = {}
    found: list[Comparison] = []
    for own in result.quantities:
        other = next((q for q in reference.quantities if q.quantity == own.quantity), None)
        if own.node or other is None:
            continue  # the clocks of one run are not those of the other
        for row in own.rows:
            before = next((r for r in other.rows if r.subscribers == row.subscribers), None)
            if before is None or before.absolute is None or row.absolute is None:
                continue
            key = (own.quantity, row.subscribers or 0)
            test = _ranks(*(_values(each, row.subscribers) for each in (other, own)))
            if test is not None:
                tests[key] = test
            found += [
                _comparison(*key, each, getattr(before.absolute, each), getattr(row.absolute, each))
                for each in _STATISTICS
            ]
        if own.growth is not None and other.growth is not None:
            found.append(_comparison(own.quantity, None, "growth", other.growth.b, own.growth.b))
    return tuple(_judged(found, _holm(tests), 1 - result.confidence, limits))


def _values(quantity: QuantityResult, subscribers: int | None) -> Floats:
    chosen: Floats = np.abs(quantity.values_us[quantity.subscribers == (subscribers or 0)])
    return chosen


def _comparison(
    quantity: str, subscribers: int | None, statistic: str, reference: Estimate, value: Estimate
) -> Comparison:
    difference, ratio = _apart(reference, value), Estimate(math.nan)
    if reference.value > 0 and value.value > 0:
        logs = _apart(*map(_log, (reference, value)))
        ends = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
        ratio = Estimate(math.exp(logs.value), *ends)
    return Comparison(quantity, subscribers, statistic, reference, value, difference, ratio)


def _log(each: Estimate) -> Estimate:
    low = math.log(each.low) if each.low is not None and each.low > 0 else None
    return Estimate(math.log(each.value), low, None if each.high is None else math.log(each.high))


def _apart(reference: Estimate, value: Estimate) -> Estimate:
    """Return value minus reference, with an interval where both have the ends that it takes."""
    apart = value.value - reference.value

    def end(own: float | None, other: float | None, sign: int) -> float | None:
        if own is None or other is None:
            return None
        return apart + sign * math.hypot(own - value.value, other - reference.value)

    return Estimate(apart, end(value.low, reference.high, -1), end(value.high, reference.low, 1))


def _ranks(reference: Floats, values: Floats) -> tuple[float, bool] | None:
    """Return p of Mann and Whitney's test, and whether the values are the smaller ones.

    Its variance, ties counted, is multiplied by the longer autocorrelation time of the two: n
    correlated values are worth n divided by it.
    """
    n, m = reference.size, values.size
    if min(n, m) < _LEAST:
        return None
    _, place, counts = np.unique(
        np.concatenate((reference, values)), return_inverse=True, return_counts=True
    )
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    above = float(ranks[n:].sum()) - m * (m + 1) / 2 - n * m / 2
    both = n + m
    ties = float((counts.astype(np.float64) ** 3 - counts).sum()) / (both * (both - 1))
    variance = n * m / 12 * (both + 1 - ties)
    time = max(autocorrelation_time(each) for each in (reference, values))
    if variance <= 0:
        return 1.0, False
    z = max(abs(above) - 0.5, 0.0) / math.sqrt(variance * time)
    return math.erfc(z / math.sqrt(2)), above < 0


def _holm(tests: dict[tuple[str, int], tuple[float, bool]]) -> dict[tuple[str, int], float]:
    adjusted, least = {}, 0.0
    for place, (key, (p, _)) in enumerate(sorted(tests.items(), key=lambda item: item[1][0])):
        least = max(least, min(1.0, p * (len(tests) - place)))
        adjusted[key] = math.copysign(least, -1.0 if tests[key][1] else 1.0)
    return adjusted


def _judged(
    found: Sequence[Comparison],
    tests: dict[tuple[str, int], float],
    level: float,
    limits: Sequence[RatioLimit],
) -> list[Comparison]:
    judged = []
    for each in found:
        signed = None if each.subscribers is None else tests.get((each.quantity, each.subscribers))
        shown = NOT_SHOWN
        if signed is not None and abs(signed) < level:
            shown = "less" if math.copysign(1, signed) < 0 else "more"
        limit = next(
            (x for x in limits if (x.quantity, x.statistic) == (each.quantity, each.statistic)),
            None,
        )
        judged.append(
            replace(
                each,
                p=None if signed is None else abs(signed),
                shown=shown,
                limit=limit.name if limit else "",
                state=_state(each.ratio, limit.most) if limit else "",
            )
        )
    return judged


def _state(ratio: Estimate, most: float) -> str:
    if ratio.high is not None and ratio.high < most:
        return HOLDS
    return FAILS if ratio.low is not None and ratio.low >= most else NOT_PROVEN
