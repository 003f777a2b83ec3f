"""CSV files of LeCroy's oscilloscopes: one channel a file, segments below one another.

`LECROYWS4054HD,18156,Waveform`, `Segments,2,SegmentSize,1252`, a line a segment with the trigger's
local time, `Time,Ampl`, rows. The channel's name is in the file's name alone (C1Trace00001.csv).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mqtick.analysis.readers.columns import cells_of, head_lines, is_text, number, read_head
from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.text_capture import Column, Plan, open_plan
from mqtick.analysis.signals.capture import CaptureError, CaptureFile

__all__ = ["FORMAT"]

_NAME: Final = "LeCroy CSV"


def _recognises(head: bytes) -> bool:
    return (
        is_text(head) and re.match(r"LECROY[^,]*,[^,]*,Waveform", head_lines(head)[0]) is not None
    )


def _open(path: Path) -> CaptureFile:
    lines = head_lines(read_head(path))
    titles = next((n for n, line in enumerate(lines) if line.startswith("Time,")), None)
    if titles is None:
        raise CaptureError(
            f"{path} has a LeCroy head but no line `Time,Ampl` after it; it is cut off, or "
            "its waveforms were saved without times. Save it again, with times."
        )
    model = cells_of(lines[0])[0].removeprefix("LECROY")
    sizes = cells_of(lines[1])
    told = dict(zip(sizes[::2], sizes[1::2], strict=False))
    rows = number(told.get("Segments", "")) * number(told.get("SegmentSize", ""))
    named = re.match(r"[CFMZ]\d{1,2}(?!\d)", path.name, re.I)
    name = named[0].upper() if named else "Ampl"
    return open_plan(
        path,
        Plan(
            _NAME,
            f"LeCroy {model}",
            titles + 1,
            (Column(name, 1),),
            rows=int(rows) if 0 < rows < 1e12 else 0,
        ),
    )


FORMAT: Final = Format(_NAME, "", _recognises, _open)
