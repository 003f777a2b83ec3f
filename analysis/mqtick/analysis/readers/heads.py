"""Text files of samples: a table of their makers' heads, over one parser.

The line of names has a time: time, t, seconds or x, with a unit or without (`time [us]`, `t (ms)`,
`time_ns`, `in s`), maybe with a line of units below it. Between the cells stand commas, semicolons
(then 1,5 is one and a half), or tabs. Lines of key and value above it may tell the interval, the
number of rows, the units and the model. Where only units stand above the rows, the names are looked
for in the head.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from mqtick.analysis.readers.columns import (
    cells_of,
    head_lines,
    is_number,
    is_text,
    number,
    read_head,
)
from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.text_capture import (
    Column,
    Grid,
    Plan,
    open_plan,
    split_unit,
    unit_of,
)
from mqtick.analysis.readers.text_transitions import refuse_dates
from mqtick.recording.capture import CaptureError, CaptureFile
from mqtick.recording.octets import LONGEST_S
from mqtick.recording.waveform import femtoseconds

__all__ = ["FORMATS", "time_unit"]

_TIMES: Final = {"time", "t", "second", "seconds", "sec", "s", "x", "timestamp", "zeit", "x-axis"}
_NO_CHANNELS: Final = {"time", "timestamp", "second", "seconds", "nr", "index", "sample", "row"}
"""A second time column, or one of row numbers."""
_NO_NAMES: Final = {"value", "voltage", "ampl"}
"""What stands above a column besides units where its channel is named elsewhere."""
_SUFFIX: Final = re.compile(r"(.*)[_ ](s|ms|us|µs|ns|sec|seconds)$", re.I)
_CHANNEL: Final = re.compile(r"(?:CH ?[1-8]|MATH[1-4]?|D ?\d{1,2}(?:-D ?\d{1,2})?|REF\d*)$", re.I)
_MENTIONED: Final = re.compile(r"\b(?:CH|C|F|M|D)\d{1,2}(?=\s*:)")
_IN_FILE_NAME: Final = re.compile(r"[CFMZ]\d{1,2}(?!\d)", re.I)
_INLINE: Final = re.compile(r"t0\s*=\s*([-+.\deE]+).*?tInc\s*=\s*([-+.\deE]+)", re.I)
_MOST_LINES: Final = 200
_ROUNDED_PPM: Final = 1e-6
"""What floats make of a whole number of femtoseconds."""
_HEAD: Final = (
    "Put a line of names in front, with a time and its unit, for example: `time [s],publisher,"
    "first,last`, or `time [s],offset [ns]` for a clock's errors."
)


@dataclass(frozen=True, slots=True)
class _Head:
    """How the text files of a maker begin.

    Attributes:
        name, tested: as Format has them.
        maker: as it stands before the model.
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


# ---- the line of names


def time_unit(cell: str) -> str | None:
    """Return the unit of a time's name ("" where it has none), None where it is not a time."""
    name, unit = split_unit(cell)
    if not unit and (found := _SUFFIX.match(name)):
        name, unit = found[1], found[2]
    if name.casefold() in _TIMES or (not name and unit_of(unit, "s") is not None):
        seconds = name.casefold() in ("second", "seconds", "sec", "s")
        return unit or ("s" if seconds else "")
    return None


def _all_numbers(line: str, delimiter: str) -> bool:
    cells = [cell for cell in cells_of(line, delimiter) if cell]
    if delimiter != ",":
        cells = [cell.replace(",", ".") for cell in cells]
    return bool(cells) and all(is_number(cell) for cell in cells)


def _titles(lines: list[str]) -> _Titles | None:
    """Return the line of names over a row of numbers, else over one that has words too."""
    likely = None
    for place, line in enumerate(lines):
        for delimiter in ("\t", ";", ",", ""):
            cells = cells_of(line.lstrip("#% "), delimiter)
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
        if units:
            return None  # the line looked like titles, and belongs to a head above them
        units = [cell.strip("[]() ") for cell in row]
    return None


def _rows_only(lines: list[str]) -> str:
    """Return the first of three rows of numbers in turn, "" where there are none."""
    for delimiter in ("\t", ";", ",", ""):
        rows = [_all_numbers(line, delimiter) for line in lines]
        for place in range(len(rows) - 2):
            if all(rows[place : place + 3]):
                return lines[place].strip()
    return ""


# ---- from a head to a plan


