"""The time base of a record out of its column of rounded times.

Such columns have few digits: DS1000C and DS1000E write -5.11e-03 two hundred times in a row. So
the interval is fitted over the whole column, and held against what rounding explains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mqtick.analysis.readers.columns import Floats
from mqtick.analysis.readers.octets import LONGEST_S
from mqtick.analysis.signals.waveform import femtoseconds

__all__ = ["TimeBase", "even_times"]

_FLOAT32: Final = 6e-8
"""Some instruments round to 24 bits before they write more digits than that."""
_UNEVEN: Final = 0.1
"""Share of the interval by which samples may be off beside all rounding."""


@dataclass(frozen=True, slots=True)
class TimeBase:
    """An even time base that explains a column.

    Attributes:
        start_fs: instant of the first row, in fs.
        interval_fs: from row to row, in fs, above 0.
        repeats: how many rows have the same time as the row before.
        error_ppm: how far the interval may be off at worst, in parts a million.
    """

    start_fs: int
    interval_fs: int
    repeats: int
    error_ppm: float


def even_times(times_s: Floats, resolution_s: float, interval_s: float = 0.0) -> TimeBase | None:
    """Return the even time base of a column of seconds, None where there is none.

    `resolution_s` is what the last digit stands for, `interval_s` what the file says elsewhere
    (0 where it does not): it is taken where the column does not contradict it. Times that are no
    number are passed over, with their rows counted.
    """
    known = np.flatnonzero(np.isfinite(times_s))
    if known.size < 2:
        return None
    times, rows = times_s[known], known.astype(np.float64)
    middle, middle_row = float(times.mean()), float(rows.mean())
    rows -= middle_row
    slope = float(rows @ (times - middle)) / float(rows @ rows)
    if not slope > 0:
        return None
    steps = np.diff(times)
    repeats = int(np.count_nonzero(steps == 0))
    blur = _FLOAT32 * float(np.abs(times).max())
    # Times cut off instead of rounded are off by a whole digit, on both sides of 0.
    rounding = resolution_s * (1.05 if repeats else 0.55) + blur
    worst = float(np.abs(times - middle - slope * rows).max())
    if worst > rounding + _UNEVEN * slope or float(steps.min()) < -2 * rounding:
        return None
    span = float(known[-1] - known[0])
    distinct = max(known.size - repeats, 2)
    # Many rows, each rounded differently, say more than the first and the last one alone: among
    # what they make likely the shortest number is taken.
    share = min(1.0, 7 / distinct**0.5)
    likely = 2 * worst / span * share + 1e-12 * slope
    if interval_s > 0 and abs(interval_s - slope) <= 2 * worst / span + 1e-9 * slope:
        interval = interval_s
        error = 0.0
    else:
        interval = _shortest(slope, likely)
        # But rounding on a regular grid is not random: the first and the last time may both be off
        # by half a unit of their last digit, in opposite directions.
        chord = float(times[-1] - times[0]) / span
        error = (
            abs(femtoseconds(interval) * 1e-15 - chord)
            + 2 * max(worst, resolution_s / 2 + blur) / span
        )
    start = _shortest(middle - interval * middle_row, worst * share + 1e-9 * interval)
    interval_fs = femtoseconds(interval)
    if interval_fs <= 0 or abs(start) > LONGEST_S:
        return None
    return TimeBase(femtoseconds(start), interval_fs, repeats, error / interval * 1e6)


def _shortest(value: float, error: float) -> float:
    """Return the number with the fewest digits that is no further away than this."""
    if abs(value) <= error:
        return 0.0
    for digits in range(16):
        rounded = float(f"{value:.{digits}e}")
        if abs(rounded - value) <= error:
            return rounded
    return value
