"""CSV files of Saleae's Logic: digital ones with a row a change, analogue ones with all samples.

`Time [s],Channel 0,Channel 1` (Logic 1: `Time[s]`), or the names that the channels were given.
The times count from the trigger, or from the beginning where there was none: the file does not
say, nor does it keep the sample rate.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mqtick.analysis.readers.columns import cells_of, head_lines, is_text, read_head
from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.text_capture import Column, Plan, open_plan
from mqtick.analysis.readers.text_transitions import refuse_dates
from mqtick.analysis.signals.capture import CaptureFile

__all__ = ["FORMAT"]

_NAME: Final = "Saleae Logic CSV"


def _recognises(head: bytes) -> bool:
    if not is_text(head):
        return False
    lines = head_lines(head)
    cells = cells_of(lines[0])
    if len(cells) < 2 or cells[0] not in ("Time [s]", "Time[s]"):
        return False
    if any(cell.startswith("Channel ") for cell in cells):
        return True
    # Channels that were given names: then nine decimals tell it from a file made by hand.
    return len(lines) > 1 and re.match(r"-?\d+\.\d{9},[01](?:,[01])*$", lines[1]) is not None


def _open(path: Path) -> CaptureFile:
    lines = head_lines(read_head(path))
    if len(lines) > 1:
        refuse_dates(path, cells_of(lines[1])[0])
    names = cells_of(lines[0])
    channels = [Column(name, place) for place, name in enumerate(names) if place and name]
    return open_plan(path, Plan(_NAME, "Saleae", 1, tuple(channels), triggered=False))


FORMAT: Final = Format(_NAME, "", _recognises, _open)
