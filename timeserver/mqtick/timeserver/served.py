"""The served clock: the system clock, held to a rate that changes slowly.

chronyd may slew the system clock by up to 83,333 ppm (`maxslewrate`) at any moment, and no client
can know of it before its next exchange. So a time server does not serve the system clock as it is.
It serves it within a corridor: about a line of the rate that the system clock has had, on a
timeline that nobody slews. As long as the system clock keeps to the corridor, both are equal. If it
leaves, the served clock follows at the limit, and states by how much it lags. chrony's directive
`smoothtime` is the precedent.

Rates are relative to that steady timeline (CLOCK_MONOTONIC_RAW), so a change of the server's
crystal counts as a change of the rate of its system clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from mqtick.protocol.clocks import Clock
from mqtick.protocol.time_types import NS_PER_S

_LOOK_NS = 900_000_000
_LOOKS = 5
_LEARN_NS = (_LOOKS - 1) * _LOOK_NS
_ATTEMPTS = 5
_TIGHT_NS = 250
_WIDE_NS = 10_000
# Half the width of the corridor: ppb, and the noise of the readings.
_CORRIDOR_PPB = 250
_NOISE_NS = 200
# How fast the corridor's rate follows that of the system clock: 0.9 ppm in an hour. Between day and
# night, a crystal drifts by some 3 ppm.
_FOLLOW_PPB_PER_S = 0.25
_LINE_S = 1000
# So much may have been slewed without being noticed when a stamp is converted, at most: where
# readings are too uncertain to say so, any slew is reckoned with.
_UNNOTICED_NS = 8_000
# The most by which a clock of Linux is slewed is 10.05 % (adjtimex: tick and frequency).
_MOST_SLEW = 8
RATE_CHANGE_PPB: Final = 2 * _CORRIDOR_PPB + round(_FOLLOW_PPB_PER_S * _LINE_S)
"""The promise: how much the served time departs from the line through its last 1000 s.

