"""What the parts of one time server have in common."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from mqtick.mqtt.connection import Connection
from mqtick.mqtt.loop import Loop
from mqtick.protocol.clocks import Clock
from mqtick.protocol.residence import Copies
from mqtick.protocol.topics import TopicTree
from mqtick.timeserver.reference import Reference

__all__ = ["Context", "Counters"]


class Counters:
    """Two sets of named counters; names are chosen by the program, never by a message."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def count(self, name: str) -> None:
        """Count something done."""
        self.done[name] += 1

    def refuse(self, reason: str) -> None:
        """Count something refused."""
        self.refused[reason] += 1


class Context(Protocol):
    """A time server, as each of its parts sees it.

    Attributes:
        number: under which it serves.
        clock: the clock that it serves.
        connection: over which it speaks; the echoes have their own.
        generation: 0 to 255; changes whenever that clock was set.
        copies: what the broker says of the messages that come by `connection`.
    """

    number: int
    tree: TopicTree
    clock: Clock
    loop: Loop
    connection: Connection
    counters: Counters
    generation: int
    copies: Copies

    @property
    def fills(self) -> bool:
        """Whether the broker fills trailers, so that version 2 is spoken."""

    @property
    def reference(self) -> Reference:
        """What is known of the clock now."""

    def clock_changed(self) -> bool:
        """Look whether the clock was set since this was asked; then a new generation begins."""

    @property
    def stamps_are_doubtful(self) -> bool:
        """Whether what is read now may have been stamped before the clock was set."""
