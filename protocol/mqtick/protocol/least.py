"""The least of recent values: how long a way takes when nothing else is in it."""

from __future__ import annotations

from collections import deque

__all__ = ["LeastRecent"]


class LeastRecent:
    """Keeps the last `count` values not older than `age_ns`, and tells the least of them."""

    __slots__ = ("_values", "age_ns", "count")

    def __init__(self, count: int = 64, age_ns: int = 600_000_000_000) -> None:
        self.count = count
        self.age_ns = age_ns
        self._values: deque[tuple[int, int]] = deque(maxlen=count)

    def add(self, value: int, now_ns: int) -> None:
        """Add a value; negative ones, which no delay can be, are ignored."""
        if value >= 0:
            self._values.append((now_ns, value))

    def value(self, now_ns: int) -> int | None:
        """Return the least value that is recent enough, or None."""
        return min((v for at, v in self._values if now_ns - at <= self.age_ns), default=None)

    def clear(self) -> None:
        """Forget all."""
        self._values.clear()
