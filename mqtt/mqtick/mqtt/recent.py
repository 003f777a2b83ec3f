"""A low quantile of recent values: how long a path takes when there is little other traffic."""

from __future__ import annotations

from collections import deque

_NEEDED = 8


class LowRecent:
    """Keeps the last `count` values not older than `age_ns`; computes their lower quartile.

    Not the minimum, which depends on a single lucky moment: two nodes with similar paths must find
    similar values.
    """

    __slots__ = ("_values", "age_ns", "count")

    def __init__(self, count: int = 64, age_ns: int = 600_000_000_000) -> None:
        self.count = count
        self.age_ns = age_ns
        self._values: deque[tuple[int, int]] = deque(maxlen=count)

    def add(self, value: int, now_ns: int) -> None:
        """Add a value; negative ones, which no delay can be, are ignored."""
        if value >= 0:
            self._values.append((now_ns, value))

    def clear(self) -> None:
        """Forget all values: the path may be another one now."""
        self._values.clear()

    def _recent(self, now_ns: int) -> list[int]:
        return sorted(value for at_ns, value in self._values if now_ns - at_ns <= self.age_ns)

    def value(self, now_ns: int) -> int | None:
        """Return the lower quartile of the recent values; None while there are fewer than eight."""
        recent = self._recent(now_ns)
        return recent[len(recent) // 4] if len(recent) >= _NEEDED else None

    def spread(self, now_ns: int) -> int:
        """Return how far the median is above the tenth percentile, as a measure of variation."""
        recent = self._recent(now_ns)
        return recent[len(recent) // 2] - recent[len(recent) // 10] if recent else 0
