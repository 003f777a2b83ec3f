"""The common interface for the parts of one time server."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from mqtick.mqtt.connection import Connection
from mqtick.mqtt.loop import Loop
from mqtick.protocol.residence import Copies
from mqtick.protocol.topics import TopicTree
from mqtick.timeserver.reference import Reference
from mqtick.timeserver.served import ServedClock


class Counters:
    """Two sets of named counters; names are chosen by the program, never by a message."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def count(self, name: str) -> None:
        """Count an action."""
        self.done[name] += 1

    def refuse(self, reason: str) -> None:
        """Count a refusal."""
        self.refused[reason] += 1


class Context(Protocol):
    """A time server, as each of its parts sees it.

    Attributes:
        number: The server number.
        clock: The clock that it serves.
        connection: Its connection to the broker; the echoes have their own.
        generation: 0 to 255; changes whenever the clock is set.
        copies: The residences that the broker states in messages that come by `connection`.
    """

    number: int
    tree: TopicTree
    clock: ServedClock
    loop: Loop
    connection: Connection
    counters: Counters
    generation: int
    copies: Copies

    @property
    def fills(self) -> bool:
        """Whether the broker fills trailers, so that version 2 is used."""

    @property
    def reference(self) -> Reference:
        """The present quality of the system clock."""

    @property
    def root_distance_ns(self) -> int:
        """Bound of the served clock's error against UTC, now."""

    def clock_changed(self) -> bool:
        """Whether the clock was set or taken anew since the last call: a new generation begins."""

    @property
    def stamps_are_doubtful(self) -> bool:
        """Whether a message that is read now may have been stamped before the clock was set."""
