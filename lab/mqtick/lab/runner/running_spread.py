"""Mean and standard deviation while the values come in (Welford 1962)."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Live"]


@dataclass(slots=True)
class Live:
    """Statistics of the values added so far, in their unit."""

    n: int = 0
    mean: float = 0.0
    _squares: float = 0.0

    def add(self, value: float) -> None:
        """Take one more value."""
        self.n += 1
        away = value - self.mean
        self.mean += away / self.n
        self._squares += away * (value - self.mean)

    @property
    def deviation(self) -> float | None:
        """The sample's standard deviation; None for fewer than two values."""
        return math.sqrt(self._squares / (self.n - 1)) if self.n > 1 else None
