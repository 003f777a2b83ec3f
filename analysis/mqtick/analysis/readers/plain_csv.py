"""Text files with named columns: one of them is time, the others are channels.

The first line of names that has a time is the head; what stands above it is passed over, `#`
comments included. The time is called time, t, seconds or x, with a unit or without:
`time [us]`, `t (ms)`, `time_ns`, `in s`. Between the cells stand commas, semicolons (then 1,5 is
one and a half), or tabs. Rohde & Schwarz' `in s,C1 in V` is such a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtick.analysis.readers.columns import cells_of, head_lines, is_number, is_text, read_head
from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.text_capture import (
    Column,
    Plan,
    open_plan,
    split_unit,
    unit_of,
)
from mqtick.analysis.readers.text_transitions import refuse_dates
from mqtick.analysis.signals.capture import CaptureError, CaptureFile

__all__ = ["PLAIN", "ROHDE_SCHWARZ"]

_NAME: Final = "CSV with named columns"
_ROHDE_SCHWARZ: Final = "Rohde & Schwarz CSV"
_TIMES: Final = {"time", "t", "second", "seconds", "sec", "s", "x", "timestamp", "zeit", "x-axis"}
_NO_CHANNELS: Final = {"time", "timestamp", "second", "seconds", "nr", "index", "sample", "row"}
"""A second time column, or one of row numbers."""
_SUFFIX: Final = re.compile(r"(.*)[_ ](s|ms|us|µs|ns|sec|seconds)$", re.I)
_MOST_LINES: Final = 200
_HEAD: Final = (
    "Put a line of names in front, with a time and its unit, for example: `time [s],publisher,"
    "first,last`."
)


@dataclass(frozen=True, slots=True)
class _Titles:
    line: int
    first_row: int
    cells: list[str]
    time: int
    unit: str
    delimiter: str
    decimal_comma: bool
    units: list[str]
    first: list[str]


def _time_unit(cell: str) -> str | None:
    """Return the unit of a time's name ("" where it has none), None where it is not a time."""
    name, unit = split_unit(cell)
    if not unit and (found := _SUFFIX.match(name)):
        name, unit = found[1], found[2]
    if name.casefold() in _TIMES or (not name and unit_of(unit, "s") is not None):
        seconds = name.casefold() in ("second", "seconds", "sec", "s")
        return unit or ("s" if seconds else "")
    return None


def _numeric(line: str, delimiter: str) -> list[str]:
    """Return the cells of a row, with points, empty where it is not a row of numbers."""
    cells = cells_of(line, delimiter)
    if delimiter != ",":
        cells = [cell.replace(",", ".") for cell in cells]
    return cells if any(is_number(cell) for cell in cells) else []


def _titles(lines: list[str]) -> _Titles | None:
    for place, line in enumerate(lines):
        for delimiter in ("\t", ";", ",", ""):
            cells = cells_of(line.lstrip("#% "), delimiter)
            if len(cells) < 2:
                continue
            found = [
                (n, unit) for n, cell in enumerate(cells) if (unit := _time_unit(cell)) is not None
            ]
            if not found or any(is_number(cell) for cell in cells[:2]):
                continue
            titles = _with_rows(lines, place, cells, found[0], delimiter)
            if titles is not None:
                return titles
    return None


def _with_rows(
    lines: list[str], place: int, cells: list[str], found: tuple[int, str], delimiter: str
) -> _Titles | None:
    """Return the titles with the row of units, if any, and the first row of numbers."""
    time, unit = found
    units: list[str] = []
    for below in range(place + 1, min(place + 4, len(lines))):
        row = cells_of(lines[below], delimiter)
        if len(row) <= time or not row[time]:
            continue
        if re.match(r"[-+.,\d]", row[time]):
            comma = delimiter != "," and any("," in cell for cell in row)
            return _Titles(place, below, cells, time, unit, delimiter, comma, units, row)
        if units or unit_of(row[time], "s") is None:
            return None  # the line looked like titles, and belongs to a head above them
        units = [cell.strip("[]() ") for cell in row]
    return None


def _is_utf_16(head: bytes) -> bool:
    return head[:2] in (b"\xff\xfe", b"\xfe\xff") and 0 in head[2:64]


