"""What a report says below its figures, section by section."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mqtick.analysis.report.clock_tables import clock_blocks
from mqtick.analysis.report.edges import edges_tables
from mqtick.analysis.report.method import method_blocks
from mqtick.analysis.report.numbers import NOTHING, in_words, interval_of, plain, unit_of, value_of
from mqtick.analysis.report.statistics_tables import pairs_blocks, quantity_blocks, side_by_side
from mqtick.analysis.report.table import (
    Block,
    Cell,
    Listing,
    Paragraph,
    Section,
    number_columns,
    table,
    word_columns,
)
from mqtick.analysis.report.words import level, names_of
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.estimate import Estimate

_REASONS_SHOWN: Final = 20


def sections_of(results: Sequence[Result], command: str = "") -> list[Section]:
    """Return the sections: statistics, verdicts, counts, clocks, method, provenance."""
    several = len(results) > 1
    sections = [Section("Side by side", tuple(side_by_side(results)))] if several else []
    for result, name in zip(results, names_of(results), strict=True):
        tail = f": {name}" if several else ""
        sections += [
            Section(f"{title}{tail}", tuple(blocks)) for title, blocks in _of(result) if blocks
        ]
    sections.append(Section("Method", tuple(method_blocks(results))))
    sections.append(Section("Provenance", tuple(_provenance(results, command))))
    return sections


def _of(result: Result) -> list[tuple[str, list[Block]]]:
    watched = {clock.errors.name for clock in result.clocks}
    statistics: list[Block] = []
    for quantity in result.quantities:
        if quantity.node not in watched:
            statistics += quantity_blocks(result, quantity)
    return [
        ("Verdicts", _verdicts(result)),
        ("Statistics", statistics),
        ("Pairs of nodes", pairs_blocks(result.pairs) if result.pairs else []),
        ("Clocks", clock_blocks(result.clocks, level(result)) if result.clocks else []),
        ("Shots and edges", _counts(result) if result.counts.shots else []),
        ("What was left out or assumed", _notes(result)),
    ]


def _verdicts(result: Result) -> list[Block]:
    if not result.verdicts:
        return [Paragraph("No limit was given: nothing was judged.")]
    rows = []
    for verdict in result.verdicts:
        limit = verdict.limit
        rows.append(
            (
                Cell(verdict.state, state=verdict.state),
                limit.name,
                verdict.of,
                f"{limit.statistic} |{limit.quantity}|",
                in_words(limit.bound_us),
                _measured(verdict.value),
                verdict.n,
                verdict.sentence,
            )
        )
    found = table(
        f"Limits and what the measurement says about them, at {level(result)} confidence",
        (
            *word_columns("verdict", "limit", "of", "statistic"),
            *number_columns("below", "measured", "n"),
            *word_columns("in words"),
        ),
        rows,
    )
    limits = dict.fromkeys(verdict.limit for verdict in result.verdicts)
    sources = [f"{limit.name}: {limit.source}." for limit in limits if limit.source]
    return [found, Listing(tuple(sources))] if sources else [found]


def _measured(value: Estimate) -> Cell:
    if not math.isfinite(value.value):
        return Cell(NOTHING)
    name, factor = unit_of([value.value])
    interval = interval_of(value, factor)
    return Cell(f"{value_of(value, factor)} {name}", interval and f"{interval} {name}")


def _counts(result: Result) -> list[Block]:
    counts = result.counts
    numbers_of = {
        "shots": counts.shots,
        "captured": counts.captured,
        "missed": counts.missed,
        "refused": counts.refused,
        "edges missing": counts.missing_edges,
        "edges doubled": counts.doubled_edges,
        "edges clipped": counts.clipped_edges,
    }
    title = "What became of the shots and their edges"
    blocks: list[Block] = [
        table(title, number_columns(*numbers_of), [numbers_of.values()], head=False),
        *edges_tables(result.measurement),
    ]
    if not counts.reasons:
        return blocks
    most = sorted(counts.reasons.items(), key=lambda item: (-item[1], item[0]))
    rows = [(count, why) for why, count in most[:_REASONS_SHOWN]]
    left = most[_REASONS_SHOWN:]
    if left:
        total = sum(count for _, count in left)
        rows.append((total, f"{len(left):,} other reasons: see shots.csv"))
    columns = (*number_columns("shots"), *word_columns("reason"))
    return [*blocks, table("Why shots were missed or refused", columns, rows, head=False)]


def _notes(result: Result) -> list[Block]:
    measurement = result.measurement
    blocks: list[Block] = []
    if measurement.simulated:
        blocks.append(
            Paragraph(
                "Simulated: an instrument or a measured node was simulated. These figures show "
                "that the method works; they say nothing about real hardware."
            )
        )
    if measurement.damaged:
        count = len(measurement.damaged)
        what = "One file or shot" if count == 1 else f"{count:,} files or shots"
        blocks.append(Paragraph(f"{what} could not be read, and are not part of this report:"))
        blocks.append(Listing(tuple(plain(each) for each in measurement.damaged)))
    if measurement.notes:
        blocks.append(Paragraph("Repaired or assumed while reading:"))
        blocks.append(Listing(tuple(plain(each) for each in measurement.notes)))
    return blocks


def _provenance(results: Sequence[Result], command: str) -> list[Block]:
    blocks: list[Block] = []
    for result, name in zip(results, names_of(results), strict=True):
        if rows := result.measurement.provenance:
            title = f"What was measured, and with what: {name}"
            blocks.append(table(title, word_columns("label", "text"), rows))
    if command:
        blocks.append(Paragraph("This report was made by:"))
        blocks.append(Paragraph(plain(command), code=True))
    return blocks or [Paragraph("Nothing is known about where the figures come from.")]
