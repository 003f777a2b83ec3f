"""The tables that a paper or a pull request shows: those of the page, without what is empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqtick.analysis.report.blocks import Table
from mqtick.analysis.report.clock_tables import clocks_table
from mqtick.analysis.report.numbers import NOTHING
from mqtick.analysis.report.statistics_tables import side_by_side, statistics_table
from mqtick.analysis.report.titles import level
from mqtick.analysis.results.result import Result

__all__ = ["paper_tables"]

_NOTHING: Final = ("", NOTHING, "0")


def paper_tables(results: Sequence[Result]) -> dict[str, Table]:
    """Return each table by its name: statistics of each quantity, clocks, or runs side by side."""
    if len(results) > 1:
        tables = [block for block in side_by_side(results) if isinstance(block, Table)]
        return {f"compare-{place}": _narrow(table) for place, table in enumerate(tables, start=1)}
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


def _narrow(table: Table) -> Table:
    """Leave out p5, which has no limit, and columns in which every row says nothing, or 0."""
    kept = [
        place
        for place in range(len(table.headings))
        if table.headings[place] != "p5"
        and (place in table.words or any(row[place].text not in _NOTHING for row in table.rows))
    ]
    return Table(
        table.caption,
        tuple(table.headings[place] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in table.rows),
        frozenset(new for new, place in enumerate(kept) if place in table.words),
        table.head,
    )
