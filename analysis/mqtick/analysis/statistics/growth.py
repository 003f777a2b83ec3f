"""How a quantity grows with the number of subscribers: a robust line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.statistics.bootstrap import resampled_bound
from mqtick.analysis.statistics.dependence import autocorrelation_time
from mqtick.analysis.statistics.estimate import Estimate
from mqtick.analysis.statistics.lines import huber_line, scale_of
from mqtick.recording.units import Floats

Integers = npt.NDArray[np.int64]

_SEED: Final = 1451
_REPLICATES: Final = 1000
_LEAST_REPLICATES: Final = 200
_MOST_POINTS: Final = 300_000
"""Of all replicates together; beyond it there are fewer of them, and values are thinned out."""


@dataclass(frozen=True, slots=True)
class Line:
    """value = a + b N.

    Attributes:
        a: us; of skew: the receivers' noise.
        b: us a subscriber; of skew: the broker's figure of merit.
        n: how many shots.
        subscribers: the different N, ascending.
    """

    a: Estimate
    b: Estimate
    n: int
    subscribers: tuple[int, ...]


def fit_line(counts: Integers, values: Floats, confidence: float = 0.95) -> Line | None:
    """Fit value = a + b N; None with fewer than two different N.

    Huber's M-estimator: it starts from least squares through the medians of each N and keeps the
    scale found there. Values are in the order in which they were taken. Intervals: percentiles of a
    bootstrap within each N, widened where values of one N are correlated; none where some N has
    a single value, because nothing then says how much it varies. The line passes through the bulk
    of the values: of skewed ones that is below their mean.
    """
    different = [int(each) for each in np.unique(counts)]
    if len(different) < 2:
        return None
    groups = [values[counts == each] for each in different]
    a, b = _fit(different, [group[None, :] for group in groups])
    found_a, found_b = Estimate(float(a[0])), Estimate(float(b[0]))
    if min(group.size for group in groups) > 1:
        many_a, many_b = _replicates(different, groups)
        widening = math.sqrt(time_within(counts, values))
        found_a = _interval(found_a.value, many_a, widening, confidence)
        found_b = _interval(found_b.value, many_b, widening, confidence)
    return Line(found_a, found_b, int(values.size), tuple(different))


def time_within(subscribers: Integers, values: Floats) -> float:
    """Return the autocorrelation time of what remains after each N's median and spread.

    So a plan that goes from one N to the next is not mistaken for dependence.
    """
    rest = np.zeros_like(values)
    for each in np.unique(subscribers):
        chosen = subscribers == each
        rest[chosen] = values[chosen] - np.median(values[chosen])
        rest[chosen] /= float(np.abs(rest[chosen]).mean()) or 1.0
    return autocorrelation_time(rest)


def _replicates(different: Sequence[int], groups: Sequence[Floats]) -> tuple[Floats, Floats]:
    chance = np.random.default_rng(_SEED)
    total = sum(group.size for group in groups)
    times = min(_REPLICATES, max(_LEAST_REPLICATES, _MOST_POINTS // total))
    # Fewer points than there are widen the interval by a known factor.
    share = min(1.0, _MOST_POINTS / (times * total))
    drawn = []
    for group in groups:
        size = max(2, round(group.size * share))
        middle = float(np.median(group))
        # Resamples of a few values vary too little by this factor.
        stretch = math.sqrt(group.size / (group.size - 1)) * math.sqrt(size / group.size)
        which = chance.integers(0, group.size, (times, size))
        drawn.append(middle + (group[which] - middle) * stretch)
    return _fit(different, drawn)


def _fit(different: Sequence[int], groups: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Fit each row; groups[i] has, by row, the values of the i-th N."""
    sizes = np.array([group.shape[1] for group in groups], np.float64)
    numbers = np.array(different, np.float64)
    medians = np.stack([np.median(group, axis=1) for group in groups], axis=1)
    distance = numbers - float(numbers @ sizes / sizes.sum())
    b = medians @ (sizes * distance) / float(sizes @ distance**2)
    a = (medians - b[:, None] * numbers) @ sizes / sizes.sum()
    x = np.repeat(numbers, sizes.astype(np.int64))
    y = np.concatenate(groups, axis=1)
    scale = scale_of(y - a[:, None] - b[:, None] * x, np.abs(y).max(axis=1))
    return huber_line(x, y, a, b, scale)


def _interval(value: float, many: Floats, widening: float, confidence: float) -> Estimate:
    tail = (1 - confidence) / 2
    low = resampled_bound(many, tail) - value
    high = resampled_bound(many, 1 - tail) - value
    return Estimate(value, value + min(low, 0.0) * widening, value + max(high, 0.0) * widening)
