"""Shots that `mqtick-lab scope capture --out shot.npz` wrote (see docs/run-folder.md, "A shot")."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mqtick.analysis.readers.format import Format
from mqtick.recording.capture import Capture, CaptureError, CaptureFile
from mqtick.recording.shot import DamagedShotError, read_shot, read_waveforms

_ZIP: Final = b"PK\x03\x04"
_NAME_AT: Final = 30
"""Where the name of its first part stands in a zip archive (APPNOTE.TXT 4.3.7)."""


def _recognises(head: bytes) -> bool:
    return head.startswith(_ZIP) and head[_NAME_AT:].startswith((b"codes/", b"meta.npy"))


def _open(path: Path) -> CaptureFile:
    try:
        meta = read_shot(path)
    except DamagedShotError as error:
        raise CaptureError(str(error)) from error
    notes: list[str] = []

    def read() -> Iterator[Capture]:
        try:
            waveforms = read_waveforms(path)
        except DamagedShotError as error:
            raise CaptureError(str(error)) from error
        if not waveforms:
            raise CaptureError(f"{path} holds no waveform: it was {meta.outcome}. {meta.reason}")
        if meta.subscribers or meta.nodes:
            notes.append(
                "It is a shot of a run: name the run's folder instead, which says how many "
                "subscribed and which cable delays to subtract."
            )
        yield Capture(waveforms, started_ns=meta.started_ns or None)

    return CaptureFile(path, "mqtick shot", "", read, notes, meta.simulated)


FORMATS: Final = (
    Format("mqtick shot", "mqtick-lab, of a simulated instrument", _recognises, _open),
)
