"""A measurement held against another one, in numbers: differences, ratios, a test of ranks.

Intervals are made of those of the two measurements, in which the dependence between shots is
counted: MOVER (Zou and Donner, Statistics in Medicine 27, 2008), of ratios in logarithms. Where
shots pair, those of means come from the pairs, and those of quantiles have the correlation of the
two in them (Zou, Psychological Methods 12, 2007).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from mqtick.analysis.results.result import (
    NOT_SHOWN,
    RANKS,
    SIGNED_RANKS,
    Comparison,
    QuantityResult,
    Result,
)
from mqtick.analysis.statistics.bootstrap import studentise
from mqtick.analysis.statistics.dependence import autocorrelation_time
from mqtick.analysis.statistics.estimate import Distribution, Estimate
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN
from mqtick.analysis.statistics.ranks import holm, mann_whitney, signed_ranks
from mqtick.recording.units import Floats

_LEAST: Final = 8
"""Of fewer values or pairs, neither a test of ranks nor their correlation says anything."""
_STATISTICS: Final[dict[str, float | None]] = {"mean": None, "median": 0.5, "p95": 0.95}


@dataclass(frozen=True, slots=True)
class RatioLimit:
    """The most that a statistic may be of the first measurement's: `latency.mean<0.8x`."""

    name: str
    quantity: str
    statistic: str
    most: float


class _Both(NamedTuple):
    """One quantity at one N in both measurements: distributions, and values in us.

    `together`: values of the shots that pair, in their order; None where none do.
    """

    quantity: str
    subscribers: int | None
    before: Distribution
    after: Distribution
    values: tuple[Floats, Floats]
    together: tuple[Floats, Floats] | None


def compare(
    reference: Result,
    results: Sequence[Result],
    limits: Sequence[RatioLimit] = (),
    *,
    paired: bool = False,
) -> list[tuple[Comparison, ...]]:
    """Hold measurements against the reference: every quantity and N that both have.

    `paired`: shots of the same N and number belong together, as those of one event do. p is
    corrected for all tests of all these measurements.
    """
    shared = [list(_shared(reference, result, paired)) for result in results]
    tests = [_tested(both) for every in shared for both in every]
    known = [test for test in tests if test is not None]
    corrected = iter(holm([test.p for test in known]))
    tested = iter([test and test._replace(p=next(corrected)) for test in tests])
    level = 1 - reference.confidence
    compared = []
    for every, result in zip(shared, results, strict=True):
        rows = [row for both in every for row in _rows(both, next(tested), level)]
        compared.append(
            tuple(_limited(row, limits) for row in (*rows, *_growth(reference, result)))
        )
    return compared


def _pairs_of_quantities(
    reference: Result, result: Result
) -> Iterator[tuple[QuantityResult, QuantityResult]]:
    for own in result.quantities:
        other = next((q for q in reference.quantities if q.quantity == own.quantity), None)
        if other is not None and not own.node:  # the clocks of one run are not those of the other
            yield other, own


def _shared(reference: Result, result: Result, paired: bool) -> Iterator[_Both]:
    for quantities in _pairs_of_quantities(reference, result):
        other, own = quantities
        for row in own.rows:
            before = next((r for r in other.rows if r.subscribers == row.subscribers), None)
            if before is None or before.absolute is None or row.absolute is None:
                continue
            at = [each.subscribers == (row.subscribers or 0) for each in quantities]
            first, second = (
                np.abs(each.values_us[here]) for each, here in zip(quantities, at, strict=True)
            )
            together = None
            if paired:
                _, one, two = np.intersect1d(
                    other.numbers[at[0]], own.numbers[at[1]], return_indices=True
                )
                together = (first[one], second[two]) if one.size >= _LEAST else None
            yield _Both(
                own.quantity,
                row.subscribers,
                before.absolute,
                row.absolute,
                (first, second),
                together,
            )


class _Test(NamedTuple):
    name: str
    p: float
    less: bool


def _tested(both: _Both) -> _Test | None:
    """Test the ranks: of pairs where shots pair, else of all values."""
    if both.together is not None:
        differences = both.together[1] - both.together[0]
        time = autocorrelation_time(differences)
        return _Test(SIGNED_RANKS, *signed_ranks(differences, time))
    if min(each.size for each in both.values) < _LEAST:
        return None
    # The longer time of the two: no test is known that takes one of each.
    time = max(map(autocorrelation_time, both.values))
    return _Test(RANKS, *mann_whitney(*both.values, time))


