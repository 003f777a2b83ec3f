"""The answer: one sentence and three numbers with their intervals and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.measurement import CLOCK, LATENCY, SKEW
from mqtick.analysis.report.numbers import (
    NOTHING,
    SPACE,
    Unit,
    interval_of,
    number,
    plain,
    short,
    unit_of,
    value_of,
)
from mqtick.analysis.report.titles import level, names_of, title_of
from mqtick.analysis.results.result import QuantityResult, Result, Row
from mqtick.analysis.statistics.estimate import Distribution, Estimate
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN, Verdict

__all__ = ["Headline", "Number", "headline_of", "headlines_of", "worst_of_each_limit"]

_WORST_FIRST: Final = {FAILS: 0, NOT_PROVEN: 1, HOLDS: 2}


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


def worst_of_each_limit(result: Result) -> tuple[Verdict, ...]:
    """Return for each limit the worst verdict, of these the worst first."""
    worst: dict[str, Verdict] = {}
    for verdict in result.verdicts:
        known = worst.get(verdict.limit.name)
        if known is None or _WORST_FIRST[verdict.state] < _WORST_FIRST[known.state]:
            worst[verdict.limit.name] = verdict
    return tuple(sorted(worst.values(), key=lambda verdict: _WORST_FIRST[verdict.state]))


def headlines_of(results: Sequence[Result]) -> list[Headline]:
    """Return the headline of each; of several, at the largest N that all of them have."""
    shared = set.intersection(*(_numbers_of(result) for result in results))
    at = max(shared) if shared and len(results) > 1 else None
    return [
        headline_of(result, name, at)
        for result, name in zip(results, names_of(results), strict=True)
    ]


def _numbers_of(result: Result) -> set[int]:
    quantity = _main(result)
    rows = quantity.rows if quantity is not None else ()
    return {row.subscribers for row in rows if row.subscribers and row.absolute}


def _main(result: Result) -> QuantityResult | None:
    kind = result.measurement.kind
    return next((each for each in result.quantities if each.quantity == kind), None)


def headline_of(result: Result, name: str = "", at: int | None = None) -> Headline:
    """Choose the sentence and the numbers by what the measurement was made for.

    `name` is the title where it is not the measurement's own; `at` the N to tell of, else the
    largest.
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
    return Headline(name or title_of(result), sentence, numbers, worst_of_each_limit(result))


def _row_at(quantity: QuantityResult | None, at: int | None) -> Row | None:
    rows = [row for row in quantity.rows if row.absolute] if quantity is not None else []
    if at is not None:
        rows = [row for row in rows if row.subscribers == at]
    own = [row for row in rows if row.subscribers is not None]
    return max(own, key=lambda row: row.subscribers or 0) if own else next(iter(rows), None)


def _of_rows(result: Result, quantity: QuantityResult, row: Row) -> tuple[str, tuple[Number, ...]]:
    values = row.absolute
    assert values is not None
    at = f" at N{SPACE}={SPACE}{row.subscribers}" if row.subscribers else ""
    of = f"N = {row.subscribers}" if row.subscribers is not None else "all N"
    bars = "|" if quantity.quantity == SKEW else ""
    name = f"{bars}{quantity.quantity}{bars}"
    tail = _tail(values)
    unit = unit_of([values.mean.value, tail[1].value])
    numbers = [
        _number(result, f"mean {name}{at}", values.mean, unit, "mean", quantity, of),
        _number(result, f"{tail[0]} {name}{at}", tail[1], unit, tail[0], quantity, of),
        _third(result, quantity, row, unit),
    ]
    return _sentence_of(result, quantity, row, values, unit), tuple(numbers)


def _tail(values: Distribution) -> tuple[str, Estimate]:
    return ("p99", values.p99) if values.p99.high is not None else ("p95", values.p95)


def _number(
    result: Result,
    label: str,
    estimate: Estimate,
    unit: Unit,
    statistic: str,
    quantity: QuantityResult,
    of: str,
) -> Number:
    judged = [
        verdict
        for verdict in result.verdicts
        if verdict.limit.quantity == quantity.quantity
        and verdict.limit.statistic == statistic
        and verdict.of in (of, quantity.node)
    ]
    verdict = min(judged, key=lambda each: _WORST_FIRST[each.state], default=None)
    note = _limit(verdict) if verdict else ""
    value, interval = value_of(estimate, unit.per_us), interval_of(estimate, unit.per_us)
    return Number(label, value, unit.name, interval, verdict.state if verdict else "", note)


