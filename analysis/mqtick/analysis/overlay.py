"""What of a measurement is drawn: the most typical shot, and signals thinned out.

Of a signal its envelope is kept far from the edges, and all of it near them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.measurement import CAPTURED, Shot
from mqtick.recording.transitions import Transitions
from mqtick.recording.units import FS_PER_US, Floats
from mqtick.recording.waveform import Waveform

DRAWN_HEIGHT: Final = 1.0
"""Height of a digital signal's 1 in a drawing; what it was in volts was not recorded."""

_DETAIL_SHARE: Final = 0.5


def typical(shots: Sequence[Shot]) -> Shot | None:
    """Return the shot nearest to the medians of all that it measured, at the largest N.

    None where nothing was captured.
    """
    shots = [shot for shot in shots if shot.outcome == CAPTURED]
    if not shots:
        return None
    most = max(shot.subscribers for shot in shots)
    shots = [shot for shot in shots if shot.subscribers == most]
    values: list[dict[str, int | None]] = [
        {"latency": shot.latency_fs, "skew": shot.skew_fs}
        | {f"clock {name}": value for name, value in shot.clock_fs.items()}
        for shot in shots
    ]
    away = np.zeros(len(shots))
    for name in sorted({name for each in values for name in each}):
        found = [each.get(name) for each in values]
        of = np.array([np.nan if value is None else value for value in found], np.float64)
        if np.isnan(of).all():
            continue
        distance = np.abs(of - np.nanmedian(of))
        spread = float(np.nanmedian(distance)) or 1.0
        away += np.nan_to_num(distance / spread, nan=1e6)
    return shots[int(away.argmin())]


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
    level is unknown, from a tenth before the first change or edge to a tenth after the last one.
    """
    points = max(points, 16)
    if isinstance(signal, Transitions):
        return _digital(signal, around_fs, origin_fs, points)
    places = [(int(at) - signal.start_fs) // signal.interval_fs for at in around_fs]
    kept = _kept(signal.codes, places, points)
    # Whole femtoseconds until the origin is off: floats would lose what lies between samples.
    first_us = (signal.start_fs - origin_fs) / FS_PER_US
    us = first_us + kept * (signal.interval_fs / FS_PER_US)
    volts = (signal.codes[kept] - signal.code_at_zero) * signal.volts_per_code
    return np.asarray(us, np.float64), np.asarray(volts, np.float64)


def _kept(
    levels: npt.NDArray[np.integer[Any]], places: Sequence[int], points: int
) -> npt.NDArray[np.intp]:
    """Return which of the levels are drawn, increasing; `places`: those before an edge."""
    size = levels.size
    if size <= points:
        return np.arange(size)
    near = np.zeros(size, np.bool_)
    half = int(points * _DETAIL_SHARE / 2 / max(len(places), 1))
    for at in places:
        # An edge outside of the record has nothing near it.
        near[min(max(at - half + 1, 0), size) : min(max(at + half + 1, 0), size)] = True
    pieces = max((points - int(np.count_nonzero(near)) - 2) // 2, 1)
    length = -(-size // pieces)
    whole = size // length * length
    rows = levels[:whole].reshape(-1, length)
    starts = np.arange(rows.shape[0]) * length
    near[starts + rows.argmin(axis=1)] = True
    near[starts + rows.argmax(axis=1)] = True
    if whole < size:
        rest = levels[whole:]
        near[whole + int(rest.argmin())] = near[whole + int(rest.argmax())] = True
    return np.flatnonzero(near)


def _digital(
    signal: Transitions, around_fs: Sequence[int], origin_fs: int, points: int
) -> tuple[Floats, Floats]:
    around = [int(instant) for instant in around_fs]
    ends = signal.ends_fs() if signal.ticks.size else ()
    begin = min([*around, *ends], default=origin_fs)
    end = max([*around, *ends], default=origin_fs)
    margin = max((end - begin) // 10, FS_PER_US)
    # Two corners for each change: the level before it and the one after it.
    every = np.concatenate(([signal.initial], signal.levels))
    levels = np.stack((every[:-1], every[1:]), axis=1).ravel()
    places = [2 * bisect_left(signal.ticks, at, key=signal.instant_fs) for at in around]
    kept = _kept(levels, places, points - 2)
    after_fs = signal.ticks[kept // 2] * float(signal.tick_fs)
    us = (after_fs + (signal.origin_fs - origin_fs)) / FS_PER_US
    us = np.concatenate(([(begin - margin - origin_fs) / FS_PER_US], us))
    us = np.append(us, (end + margin - origin_fs) / FS_PER_US)
    shown = np.concatenate((every[:1], levels[kept], every[-1:]))
    return us, np.where(shown < 0, np.nan, shown * DRAWN_HEIGHT)
