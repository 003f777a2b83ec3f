"""Predicts a server's time messages, to prepare for the next one, and to ask at another time.

A program that has slept since the last message is slow at first: the processor has to wake up, and
code and data have left its caches. A rehearsal shortly before the next message halves the time from
arrival to pin (bench/results/arrival.md).

One time message to 600 clients keeps a broker busy for many milliseconds. An exchange that falls
into that measures the queue, not the path; a moment later nothing is in its way.
"""

from __future__ import annotations

import random
from collections import deque

_REMEMBERED = 16
_LEAD_NS = 100_000
_SHORTEST_NS, _LONGEST_NS = 5_000_000, 70_000_000_000
_BEFORE_NS, _AFTER_NS = 50_000_000, 150_000_000


class Rhythm:
    """Predicts one server's messages from earlier ones; instants are CLOCK_MONOTONIC, ns."""

    __slots__ = ("_interval_ns", "_messages", "due_ns")

    def __init__(self) -> None:
        self.due_ns: int | None = None
        """When to be ready for the next message; None if that is not known."""
        self._interval_ns = 0.0
        """The interval between messages; 0 while it is not known."""
        self._messages: deque[tuple[int, int, int]] = deque(maxlen=_REMEMBERED)

    def note(self, sequence: int, stated_ns: int, came_ns: int) -> None:
        """Note a message, and predict the next one.

        `stated_ns`: its stated transmit time, from which the interval is more exact than from
        arrivals.
        """
        messages, self.due_ns, self._interval_ns = self._messages, None, 0.0
        if messages and not 0 < sequence - messages[-1][0] < _REMEMBERED:
            messages.clear()  # another generation, or a long gap
        messages.append((sequence, stated_ns, came_ns))
        first_sequence, first_stated_ns, _ = messages[0]
        if sequence == first_sequence:
            return
        interval_ns = (stated_ns - first_stated_ns) / (sequence - first_sequence)
        if not _SHORTEST_NS <= interval_ns <= _LONGEST_NS:
            messages.clear()
            return
        self._interval_ns = interval_ns
        # Predict from the least delayed message, so that we are ready before most messages.
        earliest_ns = min(came - round(number * interval_ns) for number, _, came in messages)
        self.due_ns = earliest_ns + round((sequence + 1) * interval_ns) - _LEAD_NS

    def wait_ns(self, now_ns: int, length_ns: int) -> int:
        """Return how long to wait (ns) so that a burst of `length_ns` does not meet a message.

        Clients that have to wait choose random instants in the whole free time, so that their
        bursts do not meet each other. 0 if the interval is not known, or leaves no room.
        """
        interval_ns = round(self._interval_ns)
        free_ns = interval_ns - _BEFORE_NS - _AFTER_NS - length_ns
        if free_ns <= 0:
            return 0
        phase_ns = (now_ns - self._messages[-1][2]) % interval_ns
        if _AFTER_NS <= phase_ns <= _AFTER_NS + free_ns:
            return 0
        to_next_ns = (_AFTER_NS - phase_ns) % interval_ns
        return to_next_ns + random.randrange(free_ns)