def _recognises(head: bytes) -> bool:
    if _is_utf_16(head):
        return True
    if not is_text(head):
        return False
    lines = head_lines(head)[:_MOST_LINES]
    return _titles(lines) is not None or _rows_only(lines) != ""


def _rows_only(lines: list[str]) -> str:
    """Return the first of three rows of numbers in turn, "" where there are none."""
    for delimiter in ("\t", ";", ",", ""):
        rows = [_all_numbers(line, delimiter) for line in lines]
        for place in range(len(rows) - 2):
            if all(rows[place : place + 3]):
                return lines[place].strip()
    return ""


def _all_numbers(line: str, delimiter: str) -> bool:
    cells = [cell for cell in _numeric(line, delimiter) if cell]
    return bool(cells) and all(is_number(cell) for cell in cells)


def _open(path: Path) -> CaptureFile:
    head = read_head(path)
    if _is_utf_16(head):
        raise CaptureError(
            f"{path} is text in UTF-16, which a spreadsheet calls Unicode text. Save it as CSV in "
            "UTF-8."
        )
    lines = head_lines(head)[:_MOST_LINES]
    titles = _titles(lines)
    if titles is None:
        row = _rows_only(lines)
        above = next((n for n, line in enumerate(lines) if line.strip() == row), 0)
        if above and any(letter.isalpha() for letter in lines[above - 1]):
            raise CaptureError(
                f"{path}: no column of {lines[above - 1].strip()[:80]!r} is called a time (time, "
                "t, seconds, x). Rename the column that is one, with its unit, for example to "
                "`time [s]`."
            )
        raise CaptureError(
            f"{path} has rows of numbers ({row[:60]!r}) but no names above them, so it is not "
            f"known which is a time and which a channel. {_HEAD}"
        )
    refuse_dates(path, titles.first[titles.time])
    unit = titles.unit
    if not unit and titles.time < len(titles.units):
        unit = titles.units[titles.time]
    factor = unit_of(unit or "s", "s")
    if factor is None:
        raise CaptureError(
            f"{path}: the time is in {unit!r}, which must be s, ms, us or ns. Convert it, and "
            "name the unit in brackets: `time [us]`."
        )
    cells = titles.cells
    plan = Plan(
        _ROHDE_SCHWARZ if _is_rohde_schwarz(titles) else _NAME,
        "Rohde & Schwarz" if _is_rohde_schwarz(titles) else "",
        titles.first_row,
        tuple(_channels(path, titles)),
        time_column=titles.time,
        to_seconds=factor,
        delimiter=titles.delimiter,
        decimal_comma=titles.decimal_comma,
        triggered=True if _is_rohde_schwarz(titles) else None,
    )
    if len(plan.channels) == 0:
        raise CaptureError(
            f"{path}: no column besides the time {cells[titles.time]!r} has numbers; there is "
            "nothing to find edges in."
        )
    return open_plan(path, plan)


def _channels(path: Path, titles: _Titles) -> list[Column]:
    channels = []
    for place, cell in enumerate(titles.cells):
        value = titles.first[place] if place < len(titles.first) else ""
        if titles.decimal_comma:
            value = value.replace(",", ".")
        if place == titles.time or not cell or (re.search(r"[g-zG-Z]", value) and value != "nan"):
            continue
        name, unit = split_unit(cell)
        if name.casefold() in _NO_CHANNELS:
            continue
        if place < len(titles.units):
            unit = unit or titles.units[place]
        factor = unit_of(unit, "V")
        # A unit that is not of volts belongs to the name: `gate (open)`.
        channels.append(Column(name if factor or not unit else cell, place, factor or 1.0))
    names = [channel.name for channel in channels]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CaptureError(f"{path}: two columns are called {twice!r}; rename one of them.")
    return channels


def _is_rohde_schwarz(titles: _Titles) -> bool:
    return titles.cells[titles.time] == "in s" and titles.line == 0


def _recognises_rohde_schwarz(head: bytes) -> bool:
    return is_text(head) and head_lines(head)[0].startswith("in s,")


PLAIN: Final = Format(_NAME, "numpy", _recognises, _open)
ROHDE_SCHWARZ: Final = Format(
    _ROHDE_SCHWARZ, "an RTB2000 or alike (model not noted)", _recognises_rohde_schwarz, _open
)
