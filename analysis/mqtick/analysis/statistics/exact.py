"""Exact bounds of shares, ranks and numbers of shots: beta, binomial and Student's t.

Arguments may be fractions, because an effective number of values is one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import scipy  # scipy.special, which takes a third of a second, is imported by its first use

MOST_SHOTS: Final = 10_000_000
"""Beyond this many, nobody waits for a proof."""


def student_quantile(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t distribution with that many degrees of freedom (> 0)."""
    return float(scipy.special.stdtrit(degrees, probability))


def share_at_most(beyond: float, n: float, confidence: float) -> float:
    """Return the share that is not exceeded with `confidence`, where `beyond` of n were seen.

    Clopper and Pearson's upper bound (Biometrika 26, 1934), one-sided.
    """
    if beyond >= n:
        return 1.0
    return float(scipy.special.betaincinv(beyond + 1, n - beyond, confidence))


def share_at_least(beyond: float, n: float, confidence: float) -> float:
    """Return the share that is reached with `confidence`, where `beyond` of n were seen."""
    if beyond <= 0:
        return 0.0
    return float(scipy.special.betaincinv(beyond, n - beyond + 1, 1 - confidence))


def rank_above(n: int, effective_n: float, share: float, tail: float) -> int | None:
    """Return the rank (from 1) of the least value that bounds a quantile from above.

    The quantile below which `share` of all values lie is above that value with a chance of no
    more than `tail`. None where even the largest value does not bound it. Correlated
    values count as `effective_n`.
    """
    if effective_n < 1:
        return None

    def bounds(rank: int) -> bool:
        seen = rank * effective_n / n
        return bool(scipy.special.betainc(seen, effective_n - seen + 1, share) <= tail)

    return 1 + bisect_left(range(1, n), True, key=bounds) if bounds(n) else None


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
        if seen < allowed:
            return share_at_most(seen * n, n, confidence) <= allowed
        return seen > allowed and share_at_least(seen * n, n, confidence) >= allowed

    if not tells(MOST_SHOTS):
        return None
    return 1 + bisect_left(range(1, MOST_SHOTS), True, key=tells)


def shots_with(allowed: float, beyond: int, confidence: float) -> int:
    """Return the least number of independent shots of which `beyond` may lie beyond a bound.

    It proves with `confidence` that no more than the share `allowed` of all do.
    """
    numbers = range(beyond + 1, MOST_SHOTS)
    return numbers[
        bisect_left(numbers, True, key=lambda n: share_at_most(beyond, n, confidence) <= allowed)
    ]
