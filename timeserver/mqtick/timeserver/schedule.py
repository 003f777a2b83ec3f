"""When to publish: absolute deadlines, so that lateness never adds up."""

from __future__ import annotations

from dataclasses import dataclass


def next_deadline_ns(time_ns: int, interval_ns: int) -> int:
    """Return the next whole multiple of the interval (Unix time, ns) after `time_ns`."""
    return (time_ns // interval_ns + 1) * interval_ns


@dataclass(slots=True)
class Lateness:
    """How long after their deadlines messages were sent, ns; also counts missed deadlines."""

    count: int = 0
    last_ns: int = 0
    maximum_ns: int = 0
    total_ns: int = 0
    missed: int = 0

    def note(self, deadline_ns: int, sent_ns: int, interval_ns: int) -> None:
        """Record one publication; whole intervals that passed meanwhile count as missed."""
        late_ns = max(0, sent_ns - deadline_ns)
        self.count += 1
        self.last_ns = late_ns
        self.total_ns += late_ns
        self.maximum_ns = max(self.maximum_ns, late_ns)
        self.missed += late_ns // interval_ns

    @property
    def mean_ns(self) -> int:
        """Mean lateness, ns; 0 before the first message."""
        return self.total_ns // self.count if self.count else 0
