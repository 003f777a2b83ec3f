"""Studentised block bootstrap of a mean.

Blocks of consecutive values are drawn from the record closed to a ring (Politis and Romano, 1992),
so that correlated values stay together. Each replicate is divided by its own standard error
(Efron and Tibshirani, An Introduction to the Bootstrap, 12.5): with 20 skewed values that covers
better than percentiles or BCa (docs/statistics.md has the coverage found). The scale comes from
the autocorrelation time; the bootstrap gives the shape, because few long blocks vary too little.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from mqtick.analysis.statistics.estimate import Bounded
from mqtick.analysis.statistics.exact import student_quantile
from mqtick.recording.units import Floats

REPLICATES: Final = 2000
_SEED: Final = 1451
_MOST_BLOCKS: Final = 256
"""With more values, blocks are longer: the cost stays the same, and so does the interval."""
LEAST: Final = 8
"""Of fewer values a resample repeats itself too often: the mean gets Student's interval, and the
deviation none."""
_LEAST_SPREAD: Final = 0.2
"""Resamples that hold one value over and over have no spread: they get this share of it."""


def studentise(values: Floats, time: float) -> Bounded:
    """Return the mean of at least two values in time order, of autocorrelation time `time`."""
    n = values.size
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    error = deviation * math.sqrt(time / n)
    if n < LEAST or deviation == 0:
        degrees = max(n / time, 2.0) - 1
        return Bounded(mean, lambda below: mean + student_quantile(below, degrees) * error)
    scaled = (values - mean) / deviation
    length = _block_length(n, time)
    blocks = max(2, round(n / length))
    sums, squares = _block_sums(scaled, length), _block_sums(scaled**2, length)
    starts = np.random.default_rng(_SEED).integers(0, n, (REPLICATES, blocks))
    drawn = blocks * length
    # Moments of each replicate about the whole record's mean.
    first, second = (each[starts].sum(axis=1) / drawn for each in (sums, squares))
    variance = np.maximum(second - first**2, _LEAST_SPREAD**2)
    replicates = first * np.sqrt((drawn - 1) / variance) / _inflation(scaled, sums, length)
    return Bounded(mean, lambda below: mean - resampled_bound(replicates, 1 - below) * error)


def _block_length(n: int, time: float) -> int:
    """Of a first-order process with this time (Politis and White, Econometric Reviews 23, 2004)."""
    best = math.pow(1.5 * ((time**2 - 1) / (2 * time)) ** 2 * n, 1 / 3)
    return min(max(1, math.ceil(best), math.ceil(n / _MOST_BLOCKS)), max(1, n // 4))


def _block_sums(values: Floats, length: int) -> Floats:
    """Sums over each block that begins at each value of the ring."""
    if length == 1:
        return values
    total = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[: length - 1])))))
    return total[length:] - total[:-length]


def _inflation(values: Floats, sums: Floats, length: int) -> float:
    """Return the standard deviation of block sums over what it is for independent values."""
    if length == 1:
        return 1.0
    return math.sqrt(float(sums.var()) / (length * float(values.var()) or 1.0)) or 1.0


def resampled_bound(replicates: Floats, probability: float) -> float:
    """Return a bound of the rank that makes it at least as likely as it says."""
    return float(np.quantile(replicates, probability, method="weibull"))
