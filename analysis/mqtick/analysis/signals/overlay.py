"""Thinning a signal for a drawing: its envelope far from the edges, all of it near them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.signals.transitions import Transitions
from mqtick.analysis.signals.units import FS_PER_US, Floats
from mqtick.analysis.signals.waveform import Waveform

__all__ = ["DRAWN_HEIGHT", "thinned"]

DRAWN_HEIGHT: Final = 1.0
"""Height of a digital signal's 1 in a drawing; what it was in volts was not recorded."""

_DETAIL_SHARE: Final = 0.5


def thinned(
    signal: Waveform | Transitions,
    around_fs: Sequence[int],
    origin_fs: int,
    points: int = 2000,
) -> tuple[Floats, Floats]:
    """Return instants in us after `origin_fs`, increasing, and volts: a line to be drawn.

    At most `points` of them (and never fewer than 16). A record that has more keeps half of them
    for the samples around the edges at `around_fs`, instants in fs from the trigger as in `Edge`;
    of the rest it keeps the lowest and the highest sample of each piece, so that no glitch is lost.
    Changes of a digital signal become vertical lines between 0 and `DRAWN_HEIGHT`, NaN where the
    level is unknown, from a tenth before the first change or edge to a tenth after the last one;
    where there are too many, only some are drawn, all of them next to the edges.
    """
    points = max(points, 16)
    if isinstance(signal, Transitions):
        return _digital(signal, around_fs, origin_fs, points)
    kept = _kept(signal, around_fs, points)
    # Whole femtoseconds until the origin is off: floats would lose what lies between samples.
    first_us = (signal.start_fs - origin_fs) / FS_PER_US
    us = first_us + kept * (signal.interval_fs / FS_PER_US)
    volts = (signal.codes[kept] - signal.code_at_zero) * signal.volts_per_code
    return np.asarray(us, np.float64), np.asarray(volts, np.float64)


def _kept(waveform: Waveform, around_fs: Sequence[int], points: int) -> npt.NDArray[np.intp]:
    """Return the samples that are drawn, increasing."""
    size = waveform.codes.size
    if size <= points:
        return np.arange(size)
    near = np.zeros(size, np.bool_)
    half = int(points * _DETAIL_SHARE / 2 / max(len(around_fs), 1))
    for instant_fs in around_fs:
        # The sample before the edge; an edge outside of the record has none near it.
        at = (int(instant_fs) - waveform.start_fs) // waveform.interval_fs
        near[min(max(at - half + 1, 0), size) : min(max(at + half + 1, 0), size)] = True
    pieces = max((points - int(np.count_nonzero(near)) - 2) // 2, 1)
    length = -(-size // pieces)
    whole = size // length * length
    codes = waveform.codes[:whole].reshape(-1, length)
    starts = np.arange(codes.shape[0]) * length
    near[starts + codes.argmin(axis=1)] = True
    near[starts + codes.argmax(axis=1)] = True
    if whole < size:
        rest = waveform.codes[whole:]
        near[whole + int(rest.argmin())] = near[whole + int(rest.argmax())] = True
    return np.flatnonzero(near)


def _digital(
    signal: Transitions, around_fs: Sequence[int], origin_fs: int, points: int
) -> tuple[Floats, Floats]:
    instants = signal.instants_fs
    around = [int(instant) for instant in around_fs]
    ends = [int(instants[0]), int(instants[-1])] if instants.size else []
    begin = min([*around, *ends], default=origin_fs)
    end = max([*around, *ends], default=origin_fs)
    margin = max((end - begin) // 10, FS_PER_US)
    kept = _changes_kept(instants, around, (points - 2) // 2)
    volts = np.where(signal.levels < 0, np.nan, signal.levels * DRAWN_HEIGHT)
    first = np.nan if signal.initial < 0 else signal.initial * DRAWN_HEIGHT
    before = np.concatenate((np.array([first]), volts))
    at = np.repeat((instants[kept] - origin_fs) / FS_PER_US, 2)
    both = np.stack((before[kept], volts[kept]), axis=1).ravel()
    left, right = (begin - margin - origin_fs) / FS_PER_US, (end + margin - origin_fs) / FS_PER_US
    return np.concatenate(([left], at, [right])), np.concatenate((before[:1], both, before[-1:]))


def _changes_kept(
    instants: npt.NDArray[np.int64], around: Sequence[int], most: int
) -> npt.NDArray[np.intp]:
    """Return the changes that are drawn: those next to the edges, and evenly chosen others."""
    if instants.size <= most:
        return np.arange(instants.size)
    near = np.zeros(instants.size, np.bool_)
    half = int(most * _DETAIL_SHARE / 2 / max(len(around), 1))
    for instant in around:
        at = int(np.searchsorted(instants, instant))
        near[max(at - half, 0) : at + half] = True
    others = max(most - int(np.count_nonzero(near)), 2)
    near[np.linspace(0, instants.size - 1, others).astype(np.intp)] = True
    return np.flatnonzero(near)