def _rows(both: _Both, test: _Test | None, level: float) -> Iterator[Comparison]:
    shown = NOT_SHOWN
    if test is not None and test.p < level:
        shown = "less" if test.less else "more"
    for statistic, share in _STATISTICS.items():
        ends = (getattr(both.before, statistic), getattr(both.after, statistic))
        related = _correlation(both, share) if share else 0.0
        row = _comparison(both.quantity, both.subscribers or 0, statistic, ends, related)
        if both.together is not None and share is None:
            row = _mean_of_pairs(row, *both.together, level / 2)
        name = test.name if test else ""
        yield replace(row, p=test and test.p, test=name, shown=shown)


def _mean_of_pairs(row: Comparison, first: Floats, second: Floats, tail: float) -> Comparison:
    """Compare the means of the pairs alone: a bootstrap of blocks of them knows no other shot.

    The ratio's interval is taken in logarithms.
    """

    def around(values: Floats) -> Estimate:
        found = studentise(values, autocorrelation_time(values)).within(tail)
        return Estimate(float(values.mean()), found.low, found.high)

    difference, ratio = around(second - first), Estimate(math.nan)
    if first.mean() > 0 and second.mean() > 0:
        ends = around(second / second.mean() - first / first.mean())
        middle = float(second.mean() / first.mean())
        low, high = (
            None if end is None else middle * math.exp(end) for end in (ends.low, ends.high)
        )
        ratio = Estimate(middle, low, high)
    return replace(row, difference=difference, ratio=ratio)


def _growth(reference: Result, result: Result) -> Iterator[Comparison]:
    for other, own in _pairs_of_quantities(reference, result):
        if own.growth is not None and other.growth is not None:
            ends = (other.growth.b, own.growth.b)
            yield _comparison(own.quantity, None, "growth", ends, 0.0)


def _correlation(both: _Both, share: float) -> float:
    """Return the correlation of both quantiles: of whether values are below them."""
    if both.together is None:
        return 0.0
    one, two = ((each <= np.quantile(each, share)).astype(np.float64) for each in both.together)
    deviations = float(one.std() * two.std())
    if not deviations:
        return 0.0
    phi = float(((one - one.mean()) * (two - two.mean())).mean()) / deviations
    whole = math.sqrt(both.values[0].size * both.values[1].size)
    return phi * both.together[0].size / whole


def _comparison(
    quantity: str,
    subscribers: int | None,
    statistic: str,
    ends: tuple[Estimate, Estimate],
    correlation: float,
) -> Comparison:
    reference, value = ends
    ratio = Estimate(math.nan)
    if reference.value > 0 and value.value > 0:
        logs = _apart(_log(reference), _log(value), correlation)
        bounds = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
        ratio = Estimate(math.exp(logs.value), *bounds)
    elif value.value == 0 and reference.low is not None and reference.low > 0:
        ratio = Estimate(0.0, 0.0, None if value.high is None else value.high / reference.low)
    difference = _apart(reference, value, correlation)
    return Comparison(quantity, subscribers, statistic, reference, value, difference, ratio)


def _log(each: Estimate) -> Estimate:
    low = math.log(each.low) if each.low is not None and each.low > 0 else None
    return Estimate(math.log(each.value), low, None if each.high is None else math.log(each.high))


def _apart(reference: Estimate, value: Estimate, correlation: float) -> Estimate:
    """Return value minus reference, with an interval where both have the ends that it takes."""
    apart = value.value - reference.value

    def end(own: float | None, other: float | None, sign: int) -> float | None:
        if own is None or other is None:
            return None
        one, two = abs(own - value.value), abs(other - reference.value)
        return apart + sign * math.sqrt(max(one**2 + two**2 - 2 * correlation * one * two, 0.0))

    return Estimate(apart, end(value.low, reference.high, -1), end(value.high, reference.low, 1))


def _limited(row: Comparison, limits: Sequence[RatioLimit]) -> Comparison:
    for limit in limits:
        if (limit.quantity, limit.statistic) == (row.quantity, row.statistic):
            return replace(row, limit=limit.name, state=_state(row.ratio, limit.most))
    return row


def _state(ratio: Estimate, most: float) -> str:
    if ratio.high is not None and ratio.high < most:
        return HOLDS
    return FAILS if ratio.low is not None and ratio.low >= most else NOT_PROVEN
