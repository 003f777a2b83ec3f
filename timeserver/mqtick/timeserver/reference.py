"""The quality of the server's own clock according to chronyd: stratum, root distance, leap."""

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
    """The quality of the served clock, as time messages state it."""

    synchronised: bool
    stratum: int
    """1 to 15: the stratum of this server itself."""
    root_distance_ns: int
    """Bound of this clock's error against UTC, according to its source."""
    leap: Leap
    reason: str
    """A sentence for people: the source of this information."""


def unsynchronised(reason: str) -> Reference:
    """Return the reference of a clock that is not synchronised."""
    return Reference(False, 15, 2**40, Leap.UNSYNCHRONISED, reason)


class ReferenceWatch:
    """Asks chronyd in a thread of its own, because chronyc may block; `current` never blocks."""

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
        """Ask once now, then periodically in the thread."""
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
    )
