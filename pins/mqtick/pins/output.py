"""Makes edges on a line: toggles or pulses, polarity, the time bracket, the count of failures."""

from __future__ import annotations

from collections.abc import Callable

from mqtick.pins.base import (
    COMPLETE_US,
    Clock,
    Edge,
    LatencyClass,
    Line,
    PinSettings,
    PulseLine,
    monotonic_raw_ns,
)


class Output:
    """Makes edges on a line and says when: the object of the hot path.

    fire() does not log, does not raise and makes nothing but the Edge it returns. One thread
    only. Edges that failed are counted in `errors`, and the last reason is in `last_error`.
    """

    __slots__ = (
        "_active",
        "_closed",
        "_complete_ns",
        "_make",
        "_now",
        "_pulsed_by_line",
        "_pulsing",
        "broken",
        "errors",
        "last_error",
        "latency_class",
        "level",
        "line",
        "name",
        "release_after_ns",
        "settings",
    )

    def __init__(self, line: Line, settings: PinSettings, now: Clock = monotonic_raw_ns) -> None:
        """Take over a line that is at its inactive level; `now` is CLOCK_MONOTONIC_RAW in ns."""
        self.settings = settings
        self.level = settings.inactive_level
        """The electrical level to which this output last set the line: True is high."""
        self.broken = False
        """Whether the line itself failed when it was last asked."""
        self.errors = 0
        """Edges, releases and closings that failed or were refused."""
        self.last_error = ""
        """Why the last of them failed; empty if none did."""
        self.release_after_ns = 0
        """How long after an edge, in ns, to call release(); 0: never."""
        self._now = now
        self._closed = False
        self._pulsing = settings.mode == "pulse"
        if self._pulsing and settings.width_us > COMPLETE_US:
            self.release_after_ns = settings.width_us * 1000
        self.take(line)

    def take(self, line: Line) -> None:
        """Drive another line from now on, which is at its inactive level; the old is not closed."""
        self.line, self.name, self.latency_class = line, line.name, line.latency_class
        self.level = self.settings.inactive_level
        self.broken = self._active = self._pulsed_by_line = False
        self._complete_ns = 0
        self._make = line.set
        if self._pulsing and not self.release_after_ns:
            if isinstance(line, PulseLine):
                self._make, self._pulsed_by_line = line.pulse, True
            else:
                self._complete_ns = self.settings.width_us * 1000

    def fire(self) -> Edge:
        """Make the edge at once, and return when it was (see Edge; `made` is false on failure).

        A pulse that finds the line still active makes no edge (there is none to make): it is
        counted as an error, and the line is released so that the next one works. Blocks for the
        back end's delay, and for a pulse of up to 100 us until its end.
        """
        pulsing = self._pulsing
        level = self.settings.active_level if pulsing else not self.level
        if self._closed or self._active:
            return self._refused()
        # Before the attempt: a line that failed half-way may be active, and release() must end it.
        self._active = pulsing and not self._pulsed_by_line
        edge = self._attempt(self._make, level)
        if edge.after_ns and not self._pulsed_by_line:
            self.level = level
        if self._complete_ns:
            now = self._now
            end_ns = edge.after_ns + self._complete_ns
            while now() < end_ns:
                pass
            self.release()
        return edge

    def rehearse(self) -> None:
        """Do what fire() does, but with the level the line has, so that there is no edge.

        Code and data that were idle for a second are slow the first time: a rehearsal some 50 us
        before fire() makes the bracket of its edge many times narrower. Does nothing where an
        edge takes a daemon's time, nor during a pulse.
        """
        if self._closed or self._active or self.latency_class is LatencyClass.DAEMON:
            return
        errors = self.errors
        self._attempt(self.line.set, self.level)
        self.errors = errors  # what fails now fails again at once, and is counted then

    def _attempt(self, make: Callable[[bool], None], level: bool) -> Edge:
        now = self._now
        before_ns = now()
        try:
            make(level)
        except Exception as trouble:
            self._count(trouble)
            return Edge(before_ns, 0, self.level)
        after_ns = now()
        self.broken = False
        return Edge(before_ns, after_ns, level)

    def release(self) -> None:
        """End a pulse; does nothing at any other time.

        Call it release_after_ns after each fire(), even one that failed: the line may be active all
        the same.
        """
        if self._active:
            self._rest()

    def close(self) -> None:
        """Set the line to its inactive level and release it; a second call does nothing."""
        if self._closed:
            return
        self._rest()
        self._closed = True
        try:
            self.line.close()
        except Exception as trouble:
            self._count(trouble)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _rest(self) -> None:
        try:
            self.line.set(self.settings.inactive_level)
        except Exception as trouble:
            self._count(trouble)
        else:
            self.level = self.settings.inactive_level
            self._active = False

    def _refused(self) -> Edge:
        before_ns = self._now()
        self.errors += 1
        if self._closed:
            self.last_error = f"{self.name} is closed, so no edge was made."
        else:
            self.last_error = (
                f"{self.name} was still active when the next pulse was due, so no edge was made; "
                f"width_us is {self.settings.width_us} us: choose less, or make edges less often."
            )
            self._rest()
        return Edge(before_ns, 0, self.level)

    def _count(self, trouble: Exception) -> None:
        self.broken = True
        self.errors += 1
        self.last_error = str(trouble) or type(trouble).__name__
