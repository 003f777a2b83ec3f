"""The report as PDF: A4, vectors, the same octets for the same input."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from mqtick.analysis.report.blocks import MARKS, Block, Formula, Listing, Paragraph, Section, Table
from mqtick.analysis.report.headline import Headline, Number, headlines_of
from mqtick.analysis.report.lettering import lines_of
from mqtick.analysis.report.numbers import plain, printed
from mqtick.analysis.report.paper import ROOM, Paper
from mqtick.analysis.report.pdf_table import STATE_INKS, put_table
from mqtick.analysis.report.sections import sections_of
from mqtick.analysis.report.style import INK, MUTED, drawing
from mqtick.analysis.report.titles import level, title_of_all
from mqtick.analysis.results.result import Result

__all__ = ["PrintedPicture", "pdf_of", "put_section"]

PrintedPicture = tuple[str, str, Figure]
"""Title, caption, and the figure drawn `paper.ROOM` inches wide."""
_GAP: Final = 0.3
_TEXT: Final = 8.5
_SMALL: Final = 8.0
_COLUMN: Final = ROOM / 3


def pdf_of(
    results: Sequence[Result], pictures: Sequence[PrintedPicture], command: str = ""
) -> bytes:
    """Return the octets; the first of the pictures stands on the first page."""
    title = title_of_all(results)
    octets = io.BytesIO()
    metadata = {
        "Title": title,
        "Creator": "mqtick-report",
        "Producer": "mqtick-report",
        "CreationDate": None,
    }
    with drawing():
        paper = Paper()
        _first(paper, results, title)
        for number, (name, caption, figure) in enumerate(pictures, 1):
            paper.picture(figure, printed(f"Figure {number}. {name}. {caption}"))
        for section in sections_of(results, command):
            put_section(paper, section)
        with PdfPages(octets, metadata=metadata) as pages:
            paper.save(pages, f"mqtick-report: {title}")
    return octets.getvalue()


def _first(paper: Paper, results: Sequence[Result], title: str) -> None:
    paper.write(title, 10, bold=True, ink=MUTED.light)
    several = len(results) > 1
    for headline in headlines_of(results):
        paper.down(0.06)
        if several:
            paper.need(1.5)
            paper.write(headline.title, 11, bold=True)
        _headline(paper, headline, 10.5 if several else 14, level(results[0]))
    damaged = sum(len(result.measurement.damaged) for result in results)
    failed = sum(result.counts.missed + result.counts.refused for result in results)
    if failed or damaged:
        said = f"Shots missed: {failed:,}. Files or shots left out as damaged: {damaged:,}."
        paper.write(f"{said} The reasons are given below.", _TEXT)


def _headline(paper: Paper, headline: Headline, size: float, confidence: str) -> None:
    paper.write(headline.sentence, size)
    paper.down(0.1)
    paper.rule(weight=1.0, ink=INK.light)
    paper.down(0.04)
    cells = [_cell(number, confidence) for number in headline.numbers]
    labels = max(len(cell.labels) for cell in cells)
    rows: list[list[_Line | None]] = [
        [*[None] * (labels - len(cell.labels)), *cell.labels, cell.value, *cell.below]
        for cell in cells
    ]
    for place in range(max(map(len, rows))):
        lines = [row[place] if place < len(row) else None for row in rows]
        paper.step(max(line.size for line in lines if line) * 1.35 / 72)
        for column, line in enumerate(lines):
            if line:
                paper.put(line.text, column * _COLUMN, line.size, bold=line.bold, ink=line.ink)
    paper.down(0.12)
    for verdict in headline.verdicts:
        paper.need(_TEXT * 1.35 / 72)
        for place, text in enumerate(lines_of(printed(verdict.sentence), ROOM - 1.0, _TEXT)):
            paper.step(_TEXT * 1.35 / 72)
            if place == 0:
                ink = STATE_INKS[verdict.state]
                mark = f"{MARKS[verdict.state]} {verdict.state}"
                paper.put(mark, 0, _TEXT, bold=True, ink=ink)
            paper.put(text, 1.0, _TEXT)
    paper.down(0.1)


class _Line(NamedTuple):
    text: str
    size: float = _SMALL
    bold: bool = False
    ink: str = MUTED.light


class _Cell(NamedTuple):
    labels: list[_Line]
    value: _Line
    below: list[_Line]


def _cell(number: Number, confidence: str) -> _Cell:
    width = _COLUMN - 0.15
    labels = [_Line(line) for line in lines_of(number.label, width, _SMALL)]
    text = f"{number.value} {number.unit}".strip()
    size = 15.0
    while size > _SMALL and len(lines_of(text, width, size, bold=True)) > 1:
        size -= 0.5
    below = [_Line(f"{confidence}: {number.interval}")] if number.interval else []
    if number.state:
        mark = f"{MARKS[number.state]} {number.state}"
        below.append(_Line(mark, bold=True, ink=STATE_INKS[number.state]))
    if number.note:
        below += [_Line(line) for line in lines_of(number.note, width, _SMALL)]
    return _Cell(labels, _Line(text, size, True, INK.light), below)


def put_section(paper: Paper, section: Section) -> None:
    """Put a section; a heading, and what ends in a colon, stay with what follows."""

    def heading() -> None:
        paper.down(_GAP)
        paper.write(section.title, 12.5, bold=True)

    group: list[Callable[[], None]] = [heading]
    for block in section.blocks:
        group.append(partial(_block, paper, block))
        if not (isinstance(block, Paragraph) and block.text.endswith(":")):
            _put(paper, group)
            group = []
    _put(paper, group)


def _put(paper: Paper, group: Sequence[Callable[[], None]]) -> None:
    def put() -> None:
        for each in group:
            each()

    paper.together(put)


def _block(paper: Paper, block: Block) -> None:
    match block:
        case Table():
            put_table(paper, block)
        case Paragraph(text, code):
            paper.down(0.08)
            paper.write(plain(text) if code else printed(text), _TEXT, bold=code)
        case Formula(text):
            paper.down(0.04)
            paper.write(text, 9.0, x=0.3)
        case Listing(items):
            for item in items:
                paper.down(0.04)
                paper.write(printed(item), _TEXT, x=0.15)
