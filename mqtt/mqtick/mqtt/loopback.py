"""A node's own path through the broker and back: transmit to arrival, on one clock.

The messages go at random times, when the broker sleeps, as a client's requests do: a broker that
is awake already answers tens of microseconds sooner, and the two could not be compared.
"""

from __future__ import annotations

import random
import secrets
import time

from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.recent import LowRecent
from mqtick.mqtt.stamps import Transmit

__all__ = ["Loopback"]

_BURST_SPACING_NS = 60_000_000
_NONCE_OCTETS = 8


class Loopback:
    """Sends itself messages on `topic`, to which the connection must be subscribed."""

    def __init__(
        self, loop: Loop, connection: Connection, topic: str, *, burst: int, interval_ns: int
    ) -> None:
        self._loop, self._connection, self._topic = loop, connection, topic
        self._burst, self._interval_ns = burst, interval_ns
        self._delays = LowRecent()
        self._pending: tuple[bytes, Transmit] | None = None
        self._left = 0
        self._running = False

    def start(self) -> None:
        """Begin with a burst (again, after each connect)."""
        self._left = self._burst
        if not self._running:
            self._running = True
            self._loop.call_later(_BURST_SPACING_NS, self._send)

    def _send(self) -> None:
        nonce = secrets.token_bytes(_NONCE_OCTETS)
        if self._connection.connected:
            transmit = self._connection.publish(self._topic, nonce)
            self._pending = (nonce, transmit) if transmit is not None else None
            if transmit is not None:
                self._connection.collect_stamps()  # left there, a stamp would wake the program up
        self._left -= 1
        spacing_ns = _BURST_SPACING_NS if self._left > 0 else self._interval_ns
        self._loop.call_later(int(spacing_ns * random.uniform(0.7, 1.3)), self._send)

    def on_arrival(self, arrival: Arrival) -> None:
        """Take a message on the topic; anything but our last one is ignored."""
        if self._pending is None or arrival.payload != self._pending[0] or arrival.retain:
            return
        self._connection.collect_stamps()
        sent, came = self._pending[1].stamp, arrival.stamp
        self._pending = None
        if sent.source is came.source:
            self._delays.add(came.realtime_ns - sent.realtime_ns, time.monotonic_ns())

    def forget_pending(self) -> None:
        """The clock was stepped: the stamps of a message on its way would be of two clocks."""
        self._pending = None

    def spread_ns(self) -> int:
        """Return how much of the delay is left to chance (see `LowRecent.spread`)."""
        return self._delays.spread(time.monotonic_ns())

    def delay_ns(self) -> int | None:
        """Return the delay, or None before the first message came back."""
        return self._delays.value(time.monotonic_ns())
