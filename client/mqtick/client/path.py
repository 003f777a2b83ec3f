"""Learned delays: the constant difference between a lesser kind of measurement and a better one."""

from __future__ import annotations

import statistics
from collections import deque

_NORMAL_MAD = 1.4826
"""Standard deviation over median absolute deviation, for normal errors."""
_ENOUGH = 4
"""From this many delays on, their median is used."""


class PathDelay:
    """A delay that is learned while there are exchanges, and used while there are none.

    While exchanges tell the offset, the delay of each broadcast is known: arrival + offset - T. The
    median of these delays turns later broadcasts into offsets, and their spread is the standard
    deviation of those offsets. In the same way the difference between two-way samples and echoes is
    learned (half the asymmetry of the path). Median and median absolute deviation are used, because
    delays have heavy tails.

    If only the least delayed broadcast of a group will be used, only such broadcasts may be learned
    from: with `group_ns`, the least delay of each period of that length counts, once the period is
    over.
    """

    __slots__ = ("_delays", "_group", "_summary", "group_ns")

    def __init__(self, samples: int, group_ns: int = 0) -> None:
        self._delays: deque[int] = deque(maxlen=samples)
        self.group_ns = group_ns
        self._group: tuple[int, int] | None = None  # the group's begin, and its least delay
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
        """The least of the delays; 0 if there is none."""
        return min(self._delays, default=0)

    def _summarise(self) -> tuple[int, float]:
        if self._summary is None:
            ordered = sorted(self._delays)
            median = ordered[len(ordered) // 2]
            deviation = statistics.median(abs(delay - median) for delay in ordered)
            self._summary = median, _NORMAL_MAD * deviation
        return self._summary
