"""One edge at each whole second of the disciplined clock (or another period): schedule and edge.

Nothing here waits long or owns a thread.  The event loop asks `next_due_ns()` when to hand
over, calls `run()` at that time, and asks again.  run() spins for the last part, since a sleep
ends tens of microseconds late and a spin less than one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from mqtick.pins.base import Clock, PinError, monotonic_raw_ns
from mqtick.pins.output import Output

SECOND_NS: Final = 1_000_000_000
MIN_PERIOD_NS: Final = 1_000_000
MAX_PERIOD_NS: Final = 86_400 * SECOND_NS
MIN_LEAD_NS: Final = 10_000
LEAD_NS: Final = 1_000_000
"""How long before the edge the event loop hands over: more than its usual wake-up delay, and more
than `raw_of_time` takes after a second of rest. At most a quarter of the period."""
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
    """Makes an edge of an output at each multiple of a period of the disciplined clock."""

    def __init__(
        self,
        output: Output,
        raw_of_time: RawOfTime,
        period_ns: int = SECOND_NS,
        lead_ns: int | None = None,
        late_limit_ns: int = LATE_LIMIT_NS,
        now: Clock = monotonic_raw_ns,
        rough_time_ns: Clock = time.time_ns,
    ) -> None:
        """Set up the schedule; raises PinError if period, lead or limit is unusable.

        `raw_of_time` converts a disciplined instant (ns, UTC) to CLOCK_MONOTONIC_RAW in ns; it
        may answer differently each time, as its estimate improves, and answers None while the
        clock is not synchronised, when no edges are made.  `now` reads CLOCK_MONOTONIC_RAW.
        `rough_time_ns` only says where the search for the present second begins.
        """
        if lead_ns is None:
            lead_ns = min(LEAD_NS, period_ns // 4)
        _check(period_ns, lead_ns, late_limit_ns, output)
        self.period_ns = period_ns
        self.lead_ns = lead_ns
        self.late_limit_ns = late_limit_ns
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
        as missed.  Ask again after each run() and when the clock's estimate changed.
        """
        target_ns = self._target_ns(self._now())
        return None if target_ns is None else target_ns - self.lead_ns

    def run(self, now_ns: int) -> PpsEdge | None:
        """Spin until the next second, make its edge and say when; None if there was none.

        `now_ns` is when the loop handed over (CLOCK_MONOTONIC_RAW).  Returns None at once when
        that was too early (by more than another lead: ask next_due_ns() again) or too late (the
        second is counted in `missed`), when the clock is not synchronised, or when the output
        failed (counted in `failed`).  Blocks for two leads at most.
        """
        target_ns = self._target_ns(now_ns)
        second_ns = self._second_ns
        if target_ns is None or second_ns is None or target_ns - now_ns > 2 * self.lead_ns:
            return None
        now = self._now
        if target_ns - now() > REHEARSE_NS:
            self._output.rehearse()
        reached_ns = now()
        while reached_ns < target_ns:
            reached_ns = now()
        if reached_ns - target_ns > self.late_limit_ns:
            self._skip(second_ns, reached_ns, reached_ns - target_ns)
            return None
        edge = self._output.fire()
        self._second_ns = second_ns + self.period_ns
        self._since_ns = reached_ns
        if not edge.made:
            self.failed += 1
            self._output.release()  # a pulse that failed half-way must not block the next
            return None
        self.made += 1
        if edge.before_ns - target_ns > self.late_limit_ns:
            self.late += 1
        return PpsEdge(second_ns, target_ns, edge.before_ns, edge.after_ns, edge.level)

    def _target_ns(self, now_ns: int) -> int | None:
        """Convert the next second to CLOCK_MONOTONIC_RAW; None while not synchronised."""
        if self._second_ns is None:
            return self._search(now_ns)
        target_ns = self._raw_of_time(self._second_ns)
        if target_ns is None:
            self._second_ns = None  # time went on unseen: search for it when it is known again
        elif target_ns - now_ns > 2 * self.period_ns:
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
        self._second_ns = ((time_ns + self.lead_ns) // self.period_ns + 1) * self.period_ns
        return self._raw_of_time(self._second_ns)

    def _skip(self, second_ns: int, now_ns: int, late_ns: int) -> None:
        """Skip a second, and all that follow until now."""
        passed = late_ns // self.period_ns + 1
        # If the clock was stepped forward, most of these never existed: count those that could.
        self.missed += min(passed, (now_ns - self._since_ns) // self.period_ns + 1)
        self._second_ns = second_ns + passed * self.period_ns
        self._since_ns = now_ns


def _check(period_ns: int, lead_ns: int, late_limit_ns: int, output: Output) -> None:
    whole = period_ns > 0 and (SECOND_NS % period_ns == 0 or period_ns % SECOND_NS == 0)
    if not whole or not MIN_PERIOD_NS <= period_ns <= MAX_PERIOD_NS:
        raise PinError(
            f"The period is {period_ns} ns, but must be a whole fraction or multiple of a second "
            f"from {MIN_PERIOD_NS} to {MAX_PERIOD_NS} ns, so no edges are made; use 1000000000 "
            "for one edge per second."
        )
    if not MIN_LEAD_NS <= lead_ns <= period_ns // 4:
        raise PinError(
            f"The lead is {lead_ns} ns, outside the limits {MIN_LEAD_NS} to {period_ns // 4} ns "
            f"(a quarter of the period), so no edges are made; {LEAD_NS} is usual."
        )
    if not 0 <= late_limit_ns <= period_ns // 4:
        raise PinError(
            f"The limit of lateness is {late_limit_ns} ns, outside the limits 0 to "
            f"{period_ns // 4} ns (a quarter of the period), so no edges are made; "
            f"{LATE_LIMIT_NS} is usual."
        )
    if output.settings.mode == "pulse" and output.settings.width_us * 2000 > period_ns:
        raise PinError(
            f"width_us is {output.settings.width_us} us, more than half of the period of "
            f"{period_ns} ns, so pulses would overlap; choose a smaller width or a longer period."
        )
