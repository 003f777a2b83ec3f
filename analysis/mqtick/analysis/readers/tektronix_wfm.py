"""Reference waveforms of Tektronix (.wfm, versions 1 to 3), one channel a file, FastFrame too.

Tektronix 077-0220, "Performance Oscilloscope Reference Waveform File Format". Volts are scale *
code + offset of explicit dimension 1, instants offset + scale * sample of implicit dimension 1,
counted from the trigger. The trigger's place within a sample, which each FastFrame has of its own,
is not taken in: it is the same for all channels of a shot and drops out of their differences.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from mqtick.analysis.readers.bits import transitions_of_bits
from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.octets import (
    Octets,
    add_waveform,
    channel_of,
    interval_fs,
    opened,
    start_fs,
    text,
)
from mqtick.analysis.signals.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.analysis.signals.waveform import Waveform

__all__ = ["FORMATS"]

_ORDERS: Final = {b"\x0f\x0f": "<", b"\xf0\xf0": ">"}
_VERSIONS: Final = (b":WFM#001", b":WFM#002", b":WFM#003")
_KINDS: Final = {0: "i2", 1: "i4", 2: "u4", 4: "f4", 5: "f8", 6: "u1", 7: "i1"}
_VECTOR, _DIGITAL = 2, 6
_FAST_FRAME: Final = 1
_AFTERWORDS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class _Header:
    """What the fixed part of a file says; places are octets from the start of the file."""

    name: str
    kind: np.dtype[np.generic]
    scale: float
    offset: float
    interval_fs: int
    start_fs: int
    frames: int
    summary: bool
    updates: tuple[bytes, ...]
    order: str
    curve_at: int
    data: tuple[int, int]
    stride: int
    lines: tuple[str, ...]


def _is_wfm(head: bytes) -> bool:
    return head[:2] in _ORDERS and head[2:9] == b":WFM#00"


def _open(path: Path) -> CaptureFile:
    notes: list[str] = []
    with opened(path) as stream:
        header = _header(Octets.of(path, stream))
    return CaptureFile(
        path, "Tektronix WFM", "Tektronix", lambda: _captures(path, header, notes), notes
    )


def _header(file: Octets) -> _Header:
    order = _ORDERS[file.take(0, 2, "its header")]
    version = file.take(2, 8, "its header")
    if version not in _VERSIONS:
        raise CaptureError(
            f"{file.path} is a Tektronix waveform of version {text(version)!r}; :WFM#001 to "
            ":WFM#003 are read. Save it as CSV."
        )

    def get(form: str, at: int) -> float | int:
        form = order + form
        value = struct.unpack(form, file.take(at, struct.calcsize(form), "its header"))[0]
        return value if isinstance(value, (int, float)) else 0

    third = version == _VERSIONS[2]
    at = 78 + 76  # static file information, header of the waveform
    summary = False
    if version != _VERSIONS[0]:
        summary, at = bool(get("H", at)), at + 2
    view = 60 if third else 56
    explicit, implicit = at + 12, at + 12 + 2 * (100 + view)
    updates_at = implicit + 2 * (76 + view) + 2 * 12
    curve_info = updates_at + 24
    frames = int(get("I", 72)) + 1
    if (
        get("i", 122) not in (_VECTOR, _DIGITAL)
        or get("i", 78) not in (0, _FAST_FRAME)
        or frames > file.size
    ):
        raise CaptureError(
            f"{file.path} has no waveform of volts over time (its data type is {get('i', 122)}, "
            f"its set type {get('i', 78)}); save it as CSV."
        )
    code, width = int(get("i", explicit + 72)), int(get("B", 15))
    kind = "i1" if (code, width) == (0, 1) else _KINDS.get(code, "")
    if not kind or np.dtype(kind).itemsize != width:
        raise CaptureError(
            f"{file.path} has samples of the format {code} in {width} octets, which is not "
            "supported; save it as CSV."
        )
    begin, end, stop = (int(get("I", curve_info + 14 + 4 * n)) for n in range(3))
    if not begin <= end <= stop:
        raise CaptureError(f"{file.path} says that its samples are at octets {begin} to {end}.")
    scale, offset = float(get("d", explicit)), float(get("d", explicit + 8))
    if not (0 < abs(scale) < 1e30 and abs(offset) < 1e30):
        raise CaptureError(f"{file.path} has {scale!r} V per code at {offset!r} V: save it again.")
    curve_at = int(get("i", 16))
    # One update of the first frame stands in the header, those of the others follow it.
    more = file.take(curve_info + 30, 24 * (frames - 1), "the times of its frames")
    updates = (file.take(updates_at, 24, "its header"), *_pieces(more, 24))
    return _Header(
        name=text(file.take(40, 32, "its header")) or channel_of(file.path),
        kind=np.dtype(order + kind),
        scale=scale,
        offset=offset,
        interval_fs=interval_fs(float(get("d", implicit)), file.path, "its time base"),
        start_fs=start_fs(float(get("d", implicit + 8)), file.path, "its time base"),
        frames=frames,
        summary=summary,
        updates=updates,
        order=order,
        curve_at=curve_at,
        data=(begin, end - begin),
        stride=stop,
        lines=_lines(file, get("i", 122), curve_at + frames * stop),
    )


def _lines(file: Octets, data_type: float, at: int) -> tuple[str, ...]:
    """Return the names of digital lines, d0 first, where the samples or the words after say so."""
    names = tuple(f"d{bit}" for bit in range(8))
    if data_type == _DIGITAL:
        return names
    after = (
        file.take(at, min(file.size - at, _AFTERWORDS), "its end") if 0 < at < file.size else b""
    )
    words = after.partition(b"tekmeta!")[2]
    return names if all(b"\2\0\0\0" + name.encode() in words for name in names) else ()


def _pieces(octets: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(octets[at : at + size] for at in range(0, len(octets), size))


def _captures(path: Path, header: _Header, notes: list[str]) -> Iterator[Capture]:
    frames = header.frames - 1 if header.summary and header.frames > 1 else header.frames
    if frames < header.frames:
        notes.append("The last frame is a summary of the others, and was left out.")
    complete = 0
    with opened(path) as stream:
        file = Octets.of(path, stream)
        for index in range(frames):
            at = header.curve_at + index * header.stride + header.data[0]
            count = header.data[1] // header.kind.itemsize
            try:
                samples = file.array(at, header.kind, count, f"frame {index + 1} of {frames}")
            except CaptureError as error:
                notes.append(f"Frames from {index + 1} on were left out. {error}")
                break
            signals: dict[str, Signal] = {}
            _add(header, samples, signals, notes)
            if signals:
                complete += 1
                yield Capture(signals, started_ns=_started_ns(header, index))
    if not complete:
        raise CaptureError(" ".join([f"{path} has no complete frame.", *notes]))


def _add(
    header: _Header,
    samples: np.ndarray[tuple[int], np.dtype[np.generic]],
    signals: dict[str, Signal],
    notes: list[str],
) -> None:
    timing = (header.interval_fs, header.start_fs)
    if header.lines and header.kind.itemsize == 1:
        for bit, name in enumerate(header.lines):
            levels = samples.view(np.uint8) >> bit & 1
            signals[name] = transitions_of_bits(name, Waveform(levels, 1.0, 0.0, *timing))
        return
    if header.kind.kind == "f" or header.kind.itemsize > 2 or header.scale < 0:
        volts = samples.astype(np.float64) * header.scale + header.offset
        add_waveform(signals, notes, header.name, volts, timing)
        return
    scale = {"volts_per_code": header.scale, "code_at_zero": -header.offset / header.scale}
    codes = samples.astype(header.kind.newbyteorder("="))
    add_waveform(signals, notes, header.name, codes, timing, scale)


def _started_ns(header: _Header, index: int) -> int | None:
    _, _, fraction, seconds = struct.unpack(header.order + "Iddi", header.updates[index])
    known = seconds > 0 and 0 <= fraction < 1
    return int(seconds) * 10**9 + round(float(fraction) * 1e9) if known else None


FORMATS: Final = (Format("Tektronix WFM", "tm_data_types 0.5.0 (version 3)", _is_wfm, _open),)
