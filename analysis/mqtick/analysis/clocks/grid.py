"""A time error on an even grid: what MTIE, TDEV and ADEV are defined for.

A grid as fine as the median distance of the samples; each of its instants takes the nearest
sample, moved along the clock's mean frequency. Nothing is put into gaps: they part the series.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.statistics.lines import slope
from mqtick.recording.units import Floats

GAP_INTERVALS: Final = 5.0
"""Samples farther apart than this many median distances have a gap between them."""
_UNEVEN: Final = 0.01
"""Samples nearer to their instant, in parts of the grid, need no mention."""


@dataclass(frozen=True, slots=True, eq=False)
class Even:
    """A time error on an even grid.

    Attributes:
        interval_s: of the grid.
        parts: the time error in ns, one array between two gaps each.
        note: what was done to the samples; "" where they were even.
    """

    interval_s: float
    parts: tuple[Floats, ...]
    note: str


def median_interval(seconds: Floats) -> float:
    """Return the median distance of neighbours, 0 with fewer than two."""
    return float(np.median(np.diff(seconds))) if seconds.size > 1 else 0.0


def gaps(seconds: Floats) -> npt.NDArray[np.intp]:
    """Return the index of the last sample before each gap."""
    return np.flatnonzero(np.diff(seconds) > GAP_INTERVALS * median_interval(seconds))


def evenly(seconds: Floats, error_ns: Floats) -> Even:
    """Put a time error on an even grid; ValueError with fewer than two samples.

    Both are finite, and `seconds` increase.
    """
    interval_s = median_interval(seconds)
    if not interval_s > 0:
        raise ValueError(f"{seconds.size} samples have no spacing: no grid can be made from them.")
    ends = [0, *(gaps(seconds) + 1).tolist(), seconds.size]
    parts: list[Floats] = []
    used = 0
    farthest_s = 0.0
    for begin, end in itertools.pairwise(ends):
        at, values = seconds[begin:end], error_ns[begin:end]
        grid = at[0] + interval_s * np.arange(round((at[-1] - at[0]) / interval_s) + 1)
        right = np.clip(np.searchsorted(at, grid), 1, max(1, at.size - 1))
        nearest = right if at.size > 1 else np.zeros(grid.size, np.intp)
        if at.size > 1:
            nearest = np.where(grid - at[right - 1] < at[right] - grid, right - 1, right)
        away_s = grid - at[nearest]
        parts.append(values[nearest] + away_s * slope(at, values))
        used += 1 + int(np.count_nonzero(np.diff(nearest)))
        farthest_s = max(farthest_s, float(np.abs(away_s).max()))
    instants = sum(part.size for part in parts)
    note = ""
    if farthest_s > _UNEVEN * interval_s:
        note = (
            "The samples are uneven: for MTIE, TDEV and ADEV they were put on a grid of "
            f"{interval_s:.4g} s, each instant taking the nearest sample (at most "
            f"{farthest_s:.3g} s away)."
        )
        if left_out := seconds.size - used:
            note += f" {left_out} samples are nearest to no instant and were left out."
        if repeated := instants - used:
            note += f" {repeated} of {instants} instants share a sample with another one."
    return Even(interval_s, tuple(parts), note)
