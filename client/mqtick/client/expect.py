"""When the next time message is due: to be awake a moment before the pin has to be driven.

A program that slept since the last message is slow at first: the processor has to wake up, and
code and data have left its caches. Servers publish at whole multiples of an interval, so the next
message can be foretold; a rehearsal shortly before it halves the time from arrival to pin
(bench/results/arrival.md).
"""

from __future__ import annotations

from collections import deque

__all__ = ["Expectation"]

_REMEMBERED = 16
_LEAD_NS = 100_000
_SHORTEST_NS, _LONGEST_NS = 5_000_000, 70_000_000_000


class Expectation:
    """Foretells one server's messages from those that came; instants are CLOCK_MONOTONIC, ns."""

    __slots__ = ("_messages", "due_ns")

    def __init__(self) -> None:
        self.due_ns: int | None = None
        """When to be ready for the next message; None if that is not known."""
        self._messages: deque[tuple[int, int, int]] = deque(maxlen=_REMEMBERED)

    def note(self, sequence: int, stated_ns: int, came_ns: int) -> None:
        """Note a message, and foretell the next one.

        `stated_ns`: the transmit time it states, which tells the interval better than arrivals do.
        """
        messages, self.due_ns = self._messages, None
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
        # The least delayed of the last ones: anything earlier still finds us asleep.
        earliest_ns = min(came - round(number * interval_ns) for number, _, came in messages)
        self.due_ns = earliest_ns + round((sequence + 1) * interval_ns) - _LEAD_NS
