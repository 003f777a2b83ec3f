"""From the head of a text file to where its numbers stand and what they are.

One parser for all dialects: rows below a line of names, or those of a dialect's tables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mqtick.analysis.clocks.offset_text import delimiter_of
from mqtick.analysis.readers.columns import Column, CsvLayout, cells_of, is_number, number
from mqtick.analysis.readers.text_dialects import Dialect, Table
from mqtick.analysis.readers.text_head import (
    INDICES,
    Titles,
    fields_in,
    first_of,
    interval_in,
    rows_in,
    rows_of_numbers,
    titles_in,
    titles_without_time,
    zero_if_out_of_range,
)
from mqtick.analysis.readers.time_base import Grid
from mqtick.analysis.readers.units import (
    has_bare_unit,
    has_unit,
    named,
    split_unit,
    time_unit,
    unit_of,
)
from mqtick.recording.capture import CaptureError
from mqtick.recording.octets import LONGEST_S
from mqtick.recording.waveform import femtoseconds

_ROUNDED_PPM: Final = 1e-6
"""What floats make of a whole number of femtoseconds."""
_NO_CHANNELS: Final = {"time", "timestamp", "second", "seconds", *INDICES}
"""A second time column, or one of row numbers."""
_LOOKED_AT: Final = 20
"""Rows, to find which columns have numbers."""
_NO_NAMES: Final = {"value", "voltage", "ampl"}
"""What stands above a column besides units where its channel is named elsewhere."""
_ERRORS: Final = {"offset", "error", "time error", "time_error", "te", "phase"}
_MENTIONED: Final = re.compile(r"\b(?:CH|C|F|M|D)\d{1,2}(?=\s*:)")
_LISTED: Final = re.compile(r"^; Channels \(\d+/\d+\): (.+)", re.M)
"""Of libsigrok's tables with times, whose columns are all called logic."""
_SCALE: Final = re.compile(
    r"\b(?:scale|scaling|factor|gain|multiplier|lsb)\b.*?[:=,;\t ]\s*\d", re.I
)
_EXAMPLE: Final = (
    "Put a line of names in front, with a time and its unit, for example: `time [s],publisher,"
    "first,last`, or `time [s],offset [ns]` for a clock's errors."
)


def layout_of(path: Path, dialect: Dialect, lines: list[str]) -> CsvLayout:
    """Return what the lines of a head say of the rows; CaptureError."""
    head = "".join(f"{line}\n" for line in lines)
    for table in dialect.tables:
        if (found := table.head.search(head)) is not None:
            return _below_head(path, dialect, table, lines, found)
    titles = titles_in(lines)
    if titles is None and interval_in(lines):
        titles = titles_without_time(lines)
    if titles is None:
        raise _without_titles(path, dialect, lines)
    return _below_titles(path, dialect, lines, titles)


def _without_titles(path: Path, dialect: Dialect, lines: list[str]) -> CaptureError:
    if dialect.maker:
        return CaptureError(
            f"{path} has the head of a file of {dialect.name} but no line of names with rows of "
            "numbers after it; it is cut off, or its waveforms were saved without times. Save it "
            "again, with times."
        )
    if dialect.name.startswith("Vivado"):
        return CaptureError(
            f"{path} numbers the samples of an ILA and does not say how fast its clock is. Put "
            "that in front, as a first line: `# sample rate: 100 MHz`."
        )
    _, first = next(rows_of_numbers(lines), ("", 0))
    row = lines[first].strip()
    flag = "their units instead: `--units s,ns`"
    if delimiter_of(row) is None:
        flag = "how far apart they are instead: `--tau 1s`"
    clock = f" If these are a clock's errors, say {flag}."
    if first and any(letter.isalpha() for letter in lines[first - 1]):
        return CaptureError(
            f"{path}: no column of {lines[first - 1].strip()[:80]!r} is called a time (time, "
            "t, seconds, x). Rename the column that is one, with its unit, for example to "
            f"`time [s]`; or, if none is, say in front how fast it was sampled: "
            f"`# sample rate: 1 MHz`.{clock}"
        )
    return CaptureError(
        f"{path} has rows of numbers ({row[:60]!r}) but no names above them, so it is not "
        f"known which is a time and which a channel. {_EXAMPLE}{clock}"
    )


