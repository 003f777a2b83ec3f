"""Captures in sigrok's session format (.sr, version 2), as sigrok-cli and PulseView save them.

A zip archive: `version` ("2"), `metadata` (INI: samplerate, unitsize, probeN = name, analogN =
name), the logic samples in `logic-1-1`, `logic-1-2`, ... (`unitsize` octets a sample, probe N is
bit N-1, little endian), analogue samples of channel K in `analog-1-K-1`, ... (float32). The format
does not keep where the trigger was: instants count from the first sample.
"""

from __future__ import annotations

import configparser
import re
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.signals.capture import CaptureError
from mqtick.analysis.signals.quantise import waveform_of_volts
from mqtick.analysis.signals.waveform import FS_PER_SECOND, Waveform

__all__ = ["LOGIC_V", "SigrokFileError", "logic_waveform", "read_sigrok", "uncertainty_fs"]

LOGIC_V: Final = 3.3
"""Volts that a 1 stands for: a Pi's pins; what it really was, a logic analyser does not see."""

MAX_OCTETS: Final = 1 << 30
"""Samples (octets, over all probes that are read) above which a file is refused."""

_METADATA_OCTETS: Final = 1 << 20
_PIECE: Final = 1 << 20
_UNITS: Final = {"": 1, "hz": 1, "khz": 10**3, "mhz": 10**6, "ghz": 10**9}


class SigrokFileError(CaptureError):
    """A file is no capture that can be read; the text says why."""


@dataclass(frozen=True, slots=True)
class _Metadata:
    interval_fs: int
    unitsize: int
    logic: str
    probes: dict[str, int]
    analog: dict[str, int]


def logic_waveform(bits: npt.NDArray[np.uint8], interval_fs: int, start_fs: int = 0) -> Waveform:
    """Return levels, 0 or 1, as a waveform of one bit."""
    return Waveform(bits, LOGIC_V, 0.0, interval_fs, start_fs)


