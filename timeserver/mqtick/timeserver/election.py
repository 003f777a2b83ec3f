"""Several servers on one broker: decides which may use the topics without a server number."""

from __future__ import annotations


class Election:
    """Knows which server numbers are alive; the lowest of them publishes the fixed topics.

    A server is alive while its time messages come (or for `timeout_ns` after the last) and is
    gone at once when its last will says so. For `timeout_ns` after each connection, servers may be
    alive that were not heard yet, so the topics are not used. All times are CLOCK_MONOTONIC, ns.
    """

    def __init__(self, number: int, timeout_ns: int) -> None:
        self.number = number
        self.timeout_ns = timeout_ns
        self._listening_ns: int | None = None
        self._heard: dict[int, int] = {}

    def connected(self, now_ns: int) -> None:
        """Note a new connection: the other servers can be heard from now on."""
        self._listening_ns = now_ns

    def heard(self, number: int, now_ns: int) -> None:
        """Note a sign of life of another server."""
        if number != self.number:
            self._heard[number] = now_ns

    def gone(self, number: int) -> None:
        """Note that a server has gone, by its last will or its own message."""
        self._heard.pop(number, None)

    def alive(self, now_ns: int) -> list[int]:
        """Return the numbers of the other servers that are alive, ascending."""
        return sorted(
            number
            for number, heard_ns in self._heard.items()
            if now_ns - heard_ns <= self.timeout_ns
        )

    def settled(self, now_ns: int) -> bool:
        """Whether every other server has had time to be heard."""
        return self._listening_ns is not None and now_ns - self._listening_ns >= self.timeout_ns

    def leads(self, now_ns: int) -> bool:
        """Whether this server may publish and answer on the fixed topics now."""
        return self.settled(now_ns) and all(number > self.number for number in self.alive(now_ns))
