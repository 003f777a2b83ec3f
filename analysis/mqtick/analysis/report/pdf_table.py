"""Tables on paper: columns as wide as what stands in them, split over sheets, never cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqtick.analysis.report.blocks import MARKS, Cell, Table
from mqtick.analysis.report.lettering import lines_of
from mqtick.analysis.report.numbers import printed
from mqtick.analysis.report.paper import ROOM, Paper
from mqtick.analysis.report.style import GRID, INK, MUTED, text_inches
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN

__all__ = ["STATE_INKS", "put_table"]

STATE_INKS: Final = {HOLDS: "#00684e", FAILS: "#a8320a", NOT_PROVEN: "#7a5300"}
_SIZE: Final = 7.5
_SMALL: Final = 6.2
_SMALLEST: Final = 0.62
"""Of the usual size: below that numbers are broken over lines."""
_PAD: Final = 0.13
_SPACING: Final = 1.35


def put_table(paper: Paper, table: Table) -> None:
    """Put a table below what stands there; its head is repeated on every sheet."""
    scale, widths = _fit(table)
    paper.down(0.14)
    paper.write(printed(table.caption), 8.0, bold=True)
    drawn = _Columns(table, scale, widths)
    drawn.head(paper)
    for row in table.rows:
        drawn.row(paper, row)
    paper.down(0.06)


def _fit(table: Table) -> tuple[float, list[float]]:
    """Choose a scale of the text and the columns' widths, in inches, that fill the room at most."""
    natural = [_natural(table, place) for place in range(len(table.headings))]
    least = [
        min(width, 1.0) if place in table.words else width for place, width in enumerate(natural)
    ]
    gaps = _PAD * (len(natural) - 1)
    scale = min(1.0, max(_SMALLEST, (ROOM - gaps) / max(sum(least), 0.1)))
    natural = [width * scale for width in natural]
    least = [width * scale for width in least]
    room = ROOM - gaps
    if sum(natural) <= room:
        return scale, natural
    if sum(least) > room:
        return scale, [width * room / sum(least) for width in least]
    spare = room - sum(least)
    wish = [width - small for width, small in zip(natural, least, strict=True)]
    shares = [spare * each / max(sum(wish), 1e-9) for each in wish]
    return scale, [small + share for small, share in zip(least, shares, strict=True)]


def _natural(table: Table, place: int) -> float:
    # A heading may take two lines, but none of its words is broken.
    words = [text_inches(word, _SIZE, bold=True) for word in table.headings[place].split(" ")]
    width = max([*words, min(sum(words), 0.9)])
    for row in table.rows:
        cell = row[place]
        bold = bool(cell.state) or cell.warns or (table.head and place == 0)
        text = _said(cell)
        width = max(width, text_inches(text, _SIZE, bold=bold), text_inches(cell.below, _SMALL))
    return width + 0.02


def _said(cell: Cell) -> str:
    return f"{MARKS[cell.state]} {printed(cell.text)}" if cell.state else printed(cell.text)


class _Columns:
    """How the rows of one table are drawn."""

    def __init__(self, table: Table, scale: float, widths: Sequence[float]) -> None:
        self._table = table
        self._scale = scale
        self._widths = widths
        self._width = sum(widths) + _PAD * (len(widths) - 1)

    def head(self, paper: Paper) -> None:
        cells = [Cell(heading) for heading in self._table.headings]
        self._lines(paper, self._laid(cells, bold=True), MUTED.light)
        paper.rule(self._width, 0.6)

    def row(self, paper: Paper, row: Sequence[Cell]) -> None:
        laid = self._laid(row)
        if paper.need(self._height(laid) + 0.05):
            self.head(paper)
        self._lines(paper, laid, INK.light)
        paper.rule(self._width, 0.3, GRID.light)

    def _laid(
        self, row: Sequence[Cell], *, bold: bool = False
    ) -> list[list[tuple[str, float, bool, str]]]:
        size, small = _SIZE * self._scale, _SMALL * self._scale
        laid = []
        for place, (cell, width) in enumerate(zip(row, self._widths, strict=True)):
            strong = bold or bool(cell.state) or cell.warns or (self._table.head and place == 0)
            room = width + 0.03
            ink = STATE_INKS[FAILS] if cell.warns else STATE_INKS.get(cell.state, "")
            text = lines_of(_said(cell), room, size, bold=strong)
            lines = [(line, size, strong, ink) for line in text]
            if cell.below:
                below = lines_of(printed(cell.below), room, small)
                lines += [(line, small, False, MUTED.light) for line in below]
            laid.append(lines)
        return laid

    def _height(self, laid: list[list[tuple[str, float, bool, str]]]) -> float:
        return max(map(len, laid)) * _SIZE * self._scale * _SPACING / 72

    def _lines(
        self, paper: Paper, laid: list[list[tuple[str, float, bool, str]]], ink: str
    ) -> None:
        paper.down(0.03)
        for place in range(max(map(len, laid))):
            if paper.need(_SIZE * _SPACING / 72):
                paper.down(0.05)
            paper.step(_SIZE * self._scale * _SPACING / 72)
            x = 0.0
            for column, (lines, width) in enumerate(zip(laid, self._widths, strict=True)):
                if place < len(lines):
                    text, size, bold, own = lines[place]
                    right = column not in self._table.words
                    at = x + width if right else x
                    paper.put(text, at, size, right=right, bold=bold, ink=own or ink)
                x += width + _PAD
        paper.step(0.04)
