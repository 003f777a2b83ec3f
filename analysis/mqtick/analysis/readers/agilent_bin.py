"""Binary files of Agilent and Keysight InfiniiVision (AG01, AG03, AG10) and Rigol (RG01, RG03).

A file header, then for each waveform a header of 140 octets (of MSO7000 and MSO8000: 128) and its
buffers, each with a header of its own, all little endian (Agilent InfiniiVision 2000 X-Series
User's Guide, "Binary Data (.bin) Format"; Rigol DHO1000 User Guide, 19.2.4). AG03 and RG03 count
octets with 64 bits, the others with 32. Segments of one acquisition carry an index and a time tag.
Volts are floats.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.readers.bits import transitions_of_bits
from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.octets import (
    Octets,
    add_waveform,
    interval_fs,
    opened,
    short_decimal,
    start_fs,
    text,
)
from mqtick.analysis.signals.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.analysis.signals.waveform import Waveform

__all__ = ["FORMATS"]

_HEADER: Final = struct.Struct("<5If3d2I16s16s24s16sdI")
_SHORT: Final = 128
_LONG: Final = (b"AG03", b"RG03")
_AGILENT: Final = (b"AG01", b"AG03", b"AG10")
_RIGOL: Final = (b"RG01", b"RG03")
_NORMAL, _MAXIMUM, _MINIMUM, _LOGIC, _DIGITAL = 1, 2, 3, 5, 6
_LOGIC_WAVEFORM: Final = 6
_DATES: Final = ("%Y-%m-%d", "%d %b %Y", "%d %B %Y", "%m/%d/%Y")


@dataclass(frozen=True, slots=True)
class _Buffer:
    kind: int
    width: int
    at: int
    octets: int


@dataclass(frozen=True, slots=True)
class _Record:
    """One waveform of the file: a channel of a segment."""

    name: str
    segment: tuple[int, int]
    logic: bool
    interval_fs: int
    start_fs: int
    started_ns: int | None
    frame: str
    rigol: bool
    buffers: tuple[_Buffer, ...]


def _open(path: Path) -> CaptureFile:
    notes: list[str] = []
    with opened(path) as stream:
        records = _records(Octets.of(path, stream), notes)
    if not records:
        raise CaptureError(" ".join([f"{path} has no complete waveform.", *notes]))
    maker = "Rigol" if records[0].rigol else "Keysight"
    model, _, serial = records[0].frame.partition(":")
    instrument = " ".join(word for word in (maker, model, serial) if word)
    return CaptureFile(
        path, f"{maker} binary", instrument, lambda: _captures(path, records, notes), notes
    )


def _records(file: Octets, notes: list[str]) -> list[_Record]:
    """Read all headers, and no samples. What the file has no room for is noted and left out."""
    magic = file.take(0, 4, "its magic")
    long = magic in _LONG
    at = 16 if long else 12
    count = struct.unpack_from("<I", file.take(0, at, "its header"), at - 4)[0]
    records: list[_Record] = []
    for index in range(count):
        what = f"waveform {index + 1} of {count}"
        try:
            head = file.take(at, _SHORT, f"the header of {what}")
            size = int.from_bytes(head[:4], "little")
            if size < _SHORT:
                raise CaptureError(f"The header of {what} says that it has {size} octets.")
            tail = bytes(12)  # time tag and segment, which the MSO7000 and MSO8000 do not write
            if size >= _HEADER.size:
                tail = file.take(at + _SHORT, 12, f"the header of {what}")
            fields = _HEADER.unpack(head + tail)
            if size == 144 and fields[7] == 1e-12:
                raise CaptureError(
                    "It was written by a firmware of the MSO5000 that keeps neither the time "
                    "between samples nor their scale: update the firmware, or save as CSV."
                )
            at, found = _buffers(file, at + size, fields[2], what)
        except CaptureError as error:
            notes.append(f"Waveforms from {index + 1} on were left out. {error}")
            break
        records.append(_record(file.path, fields, found, magic, records, what))
    return records


def _buffers(file: Octets, at: int, count: int, what: str) -> tuple[int, tuple[_Buffer, ...]]:
    found = []
    for _ in range(count):
        size = struct.unpack("<I", file.take(at, 4, f"the samples of {what}"))[0]
        head = file.take(at, size if size in (12, 16) else 12, f"the samples of {what}")
        if size == 16:
            kind, width, octets = struct.unpack_from("<HHQ", head, 4)
        elif size == 12:
            kind, width, octets = struct.unpack_from("<HHI", head, 4)
        else:
            raise CaptureError(f"The samples of {what} have a header of {size} octets.")
        file.take(at + size, octets and 1, f"the samples of {what}")
        if at + size + octets > file.size:
            raise CaptureError(
                f"{what[0].upper()}{what[1:]} has {octets} octets of samples, and the file ends "
                f"{at + size + octets - file.size} before."
            )
        found.append(_Buffer(kind, width, at + size, octets))
        at += size + octets
    return at, tuple(found)


def _record(
    path: Path,
    fields: tuple[int | float | bytes, ...],
    buffers: tuple[_Buffer, ...],
    magic: bytes,
    before: list[_Record],
    what: str,
) -> _Record:
    kind, increment, origin = fields[1], fields[7], fields[8]
    date, time, frame, label, tag, segment = fields[11:]
    rigol = magic in _RIGOL
    name = text(label) if isinstance(label, bytes) else ""
    of_segment = [record for record in before if record.segment[0] == segment]
    name = name or (f"CH{len(of_segment) + 1}" if rigol else str(len(of_segment) + 1))
    # Where the file counts no segments, a name that comes again begins the next one. Pods do not.
    logic = kind == _LOGIC_WAVEFORM
    again = 0 if logic else sum(record.name == name for record in of_segment)
    seconds = short_decimal(float(origin))
    return _Record(
        name=name,
        segment=(int(segment), again),
        logic=logic,
        interval_fs=interval_fs(short_decimal(float(increment)), path, what),
        # Rigol counts from the first sample to the trigger, Keysight the other way round.
        start_fs=start_fs(-seconds if rigol else seconds, path, what),
        started_ns=_started_ns(date, time, float(tag)),
        frame=text(frame) if isinstance(frame, bytes) else "",
        rigol=rigol,
        buffers=buffers,
    )


def _started_ns(date: object, time: object, tag_s: float) -> int | None:
    """Return the instrument's date and time (taken as UTC: it names no zone) plus the tag."""
    if not (isinstance(date, bytes) and isinstance(time, bytes)) or not 0 <= tag_s < 1e9:
        return None
    for form in _DATES:
        try:
            moment = datetime.strptime(f"{text(date)} {text(time)}", f"{form} %H:%M:%S")
            return int(moment.replace(tzinfo=UTC).timestamp()) * 10**9 + round(tag_s * 1e9)
        except ValueError:
            continue
    return None