def _open(head: _Head, path: Path) -> CaptureFile:
    octets = read_head(path)
    if _is_utf_16(octets):
        raise CaptureError(
            f"{path} is text in UTF-16, which a spreadsheet calls Unicode text. Save it as CSV in "
            "UTF-8."
        )
    lines = head_lines(octets)[:_MOST_LINES]
    plan = head.plan(path, head.name, lines) if head.plan else None
    if plan is None:
        titles = _titles(lines)
        if titles is None:
            raise _without_titles(path, head, lines)
        plan = _plan(path, head, lines, titles)
    return open_plan(path, plan)


def _without_titles(path: Path, head: _Head, lines: list[str]) -> CaptureError:
    if head.maker:
        return CaptureError(
            f"{path} has the head of a file of {head.name} but no line of names with rows of "
            "numbers after it; it is cut off, or its waveforms were saved without times. Save it "
            "again, with times."
        )
    row = _rows_only(lines)
    above = next((n for n, line in enumerate(lines) if line.strip() == row), 0)
    if above and any(letter.isalpha() for letter in lines[above - 1]):
        return CaptureError(
            f"{path}: no column of {lines[above - 1].strip()[:80]!r} is called a time (time, "
            "t, seconds, x). Rename the column that is one, with its unit, for example to "
            "`time [s]`."
        )
    return CaptureError(
        f"{path} has rows of numbers ({row[:60]!r}) but no names above them, so it is not "
        f"known which is a time and which a channel. {_HEAD}"
    )


def _plan(path: Path, head: _Head, lines: list[str], titles: _Titles) -> Plan:
    refuse_dates(path, titles.first[titles.time])
    lecroy = titles.delimiter if lines[0].startswith("LECROY") else ","
    told = _told(lines[: titles.line], lecroy) if head.maker else {}
    unit = titles.unit
    if not unit and titles.time < len(titles.units):
        unit = titles.units[titles.time]
    unit = unit or _first(told, "Horizontal Units")
    cells = _named(path, head, lines, titles, told)
    channels = tuple(_channels(path, titles, cells, told))
    if not channels:
        raise CaptureError(
            f"{path}: no column besides the time {cells[titles.time]!r} has numbers; there is "
            "nothing to find edges in."
        )
    _refuse_other_times(path, titles, lines, [channel.column for channel in channels])
    interval = number(_first(told, "Sample Interval"))
    rate = number(_first(told, "Sample Rate", "Sampling Frequency (Hz)"))
    if not interval > 0 and rate > 0:
        interval = 1 / rate
    segments = number(_first(told, "Segments") or "1")
    size = number(_first(told, "Record Length", "Number of Data points", "SegmentSize"))
    return Plan(
        head.name,
        _instrument(head, lines, told),
        titles.first_row,
        channels,
        time_column=titles.time,
        to_seconds=_seconds(path, unit),
        unit_assumed=not (unit or head.maker),
        interval_s=_sane(interval, 1e3),
        rows=int(_sane(segments * size, 1e12)),
        delimiter=titles.delimiter,
        decimal_comma=titles.decimal_comma,
        # The times of converted files count from the first sample.
        triggered=head.triggered if "Channel Data" not in told else False,
    )


def _refuse_other_times(path: Path, titles: _Titles, lines: list[str], channels: list[int]) -> None:
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


def _seconds(path: Path, unit: str) -> float:
    factor = unit_of(unit or "s", "s")
    if factor is None:
        raise CaptureError(
            f"{path}: the time is in {unit!r}, which must be s, ms, us or ns. Save the waveforms "
            "of the channels, or convert it, and name the unit in brackets: `time [us]`."
        )
    return factor


def _sane(value: float, most: float) -> float:
    return value if 0 < value < most else 0.0


def _told(lines: list[str], delimiter: str = ",") -> dict[str, list[str]]:
    """Return what lines of a key and its values say, and LeCroy's with several keys."""
    told: dict[str, list[str]] = {}
    for line in lines:
        cells = cells_of(line, delimiter) or [""]
        told.setdefault(cells[0].rstrip("= "), cells[1:])
        if cells[0] == "Segments":
            told.update(
                (key, [value]) for key, value in zip(cells[2::2], cells[3::2], strict=False)
            )
    return told


def _first(told: dict[str, list[str]], *keys: str) -> str:
    """Return the first value of the first of these keys, without the channel in front of it."""
    found = next((told[key] for key in keys if told.get(key)), [""])
    return found[0].rpartition(":")[2].strip()


def _instrument(head: _Head, lines: list[str], told: dict[str, list[str]]) -> str:
    found = head.begins.search("\n".join(lines))
    in_head = (found.groupdict() if found else {}).get("model")
    return f"{head.maker} {in_head or _first(told, 'Model Number', 'Model')}".strip()


