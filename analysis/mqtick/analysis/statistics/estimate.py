"""An estimate: a value and the interval that holds the true one with a stated confidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its confidence interval; `low` and `high` are None if there is none."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Bounded:
    """A statistic of values; `bound(p)` is what the true one is below with probability p.

    None where nothing says.
    """

    value: float
    bound: Callable[[float], float | None]

    def within(self, tail: float) -> Estimate:
        """Return it with its interval, either end of which may be wrong with this probability."""
        return Estimate(self.value, self.bound(tail), self.bound(1 - tail))


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of `n` values, in us; each an estimate with its interval where n allows one.

    Attributes:
        n: how many values.
        effective_n: how many independent ones they are worth (they may be correlated in time).
        mean, deviation (of the sample), median, p5, p95, p99: None where n is too small for any.
        least, most: the extreme values seen.
    """

    n: int
    effective_n: float
    mean: Estimate
    deviation: Estimate | None
    median: Estimate
    p5: Estimate
    p95: Estimate
    p99: Estimate
    least: float
    most: float
