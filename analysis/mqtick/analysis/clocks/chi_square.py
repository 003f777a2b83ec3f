"""Quantiles of the chi-square distribution, for degrees of freedom that need not be whole."""

from __future__ import annotations

import math
import sys
from statistics import NormalDist
from typing import Final

__all__ = ["chi_square_quantile", "chi_square_share"]

_MANY: Final = 2000.0
"""From this many degrees of freedom on, Wilson and Hilferty's cube is right to 1e-5."""
_TERMS: Final = 10_000
_EXACT: Final = 1e-15
_STEPS: Final = 200


def chi_square_share(value: float, degrees: float) -> float:
    """Return the share of the distribution below a value: 0 to 1; ValueError without degrees.

    The regularised incomplete gamma function P(degrees / 2, value / 2), by its power series below
    the mean and by Lentz's continued fraction above (Abramowitz and Stegun 6.5.29 and 6.5.31).
    """
    if not degrees > 0:
        raise ValueError(f"{degrees} degrees of freedom: chi-square needs more than 0.")
    if not value > 0:
        return 0.0
    a, x = degrees / 2, value / 2
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for step in range(1, _TERMS):
            term *= x / (a + step)
            total += term
            if term < total * _EXACT:
                break
        return front * total
    b = x + 1 - a
    c, d = math.inf, 1 / b
    fraction = d
    for step in range(1, _TERMS):
        numerator = step * (a - step)
        b += 2
        d = 1 / (b + numerator * d)
        c = b + numerator / c
        fraction *= c * d
        if abs(c * d - 1) < _EXACT:
            break
    return 1 - front * fraction


def chi_square_quantile(share: float, degrees: float) -> float:
    """Return the value below which a share (between 0 and 1) lies; ValueError otherwise."""
    if not 0 < share < 1:
        raise ValueError(f"share {share}: a quantile needs a share between 0 and 1.")
    if not degrees > 0:
        raise ValueError(f"{degrees} degrees of freedom: chi-square needs more than 0.")
    # Wilson and Hilferty, Proc. Natl. Acad. Sci. 17, 1931: the cube root is nearly normal.
    part = 2 / (9 * degrees)
    guess = degrees * (1 - part + NormalDist().inv_cdf(share) * math.sqrt(part)) ** 3
    if degrees > _MANY:
        return guess
    low, high = 0.0, max(guess, degrees)
    while chi_square_share(high, degrees) < share:
        high *= 2
    value = min(max(guess, low), high)
    for _ in range(_STEPS):
        if not low < value < high:
            value = (low + high) / 2
        missing = share - chi_square_share(value, degrees)
        low, high = (value, high) if missing > 0 else (low, value)
        # Newton; where that leaves the bracket, the next step halves it.
        step = missing / _density(value, degrees)
        value += step
        if abs(step) <= 1e-13 * value or high - low <= 1e-13 * high:
            break
    return value


def _density(value: float, degrees: float) -> float:
    a, x = degrees / 2, value / 2
    return max(math.exp((a - 1) * math.log(x) - x - math.lgamma(a)) / 2, sys.float_info.min)
