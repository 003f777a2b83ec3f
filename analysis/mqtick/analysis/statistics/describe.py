"""What values taken one after another say about the distribution that they come from."""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist
from typing import Final

import numpy as np

from mqtick.analysis.statistics.bootstrap import LEAST, studentise
from mqtick.analysis.statistics.dependence import autocorrelation_time, effective_number
from mqtick.analysis.statistics.estimate import Bounded, Distribution, Estimate
from mqtick.analysis.statistics.exact import rank_above, rank_below, student_quantile
from mqtick.recording.units import Floats

QUANTILES: Final = {"p5": 0.05, "median": 0.5, "p95": 0.95, "p99": 0.99}
_FARTHEST: Final = math.log(10.0)
"""An end that far away is no bound: among correlated values, one makes the whole deviation."""


def describe(
    values: Floats, confidence: float = 0.95, time: float | None = None
) -> Distribution | None:
    """Estimate a distribution; None without values.

    `values` are, in us and in the order in which they were taken, each a number.
    `time` is their autocorrelation time where it is known better than from themselves. Intervals
    are two-sided with equal tails. Mean: studentised block bootstrap. Deviation: Bonett's.
    Quantiles: order statistics with the exact binomial chance; where no value bounds a quantile, as
    with p99 of 20 values, that end is None: it is unknown. One value has no interval.
    docs/statistics.md has the coverage found.
    """
    n = values.size
    if n == 0:
        return None
    if time is None:
        time = autocorrelation_time(values)
    effective = effective_number(n, time)
    tail = (1 - confidence) / 2
    ordered = np.sort(values)
    quantiles = np.quantile(ordered, list(QUANTILES.values()))
    found = {
        name: _quantile(ordered, float(value), share, effective, tail)
        for (name, share), value in zip(QUANTILES.items(), quantiles, strict=True)
    }
    return Distribution(
        n=n,
        effective_n=effective,
        mean=Estimate(float(values[0])) if n < 2 else studentise(values, time).within(tail),
        deviation=None if n < 2 else spread(values, time).within(tail),
        **found,
        least=float(ordered[0]),
        most=float(ordered[-1]),
    )


def describe_absolute(
    values: Floats, confidence: float = 0.95, time: float | None = None
) -> Distribution | None:
    """Estimate the distribution of the absolute values, whose mean is not below 0."""
    found = describe(np.abs(values), confidence, time)
    if found is None or found.mean.low is None:
        return found
    mean = dataclasses.replace(found.mean, low=max(found.mean.low, 0.0))
    return dataclasses.replace(found, mean=mean)


def spread(values: Floats, time: float) -> Bounded:
    """Return the standard deviation of at least two values, of autocorrelation time `time`.

    With n - 1. Its bounds are Bonett's (Computational Statistics and Data Analysis 50, 2006) with
    Student's quantiles, and the kurtosis about the median instead of a trimmed mean: both cover
    skewed values better (docs/statistics.md has the coverage found).
    """
    deviation = float(values.std(ddof=1))
    scaled = (values - float(np.median(values))) / (float(values.std()) or 1.0)
    kurtosis = float((scaled**4).mean())
    n = effective_number(values.size, time)

    def bound(below: float) -> float | None:
        if n < LEAST:
            return None
        sure = max(below, 1 - below)
        evened = n / (n - NormalDist().inv_cdf(sure))
        error = evened * math.sqrt(max(kurtosis - (n - 3) / n, 0.0) / (n - 1))
        distance = math.copysign(student_quantile(sure, n - 1) * error / 2, below - 0.5)
        distance += math.log(evened) / 2
        return deviation * math.exp(distance) if distance < _FARTHEST else None

    return Bounded(deviation, bound)


def _quantile(
    ordered: Floats, value: float, share: float, effective: float, tail: float
) -> Estimate:
    n = ordered.size
    if n < 2:
        return Estimate(value)
    low = rank_below(n, effective, share, tail)
    high = rank_above(n, effective, share, tail)
    # Between two values far apart the estimate may lie beyond the one that bounds the quantile.
    return Estimate(
        value,
        None if low is None else min(float(ordered[low - 1]), value),
        None if high is None else max(float(ordered[high - 1]), value),
    )
