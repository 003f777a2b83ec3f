"""How good the server's own clock is according to chronyd: stratum, root distance, leap."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from mqtick.protocol.precise_fields import Leap
from mqtick.service import ChronydError, chronyd, why_not_synchronised

__all__ = ["Reference", "ReferenceWatch", "from_chronyd", "unsynchronised"]

_STALE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Reference:
    """What the time messages say about the clock they carry."""

    synchronised: bool
    stratum: int
    """1 to 15: this server's own, as its clients see it."""
    root_distance_ns: int
    """Bound of this clock's error against UTC, as far as its own source knows."""
    leap: Leap
    reason: str
    """A sentence for people: who says so."""


def unsynchronised(reason: str) -> Reference:
    """Return the reference of a clock that nobody vouches for."""
    return Reference(False, 15, 2**40, Leap.UNSYNCHRONISED, reason)


class ReferenceWatch:
    """Asks chronyd in a thread of its own, because chronyc may block; `current` never does."""

    def __init__(
        self,
        interval_s: float,
        query: Callable[[], Reference],
    ) -> None:
        self._query = query
        self._interval_s = interval_s
        self._latest = unsynchronised("chronyd was not asked yet.")
        self._asked_ns = time.monotonic_ns()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chronyd", daemon=True)

    def start(self) -> None:
        """Ask once, then again and again."""
        self._ask()
        self._thread.start()

    def _ask(self) -> None:
        self._latest = self._query()
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
        """Ask no more."""
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
    )
