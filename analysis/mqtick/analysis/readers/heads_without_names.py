"""Heads that tell the time base themselves, over rows without a line of names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mqtick.analysis.readers.columns import cells_of, number
from mqtick.analysis.readers.plans import seconds_of
from mqtick.analysis.readers.text_capture import Column, Grid, Plan
from mqtick.analysis.readers.told import first_of, interval_in, rows_in, sane, told_in
from mqtick.analysis.readers.units import split_unit, unit_of
from mqtick.recording.capture import CaptureError
from mqtick.recording.octets import LONGEST_S
from mqtick.recording.waveform import femtoseconds

__all__ = ["gw_instek", "hantek", "infiniium", "rigol", "tektronix", "yokogawa"]

_CHANNEL: Final = re.compile(r"(?:CH ?[1-8]|MATH[1-4]?|D ?\d{1,2}(?:-D ?\d{1,2})?|REF\d*)$", re.I)
_INLINE: Final = re.compile(r"t0\s*=\s*([-+.\deE]+).*?tInc\s*=\s*([-+.\deE]+)", re.I)
_ROUNDED_PPM: Final = 1e-6
"""What floats make of a whole number of femtoseconds."""


def rigol(path: Path, name: str, lines: list[str]) -> Plan | None:
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


def infiniium(path: Path, name: str, lines: list[str]) -> Plan:
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


def tektronix(path: Path, name: str, lines: list[str]) -> Plan | None:
    """Read the head of a TDS, which stands in the two left columns of the first rows."""
    told = told_in(lines)
    if len(told.get("Record Length", [])) < 4:
        return None
    to_volts = unit_of(first_of(told, "Vertical Units"), "V") or 1.0
    return Plan(
        name,
        f"Tektronix {first_of(told, 'Model Number')}".strip(),
        0,
        (Column(first_of(told, "Source") or "CH1", 4, to_volts),),
        time_column=3,
        to_seconds=seconds_of(path, first_of(told, "Horizontal Units")),
        interval_s=sane(number(first_of(told, "Sample Interval")), 1e3),
        rows=int(sane(number(first_of(told, "Record Length")), 1e12)),
    )


def gw_instek(path: Path, name: str, lines: list[str]) -> Plan | None:
    """Read the head of a GDS, over rows of a time and volts of one channel."""
    above = next((n for n, each in enumerate(lines) if each.startswith("Waveform Data")), None)
    if above is None:
        return None
    told = told_in(lines[:above])
    return Plan(
        name,
        "GW Instek",
        above + 1,
        (
            Column(
                first_of(told, "Source") or "CH1",
                1,
                unit_of(first_of(told, "Vertical Units"), "V") or 1,
            ),
        ),
        time_column=0,
        to_seconds=seconds_of(path, first_of(told, "Horizontal Units")),
        interval_s=interval_in(lines[:above]),
        rows=rows_in(lines[:above]),
    )


def hantek(path: Path, name: str, lines: list[str]) -> Plan:
    """Read rows of a time in s and mV of each channel, below `#timebase=...,#voltbase=...`."""
    first = next((n for n, line in enumerate(lines) if re.match(r" *[-+.\d]", line)), len(lines))
    cells = [cell for cell in cells_of("".join(lines[first : first + 1])) if cell]
    channels = tuple(Column(f"CH{place}", place, 1e-3) for place in range(1, len(cells)))
    return Plan(name, "Hantek", first, channels)


def yokogawa(path: Path, name: str, lines: list[str]) -> Plan | None:
    """Read a DL's head, over rows of volts whose first cell is empty."""
    told = told_in(lines)
    above = next((n for n, line in enumerate(lines) if line.startswith(",")), None)
    if above is None or "HResolution" not in told:
        return None
    if number(first_of(told, "BlockNumber") or "1") != 1 or len({*told["HResolution"]}) != 1:
        raise CaptureError(
            f"{path} holds several blocks of a history, or channels of several rates; save each in "
            "a file of its own."
        )
    units = told.get("VUnit", [])
    channels = [
        Column(each, n, (unit_of(units[n - 1], "V") if n <= len(units) else None) or 1.0)
        for n, each in enumerate(told.get("TraceName", []), start=1)
    ]
    return Plan(
        name,
        f"Yokogawa {first_of(told, 'Model Name')}".strip(),
        above,
        tuple(channels),
        time_column=None,
        grid=_grid(path, told.get("HOffset", ["0"])[0], told["HResolution"][0]),
        rows=rows_in(lines[:above]),
    )