def _named(
    path: Path, head: _Head, lines: list[str], titles: _Titles, told: dict[str, list[str]]
) -> list[str]:
    """Return the names of the columns, which other lines have where there are only units."""
    names = list(titles.cells)
    columns = [n for n, cell in enumerate(names) if n != titles.time and cell]
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


def _channels(
    path: Path, titles: _Titles, cells: list[str], told: dict[str, list[str]]
) -> list[Column]:
    vertical = [cell.rpartition(":") for cell in told.get("Vertical Units", []) if cell]
    units = {name.strip(): unit.strip() for name, _, unit in vertical}
    channels = []
    for place, cell in enumerate(cells):
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
        unit = unit or units.get(name) or units.get("", "")
        if not unit and cell != titles.cells[place]:  # its name stood elsewhere, and here its unit
            unit = split_unit(titles.cells[place])[1] or titles.cells[place]
        factor = unit_of(unit, "V")
        # A unit that is not of volts belongs to the name: `gate (open)`.
        channels.append(Column(name if factor or not unit else cell, place, factor or 1.0))
    names = [channel.name for channel in channels]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CaptureError(f"{path}: two columns are called {twice!r}; rename one of them.")
    return channels


# ---- heads without a line of names


def _rigol(path: Path, name: str, lines: list[str]) -> Plan | None:
    """Read start and increment: in the second line over numbered rows, or in the first line."""
    skipped = int(lines[0].lower().startswith("sep="))
    first, *below = lines[skipped:]
    names, values = cells_of(first), cells_of(below[0]) if below else []
    told, inline = dict(zip(names, values, strict=False)), _INLINE.search(first)
    if inline:
        start, increment = inline[1], inline[2]
        names = [
            re.sub(r"(?<=\d)\s*V$", "", split_unit(cell)[0])
            for cell in cells_of(first[: inline.start()])
        ]
    elif told.get("X") == "Sequence":
        start, increment = told.get("Start", ""), told.get("Increment", "")
    else:
        return None
    units = [] if inline else values
    channels = [
        Column(cell, n, (unit_of(units[n], "V") if n < len(units) else None) or 1.0)
        for n, cell in enumerate(names)
        if _CHANNEL.match(cell)
    ]
    return Plan(
        name,
        "Rigol",
        skipped + (1 if inline else 2),
        tuple(channels),
        time_column=None,
        index_column=None if inline else 0,
        grid=_grid(path, start, increment),
    )


def _infiniium(path: Path, name: str, lines: list[str]) -> Plan:
    """Read lines of key and value, over volts, times and volts, or a time and volts a channel.

    They end with `Data:`; where channels or segments stand side by side, with `Time Tags`.
    """
    ends = ("Data:", "Time Tags")
    end = next((n for n, line in enumerate(lines) if line.startswith(ends)), len(lines))
    pairs = (line.partition(":") for line in lines[:end])
    told = {key: [cell for cell in cells_of(values) if cell] for key, _, values in pairs}
    width = len([cell for cell in cells_of("".join(lines[end + 1 : end + 2])) if cell])
    waves = max(len(told.get("XInc", [])), 1)
    first = [] if lines[0].startswith("Revision") else cells_of(lines[0])[1:]
    names = told.get("Source") or [cell for cell in first if cell]
    if len(set(names)) < len(names) or len(set(told.get("XOrg", []))) > 1:
        raise CaptureError(
            f"{path} has {waves} segments side by side, which are read from binary files only: "
            "save it as .bin."
        )
    # With as many cells as channels there is no time column, with one more there is.
    columns = [place + (width > waves) for place in range(width - (width > waves))]
    if waves > 1 and width == 2 * waves:
        columns = list(range(1, width, 2))
    names = names or [str(place + 1) for place in range(len(columns))]
    return Plan(
        name,
        " ".join(["Keysight", *told.get("Frame", [])[:1]]),
        end + 1,
        tuple(Column(each, place) for each, place in zip(names, columns, strict=False)),
        time_column=None,
        grid=_grid(path, *("".join(told.get(key, [])[:1]) for key in ("XOrg", "XInc"))),
    )


def _grid(path: Path, start: str, increment: str) -> Grid:
    start_s, increment_s = number(start), number(increment)
    if not (abs(start_s) < LONGEST_S and 0 < increment_s < LONGEST_S):
        raise CaptureError(
            f"{path}: the head says start {start!r} and increment {increment!r}, which are "
            "not seconds; save the waveform again."
        )
    interval_fs = femtoseconds(increment_s)
    # Interpolated waveforms have intervals of parts of a femtosecond.
    rounded = abs(interval_fs / (increment_s * 1e15) - 1) * 1e6
    return Grid(femtoseconds(start_s), interval_fs, rounded if rounded > _ROUNDED_PPM else 0.0)


