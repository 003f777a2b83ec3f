"""From a measurement to its result: statistics of each N, growth, drift, pairs and verdicts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.measurement import (
    CAPTURED,
    CLOCK,
    MISSED,
    REFUSED,
    Measurement,
)
from mqtick.analysis.results.pairs import pairs_of
from mqtick.analysis.results.published import PUBLISHED
from mqtick.analysis.results.result import Counts, QuantityResult, Result, Row
from mqtick.analysis.results.values import Values, values_of
from mqtick.analysis.statistics.describe import describe, describe_absolute
from mqtick.analysis.statistics.drift import fit_drift
from mqtick.analysis.statistics.estimate import Estimate
from mqtick.analysis.statistics.growth import fit_line, time_within
from mqtick.analysis.statistics.judge import ALL, judge
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN, Limit, Verdict, duration
from mqtick.analysis.statistics.limits import default_limits

__all__ = ["analyse"]

_NS_PER_US: Final = 1e3
_WORST: Final = (FAILS, NOT_PROVEN, HOLDS)


def analyse(
    measurement: Measurement, limits: Sequence[Limit] | None = None, confidence: float = 0.95
) -> Result:
    """Work out everything that a report says; `limits` None: the usual ones of its kind.

    Rows are of signed and of absolute values. Growth is of absolute values, because the published
    skew has no sign; drift is of signed ones, each less the median of its N. Verdicts are of
    absolute values, for each N; those of a clock leave its convergence out. ValueError where
    `confidence` is not between 0.5 and 1.
    """
    if not 0.5 <= confidence < 1:
        raise ValueError(f"A confidence of {confidence} is none: take 0.5 to 0.999, usually 0.95.")
    quantities = tuple(
        _quantity(measurement, taken, confidence) for taken in values_of(measurement)
    )
    clocks: tuple[ClockSummary, ...] = ()
    if measurement.time_errors:
        from mqtick.analysis.clocks.summary import summarise_clock  # noqa: PLC0415

        clocks = tuple(
            summarise_clock(each, confidence)
            for each in measurement.time_errors
            if each.error_ns.size
        )
    if limits is None:
        limits = [
            limit
            for limit in default_limits(measurement.kind)
            if limit.quantity == measurement.kind
            or any(each.quantity == limit.quantity for each in quantities)
        ]
    verdicts = [
        verdict for limit in limits for verdict in _verdicts(limit, quantities, clocks, confidence)
    ]
    return Result(
        measurement=measurement,
        confidence=confidence,
        counts=_counts(measurement),
        quantities=quantities,
        pairs=pairs_of(measurement),
        clocks=clocks,
        verdicts=tuple(sorted(verdicts, key=_badness)),
    )


def _badness(verdict: Verdict) -> tuple[int, float]:
    """Sort key: first what fails, and in it what exceeds its limit by the largest factor."""
    factor = verdict.value.value / verdict.limit.bound_us
    return _WORST.index(verdict.state), -factor if np.isfinite(factor) else 0.0


def _quantity(measurement: Measurement, taken: Values, confidence: float) -> QuantityResult:
    values, subscribers = taken.values_us, taken.subscribers
    known = subscribers > 0
    growth = None
    if taken.quantity != CLOCK:
        growth = fit_line(subscribers[known], np.abs(values[known]), confidence)
    level = values.copy()
    for number in np.unique(subscribers):
        level[subscribers == number] -= np.median(values[subscribers == number])
    return QuantityResult(
        quantity=taken.quantity,
        node=taken.node,
        rows=_rows(taken, confidence),
        growth=growth,
        drift=fit_drift(taken.seconds, level, confidence),
        uncertainty_us=taken.uncertainty_us,
        values_us=values,
        subscribers=subscribers,
        seconds=taken.seconds,
        numbers=taken.numbers,
    )


def _rows(taken: Values, confidence: float) -> tuple[Row, ...]:
    """A row for each N, and one over all where there are several or none is known."""
    numbers = sorted({*taken.subscribers.tolist(), *(+taken.without)})
    values = taken.values_us
    rows = []
    for number in numbers if numbers != [0] else []:
        own = values[taken.subscribers == number]
        rows.append(
            Row(
                number,
                taken.without[number],
                describe(own, confidence),
                describe_absolute(own, confidence),
                PUBLISHED.get((taken.quantity, number)),
            )
        )
    if len(rows) != 1:
        times = [time_within(taken.subscribers, each) for each in (values, np.abs(values))]
        rows.append(
            Row(
                None,
                taken.without.total(),
                describe(values, confidence, times[0]),
                describe_absolute(values, confidence, times[1]),
            )
        )
    return tuple(rows)


def _verdicts(
    limit: Limit,
    quantities: Sequence[QuantityResult],
    clocks: Sequence[ClockSummary],
    confidence: float,
) -> Iterator[Verdict]:
    measured = [each for each in quantities if each.quantity == limit.quantity]
    if not measured:
        words = (
            f"{limit.name}: no {limit.quantity} was measured, so nothing shows that it stays "
            f"below {duration(limit.bound_us)}."
        )
        yield Verdict(limit, ALL, NOT_PROVEN, Estimate(np.nan), 0, confidence, words)
    for quantity in measured:
        if quantity.quantity == CLOCK:
            yield _clock_verdict(limit, quantity, clocks, confidence)
            continue
        for row in quantity.rows:
            number, values = row.subscribers, quantity.values_us
            if number is not None:
                values = values[quantity.subscribers == number]
            elif len(quantity.rows) > 1:
                continue
            of = ALL if number is None else f"N = {number}"
            yield judge(limit, values, of, confidence, quantity.uncertainty_us)


def _clock_verdict(
    limit: Limit, quantity: QuantityResult, clocks: Sequence[ClockSummary], confidence: float
) -> Verdict:
    """Judge a clock from its convergence on."""
    values, uncertainty_us = quantity.values_us, quantity.uncertainty_us
    summary = next((each for each in clocks if each.errors.name == quantity.node), None)
    after_s = None if summary is None else summary.converged_after_s
    if summary is None or not after_s:
        return judge(limit, values, quantity.node, confidence, uncertainty_us)
    chosen = summary.errors.seconds >= after_s
    values = summary.errors.error_ns[chosen] / _NS_PER_US
    verdict = judge(limit, values, quantity.node, confidence, uncertainty_us)
    words = verdict.sentence[:-1] + f"; the {after_s:.4g} s until it had converged are left out."
    return dataclasses.replace(verdict, sentence=words)


def _counts(measurement: Measurement) -> Counts:
    shots = measurement.shots
    outcomes = Counter(shot.outcome for shot in shots)
    marks = [mark for shot in shots for mark in shot.marks.values()]
    return Counts(
        shots=len(shots),
        captured=outcomes[CAPTURED],
        missed=outcomes[MISSED],
        refused=outcomes[REFUSED],
        doubled_edges=sum(mark.found > 1 for mark in marks),
        clipped_edges=sum(mark.clipped for mark in marks),
        missing_edges=sum(
            name not in shot.marks
            for shot in shots
            if shot.outcome != REFUSED and shot.marks
            for name in measurement.nodes
        ),
        reasons=dict(
            Counter(shot.reason for shot in shots if shot.outcome != CAPTURED).most_common()
        ),
    )