def _below_head(
    path: Path, dialect: Dialect, table: Table, lines: list[str], found: re.Match[str]
) -> CsvLayout:
    """Return the layout of a dialect's table, whose head was found."""
    first_row = found.string.count("\n", 0, found.end())
    above = lines[:first_row] or lines  # the head of a TDS stands beside the rows
    groups = {key: cells_of(value) for key, value in found.groupdict().items()}
    below_names = zip(groups.get("names", []), groups.get("units", []), strict=False)
    fields = fields_in(above) | {name: [value] for name, value in below_names} | groups

    def values_of(*keys: str) -> list[str]:
        values = ([value for value in fields.get(key, []) if value] for key in keys)
        return next(filter(None, values), [])

    starts, intervals = values_of(table.start), values_of(table.interval)
    names = groups.get("names") or values_of(*table.names)
    given = [name for name in names if name]
    apart = table.start and max(len({*starts}), len({*intervals})) > 1
    blocks = first_of(fields, table.blocks) if table.blocks else ""
    if apart or number(blocks or "1") != 1 or len({*given}) < len(given):
        raise CaptureError(f"{path} {table.several.format(len(intervals))}")
    row = cells_of("".join(lines[first_row : first_row + 1]))
    while row and not row[-1]:
        row.pop()
    units = groups.get("units") or fields.get(table.units, [])
    channels = []
    places = _places(table, names, len(row), len(intervals)) if names or table.unnamed else ()
    for n, column in enumerate(places):
        name = table.channel.match(names[n] if n < len(names) else table.unnamed.format(n + 1))
        unit = units[n].rpartition(":")[2] if n < len(units) else table.unit
        if name is not None:
            channels.append(Column(name[1], column, unit_of(unit, "V") or 1.0))
    interval = first_of(fields, table.interval)
    return CsvLayout(
        dialect.name,
        _instrument(dialect, lines, fields),
        first_row,
        tuple(channels),
        time_column=None if table.start else table.time,
        to_seconds=_seconds_of(path, first_of(fields, "Horizontal Units")),
        index_column=table.index,
        grid=_grid(path, first_of(fields, table.start) or table.start_unless_said, interval)
        if table.start
        else None,
        interval_s=zero_if_out_of_range(number(interval), 1e3) if interval else interval_in(above),
        rows=rows_in(above),
    )


def _places(table: Table, names: list[str], width: int, waves: int) -> range:
    """Return the columns of the channels, for rows of `width` cells."""
    if table.single:
        return range(table.first or 0, (table.first or 0) + 1)
    if table.first is not None:
        return range(table.first, table.first + len(names) if names else width)
    # With as many cells as channels there is no time column, with one more there is, and with
    # twice as many each channel has its own.
    return range(int(width > waves), width, 2 if 1 < waves == width / 2 else 1)


def _grid(path: Path, start: str, interval: str) -> Grid:
    start_s, interval_s = number(start), number(interval)
    if not (abs(start_s) < LONGEST_S and 0 < interval_s < LONGEST_S):
        raise CaptureError(
            f"{path}: the head says start {start!r} and increment {interval!r}, which are "
            "not seconds; save the waveform again."
        )
    interval_fs = femtoseconds(interval_s)
    # Interpolated waveforms have intervals of parts of a femtosecond.
    rounded = abs(interval_fs / (interval_s * 1e15) - 1) * 1e6
    return Grid(femtoseconds(start_s), interval_fs, rounded if rounded > _ROUNDED_PPM else 0.0)


