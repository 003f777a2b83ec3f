"""A report for a terminal: the sentence, three numbers, a table, verdicts, notes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Final

from mqtick.analysis.report.clock_tables import clocks_table
from mqtick.analysis.report.headline import Headline, headlines_of
from mqtick.analysis.report.numbers import (
    NOTHING,
    interval_of,
    unit_for,
    unit_for_clocks,
    unit_of,
    value_of,
)
from mqtick.analysis.report.statistics_tables import statistics_table
from mqtick.analysis.report.words import level, many_missed, negative, title_of, title_of_all
from mqtick.analysis.report.writers import text, text_table
from mqtick.analysis.results.result import NOT_SHOWN, QuantityResult, Result
from mqtick.recording.published import SHORT

WIDTH: Final = 96
_SHOWN: Final = 8
"""Sentences of one kind; the others are in the report."""


def as_text(results: Sequence[Result]) -> str:
    """Return the report as lines shorter than 100 columns, without an end of line."""
    lines = _wrapped(title_of_all(results))
    several = len(results) > 1
    for result, headline in zip(results, headlines_of(results), strict=True):
        if several:
            lines += ["", *_wrapped(headline.title)]
        lines += ["", *_wrapped(headline.sentence), ""]
        lines += _numbers(headline, level(result))
        lines += _verdicts(headline)
        watched = {clock.errors.name for clock in result.clocks}
        for quantity in result.quantities:
            if quantity.node not in watched:
                lines += _table(result, quantity)
        lines += _clocks(result)
        lines += _compared(results, result)
        lines += _notes(result)
    return "\n".join(line.rstrip() for line in lines)


def _wrapped(said: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(text(said), WIDTH, initial_indent=first, subsequent_indent=rest) or [first]


def _numbers(headline: Headline, confidence: str) -> list[str]:
    lines = []
    width = min(max(len(text(each.label)) for each in headline.numbers), 40)
    for each in headline.numbers:
        value = f"{each.value} {each.unit}".strip()
        interval = f"({confidence}: {each.interval})" if each.interval else ""
        state = each.state.upper()
        tail = "  ".join(part for part in (interval, state, each.note) if part)
        lines += _wrapped(f"{text(each.label):<{width}}  {value}  {tail}", "  ", "      ")
    return lines


def _verdicts(headline: Headline) -> list[str]:
    lines = [""] if headline.verdicts else []
    for verdict in headline.verdicts:
        lines += _wrapped(verdict.sentence, f"{verdict.state:<11} ", " " * 12)
    return lines


def _table(result: Result, quantity: QuantityResult) -> list[str]:
    bars = "|" if bool((quantity.values_us < 0).any()) else ""
    table = statistics_table(result, quantity)
    title = f"{bars}{quantity.title.lower()}{bars}, {unit_for([quantity]).name}"
    lines = ["", text(title)[:WIDTH], *text_table(table, _COLUMNS)]
    if negative(quantity):
        lines += _wrapped(negative(quantity), "  ", "  ")
    if any(map(many_missed, quantity.rows)):
        lines.append("  !: more than 5 % of the shots were missed")
    if any(row.published for row in quantity.rows):
        lines.append(f"  published: means of 20 shots, software and hardware broker ({SHORT})")
    return lines


_COLUMNS: Final = (
    *("N", "n", "missed", "mean", "sd", "median", "p95", "p99", "max"),
    *("published sw", "published hw"),
)


def _compared(results: Sequence[Result], result: Result) -> list[str]:
    """Return one line for each number that is compared with the first measurement's."""
    if not result.compared:
        return []
    lines = ["", text(f"against {title_of(results[0])}")[:WIDTH]]
    for each in result.compared:
        of = (
            f"{each.quantity}, growth with N"
            if each.subscribers is None
            else (f"{each.quantity}, N = {each.subscribers or NOTHING}, {each.statistic}")
        )
        unit = unit_of([each.reference.value, each.value.value])
        parts = [
            f"{value_of(each.difference, unit.per_us)} {unit.name} "
            f"({interval_of(each.difference, unit.per_us) or 'no interval'})"
        ]
        if math.isfinite(each.ratio.value):
            parts.append(
                f"ratio {value_of(each.ratio)} ({interval_of(each.ratio) or 'no interval'})"
            )
        if each.p is not None and each.statistic == "median":
            what = each.shown if each.shown == NOT_SHOWN else f"shown to be {each.shown}"
            parts.append(f"{what} (p {each.p:.2g}, {each.test})")
        if each.limit:
            parts.append(f"{each.limit}: {each.state.upper()}")
        lines += _wrapped(f"{of}: {', '.join(parts)}", "  ", "      ")
    return lines


def _clocks(result: Result) -> list[str]:
    if not result.clocks:
        return []
    title = text(f"time error, {unit_for_clocks(result.clocks).name}")
    table = clocks_table(result.clocks, level(result))
    heads = ("clock", "samples", "constant part", "spread", "p99 |TE|", "max|TE|")
    return ["", title, *text_table(table, heads)]


def _notes(result: Result) -> list[str]:
    counts = result.counts
    lines = []
    if counts.shots:
        said = f"{counts.captured} of {counts.shots} shots captured, {counts.missed} missed"
        said += f", {counts.refused} refused" if counts.refused else ""
        edges = [
            f"{value} {name}"
            for name, value in (
                ("missing", counts.missing_edges),
                ("doubled", counts.doubled_edges),
                ("clipped", counts.clipped_edges),
            )
            if value
        ]
        said += f"; edges: {', '.join(edges)}" if edges else ""
        lines += ["", *_wrapped(f"{said}.")]
    reasons = sorted(counts.reasons.items(), key=lambda item: (-item[1], item[0]))
    lines += _some([f"{count} x {why}" for why, count in reasons])
    lines += _some([f"left out: {each}" for each in result.measurement.damaged])
    notes = [f"note: {each}" for each in result.measurement.notes]
    notes += [f"{clock.errors.name}: {each}" for clock in result.clocks for each in clock.notes]
    lines += _some(notes)
    return lines


def _some(sentences: Sequence[str]) -> list[str]:
    lines = [line for each in sentences[:_SHOWN] for line in _wrapped(each, "  ", "    ")]
    if len(sentences) > _SHOWN:
        lines.append(f"  and {len(sentences) - _SHOWN} more: see the report")
    return lines
