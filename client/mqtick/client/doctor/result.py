"""The doctor's first line: how far off this clock is, and how long chronyd will need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mqtick.service import Leap, Tracking
from mqtick.service.check import Check, Result

NAME = "result"
_GROSS_NS = 1_000_000_000
_SMALL_NS = 10_000_000
_MAX_SLEW_PPM = 1e6 / 12
"""chrony.conf(5), maxslewrate: its default."""


@dataclass(frozen=True, slots=True)
class Off:
    """How far off this host's clock is.

    Attributes:
        offset_ns: Reference minus this clock.
        bound_ns: How far that may be wrong, root distance included.
    """

    offset_ns: int
    bound_ns: int

    @property
    def certain_ns(self) -> int:
        """The least by which this clock is wrong."""
        return max(0, abs(self.offset_ns) - self.bound_ns)


@dataclass(frozen=True, slots=True)
class Steering:
    """What chronyd does to this clock.

    Attributes:
        tracking: Its state; None: it does not answer.
        steps: How often `makestep` lets it step; -1: always; 0: never.
        step_s: From which offset on.
        max_slew_ppm: How fast it slews at most.
        touches_nothing: Whether it runs with -x.
    """

    tracking: Tracking | None = None
    steps: int = 0
    step_s: float = 0.0
    max_slew_ppm: float = _MAX_SLEW_PPM
    touches_nothing: bool = False

    @classmethod
    def of(
        cls, tracking: Tracking | None, lines: Iterable[str], *, touches_nothing: bool
    ) -> Steering:
        """Return what the lines of chrony's configuration let it do."""
        steps, step_s, slew = 0, 0.0, _MAX_SLEW_PPM
        for line in lines:
            match line.lower().split():
                case ["makestep", least, most]:
                    step_s, steps = float(least), int(most)
                case ["maxslewrate", most]:
                    slew = float(most)
        return cls(tracking, steps, step_s, slew, touches_nothing)


def check_result(off: Off | str, steering: Steering | None) -> Check:
    """Say how far off the clock is, and what follows; `off` may be the reason why nobody knows.

    `steering` is None where nobody shall steer the clock.
    """
    if isinstance(off, str):
        what = "unknown how far your clock is off"
        return Check(NAME, "WARN", f"{what}: {off}", "a known offset", "see the lines below")
    value = f"your clock is off by {_span(off.offset_ns)} +- {_span(off.bound_ns).lstrip('+')}"
    result, need, remedy = _need(off, steering)
    expected = "" if result == "OK" else "right, or soon"
    return Check(NAME, result, f"{value}; {need}", expected, remedy)


def _need(off: Off, steering: Steering | None) -> tuple[Result, str, str]:
    """Return result, what chronyd will need, and a remedy."""
    certain_ns = off.certain_ns
    if steering is None:
        if certain_ns < _GROSS_NS:
            return "OK", 'nobody is to correct it (discipline = "none")', ""
        return "WARN", "nobody corrects it", 'set discipline = "chrony", or set the clock'
    found = steering.tracking
    if found is None:
        return "FAIL", "chronyd does not answer, so nobody corrects it", "systemctl status chrony"
    if steering.touches_nothing:
        remedy = "start it without -x; in a container: steer the host's clock instead"
        return "FAIL", "chronyd runs with -x and will never correct it", remedy
    if certain_ns < _SMALL_NS and abs(off.offset_ns) < _SMALL_NS + off.bound_ns:
        return "OK", "chronyd needs no time: it keeps it there", ""
    if steering.steps and abs(off.offset_ns) >= steering.step_s * 1e9:
        if steering.steps < 0:
            return "WARN", "chronyd will need one update: it steps", "ask again in a minute"
        if found.leap is Leap.UNSYNCHRONISED:
            what = "chronyd will need its first samples: it steps then (makestep)"
            return "WARN", what, "ask again in a minute"
    slew_s = abs(off.offset_ns) / 1e3 / steering.max_slew_ppm
    need = f"chronyd will need at least {_duration(slew_s)} of slewing"
    if certain_ns < _GROSS_NS:
        return "WARN", need, "wait, or at once: sudo chronyc makestep"
    why = "makestep is used up" if steering.steps else "chrony.conf has no makestep"
    knows = abs(found.offset_reference_minus_local_ns - off.offset_ns) < abs(off.offset_ns) // 2
    if not knows:
        need = f"chronyd does not know it (it sees {_span(found.offset_reference_minus_local_ns)})"
    return "FAIL", f"{need}; {why}", "sudo chronyc makestep, once the lines below are good"


def _span(value_ns: int) -> str:
    for limit_ns, unit, scale in ((1e6, "us", 1e3), (1e9, "ms", 1e6)):
        if abs(value_ns) < limit_ns:
            return f"{value_ns / scale:+.1f} {unit}"
    return f"{value_ns / 1e9:+.3f} s"


def _duration(seconds: float) -> str:
    for limit_s, unit, scale in ((120, "s", 1), (7200, "min", 60)):
        if seconds < limit_s:
            return f"{seconds / scale:.0f} {unit}"
    return f"{seconds / 3600:.0f} h"
