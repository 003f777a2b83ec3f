"""How certain a standard deviation is, also that of skewed values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.statistics.bootstrap import LEAST
from mqtick.analysis.statistics.dependence import effective_number
from mqtick.analysis.statistics.exact import student_quantile

__all__ = ["Spread"]

_FARTHEST: Final = math.log(10.0)
"""An end that far away is no bound: among correlated values, one makes the whole deviation."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The standard deviation of values, and what its certainty depends on.

    Attributes:
        deviation: with n - 1, in the unit of the values.
        kurtosis: fourth moment about the median, in squared variances.
        effective_n: how many independent values they are worth.
    """

    deviation: float
    kurtosis: float
    effective_n: float

    @classmethod
    def of(cls, values: npt.NDArray[np.float64], time: float) -> Spread:
        """Of at least two values, of autocorrelation time `time`."""
        n, deviation = values.size, float(values.std(ddof=1))
        scaled = (values - float(np.median(values))) / (float(values.std()) or 1.0)
        return cls(deviation, float((scaled**4).mean()), effective_number(n, time))

    def bound(self, probability: float) -> float | None:
        """Return what the true deviation is below with this probability; None where nothing says.

        Bonett's interval (Computational Statistics and Data Analysis 50, 2006) with Student's
        quantiles, and the kurtosis about the median instead of a trimmed mean: both cover skewed
        values better (docs/statistics.md has the coverage found).
        """
        n = self.effective_n
        if n < LEAST:
            return None
        sure = max(probability, 1 - probability)
        evened = n / (n - NormalDist().inv_cdf(sure))
        error = evened * math.sqrt(max(self.kurtosis - (n - 3) / n, 0.0) / (n - 1))
        distance = math.copysign(student_quantile(sure, n - 1) * error / 2, probability - 0.5)
        distance += math.log(evened) / 2
        return self.deviation * math.exp(distance) if distance < _FARTHEST else None