def _below_titles(path: Path, dialect: Dialect, lines: list[str], titles: Titles) -> CsvLayout:
    above = lines[: titles.line]
    fields = fields_in(above, titles.delimiter if dialect.keys_as_rows else ",")
    fields = fields if dialect.maker else {}
    unit = titles.unit
    if not unit and titles.time is not None and titles.time < len(titles.units):
        unit = titles.units[titles.time]
    unit = unit or first_of(fields, "Horizontal Units")
    cells = _names_of(path, dialect, above, titles, fields)
    if not dialect.maker:
        _refuse_other_rows(path, titles)
    notes: list[str] = []
    rows = [cells_of(line, titles.delimiter) for line in lines[titles.first_row :][:_LOOKED_AT]]
    channels = tuple(_channels(path, titles, cells, fields, rows, notes))
    if not channels and notes:
        raise CaptureError(
            f"{path}: {notes[0]} If it is a clock's error, reference minus local, name it "
            "`offset [ns]`."
        )
    if not channels:
        raise CaptureError(
            f"{path}: no column besides the time has numbers; there is nothing to find edges in."
        )
    columns = [channel.column for channel in channels]
    _refuse_other_times(path, titles, lines, columns)
    if not dialect.maker:
        _look_above(path, titles, above, unit, columns, notes)
    interval = interval_in(above)
    if "SegmentSize" in fields:
        size = number(first_of(fields, "Segments")) * number(first_of(fields, "SegmentSize"))
    else:
        size = number(first_of(fields, "Number of Data points") or str(rows_in(above)))
    has_times = titles.time is not None
    counted = (n for n, cell in enumerate(titles.cells) if cell.casefold() in INDICES)
    return CsvLayout(
        dialect.name,
        _instrument(dialect, lines, fields),
        titles.first_row,
        channels,
        time_column=titles.time,
        to_seconds=_seconds_of(path, unit),
        unit_assumed=not (unit or dialect.maker),
        index_column=None if has_times else next(counted, None),
        grid=None if has_times else Grid(0, femtoseconds(interval)),
        interval_s=interval,
        rows=int(zero_if_out_of_range(size, 1e12)),
        delimiter=titles.delimiter,
        decimal_comma=titles.decimal_comma,
        # The times of converted files count from the first sample.
        triggered=dialect.triggered if has_times and "Channel Data" not in fields else False,
        heading=titles.cells,
        notes=tuple(notes),
    )


def _refuse_other_rows(path: Path, titles: Titles) -> None:
    """CaptureError where rows are not what the names say, so that columns may be taken wrongly."""
    if titles.between:
        raise CaptureError(
            f"{path}: the line {titles.between[0].strip()[:80]!r} below the names is not "
            "understood, and may be a factor. Apply it to the numbers, and take the line out."
        )
    others = [cell for place, cell in enumerate(titles.cells) if place != titles.time and cell]
    if len(others) == 1 and others[0].casefold() in _ERRORS:
        raise CaptureError(
            f"{path}: the column {others[0]!r} has no unit. If it is a clock's error, reference "
            f"minus local, name it `offset [ns]`; if it is a channel, `{others[0]} [V]`."
        )
    names = len(titles.cells)
    numbers = len(titles.first)
    while numbers > names and not titles.first[numbers - 1]:
        numbers -= 1
    if numbers > names or (numbers < names and not titles.delimiter):
        raise CaptureError(
            f"{path}: the line of names has {names} cells and its rows have {numbers}, so it is "
            "not known which name is whose. Save it with as many names as columns, a decimal "
            "point, and no spaces in names where spaces stand between columns."
        )


def _look_above(
    path: Path,
    titles: Titles,
    lines: list[str],
    unit: str,
    columns: list[int],
    notes: list[str],
) -> None:
    """Look for units and factors above the names, which nobody can assign to a column."""
    units = dict(enumerate(titles.units))
    bare = [c for c in columns if not has_unit(titles.cells[c]) and not units.get(c)]
    for line in lines:
        if (not unit and titles.time is not None and has_bare_unit(line, "s")) or (
            bare and has_bare_unit(line, "V")
        ):
            raise CaptureError(
                f"{path}: the head says {line.strip()[:80]!r} and the names of the columns have no "
                "unit. Write it in brackets behind each name: `time [us],CH1 [mV]`."
            )
        if bare and _SCALE.search(line):
            notes.append(
                f"The head says {line.strip()[:80]!r}; the numbers were taken as volts as they "
                "stand there."
            )


def _refuse_other_times(path: Path, titles: Titles, lines: list[str], channels: list[int]) -> None:
    """CaptureError where a column of times among the channels differs from the first one."""
    if titles.time is None:
        return
    delimiter = titles.delimiter
    for place in range(min(channels) + 1, max(channels)):
        name = split_unit(titles.cells[place])[0].casefold()
        if place == titles.time or name not in _NO_CHANNELS or time_unit(name) is None:
            continue
        for line in lines[titles.first_row : -1]:  # the last one may be cut off
            cells = cells_of(line.replace(",", ".") if titles.decimal_comma else line, delimiter)
            if len(cells) <= max(place, titles.time):
                continue
            if abs(number(cells[place]) - number(cells[titles.time])) > 0:  # NaN is not
                raise CaptureError(
                    f"{path}: column {place + 1} has other times than column {titles.time + 1}, so "
                    "that its channels were not sampled together, and one of them would be placed "
                    "wrongly. Save each channel in a file of its own."
                )


