"""Sends minutes of messages through the broker's RTL; only the busy parts are simulated.

The state of an idle broker does not change with time, except for its leases. So once the broker has
sent everything, the next message enters at once, and the idle cycles are left out. Within one busy
stretch the distances of the messages stay exact to the cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtick.lab.hardware.copies import subscriptions
from mqtick.lab.hardware.datagrams import CYCLE_FS, Datagram, frame_octets
from mqtick.lab.hardware.program import ModelError, run_batch
from mqtick.protocol.precise import TRAILER_OCTETS

__all__ = ["Copy", "Message", "cross", "without_idle"]

_IDLE_CYCLES: Final = 200
"""Cycles after the last copy has left, until the broker is idle again."""
_TENTHS_A_CYCLE: Final = {1: 8, 10: 80}
"""By the rate of the link in Gb/s: tenths of an octet per cycle."""


@dataclass(frozen=True, slots=True)
class Message:
    """A PUBLISH that comes to the broker.

    Attributes:
        at_fs: When its first word passes the broker's boundary.
        sender: ADDRESS:PORT.
        octets: The datagram; the broker's trailer is zero, the rest is unique to the message.
        copies: How many subscribers must get it.
        filled: Whether the broker fills its last 16 octets.
    """

    at_fs: int
    sender: str
    octets: bytes
    copies: int = 1
    filled: bool = True

    @property
    def key(self) -> bytes:
        """The octets that all its copies have in common."""
        return _known_by(self.octets, self.filled)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy, and when its first word left the broker, in the time of the messages."""

    at_fs: int
    receiver: str
    octets: bytes


def _known_by(octets: bytes, filled: bool) -> bytes:
    return octets[:-TRAILER_OCTETS] if filled else octets


def without_idle(messages: Iterable[Message], *, first: int, link_gbps: int) -> list[int]:
    """Return the cycle in which each message enters the broker, without the idle cycles.

    Messages are in order of time; the first one enters in cycle `first`.
    """
    entered: list[int] = []
    before = idle_at = 0
    for message in messages:
        cycle = -(-message.at_fs // CYCLE_FS)
        if entered:
            enters = min(entered[-1] + cycle - before, max(idle_at, entered[-1] + 1))
        else:
            enters = idle_at = first
        busy = 10 * message.copies * frame_octets(len(message.octets))
        idle_at = max(idle_at, enters + _IDLE_CYCLES) + busy // _TENTHS_A_CYCLE[link_gbps]
        entered.append(enters)
        before = cycle
    return entered


def cross(
    model: Path,
    filters: Mapping[str, str | Sequence[str]],
    messages: Sequence[Message],
    *,
    link_gbps: int,
) -> list[list[Copy]]:
    """Return the copies of each message; `messages`: in order of time, `filters`: by subscriber.

    ModelError if a message has not the right number of copies.
    """
    come, first = subscriptions(filters)
    entered = without_idle(messages, first=first, link_gbps=link_gbps)
    datagrams = [
        Datagram(enters, message.sender, message.octets)
        for enters, message in zip(entered, messages, strict=True)
    ]
    places = {message.key: place for place, message in enumerate(messages)}
    if len(places) != len(messages):
        raise ModelError("Two messages are alike: their copies could not be told apart.")
    found: list[list[Copy]] = [[] for _ in messages]
    for sent in run_batch(model, [*come, *datagrams], link_gbps=link_gbps):
        place = places.get(_known_by(sent.octets, True), places.get(sent.octets))
        if place is None:
            continue  # an answer to a subscription
        began_fs = -(-messages[place].at_fs // CYCLE_FS) * CYCLE_FS
        at_fs = began_fs + (sent.cycle - entered[place]) * CYCLE_FS
        found[place].append(Copy(at_fs, sent.peer, sent.octets))
    for message, copies in zip(messages, found, strict=True):
        if len({copy.receiver for copy in copies}) != message.copies or (
            len(copies) != message.copies
        ):
            raise ModelError(
                f"A message became {len(copies)} copies instead of {message.copies}: the broker is "
                "wrong, or its tables are too small."
            )
    return found
