"""One edge at each whole second of the disciplined clock: schedule and edge.

Nothing here waits long or owns a thread. The event loop asks `next_due_ns()` when to hand
over, calls `run()` at that time, and asks again.  run() spins for the last part, since a sleep
ends tens of microseconds late and a spin less than one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from mqtick.pins.base import Clock, monotonic_raw_ns
from mqtick.pins.output import Output

SECOND_NS: Final = 1_000_000_000
LEAD_NS: Final = 1_000_000
"""How long before the edge the event loop hands over: more than its usual wake-up delay, and more
than `raw_of_time` takes after a second of rest."""
LATE_LIMIT_NS: Final = 10_000
"""An edge that could only be made later than this after its second is left out."""
REHEARSE_NS: Final = 50_000
"""The edge is rehearsed if at least this time is left, which a rehearsal from rest may take."""

RawOfTime = Callable[[int], int | None]


class PpsEdge(NamedTuple):
    """An edge that was made for a whole second.

    second_ns is the disciplined time it represents (ns, UTC); target_raw_ns the CLOCK_MONOTONIC_RAW
    that was aimed at; the edge was made between before_ns and after_ns (CLOCK_MONOTONIC_RAW).
    Its error of execution is thus before_ns - target_raw_ns to after_ns - target_raw_ns (positive:
    late); the error of the clock itself comes on top.
    """

    second_ns: int
    target_raw_ns: int
    before_ns: int
    after_ns: int
    level: bool


class Pps:
    """Makes an edge of an output at each whole second of the disciplined clock."""

    def __init__(
        self,
        output: Output,
        raw_of_time: RawOfTime,
        now: Clock = monotonic_raw_ns,
        rough_time_ns: Clock = time.time_ns,
    ) -> None:
        """Set up the schedule.

        `raw_of_time` converts a disciplined instant (ns, UTC) to CLOCK_MONOTONIC_RAW in ns; it
        may answer differently each time, as its estimate improves, and answers None while the
        clock is not synchronised, when no edges are made. `now` reads CLOCK_MONOTONIC_RAW.
        `rough_time_ns` only says where the search for the present second begins.
        """
        self.made = 0
        """Edges made."""
        self.late = 0
        """Those of them made later than the limit all the same: the machine held the program up
        between its last look at the clock and the edge."""
        self.missed = 0
        """Seconds that passed without an edge because run() was called, or went on, too late."""
        self.failed = 0
        """Seconds at which the output could not make its edge (see its last_error)."""
        self._output = output
        self._raw_of_time = raw_of_time
        self._now = now
        self._rough_time_ns = rough_time_ns
        self._second_ns: int | None = None  # the one that comes next; None: to be searched for
        self._since_ns = 0  # CLOCK_MONOTONIC_RAW when it became the one that comes next

    def next_due_ns(self) -> int | None:
        """When to call run(), as CLOCK_MONOTONIC_RAW in ns; None while not synchronised.

        May lie in the past, if the loop was held up: call run() at once, and it counts the second
        as missed. Ask again after each run() and when the clock's estimate changed.
        """
        target_ns = self._target_ns(self._now())
        return None if target_ns is None else target_ns - LEAD_NS

    def run(self, now_ns: int) -> PpsEdge | None:
        """Spin until the next second, make its edge and say when; None if there was none.

        `now_ns` is when the loop handed over (CLOCK_MONOTONIC_RAW). Returns None at once when
        that was too early (by more than another lead: ask next_due_ns() again) or too late (the
        second is counted in `missed`), when the clock is not synchronised, or when the output
        failed (counted in `failed`). Blocks for two leads at most.
        """
        target_ns = self._target_ns(now_ns)
        second_ns = self._second_ns
        if target_ns is None or second_ns is None or target_ns - now_ns > 2 * LEAD_NS:
            return None
        now = self._now
        if target_ns - now() > REHEARSE_NS:
            self._output.rehearse()
        reached_ns = now()
        while reached_ns < target_ns:
            reached_ns = now()
        if reached_ns - target_ns > LATE_LIMIT_NS:
            self._skip(second_ns, reached_ns, reached_ns - target_ns)
            return None
        edge = self._output.fire()
        self._second_ns = second_ns + SECOND_NS
        self._since_ns = reached_ns
        if not edge.made:
            self.failed += 1
            self._output.release()  # a pulse that failed half-way must not block the next
            return None
        self.made += 1
        if edge.before_ns - target_ns > LATE_LIMIT_NS:
            self.late += 1
        return PpsEdge(second_ns, target_ns, edge.before_ns, edge.after_ns, edge.level)

    def _target_ns(self, now_ns: int) -> int | None:
        """Convert the next second to CLOCK_MONOTONIC_RAW; None while not synchronised."""
        if self._second_ns is None:
            return self._search(now_ns)
        target_ns = self._raw_of_time(self._second_ns)
        if target_ns is None:
            self._second_ns = None  # time went on unseen: search for it when it is known again
        elif target_ns - now_ns > 2 * SECOND_NS:
            # The clock was stepped back: these seconds come again.
            return self._search(now_ns)
        return target_ns

    def _search(self, now_ns: int) -> int | None:
        """Find the first second that leaves the whole lead, and convert it."""
        # The conversion has a slope of nearly one, so each round leaves a thousandth.
        time_ns = self._rough_time_ns()
        for _ in range(8):
            raw_ns = self._raw_of_time(time_ns)
            if raw_ns is None:
                self._second_ns = None
                return None
            time_ns += now_ns - raw_ns
        self._since_ns = now_ns
        self._second_ns = ((time_ns + LEAD_NS) // SECOND_NS + 1) * SECOND_NS
        return self._raw_of_time(self._second_ns)

    def _skip(self, second_ns: int, now_ns: int, late_ns: int) -> None:
        """Skip a second, and all that follow until now."""
        passed = late_ns // SECOND_NS + 1
        # If the clock was stepped forward, most of these never existed: count those that could.
        self.missed += min(passed, (now_ns - self._since_ns) // SECOND_NS + 1)
        self._second_ns = second_ns + passed * SECOND_NS
        self._since_ns = now_ns
