"""Binary exports of Saleae's Logic 2, versions 0 and 1, digital and analog: one channel a file.

Saleae, "Binary Export Format - Version 0" and "Binary and CSV Export Formats - 2025 Update", all
little endian: the instants of the changes, or volts. Version 1 has several chunks with gaps between
them, each of which becomes its own capture, and also the sample rate of digital channels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from mqtick.analysis.readers.format import Format
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.recording.octets import (
    LONGEST_S,
    MAX_CHANGES,
    add_waveform,
    interval_fs,
    opened,
    start_fs,
)
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import FS_PER_SECOND

_MAGIC: Final = b"<SALEAE>"
_DIGITAL: Final = 0
_ANALOG: Final = 1
_MAX_SAMPLES: Final = 50_000_000
"""As `sigrok.MAX_ANALOG_OCTETS`: four octets a sample."""
_TICK_FS: Final = 1000
"""Of the fastest analyser an interval has 2 ns: ps in 64 bits reach for months."""


def _open(path: Path) -> CaptureFile:
    with opened(path) as stream:
        version, kind = _unpacked(path, stream, "<8xii", "its header")
    if version not in (0, 1) or kind not in (_DIGITAL, _ANALOG):
        raise CaptureError(
            f"{path} is a binary export of Saleae's Logic of version {version}, type {kind}; "
            "versions 0 and 1 of types 0 and 1 (digital, analog) are read. Export it as CSV."
        )
    notes: list[str] = []
    return CaptureFile(path, "Saleae binary", "Saleae", lambda: _captures(path, notes), notes)


def _captures(path: Path, notes: list[str]) -> Iterator[Capture]:
    complete, count = 0, 1
    with opened(path) as stream:
        version, kind = _unpacked(path, stream, "<8xii", "its header")
        if version:
            (count,) = _unpacked(path, stream, "<Q", "its header")
        elif kind == _DIGITAL:
            notes.append(
                "The file does not say how often the channel was sampled: its edges are taken as "
                "exact to 1 ns, but were sampled more coarsely."
            )
        for index in range(count):
            try:
                chunk = _analog if kind == _ANALOG else _digital
                capture = chunk(path, stream, version, f"chunk {index + 1} of {count}")
            except CaptureError as error:
                notes.append(f"Chunks from {index + 1} on were left out. {error}")
                break
            complete += 1
            yield capture
    if not complete:
        raise CaptureError(" ".join([f"{path} has no complete chunk.", *notes]))


def _unpacked(path: Path, stream: BinaryIO, form: str, what: str) -> tuple[Any, ...]:
    return struct.unpack(form, _octets(path, stream, struct.calcsize(form), what))


def _octets(path: Path, stream: BinaryIO, count: int, what: str) -> bytes:
    octets = stream.read(count)
    if len(octets) < count:
        raise CaptureError(f"{path} ends within {what}. It is cut short; copy or save it again.")
    return octets


def _analog(path: Path, stream: BinaryIO, version: int, what: str) -> Capture:
    """Return the volts of the next chunk; its instants count from the trigger if that is in it.

    The export may keep one of `every` samples only.
    """
    form = "<dddqQ" if version else "<dQqQ"
    begin_s, *triggered_s, rate, every, count = _unpacked(
        path, stream, form, f"the header of {what}"
    )
    if count > _MAX_SAMPLES:
        raise CaptureError(
            f"{path}: {what} has {count:,} samples, and no more than {_MAX_SAMPLES:,} are read; "
            "export a shorter span."
        )
    apart_fs = interval_fs(every / rate if rate > 0 else 0.0, path, what)
    begin_fs, span_fs = start_fs(begin_s, path, what), count * apart_fs
    trigger_fs = start_fs(triggered_s[0], path, what) if triggered_s else begin_fs
    triggered = 0 < trigger_fs - begin_fs < span_fs
    if triggered:
        begin_fs -= trigger_fs
    volts = np.frombuffer(_octets(path, stream, 4 * count, what), "<f4")
    signals: dict[str, Signal] = {}
    faults: list[str] = []
    add_waveform(signals, faults, path.stem, volts, (apart_fs, begin_fs))
    if faults:
        raise CaptureError(f"{path}: {what}: {faults[0]}")
    return Capture(signals, triggered=triggered)


def _digital(path: Path, stream: BinaryIO, version: int, what: str) -> Capture:
    """Return the changes of the next chunk."""
    form = "<IdddQ" if version else "<IddQ"
    initial, *rates, count = _unpacked(path, stream, form, f"the header of {what}")
    if initial not in (0, 1):
        raise CaptureError(f"{path}: {what} begins at level {initial}, which is not 0 or 1.")
    if count > MAX_CHANGES:
        raise CaptureError(
            f"{path}: {what} has {count:,} changes, and no more than {MAX_CHANGES:,} are "
            "read; record a shorter span."
        )
    seconds = np.frombuffer(_octets(path, stream, 8 * count, what), "<f8")
    if not (np.abs(seconds) < LONGEST_S).all() or (np.diff(seconds) <= 0).any():
        raise CaptureError(f"{path}: {what} has changes that are not in order.")
    sampled_fs = interval_fs(1 / rates[0] if rates[0] > 0 else 0.0, path, what) if version else 0
    # A change was seen by the first sample after it.
    ticks = np.rint(seconds * (FS_PER_SECOND // _TICK_FS)).astype(np.int64)
    levels = ((np.arange(count) + 1 + initial) % 2).astype(np.int8)
    half_fs, origin_fs = -(-sampled_fs // 2) or 10**6, -(sampled_fs // 2)
    name = path.stem
    changes = Transitions(
        name, initial, ticks, levels, half_fs, tick_fs=_TICK_FS, origin_fs=origin_fs
    )
    return Capture({name: changes}, triggered=False)


FORMATS: Final = (
    Format(
        "Saleae binary",
        "saleae-importer 1.0.1 (version 0, digital)",
        lambda head: head.startswith(_MAGIC),
        _open,
    ),
)
