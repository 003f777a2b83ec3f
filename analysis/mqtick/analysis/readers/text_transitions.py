"""Digital channels of a text file that has one row a change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from mqtick.analysis.readers.time_base import Floats, pieces_of, steps_of
from mqtick.recording.capture import CaptureError
from mqtick.recording.octets import EXACT_S, LONGEST_S
from mqtick.recording.transitions import UNKNOWN, Transitions
from mqtick.recording.waveform import femtoseconds

_ENOUGH: Final = 8
"""This many changes are needed to find the sample interval from their distances."""
_ODD_RATES_HZ: Final = (3e6, 6e6, 12e6, 24e6, 48e6, 96e6)
"""Sample rates of logic analysers whose intervals are not whole ns and are rounded in the file."""


def is_levels(channels: Iterable[Floats]) -> bool:
    """Whether these are levels, 0 or 1, as logic analysers write them."""
    for values in channels:
        known = 0
        for piece in pieces_of(values):
            levels = piece[~np.isnan(piece)]
            if not ((levels == 0) | (levels == 1)).all():
                return False
            known += levels.size
        if not known:
            return False
    return True


def is_changes(channels: Iterable[Floats]) -> bool:
    """Whether each row but the last differs from the one before."""
    for steps in zip(*(steps_of(levels[:-1]) for levels in channels), strict=True):
        if not np.logical_or.reduce([by != 0 for by in steps]).all():
            return False
    return True


def transitions_of(
    path: Path,
    times_s: Floats,
    resolution_s: float,
    channels: Iterable[tuple[str, Floats]],
    interval_s: float = 0.0,
) -> Iterator[tuple[str, Transitions]]:
    """Yield the changes of each channel by its name; CaptureError where times go back.

    Where the file does not keep the interval between samples (`interval_s` is 0), a change is
    uncertain by the greatest distance that all changes are whole multiples of, or by the last digit
    where there are too few changes.
    `times_s` is used up.
    """
    if not np.isfinite(times_s).all() or (times_s[1:] < times_s[:-1]).any():
        raise CaptureError(
            f"{path}: the times of the changes go back, or are missing; it is damaged, or two "
            "files were joined. Export it again."
        )
    largest = max(abs(float(times_s[0])), abs(float(times_s[-1])))
    if largest > LONGEST_S:
        raise CaptureError(
            f"{path}: times up to {largest:.4g} s, and {LONGEST_S:,.0f} s is the most. Export a "
            "shorter range, with times counted from its start."
        )
    uncertainty = femtoseconds(interval_s) or _interval_fs(times_s[1:-1], resolution_s)
    # In floats, later times are not exact to 1 ps: their last digit is what counts.
    tick_fs = 1 if largest < EXACT_S else max(femtoseconds(resolution_s), 1000)
    times_s *= 1e15 / tick_fs
    ticks = np.rint(times_s, out=times_s).astype(np.int64)
    for name, values in channels:
        levels = np.where(np.isnan(values), UNKNOWN, values).astype(np.int8)
        at = np.flatnonzero(levels[1:] != levels[:-1]) + 1
        yield (
            name,
            Transitions(name, int(levels[0]), ticks[at], levels[at], uncertainty, tick_fs=tick_fs),
        )


def _interval_fs(times_s: Floats, resolution_s: float) -> int:
    """Return the greatest interval that the times are multiples of, in fs."""
    resolution_fs = femtoseconds(resolution_s)
    if times_s.size < _ENOUGH or resolution_fs < 1:
        return resolution_fs

    def digits() -> Iterator[Floats]:
        return ((piece - times_s[0]) / resolution_s for piece in pieces_of(times_s))

    common = 0
    for piece in digits():
        common = math.gcd(common, int(np.gcd.reduce(np.rint(piece).astype(np.int64))))
    if common > 1:
        return resolution_fs * common
    for rate_hz in _ODD_RATES_HZ:
        interval = 1 / (rate_hz * resolution_s)
        samples = (piece / interval for piece in digits())
        if interval > 4 and all(
            (np.abs(piece - np.rint(piece)) * interval <= 1.001).all() for piece in samples
        ):
            return femtoseconds(1 / rate_hz)
    return resolution_fs
