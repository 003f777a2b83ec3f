"""What readers of files have in common: opening, progress, names, times and samples."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt

from mqtick.recording.capture import CaptureError
from mqtick.recording.quantise import waveform_of_volts
from mqtick.recording.waveform import Waveform, femtoseconds

_NUMBERED: Final = re.compile(r"(?i)ch(?:annel)?[ _-]?(\d{1,2})$")
LONGEST_S: Final = 1e6
"""Eleven days: in floats, as files have them, longer times are not exact to 0.1 ns."""
EXACT_S: Final = 9_000.0
"""Up to here floats are exact to 1 ps, and fs have 64 bits."""
MAX_CHANGES: Final = 20_000_000
"""A file with more changes of level than this is refused: reading one takes some 20 octets."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the system's error about a file into CaptureError."""
    try:
        yield
    except OSError as error:
        raise CaptureError(
            f"{path} cannot be read ({error.strerror or error}). Look at its name and its "
            "permissions."
        ) from error


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file, also one that gzip has compressed."""
    with path.open("rb") as stream:
        is_packed = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        if not is_packed:
            yield stream
            return
        with gzip.open(stream) as expanded:
            yield cast("BinaryIO", expanded)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file as `unpacked`; CaptureError where that fails, or reading it later."""
    try:
        with reading(path), unpacked(path) as stream:
            yield stream
    except (EOFError, zlib.error) as error:
        raise CaptureError(
            f"{path} is compressed and cut off, or damaged ({error}). Copy it again."
        ) from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's name in front of what is wrong with it."""
    try:
        yield
    except CaptureError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


_WATCHER: ContextVar[Callable[[float], None] | None] = ContextVar("_WATCHER", default=None)


@contextmanager
def watched(watcher: Callable[[float], None]) -> Iterator[None]:
    """Let a function know how much (0 to 1) of a large file has been read so far."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def read_so_far(octets: int, size: int) -> None:
    """Say how much of a file was read."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(min(octets / max(size, 1), 1.0))


def text(octets: bytes) -> str:
    """Return text that ends at the first NUL, without what cannot be printed."""
    return "".join(c for c in octets.split(b"\0")[0].decode("latin-1") if c.isprintable()).strip()


def channel_of(path: Path) -> str:
    """Return the channel name of a one-channel file: CH1 for T0001CH1.ISF, else the whole stem.

    Files of several shots have to have the same names for the same channels.
    """
    numbered = _NUMBERED.search(path.stem)
    return f"CH{int(numbered[1])}" if numbered else path.stem


def short_decimal(seconds: float) -> float:
    """Return the number that was meant where a file keeps one of 32 bits in 64.

    4.999999873689376e-06 is 5e-06 in 32 bits; the difference is 2.5 ns in each 100 ms.
    """
    if math.isfinite(seconds) and abs(seconds) < 1e30:
        single = np.float32(seconds)
        if float(single) == seconds:
            return float(str(single))
    return seconds


def interval_fs(seconds: float, path: Path, what: str) -> int:
    """Return the time between samples in fs; CaptureError where it is not valid."""
    if not 0 < seconds < LONGEST_S or femtoseconds(seconds) < 1:
        raise CaptureError(
            f"{path}: {what} says that its samples are {seconds!r} s apart, which is not a valid "
            "interval. The file is damaged, or of an unknown version; export it as CSV."
        )
    return femtoseconds(seconds)


def start_fs(seconds: float, path: Path, what: str) -> int:
    """Return the instant of the first sample in fs; CaptureError where it is not valid."""
    if not abs(seconds) < LONGEST_S:
        raise CaptureError(
            f"{path}: {what} says that it begins {seconds!r} s after its trigger; it must be "
            f"within {LONGEST_S:.0f} s. The file is damaged; export it as CSV."
        )
    return femtoseconds(seconds)


def add_waveform(
    signals: dict[str, Any],
    notes: list[str],
    name: str,
    samples: npt.NDArray[Any],
    timing: tuple[int, int],
    scale: Mapping[str, float] | None = None,
) -> None:
    """Add a channel, of volts or (with `scale`) of codes; a note where its samples are not valid.

    `timing` is interval and start in fs; `scale` has `volts_per_code` and `code_at_zero`.
    """
    try:
        if scale is None:
            signals[name] = waveform_of_volts(samples, *timing)
        elif not samples.size:
            raise ValueError("there are no samples")
        else:
            signals[name] = Waveform(
                samples, scale["volts_per_code"], scale["code_at_zero"], *timing
            )
    except ValueError as error:
        notes.append(f"Channel {name} was left out: {str(error).rstrip('.')}.")
