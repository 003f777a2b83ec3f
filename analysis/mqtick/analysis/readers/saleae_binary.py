"""Binary exports of Saleae's Logic 2, versions 0 and 1: one channel a file, all little endian.

Saleae, "Binary Export Format - Version 0" and "Binary and CSV Export Formats - 2025 Update".
Digital files have the instants of the changes, analogue ones volts. Version 1 has several chunks
with gaps between them: each becomes its own capture. Version 0 does not keep the sample rate of a
digital channel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.octets import (
    LONGEST_S,
    MAX_CHANGES,
    Octets,
    add_waveform,
    interval_fs,
    opened,
    start_fs,
)
from mqtick.analysis.signals.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.analysis.signals.transitions import Transitions
from mqtick.analysis.signals.waveform import FS_PER_SECOND

__all__ = ["FORMATS"]

_MAGIC: Final = b"<SALEAE>"
_DIGITAL, _ANALOG = 0, 1


def _open(path: Path) -> CaptureFile:
    with opened(path) as stream:
        head = Octets.of(path, stream).take(0, 16, "its header")
    version, kind = struct.unpack_from("<ii", head, 8)
    if version not in (0, 1) or kind not in (_DIGITAL, _ANALOG):
        raise CaptureError(
            f"{path} is a binary export of Saleae's Logic of version {version}, type {kind}; "
            "versions 0 and 1 with digital (0) or analogue (1) channels are read. Export it as CSV."
        )
    notes: list[str] = []
    return CaptureFile(
        path, "Saleae binary", "Saleae", lambda: _captures(path, version, kind, notes), notes
    )


def _captures(path: Path, version: int, kind: int, notes: list[str]) -> Iterator[Capture]:
    complete = 0
    with opened(path) as stream:
        file = Octets.of(path, stream)
        at, count = 16, 1
        if version == 1:
            count, at = struct.unpack("<Q", file.take(at, 8, "its header"))[0], 24
        for index in range(count):
            what = f"chunk {index + 1} of {count}"
            signals: dict[str, Signal] = {}
            try:
                if kind == _DIGITAL:
                    at = _digital(file, at, version, what, signals, notes)
                else:
                    at = _analog(file, at, version, what, signals, notes)
            except CaptureError as error:
                notes.append(f"Chunks from {index + 1} on were left out. {error}")
                break
            if signals:
                complete += 1
                yield Capture(signals, triggered=kind == _ANALOG and version == 1)
    if not complete:
        raise CaptureError(" ".join([f"{path} has no complete chunk.", *notes]))


def _digital(
    file: Octets, at: int, version: int, what: str, signals: dict[str, Signal], notes: list[str]
) -> int:
    layout = struct.Struct("<IdddQ" if version else "<IddQ")
    fields = layout.unpack(file.take(at, layout.size, f"the header of {what}"))
    initial, count = int(fields[0]), int(fields[-1])
    at += layout.size
    if initial not in (0, 1):
        raise CaptureError(f"{file.path}: {what} begins at level {initial}, which is not 0 or 1.")
    if count > MAX_CHANGES:
        raise CaptureError(
            f"{file.path}: {what} has {count:,} changes, and no more than {MAX_CHANGES:,} are "
            "read; record a shorter span."
        )
    seconds = file.array(at, "<f8", count, what).astype(np.float64)
    if not (np.abs(seconds) < LONGEST_S).all() or (np.diff(seconds) <= 0).any():
        raise CaptureError(f"{file.path}: {what} has changes that are not in order.")
    sampled_fs = (
        interval_fs(1 / fields[1] if fields[1] > 0 else 0.0, file.path, what) if version else 0
    )
    if not version:
        notes.append(
            "The file does not say how often the channel was sampled: its edges are taken as "
            "exact to 1 ns, but were sampled more coarsely."
        )
    levels = (np.arange(count) + 1 + initial) % 2
    signals[file.path.stem] = Transitions(
        file.path.stem,
        initial,
        # A change was seen by the first sample after it.
        np.rint(seconds * FS_PER_SECOND).astype(np.int64) - sampled_fs // 2,
        levels.astype(np.int8),
        -(-sampled_fs // 2) or 10**6,
    )
    return at + 8 * count


def _analog(
    file: Octets, at: int, version: int, what: str, signals: dict[str, Signal], notes: list[str]
) -> int:
    layout = struct.Struct("<dddqQ" if version else "<dQQQ")
    fields = layout.unpack(file.take(at, layout.size, f"the header of {what}"))
    begin, rate, downsample, count = fields[0], *fields[-3:-1], int(fields[-1])
    trigger = fields[1] if version else 0.0
    at += layout.size
    samples = file.array(at, "<f4", count, what)
    timing = (
        interval_fs(max(downsample, 1) / rate if rate > 0 else 0.0, file.path, what),
        start_fs(begin - trigger, file.path, what),
    )
    add_waveform(signals, notes, file.path.stem, samples, timing)
    return at + 4 * count


FORMATS: Final = (
    Format(
        "Saleae binary",
        "saleae-importer 1.0.1 (version 0, digital)",
        lambda head: head.startswith(_MAGIC),
        _open,
    ),
)
