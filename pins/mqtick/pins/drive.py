"""Outputs in an event loop: edges on demand, pulses that end later, one edge per second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mqtick.pins.base import Edge, LatencyClass
from mqtick.pins.output import Output
from mqtick.pins.pps import Pps, PpsEdge, RawOfTime

_ASK_AGAIN_NS = 500_000_000


class Loop(Protocol):
    """What is asked of an event loop; delays in ns, instants on CLOCK_MONOTONIC."""

    def call_later(self, delay_ns: int, callback: Callable[[], None]) -> Any:
        """Call after a delay."""

    def call_at(self, due_ns: int, callback: Callable[[], None], *, precise: bool) -> Any:
        """Call at an instant; `precise` ones to the microsecond."""


def firing(loop: Loop, output: Output, edges: deque[Edge] | None = None) -> Callable[[], None]:
    """Return a function that makes an edge at once and, for a long pulse, ends it later.

    `edges`: where each edge is kept, if anywhere, after it was made.
    """
    release_after_ns = output.release_after_ns
    if not release_after_ns and edges is None:
        return output.fire  # type: ignore[return-value]

    def fire() -> None:
        edge = output.fire()
        if edges is not None:
            edges.append(edge)
        if release_after_ns:
            loop.call_later(release_after_ns, output.release)

    return fire


def about_outputs(found: Mapping[str, Output]) -> dict[str, Any]:
    """Return `pins`, what a record of a measurement needs to know of each, and `simulated`."""
    return {
        "pins": {
            name: {
                "line": output.name,
                "backend": output.settings.backend,
                "latency_class": str(output.latency_class),
                "mode": output.settings.mode,
                "width_us": output.settings.width_us,
                "active_low": output.settings.active_low,
            }
            for name, output in found.items()
        },
        "simulated": any(
            output.latency_class is LatencyClass.SIMULATED for output in found.values()
        ),
    }


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
        if ahead_ns > 2 * _ASK_AGAIN_NS:  # the estimate may change before then
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
