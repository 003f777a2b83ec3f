"""Which part of a record's range holds its two levels, and which samples are outliers.

IEEE 181 (5.2) takes the two levels as the modes of the lower and the upper half of the range. One
wrong sample stretches that range, until both levels lie in one half of it. So what lies apart at an
end is left out, as long as that is next to nothing, and what remains is halved again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.intp]
Samples = npt.NDArray[np.floating]

FEW: Final = 4
"""With this many times fewer samples than the rarer level, samples are outliers, not a level."""
_MOST: Final = 20
"""Outliers are at most one sample in this many."""
_NEAR: Final = 0.25
"""Share of the amplitude within which a sample stands at a level."""
_VALLEY: Final = 0.8
"""Two levels have between them at most this share of the samples of the rarer one. Noise has as
many there as at its two "levels", hum too, and a slow drift twice as many."""
_BINS: Final = 64
_CELLS: Final = 128
"""A range is divided into this many cells: what an empty one separates from the rest lies apart."""
_RESOLVED: Final = 8
_ZOOM: Final = 4096
_FINE: Final = 1 << 16
_PIECE: Final = 1 << 15


def is_few(outliers: int, rarer: int) -> bool:
    """Whether that many samples are outliers, given the samples of the rarer of two levels."""
    return FEW * outliers <= rarer


def without_outliers(counts: Counts, least: float, left_out: int = 0) -> tuple[int, int] | None:
    """Return first and last bin of the part of a histogram that holds its two levels.

    None unless a part of it without a few outliers has two levels at least `least` bins apart, the
    part with the most samples where several have: a short pulse is no outlier, because what is
    left without it has one level.
    `left_out` outliers are not in the histogram.
    """
    used = np.flatnonzero(counts)
    first, last, total = int(used[0]), int(used[-1]), int(counts.sum())
    ends = (-np.inf, np.inf) if left_out else (first, last)
    most, found = 0, None
    while last - first >= max(least, 2):
        within = counts[first : last + 1]
        if left_out:
            rarer, low, high = _two_levels(within, least)
            # What is nearer (overshoot) leaves each level in its half.
            far = ends[0] < first + 2 * low - high or ends[1] > first + 2 * high - low
            if far and rarer > most and is_few(left_out, rarer):
                most, found = rarer, (first, last)
        lower, upper = _ends(within)
        below, above = int(within[:lower].sum()), int(within[upper:].sum())
        left_out += min(below, above)
        if _MOST * left_out > total:
            break
        rest = within[:upper] if above <= below else within[lower:]
        used = np.flatnonzero(rest) + (first if above <= below else first + lower)
        first, last = int(used[0]), int(used[-1])
    return found


def _ends(counts: Counts) -> tuple[int, int]:
    """Return the end of what lies apart at the lower end, and the start of the same at the upper.

    Where nothing does, all lies apart.
    """
    width = counts.size // _CELLS + 1
    empty = np.flatnonzero(np.add.reduceat(counts, np.arange(0, counts.size, width)) == 0)
    if not empty.size:
        return counts.size, 0
    return int(empty[0]) * width, (int(empty[-1]) + 1) * width


def range_without_outliers(values: Samples, least: float) -> tuple[float, float]:
    """Return the range of the values that hold the two levels, as `without_outliers` says.

    Outliers may be so far away that all others lie in a few bins, which are then looked into.
    """
    begin, end = every = float(values.min()), float(values.max())
    left_out = 0
    while end > begin and _MOST * left_out <= values.size:
        width = (end - begin) / _FINE
        counts = np.zeros(_FINE + 1, np.intp)
        for at in range(0, values.size, _PIECE):
            inside = piece = values[at : at + _PIECE].astype(np.float64)
            if (begin, end) != every:
                inside = piece[(piece >= begin) & (piece <= end)]
            counts += np.bincount(((inside - begin) / width).astype(np.intp), minlength=_FINE + 1)
        if width * _RESOLVED <= least:
            found = without_outliers(counts, least / width, left_out)
            return (begin + found[0] * width, begin + (found[1] + 1) * width) if found else every
        fullest = int(counts.argmax())
        near = counts[max(fullest - _ZOOM, 0) : fullest + _ZOOM + 1]
        left_out += int(counts.sum() - near.sum())
        begin, end = begin + (fullest - _ZOOM) * width, begin + (fullest + _ZOOM + 1) * width
    return every


def _two_levels(counts: Counts, least: float) -> tuple[int, float, float]:
    """Return the samples at the rarer level, and both levels, of the halves of a range.

    No samples where these are no two levels.
    """
    upper = (counts.size - 1) // 2 + 1
    low, high = mode(counts[:upper]), upper + mode(counts[upper:])
    near = _NEAR * (high - low)
    begin, end = max(round(low - near), 0), round(high + near) + 1
    at_low = int(counts[begin : min(round(low + near) + 1, upper)].sum())
    at_high = int(counts[max(round(high - near), upper) : end].sum())
    between = int(counts[begin:end].sum()) - at_low - at_high
    rarer = min(at_low, at_high)
    two = high - low >= least and between <= _VALLEY * rarer
    return rarer if two else 0, low, high


def mode(counts: Counts) -> float:
    """Return where most samples of a half lie: the fullest bin, refined by what lies around it."""
    width = max(1, counts.size // _BINS)
    starts = np.arange(0, counts.size, width)
    # Three bins at a time, so that noise over several of them does not pick one at random.
    bins = np.convolve(np.add.reduceat(counts, starts), (1, 2, 1))[1:-1]
    fullest = int(bins.argmax()) * width
    first, last = max(fullest - width, 0), min(fullest + 2 * width, counts.size)
    near = counts[first:last]
    return float(near @ np.arange(first, last)) / float(near.sum())
