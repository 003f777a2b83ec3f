"""Measures a node's own path through the broker and back: transmit to arrival, on one clock.

The messages are sent at random times, when the broker sleeps, as it does before a client's request.
A broker that is awake answers tens of microseconds sooner, which could not be compared. Where the
path is longer than the time between two messages, several are on their way at once.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop, Timer
from mqtick.mqtt.recent import LowRecent
from mqtick.mqtt.stamps import Transmit

_BURST_SPACING_NS = 60_000_000
_NONCE_OCTETS = 8


def _nonce() -> bytes:
    return secrets.token_bytes(_NONCE_OCTETS)


class Loopback:
    """Sends itself messages on `topic`, to which the connection must be subscribed.

    `make` makes each message, which others must not be able to guess. The broker may write into its
    last `room` octets.
    """

    def __init__(
        self,
        loop: Loop,
        connection: Connection,
        topic: str,
        *,
        burst: int,
        interval_ns: int,
        make: Callable[[], bytes] = _nonce,
        room: int = 0,
    ) -> None:
        self._loop, self._connection, self._topic = loop, connection, topic
        self._burst, self._interval_ns = burst, interval_ns
        self._make, self._room = make, room
        self.filled = False
        """Whether the broker wrote into the last message that came back on this connection."""
        self._delays = LowRecent()
        self._pending: OrderedDict[bytes, tuple[bytes, Transmit]] = OrderedDict()
        """Messages on their way, at most a burst, by what the broker may not write into."""
        self._left = 0
        self._next: Timer | None = None

    def start(self) -> None:
        """Begin with a burst; again, after each connect, because the path may be another one."""
        self._left, self.filled = self._burst, False
        self._pending.clear()
        self._delays.clear()
        if self._next is not None:
            self._next.cancel()
        self._next = self._loop.call_later(_BURST_SPACING_NS, self._send)

    def _send(self) -> None:
        payload = self._make()
        if self._connection.connected:
            transmit = self._connection.publish(self._topic, payload)
            if transmit is not None:
                self._pending[self._ours(payload)] = payload, transmit
                if len(self._pending) > self._burst:
                    self._pending.popitem(last=False)
                self._connection.collect_stamps()  # else the stamp would wake the program up
        self._left -= 1
        spacing_ns = _BURST_SPACING_NS if self._left > 0 else self._interval_ns
        self._next = self._loop.call_later(int(spacing_ns * random.uniform(0.7, 1.3)), self._send)

    def poke(self) -> None:
        """Have the broker send us a message, because it states the correction of the last one."""
        self._connection.publish_unstamped(self._topic, self._make())

    def warm_up(self) -> None:
        """Send an unneeded message, right before one whose stamps count, to warm the caches.

        With cold caches, a packet takes microseconds longer from its stamp to the network card:
        here and in the broker, on the way there, but not on the way back.
        """
        if self._connection.publish(self._topic, self._make()) is not None:
            self._connection.collect_stamps()

    def on_arrival(self, arrival: Arrival) -> None:
        """Take a message on the topic; anything but ours is ignored."""
        sent = None if arrival.retain else self._pending.pop(self._ours(arrival.payload), None)
        if sent is None:
            return
        payload, transmit = sent
        self.filled = arrival.payload != payload
        self._connection.collect_stamps()
        left, arrived = transmit.stamp, arrival.stamp
        if left.source is arrived.source:
            self._delays.add(arrived.realtime_ns - left.realtime_ns, time.monotonic_ns())

    def _ours(self, payload: bytes) -> bytes:
        return payload[: len(payload) - self._room]

    def forget_pending(self) -> None:
        """Forget what is on its way: the clock was stepped, so its stamps do not fit together."""
        self._pending.clear()

    def spread_ns(self) -> int:
        """Return how much the delay varies (see `LowRecent.spread`)."""
        return self._delays.spread(time.monotonic_ns())

    def delay_ns(self) -> int | None:
        """Return the delay, or None before the first message came back."""
        return self._delays.value(time.monotonic_ns())
