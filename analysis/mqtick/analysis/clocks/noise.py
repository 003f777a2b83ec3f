"""Which kind of noise a clock shows, and how many independent values an estimate is worth.

Noise is named by the exponent alpha of its frequency's spectrum: 2 white phase, 1 flicker phase,
0 white frequency, -1 flicker frequency, -2 random walk of frequency.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from mqtick.analysis.statistics.lines import product, slope, without_line
from mqtick.recording.units import Floats

ALPHAS: Final = (2, 1, 0, -1, -2)
FEWEST: Final = 30
"""Fewer values do not show what kind of noise they are."""
_DIFFERENCES: Final = 2
_REACH: Final = 1.64
"""Standard errors to either side that hold nine tenths of all estimates."""
_LAGS: Final = 100
"""This many lags make the sum of the autocovariances; more do not change its first three digits."""


def noise_exponents(x: Floats, factor: int) -> tuple[int, ...]:
    """Return every alpha that a time error may have at an averaging factor, ascending.

    From the autocorrelation of neighbours: Riley and Greenhall, "Power law noise identification
    using the lag 1 autocorrelation" (EFTF 2004), which NIST SP 1065 takes up. Few values do not
    tell one noise from the next: all are returned that lie within the error of the estimate. None
    with fewer than 30 values that are `factor` apart.
    """
    values = x[::factor]
    if values.size < FEWEST:
        return ()
    # Offset, frequency and drift would be mistaken for noise.
    square = np.linspace(-1, 1, values.size) ** 2
    values = without_line(values)
    values = values - square * slope(square, values)
    for differences in range(_DIFFERENCES + 1):
        values = values - values.mean()
        power = product(values, values)
        if not power > 0:
            return (max(ALPHAS),)  # no noise at all: any does
        lag = product(values[1:], values[:-1]) / power
        delta = lag / (1 + lag)
        if delta < 0.25 or differences == _DIFFERENCES:
            break
        values = np.diff(values)
    alpha = 2 - 2 * differences - 2 * delta
    # The autocorrelation of n values without memory has a standard error of 1 / sqrt(n).
    reach = _REACH * 2 / (1 + lag) ** 2 / math.sqrt(values.size)
    low, high = (
        max(min(ALPHAS), min(max(ALPHAS), round(end))) for end in (alpha - reach, alpha + reach)
    )
    return tuple(range(low, high + 1))


def degrees_of_freedom(alpha: int, factor: int, terms: int, *, modified: bool) -> float:
    """Return how many independent values `terms` overlapping second differences are worth.

    Greenhall and Riley, "Uncertainty of stability variances based on finite differences" (PTTI
    2003), which is the method of NIST SP 1065 for AVAR, MVAR and TVAR. `modified`: of MDEV and
    TDEV.
    """
    ratio = terms / factor
    if not modified and alpha == 2:
        # Second differences of white phase noise are correlated only at lags of 0, 1 and 2 tau.
        beyond = (16, 1)
        total = sum(max(0.0, 1 - lag / ratio) * beyond[lag - 1] for lag in (1, 2))
        return terms / (1 + total / 18)
    lags = min(terms, 3 * factor)
    if lags <= _LAGS:
        filter_factor = 1.0 if modified else float(factor)
        if not modified and alpha <= 0 and 3 * factor > _LAGS:
            filter_factor = math.inf
        return _from_sum(alpha, filter_factor, lags, terms, factor)
    stride = _LAGS / min(ratio, 3.0)
    if modified or alpha <= 0:
        filter_factor = 1.0 if modified else math.inf
        return _from_sum(alpha, filter_factor, _LAGS, ratio * stride, stride)
    # Flicker phase noise has no limit for a large factor: tables 2 and 3 of the paper.
    at_zero = 15.23 + 12.0 * math.log(factor)
    if ratio > 3:
        return ratio * at_zero**2 / (790.0 - 410.0 / ratio)
    return _from_sum(alpha, stride, _LAGS, float(_LAGS), stride, at_zero)


def _from_sum(
    alpha: int,
    filter_factor: float,
    lags: int,
    terms: float,
    stride: float,
    at_zero: float | None = None,
) -> float:
    """Return terms / sum of squared autocorrelations of the differences, weighted by 1 - lag."""
    lag = np.arange(lags + 1)
    covariance = _covariance(lag / stride, filter_factor, alpha)
    power = covariance**2 * np.maximum(0.0, 1 - lag / terms)
    total = power[0] + 2 * power[1:-1].sum() + power[-1]
    scale = float(covariance[0]) if at_zero is None else at_zero
    return terms * scale**2 / float(total)


def _covariance(t: Floats, filter_factor: float, alpha: int) -> Floats:
    """Return the autocovariance of second differences tau apart, up to a common factor."""
    weights = {-2: 1.0, -1: -4.0, 0: 6.0, 1: -4.0, 2: 1.0}
    return sum(
        (weight * _filtered(t + shift, filter_factor, alpha) for shift, weight in weights.items()),
        np.zeros_like(t),
    )


def _filtered(t: Floats, filter_factor: float, alpha: int) -> Floats:
    if math.isinf(filter_factor):
        return _generalised(t, alpha + 2)
    step = 1 / filter_factor
    near = 2 * _generalised(t, alpha)
    return filter_factor**2 * (near - _generalised(t - step, alpha) - _generalised(t + step, alpha))


def _generalised(t: Floats, alpha: int) -> Floats:
    """Return the generalised autocovariance of phase noise, up to a common factor."""
    size = np.abs(t)
    power = 3 - alpha
    if power % 2:
        return (-1.0 if alpha == 2 else 1.0) * size**power
    return np.asarray(size**power * np.log(np.where(size > 0, size, 1.0)), np.float64)
