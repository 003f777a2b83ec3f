"""CSV files of Tektronix' oscilloscopes.

TDS1000, TDS2000: one channel a file; the head stands in the two left columns of the first rows,
time and volts in the fourth and fifth. MSO, DPO, MDO and Tektronix' own tm_data_types: a head of
key and value lines that begins with `Model`, then `TIME,CH1,CH2` and the rows.
"""

from __future__ import annotations

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
from mqtick.analysis.readers.text_capture import Column, Plan, open_plan, unit_of
from mqtick.analysis.signals.capture import CaptureError, CaptureFile

__all__ = ["FORMAT"]

_NAME: Final = "Tektronix CSV"
_MOST_LINES: Final = 64


def _recognises(head: bytes) -> bool:
    return is_text(head) and (_is_tds(head) or _titles(head) is not None)


def _is_tds(head: bytes) -> bool:
    cells = cells_of(head_lines(head)[0])
    return (
        len(cells) >= 5
        and cells[0] == "Record Length"
        and all(is_number(cells[place]) for place in (1, 3, 4))
    )


def _titles(head: bytes) -> int | None:
    """Return the number of the line of titles of the newer layout."""
    lines = head_lines(head)[:_MOST_LINES]
    keys = {line.partition(",")[0].strip() for line in lines}
    if not {"Model", "Sample Interval", "Record Length"} <= keys:
        return None
    return next((n for n, line in enumerate(lines) if line.startswith("TIME,")), None)


def _open(path: Path) -> CaptureFile:
    head = read_head(path)
    lines = head_lines(head)[:_MOST_LINES]
    titles = _titles(head)
    told: dict[str, str] = {}
    for line in lines[:titles]:
        cells = cells_of(line)
        if len(cells) > 1 and cells[0]:
            told.setdefault(cells[0], cells[1])
    factor = unit_of(told.get("Horizontal Units", "s"), "s")
    if factor is None:
        raise CaptureError(
            f"{path}: the horizontal units are {told['Horizontal Units']!r} and not seconds (a "
            "spectrum?); save the waveforms of the channels."
        )
    to_volts = unit_of(told.get("Vertical Units", "V"), "V") or 1.0
    if titles is None:
        first_row, time_column = 0, 3
        channels = [Column(told.get("Source") or "CH1", 4, to_volts)]
    else:
        first_row, time_column = titles + 1, 0
        channels = [
            Column(name, place, to_volts)
            for place, name in enumerate(cells_of(lines[titles]))
            if place and name and name != "TIME"
        ]
    model = told.get("Model Number") or told.get("Model", "")
    interval, rows = number(told.get("Sample Interval", "")), number(told.get("Record Length", ""))
    return open_plan(
        path,
        Plan(
            _NAME,
            f"Tektronix {model}" if model else "",
            first_row,
            tuple(channels),
            time_column=time_column,
            to_seconds=factor,
            interval_s=interval if 0 < interval < 1e3 else 0.0,
            rows=int(rows) if 0 < rows < 1e12 else 0,
        ),
    )


FORMAT: Final = Format(_NAME, "tm_data_types 0.5.0", _recognises, _open)
