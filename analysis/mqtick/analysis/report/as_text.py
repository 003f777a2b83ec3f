"""A report for a terminal: the sentence, three numbers, a table, verdicts, notes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Final

from mqtick.analysis.report.headline import Headline, headlines_of
from mqtick.analysis.report.numbers import (
    NOTHING,
    SPACE,
    number,
    plain,
    unit_for,
    unit_for_clocks,
    value_of,
)
from mqtick.analysis.report.remarks import many_missed, negative
from mqtick.analysis.report.titles import level, title_of_all
from mqtick.analysis.results.published import SHORT
from mqtick.analysis.results.result import QuantityResult, Result, Row
from mqtick.analysis.statistics.estimate import Distribution

__all__ = ["WIDTH", "as_text"]

WIDTH: Final = 96
_SHOWN: Final = 8
"""Sentences of one kind; the others are in the report."""
_ROWS_SHOWN: Final = 24
_PLAIN: Final = str.maketrans({"µ": "u", "–": "-", "−": "-", SPACE: " "})
_LOWERED: Final = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
"""A terminal may have nothing but ASCII for what we say."""


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
                lines += _table(quantity)
        lines += _clocks(result)
        lines += _notes(result)
    return "\n".join(line.rstrip() for line in lines)


def _said(text: str) -> str:
    text = re.sub(
        "(·?)10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)",
        lambda found: f"{'' if found[1] else '1'}e{found[2].translate(_LOWERED)}",
        text,
    )
    return plain(text).translate(_PLAIN)


def _wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(_said(text), WIDTH, initial_indent=first, subsequent_indent=rest) or [
        first
    ]


def _numbers(headline: Headline, confidence: str) -> list[str]:
    lines = []
    width = min(max(len(_said(each.label)) for each in headline.numbers), 40)
    for each in headline.numbers:
        value = f"{each.value} {each.unit}".strip()
        interval = f"({confidence}: {each.interval})" if each.interval else ""
        state = each.state.upper()
        tail = "  ".join(part for part in (interval, state, each.note) if part)
        lines += _wrapped(f"{_said(each.label):<{width}}  {value}  {tail}", "  ", "      ")
    return lines


def _verdicts(headline: Headline) -> list[str]:
    lines = [""] if headline.verdicts else []
    for verdict in headline.verdicts:
        lines += _wrapped(verdict.sentence, f"{verdict.state:<11} ", " " * 12)
    return lines


def _table(quantity: QuantityResult) -> list[str]:
    unit = unit_for([quantity])
    heads = ("N", "n", "missed", "mean", "sd", "median", "p95", "p99", "max")
    line = "".join(f"{head:>{width}}" for head, width in zip(heads, _WIDTHS, strict=True))
    bars = "|" if bool((quantity.values_us < 0).any()) else ""
    known = [row.published for row in quantity.rows if row.published]
    beside = "   published: sw | hw" if known else ""
    title = f"{bars}{quantity.title.lower()}{bars}, {unit.name}"
    lines = ["", _said(title)[:WIDTH], line + beside]
    rows = quantity.rows
    shown = rows if len(rows) <= _ROWS_SHOWN else (*rows[: _ROWS_SHOWN - 1], rows[-1])
    lines += [_said(_row(row, unit.per_us)) for row in shown]
    if len(rows) > len(shown):
        lines.append(f"  {len(rows) - len(shown)} other N are in the report")
    lines += _wrapped(negative(quantity), "  ", "  ") if negative(quantity) else []
    if any(map(many_missed, rows)):
        lines.append("  !: more than 5 % of the shots were missed")
    if known:
        lines.append(f"  published: means of 20 shots, software | hardware broker ({SHORT})")
    return lines


_WIDTHS: Final = (6, 7, 8, 9, 9, 9, 9, 9, 9)


def _row(row: Row, per_us: float) -> str:
    cells = [str(row.subscribers or NOTHING), *_cells(row, row.absolute, per_us)]
    line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    known = row.published
    if known is None:
        return line
    means = (known.software_mean_us * per_us, known.hardware_mean_us * per_us)
    return f"{line}   {means[0]:.4g} | {means[1]:.4g}"


def _missed(row: Row) -> str:
    return f"{row.missed}{'!' if many_missed(row) else ''}"


def _cells(row: Row, values: Distribution | None, per_us: float) -> list[str]:
    if values is None:
        return ["0", _missed(row), *[NOTHING] * 6]
    estimates = (values.mean, values.deviation, values.median, values.p95, values.p99)
    return [
        f"{values.n}",
        _missed(row),
        *(value_of(each, per_us) for each in estimates),
        number(values.most * per_us),
    ]


def _clocks(result: Result) -> list[str]:
    if not result.clocks:
        return []
    unit = unit_for_clocks(result.clocks)
    heads = ("samples", "constant", "spread", "p99 |TE|", "max|TE|")
    line = "".join(f"{head:>12}" for head in heads)
    lines = ["", _said(f"time error, {unit.name}"), f"{'clock':<24}{line}"]
    for clock in result.clocks:
        estimates = (clock.constant_us, clock.spread_us, clock.absolute.p99)
        cells = [
            f"{len(clock.errors.seconds)}",
            *(value_of(each, unit.per_us) for each in estimates),
            number(clock.most_us * unit.per_us),
        ]
        name = _said(clock.errors.name)[:23]
        lines.append(_said(f"{name:<24}" + "".join(f"{cell:>12}" for cell in cells)))
    return lines


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
