"""Tables of latency and skew: statistics of each N, growth, drift, pairs, and side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mqtick.analysis.measurement import CLOCK, SKEW
from mqtick.analysis.report.clock_tables import clocks_table
from mqtick.analysis.report.numbers import NOTHING, Unit, number, plain, unit_for, unit_of
from mqtick.analysis.report.table import (
    Block,
    Cell,
    Paragraph,
    Table,
    estimate_cell,
    number_columns,
    table,
    word_columns,
)
from mqtick.analysis.report.words import drift_words, level, many_missed, names_of
from mqtick.analysis.results.result import SIGNED_RANKS, Pairs, QuantityResult, Result, RowOfN
from mqtick.analysis.statistics.estimate import Distribution
from mqtick.recording.published import Published

_HEADINGS = ("N", "n", "missed", "mean", "sd", "median", "p5", "p95", "p99", "max")
_PUBLISHED = ("published sw", "published hw")
_PAIRS_SHOWN = 12


def quantity_blocks(result: Result, quantity: QuantityResult) -> list[Block]:
    """Return everything about latency, skew or one clock's pps edges."""
    blocks: list[Block] = [statistics_table(result, quantity)]
    if bool((quantity.values_us < 0).any()):
        blocks.append(statistics_table(result, quantity, signed=True))
    if quantity.growth is not None:
        blocks.append(_growth(result, quantity))
    blocks.append(_drift(result, quantity))
    return blocks


_SIGN = {
    SKEW: "last minus first to subscribe; negative: the last to subscribe was served first",
    "latency": "positive: after the publisher",
}


def statistics_table(result: Result, quantity: QuantityResult, *, signed: bool = False) -> Table:
    """Return the statistics of each N: of absolute values, beside published ones, or of signed."""
    unit = unit_for([quantity])
    known = not signed and any(row.published for row in quantity.rows)
    own = quantity.quantity == CLOCK
    rows = [
        (
            *(() if own else (str(row.subscribers or NOTHING),)),
            *_statistics(row, row.signed if signed else row.absolute, unit),
            *(_published(row.published, unit) if known else ()),
        )
        for row in quantity.rows
    ]
    what = plain(quantity.title)
    if signed:
        sign = _SIGN.get(quantity.quantity, "positive: late, the clock is behind")
        what = f"{what}, signed ({sign})"
    elif bool((quantity.values_us < 0).any()):
        what = f"{what}, absolute values"
    beside = "; published: mean ± sd with a software and a hardware broker" if known else ""
    return table(
        f"{what}, in {unit.name}, with {level(result)} intervals{beside}",
        number_columns(*_HEADINGS[own:], *(_PUBLISHED if known else ())),
        rows,
        head=not own,
    )


def _statistics(row: RowOfN, values: Distribution | None, unit: Unit) -> list[Cell]:
    if values is None:
        return [Cell("0"), _missed(row), *[Cell(NOTHING)] * 7]
    estimates = (values.mean, values.deviation, values.median, values.p5, values.p95, values.p99)
    hang = values.n >= 3 and values.effective_n < 0.9 * values.n
    return [
        Cell(f"{values.n:,}", f"worth {values.effective_n:,.0f}" if hang else ""),
        _missed(row),
        *(estimate_cell(each, unit.per_us) for each in estimates),
        Cell(number(values.most * unit.per_us)),
    ]


def _missed(row: RowOfN) -> Cell:
    shots = many_missed(row)
    share = f"{100 * row.missed / shots:.0f} %" if shots else ""
    return Cell(f"{row.missed:,}", share, warns=bool(shots))


def _published(known: Published | None, unit: Unit) -> tuple[Cell, ...]:
    if known is None:
        return Cell(""), Cell("")
    return tuple(
        Cell(number(mean * unit.per_us), f"± {number(deviation * unit.per_us)}")
        for mean, deviation in (
            (known.software_mean_us, known.software_deviation_us),
            (known.hardware_mean_us, known.hardware_deviation_us),
        )
    )


