"""Studentised block bootstrap of mean and standard deviation.

Blocks of consecutive values are drawn from the record closed to a ring (Politis and Romano, 1992),
so that what hangs together stays together. Each replicate is divided by its own standard error
(Efron and Tibshirani, An Introduction to the Bootstrap, 12.5): with 20 skewed values that covers
better than percentiles or BCa (docs/statistics.md has the coverage found). The scale comes from
the autocorrelation time; the bootstrap gives the shape, because few long blocks vary too little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.statistics.exact import student_quantile

__all__ = ["Studentised", "order_statistic", "studentise"]

Floats = npt.NDArray[np.float64]

REPLICATES: Final = 2000
_SEED: Final = 1451
_MOST_BLOCKS: Final = 256
"""Of more values, blocks are longer: the cost stays the same, and so does the interval."""
LEAST: Final = 8
"""Of fewer values a resample repeats itself too often: the mean gets Student's interval."""
_LEAST_SPREAD: Final = 0.2
"""Resamples that hold one value over and over have no spread: they get this share of it."""
_FARTHEST: Final = math.log(100.0)
"""Where one value makes the whole deviation, nothing bounds it from above."""
_LEAST_TAIL: Final = 0.2
"""So much at least is kurtosis less 1, on which the standard error of a deviation depends."""


@dataclass(frozen=True, slots=True, eq=False)
class Studentised:
    """Mean and standard deviation of values, their standard errors, and what resamples do.

    Attributes:
        mean, deviation: in the unit of the values.
        mean_error: standard error of the mean.
        log_error: standard error of the deviation's logarithm.
        mean_t, deviation_t: sorted distances of the replicates in their own standard errors; empty
            with fewer than LEAST values.
        degrees: of freedom, where Student's distribution stands in.
    """

    mean: float
    deviation: float
    mean_error: float
    log_error: float
    mean_t: Floats
    deviation_t: Floats
    degrees: float

    def mean_bound(self, probability: float) -> float:
        """Return what the true mean is below with this probability."""
        if not self.mean_t.size:
            return self.mean + student_quantile(probability, self.degrees) * self.mean_error
        return self.mean - order_statistic(self.mean_t, 1 - probability) * self.mean_error

    def deviation_bound(self, probability: float) -> float | None:
        """Return what the true deviation is below; None where the values do not say."""
        if not self.deviation_t.size:
            return None
        distance = -order_statistic(self.deviation_t, 1 - probability) * self.log_error
        return self.deviation * math.exp(distance) if distance < _FARTHEST else None


def studentise(values: Floats, time: float) -> Studentised:
    """Resample at least two values in time order, of autocorrelation time `time`."""
    n = values.size
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    error = deviation * math.sqrt(time / n)
    degrees = max(n / time, 2.0) - 1
    if n < LEAST or deviation == 0:
        never = np.zeros(1 if n >= LEAST else 0)
        return Studentised(mean, deviation, error, 0.0, never, never, degrees)
    scaled = (values - mean) / deviation
    length = _block_length(n, time)
    blocks = max(2, round(n / length))
    sums = _block_sums(scaled, length)
    starts = np.random.default_rng(_SEED).integers(0, n, (REPLICATES, blocks))
    drawn = blocks * length
    # Moments of each replicate about the whole record's mean.
    first, second, third, fourth = (each[starts].sum(axis=1) / drawn for each in sums)
    variance = np.maximum(second - first**2, _LEAST_SPREAD**2)
    mean_t = first * np.sqrt((drawn - 1) / variance) / _inflation(scaled, sums[0], length)

    kurtosis = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
    tail = np.sqrt(np.maximum(kurtosis / variance**2 - 1, _LEAST_TAIL))
    whole = max(float((scaled**4).mean()) / float((scaled**2).mean()) ** 2 - 1, _LEAST_TAIL)
    ratio = 0.5 * np.log(variance * n / (n - 1))
    deviation_t = ratio * 2 * np.sqrt(drawn) / tail / _inflation(scaled**2, sums[1], length)
    return Studentised(
        mean=mean,
        deviation=deviation,
        mean_error=error,
        log_error=0.5 * math.sqrt(whole * time / n),
        mean_t=np.sort(mean_t),
        deviation_t=np.sort(deviation_t),
        degrees=degrees,
    )


def _block_length(n: int, time: float) -> int:
    """Of a first-order process with this time (Politis and White, Econometric Reviews 23, 2004)."""
    best = math.pow(1.5 * ((time**2 - 1) / (2 * time)) ** 2 * n, 1 / 3)
    return min(max(1, math.ceil(best), math.ceil(n / _MOST_BLOCKS)), max(1, n // 4))


def _block_sums(scaled: Floats, length: int) -> list[Floats]:
    """Sums of the first four powers over each block that begins at each value of the ring."""
    sums = []
    power = np.ones_like(scaled)
    for _ in range(4):
        power = power * scaled
        if length == 1:
            sums.append(power)
            continue
        total = np.concatenate(([0.0], np.cumsum(np.concatenate((power, power[: length - 1])))))
        sums.append(total[length:] - total[:-length])
    return sums


def _inflation(values: Floats, sums: Floats, length: int) -> float:
    """Return the standard deviation of block sums over what it is for independent values."""
    if length == 1:
        return 1.0
    return math.sqrt(float(sums.var()) / (length * float(values.var()) or 1.0)) or 1.0


def order_statistic(ordered: Floats, probability: float) -> float:
    """Of sorted replicates, one whose rank makes the bound no less likely than it says."""
    rank = probability * (ordered.size + 1) - 1
    low = min(max(math.floor(rank), 0), ordered.size - 1)
    high = min(low + 1, ordered.size - 1)
    share = min(max(rank - low, 0.0), 1.0)
    return float(ordered[low] + share * (ordered[high] - ordered[low]))
