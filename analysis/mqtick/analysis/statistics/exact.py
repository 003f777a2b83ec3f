"""Exact distributions, without scipy: beta, binomial and Student's t.

Everything is built on the regularised incomplete beta function, by its continued fraction
(DLMF 8.17.22, evaluated after Lentz). Arguments may be fractions, because an effective number of
values is one.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = [
    "beta_quantile",
    "beta_share",
    "rank_above",
    "rank_below",
    "share_at_least",
    "share_at_most",
    "shots_to_tell",
    "student_quantile",
]

_STEPS: Final = 200_000
_EXACT: Final = 1e-15
_TINY: Final = 1e-300
_HALVINGS: Final = 60
MOST_SHOTS: Final = 10_000_000
"""Beyond this many, nobody waits for a proof."""


def beta_share(a: float, b: float, x: float) -> float:
    """Return the share of a beta distribution (a, b > 0) below x: 0 to 1.

    For whole k and n, `beta_share(k, n - k + 1, p)` is the chance that of n tries, each with
    chance p, at least k succeed.
    """
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_share(b, a, 1 - x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, _STEPS):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / _not_zero(1 + term * d)
        c = _not_zero(1 + term / c)
        value *= c * d
        if abs(c * d - 1) < _EXACT:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def beta_quantile(a: float, b: float, share: float) -> float:
    """Return the x below which `share` of a beta distribution lies."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if beta_share(a, b, middle) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_quantile(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t distribution with that many degrees of freedom (> 0)."""
    if probability < 0.5:
        return -student_quantile(1 - probability, degrees)
    share = beta_quantile(0.5, degrees / 2, 2 * probability - 1)
    return math.sqrt(degrees * share / (1 - share))


def share_at_most(beyond: float, n: float, confidence: float) -> float:
    """Return the share that is not exceeded with `confidence`, where `beyond` of n were seen.

    Clopper and Pearson's upper bound (Biometrika 26, 1934), one-sided.
    """
    return 1.0 if beyond >= n else beta_quantile(beyond + 1, n - beyond, confidence)


def share_at_least(beyond: float, n: float, confidence: float) -> float:
    """Return the share that is reached with `confidence`, where `beyond` of n were seen."""
    return 0.0 if beyond <= 0 else beta_quantile(beyond, n - beyond + 1, 1 - confidence)


def rank_above(n: int, effective_n: float, share: float, tail: float) -> int | None:
    """Return the rank (from 1) of the least value that bounds a quantile from above.

    The quantile below which `share` of all values lie is above that value with a chance of no
    more than `tail`. None where even the largest value does not bound it. Correlated
    values count as `effective_n`.
    """
    weight = effective_n / n
    if effective_n < 1 or beta_share(effective_n, 1, share) > tail:
        return None
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        seen = middle * weight
        if beta_share(seen, effective_n - seen + 1, share) <= tail:
            high = middle
        else:
            low = middle
    return high


def rank_below(n: int, effective_n: float, share: float, tail: float) -> int | None:
    """Return the rank of the largest value that bounds a quantile from below, or None."""
    rank = rank_above(n, effective_n, 1 - share, tail)
    return None if rank is None else n + 1 - rank


def shots_to_tell(allowed: float, seen: float, confidence: float) -> int | None:
    """Return how many independent shots tell whether more than `allowed` are beyond a bound.

    `seen` is the share that goes on being beyond it. None where no number up to MOST_SHOTS
    tells, as when `seen` is what is allowed.
    """

    def tells(n: int) -> bool:
        beyond = seen * n
        if seen < allowed:
            return beta_share(beyond + 1, n - beyond, allowed) >= confidence
        return beta_share(beyond, n - beyond + 1, allowed) <= 1 - confidence

    if seen == allowed:
        return None
    high = 1
    while not tells(high):
        high *= 2
        if high > MOST_SHOTS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tells(middle) else (middle, high)
    return high