def _tektronix(path: Path, name: str, lines: list[str]) -> Plan | None:
    """Read the head of a TDS, which stands in the two left columns of the first rows."""
    told = _told(lines)
    if len(told.get("Record Length", [])) < 4:
        return None
    to_volts = unit_of(_first(told, "Vertical Units"), "V") or 1.0
    return Plan(
        name,
        f"Tektronix {_first(told, 'Model Number')}".strip(),
        0,
        (Column(_first(told, "Source") or "CH1", 4, to_volts),),
        time_column=3,
        to_seconds=_seconds(path, _first(told, "Horizontal Units")),
        interval_s=_sane(number(_first(told, "Sample Interval")), 1e3),
        rows=int(_sane(number(_first(told, "Record Length")), 1e12)),
    )


# ---- the table


def _is_utf_16(head: bytes) -> bool:
    return head[:2] in (b"\xff\xfe", b"\xfe\xff") and 0 in head[2:64]


def _recognises(head: _Head, octets: bytes) -> bool:
    return is_text(octets) and (
        head.begins.search("\n".join(head_lines(octets)[:_MOST_LINES])) is not None
    )


def _is_table(octets: bytes) -> bool:
    if _is_utf_16(octets):
        return True
    lines = head_lines(octets)[:_MOST_LINES] if is_text(octets) else []
    return _titles(lines) is not None or _rows_only(lines) != ""


_HEADS: Final = (
    _Head(
        "Rigol CSV",
        "DS1042C, DS1052E, DS1054Z, DS1074Z, DS1102D, DS1102E, DS1204B, DS2000, DS2072A, DS4024",
        "Rigol",
        re.compile(
            r"\A(?:sep=.*\n)?(?:"
            r".*t0\s*=.*tInc\s*="  # MSO5000, DHO
            r"|(?:.*\n)?.*Number of Data points"  # converted from .wfm
            r"|X?,(?:CH ?\d|MATH|REF|D ?\d).*\n(?:Second|Sequence),"
            r"|X,(?:CH ?\d|MATH|REF|D ?\d) *\(.*\n *[-+.\d])",
            re.I,
        ),
        plan=_rigol,
    ),
    _Head(
        "Siglent CSV",
        "the first rows of SDS1202X-E, SDS1104X-E",
        "Siglent",
        re.compile(r"\ARecord Length,(?:Analog|Digital)\s*:|^Source,.*\nSecond,", re.M),
        triggered=None,
    ),
    _Head(
        "Keysight InfiniiVision CSV",
        "an InfiniiVision (model not noted)",
        "Keysight",
        re.compile(r"\Ax-axis,", re.I),
    ),
    _Head(
        "Keysight Infiniium CSV",
        "the first rows of an N8900A",
        "Keysight",
        re.compile(r"\A(?:.*\bChannel.*\n)?Revision:[\s\S]*^XInc:[\s\S]*^XOrg:", re.M),
        plan=_infiniium,
    ),
    _Head(
        "Tektronix CSV",
        "tm_data_types 0.5.0",
        "Tektronix",
        re.compile(
            r"\ARecord Length(?:,[^,\n]*){2}(?:, *[-+.\deE]+ *){2}(?:,|$)"  # TDS1000, TDS2000
            r"|\AModel,[\s\S]*^Sample Interval,[\s\S]*^TIME,",
            re.M,
        ),
        plan=_tektronix,
    ),
    _Head(
        "LeCroy CSV",
        "the first rows of an HDO9404",
        "LeCroy",
        re.compile(r"\ALECROY(?P<model>[^,; \n]*)[,; ][^,; \n]*[,; ]Waveform"),
    ),
    _Head(
        "Rohde & Schwarz CSV",
        "an RTB2000 or alike (model not noted)",
        "Rohde & Schwarz",
        re.compile(r"\Ain s,"),
    ),
    _Head(
        "Saleae Logic CSV",
        "a Logic 2 export",
        "Saleae",
        # Channels that were given names: then nine decimals tell it from a file made by hand.
        re.compile(r"\ATime ?\[s\],(?:(?:.*,)?Channel |.*\n-?\d+\.\d{9}(?:,[01])+$)", re.M),
        triggered=False,
    ),
)
_PLAIN: Final = _Head("CSV with named columns", "numpy", "", re.compile(""), triggered=None)

FORMATS: Final = (
    *(Format(h.name, h.tested, partial(_recognises, h), partial(_open, h)) for h in _HEADS),
    Format(_PLAIN.name, _PLAIN.tested, _is_table, partial(_open, _PLAIN)),
)
