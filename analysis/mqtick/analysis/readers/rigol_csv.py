"""CSV files of Rigol's oscilloscopes, in all the dialects known.

DS1000Z, DS2000, DS4000: the second line ends in start and increment, and the rows in front of it
are numbered, not always from 0. DS1000C, DS1000D, DS1000E, DS1000B: a time column, rounded so that
times repeat. MSO5000, DHO: `t0 =`, `tInc =` in the first line. Converters of Rigol's own .wfm
files write a head of `"Number of Data points ="` and more. Time is always rebuilt.
"""

from __future__ import annotations

import re
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
from mqtick.analysis.readers.octets import LONGEST_S
from mqtick.analysis.readers.text_capture import (
    Column,
    Grid,
    Plan,
    open_plan,
    split_unit,
    unit_of,
)
from mqtick.analysis.signals.capture import CaptureError, CaptureFile
from mqtick.analysis.signals.waveform import femtoseconds

__all__ = ["FORMAT"]

_NAME: Final = "Rigol CSV"
_CHANNEL: Final = re.compile(r"(?:CH ?[1-8]|MATH[1-4]?|D ?\d{1,2}(?:-D ?\d{1,2})?|REF\d*)$", re.I)
_INLINE: Final = re.compile(r"t0\s*=\s*([-+.\deE]+).*?tInc\s*=\s*([-+.\deE]+)", re.I)


def _recognises(head: bytes) -> bool:
    return is_text(head) and _kind(_lines(head)) != ""


def _lines(head: bytes) -> list[str]:
    lines = head_lines(head)
    return lines[1:] if lines and lines[0].strip().lower().startswith("sep=") else lines


def _kind(lines: list[str]) -> str:
    """Say which dialect the first lines are, "" if none."""
    if not lines:
        return ""
    if _INLINE.search(lines[0]):
        return "inline"
    if any("Number of Data points" in line for line in lines[:2]):
        return "converted"
    cells = [cell for cell in cells_of(lines[0]) if cell]
    names = [split_unit(cell)[0] for cell in cells if cell not in ("X", "Start", "Increment")]
    if not names or not all(_CHANNEL.match(name) for name in names):
        return ""
    first = cells_of(lines[0])[0]
    second = cells_of(lines[1]) if len(lines) > 1 else []
    if second and second[0] == "Sequence" and "Increment" in cells:
        return "numbered"
    if second and second[0] == "Second" and first in ("X", ""):
        return "timed"
    if first == "X" and "(" in lines[0] and all(is_number(cell) for cell in second if cell):
        return "titled"
    return ""


def _open(path: Path) -> CaptureFile:
    head = read_head(path)
    lines = _lines(head)
    skipped = len(head_lines(head)) - len(lines)
    kind = _kind(lines)
    if kind == "numbered":
        plan = _numbered(path, lines, skipped)
    elif kind == "inline":
        plan = _inline(path, lines, skipped)
    elif kind == "converted":
        plan = _converted(path, lines, skipped)
    else:
        plan = _timed(lines, skipped, 2 if kind == "timed" else 1)
    return open_plan(path, plan)


def _numbered(path: Path, lines: list[str], skipped: int) -> Plan:
    names, values = cells_of(lines[0]), cells_of(lines[1])
    told = dict(zip(names, values, strict=False))
    channels = [
        Column(name, place, _factor(values[place]))
        for place, name in enumerate(names)
        if place and place < len(values) and _CHANNEL.match(name)
    ]
    grid = _grid(path, told.get("Start", ""), told.get("Increment", ""))
    return Plan(
        _NAME, "", skipped + 2, tuple(channels), time_column=None, index_column=0, grid=grid
    )


def _timed(lines: list[str], skipped: int, head: int) -> Plan:
    units = cells_of(lines[1]) if head == 2 else []
    channels = []
    for place, cell in enumerate(cells_of(lines[0])):
        name, unit = split_unit(cell)
        if place and name:
            unit = units[place] if place < len(units) else unit
            channels.append(Column(name, place, _factor(unit)))
    return Plan(_NAME, "", skipped + head, tuple(channels))


def _inline(path: Path, lines: list[str], skipped: int) -> Plan:
    told = _INLINE.search(lines[0])
    assert told is not None
    grid = _grid(path, told[1], told[2])
    cells = cells_of(lines[0][: told.start()])
    channels = []
    for place, cell in enumerate(cells):
        name = re.sub(r"(?<=\d)\s*V$", "", split_unit(cell)[0])
        if _CHANNEL.match(name):
            channels.append(Column(name, place))
    return Plan(_NAME, "", skipped + 1, tuple(channels), time_column=None, grid=grid)


def _converted(path: Path, lines: list[str], skipped: int) -> Plan:
    told: dict[str, list[str]] = {}
    first_row = skipped
    for line in lines[:40]:
        cells = cells_of(line)
        first_row += 1
        if cells[0].startswith("Time (") and len(cells) > 1:
            break
        told[cells[0].rstrip("= ")] = cells[1:]
    else:
        raise CaptureError(f"{path}: the head has no line of the columns' names; it is cut off.")
    rate = number(next(iter(told.get("Sampling Frequency (Hz)", [])), ""))
    count = number(next(iter(told.get("Number of Data points", [])), ""))
    named = told.get("Channel Data", [])
    channels = []
    for column in range(1, len(cells)):
        if cells[column]:
            known = column <= len(named) and named[column - 1]
            channels.append(Column(str(known or f"CH {column}"), column))
    return Plan(
        _NAME,
        "",
        first_row,
        tuple(channels),
        interval_s=1 / rate if 0 < rate < float("inf") else 0.0,
        rows=int(count) if 0 < count < 1e12 else 0,
        triggered=False,  # times count from the first sample
    )


def _grid(path: Path, start: str, increment: str) -> Grid:
    start_s, increment_s = number(start), number(increment)
    if not (abs(start_s) < LONGEST_S and 0 < increment_s < LONGEST_S):
        raise CaptureError(
            f"{path}: the head says start {start!r} and increment {increment!r}, which are "
            "not seconds; save the waveform again."
        )
    return Grid(femtoseconds(start_s), femtoseconds(increment_s))


def _factor(unit: str) -> float:
    return unit_of(unit, "V") or 1.0


FORMAT: Final = Format(
    _NAME,
    "DS1042C, DS1052E, DS1054Z, DS1074Z, DS1102D, DS1102E, DS1204B, DS2000, DS2072A, DS4024",
    _recognises,
    _open,
)
