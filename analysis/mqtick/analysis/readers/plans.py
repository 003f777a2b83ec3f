"""From a line of names, and the lines of key and value above it, to what reads the rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtick.analysis.readers.columns import cells_of, is_number, number
from mqtick.analysis.readers.text_capture import Column, Grid, Plan
from mqtick.analysis.readers.titles import INDICES, NO_TIME, Titles
from mqtick.analysis.readers.told import first_of, interval_in, rows_in, sane, told_in
from mqtick.analysis.readers.units import (
    has_unit,
    named,
    split_unit,
    time_unit,
    unit_of,
    units_said,
)
from mqtick.recording.capture import CaptureError
from mqtick.recording.waveform import femtoseconds

__all__ = ["Head", "plan_of", "seconds_of"]

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
_IN_FILE_NAME: Final = re.compile(r"[CFMZ]\d{1,2}(?!\d)", re.I)
_SCALE: Final = re.compile(
    r"\b(?:scale|scaling|factor|gain|multiplier|lsb)\b.*?[:=,;\t ]\s*\d", re.I
)


@dataclass(frozen=True, slots=True)
class Head:
    """How the text files of a maker begin.

    Attributes:
        name, tested: as Format has them.
        maker: as it stands before the model, "" where anybody may have written the file.
        begins: what is found in the head, maybe with a group `model`.
        triggered: as Plan has it.
        plan: what reads a head without a line of names, and returns None for one that has it.
    """

    name: str
    tested: str
    maker: str
    begins: re.Pattern[str]
    triggered: bool | None = True
    plan: Callable[[Path, str, list[str]], Plan | None] | None = None


def plan_of(path: Path, head: Head, lines: list[str], titles: Titles) -> Plan:
    """Return what reads the rows below a line of names; CaptureError."""
    lecroy = titles.delimiter if lines[0].startswith("LECROY") else ","
    told = told_in(lines[: titles.line], lecroy) if head.maker else {}
    unit = titles.unit
    if not unit and NO_TIME < titles.time < len(titles.units):
        unit = titles.units[titles.time]
    unit = unit or first_of(told, "Horizontal Units")
    cells = _named(path, head, lines, titles, told)
    if not head.maker:
        _refuse_other_rows(path, titles)
    notes: list[str] = []
    rows = [cells_of(line, titles.delimiter) for line in lines[titles.first_row :][:_LOOKED_AT]]
    channels = tuple(_channels(path, titles, cells, told, rows, notes))
    if not channels and notes:
        raise CaptureError(
            f"{path}: {notes[0]} If it is a clock's error, reference minus local, name it "
            "`offset [ns]`."
        )
    if not channels:
        raise CaptureError(
            f"{path}: no column besides the time has numbers; there is nothing to find edges in."
        )
    _refuse_other_times(path, titles, lines, [channel.column for channel in channels])
    if not head.maker:
        _look_above(path, titles, lines[: titles.line], unit, [c.column for c in channels], notes)
    above = lines[: titles.line]
    interval = interval_in(above)
    if "SegmentSize" in told:
        size = number(first_of(told, "Segments")) * number(first_of(told, "SegmentSize"))
    else:
        size = number(first_of(told, "Number of Data points") or str(rows_in(above)))
    if titles.time == NO_TIME:
        counted = (n for n, cell in enumerate(titles.cells) if cell.casefold() in INDICES)
        return Plan(
            head.name,
            _instrument(head, lines, told),
            titles.first_row,
            channels,
            time_column=None,
            index_column=next(counted, None),
            grid=Grid(0, femtoseconds(interval)),
            rows=int(sane(size, 1e12)),
            delimiter=titles.delimiter,
            decimal_comma=titles.decimal_comma,
            triggered=False,
            notes=tuple(notes),
        )
    return Plan(
        head.name,
        _instrument(head, lines, told),
        titles.first_row,
        channels,
        time_column=titles.time,
        to_seconds=seconds_of(path, unit),
        unit_assumed=not (unit or head.maker),
        interval_s=interval,
        rows=int(sane(size, 1e12)),
        delimiter=titles.delimiter,
        decimal_comma=titles.decimal_comma,
        # The times of converted files count from the first sample.
        triggered=head.triggered if "Channel Data" not in told else False,
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
        if (not unit and titles.time > NO_TIME and units_said(line, "s")) or (
            bare and units_said(line, "V")
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


def seconds_of(path: Path, unit: str) -> float:
    """Return the factor of a unit of time to s, 1 where there is none; CaptureError."""
    factor = unit_of(unit or "s", "s")
    if factor is None:
        raise CaptureError(
            f"{path}: the time is in {unit!r}, which must be s, ms, us, ns or ps. Save the "
            "waveforms of the channels, or convert it, and name the unit in brackets: `time [us]`."
        )
    return factor


def _instrument(head: Head, lines: list[str], told: dict[str, list[str]]) -> str:
    found = head.begins.search("\n".join(lines))
    in_head = (found.groupdict() if found else {}).get("model")
    return f"{head.maker} {in_head or first_of(told, 'Model Number', 'Model')}".strip()


def _named(
    path: Path, head: Head, lines: list[str], titles: Titles, told: dict[str, list[str]]
) -> list[str]:
    """Return the names of the columns, which other lines have where there are only units."""
    names = list(titles.cells)
    columns = [n for n, cell in enumerate(names) if n != titles.time and cell]
    if (listed := _LISTED.search("\n".join(lines[: titles.line]))) is not None:
        found = [name.strip() for name in listed[1].split(",")]
        if {names[n] for n in columns} <= {"logic", "analog"} and len(found) == len(columns):
            return [dict(zip(columns, found, strict=True)).get(n, c) for n, c in enumerate(names)]
    if not head.maker or not all(_is_no_name(names[n]) for n in columns):
        return names
    found = told.get("Channel Data") or told.get("Source") or told.get("", [])
    mentioned = dict.fromkeys(_MENTIONED.findall("\n".join(lines[: titles.line])))
    found = [name for name in found if name] or list(mentioned)
    if "SegmentSize" in told and (in_file_name := _IN_FILE_NAME.match(path.name)):
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
    told: dict[str, list[str]],
    rows: list[list[str]],
    notes: list[str],
) -> list[Column]:
    vertical = [cell.rpartition(":") for cell in told.get("Vertical Units", []) if cell]
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