def uncertainty_fs(waveform: Waveform) -> int:
    """Return by how much an edge of a one-bit waveform may be off, either way, in fs.

    The level changed somewhere between two samples, `interval_fs` apart; the edge is reported in
    their middle. So the error is even within half an interval either way (standard deviation
    interval / sqrt 12), and that of a difference of two edges within a whole one.
    """
    return -(-waveform.interval_fs // 2)


def read_sigrok(
    source: Path | BinaryIO, names: Collection[str] | None = None
) -> dict[str, Waveform]:
    """Read probes, all or those named, each as a waveform that starts at 0 fs.

    Logic probes have the codes 0 and 1. Analogue ones are rounded to codes of the converter's
    step, or of 1/65,000 of the range they cover. `interval_fs` is rounded to the nearest fs
    (8e-9 of it at 24 MHz).
    SigrokFileError where it is none, is damaged, or is larger than `MAX_OCTETS` in memory.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            return _read(archive, names)
    except SigrokFileError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error) as error:
        raise SigrokFileError(
            f"The file is no sigrok session, or is cut short ({error}); capture once more."
        ) from error
    except (RuntimeError, NotImplementedError, ValueError, OSError) as error:
        raise SigrokFileError(f"The sigrok session cannot be read ({error}).") from error


def _read(archive: zipfile.ZipFile, names: Collection[str] | None) -> dict[str, Waveform]:
    version = _small(archive, "version").strip()
    if version != "2":
        raise SigrokFileError(
            f"The sigrok session is of version {version[:20]!r}, and this reads version 2; save it "
            "again with a newer sigrok-cli."
        )
    metadata = _metadata(_small(archive, "metadata"))
    for name in names or ():
        if name not in metadata.probes and name not in metadata.analog:
            known = ", ".join([*metadata.probes, *metadata.analog]) or "none"
            raise SigrokFileError(f"The capture has no probe {name!r}; it has {known}.")
    probes = {n: bit for n, bit in metadata.probes.items() if names is None or n in names}
    analog = {n: k for n, k in metadata.analog.items() if names is None or n in names}
    logic = _chunks(archive, metadata.logic) if probes else []
    samples = sum(chunk.file_size for chunk in logic) // metadata.unitsize
    floats = {name: _chunks(archive, f"analog-1-{k}") for name, k in analog.items()}
    octets = samples * len(probes) + sum(c.file_size for of in floats.values() for c in of)
    if octets > MAX_OCTETS:
        raise SigrokFileError(
            f"The capture would take {octets} octets of memory, more than {MAX_OCTETS}; read "
            "fewer probes of it, or record a shorter span."
        )
    found = _logic(archive, metadata, logic, probes, samples)
    for name, chunks in floats.items():
        found[name] = _analog(archive, chunks, name, metadata.interval_fs)
    return found


def _small(archive: zipfile.ZipFile, name: str) -> str:
    try:
        entry = archive.getinfo(name)
    except KeyError:
        raise SigrokFileError(
            f"The archive has no part {name!r}, so it is no sigrok session."
        ) from None
    if entry.file_size > _METADATA_OCTETS:
        raise SigrokFileError(f"The part {name!r} says it is {entry.file_size} octets large.")
    return archive.read(entry).decode("utf-8", "replace")


def _metadata(text: str) -> _Metadata:
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    try:
        parser.read_string(text)
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
    return _Metadata(
        interval_fs=_interval_fs(device.get("samplerate", "")),
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


def _interval_fs(text: str) -> int:
    if not text:
        raise SigrokFileError(
            "The session says no samplerate, so it has no times; record it with one "
            "(sigrok-cli --config samplerate=...)."
        )
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,12})?)\s*([a-z]*)", text.strip().lower())
    rate = Fraction(match.group(1)) * _UNITS.get(match.group(2), 0) if match else Fraction(0)
    if not 0 < rate <= FS_PER_SECOND:
        raise SigrokFileError(
            f"The session says the samplerate is {text[:40]!r}, which is none; '1 MHz' is one."
        )
    return round(FS_PER_SECOND / rate)


def _chunks(archive: zipfile.ZipFile, prefix: str) -> list[zipfile.ZipInfo]:
    """Return the parts of one stream in their order (that of numbers, not of text)."""
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
                f"Part {prefix}-{expected} of the session is missing, so later samples would stand "
                "at wrong times; capture once more."
            )
    return [numbered[number] for number in sorted(numbered)]


def _pieces(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, unit: int) -> Iterator[bytes]:
    if entry.file_size % unit:
        raise SigrokFileError(
            f"Part {entry.filename!r} has {entry.file_size} octets, which is no whole number of "
            f"samples of {unit}; the session is damaged, or its unitsize is wrong."
        )
    left = entry.file_size
    with archive.open(entry) as stream:
        while left:
            piece = stream.read(min(left, _PIECE - _PIECE % unit))
            if not piece or len(piece) % unit:
                raise SigrokFileError(f"Part {entry.filename!r} is shorter than it says.")
            left -= len(piece)
            yield piece


def _logic(
    archive: zipfile.ZipFile,
    metadata: _Metadata,
    chunks: list[zipfile.ZipInfo],
    probes: dict[str, int],
    samples: int,
) -> dict[str, Waveform]:
    levels = {name: np.empty(samples, np.uint8) for name in probes}
    at = 0
    for chunk in chunks:
        for piece in _pieces(archive, chunk, metadata.unitsize):
            units = np.frombuffer(piece, np.uint8).reshape(-1, metadata.unitsize)
            for name, bit in probes.items():
                levels[name][at : at + len(units)] = units[:, bit // 8] >> (bit % 8) & 1
            at += len(units)
    return {name: logic_waveform(bits, metadata.interval_fs) for name, bits in levels.items()}


def _analog(
    archive: zipfile.ZipFile, chunks: list[zipfile.ZipInfo], name: str, interval_fs: int
) -> Waveform:
    pieces = [np.frombuffer(p, "<f4") for chunk in chunks for p in _pieces(archive, chunk, 4)]
    volts = np.concatenate(pieces) if pieces else np.empty(0, np.float32)
    try:
        return waveform_of_volts(volts, interval_fs, 0)
    except ValueError as error:
        raise SigrokFileError(
            f"Channel {name!r} has samples that are no volts: {error}."
        ) from error