In ns for each second that passes, up to 1000 s. The line may lie at one edge of the corridor, and
what follows at the other. The corridor's own rate was, in the mean of the last 1000 s, and will be,
in the mean of the next 1000 s, different by half of what it follows in that time.
"""


class Look(NamedTuple):
    """A reading of the system clock: it read `time_ns` when the steady timeline was at `raw_ns`."""

    raw_ns: int
    time_ns: int
    half_width_ns: int
    """How wrong `raw_ns` can be."""


class Reading(NamedTuple):
    """Three clocks at one instant: the steady timeline, the system clock, the served clock."""

    raw_ns: int
    time_ns: int
    served_ns: int
    rate_ppb: float | None = None
    """How much faster the served clock runs than the steady timeline; None: not learned yet."""
    half_width_ns: int = 0
    """How wrong `raw_ns` can be: much, if the program was interrupted meanwhile."""

    @property
    def lag_ns(self) -> int:
        """System clock minus served clock: positive while the served clock is behind."""
        return self.time_ns - self.served_ns


def most_lag_ns(root_distance_ns: int) -> int:
    """Return above which lag a steady system clock of this root distance is taken anew."""
    return max(100_000, root_distance_ns // 4)


class ServedClock:
    """Limits the rate of another clock; implements `Clock`, with the steady timeline as raw.

    `steady()` reads CLOCK_MONOTONIC_RAW. `look` has to be called about once a second, `begin` when
    the other clock was set. In its first seconds it learns the rate: it equals the other clock, and
    `rate_change_ppb` is None.
    """

    def __init__(self, clock: Clock, steady: Callable[[], int]) -> None:
        self._clock, self._steady = clock, steady
        self.begin()

    def begin(self) -> None:
        """Serve the other clock as it is, and learn its rate anew."""
        self._looks = deque([self.look_at_system()])
        self._anchor = self._looks[0]
        self._rate_ppb: float | None = None
        self._was_steady = True

    # -- about once a second ---------------------------------------------------------------------

    def look_at_system(self) -> Look:
        """Read the other clock between two readings of the steady timeline; a few attempts."""
        best: Look | None = None
        for _ in range(_ATTEMPTS):
            before_ns, time_ns, after_ns = self._steady(), self._clock.time_ns(), self._steady()
            width_ns = after_ns - before_ns
            if best is None or width_ns < 2 * best.half_width_ns:
                best = Look((before_ns + after_ns) // 2, time_ns, (width_ns + 1) // 2)
            if best.half_width_ns <= _TIGHT_NS:
                break
        assert best is not None
        return best

    def look(
        self, most_lag_ns: int, runs_true: Callable[[float], bool] = lambda _rate_ppb: True
    ) -> bool:
        """Follow the other clock; whether its time was taken anew, so that a generation begins.

        That happens when it has been steady for some seconds, and the lag is above `most_lag_ns`:
        or when it was not steady from the beginning, and its rate is known only now. `runs_true`:
        whether a rate (ppb) may be that of UTC. One that may not is a slew, however steady.
        """
        if self._steady() - self._looks[-1].raw_ns < _LOOK_NS:
            return False
        look = self.look_at_system()
        if look.half_width_ns > _WIDE_NS:
            return False  # the corridor stays as it is until a better reading
        self._follow(look)
        looks = self._looks
        looks.append(look)
        while len(looks) > _LOOKS and look.raw_ns - looks[1].raw_ns >= _LEARN_NS:
            looks.popleft()
        rate_ppb = self._steady_rate_ppb()
        if rate_ppb is None or not runs_true(rate_ppb):
            if self._rate_ppb is None:
                self._was_steady &= len(looks) < _LOOKS
            return False
        is_anew = not self._was_steady
        if self._rate_ppb is not None:
            is_anew = abs(look.time_ns - self._anchor.time_ns) > most_lag_ns
        if self._rate_ppb is None or is_anew:
            self._rate_ppb, self._anchor = rate_ppb, look
        return is_anew

    def _steady_rate_ppb(self) -> float | None:
        """The rate of the other clock in the last looks, if it was constant within the corridor."""
        first, last = self._looks[0], self._looks[-1]
        elapsed_ns = last.raw_ns - first.raw_ns
        if len(self._looks) < _LOOKS or elapsed_ns < _LEARN_NS:
            return None
        rate_ppb = _rate_ppb(first, last)
        for look in self._looks:
            after_ns = look.raw_ns - first.raw_ns
            off_ns = look.time_ns - first.time_ns - after_ns - _share(after_ns, rate_ppb)
            room_ns = _share(min(after_ns, elapsed_ns - after_ns), _CORRIDOR_PPB)
            if abs(off_ns) > room_ns + 2 * _NOISE_NS + look.half_width_ns:
                return None
        return rate_ppb

    def _follow(self, look: Look) -> None:
        """Move the anchor to the look, as far as the corridor allows, and turn the corridor."""
        if self._rate_ppb is None:
            return
        elapsed_ns = look.raw_ns - self._anchor.raw_ns
        line_ns = self._anchor.time_ns + elapsed_ns + _share(elapsed_ns, self._rate_ppb)
        room_ns = _share(elapsed_ns, _CORRIDOR_PPB)
        time_ns = min(max(look.time_ns, line_ns - room_ns), line_ns + room_ns)
        self._anchor = Look(look.raw_ns, time_ns, 0)
        most_ppb = _FOLLOW_PPB_PER_S * elapsed_ns / NS_PER_S
        off_ppb = _rate_ppb(self._looks[-1], look) - self._rate_ppb
        self._rate_ppb += min(max(off_ppb, -most_ppb), most_ppb)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def rate_change_ppb(self) -> int | None:
        """What messages promise, ppb (`RATE_CHANGE_PPB`); None while the rate is being learned."""
        return None if self._rate_ppb is None else RATE_CHANGE_PPB

    def read(self) -> Reading:
        """Read all three clocks."""
        before_ns, time_ns, after_ns = self._steady(), self._clock.time_ns(), self._steady()
        served_ns, rate_ppb = time_ns, self._rate_ppb
        if rate_ppb is not None:
            # Whatever instant of this call the reading is of, it lies in the corridor.
            anchor_ns, start_ns, _ = self._anchor
            early_ns, late_ns = before_ns - anchor_ns, after_ns - anchor_ns
            least_ns = early_ns + _share(early_ns, rate_ppb) - _share(early_ns, _CORRIDOR_PPB)
            most_ns = late_ns + _share(late_ns, rate_ppb) + _share(late_ns, _CORRIDOR_PPB)
            least_ns, most_ns = start_ns + least_ns - _NOISE_NS, start_ns + most_ns + _NOISE_NS
            served_ns = min(max(time_ns, least_ns), most_ns)
        raw_ns, half_width_ns = (before_ns + after_ns) // 2, (after_ns - before_ns + 1) // 2
        return Reading(raw_ns, time_ns, served_ns, rate_ppb, half_width_ns)

    def raw_ns(self) -> int:
        """Read CLOCK_MONOTONIC_RAW."""
        return self._steady()

    def time_ns(self) -> int:
        """Read the served clock: Unix time, UTC."""
        return self.read().served_ns

    def time_minus_raw_ns(self) -> int:
        """Return what to add to a raw reading, now, to get the served time."""
        now = self.read()
        return now.served_ns - now.raw_ns

    def raw_of_kernel_ns(self, realtime_ns: int) -> int:
        """Convert a recent kernel timestamp (CLOCK_REALTIME) to CLOCK_MONOTONIC_RAW."""
        return self.time_of_kernel_ns(realtime_ns) - self.time_minus_raw_ns()

    def time_of_kernel_ns(self, realtime_ns: int) -> int:
        """Convert a recent kernel timestamp (CLOCK_REALTIME) to the served time."""
        return sum(self.span_of_kernel_ns(realtime_ns)) // 2

    def span_of_kernel_ns(self, realtime_ns: int, now: Reading | None = None) -> tuple[int, int]:
        """Return the earliest and the latest served time that a kernel timestamp can stand for.

        `now`: a reading made after the timestamp; without one, the clocks are read.

        The timestamp is on the system clock, and what that one was slewed since is known only if
        its rate is constant. Otherwise it may have been slewed back and forth since the last look;
        but no clock is slewed by more than an eighth.
        """
        now, time_ns = now or self.read(), self._clock.time_of_kernel_ns(realtime_ns)
        if now.rate_ppb is None:
            return time_ns, time_ns
        age_ns = max(0, now.time_ns - time_ns)
        most_ns = age_ns // _MOST_SLEW
        least_ns, looks, at = -most_ns, self._looks, len(self._looks) - 1
        while at >= 0 and looks[at].time_ns > time_ns:
            at -= 1
        if at >= 0:
            last, unsure_ns, before_ppb = looks[at], now.half_width_ns, 0.0
            elapsed_ns = now.raw_ns - last.raw_ns
            slewed_ns = now.time_ns - last.time_ns - elapsed_ns
            slewed_ns -= _share(elapsed_ns, now.rate_ppb)
            unsure_ns += last.half_width_ns
            if at:
                unsure_ns += looks[at - 1].half_width_ns
                before_ppb = _rate_ppb(looks[at - 1], last) - now.rate_ppb
            if abs(before_ppb) <= _CORRIDOR_PPB:  # the served clock goes with it
                before_ppb = 0.0
            noise_ns = unsure_ns + 2 * _NOISE_NS + _share(elapsed_ns, 2 * _CORRIDOR_PPB)
            off_ns = abs(slewed_ns - _share(elapsed_ns, before_ppb))
            if off_ns <= min(noise_ns, _UNNOTICED_NS - unsure_ns):  # at a constant rate
                least_ns = most_ns = round(age_ns * before_ppb / (NS_PER_S + before_ppb))
            elif off_ns <= noise_ns:  # or at another one, by as much as the readings cannot tell
                least_ns = max(least_ns, min(slewed_ns - unsure_ns, 0))
                most_ns = min(most_ns, max(slewed_ns + unsure_ns, 0))
        served_ns = time_ns - now.lag_ns
        return served_ns + least_ns, served_ns + most_ns


def _share(of_ns: int, ppb: float) -> int:
    return round(of_ns * ppb / NS_PER_S)


def _rate_ppb(first: Look, last: Look) -> float:
    """The rate of the system clock between two looks, beyond that of the steady timeline."""
    elapsed_ns = last.raw_ns - first.raw_ns
    return (last.time_ns - first.time_ns - elapsed_ns) / elapsed_ns * NS_PER_S
