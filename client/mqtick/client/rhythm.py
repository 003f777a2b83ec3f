"""When a broker is busy with the broadcast, and when it is free for exchanges.

One time message to 600 clients keeps a broker busy for many milliseconds. An exchange that falls
into that measures the queue, not the path; a moment later nothing is in its way.
"""

from __future__ import annotations

import random

__all__ = ["Rhythm"]

_BEFORE_NS = 50_000_000
_AFTER_NS = 150_000_000
_LONGEST_NS = 65_000_000_000


class Rhythm:
    """Learns the interval of the broadcast from two messages in a row; times are local raw ns."""

    __slots__ = ("_interval_ns", "_last_ns")

    def __init__(self) -> None:
        self._last_ns: int | None = None
        self._interval_ns: int | None = None

    def note(self, heard_ns: int, *, next_in_row: bool) -> None:
        """Note a broadcast; `next_in_row`: no other was lost since the last one."""
        if self._last_ns is not None and next_in_row:
            gap_ns = heard_ns - self._last_ns
            self._interval_ns = gap_ns if 0 < gap_ns < _LONGEST_NS else None
        self._last_ns = heard_ns

    def wait_ns(self, now_ns: int, length_ns: int) -> int:
        """Return how long to wait before something that takes `length_ns` meets no broadcast.

        Those who have to wait spread over the whole free time, so that they do not meet each
        other instead. 0 where the interval is not known, or leaves no room.
        """
        if self._last_ns is None or self._interval_ns is None:
            return 0
        free_ns = self._interval_ns - _BEFORE_NS - _AFTER_NS - length_ns
        if free_ns <= 0:
            return 0
        phase_ns = (now_ns - self._last_ns) % self._interval_ns
        if _AFTER_NS <= phase_ns <= _AFTER_NS + free_ns:
            return 0
        to_next_ns = (_AFTER_NS - phase_ns) % self._interval_ns
        return to_next_ns + random.randrange(free_ns)
