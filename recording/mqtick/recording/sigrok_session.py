"""The parts of a session in sigrok's format (.sr, versions 1 and 2): archive, metadata, samples.

A zip archive: `version` ("1" or "2"), `metadata` (INI: samplerate, unitsize, probeN = name,
analogN = name), the logic samples in `logic-1-1`, `logic-1-2`, ... (`unitsize` octets a sample,
probe N is bit N-1, little endian), analogue samples of channel K in `analog-1-K-1`, ... (float32).
Version 1, of libsigrok in 2013 and before, has the logic samples in one part, `logic-1`, and knows
no analogue ones (session_file.c). The format does not keep where the trigger was: instants count
from the first sample.
"""

from __future__ import annotations

import configparser
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Final

from mqtick.recording.capture import CaptureError
from mqtick.recording.octets import naming
from mqtick.recording.waveform import FS_PER_SECOND

_VERSIONS: Final = ("1", "2")
_METADATA_OCTETS: Final = 1 << 20
_PIECE: Final = 1 << 20
_UNITS: Final = {"": 1, "hz": 1, "khz": 10**3, "mhz": 10**6, "ghz": 10**9}


class SigrokFileError(CaptureError):
    """The file is not a capture that can be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a session says of its samples: bits of the logic probes, numbers of analogue ones."""

    interval_fs: int
    unitsize: int
    logic: str
    probes: dict[str, int]
    analog: dict[str, int]


@contextmanager
def opened_session(
    source: Path | BinaryIO, kind: str = "sigrok session"
) -> Iterator[zipfile.ZipFile]:
    """Open a session, or what else is one archive; SigrokFileError for what is wrong with it."""
    with naming(source) if isinstance(source, Path) else nullcontext():
        try:
            with zipfile.ZipFile(source) as archive:
                yield archive
        except CaptureError:
            raise
        except (zipfile.BadZipFile, zlib.error, EOFError, struct.error) as error:
            raise SigrokFileError(
                f"The file is not a {kind}, or is cut short ({error}); capture again."
            ) from error
        except (RuntimeError, NotImplementedError, ValueError, OSError) as error:
            raise SigrokFileError(f"The {kind} cannot be read ({error}).") from error


def described(archive: zipfile.ZipFile) -> Metadata:
    """Read what a session says of itself; SigrokFileError if it is of no known version."""
    version = part_of(archive, "version").strip()
    if version not in _VERSIONS:
        raise SigrokFileError(
            f"The sigrok session is of version {version[:20]!r}, and this reads versions 1 and 2; "
            "export it as VCD in PulseView."
        )
    return _metadata(part_of(archive, "metadata"))


def size_of(chunks: Sequence[zipfile.ZipInfo]) -> int:
    """Return how many octets parts have after unpacking."""
    return sum(chunk.file_size for chunk in chunks)


def part_of(archive: zipfile.ZipFile, name: str, kind: str = "sigrok session") -> str:
    """Return a part that is a little text; SigrokFileError where there is none."""
    try:
        entry = archive.getinfo(name)
    except KeyError:
        raise SigrokFileError(f"The archive has no part {name!r}, so it is not a {kind}.") from None
    if entry.file_size > _METADATA_OCTETS:
        raise SigrokFileError(f"The part {name!r} says that it is {entry.file_size} octets large.")
    return archive.read(entry).decode("utf-8", "replace")


def _metadata(text: str) -> Metadata:
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    # Version 1 has spaces before the trigger of a probe, which are not the rest of its name.
    lines = [line.strip() for line in text.splitlines()]
    try:
        parser.read_string("\n".join(lines))
        device = parser["device 1"]
    except (configparser.Error, KeyError) as error:
        raise SigrokFileError(f"The session's metadata describe no device ({error}).") from error
    unitsize = _number(device.get("unitsize", "1"), "unitsize", 1, 64)
    probes: dict[str, int] = {}
    analog: dict[str, int] = {}
    for key, name in device.items():
        match = re.fullmatch(r"(probe|analog)(\d{1,4})", key)
        if match is None:
            continue
        kind, number = match.group(1), int(match.group(2))
        if name in probes or name in analog:
            raise SigrokFileError(f"Two probes of the capture are called {name[:40]!r}.")
        if kind == "analog":
            analog[name] = number
        elif 1 <= number <= 8 * unitsize:
            probes[name] = number - 1
        else:
            raise SigrokFileError(
                f"Probe {number} ({name[:40]!r}) has no bit in samples of {unitsize} octets; the "
                "session's metadata are wrong."
            )
    return Metadata(
        interval_fs=interval_fs_of(device.get("samplerate", "")),
        unitsize=unitsize,
        logic=device.get("capturefile", "logic-1"),
        probes=probes,
        analog=analog,
    )


def _number(text: str, what: str, least: int, most: int) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
        raise SigrokFileError(
            f"The session says {what} is {text[:40]!r}, which is not {least} to {most}."
        )
    return int(text)


def interval_fs_of(text: str) -> int:
    """Return the time between samples in fs, from a rate in words ("1 MHz"); SigrokFileError."""
    if not text:
        raise SigrokFileError(
            "The session says no samplerate, so it has no times; record it with one "
            "(sigrok-cli --config samplerate=...)."
        )
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,12})?)\s*([a-z]*)", text.strip().lower())
    rate = Fraction(match.group(1)) * _UNITS.get(match.group(2), 0) if match else Fraction(0)
    if not 0 < rate <= FS_PER_SECOND:
        raise SigrokFileError(
            f"The session says that the samplerate is {text[:40]!r}, which is not valid; '1 MHz' "
            "would be."
        )
    return round(FS_PER_SECOND / rate)


def chunks_of(archive: zipfile.ZipFile, prefix: str) -> list[zipfile.ZipInfo]:
    """Return the parts of one stream in their order (that of numbers, not of text).

    One that has the stream's own name is all of it, as in version 1.
    """
    if prefix in archive.namelist():
        return [archive.getinfo(prefix)]
    pattern = re.compile(re.escape(prefix) + r"-(\d{1,9})")
    numbered: dict[int, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        match = pattern.fullmatch(entry.filename)
        if match is None:
            continue
        if int(match.group(1)) in numbered:
            raise SigrokFileError(f"The session has its part {entry.filename!r} twice.")
        numbered[int(match.group(1))] = entry
    if not numbered:
        raise SigrokFileError(f"The session has no samples: its parts {prefix!r} are missing.")
    for expected, number in enumerate(sorted(numbered), 1):
        if number != expected:
            raise SigrokFileError(
                f"Part {prefix}-{expected} of the session is missing, so later samples would have "
                "wrong times; capture again."
            )
    return [numbered[number] for number in sorted(numbered)]


def pieces_of(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, unit: int) -> Iterator[bytes]:
    """Unpack a part piece by piece, each of whole samples of `unit` octets."""
    if entry.file_size % unit:
        raise SigrokFileError(
            f"Part {entry.filename!r} has {entry.file_size} octets, which is not a whole number "
            f"of samples of {unit}; the session is damaged, or its unitsize is wrong."
        )
    left = entry.file_size
    with archive.open(entry) as stream:
        while left:
            piece = stream.read(min(left, _PIECE - _PIECE % unit))
            if not piece or len(piece) % unit:
                raise SigrokFileError(f"Part {entry.filename!r} is shorter than it declares.")
            left -= len(piece)
            yield piece
