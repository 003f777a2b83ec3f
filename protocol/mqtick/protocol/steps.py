"""Whether the host's clock was stepped, or the host slept, since the last look."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["StepDetector"]


class StepDetector:
    """Notices that CLOCK_REALTIME was stepped or that the host slept, between two looks.

    CLOCK_REALTIME minus CLOCK_BOOTTIME moves only when the clock is set: both are slewed alike, and
    both count the time that the host sleeps. CLOCK_BOOTTIME minus CLOCK_MONOTONIC moves only while
    the host is suspended. `read(clock)` reads a clock, in ns.
    """

    __slots__ = ("_read_ns", "_slept", "_stepped", "tolerance_ns")

    def __init__(
        self, tolerance_ns: int = 100_000, read: Callable[[int], int] = time.clock_gettime_ns
    ) -> None:
        self.tolerance_ns = tolerance_ns
        self._read_ns = read
        self._stepped, self._slept = self._read()

    def _read(self) -> tuple[int, int]:
        """Read both differences; if a read was interrupted for too long, read again."""
        best: tuple[int, int, int] | None = None
        for _ in range(5):
            before = self._read_ns(time.CLOCK_MONOTONIC)
            realtime = self._read_ns(time.CLOCK_REALTIME)
            boottime = self._read_ns(time.CLOCK_BOOTTIME)
            width = self._read_ns(time.CLOCK_MONOTONIC) - before
            middle = before + width // 2
            if best is None or width < best[0]:
                best = width, realtime - boottime, boottime - middle
            if width <= self.tolerance_ns // 4:
                break
        assert best is not None
        return best[1:]

    def look(self) -> tuple[int, int]:
        """Return (step_ns, suspended_ns) since the last look; zero where below the tolerance.

        step_ns is positive when the clock was set forward. A read that was itself interrupted
        for longer than the tolerance is repeated.
        """
        for _ in range(3):
            stepped, slept = self._read()
            step, sleep = stepped - self._stepped, slept - self._slept
            if abs(step) <= self.tolerance_ns and abs(sleep) <= self.tolerance_ns:
                return 0, 0
        self._stepped, self._slept = stepped, slept
        return (
            step if abs(step) > self.tolerance_ns else 0,
            sleep if abs(sleep) > self.tolerance_ns else 0,
        )
