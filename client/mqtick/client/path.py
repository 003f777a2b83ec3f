"""Delays that are learned: what stays the same between a lesser measurement and a better one."""

from __future__ import annotations

import statistics
from collections import deque

__all__ = ["PathDelay"]

_NORMAL_MAD = 1.4826
"""Standard deviation over median absolute deviation, for normal errors."""
_ENOUGH = 4
"""So many delays tell what is usual."""


class PathDelay:
    """A delay that exchanges reveal, kept for the time when there are none.

    While exchanges tell the offset, each broadcast's own delay follows: arrival + offset - T. Their
    median turns later broadcasts into offsets, and their spread is the standard deviation of those.
    In the same way the difference between two-way samples and echoes is learned (half the asymmetry
    of the path). Median and median absolute deviation, because delays have heavy tails.

    Where only the least delayed of a group will be used, only those may be learned from: with
    `group_ns`, the least of each stretch of that length counts, once the stretch is over.
    """

    __slots__ = ("_delays", "_group", "_summary", "group_ns")

    def __init__(self, samples: int, group_ns: int = 0) -> None:
        self._delays: deque[int] = deque(maxlen=samples)
        self.group_ns = group_ns
        self._group: tuple[int, int] | None = None  # when it began, its least delay
        self._summary: tuple[int, float] | None = None

    def __len__(self) -> int:
        return len(self._delays)

    def add(self, delay_ns: int, local_ns: int = 0) -> None:
        """Remember one delay; the oldest is forgotten when the window is full."""
        if self.group_ns > 0:
            if self._group is None:
                self._group = local_ns, delay_ns
                return
            began_ns, least_ns = self._group
            if abs(local_ns - began_ns) <= self.group_ns:
                self._group = began_ns, min(least_ns, delay_ns)
                return
            self._group = local_ns, delay_ns
            delay_ns = least_ns
        self._delays.append(delay_ns)
        self._summary = None

    def clear(self) -> None:
        """Forget everything: the path may be another one now."""
        self._delays.clear()
        self._group = None
        self._summary = None

    @property
    def delay_ns(self) -> int | None:
        """The median; None until there are enough delays."""
        return self._summarise()[0] if len(self._delays) >= _ENOUGH else None

    @property
    def spread_ns(self) -> float | None:
        """The standard deviation that the median absolute deviation suggests, or None."""
        return self._summarise()[1] if len(self._delays) >= _ENOUGH else None

    @property
    def least_ns(self) -> int:
        """The least of them; 0 if there is none."""
        return min(self._delays, default=0)

    def _summarise(self) -> tuple[int, float]:
        if self._summary is None:
            ordered = sorted(self._delays)
            median = ordered[len(ordered) // 2]
            deviation = statistics.median(abs(delay - median) for delay in ordered)
            self._summary = median, _NORMAL_MAD * deviation
        return self._summary
