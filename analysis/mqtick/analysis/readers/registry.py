"""Which formats there are, and which of them a file has."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Final

from mqtick.analysis.readers import (
    agilent_bin,
    dsview,
    logic_files,
    mqtick_shot,
    rigol_wfm,
    saleae_binary,
    tektronix_wfm,
    text_capture,
)
from mqtick.analysis.readers.columns import is_text, plain_text
from mqtick.analysis.readers.format import Format
from mqtick.recording.capture import CaptureError, CaptureFile
from mqtick.recording.octets import opened, reading

HEAD_OCTETS: Final = 1 << 14
"""A file's format is recognised by this much of it."""

# The more specific a format's head is, the earlier it comes: plain CSV recognises nearly
# everything.
FORMATS: Final[tuple[Format, ...]] = (
    *mqtick_shot.FORMATS,
    *logic_files.FORMATS,
    *dsview.FORMATS,
    *agilent_bin.FORMATS,
    *tektronix_wfm.FORMATS,
    *saleae_binary.FORMATS,
    *rigol_wfm.FORMATS,
    *text_capture.FORMATS,
)


def open_capture(path: Path) -> CaptureFile:
    """Recognise a file by its content and open it; CaptureError says what was expected."""
    head = _head(path)
    with reading(path), path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    for known in FORMATS:
        if known.recognises(head):
            if packed and (known.needs or not is_text(head)):
                break
            file = known.open(path)
            if not known.tested:
                file.notes.append(
                    f"The reader for {known.name} follows a description of the format and is "
                    "untested: no such file by other authors was available. Compare the first "
                    "edges with the instrument's screen."
                )
            return file
    kind, advice = ("compressed (gzip)", "Unpack it first.") if packed else _kind(head)
    raise CaptureError(f"{path} is {kind}. {advice or _EXPORT}")


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


_EXPORT: Final = (
    "Captures are read from files of oscilloscopes and logic analysers: export it on the "
    "instrument as CSV, or as one of the formats of docs/capture-files.md, and name that file."
)
_WAVEFORM: Final = "Save the waveform on the instrument, as CSV or binary."
_KINDS: Final = (
    (rb"\x89PNG", "a picture (PNG)", _WAVEFORM),
    (rb"\xff\xd8\xff", "a picture (JPEG)", _WAVEFORM),
    (rb"BM", "a picture (BMP)", _WAVEFORM),
    (rb"%PDF", "a PDF document", _WAVEFORM),
    (rb"7z\xbc\xaf", "compressed (7z)", "Unpack it first."),
    (
        rb"PK\x03\x04[\s\S]{0,200}(?:meta\.json|digital-0\.bin)",
        "Saleae Logic 2's own capture (.sal), whose layout is not documented",
        "In Logic 2: File > Export Raw Data, as CSV or binary.",
    ),
    (rb"PK\x03\x04", "a zip archive with no sigrok session in it", "Unpack it first."),
    (rb"PAR1", "a Parquet file", "Save it as CSV; pandas reads Parquet and writes CSV."),
    (rb"MATLAB", "a MATLAB file", _EXPORT),
    (rb"RIFF", "a RIFF file (WAV)", _EXPORT),
    (rb"\x89HDF", "an HDF5 file, whose layouts differ", _EXPORT),
    (rb"\x93NUMPY", "an array of numpy", _EXPORT),
    (
        rb"version https://git-lfs",
        "a pointer of Git LFS and not the file itself",
        "Fetch it: `git lfs pull`.",
    ),
    (rb"\0\0{6}\x01\x49", "a dump of GTKWave (FST)", "Convert it: `fst2vcd FILE -o FILE.vcd`."),
    (
        rb"GHDLwave",
        "a dump of GHDL (GHW)",
        "Run the simulation with --vcd=FILE.vcd, or convert it: `ghw2vcd FILE`.",
    ),
    (
        rb"[\s\S]*?^ *\d{1,2} \w{3} \d\d:\d\d:\d\d ntpd\[|[\s\S]*?\bntpd\[\d+\]:",
        "ntpd's log of messages, which has no offsets",
        "Name loopstats or peerstats; ntpd keeps them with `statsdir` and `filegen loopstats`.",
    ),
    (
        rb" *remote +refid +st t when",
        "what `ntpq -p` prints, one look at the peers",
        "Name loopstats or peerstats of ntpd's `statsdir`.",
    ),
    (
        rb"[\0\4\6]\0\0\0..\0\0",
        "of no known format",
        "If it is the .Wfm.bin of a Rohde & Schwarz pair, name the .bin next to it; else export it "
        "as CSV.",
    ),
    (rb"<", "XML or HTML", _EXPORT),
    (rb"\{", "JSON", _EXPORT),
)


def _kind(head: bytes) -> tuple[str, str]:
    """Say what a file is that no format recognises, and what helps, "" where nothing is known."""
    for pattern, kind, advice in _KINDS:
        if re.match(pattern, head, re.M):
            return kind, advice
    head = plain_text(head)
    text = sum(32 <= octet < 127 or octet in b"\t\r\n" for octet in head[:512])
    if text <= 0.95 * len(head[:512]):
        return f"of no known format (it begins with the octets {head[:16].hex(' ')})", ""
    first = head.splitlines()[0][:60].decode("latin-1") if head.splitlines() else ""
    return f"text with no rows of numbers that are understood (it begins with {first!r})", (
        "Of a capture, save the samples below a line of names (`time [s],publisher,first`); which "
        "logs of clocks are read is in docs/clocks.md."
    )
