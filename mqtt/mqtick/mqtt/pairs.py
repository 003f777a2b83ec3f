"""Pairs of messages that show whether a broker waits for acknowledgements.

With Nagle's algorithm on (no TCP_NODELAY), a broker holds the second of two messages back until the
subscriber has acknowledged the first one. Kernels delay acknowledgements unless told not to.
"""

from __future__ import annotations

import random
import secrets
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.stamps import Transmit

DELAYED_ACK_NS: Final = 40_000_000
"""How long Linux delays an acknowledgement: TCP_DELACK_MIN (net/tcp.h), HZ/25, so 30 to 40 ms on a
kernel with 10 ms ticks. Other systems take up to 200 ms (RFC 1122, 4.2.3.2: below 500 ms)."""
_HELD_NS: Final = DELAYED_ACK_NS // 2
"""The threshold between the shortest hold and the delay that a busy host adds."""
_LEAST: Final = 4
"""Fewer pairs are no evidence: a busy host delays one or two messages."""

_SPACING_S: Final = 0.001
_GAP_S: Final = (0.090, 0.140)  # longer than a delayed acknowledgement; random, not periodic
_OCTETS: Final = 32  # like a time message
_MARK_OCTETS: Final = 8


@dataclass(frozen=True, slots=True)
class Hold:
    """How much later the second of two messages, sent 1 ms apart, comes to a slow acknowledger.

    Attributes:
        pairs: How many complete pairs came back.
        held: Pairs whose second message took at least 20 ms longer than the first one.
        median_ns: Median of: delay of the second minus delay of the first.
    """

    pairs: int
    held: int
    median_ns: int

    @property
    def is_known(self) -> bool:
        """Whether there are enough pairs for a result."""
        return self.pairs >= _LEAST

    @property
    def found(self) -> bool:
        """Whether the second message is held back in most pairs."""
        return self.is_known and self.median_ns >= _HELD_NS


def find_hold(delays_ns: Sequence[tuple[int, int]]) -> Hold:
    """Evaluate pairs of messages: (delay of the first, delay of the second), ns."""
    later = [second - first for first, second in delays_ns]
    held = sum(value >= _HELD_NS for value in later)
    return Hold(len(later), held, int(statistics.median(later)) if later else 0)


class Pairs:
    """Sends pairs from one connection to another, which acknowledges as late as possible.

    There are two connections, because data sent by the receiver would carry the acknowledgement
    along. The receiver is subscribed to `topic`, and its messages are given to `takes`.
    """

    def __init__(self, sender: Connection, receiver: Connection, topic: str) -> None:
        self.topic = topic
        self._sender, self._receiver = sender, receiver
        self._mark = secrets.token_bytes(_MARK_OCTETS)
        self._sent: list[Transmit | None] = []
        self._came_ns: dict[int, int] = {}

    @property
    def sent(self) -> int:
        """How many pairs were sent."""
        return len(self._sent) // 2

    def send(self) -> None:
        """Send a pair, and run the loop until even a held message has come."""
        self._receiver.acknowledge_late()
        for pause_s in (_SPACING_S, random.uniform(*_GAP_S)):
            payload = self._mark + len(self._sent).to_bytes(4, "big")
            payload = payload.ljust(_OCTETS, b"\0")
            self._sent.append(self._sender.publish(self.topic, payload))
            self._sender.loop.turn_for(pause_s)

    def takes(self, arrival: Arrival) -> bool:
        """Note one of these messages; False for any other message."""
        if not arrival.payload.startswith(self._mark):
            return False
        number = int.from_bytes(arrival.payload[_MARK_OCTETS : _MARK_OCTETS + 4], "big")
        self._came_ns.setdefault(number, arrival.stamp.realtime_ns)
        return True

    def delays_ns(self) -> list[tuple[int, int]]:
        """Return the delays of both messages of each complete pair."""
        self._sender.collect_stamps()
        delays = [
            self._came_ns[number] - sent.stamp.realtime_ns
            if sent is not None and number in self._came_ns
            else None
            for number, sent in enumerate(self._sent)
        ]
        return [
            (first, second)
            for first, second in zip(delays[::2], delays[1::2], strict=False)
            if first is not None and second is not None
        ]
