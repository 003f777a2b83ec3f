"""Several servers on one broker: who may use the topics that have no server number in them.

And what happens when two have the same number: whoever came later has to go. Where both came at
the same time (a power cut ended), one of them still has to stay.
"""

from __future__ import annotations

__all__ = ["Election"]


class Election:
    """Knows which server numbers are alive; the lowest of them publishes the fixed topics.

    A server is alive while its time messages come (or for `timeout_ns` after the last) and is
    gone at once when its last will says so. For `timeout_ns` after each connection nobody can be
    known to be absent, so nothing is claimed. All times are CLOCK_MONOTONIC, ns.
    """

    def __init__(self, number: int, timeout_ns: int) -> None:
        self.number = number
        self.timeout_ns = timeout_ns
        self._listening_ns: int | None = None
        self._heard: dict[int, int] = {}
        self._rival_since_ns = self._rival_heard_ns = 0
        self._waiting = False
        self.conflicts = 0
        """Messages heard under our own number that were not ours."""

    def connected(self, now_ns: int) -> None:
        """From now on the others can be heard."""
        self._listening_ns = now_ns

    def heard(self, number: int, now_ns: int) -> None:
        """Note a sign of life of another server."""
        if number != self.number:
            self._heard[number] = now_ns

    def gone(self, number: int) -> None:
        """Note a last will or an orderly goodbye."""
        self._heard.pop(number, None)

    def conflict(self, now_ns: int, *, rival_is_older: bool) -> bool:
        """Note a foreign message under our own number; True when we are the one to go.

        Who is settled stays. Who is not goes at once when the rival looks older, and otherwise
        gives it a `timeout_ns` to go itself: a rival that is still there then was here before us.
        """
        self.conflicts += 1
        if now_ns - self._rival_heard_ns > self.timeout_ns:
            self._waiting = False
        self._rival_heard_ns = now_ns
        if not self.settled(now_ns):
            if rival_is_older:
                return True
            if not self._waiting:
                self._waiting, self._rival_since_ns = True, now_ns
        return self._waiting and now_ns - self._rival_since_ns > self.timeout_ns

    def alive(self, now_ns: int) -> list[int]:
        """Return the numbers of the other servers that are alive, ascending."""
        return sorted(
            number
            for number, heard_ns in self._heard.items()
            if now_ns - heard_ns <= self.timeout_ns
        )

    def settled(self, now_ns: int) -> bool:
        """Whether every other server has had the time to be heard."""
        return self._listening_ns is not None and now_ns - self._listening_ns >= self.timeout_ns

    def leads(self, now_ns: int) -> bool:
        """Whether this server may publish and answer on the fixed topics now."""
        return self.settled(now_ns) and all(number > self.number for number in self.alive(now_ns))
