"""Which formats there are, and which of them a file has."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from mqtick.analysis.readers import (
    agilent_bin,
    heads,
    logic_files,
    mqtick_shot,
    parquet,
    rigol_wfm,
    saleae_binary,
    tektronix_wfm,
)
from mqtick.analysis.readers.format import Format
from mqtick.recording.capture import CaptureError, CaptureFile
from mqtick.recording.octets import opened, reading

__all__ = ["FORMATS", "HEAD_OCTETS", "open_capture"]

HEAD_OCTETS: Final = 1 << 14
"""A file's format is recognised by this much of it."""

# The more specific a format's head is, the earlier it comes: plain CSV recognises nearly
# everything.
FORMATS: Final[tuple[Format, ...]] = (
    *mqtick_shot.FORMATS,
    *parquet.FORMATS,
    *logic_files.FORMATS,
    *agilent_bin.FORMATS,
    *tektronix_wfm.FORMATS,
    *saleae_binary.FORMATS,
    *rigol_wfm.FORMATS,
    *heads.FORMATS,
)


def open_capture(path: Path) -> CaptureFile:
    """Recognise a file by its content and open it; CaptureError says what was expected."""
    head = _head(path)
    for known in FORMATS:
        if known.recognises(head):
            file = known.open(path)
            if not known.tested:
                file.notes.append(
                    f"The reader for {known.name} follows a description of the format and is "
                    "untested: no such file by other authors was available. Compare the first "
                    "edges with the instrument's screen."
                )
            return file
    raise CaptureError(
        f"{path} is {_kind(head)}; captures are read from files of oscilloscopes and logic "
        "analysers. Export it on the instrument as CSV, or as one of the formats of "
        "docs/capture-files.md, and name that file."
    )


def _head(path: Path) -> bytes:
    if "\0" in str(path):
        raise CaptureError(f"{str(path)!r} is not a file name: it contains a NUL.")
    with reading(path):
        mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise CaptureError(
            f"{path} is a folder, but not a run folder of mqtick-lab (it has no run.json). Name "
            "the capture files in it, or a run folder."
        )
    if not stat.S_ISREG(mode):  # a pipe would wait forever
        raise CaptureError(f"{path} is not a regular file. Name a file that an instrument saved.")
    with opened(path) as stream:
        head = stream.read(HEAD_OCTETS)
    if not head:
        raise CaptureError(
            f"{path} is empty: 0 octets. The instrument had not finished saving it, or the copy "
            "failed; save it again and look at its size before it is copied."
        )
    return head


_KINDS: Final = (
    (b"\x89PNG", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"BM", "a picture (BMP)"),
    (b"%PDF", "a PDF document"),
    (b"\x1f\x8b", "compressed (gzip): unpack it first"),
    (b"7z\xbc\xaf", "compressed (7z): unpack it first"),
    (b"MATLAB", "a MATLAB file"),
    (b"RIFF", "a RIFF file (WAV)"),
    (b"\x89HDF", "an HDF5 file, whose layouts differ"),
    (b"\x93NUMPY", "an array of numpy"),
    (b"<", "XML or HTML"),
    (b"{", "JSON"),
)


def _kind(head: bytes) -> str:
    """Say what a file is that no format recognises."""
    if head.startswith(b"PK\x03\x04"):
        if b"meta.json" in head[:200] or b"digital-0.bin" in head:
            return (
                "Saleae Logic 2's own capture (.sal), whose layout is not documented: in Logic 2, "
                "File > Export Raw Data, as CSV or binary"
            )
        return "a zip archive with no sigrok session in it: unpack it first"
    for magic, kind in _KINDS:
        if head.startswith(magic):
            return kind
    if head[:4] in (b"\x00\0\0\0", b"\x04\0\0\0", b"\x06\0\0\0") and head[6:8] == b"\0\0":
        return (
            "of no known format; if it is the .Wfm.bin of a Rohde & Schwarz pair, name the .bin "
            "next to it"
        )
    shown = head[:16]
    text = sum(32 <= octet < 127 or octet in b"\t\r\n" for octet in head[:512])
    if text > 0.95 * len(head[:512]):
        line = head.splitlines()[0] if head.splitlines() else b""
        return f"text of an unknown form, beginning with {line[:60].decode('latin-1')!r}"
    return f"of no known format (it begins with the octets {shown.hex(' ')})"
