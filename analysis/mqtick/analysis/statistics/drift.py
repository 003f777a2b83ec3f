"""Whether a quantity drifted within the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqtick.analysis.statistics.dependence import autocorrelation_time
from mqtick.analysis.statistics.estimate import Estimate
from mqtick.analysis.statistics.exact import student_quantile
from mqtick.analysis.statistics.lines import TUNING, huber_line, scale_of
from mqtick.recording.units import Floats

_LEAST: Final = 10
"""With fewer values, a line over time says nothing."""
_SECONDS_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Drift:
    """A line over time.

    Attributes:
        us_per_hour: its slope.
        total_us: its amount over the whole run.
        significant: whether its interval excludes 0.
    """

    us_per_hour: Estimate
    total_us: float
    significant: bool


def fit_drift(seconds: Floats, values: Floats, confidence: float = 0.95) -> Drift | None:
    """Fit a robust line over time; None with fewer than 10 values that have different instants.

    `seconds` is NaN where an instant is not known: that value is left out. The line is Huber's
    M-estimator from a resistant start (medians of the first and the last third). The interval
    is Student's with the slope's sandwich variance (Huber, 1967) times the residuals'
    autocorrelation time, with as many degrees of freedom as the values are worth less 2: values
    that wander together show a drift only where it is beyond their wandering.
    """
    known = np.isfinite(seconds)
    when, values = seconds[known], values[known]
    if when.size < _LEAST:
        return None
    order = np.argsort(when, kind="stable")
    when, values = when[order] - when[order[0]], values[order]
    third = when.size // 3
    early, late = (float(np.median(part)) for part in (when[:third], when[-third:]))
    if early == late:
        return None
    first, last = (float(np.median(part)) for part in (values[:third], values[-third:]))
    b = np.array([(last - first) / (late - early)])
    a = np.array([float(np.median(values - b[0] * when))])
    scale = scale_of(values - a[0] - b[0] * when, float(np.abs(values).max()))[None]
    a, b = huber_line(when, values[None, :], a, b, scale)
    slope = float(b[0])
    half = _half_width(when, values - a[0] - slope * when, float(scale[0]), confidence)
    interval = Estimate(
        slope * _SECONDS_PER_HOUR,
        (slope - half) * _SECONDS_PER_HOUR,
        (slope + half) * _SECONDS_PER_HOUR,
    )
    return Drift(interval, slope * float(when[-1]), abs(slope) > half)


def _half_width(when: Floats, residuals: Floats, scale: float, confidence: float) -> float:
    """Half the interval of the slope, in us per second."""
    if scale == 0:
        return 0.0
    n = residuals.size
    distance = when - when.mean()
    pulled = np.clip(residuals, -TUNING * scale, TUNING * scale)
    inside = max(float((np.abs(residuals) < TUNING * scale).mean()), 0.5)
    time = autocorrelation_time(pulled)
    square = float((pulled**2).sum()) / (n - 2)
    error = math.sqrt(square * time / float(distance @ distance)) / inside
    degrees = max(n / time - 2, 1.0)
    return student_quantile((1 + confidence) / 2, degrees) * error
