"""A report as Markdown: what a pull request shows, and tables for other documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mqtick.analysis.report.blocks import MARKS, Cell, Table
from mqtick.analysis.report.headline import headlines_of
from mqtick.analysis.report.numbers import plain
from mqtick.analysis.report.paper_tables import paper_tables
from mqtick.analysis.report.titles import title_of_all
from mqtick.analysis.results.result import Result

__all__ = ["markdown_of", "markdown_table", "md"]

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~@$&])")
_NOTES_SHOWN: Final = 10


def md(text: str) -> str:
    """Return a text on one line in which nothing is a command, a link or a name to be told."""
    return _SPECIAL.sub(r"\\\1", plain(text)).replace("\\@", "@\u200b")


def markdown_table(table: Table) -> str:
    """Return a table, its caption above it: intervals stand in brackets behind their values."""
    heads = [md(head) for head in table.headings]
    under = [":--" if place in table.words else "--:" for place in range(len(heads))]
    rows = [heads, under, *([_cell(cell) for cell in row] for row in table.rows)]
    return f"{md(table.caption)}:\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def markdown_of(results: Sequence[Result]) -> str:
    """Return the answer, the verdicts, the statistics and the notes, for a pull request."""
    parts = [f"## {md(title_of_all(results))}"]
    for result, headline in zip(results, headlines_of(results), strict=True):
        if len(results) > 1:
            parts.append(f"### {md(headline.title)}")
        parts.append(md(headline.sentence))
        verdicts = [
            f"- {MARKS[verdict.state]} **{verdict.state}**: {md(verdict.sentence)}"
            for verdict in headline.verdicts
        ]
        if verdicts:
            parts.append("\n".join(verdicts))
        notes = [*result.measurement.damaged, *result.measurement.notes]
        if notes:
            shown = [f"- {md(note)}" for note in notes[:_NOTES_SHOWN]]
            if len(notes) > _NOTES_SHOWN:
                shown.append(f"- and {len(notes) - _NOTES_SHOWN} more: see the report")
            parts.append("\n".join(["What was left out or assumed:", "", *shown]))
    tables = [markdown_table(table).rstrip("\n") for table in paper_tables(results).values()]
    if tables:
        inner = "\n\n".join(tables)
        parts.append(f"<details><summary>Statistics</summary>\n\n{inner}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _cell(cell: Cell) -> str:
    below = f" ({cell.below})" if cell.below else ""
    return md(f"{cell.text}{below}{'!' if cell.warns else ''}")
