"""From a measurement to its result: statistics of each N, growth, drift, pairs and verdicts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from mqtick.analysis.clocks.summary import ClockSummary, summarise_clock
from mqtick.analysis.measurement import CAPTURED, CLOCK, MISSED, REFUSED, Measurement
from mqtick.analysis.results.result import Counts, QuantityResult, Result, RowOfN
from mqtick.analysis.results.values import Values, pairs_of, values_of
from mqtick.analysis.statistics.describe import describe, describe_absolute
from mqtick.analysis.statistics.drift import fit_drift
from mqtick.analysis.statistics.estimate import Estimate
from mqtick.analysis.statistics.growth import fit_line
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN, Limit, Verdict, duration
from mqtick.analysis.statistics.limits import default_limits
from mqtick.analysis.statistics.verdicts import ALL, verdict_on
from mqtick.recording.published import PUBLISHED
from mqtick.recording.reasons import counted
from mqtick.recording.units import NS_PER_US

_NO_WHOLE_SECONDS: Final = (
    "Pps edges do not say which second they begin: this is the error within a second, and a "
    "clock that is wrong by whole seconds reads 0."
)
_WORST: Final = (FAILS, NOT_PROVEN, HOLDS)


def analyse(
    measurement: Measurement, limits: Sequence[Limit] | None = None, confidence: float = 0.95
) -> Result:
    """Work out everything that a report says; `limits` None: the usual ones of its kind.

    Rows are of signed and of absolute values. Growth is of absolute values, because the published
    skew has no sign; drift is of signed ones, each less the median of its N. Verdicts are of
    absolute values, for each N; those of a clock leave its convergence out, and a named clock
    without a value has one too. ValueError where `confidence` is not between 0.5 and 1.
    """
    if not 0.5 <= confidence < 1:
        raise ValueError(f"The confidence is {confidence}; take 0.5 to 0.999, usually 0.95.")
    values = tuple(values_of(measurement))
    quantities = tuple(_quantity(taken, confidence) for taken in values)
    clocks = _clocks(measurement, values, confidence)
    if limits is None:
        limits = [
            limit
            for limit in default_limits(measurement.kind)
            if limit.quantity == measurement.kind
            or any(each.quantity == limit.quantity for each in quantities)
        ]
    verdicts = [
        _with_damaged(verdict, len(measurement.damaged))
        for limit in limits
        for verdict in _verdicts(limit, measurement, values, clocks, confidence)
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


def _clocks(
    measurement: Measurement, values: Sequence[Values], confidence: float
) -> tuple[ClockSummary, ...]:
    of_node = {taken.node: taken for taken in values if taken.quantity == CLOCK}
    clocks = []
    for errors in measurement.time_errors:
        if not errors.error_ns.size:
            continue
        taken = of_node.get(errors.name)
        off_ns = np.zeros(1) if taken is None else taken.off_us * NS_PER_US
        if off_ns.size != errors.error_ns.size:  # of shots at the same time one counts
            off_ns = off_ns.max(keepdims=True)
        summary = summarise_clock(errors, confidence, off_ns)
        if any(errors.name in shot.clock_fs for shot in measurement.shots):
            summary = dataclasses.replace(summary, notes=(*summary.notes, _NO_WHOLE_SECONDS))
        clocks.append(summary)
    return tuple(clocks)


def _quantity(taken: Values, confidence: float) -> QuantityResult:
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


def _rows(taken: Values, confidence: float) -> tuple[RowOfN, ...]:
    """A row for each N; where none is known, one over all."""
    rows = []
    numbers = taken.numbers_of_subscribers
    for number in numbers:
        chosen = taken.values_us[taken.subscribers == number]
        rows.append(
            RowOfN(
                None if numbers == [0] else number,
                taken.without[number],
                describe(chosen, confidence),
                describe_absolute(chosen, confidence),
                PUBLISHED.get((taken.quantity, number)),
            )
        )
    return tuple(rows)


def _verdicts(
    limit: Limit,
    measurement: Measurement,
    values: Sequence[Values],
    clocks: Sequence[ClockSummary],
    confidence: float,
) -> Iterator[Verdict]:
    measured = [each for each in values if each.quantity == limit.quantity]
    silent = []
    if limit.quantity == measurement.kind == CLOCK:
        heard = {measurement.reference, *(each.node for each in measured)}
        silent = [name for name in measurement.nodes if name not in heard]
    if not measured and not silent:
        words = (
            f"{limit.name}: no {limit.quantity} was measured, so nothing shows that it stays "
            f"below {duration(limit.bound_us)}."
        )
        yield Verdict(limit, ALL, NOT_PROVEN, Estimate(np.nan), 0, confidence, words)
    for name in silent:
        yield verdict_on(limit, [], name, confidence)
    for taken in measured:
        if taken.quantity == CLOCK:
            yield _clock_verdict(limit, taken, clocks, confidence)
            continue
        numbers = taken.numbers_of_subscribers
        for number in numbers:
            chosen = taken.subscribers == number
            low, high = taken.within_us
            missed = sum(shot.subscribers == number for shot in taken.missed)
            of = ALL if numbers == [0] else f"N = {number}"
            own, within = taken.values_us[chosen], (low[chosen], high[chosen])
            yield verdict_on(limit, own, of, confidence, within, missed)


def _clock_verdict(
    limit: Limit, taken: Values, clocks: Sequence[ClockSummary], confidence: float
) -> Verdict:
    """Judge a clock from its convergence on."""
    summary = next((each for each in clocks if each.errors.name == taken.node), None)
    after_s, first = 0.0, 0
    if summary is not None and summary.converged_after_s:
        after_s = summary.converged_after_s
        first = summary.errors.error_ns.size - summary.after.error_ns.size
    begun = taken.numbers[:first].max(initial=0)
    missed = [shot for shot in taken.missed if not first or shot.number > begun]
    low, high = taken.within_us
    within = low[first:], high[first:]
    values = taken.values_us[first:]
    verdict = verdict_on(limit, values, taken.node, confidence, within, len(missed))
    if not first:
        return verdict
    words = verdict.sentence[:-1] + f"; the {after_s:.4g} s until it had converged are left out."
    return dataclasses.replace(verdict, sentence=words)


def _with_damaged(verdict: Verdict, damaged: int) -> Verdict:
    """Say so where a limit holds but it is not known what was in damaged files."""
    if verdict.state != HOLDS or not damaged:
        return verdict
    files = "1 damaged file" if damaged == 1 else f"{damaged} damaged files"
    words = f"{verdict.sentence[:-1]}; the content of {files} is not counted."
    return dataclasses.replace(verdict, sentence=words)


def _counts(measurement: Measurement) -> Counts:
    shots = measurement.shots
    outcomes = Counter(shot.outcome for shot in shots)
    marks = [mark for shot in shots for mark in shot.edges.values()]
    return Counts(
        shots=len(shots),
        captured=outcomes[CAPTURED],
        missed=outcomes[MISSED],
        refused=outcomes[REFUSED],
        doubled_edges=sum(mark.found > 1 for mark in marks),
        clipped_edges=sum(mark.clipped for mark in marks),
        missing_edges=sum(
            name not in shot.edges
            for shot in shots
            if shot.outcome != REFUSED and shot.edges
            for name in measurement.nodes
        ),
        reasons=counted(shot.reason for shot in shots if shot.outcome != CAPTURED),
    )
