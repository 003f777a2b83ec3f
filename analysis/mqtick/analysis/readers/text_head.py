"""What the lines above a text file's rows say: fields of a key and its values, and names.

A line of names has a time: time, t, seconds or x, with a unit or without (`time [us]`, `t (ms)`,
`time_ns`, `in s`), maybe with a line of units below it. Between the cells stand commas, semicolons
(then 1,5 is one and a half), tabs or spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mqtick.analysis.readers.columns import cells_of, is_number, number
from mqtick.analysis.readers.units import time_unit, unit_of

_LINE: Final = re.compile(
    r"[\s;#%\"]*(?P<key>[A-Za-z][A-Za-z ._-]*?) *(?:[(\[](?P<unit>[^)\]]*)[)\]])?[\s\"]*"
    r"[:=,;\t](?P<values>.*)"
)
_COLON: Final = re.compile(r"([A-Za-z ]+):,?")
_VALUE: Final = re.compile(
    r"(?<![\w.])([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\d.]) *([A-Za-z\u00b5\u03bc/]*)"
)
_HERTZ: Final = re.compile(r"([kmg]?)(?:hz|sa/s|s/s|sps)")
_POWERS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_RATES: Final = {"samplerate", "samplingrate", "samplefrequency", "samplingfrequency"}
_INTERVALS: Final = {
    *("sampleinterval", "samplinginterval", "sampleperiod", "samplingperiod", "timeinterval"),
    *("hresolution", "xinc", "xincrement", "tinc", "deltat", "sampletime"),
}
_LENGTHS: Final = {"recordlength", "memorylength", "samplecount", "blocksize", "segmentsize"}
_DELIMITERS: Final = ("\t", ";", ",", "")
_MARKS: Final = "#% "
"""What stands before the names where they are a comment."""
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
        time: which of them is the time, None where none is.
        unit: of the time, "" where its name has none.
        delimiter, decimal_comma: as CsvLayout has them.
        units: the line of units below, empty where there is none.
        first: the first row.
        between: lines between the names and the first row that have numbers.
    """

    line: int
    first_row: int
    cells: list[str]
    time: int | None
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
    for delimiter, first in rows_of_numbers(lines):
        row = cells_of(lines[first], delimiter)
        if len(row) < 2 and delimiter:
            continue
        comma = delimiter != "," and any("," in cell for cell in row)
        # Vivado's ILA has a row of number bases below the names.
        above = first - 1 if not lines[first - 1].startswith("Radix") else first - 2
        names = cells_of(lines[above].lstrip(_MARKS), delimiter) if above >= 0 else []
        if len(names) != len(row) or any(map(is_number, names)):
            above, names = first, [str(place + 1) for place in range(len(row))]
        return Titles(above, first, names, None, "", delimiter, comma, [], row, [])
    return None


def rows_of_numbers(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Yield each delimiter with which three rows of numbers follow in turn, and the first row."""
    for delimiter in _DELIMITERS:
        rows = [_all_numbers(line, delimiter) for line in lines]
        first = next((n for n in range(len(rows) - 2) if all(rows[n : n + 3])), None)
        if first is not None:
            yield delimiter, first


def fields_in(lines: list[str], delimiter: str = ",") -> dict[str, list[str]]:
    """Return the values of each key, and LeCroy's with several keys in a line."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        cells = cells_of(line, delimiter) or [""]
        fields.setdefault(cells[0].rstrip("= "), cells[1:])
        if found := _COLON.match(line):
            fields.setdefault(found[1], cells_of(line[found.end() :], delimiter))
        if cells[0] == "Segments":
            fields.update(
                (key, [value]) for key, value in zip(cells[2::2], cells[3::2], strict=False)
            )
    return fields


def first_of(fields: dict[str, list[str]], *keys: str) -> str:
    """Return the first value of the first of these keys, without the channel in front of it."""
    found = next((fields[key] for key in keys if fields.get(key)), [""])
    return found[0].rpartition(":")[2].strip()


def zero_if_out_of_range(value: float, most: float) -> float:
    """Return a number of a head, 0 where it is not above 0 and below `most`."""
    return value if 0 < value < most else 0.0


def interval_in(lines: list[str]) -> float:
    """Return the time between two samples in s that a head says, as a rate or as itself.

    0 where it does not, or says several: those are not of the rows.
    """
    for line in lines:
        key, unit, values = _pair(line)
        if key in _RATES:
            found = {_hertz(value, unit) for value in values}
            rate = found.pop() if len(found) == 1 else 0.0
            if rate > 0:
                return zero_if_out_of_range(1 / rate, 1e3)
        elif key in _INTERVALS:
            apart = {float(n) * (unit_of(of or unit or "s", "s") or 0) for n, of in values}
            if len(apart) == 1 and (interval := zero_if_out_of_range(apart.pop(), 1e3)):
                return interval
    return 0.0


def rows_in(lines: list[str]) -> int:
    """Return how many rows a head announces, 0 where it does not say it."""
    for line in lines:
        key, _, values = _pair(line)
        if key in _LENGTHS and values and values[0][1].casefold() in ("", "samples", "points"):
            return int(zero_if_out_of_range(number(values[0][0]), 1e12))
    return 0


def _pair(line: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Return key, unit of the key, and values of a line with their units."""
    found = _LINE.match(line)
    if found is None:
        return "", "", []
    key = re.sub("[ ._-]", "", found["key"]).casefold()
    return key, found["unit"] or "", _VALUE.findall(found["values"])


def _hertz(value: tuple[str, str], unit: str) -> float:
    """Return a rate in Hz, 0 where its unit is none; nobody means millihertz."""
    found = _HERTZ.fullmatch((value[1] or unit or "Hz").casefold())
    return float(value[0]) * _POWERS[found[1]] if found else 0.0
