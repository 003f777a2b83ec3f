"""How a quantity grows with the number of subscribers: a robust line."""

from __future__ import annotations

from dataclasses import dataclass

from mqtick.analysis.statistics.estimate import Estimate

__all__ = ["Line"]


@dataclass(frozen=True, slots=True)
class Line:
    """value = a + b N.

    Attributes:
        a: us; of skew: the receivers' noise.
        b: us a subscriber; of skew: the broker's figure of merit.
        n: how many shots.
        subscribers: the different N, ascending.
    """

    a: Estimate
    b: Estimate
    n: int
    subscribers: tuple[int, ...]
