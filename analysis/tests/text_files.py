"""Opening text files in tests as the product does: by their first octets, plain CSV last."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mqtick.analysis.readers.registry import FORMATS
from mqtick.recording.capture import Capture, CaptureError, CaptureFile
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import Waveform

CSV: Final = Path(__file__).parent / "files" / "csv"


def open_text(path: Path) -> CaptureFile:
    """Open a file by its content; CaptureError."""
    with path.open("rb") as stream:
        head = stream.read(1 << 14)
    for known in FORMATS:
        if known.recognises(head):
            return known.open(path)
    raise CaptureError("no format recognises it")


def read_text(path: Path) -> tuple[CaptureFile, list[Capture]]:
    """Open and read a file; CaptureError."""
    opened = open_text(path)
    return opened, list(opened.read())


def read_written(folder: Path, text: str | bytes) -> tuple[CaptureFile, list[Capture]]:
    """Write a file under a name with spaces, and read it."""
    path = folder / "Neues Bild (1).csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_text(path)


def wave(capture: Capture, name: str) -> Waveform:
    """Return a channel that has to be a waveform."""
    signal = capture.signals[name]
    assert isinstance(signal, Waveform)
    return signal


def changes(capture: Capture, name: str) -> Transitions:
    """Return a channel that has to be one of changes."""
    signal = capture.signals[name]
    assert isinstance(signal, Transitions)
    return signal