def _seconds_of(path: Path, unit: str) -> float:
    """Return the factor of a unit of time to s, 1 where there is none; CaptureError."""
    factor = unit_of(unit or "s", "s")
    if factor is None:
        raise CaptureError(
            f"{path}: the time is in {unit!r}, which must be s, ms, us, ns or ps. Save the "
            "waveforms of the channels, or convert it, and name the unit in brackets: `time [us]`."
        )
    return factor


def _instrument(dialect: Dialect, lines: list[str], fields: dict[str, list[str]]) -> str:
    found = dialect.signature.search("\n".join(lines))
    in_head = (found.groupdict() if found else {}).get("model")
    said = next((fields[key][0] for key in dialect.model if fields.get(key)), "")
    return f"{dialect.maker} {in_head or said}".strip()


def _names_of(
    path: Path, dialect: Dialect, above: list[str], titles: Titles, fields: dict[str, list[str]]
) -> list[str]:
    """Return the names of the columns, which other lines have where there are only units."""
    names = list(titles.cells)
    head = "\n".join(above)
    columns = [n for n, cell in enumerate(names) if n != titles.time and cell]
    if (listed := _LISTED.search(head)) is not None:
        found = [name.strip() for name in listed[1].split(",")]
        if {names[n] for n in columns} <= {"logic", "analog"} and len(found) == len(columns):
            return [dict(zip(columns, found, strict=True)).get(n, c) for n, c in enumerate(names)]
    if not dialect.maker or not all(_is_no_name(names[n]) for n in columns):
        return names
    found = fields.get("Channel Data") or fields.get("Source") or fields.get("", [])
    found = [name for name in found if name] or list(dict.fromkeys(_MENTIONED.findall(head)))
    if dialect.name_in_file_name and (in_file_name := dialect.name_in_file_name.match(path.name)):
        found = [in_file_name[0].upper()]
    for column, name in zip(columns, found, strict=False):
        names[column] = name
    return names


def _is_no_name(cell: str) -> bool:
    return unit_of(cell, "V") is not None or split_unit(cell)[0].casefold() in _NO_NAMES


def _has_words(path: Path, cell: str, place: int, rows: list[list[str]], titles: Titles) -> bool:
    """Whether a column has words and no number; CaptureError where they are units."""
    values = {row[place] for row in rows if place < len(row) and row[place]}
    if titles.decimal_comma:
        values = {value.replace(",", ".") for value in values}
    if any(is_number(value) for value in values) or not any(
        re.search("[g-zG-Z]", v) for v in values
    ):
        return False
    for value in values:
        if unit_of(value, "V") not in (None, 1.0) or unit_of(value, "s") is not None:
            raise CaptureError(
                f"{path}: column {cell!r} has a unit in each row ({value!r}), which is not read. "
                "Write it in brackets behind the names, as in `CH1 [mV]`."
            )
    return True


def _channels(
    path: Path,
    titles: Titles,
    cells: list[str],
    fields: dict[str, list[str]],
    rows: list[list[str]],
    notes: list[str],
) -> list[Column]:
    vertical = [cell.rpartition(":") for cell in fields.get("Vertical Units", []) if cell]
    units = {name.strip(): unit.strip() for name, _, unit in vertical}
    channels = []
    for place, cell in enumerate(cells):
        if place == titles.time or not cell or _has_words(path, cell, place, rows, titles):
            continue
        name = split_unit(cell)[0]
        if name.casefold() in _NO_CHANNELS:
            continue
        unit = titles.units[place] if place < len(titles.units) else ""
        unit = unit or units.get(name) or units.get("", "")
        if not unit and cell != titles.cells[place]:  # its name stood elsewhere, and here its unit
            unit = split_unit(titles.cells[place])[1] or titles.cells[place]
        column = named(path, cell, unit)
        if column.note:
            notes.append(column.note)
        if column.to_volts is not None:
            channels.append(Column(column.name, place, column.to_volts))
    names = [channel.name for channel in channels]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CaptureError(f"{path}: two columns are called {twice!r}; rename one of them.")
    return channels
