"""Binary files of Keysight InfiniiVision (AG01, AG03, AG10) and Rigol (RG01, RG03), by RigolWFM.

Taken from it is what it finds in the file, and not what it makes of that: segments, single lines
and dates are missing there. Segments of one acquisition carry an index and a time tag. Volts are
floats (Agilent InfiniiVision 2000 X-Series User's Guide, "Binary Data (.bin) Format"; Rigol DHO1000
User Guide, 19.2.4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.rigol_wfm import NEEDS, by_rigolwfm
from mqtick.recording.bits import transitions_of_bits
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.recording.octets import add_waveform, interval_fs, short_decimal, start_fs
from mqtick.recording.waveform import Waveform

__all__ = ["FORMATS"]

_AGILENT: Final = (b"AG01", b"AG03", b"AG10")
_RIGOL: Final = (b"RG01", b"RG03")
_NORMAL, _LOGIC, _DIGITAL = 1, 5, 6
_LOGIC_WAVEFORM: Final = 6
_FAULTY: Final = struct.pack("<Id", 144, 1e-12)
"""Size of the header and interval of the samples, with a firmware that keeps the wrong ones."""
_DATES: Final = ("%Y-%m-%d", "%d %b %Y", "%d %B %Y", "%m/%d/%Y")


def _open(path: Path) -> CaptureFile:
    notes: list[str] = []
    rigol, waveforms = _waveforms(path)
    maker = "Rigol" if rigol else "Keysight"
    model, _, serial = waveforms[0].wfm_header.frame_string.partition(":")
    instrument = " ".join(word for word in (maker, model, serial) if word)
    # Read again when it is wanted: of many files only one is in memory.
    return CaptureFile(
        path,
        f"{maker} binary",
        instrument,
        lambda: _captures(path, *_waveforms(path), notes),
        notes,
    )


def _waveforms(path: Path) -> tuple[bool, list[Any]]:
    """Return whether a file is Rigol's, and its waveforms: each a channel of a segment."""
    with by_rigolwfm(path, "Keysight or Rigol binary"):
        from kaitaistruct import KaitaiStream  # noqa: PLC0415 - comes with RigolWFM
        from RigolWFM.agilent_agxx_bin import AgilentAgxxBin  # noqa: PLC0415 - optional, and slow

        with path.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_COPY) as octets:
            if octets[12:16] == _FAULTY[:4] and octets[44:52] == _FAULTY[4:]:
                raise CaptureError(
                    f"{path} was written by a firmware of the MSO5000 that keeps neither the time "
                    "between samples nor their scale: update the firmware, or save as CSV."
                )
            rigol = octets[:4] in _RIGOL
            octets[:2] = b"AG"  # Rigol's differ in their first octets alone
            found: list[Any] = AgilentAgxxBin(KaitaiStream(octets)).waveforms
    if not found:
        raise CaptureError(f"{path} has no waveform. Save it again with a channel switched on.")
    return rigol, found


def _captures(path: Path, rigol: bool, waveforms: list[Any], notes: list[str]) -> Iterator[Capture]:
    segments: dict[tuple[int, int], list[tuple[str, Any]]] = {}
    seen: dict[int, list[str]] = {}
    for waveform in waveforms:
        header = waveform.wfm_header
        before = seen.setdefault(header.segment_index, [])
        name = header.waveform_label.strip() or f"{'CH' * rigol}{len(before) + 1}"
        # Where the file counts no segments, a name that comes again begins the next one. Pods do
        # not.
        again = 0 if header.waveform_type == _LOGIC_WAVEFORM else before.count(name)
        before.append(name)
        segments.setdefault((header.segment_index, again), []).append((name, waveform))
    complete = 0
    for of in segments.values():
        signals: dict[str, Signal] = {}
        for name, waveform in of:
            _add(path, rigol, name, waveform, signals, notes)
        if signals:
            complete += 1
            yield Capture(signals, started_ns=_started_ns(of[0][1].wfm_header))
    if not complete:
        raise CaptureError(" ".join([f"{path} has no channel that can be read.", *notes]))


def _add(
    path: Path, rigol: bool, name: str, waveform: Any, signals: dict[str, Signal], notes: list[str]
) -> None:
    """Add what one waveform of the file shows: a channel, or the lines of a pod."""
    header, what = waveform.wfm_header, f"channel {name}"
    # Rigol counts from the first sample to the trigger, Keysight the other way round.
    start_s = short_decimal(header.x_origin) * (-1 if rigol else 1)
    timing = (
        interval_fs(short_decimal(header.x_increment), path, what),
        start_fs(start_s, path, what),
    )
    logic = header.waveform_type == _LOGIC_WAVEFORM
    for buffer in waveform.buffers:
        kind, width = buffer.data_header.buffer_type, buffer.data_header.bytes_per_point
        numbers = np.dtype({1: "u1", 4: "<f4"}.get(width, "V1"))
        values = np.frombuffer(buffer.data_raw, numbers, len(buffer.data_raw) // numbers.itemsize)
        if kind == _NORMAL and width == 4 and not logic:
            add_waveform(signals, notes, name, values, timing)
        elif kind in (_LOGIC, _DIGITAL) and width in (1, 4):
            _add_levels(name, logic, values, timing, signals, notes)
        else:
            notes.append(
                f"A part of channel {name} was left out: it has samples of kind {int(kind)} in "
                f"{width} octets. Record with normal sampling, not with peak detect."
            )


def _add_levels(
    name: str,
    logic: bool,
    values: npt.NDArray[Any],
    timing: tuple[int, int],
    signals: dict[str, Signal],
    notes: list[str],
) -> None:
    if not values.size or not ((values >= 0) & (values <= 255)).all():
        notes.append(f"Channel {name} was left out: its levels are not those of 8 lines.")
        return
    bits = values.astype(np.uint8)
    lines = {name: bits != 0}
    if logic:
        pods = sum(each.startswith("D") and each[1:].isdecimal() for each in signals)
        lines = {f"D{pods + bit}": bits >> bit & 1 for bit in range(8)}
    for line, levels in lines.items():
        waveform = Waveform(levels.astype(np.uint8), 1.0, 0.0, *timing)
        signals[line] = transitions_of_bits(line, waveform)


def _started_ns(header: Any) -> int | None:
    """Return the instrument's date and time (taken as UTC: it names no zone) plus the tag."""
    tag_s = float(header.time_tag)
    for form in _DATES if 0 <= tag_s < 1e9 else ():
        try:
            moment = datetime.strptime(f"{header.date} {header.time_str}", f"{form} %H:%M:%S")
        except ValueError:
            continue
        return int(moment.replace(tzinfo=UTC).timestamp()) * 10**9 + round(tag_s * 1e9)
    return None


def _is_rigol(head: bytes) -> bool:
    # The headers of the MSO7000 and MSO8000 are shorter, which rigol_wfm reads.
    return head[:4] in _RIGOL and head[12:16] != b"\x80\0\0\0"


FORMATS: Final = (
    Format(
        "Keysight binary",
        "DSO-X 1102G, MSO-X 4154A",
        lambda head: head[:4] in _AGILENT,
        _open,
        NEEDS,
    ),
    Format("Rigol binary", "MSO5000, MSO5074, DHO824, DHO1074", _is_rigol, _open, NEEDS),
)
