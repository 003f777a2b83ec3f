"""CSV files of Keysight's (and Agilent's) oscilloscopes.

InfiniiVision: `x-axis,1,2` and `second,Volt,Volt`, segments stacked below one another.
Infiniium: a head of `Revision:`, ..., `XInc:`, `XOrg:`, ..., `Data:`, then volts alone or times
and volts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mqtick.analysis.readers.columns import cells_of, head_lines, is_text, number, read_head
from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.octets import LONGEST_S
from mqtick.analysis.readers.text_capture import Column, Grid, Plan, open_plan, unit_of
from mqtick.analysis.signals.capture import CaptureError, CaptureFile
from mqtick.analysis.signals.waveform import femtoseconds

__all__ = ["INFINIIUM", "INFINIIVISION"]

_INFINIIVISION: Final = "Keysight InfiniiVision CSV"
_INFINIIUM: Final = "Keysight Infiniium CSV"


def _recognises_infiniivision(head: bytes) -> bool:
    return is_text(head) and head_lines(head)[0].casefold().startswith("x-axis,")


def _open_infiniivision(path: Path) -> CaptureFile:
    lines = head_lines(read_head(path))
    names = cells_of(lines[0])
    units = cells_of(lines[1]) if len(lines) > 1 else []
    factor = unit_of(units[0], "s") if units else None
    if factor is None:
        raise CaptureError(
            f"{path}: the x-axis is in {units[0]!r} and not in seconds (a spectrum?); save the "
            "waveforms of the channels."
            if units
            else f"{path} ends within its head; save it again."
        )
    channels = [
        Column(name, place, unit_of(units[place] if place < len(units) else "", "V") or 1.0)
        for place, name in enumerate(names)
        if place and name
    ]
    return open_plan(path, Plan(_INFINIIVISION, "", 2, tuple(channels), to_seconds=factor))


def _recognises_infiniium(head: bytes) -> bool:
    if not is_text(head):
        return False
    text = "\n".join(head_lines(head)[:40])
    return text.startswith("Revision:") and "XInc:" in text and "XOrg:" in text


def _open_infiniium(path: Path) -> CaptureFile:
    lines = head_lines(read_head(path))[:60]
    end = next((n for n, line in enumerate(lines) if line.startswith("Data:")), None)
    if end is None or end + 1 >= len(lines):
        raise CaptureError(
            f"{path} has the head of an Infiniium but no line `Data:` with rows after it; it is "
            "cut off. Save it again."
        )
    told: dict[str, list[str]] = {}
    for line in lines[:end]:
        key, _, values = line.partition(":")
        told[key.strip()] = [cell for cell in cells_of(values) if cell]
    increment, start = (number(next(iter(told.get(key, [])), "")) for key in ("XInc", "XOrg"))
    if not (0 < increment < LONGEST_S and abs(start) < LONGEST_S):
        raise CaptureError(
            f"{path}: the head says XInc {told.get('XInc')} and XOrg {told.get('XOrg')}, which "
            "are not seconds; save the waveform again."
        )
    width = len([cell for cell in cells_of(lines[end + 1]) if cell])
    count = max(len(told.get("XInc", [])), 1)
    # With as many cells as channels there is no time column, with one more there is.
    timed = width > count
    names = told.get("Source", []) or [str(place + 1) for place in range(width - timed)]
    channels = [Column(name, place + timed) for place, name in enumerate(names[: width - timed])]
    frame = next(iter(told.get("Frame", [])), "")
    return open_plan(
        path,
        Plan(
            _INFINIIUM,
            f"Keysight {frame}" if frame else "",
            end + 1,
            tuple(channels),
            time_column=None,
            grid=Grid(femtoseconds(start), femtoseconds(increment)),
        ),
    )


INFINIIVISION: Final = Format(
    _INFINIIVISION,
    "an InfiniiVision (model not noted)",
    _recognises_infiniivision,
    _open_infiniivision,
)
INFINIIUM: Final = Format(_INFINIIUM, "", _recognises_infiniium, _open_infiniium)
