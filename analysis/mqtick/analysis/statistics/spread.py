"""How certain a standard deviation is, also that of skewed values."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import numpy as np

from mqtick.analysis.statistics.bootstrap import LEAST
from mqtick.analysis.statistics.dependence import effective_number
from mqtick.analysis.statistics.estimate import Bounded
from mqtick.analysis.statistics.exact import student_quantile
from mqtick.recording.units import Floats

__all__ = ["spread"]

_FARTHEST: Final = math.log(10.0)
"""An end that far away is no bound: among correlated values, one makes the whole deviation."""


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
