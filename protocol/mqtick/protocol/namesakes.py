"""Notices that two programs use one client name: each then spoils what the other one measures.

A client counts its requests upwards from a random number. So if the numbers under one name jump to
and fro between two counts, two programs count. A restart, a doctor's short visit and whatever a
stranger sends now and then must not look like that: it has to last.
"""

from __future__ import annotations

from collections import OrderedDict

from mqtick.protocol.time_types import NS_PER_S

# As long as a doctor who asks under the name of a client that runs.
_OCCASION_NS = 15 * NS_PER_S
_OCCASIONS = 5
_FORGOTTEN_NS = 600 * NS_PER_S
_NEAR = 2**19
_MOST_NAMES = 4096


def is_same_count(one: int, other: int) -> bool:
    """Whether two sequence numbers (u32) are close enough to come from one client's count."""
    return (one - other + _NEAR) % 2**32 < 2 * _NEAR


class Lasting:
    """Something that was seen on several occasions; instants of a steady clock, ns."""

    def __init__(self) -> None:
        self._occasions = 0
        self._counted_ns = self._last_ns = -_FORGOTTEN_NS

    def note(self, now_ns: int) -> None:
        """Note that it was seen."""
        if not self._is_recent(now_ns):
            self._occasions = 0
        if not self._occasions or now_ns - self._counted_ns >= _OCCASION_NS:
            self._occasions, self._counted_ns = self._occasions + 1, now_ns
        self._last_ns = now_ns

    def _is_recent(self, now_ns: int) -> bool:
        return now_ns - self._last_ns < _FORGOTTEN_NS

    def holds(self, now_ns: int) -> bool:
        """Whether it was seen often enough, and lately."""
        return self._occasions >= _OCCASIONS and self._is_recent(now_ns)


class Namesakes:
    """What a server hears under each client name; a new name replaces the one silent longest."""

    def __init__(self) -> None:
        self._heard: OrderedDict[str, tuple[int, int | None, Lasting]] = OrderedDict()

    def note(self, name: str, sequence: int, now_ns: int) -> None:
        """Note a request that was genuine, and its number."""
        newer, older, returns = self._heard.pop(name, (sequence, None, Lasting()))
        if not is_same_count(sequence, newer):
            if older is not None and is_same_count(sequence, older):
                returns.note(now_ns)
            older = newer
        self._heard[name] = sequence, older, returns
        if len(self._heard) > _MOST_NAMES:
            self._heard.popitem(last=False)

    def names(self, now_ns: int) -> list[str]:
        """Return the names that two clients use."""
        return sorted(
            name for name, (_, _, returns) in self._heard.items() if returns.holds(now_ns)
        )
