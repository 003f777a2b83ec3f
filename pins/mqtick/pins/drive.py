"""Outputs in an event loop: edges on demand, pulses that end later, one edge a second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from mqtick.pins.output import Output
from mqtick.pins.pps import Pps, PpsEdge, RawOfTime

__all__ = ["PpsDriver", "firing"]

_ASK_AGAIN_NS = 500_000_000


class Loop(Protocol):
    """What is asked of an event loop; delays in ns, instants on CLOCK_MONOTONIC."""

    def call_later(self, delay_ns: int, callback: Callable[[], None]) -> Any:
        """Call after a delay."""

    def call_at(self, due_ns: int, callback: Callable[[], None], *, precise: bool) -> Any:
        """Call at an instant; `precise` ones to the microsecond."""


def firing(loop: Loop, output: Output) -> Callable[[], None]:
    """Return a function that makes an edge at once and, for a long pulse, ends it later."""
    release_after_ns = output.release_after_ns
    if not release_after_ns:
        return output.fire  # type: ignore[return-value]

    def fire() -> None:
        output.fire()
        loop.call_later(release_after_ns, output.release)

    return fire


class PpsDriver:
    """Keeps a `Pps` going in a loop, and the last edges with their brackets."""

    def __init__(self, loop: Loop, output: Output, raw_of_time: RawOfTime) -> None:
        self.pps = Pps(output, raw_of_time)
        self.edges: deque[PpsEdge] = deque(maxlen=64)
        self._loop = loop
        self._output = output

    def start(self) -> None:
        """Begin; edges come whenever the clock is known."""
        self._schedule()

    def _schedule(self) -> None:
        due_raw_ns = self.pps.next_due_ns()
        if due_raw_ns is None:
            self._loop.call_later(_ASK_AGAIN_NS, self._schedule)
            return
        ahead_ns = due_raw_ns - time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        if ahead_ns > 2 * _ASK_AGAIN_NS:  # the estimate may change until then
            self._loop.call_later(_ASK_AGAIN_NS, self._schedule)
            return
        self._loop.call_at(time.monotonic_ns() + ahead_ns, self._run, precise=True)

    def _run(self) -> None:
        edge = self.pps.run(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
        if edge is not None:
            self.edges.append(edge)
            if self._output.release_after_ns:
                self._loop.call_later(self._output.release_after_ns, self._output.release)
        self._schedule()
