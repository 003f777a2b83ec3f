"""The changes of logic probes, from their samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mqtick.recording.edges import MOST_EDGES
from mqtick.recording.transitions import UNKNOWN, Transitions
from mqtick.recording.waveform import Waveform


@dataclass(slots=True)
class Changes:
    """The changes of one probe: its first level, and the samples that differ from the one before.

    Of more than `MOST_EDGES` the first are kept, since nobody looks at them, and all are counted.
    """

    initial: int = UNKNOWN
    count: int = 0
    kept: int = 0
    samples: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def add(self, samples: npt.NDArray[np.int64]) -> None:
        """Add samples, later ones than those before."""
        self.count += samples.size
        if self.kept <= MOST_EDGES:
            self.samples.append(samples)
            self.kept += samples.size

    def transitions(self, name: str, interval_fs: int, start_fs: int = 0) -> Transitions:
        """Return the changes, each in the middle of two samples, `interval_fs` apart."""
        samples = np.concatenate([np.empty(0, np.int64), *self.samples])
        levels = ((np.arange(1, samples.size + 1) + self.initial) % 2).astype(np.int8)
        missing = self.count - self.kept
        half_fs = -(-interval_fs // 2)
        origin_fs = start_fs - interval_fs // 2
        return Transitions(
            name, self.initial, samples, levels, half_fs, missing, interval_fs, origin_fs
        )


def changes_of(
    pieces: Iterable[bytes], unitsize: int, probes: Mapping[str, int]
) -> dict[str, Changes]:
    """Return the changes of probes, whose numbers of bits are given, in samples of `unitsize`.

    Each of the pieces holds whole samples; bit 0 is the lowest one of the first octet.
    """
    found = {name: Changes() for name in probes}
    watched = np.zeros(unitsize, np.uint8)
    for bit in probes.values():
        watched[bit // 8] |= 1 << bit % 8
    at, last = 0, None
    for piece in pieces:
        units = np.frombuffer(piece, np.uint8).reshape(-1, unitsize)
        if last is None:
            last = units[:1]
            for name, bit in probes.items():
                found[name].initial = int(last[0, bit // 8] >> (bit % 8) & 1)
        before = np.concatenate((last, units[:-1]))
        flips = (units ^ before) & watched
        changed = np.flatnonzero(flips.any(axis=1) if unitsize > 1 else flips)
        flips = flips[changed]
        for name, bit in probes.items():
            flipped = changed[flips[:, bit // 8] >> (bit % 8) & 1 == 1]
            if flipped.size:
                found[name].add(flipped + at)
        at += len(units)
        last = units[-1:]
    return found


def transitions_of_bits(name: str, bits: Waveform) -> Transitions:
    """Return the changes of a waveform of one bit, each in the middle of two samples.

    The level changed somewhere between them, so the uncertainty is half an interval.
    """
    changes = Changes(int(bits.codes[0]) if bits.codes.size else UNKNOWN)
    changes.add(np.flatnonzero(bits.codes[1:] != bits.codes[:-1]) + 1)
    return changes.transitions(name, bits.interval_fs, bits.start_fs)
