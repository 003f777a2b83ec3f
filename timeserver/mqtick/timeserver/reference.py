"""The quality of the server's own clock according to chronyd: stratum, root distance, leap."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from mqtick.protocol.precise_fields import Leap
from mqtick.protocol.time_types import NS_PER_S
from mqtick.service import ChronydError, chronyd, why_not_synchronised
from mqtick.timeserver.served import Look, Reading

_STALE_NS = 60_000_000_000
_DRIFT_PPB = 1000
"""As chronyd assumes of a clock (`maxclockerror`), and clients of the root distance."""
_UNASKED_S = 1000
"""So long a client may hear nothing: as long as the promise of the served rate holds."""


class Asked(NamedTuple):
    """When chronyd said it: the system clock read `time_ns` at `raw_ns` (CLOCK_MONOTONIC_RAW)."""

    raw_ns: int
    time_ns: int
    unsure_ns: int = 0
    """By how much the system clock was slewed while chronyd was asked."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The quality of the system clock."""

    synchronised: bool
    stratum: int
    """1 to 15: the stratum of this server itself."""
    root_distance_ns: int
    """Bound of this clock's error against UTC, according to its source."""
    leap: Leap
    reason: str
    """A sentence for people: the source of this information."""
    rate_ppb: float = 0.0
    """How much faster UTC runs than CLOCK_MONOTONIC_RAW, according to chronyd."""
    rate_error_ppb: float = 0.0
    """Bound of that rate's error."""
    asked: Asked | None = None
    """When all this was so; None: it is so at any time."""

    def distance_ns(self, now: Reading) -> int:
        """Bound of the served clock's error against UTC, now.

        What chronyd says, it says of the system clock when it was asked. Whatever that clock was
        slewed since, UTC has gone on at the rate that chronyd knows. Clients let the bound grow by
        1 ppm until they ask again; what the two may drift apart beyond that is added at once.
        """
        asked = self.asked or Asked(now.raw_ns, now.time_ns)
        age_ns = now.raw_ns - asked.raw_ns
        utc_ns = asked.time_ns + age_ns + round(age_ns * self.rate_ppb / NS_PER_S)
        grown_ns = asked.unsure_ns + math.ceil(age_ns * self.rate_error_ppb / NS_PER_S)
        grown_ns += now.half_width_ns
        drift_ppb = self.rate_error_ppb - _DRIFT_PPB
        if self.asked is not None and now.rate_ppb is not None:
            drift_ppb += abs(self.rate_ppb - now.rate_ppb)
        grown_ns += math.ceil(max(drift_ppb, 0) * _UNASKED_S)
        return self.root_distance_ns + abs(utc_ns - now.served_ns) + grown_ns

    def may_be_utc(self, rate_ppb: float) -> bool:
        """Whether UTC may run so much faster than CLOCK_MONOTONIC_RAW, as far as is known."""
        near = abs(rate_ppb - self.rate_ppb) <= self.rate_error_ppb
        return self.synchronised and (self.asked is None or near)

    def between(self, before: Look, after: Look) -> Reference:
        """Return this as an answer to a question between two looks at the system clock."""
        raw_ns, time_ns = after.raw_ns - before.raw_ns, after.time_ns - before.time_ns
        slewed_ns = time_ns - raw_ns - round(raw_ns * self.rate_ppb / NS_PER_S)
        unsure_ns = abs(slewed_ns) + before.half_width_ns + after.half_width_ns
        return replace(self, asked=Asked(before.raw_ns, before.time_ns, unsure_ns))


def unsynchronised(reason: str) -> Reference:
    """Return the reference of a clock that is not synchronised."""
    return Reference(False, 15, 2**40, Leap.UNSYNCHRONISED, reason)


class ReferenceWatch:
    """Asks chronyd in a thread of its own, because chronyc may block; `current` never blocks.

    `look` looks at the system clock, before and after.
    """

    def __init__(
        self,
        interval_s: float,
        query: Callable[[], Reference],
        look: Callable[[], Look],
    ) -> None:
        self._query, self._look = query, look
        self._interval_s = interval_s
        self._latest = unsynchronised("chronyd was not asked yet.")
        self._asked_ns = time.monotonic_ns()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chronyd", daemon=True)

    def start(self) -> None:
        """Ask once now, then periodically in the thread."""
        self._ask()
        self._thread.start()

    def _ask(self) -> None:
        before, found, after = self._look(), self._query(), self._look()
        self._latest = found.between(before, after) if found.synchronised else found
        self._asked_ns = time.monotonic_ns()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._ask()

    @property
    def current(self) -> Reference:
        """The last answer; unsynchronised when it is older than a minute."""
        if time.monotonic_ns() - self._asked_ns > _STALE_NS + int(self._interval_s * 1e9):
            return unsynchronised("chronyd has not answered for more than a minute.")
        return self._latest

    def stop(self) -> None:
        """Stop asking."""
        self._stop.set()


def from_chronyd(host: str | None = None, port: int | None = None) -> Reference:
    """Ask chronyd for its tracking state."""
    try:
        tracking = chronyd.tracking(host=host, port=port)
    except ChronydError as error:
        return unsynchronised(str(error))
    reason = why_not_synchronised(tracking)
    if reason is not None:
        return unsynchronised(reason)
    return Reference(
        True,
        min(15, tracking.stratum),
        tracking.root_distance_ns,
        Leap(tracking.leap),
        f"chronyd is synchronised to {tracking.name}, stratum {tracking.stratum}.",
        tracking.frequency_reference_minus_local_ppm * 1e3,
        (tracking.skew_ppm + abs(tracking.residual_frequency_ppm)) * 1e3 + _DRIFT_PPB,
    )
