"""Notices that two programs use one client name: each then spoils what the other one measures.

A client counts its requests upwards from a random number. So if the numbers under one name jump to
and fro between two counts, two programs count. A restart, a doctor's short visit and whatever a
stranger sends now and then must not look like that: it has to last.
"""

from __future__ import annotations

from collections import OrderedDict

from mqtick.protocol.time_types import NS_PER_S

__all__ = ["Lasting", "Namesakes", "is_same_count"]

_LONG_NS = 60 * NS_PER_S
# The longest pause of a client between two bursts is one hour.
_FORGOTTEN_NS = 2 * 3600 * NS_PER_S
_NEAR = 2**19
_MOST_NAMES = 4096


def is_same_count(one: int, other: int) -> bool:
    """Whether two sequence numbers (u32) are close enough to come from one client's count."""
    return (one - other + _NEAR) % 2**32 < 2 * _NEAR


class Lasting:
    """Something that was seen again and again, for a minute at least; instants of a steady clock."""

    def __init__(self) -> None:
        self._first_ns = self._last_ns = -_FORGOTTEN_NS

    def note(self, now_ns: int) -> None:
        """Note that it was seen."""
        if not self._is_recent(now_ns):
            self._first_ns = now_ns
        self._last_ns = now_ns

    def _is_recent(self, now_ns: int) -> bool:
        return now_ns - self._last_ns < _FORGOTTEN_NS

    def holds(self, now_ns: int) -> bool:
        """Whether it is seen for long enough, and was seen lately."""
        return self._last_ns - self._first_ns >= _LONG_NS and self._is_recent(now_ns)


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