def _growth(result: Result, quantity: QuantityResult) -> Table:
    line = quantity.growth
    assert line is not None
    first, last = line.subscribers[0], line.subscribers[-1]
    meaning = (
        ("the receivers' noise", "the broker's figure of merit")
        if quantity.quantity == SKEW
        else ("without queueing", "of each further subscriber")
    )
    rows = []
    for name, estimate, per, said in (
        ("a", line.a, "", meaning[0]),
        ("b", line.b, "/subscriber", meaning[1]),
    ):
        unit = unit_of([estimate.value])
        rows.append((name, estimate_cell(estimate, unit.per_us), f"{unit.name}{per}", said))
    return table(
        f"Growth of {quantity.quantity} with N, {line.n:,} shots at {len(line.subscribers)} N "
        f"from {first} to {last}, with {level(result)} intervals",
        (
            *word_columns("parameter"),
            *number_columns("value"),
            *word_columns("unit", "what it stands for"),
        ),
        rows,
    )


def _drift(result: Result, quantity: QuantityResult) -> Paragraph:
    drift = drift_words(quantity)
    name = plain(quantity.title)
    start = f"Drift of {name[0].lower()}{name[1:]}"
    if drift is None or quantity.drift is None:
        return Paragraph(f"{start}: not known; instants are missing or too few.")
    within = f" ({level(result)} interval {drift.interval})" if drift.interval else ""
    said = (
        "It is more than chance would produce: the statistics above mix an early and a late state."
        if quantity.drift.significant
        else "That is no more than chance would produce."
    )
    amount = f"{drift.value} {drift.unit.name}{within} over {drift.over}"
    return Paragraph(f"{start}: {amount}. {said}")


def pairs_blocks(pairs: Pairs) -> list[Block]:
    """Return the median skew of every pair, or where to find it when there are too many."""
    unit = unit_of(float(value) for value in pairs.median_us.ravel())
    if len(pairs.nodes) > _PAIRS_SHOWN:
        count = len(pairs.nodes)
        return [
            Paragraph(f"{count} nodes share shots: their pairs are in the figure and in pairs.csv.")
        ]
    names = [plain(node) for node in pairs.nodes]
    counts = {int(pairs.n[i, j]) for i in range(len(names)) for j in range(len(names)) if i != j}
    same = len(counts) == 1
    rows = []
    for i, name in enumerate(names):
        cells = [
            NOTHING
            if i == j or not pairs.n[i, j]
            else Cell(
                number(float(pairs.median_us[i, j]) * unit.per_us),
                "" if same else f"n {pairs.n[i, j]}",
            )
            for j in range(len(names))
        ]
        rows.append((name, *cells))
    of = f", of {min(counts):,} shots each" if same else ""
    title = f"Median skew of pairs, in {unit.name}: the column's node minus the row's{of}"
    return [table(title, (*word_columns("node"), *number_columns(*names)), rows)]


def short_tables(results: Sequence[Result]) -> dict[str, Table]:
    """Return what a paper or a pull request shows, by its name, without columns that are empty.

    Statistics of each quantity, and clocks; of several results those that stand side by side.
    """
    if len(results) > 1:
        tables = [block for block in side_by_side(results) if isinstance(block, Table)]
        return {f"compare-{place}": _narrow(each) for place, each in enumerate(tables, start=1)}
    (result,) = results
    watched = {clock.errors.name for clock in result.clocks}
    found = {
        f"statistics-{quantity.quantity}": _narrow(statistics_table(result, quantity))
        for quantity in result.quantities
        if quantity.node not in watched and not quantity.node
    }
    if result.clocks:
        found["clocks"] = _narrow(clocks_table(result.clocks, level(result)))
    return found


def _narrow(full: Table) -> Table:
    """Leave out p5, which has no limit, and columns in which every row says nothing, or 0."""
    kept = [
        place
        for place, column in enumerate(full.columns)
        if column.title != "p5"
        and any(row[place].text not in ("", NOTHING, "0") for row in full.rows)
    ]
    return replace(
        full,
        columns=tuple(full.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in full.rows),
    )


def side_by_side(results: Sequence[Result]) -> list[Block]:
    """Return each quantity that several results have, with a column for each; and all clocks."""
    keys = dict.fromkeys((q.quantity, q.node) for result in results for q in result.quantities)
    blocks: list[Block] = []
    for quantity, node in keys:
        found = [
            next((q for q in result.quantities if (q.quantity, q.node) == (quantity, node)), None)
            for result in results
        ]
        if node and sum(q is not None for q in found) < 2:
            continue  # the clocks of one run are not those of the other
        blocks.append(_beside(results, [q for q in found if q], found, level(results[0])))
        if any(q is not None and q.growth is not None for q in found):
            blocks.append(_growth_beside(results, found, quantity))
    for name, result in zip(names_of(results)[1:], results[1:], strict=True):
        if result.compared:
            blocks.append(comparison_table(result, name, names_of(results)[0]))
            blocks.append(
                Paragraph(_COMPARED[any(row.test == SIGNED_RANKS for row in result.compared)])
            )
    clocks = [
        replace(clock, errors=replace(clock.errors, name=f"{name}: {clock.errors.name}"))
        for name, result in zip(names_of(results), results, strict=True)
        for clock in result.clocks
    ]
    return [*blocks, clocks_table(clocks, level(results[0]))] if clocks else blocks


