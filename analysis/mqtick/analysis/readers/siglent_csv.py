"""CSV files of Siglent's oscilloscopes: with a head of key and value lines, or two lines alone.

`Source,CH1,CH2` and `Second,Volt,Volt` (newer: `Value`) stand directly over the rows; older files
have no `Source`, and name the channel in the values of the head (`Vertical Scale,CH1: 1.00`).
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Final

from mqtick.analysis.readers.columns import cells_of, head_lines, is_text, number, read_head
from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.text_capture import Column, Plan, open_plan, unit_of
from mqtick.analysis.signals.capture import CaptureError, CaptureFile

__all__ = ["FORMAT"]

_NAME: Final = "Siglent CSV"
_MOST_LINES: Final = 64
_NAMED: Final = re.compile(r"\b(?:CH|C|F|M|D)\d{1,2}(?=\s*:)")


def _recognises(head: bytes) -> bool:
    if not is_text(head):
        return False
    lines = head_lines(head)[:_MOST_LINES]
    if not lines:
        return False
    if re.match(r"Record Length,(?:Analog|Digital)\s*:", lines[0]):
        return True
    return any(
        first.startswith("Source,") and second.startswith("Second,")
        for first, second in itertools.pairwise(lines)
    )


def _open(path: Path) -> CaptureFile:
    lines = head_lines(read_head(path))[:_MOST_LINES]
    titles = next((n for n, line in enumerate(lines) if line.startswith("Second,")), None)
    if titles is None:
        raise CaptureError(
            f"{path} has a Siglent head but no line `Second,Volt` after it; it is cut off. "
            "Save it again."
        )
    told = {cells_of(line)[0]: cells_of(line)[1:] for line in lines[:titles]}
    count = len([cell for cell in cells_of(lines[titles])[1:] if cell])
    names = [name for name in told.get("Source", []) if name]
    if not names:
        names = list(dict.fromkeys(_NAMED.findall("\n".join(lines[:titles]))))
    names += [f"column {place + 2}" for place in range(len(names), count)]
    units = dict(_pair(cell) for cell in told.get("Vertical Units", []))
    channels = [
        Column(name, place + 1, unit_of(units.get(name, ""), "V") or 1.0)
        for place, name in enumerate(names[:count])
    ]
    interval = number(_value(told, "Sample Interval"))
    rate = number(_value(told, "Sample Rate"))
    if not interval > 0 and rate > 0:
        interval = 1 / rate
    rows = number(_value(told, "Record Length"))
    model = next(iter(told.get("Model Number", [])), "")
    return open_plan(
        path,
        Plan(
            _NAME,
            f"Siglent {model}" if model else "",
            titles + 1,
            tuple(channels),
            interval_s=interval if 0 < interval < 1e3 else 0.0,
            rows=int(rows) if 0 < rows < 1e12 else 0,
            triggered=None,
        ),
    )


def _pair(cell: str) -> tuple[str, str]:
    """Split `CH1:V` in channel and value."""
    name, _, value = cell.partition(":")
    return name.strip(), value.strip()


def _value(told: dict[str, list[str]], key: str) -> str:
    """Return the first value of a line, without the channel in front of it."""
    first = next(iter(told.get(key, [])), "")
    return _pair(first)[1] or first


FORMAT: Final = Format(_NAME, "", _recognises, _open)
