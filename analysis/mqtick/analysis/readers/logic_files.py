"""What logic analysers save (sigrok sessions, value change dumps), as captures of transitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.vcd import VcdHeader, read_vcd, read_vcd_header
from mqtick.recording.capture import Capture, CaptureFile, Signal
from mqtick.recording.sigrok import read_sigrok_changes
from mqtick.recording.waveform import FS_PER_SECOND

_COMMANDS: Final = tuple(
    f"${word}".encode() for word in ("date", "version", "timescale", "comment", "scope", "var")
)
_RATE: Final = re.compile(r"\bat (\d{1,9}(?:\.\d{1,9})?) ([kMG]?)Hz")
_PREFIXES: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


# ---- sigrok


def _is_sigrok(head: bytes) -> bool:
    if not head.startswith(b"PK\x03\x04"):
        return False
    first = head[30:48]
    return first.startswith((b"version", b"metadata", b"logic-1", b"analog-1-")) or (
        b"metadata" in head and b"version" in head
    )


def _open_sigrok(path: Path) -> CaptureFile:
    def read() -> Iterator[Capture]:
        yield Capture(read_sigrok_changes(path), triggered=False)

    return CaptureFile(path, "sigrok session", "", read)


# ---- value change dumps


def _is_vcd(head: bytes) -> bool:
    return head.lstrip().startswith(_COMMANDS)


def _open_vcd(path: Path) -> CaptureFile:
    header = read_vcd_header(path)
    notes: list[str] = []

    def read() -> Iterator[Capture]:
        interval_fs, timescale_fs = _sampled_fs(header), header.timescale_fs
        if not interval_fs:
            notes.append(
                "The file does not say how often its signals were sampled: its edges are "
                f"uncertain by its timescale, {timescale_fs / 1e6:g} ns, or more."
            )
        found = read_vcd(path)
        names = [signal.name for signal in found.values()]
        signals: dict[str, Signal] = {}
        for full, transitions in found.items():
            name = transitions.name if names.count(transitions.name) == 1 else full
            signals[name] = replace(
                transitions,
                # A sampled level changed before the sample that saw it, by up to an interval.
                origin_fs=-(interval_fs // 2),
                uncertainty_fs=-(-interval_fs // 2) + timescale_fs,
            )
        yield Capture(signals, triggered=False)

    return CaptureFile(path, "value change dump", header.version[:100], read, notes)


def _sampled_fs(header: VcdHeader) -> int:
    """Return the interval of the samples in fs where sigrok noted it, else 0."""
    rate = _RATE.search(header.comments) if "sigrok" in header.version else None
    hertz = float(rate[1]) * _PREFIXES[rate[2]] if rate else 0.0
    return round(FS_PER_SECOND / hertz) if hertz >= 1 else 0


FORMATS: Final = (
    Format("sigrok session", "sigrok-cli 0.7.2", _is_sigrok, _open_sigrok),
    Format("value change dump", "sigrok-cli 0.7.2", _is_vcd, _open_vcd),
)
