"""Binary files of Keysight InfiniiVision (AG01, AG03, AG10) and Rigol (RG01, RG03).

A header of the file, and for each waveform a header and one or more buffers, each with a header of
its own. Segments of one acquisition carry an index and a time tag. Volts are floats (Agilent
InfiniiVision 2000 X-Series User's Guide, "Binary Data (.bin) Format"; Rigol DHO1000 User Guide,
19.2.4).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.readers.format import Format
from mqtick.recording.bits import transitions_of_bits
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.recording.octets import (
    add_waveform,
    interval_fs,
    opened,
    read_so_far,
    short_decimal,
    start_fs,
    text,
)
from mqtick.recording.waveform import Waveform

_AGILENT: Final = (b"AG01", b"AG03", b"AG10")
_RIGOL: Final = (b"RG01", b"RG03")
_NORMAL, _LOGIC, _DIGITAL = 1, 5, 6
_LOGIC_WAVEFORM: Final = 6
_FAULTY: Final = struct.pack("<Id", 144, 1e-12)
"""Size of the header and interval of the samples, with a firmware that keeps the wrong ones."""
_DATES: Final = ("%Y-%m-%d", "%d %b %Y", "%d %B %Y", "%m/%d/%Y")
_WAVEFORM: Final = struct.Struct("<5If3d2I16s16s24s16sdI")
_BUFFER: Final = struct.Struct("<IHHI")
_LONG_BUFFER: Final = struct.Struct("<IHHQ")


@dataclass(frozen=True, slots=True)
class _Buffer:
    """Where a buffer's samples are in the file, and of which kind and width in octets."""

    kind: int
    width: int
    offset: int
    octets: int


@dataclass(frozen=True, slots=True)
class _Waveform:
    """What a waveform's header says, and where its samples are."""

    kind: int
    interval_s: float
    origin_s: float
    date: str
    time: str
    frame: str
    label: str
    tag_s: float
    segment: int
    buffers: tuple[_Buffer, ...]


def _open(path: Path) -> CaptureFile:
    notes: list[str] = []
    with opened(path) as stream:
        magic = stream.read(52)
        waveforms = list(_waveforms(path, stream, magic, notes))
    rigol = magic[:4] in _RIGOL
    if not waveforms:
        none = f"{path} has no waveform. Save it again with a channel switched on."
        raise CaptureError(" ".join([f"{path}:", *notes]) if notes else none)
    maker = "Rigol" if rigol else "Keysight"
    model, _, serial = waveforms[0].frame.partition(":")
    instrument = " ".join(word for word in (maker, model, serial) if word)
    return CaptureFile(
        path,
        f"{maker} binary",
        instrument,
        lambda: _captures(path, rigol, waveforms, notes),
        notes,
    )


def _waveforms(path: Path, stream: BinaryIO, head: bytes, notes: list[str]) -> Iterator[_Waveform]:
    """Yield the waveforms that are complete; a note says if one is not."""
    if head[12:16] == _FAULTY[:4] and head[44:52] == _FAULTY[4:]:
        raise CaptureError(
            f"{path} was written by a firmware of the MSO5000 that keeps neither the time "
            "between samples nor their scale: update the firmware, or save as CSV."
        )
    size = os.fstat(stream.fileno()).st_size
    long = head[2:4] == b"03"
    at = 16 if long else 12
    (count,) = struct.unpack("<I", head[at - 4 : at].rjust(4, b"\xff"))
    for number in range(count):
        stream.seek(at)
        found = _waveform(stream, at, size, _LONG_BUFFER if long else _BUFFER)
        if found is None:
            notes.append(
                f"The file is cut short: it should hold {count:,} waveforms, and number "
                f"{number + 1} is not complete; it is left out, with what would follow. Copy or "
                "save the file again."
            )
            return
        waveform, at = found
        yield waveform


