"""Edges of a waveform: state levels, the 50 % crossing between them, sub-sample time.

The terms are those of IEEE 181: low and high *state level*, *reference level* instant of 50 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.waveform import Waveform

__all__ = ["Edge", "EdgeError", "StateLevels", "find_edges", "state_levels"]

_BINS: Final = 64
HYSTERESIS: Final = 0.25
"""Share of the amplitude by which the signal has to pass the middle before the next edge counts."""


class EdgeError(ValueError):
    """A waveform has no two levels between which an edge could be; the text says why."""


@dataclass(frozen=True, slots=True)
class StateLevels:
    """Low and high level in codes, and how many samples stand at the converter's limits."""

    low: float
    high: float
    clipped: int

    @property
    def middle(self) -> float:
        """The 50 % reference level, in codes."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class Edge:
    """One crossing of the 50 % level: its instant in fs from the trigger, and its direction."""

    instant_fs: int
    rising: bool


def state_levels(waveform: Waveform, minimum_v: float = 0.0) -> StateLevels:
    """Find low and high level as the modes of the lower and upper half (IEEE 181, 5.2).

    `minimum_v` is the least amplitude in volts that counts as a signal. EdgeError where the
    waveform is empty or flat.
    """
    codes = waveform.codes
    if codes.size < 2:
        raise EdgeError(f"The waveform has {codes.size} samples, too few for an edge.")
    lowest, highest = int(codes.min()), int(codes.max())
    amplitude_v = (highest - lowest) * waveform.volts_per_code
    one_bit = _one_bit(waveform, lowest, highest)
    if highest - lowest < (1 if one_bit else 2) or amplitude_v < minimum_v:
        raise EdgeError(
            f"The waveform is flat: {amplitude_v:.3g} V between its lowest and highest sample, "
            f"and an edge needs {max(minimum_v, 2 * waveform.volts_per_code):.3g} V; look at "
            "cable, probe factor and volts per division."
        )
    middle = (lowest + highest) / 2
    low, high = codes[codes <= middle], codes[codes > middle]
    if one_bit:
        return StateLevels(0.0, 1.0, 0)
    limits = np.iinfo(codes.dtype)
    clipped = int(np.count_nonzero((codes == limits.min) | (codes == limits.max)))
    return StateLevels(_mode(low), _mode(high), clipped)


def _one_bit(waveform: Waveform, lowest: int, highest: int) -> bool:
    """Whether this is a logic analyser's: 0 V or a logic level, not a converter's last bit."""
    return (lowest, highest, waveform.code_at_zero) == (0, 1, 0.0) and waveform.volts_per_code >= 1


def _mode(codes: npt.NDArray[np.integer]) -> float:
    """Return the centre of the fullest bin, refined by the mean of what lies around it."""
    counts, limits = np.histogram(codes, bins=_BINS)
    fullest = int(counts.argmax())
    width = limits[1] - limits[0]
    near = codes[(codes >= limits[fullest] - width) & (codes <= limits[fullest + 1] + width)]
    return float(near.mean())


def find_edges(waveform: Waveform, minimum_v: float = 0.5) -> list[Edge]:
    """Return every edge, the earliest first; EdgeError where the waveform is flat.

    An edge counts when the signal went from below the middle by `HYSTERESIS` of the amplitude to
    above it by as much, or back; its instant is where a straight line between the two samples
    around the middle, the last ones before it arrived, meets it.
    """
    levels = state_levels(waveform, minimum_v)
    codes = waveform.codes.astype(np.float64)
    band = HYSTERESIS * (levels.high - levels.low)
    state = np.zeros(codes.size, np.int8)
    state[codes > levels.middle + band] = 1
    state[codes < levels.middle - band] = -1
    known = np.flatnonzero(state)
    changes = np.flatnonzero(np.diff(state[known]))
    edges = []
    for change in changes:
        before, after = int(known[change]), int(known[change + 1])
        rising = bool(state[after] > 0)
        piece = codes[before : after + 1] - levels.middle
        above = piece >= 0 if rising else piece <= 0
        first = int(np.flatnonzero(above[1:] & ~above[:-1])[-1])
        share = piece[first] / (piece[first] - piece[first + 1])
        edges.append(Edge(waveform.instant_fs(before + first + float(share)), rising))
    return edges