def _limit(verdict: Verdict) -> str:
    return f"limit {verdict.limit.bound_us:g} µs ({plain(verdict.limit.name)})"


def _third(result: Result, quantity: QuantityResult, row: Row, unit: Unit) -> Number:
    """Return the growth with N; without it the drift where there is one, or else the spread."""
    if quantity.growth is not None:
        slope = quantity.growth.b
        note = "growth b: the broker's figure of merit" if quantity.quantity == SKEW else "growth b"
        return Number(
            f"{quantity.quantity} for each further subscriber",
            value_of(slope),
            "µs/subscriber",
            interval_of(slope),
            note=note,
        )
    drift = quantity.drift
    if drift is not None and drift.significant:
        slope = drift.us_per_hour
        return Number("drift", value_of(slope), "µs/h", interval_of(slope), note="within the run")
    spread = row.signed.deviation if row.signed is not None else None
    return Number(
        "standard deviation",
        value_of(spread, unit.per_us),
        unit.name if spread else "",
        interval_of(spread, unit.per_us),
        note="" if spread else "it takes two shots or more",
    )


def _sentence_of(
    result: Result, quantity: QuantityResult, row: Row, values: Distribution, unit: Unit
) -> str:
    mean = f"{value_of(values.mean, unit.per_us)} {unit.name}"
    within = interval_of(values.mean, unit.per_us)
    interval = f" ({level(result)} interval {within} {unit.name})" if within else ""
    shots = f"{values.n:,} shot{'' if values.n == 1 else 's'}"
    others = f" with {row.subscribers} subscribers" if (row.subscribers or 0) > 1 else ""
    if quantity.quantity == SKEW:
        who = f"Of {row.subscribers} subscribers, the" if (row.subscribers or 0) > 1 else "The"
        start = f"{who} first and the last get a message {mean} apart on average{interval}"
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
    unit = unit_of([clock.constant_us.value, clock.spread_us.value, clock.most_us])
    numbers = (
        _part(f"constant part{whose}", clock.constant_us, unit, "positive: the clock is behind"),
        _part(f"spread{whose}", clock.spread_us, unit, "standard deviation of what remains"),
        _most(result, clock, whose, unit),
    )
    worst = f"The worst of {len(result.clocks)} clocks, {name}," if whose else f"The clock {name}"
    after = (
        f" once it had converged, {short(clock.converged_after_s)} s after the begin"
        if clock.converged_after_s
        else ""
    )
    side = "behind" if clock.constant_us.value >= 0 else "ahead"
    constant = f"{number(abs(clock.constant_us.value) * unit.per_us)} {unit.name} {side}"
    sentence = (
        f"{worst} was never more than {number(clock.most_us * unit.per_us)} {unit.name} off"
        f"{after}; on average it was {constant}."
    )
    return sentence, numbers


def _part(label: str, estimate: Estimate, unit: Unit, note: str) -> Number:
    value, interval = value_of(estimate, unit.per_us), interval_of(estimate, unit.per_us)
    return Number(label, value, unit.name, interval, note=note)


def _most(result: Result, clock: ClockSummary, whose: str, unit: Unit) -> Number:
    judged = [
        verdict
        for verdict in result.verdicts
        if verdict.limit.quantity == CLOCK
        and verdict.limit.statistic == "max"
        and verdict.of == clock.errors.name
    ]
    verdict = min(judged, key=lambda each: _WORST_FIRST[each.state], default=None)
    note = f"of {clock.absolute.n:,} samples" if verdict is None else _limit(verdict)
    value = number(clock.most_us * unit.per_us)
    return Number(f"max|TE|{whose}", value, unit.name, "", verdict.state if verdict else "", note)


def _nothing(result: Result) -> str:
    counts = result.counts
    why = max(counts.reasons.items(), key=lambda item: item[1], default=("", 0))[0]
    of = f"None of {counts.shots:,} shots could be used" if counts.shots else "There is no shot"
    return f"{of}{f', mostly because: {plain(why)}' if why else ''}."


def _no_numbers(kind: str) -> tuple[Number, ...]:
    labels = {
        SKEW: ("mean |skew|", "p95 |skew|", "skew for each further subscriber"),
        LATENCY: ("mean latency", "p95 latency", "standard deviation"),
    }.get(kind, ("constant part", "spread", "max|TE|"))
    return tuple(Number(label, NOTHING, "") for label in labels)
