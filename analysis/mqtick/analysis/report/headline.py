"""The answer: one sentence and three numbers with their intervals and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.measurement import CLOCK, LATENCY, SKEW
from mqtick.analysis.report.numbers import (
    NOTHING,
    SPACE,
    in_words,
    interval_of,
    number,
    plain,
    short,
    unit_of,
    value_of,
)
from mqtick.analysis.report.words import drift_words, level, many_missed, names_of
from mqtick.analysis.results.result import QuantityResult, Result, RowOfN
from mqtick.analysis.statistics.estimate import Distribution, Estimate
from mqtick.analysis.statistics.limit import Verdict


@dataclass(frozen=True, slots=True)
class Number:
    """One of the three: what it is, its value, its unit, its interval, and what a limit says.

    `interval` and `state` are "" where there is none; `note` is a remark on what it means.
    """

    label: str
    value: str
    unit: str
    interval: str = ""
    state: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """A sentence that says it all, the three numbers, and the worst verdict of each limit."""

    title: str
    sentence: str
    numbers: tuple[Number, ...]
    verdicts: tuple[Verdict, ...]


def headlines_of(results: Sequence[Result]) -> list[Headline]:
    """Return the headline of each; of several, at the largest N that all of them have."""
    shared = set.intersection(*(_numbers_of(result) for result in results))
    at = max(shared) if shared and len(results) > 1 else None
    return [
        _headline_of(result, name, at)
        for result, name in zip(results, names_of(results), strict=True)
    ]


def _numbers_of(result: Result) -> set[int]:
    quantity = _main(result)
    rows = quantity.rows if quantity is not None else ()
    return {row.subscribers for row in rows if row.subscribers and row.absolute}


def _main(result: Result) -> QuantityResult | None:
    kind = result.measurement.kind
    return next((each for each in result.quantities if each.quantity == kind), None)


def _headline_of(result: Result, name: str, at: int | None) -> Headline:
    """Choose the sentence and the numbers by what the measurement was made for.

    `at` is the N to tell of, None the largest.
    """
    kind = result.measurement.kind
    found: tuple[str, tuple[Number, ...]] | None = None
    if kind == CLOCK and result.clocks:
        found = _of_clock(result)
    else:
        quantity = _main(result)
        row = _row_at(quantity, at)
        if quantity is not None and row is not None:
            found = _of_rows(result, quantity, row)
    sentence, numbers = found or (_nothing(result), _no_numbers(kind))
    worst: dict[str, Verdict] = {}
    for verdict in result.verdicts:  # the worst come first
        worst.setdefault(verdict.limit.name, verdict)
    return Headline(name, sentence, numbers, tuple(worst.values()))


def _row_at(quantity: QuantityResult | None, at: int | None) -> RowOfN | None:
    rows = [row for row in quantity.rows if row.absolute] if quantity is not None else []
    if at is not None:
        rows = [row for row in rows if row.subscribers == at]
    return max(rows, key=lambda row: row.subscribers or 0, default=None)


def _of_rows(
    result: Result, quantity: QuantityResult, row: RowOfN
) -> tuple[str, tuple[Number, ...]]:
    values = row.absolute
    assert values is not None
    at = f" at N{SPACE}={SPACE}{row.subscribers}" if row.subscribers else ""
    of = f"N = {row.subscribers}" if row.subscribers is not None else "all N"
    bars = "|" if quantity.quantity == SKEW else ""
    name = f"{bars}{quantity.quantity}{bars}"
    tail = _tail(values)
    mean = _number(result, f"mean {name}{at}", values.mean, "mean", quantity, of)
    shots = many_missed(row)
    if shots:
        missed = f"{row.missed:,} of {shots:,} shots were missed"
        mean = replace(mean, note=f"{mean.note}; {missed}" if mean.note else missed)
    last = _number(result, f"{tail[0]} {name}{at}", tail[1], tail[0], quantity, of)
    return _sentence_of(result, quantity, row, values), (mean, last, _third(quantity, row))


def _tail(values: Distribution) -> tuple[str, Estimate]:
    return ("p99", values.p99) if values.p99.high is not None else ("p95", values.p95)


def _number(
    result: Result,
    label: str,
    estimate: Estimate,
    statistic: str,
    quantity: QuantityResult,
    of: str,
) -> Number:
    verdict = _worst(result, quantity.quantity, statistic, (of, quantity.node))
    if verdict is None:
        return _plain_number(label, estimate, "")
    return replace(_plain_number(label, estimate, _limit(verdict)), state=verdict.state)


def _worst(result: Result, quantity: str, statistic: str, of: tuple[str, ...]) -> Verdict | None:
    """Return the worst verdict on a statistic, None where it was not judged."""
    return next(
        (
            verdict
            for verdict in result.verdicts
            if verdict.limit.quantity == quantity
            and verdict.limit.statistic == statistic
            and verdict.of in of
        ),
        None,
    )


def _limit(verdict: Verdict) -> str:
    return f"limit {in_words(verdict.limit.bound_us)} ({plain(verdict.limit.name)})"


def _plain_number(label: str, estimate: Estimate, note: str, per: str = "") -> Number:
    """Return a number in the unit that suits it: its sentence says it in the same."""
    name, factor = unit_of([estimate.value])
    interval = interval_of(estimate, factor)
    return Number(label, value_of(estimate, factor), f"{name}{per}", interval, note=note)


def _third(quantity: QuantityResult, row: RowOfN) -> Number:
    """Return the growth with N; without it the drift where there is one, or else the spread."""
    if quantity.growth is not None:
        note = "growth b: the broker's figure of merit" if quantity.quantity == SKEW else "growth b"
        label = f"{quantity.quantity} for each further subscriber"
        return _plain_number(label, quantity.growth.b, note, "/subscriber")
    drift = drift_words(quantity)
    if drift is not None and quantity.drift is not None and quantity.drift.significant:
        return Number(f"drift over {drift.over}", drift.value, drift.unit.name, drift.interval)
    spread = row.signed.deviation if row.signed is not None else None
    if spread is None:
        return Number("standard deviation", NOTHING, "", note="it takes at least two shots")
    return _plain_number("standard deviation", spread, "")


def _sentence_of(
    result: Result, quantity: QuantityResult, row: RowOfN, values: Distribution
) -> str:
    unit = unit_of([values.mean.value])
    mean = f"{value_of(values.mean, unit.per_us)} {unit.name}"
    within = interval_of(values.mean, unit.per_us)
    interval = f" ({level(result)} interval {within} {unit.name})" if within else ""
    shots = f"{values.n:,} shot{'' if values.n == 1 else 's'}"
    others = f" with {row.subscribers} subscribers" if (row.subscribers or 0) > 1 else ""
    if quantity.quantity == SKEW:
        who = f"Of {row.subscribers} subscribers, the" if (row.subscribers or 0) > 1 else "The"
        start = f"{who} first and the last to subscribe get a message {mean} apart on average"
        start += interval
    elif quantity.quantity == LATENCY:
        start = f"A message takes {mean} on average from the publisher to the first subscriber"
        start += f"{others}{interval}"
    else:
        start = f"The clock of {plain(quantity.node)} is off by {mean} on average{interval}"
    return f"{start}, in {shots}."


def _of_clock(result: Result) -> tuple[str, tuple[Number, ...]]:
    clock = max(result.clocks, key=lambda each: each.most_us)
    name = plain(clock.errors.name)
    whose = f" of {name}" if len(result.clocks) > 1 else ""
    numbers = (
        _plain_number(f"constant part{whose}", clock.constant_us, "positive: the clock is behind"),
        _plain_number(f"spread{whose}", clock.spread_us, "standard deviation of what remains"),
        _most(result, clock, whose),
    )
    worst = f"The worst of {len(result.clocks)} clocks, {name}," if whose else f"The clock {name}"
    after = (
        f" once it had converged, {short(clock.converged_after_s, 4)} s after the start"
        if clock.converged_after_s
        else ""
    )
    side = "behind" if clock.constant_us.value >= 0 else "ahead"
    constant = f"{in_words(abs(clock.constant_us.value))} {side}"
    sentence = (
        f"{worst} was never more than {in_words(clock.most_us)} off{after}; on average it was "
        f"{constant}."
    )
    return sentence, numbers


def _most(result: Result, clock: ClockSummary, whose: str) -> Number:
    verdict = _worst(result, CLOCK, "max", (clock.errors.name,))
    note = f"of {clock.absolute.n:,} samples" if verdict is None else _limit(verdict)
    name, factor = unit_of([clock.most_us])
    state = "" if verdict is None else verdict.state
    return Number(f"max|TE|{whose}", number(clock.most_us * factor), name, state=state, note=note)


def _nothing(result: Result) -> str:
    counts = result.counts
    most = max(counts.reasons.items(), key=lambda item: item[1], default=("", 0))[0]
    why = plain(most).rstrip(".")
    of = f"None of {counts.shots:,} shots could be used" if counts.shots else "There is no shot"
    return f"{of}{f', mostly because: {why}' if why else ''}."


def _no_numbers(kind: str) -> tuple[Number, ...]:
    labels = {
        SKEW: ("mean |skew|", "p95 |skew|", "skew for each further subscriber"),
        LATENCY: ("mean latency", "p95 latency", "standard deviation"),
    }.get(kind, ("constant part", "spread", "max|TE|"))
    return tuple(Number(label, NOTHING, "") for label in labels)
