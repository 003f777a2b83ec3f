"""Captures in sigrok's session format (.sr, version 2), as sigrok-cli and PulseView save them."""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from mqtick.recording.bits import changes_of
from mqtick.recording.octets import LONGEST_S, read_so_far
from mqtick.recording.quantise import waveform_of_volts
from mqtick.recording.sigrok_session import (
    Metadata,
    SigrokFileError,
    chunks_of,
    described,
    opened_session,
    pieces_of,
    size_of,
)
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import FS_PER_SECOND, Waveform

__all__ = [
    "LOGIC_V",
    "SigrokFileError",
    "logic_waveform",
    "read_sigrok",
    "read_sigrok_changes",
]

LOGIC_V: Final = 3.3
"""Volts that a 1 stands for, as on a Pi's pins; a logic analyser does not see the real voltage."""

MAX_OCTETS: Final = 1 << 30
"""A file with more samples (octets, over all probes that are read) than this is refused."""
MAX_ANALOG_OCTETS: Final = 200_000_000
"""The same, where logic probes are not held in memory."""


def logic_waveform(bits: npt.NDArray[np.uint8], interval_fs: int, start_fs: int = 0) -> Waveform:
    """Return levels, 0 or 1, as a waveform of one bit.

    The level changed somewhere between two samples, `interval_fs` apart; an edge is found in their
    middle, and is uncertain by half an interval.
    """
    return Waveform(bits, LOGIC_V, 0.0, interval_fs, start_fs)


def read_sigrok(
    source: Path | BinaryIO, names: Collection[str] | None = None
) -> dict[str, Waveform]:
    """Read probes, all or those named, each as a waveform that starts at 0 fs.

    Logic probes have the codes 0 and 1. Analogue ones are rounded to codes of the converter's
    step, or of 1/65,000 of the range they cover. `interval_fs` is rounded to the nearest fs
    (8e-9 of it at 24 MHz).
    SigrokFileError if it is not one, is damaged, or is larger than `MAX_OCTETS` in memory.
    """
    with opened_session(source) as archive:
        metadata = described(archive)
        for name in names or ():
            if name not in metadata.probes and name not in metadata.analog:
                known = ", ".join([*metadata.probes, *metadata.analog]) or "none"
                raise SigrokFileError(f"The capture has no probe {name!r}; it has {known}.")
        probes = {n: bit for n, bit in metadata.probes.items() if names is None or n in names}
        analog = {n: k for n, k in metadata.analog.items() if names is None or n in names}
        logic = chunks_of(archive, metadata.logic) if probes else []
        samples = size_of(logic) // metadata.unitsize
        floats = {name: chunks_of(archive, f"analog-1-{k}") for name, k in analog.items()}
        _refuse_above(MAX_OCTETS, samples * len(probes) + sum(map(size_of, floats.values())))
        found = _logic(archive, metadata, logic, probes, samples)
        for name, chunks in floats.items():
            found[name] = _analog(archive, chunks, name, metadata.interval_fs)
        return found


def read_sigrok_changes(path: Path) -> dict[str, Transitions | Waveform]:
    """Read all probes, the logic ones as changes: a long record of few of them takes no memory.

    Each change stands in the middle of two samples, and is uncertain by half an interval.
    SigrokFileError as `read_sigrok`.
    """
    with opened_session(path) as archive:
        metadata = described(archive)
        logic = chunks_of(archive, metadata.logic) if metadata.probes else []
        floats = {n: chunks_of(archive, f"analog-1-{k}") for n, k in metadata.analog.items()}
        sizes = [size_of(chunks) for chunks in floats.values()]
        # Codes take half of what volts do, and the volts of one channel are held at a time.
        _refuse_above(MAX_ANALOG_OCTETS, sum(sizes) // 2 + max(sizes, default=0))
        samples = size_of(logic) // metadata.unitsize
        if samples * metadata.interval_fs > LONGEST_S * FS_PER_SECOND:
            raise SigrokFileError(
                f"The capture is longer than {LONGEST_S:,.0f} s; record a shorter span."
            )
        pieces = _all_pieces(archive, logic, metadata.unitsize, size_of(logic) + sum(sizes))
        changes = changes_of(pieces, metadata.unitsize, metadata.probes)
        found: dict[str, Transitions | Waveform] = {
            name: each.transitions(name, metadata.interval_fs) for name, each in changes.items()
        }
        for name, chunks in floats.items():
            found[name] = _analog(archive, chunks, name, metadata.interval_fs)
        return found


def _refuse_above(most: int, octets: int) -> None:
    if octets > most:
        raise SigrokFileError(
            f"The capture would take {octets} octets of memory, more than {most}; read "
            "fewer probes of it, or record a shorter span."
        )


def _all_pieces(
    archive: zipfile.ZipFile, chunks: Sequence[zipfile.ZipInfo], unit: int, size: int
) -> Iterator[bytes]:
    done = 0
    for chunk in chunks:
        for piece in pieces_of(archive, chunk, unit):
            yield piece
            done += len(piece)
            read_so_far(done, size)


def _logic(
    archive: zipfile.ZipFile,
    metadata: Metadata,
    chunks: list[zipfile.ZipInfo],
    probes: dict[str, int],
    samples: int,
) -> dict[str, Waveform]:
    levels = {name: np.empty(samples, np.uint8) for name in probes}
    at = 0
    for chunk in chunks:
        for piece in pieces_of(archive, chunk, metadata.unitsize):
            units = np.frombuffer(piece, np.uint8).reshape(-1, metadata.unitsize)
            for name, bit in probes.items():
                levels[name][at : at + len(units)] = units[:, bit // 8] >> (bit % 8) & 1
            at += len(units)
    return {name: logic_waveform(bits, metadata.interval_fs) for name, bits in levels.items()}


def _analog(
    archive: zipfile.ZipFile, chunks: list[zipfile.ZipInfo], name: str, interval_fs: int
) -> Waveform:
    volts = np.empty(size_of(chunks) // 4, "<f4")
    at = 0
    for chunk in chunks:
        for piece in pieces_of(archive, chunk, 4):
            volts[at : at + len(piece) // 4] = np.frombuffer(piece, "<f4")
            at += len(piece) // 4
    try:
        return waveform_of_volts(volts, interval_fs, 0)
    except ValueError as error:
        raise SigrokFileError(
            f"Channel {name!r} has samples that are not volts: {error}."
        ) from error
