"""Robust weighted linear regression of the offset over local time.

Weights are 1 / sigma**2 times exp(-age / time constant). Huber's function reduces the weight of
large residuals (iteratively reweighted least squares, P. J. Huber, "Robust statistics", 1981). At
the end outliers are left out. The result comes with its covariance.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_NORMAL_MAD = 1.4826
"""Standard deviation over median absolute deviation, for normal errors."""
_ROUNDS = 2
_RESISTANT = 9
"""From this many points on, the iteration starts from a resistant line."""
_FORGOTTEN = 6.0
"""Points older than this many time constants weigh less than 0.3 % and are not looked at."""
_LEAST_SCALE = 0.05
"""Residuals are never judged against less than this share of the stated standard deviations."""


class Point(NamedTuple):
    """One offset (ns, reference minus local) at a local instant (ns), and its deviation (ns)."""

    local_ns: int
    offset_ns: int
    sigma_ns: float
    reach_ns: float = 0.0
    """The error is certainly no greater than this; 0 if nothing bounds it."""
    narrow_ns: float | None = None
    """The same, if the broker is honest; None if that makes no difference."""


class Prior(NamedTuple):
    """The frequency as known before any point: mean and standard deviation (ns per ns)."""

    frequency: float
    sigma: float


@dataclass(frozen=True, slots=True)
class RegressionSettings:
    """Constants of the regression; the first in seconds, the others in standard deviations."""

    time_constant_s: float = math.inf
    huber_sigmas: float = 1.5
    outlier_sigmas: float = 5.0


@dataclass(frozen=True, slots=True)
class Fit:
    """A line: the offset at `local_ns`, how it changes, and how sure that is.

    Attributes:
        frequency: Change of the offset in ns per ns; positive: the local clock is slow.
        frequency_sigma: Infinite where neither points nor a prior tell the frequency.
        frequency_reach: How far the points' errors can have turned the line at most, even if the
            errors are correlated.
        narrow_reach: The same, if the broker is honest.
        prior_share: Weight of the prior in the frequency: 0 none, 1 all of it.
    """

    local_ns: int
    offset_ns: int
    frequency: float
    frequency_sigma: float
    frequency_reach: float
    narrow_reach: float
    prior_share: float
    points: int
    outliers: int

    def at(self, local_ns: int) -> int:
        """Offset of the line at an instant, in ns."""
        return self.offset_ns + round(self.frequency * (local_ns - self.local_ns))


def fit(
    points: Sequence[Point],
    settings: RegressionSettings,
    prior: Prior | None = None,
) -> Fit:
    """Fit a line through points in order of time; it is stated at the last of them.

    The prior enters as one more measurement of the frequency. Time is taken relative to the last
    point, and offsets relative to its offset, as integers: nanoseconds since 1970 do not fit a
    float. Raises ValueError without points.
    """
    if not points:
        raise ValueError("No point was given, so no line can be fitted; give at least one.")
    local_ns, origin_ns = points[-1].local_ns, points[-1].offset_ns
    times = [(point.local_ns - local_ns) * 1e-9 for point in points]
    remembered = _forget(times, settings.time_constant_s)
    points = points if len(remembered) == len(points) else list(points)[-len(remembered) :]
    times = times[-len(remembered) :]
    values = [float(point.offset_ns - origin_ns) for point in points]
    sigmas = [point.sigma_ns for point in points]
    base = [w / (sigma * sigma) for w, sigma in zip(remembered, sigmas, strict=True)]
    weights, outliers = base, 0
    if len(points) < _RESISTANT:
        line = _solve(times, values, base, prior)
    else:
        line = _resistant(times, values)
    for _ in range(_ROUNDS if len(points) > 2 else 0):
        pulls = [
            abs(y - line.offset - line.slope * x) / sigma
            for x, y, sigma in zip(times, values, sigmas, strict=True)
        ]
        scale = max(_NORMAL_MAD * statistics.median(pulls), _LEAST_SCALE)
        full, none = settings.huber_sigmas * scale, settings.outlier_sigmas * max(scale, 1.0)
        weights = [
            w if p <= full else w * full / p if p <= none else 0.0
            for w, p in zip(base, pulls, strict=True)
        ]
        outliers = sum(pull > none for pull in pulls)
        line = _solve(times, values, weights, prior)
    excess = _excess(times, values, weights, line)
    certain = [point.reach_ns for point in points]
    assumed = [point.reach_ns if point.narrow_ns is None else point.narrow_ns for point in points]
    prior_share = 0.0
    if prior is not None:
        prior_share = min(line.slope_variance / (prior.sigma * 1e9) ** 2, 1.0)
    return Fit(
        local_ns=local_ns,
        offset_ns=origin_ns + round(line.offset),
        frequency=line.slope * 1e-9,
        frequency_sigma=math.sqrt(line.slope_variance * excess) * 1e-9,
        frequency_reach=_reach(times, weights, certain, line.slope_variance) * 1e-9,
        narrow_reach=_reach(times, weights, assumed, line.slope_variance) * 1e-9,
        prior_share=prior_share,
        points=len(points),
        outliers=outliers,
    )


class _Line(NamedTuple):
    """Offset at the origin (ns), slope (ns per s), and its variance."""

    offset: float
    slope: float
    slope_variance: float


def _forget(times: list[float], time_constant_s: float) -> list[float]:
    """Weights by age, for the newest points; older ones would weigh next to nothing."""
    if math.isinf(time_constant_s):
        return [1.0] * len(times)
    weights = []
    for time in reversed(times):
        age = -time / time_constant_s
        if age > _FORGOTTEN:
            break
        weights.append(math.exp(-age))
    weights.reverse()
    return weights


def _solve(
    times: list[float], values: list[float], weights: list[float], prior: Prior | None
) -> _Line:
    s_w = s_x = s_xx = s_y = s_xy = 0.0
    for x, y, w in zip(times, values, weights, strict=True):
        w_x = w * x
        s_w += w
        s_x += w_x
        s_xx += w_x * x
        s_y += w * y
        s_xy += w_x * y
    mean_x, mean_y = s_x / s_w, s_y / s_w
    # Use sums about the mean: if all times are 100 s from the origin, cancellation would leave
    # little precision.
    spread = max(s_xx - s_x * mean_x, 0.0)
    moment = s_xy - s_x * mean_y
    if prior is not None:
        known = 1.0 / (prior.sigma * 1e9) ** 2
        spread += known
        moment += known * prior.frequency * 1e9
    elif spread <= 1e-12 * s_xx or spread == 0.0:
        return _Line(mean_y, 0.0, math.inf)
    slope = moment / spread
    return _Line(mean_y - slope * mean_x, slope, 1 / spread)


def _resistant(times: list[float], values: list[float]) -> _Line:
    """Return the line to start from; outliers hardly move it, even if a third of the points are.

    J. W. Tukey's resistant line: through the medians of the first and the last third. If the
    iteration started from plain least squares, many outliers would inflate the scale.
    """
    third = len(times) // 3
    first_x, first_y = statistics.median(times[:third]), statistics.median(values[:third])
    last_x, last_y = statistics.median(times[-third:]), statistics.median(values[-third:])
    slope = (last_y - first_y) / (last_x - first_x) if last_x > first_x else 0.0
    offset = statistics.median(y - slope * x for x, y in zip(times, values, strict=True))
    return _Line(offset, slope, 0.0)


def _reach(
    times: list[float], weights: list[float], reaches: list[float], slope_variance: float
) -> float:
    """The largest error of the slope (ns per s), if each point is off by its reach (ns) at most.

    Standard deviations assume independent errors, but those of a burst are correlated. Here each
    error has the sign that turns the line most.
    """
    total = sum(weights)
    if total == 0.0 or math.isinf(slope_variance):
        return math.inf  # there is no slope
    mean_x = sum(w * x for x, w in zip(times, weights, strict=True)) / total
    turning = sum(
        w * abs(x - mean_x) * reach for x, w, reach in zip(times, weights, reaches, strict=True)
    )
    return turning * slope_variance


def _excess(times: list[float], values: list[float], weights: list[float], line: _Line) -> float:
    """Observed variance of the residuals over the stated one; at least 1."""
    count = sum(weight > 0 for weight in weights)
    if count < 3:
        return 1.0
    total = sum(
        w * (y - line.offset - line.slope * x) ** 2
        for x, y, w in zip(times, values, weights, strict=True)
    )
    return max(total / (count - 2), 1.0)