_COMPARED: Final = {
    paired: f"Intervals are made of those of both measurements, which count the dependence between "
    f"shots (MOVER){intervals} Shown: whether the values are less or more than the reference's by "
    f"{test} (its variance is multiplied by the autocorrelation time){shape} p is after Holm's "
    "correction for all tests of this report."
    for paired, intervals, test, shape in (
        (
            False,
            ", and assume that the two are independent of each other.",
            "Mann and Whitney's test of ranks. It assumes that shots are exchangeable but for "
            "their dependence",
            ", and speaks of a shift where both distributions have one shape.",
        ),
        (
            True,
            ", and what shots of one number have in common; growth takes the two as independent.",
            "Wilcoxon's test of the signed ranks of the differences of such shots. It assumes that "
            "differences are exchangeable but for their dependence",
            ", and symmetric about their median.",
        ),
    )
}


def comparison_table(result: Result, name: str, reference: str) -> Table:
    """Return what a measurement differs by from the one that it is held against."""
    rows: list[tuple[Cell | str, ...]] = []
    for each in result.compared:
        unit = unit_of([each.reference.value, each.value.value])
        per = "/subscriber" if each.subscribers is None else ""
        rows.append(
            (
                each.quantity,
                str(each.subscribers or NOTHING),
                each.statistic,
                f"{unit.name}{per}",
                estimate_cell(each.reference, unit.per_us),
                estimate_cell(each.value, unit.per_us),
                estimate_cell(each.difference, unit.per_us),
                estimate_cell(each.ratio) if math.isfinite(each.ratio.value) else NOTHING,
                NOTHING if each.p is None else f"{each.p:.2g}",
                each.shown if each.test else NOTHING,
                Cell(plain(f"{each.limit} {each.state}".strip()) or NOTHING, state=each.state),
            )
        )
    return table(
        plain(f"{name} against {reference}, absolute values, with {level(result)} intervals"),
        (
            *(*word_columns("quantity"), *number_columns("N"), *word_columns("statistic", "unit")),
            *number_columns("reference", "value", "difference", "ratio", "p"),
            *word_columns("shown", "limit"),
        ),
        rows,
    )


def _beside(
    results: Sequence[Result],
    known: Sequence[QuantityResult],
    found: Sequence[QuantityResult | None],
    confidence: str,
) -> Table:
    every_n = sorted({row.subscribers or 0 for q in known for row in q.rows})
    unit = unit_for(known)
    rows = []
    for subscribers in every_n:
        cells: list[Cell | str] = [str(subscribers or NOTHING)]
        for quantity in found:
            values = next(
                (
                    row.absolute
                    for row in (quantity.rows if quantity else ())
                    if (row.subscribers or 0) == subscribers
                ),
                None,
            )
            cells.append(estimate_cell(values.mean if values else None, unit.per_us))
            cells.append(estimate_cell(values.p95 if values else None, unit.per_us))
        rows.append(cells)
    headings = [head for name in names_of(results) for head in (f"{name}: mean", "p95")]
    title = plain(known[0].title)
    return table(
        f"{title} side by side, absolute values in {unit.name}, with {confidence} intervals",
        number_columns("N", *headings),
        rows,
    )


def _growth_beside(
    results: Sequence[Result], found: Sequence[QuantityResult | None], quantity: str
) -> Table:
    lines = [q.growth if q is not None else None for q in found]
    rows: list[tuple[Cell | str, ...]] = []
    for name, per in (("a", ""), ("b", "/subscriber")):
        own = [getattr(line, name) if line is not None else None for line in lines]
        unit = unit_of(each.value for each in own if each is not None)
        cells = [estimate_cell(each, unit.per_us) for each in own]
        rows.append((name, f"{unit.name}{per}", *cells))
    return table(
        f"Growth of {quantity} with N side by side, with {level(results[0])} intervals",
        (*word_columns("parameter", "unit"), *number_columns(*names_of(results))),
        rows,
    )