def _captures(path: Path, records: list[_Record], notes: list[str]) -> Iterator[Capture]:
    segments: dict[tuple[int, int], list[_Record]] = {}
    for record in records:
        segments.setdefault(record.segment, []).append(record)
    with opened(path) as stream:
        file = Octets.of(path, stream)
        for of in segments.values():
            signals: dict[str, Signal] = {}
            for record in of:
                _add(file, record, signals, notes)
            if signals:
                yield Capture(signals, started_ns=of[0].started_ns)


def _add(file: Octets, record: _Record, signals: dict[str, Signal], notes: list[str]) -> None:
    """Add what one waveform of the file shows: a channel, or the lines of a pod."""
    timing = (record.interval_fs, record.start_fs)
    what = f"channel {record.name}"
    analogue = []
    for buffer in record.buffers:
        if buffer.kind in (_NORMAL, _MAXIMUM, _MINIMUM) and buffer.width == 4 and not record.logic:
            analogue.append(file.array(buffer.at, "<f4", buffer.octets // 4, what))
        elif buffer.kind in (_LOGIC, _DIGITAL) and buffer.width in (1, 4):
            kind = "<f4" if buffer.width == 4 else "u1"
            values = file.array(buffer.at, kind, buffer.octets // buffer.width, what)
            _add_levels(record, values, signals, notes)
        else:
            notes.append(
                f"A part of channel {record.name} was left out: buffers of kind {buffer.kind} with "
                f"{buffer.width} octets per point are not supported."
            )
    if len(analogue) > 1 and len({values.size for values in analogue}) == 1:
        notes.append(
            f"Channel {record.name} was recorded with peak detect: each of its points is taken as "
            "the middle between a minimum and a maximum."
        )
        add_waveform(signals, notes, record.name, np.mean(analogue, axis=0), timing)
    elif analogue:
        add_waveform(signals, notes, record.name, analogue[0], timing)


def _add_levels(
    record: _Record,
    values: npt.NDArray[Any],
    signals: dict[str, Signal],
    notes: list[str],
) -> None:
    if not values.size or not ((values >= 0) & (values <= 255)).all():
        notes.append(f"Channel {record.name} was left out: its levels are not those of 8 lines.")
        return
    bits = values.astype(np.uint8)
    lines = {record.name: bits != 0}
    if record.logic:
        pods = sum(name.startswith("D") and name[1:].isdecimal() for name in signals)
        lines = {f"D{pods + bit}": bits >> bit & 1 for bit in range(8)}
    for name, levels in lines.items():
        waveform = Waveform(levels.astype(np.uint8), 1.0, 0.0, record.interval_fs, record.start_fs)
        signals[name] = transitions_of_bits(name, waveform)


FORMATS: Final = (
    Format("Keysight binary", "DSO-X 1102G, MSO-X 4154A", lambda head: head[:4] in _AGILENT, _open),
    Format("Rigol binary", "MSO5000, MSO5074, DHO824, DHO1074", lambda h: h[:4] in _RIGOL, _open),
)