def _waveform(
    stream: BinaryIO, at: int, size: int, header: struct.Struct
) -> tuple[_Waveform, int] | None:
    """Return the waveform that begins here and where it ends, None where the file ends before."""
    octets = stream.read(_WAVEFORM.size)
    if len(octets) < _WAVEFORM.size:
        return None
    length, kind, buffers, *_, interval_s, origin_s, _, _ = (said := _WAVEFORM.unpack(octets))[:11]
    date, time, frame, label, tag_s, segment = said[11:]
    at += max(length, _WAVEFORM.size)
    places = []
    for _ in range(buffers):
        stream.seek(at)
        octets = stream.read(header.size)
        if len(octets) < header.size:
            return None
        _, of, width, length = header.unpack(octets)
        at += header.size
        if length > size - at:
            return None
        places.append(_Buffer(of, width, at, length))
        at += length
    return _Waveform(
        kind,
        interval_s,
        origin_s,
        text(date),
        text(time),
        text(frame),
        text(label),
        tag_s,
        segment,
        tuple(places),
    ), at


def _captures(
    path: Path, rigol: bool, waveforms: list[_Waveform], notes: list[str]
) -> Iterator[Capture]:
    segments: dict[tuple[int, int], list[tuple[str, _Waveform]]] = {}
    seen: dict[int, list[str]] = {}
    for waveform in waveforms:
        before = seen.setdefault(waveform.segment, [])
        name = waveform.label or f"{'CH' * rigol}{len(before) + 1}"
        # Where the file counts no segments, a name that comes again begins the next one. Pods do
        # not.
        again = 0 if waveform.kind == _LOGIC_WAVEFORM else before.count(name)
        before.append(name)
        segments.setdefault((waveform.segment, again), []).append((name, waveform))
    complete = 0
    for of in segments.values():
        signals: dict[str, Signal] = {}
        for name, waveform in of:
            _add(path, rigol, name, waveform, signals, notes)
        if signals:
            complete += 1
            yield Capture(signals, started_ns=_started_ns(of[0][1]))
    if not complete:
        raise CaptureError(" ".join([f"{path} has no channel that can be read.", *notes]))


def _add(
    path: Path,
    rigol: bool,
    name: str,
    waveform: _Waveform,
    signals: dict[str, Signal],
    notes: list[str],
) -> None:
    """Add what one waveform of the file shows: a channel, or the lines of a pod."""
    what = f"channel {name}"
    # Rigol counts from the first sample to the trigger, Keysight the other way round.
    start_s = short_decimal(waveform.origin_s) * (-1 if rigol else 1)
    timing = (
        interval_fs(short_decimal(waveform.interval_s), path, what),
        start_fs(start_s, path, what),
    )
    logic = waveform.kind == _LOGIC_WAVEFORM
    for buffer in waveform.buffers:
        kind, width = buffer.kind, buffer.width
        volts = kind == _NORMAL and width == 4 and not logic
        if not volts and not (kind in (_LOGIC, _DIGITAL) and width in (1, 4)):
            notes.append(
                f"A part of channel {name} was left out: it has samples of kind {kind} in {width} "
                "octets. Record with normal sampling, not with peak detect."
            )
            continue
        with opened(path) as stream:
            read_so_far(buffer.offset, os.fstat(stream.fileno()).st_size)
            count = buffer.octets // width
            values = np.fromfile(stream, {1: "u1", 4: "<f4"}[width], count, offset=buffer.offset)
        if volts:
            add_waveform(signals, notes, name, values, timing)
        else:
            _add_levels(name, logic, values, timing, signals, notes)


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


def _started_ns(waveform: _Waveform) -> int | None:
    """Return the instrument's date and time (taken as UTC: it names no zone) plus the tag."""
    tag_s = waveform.tag_s
    for form in _DATES if 0 <= tag_s < 1e9 else ():
        try:
            moment = datetime.strptime(f"{waveform.date} {waveform.time}", f"{form} %H:%M:%S")
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
    ),
    Format("Rigol binary", "MSO5000, MSO5074, DHO824, DHO1074", _is_rigol, _open),
)
