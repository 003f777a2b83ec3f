"""The line of names of a text file: where it is, its units, and where its rows begin.

It has a time: time, t, seconds or x, with a unit or without (`time [us]`, `t (ms)`, `time_ns`,
`in s`), maybe with a line of units below it. Between the cells stand commas, semicolons (then 1,5
is one and a half), tabs or spaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mqtick.analysis.readers.columns import cells_of, is_number
from mqtick.analysis.readers.units import time_unit, unit_of

__all__ = ["INDICES", "NO_TIME", "Titles", "rows_only", "titles_in", "titles_without_time"]

_DELIMITERS: Final = ("\t", ";", ",", "")
_MARKS: Final = "#% "
"""What stands before the names where they are a comment."""
NO_TIME: Final = -1
INDICES: Final = {
    *("nr", "no", "no.", "index", "sample", "row", "point", "#"),
    *("sample in buffer", "sample in window"),
}
"""Names of columns that number the samples."""
_LINES_BELOW: Final = 6
_LOOKED_AT: Final = 20


@dataclass(frozen=True, slots=True)
class Titles:
    """A line of names, and what it says.

    Attributes:
        line, first_row: where it stands, and where the first row of numbers, from 0.
        cells: the names.
        time: which of them is the time, `NO_TIME` where none is.
        unit: of the time, "" where its name has none.
        delimiter, decimal_comma: as Columns has them.
        units: the line of units below, empty where there is none.
        first: the first row.
        between: lines between the names and the first row that have numbers.
    """

    line: int
    first_row: int
    cells: list[str]
    time: int
    unit: str
    delimiter: str
    decimal_comma: bool
    units: list[str]
    first: list[str]
    between: list[str]


def _all_numbers(line: str, delimiter: str) -> bool:
    cells = [cell for cell in cells_of(line, delimiter) if cell]
    if delimiter != ",":
        cells = [cell.replace(",", ".") for cell in cells]
    return bool(cells) and all(is_number(cell) for cell in cells)


def titles_in(lines: list[str]) -> Titles | None:
    """Return the line of names over a row of numbers, else over one that has words too."""
    likely = None
    for place, line in enumerate(lines):
        for delimiter in _DELIMITERS:
            cells = cells_of(line.lstrip(_MARKS), delimiter)
            if len(cells) < 2 or is_number(cells[0]) or cells[0] == "Horizontal Units":
                continue
            found = [
                (n, unit) for n, cell in enumerate(cells) if (unit := time_unit(cell)) is not None
            ]
            titles = _with_rows(lines, place, cells, found[0], delimiter) if found else None
            if titles is not None and _all_numbers(lines[titles.first_row], delimiter):
                return titles
            likely = likely or titles
    return likely


def _with_rows(
    lines: list[str], place: int, cells: list[str], found: tuple[int, str], delimiter: str
) -> Titles | None:
    """Return the titles with the row of units, if any, and the first row of numbers."""
    time, unit = found
    units: list[str] = []
    between: list[str] = []
    for below in range(place + 1, min(place + _LINES_BELOW, len(lines))):
        row = cells_of(lines[below].lstrip(_MARKS), delimiter)
        if len(row) > max(time, 1) and re.match(r"[-+.,\d]", row[time]):
            rows = lines[below : below + _LOOKED_AT]
            comma = delimiter != "," and any(
                "," in cell for line in rows for cell in cells_of(line, delimiter)
            )
            return Titles(
                place, below, cells, time, unit, delimiter, comma, units, row, between
            )  # fmt: skip
        if any(is_number(cell) for cell in row):
            between.append(lines[below])
        elif any(row):
            is_unit = time < len(row) and unit_of(row[time], "s") is not None
            if (units or between) and not is_unit:
                return None  # the line looked like titles, and belongs to a head above them
            units = [cell.strip("[](){} ") for cell in row]
    return None


def titles_without_time(lines: list[str]) -> Titles | None:
    """Return the line of names above the first rows of numbers, none of which is a time.

    Without such a line the columns are called 1, 2, 3.
    """
    for delimiter in _DELIMITERS:
        rows = [_all_numbers(line, delimiter) for line in lines]
        first = next((n for n in range(len(rows) - 2) if all(rows[n : n + 3])), None)
        row = cells_of(lines[first], delimiter) if first is not None else []
        if first is None or (len(row) < 2 and delimiter):
            continue
        comma = delimiter != "," and any("," in cell for cell in row)
        # Vivado's ILA has a row of number bases below the names.
        above = first - 1 if not lines[first - 1].startswith("Radix") else first - 2
        names = cells_of(lines[above].lstrip(_MARKS), delimiter) if above >= 0 else []
        if len(names) != len(row) or any(map(is_number, names)):
            above, names = first, [str(place + 1) for place in range(len(row))]
        return Titles(above, first, names, NO_TIME, "", delimiter, comma, [], row, [])
    return None


def rows_only(lines: list[str]) -> str:
    """Return the first of three rows of numbers in turn, "" where there are none."""
    for delimiter in _DELIMITERS:
        rows = [_all_numbers(line, delimiter) for line in lines]
        for place in range(len(rows) - 2):
            if all(rows[place : place + 3]):
                return lines[place].strip()
    return ""
