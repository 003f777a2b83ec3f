"""Does this broker deliver in the order on which the echo relies? Ask it, do not assume it.

The server plays a client: it subscribes to a topic of its own behind the first echo, sends itself
messages there and looks whether they reach first echo, itself, last echo in this order.
"""

from __future__ import annotations

import random
import secrets
from collections import deque

from mqtick.protocol.frames import Arrival
from mqtick.protocol.loop import Loop, Timer
from mqtick.protocol.mqtt import Connection
from mqtick.protocol.stamps import Source, Stamp

__all__ = ["OrderProbe"]

_BURST = 12
_BURST_SPACING_NS = 40_000_000
_INTERVAL_NS = 16_000_000_000
_NEEDED = 8
_REMEMBERED = 64
_NONCE_OCTETS = 8


class OrderProbe:
    """Sends itself messages on `topic` and keeps the last verdicts.

    `trusted` from eight verdicts on, while at most one in 32 was out of order (two interrupts may
    be served the wrong way round now and then). A message of which some stamp is not the kernel's
    gives no verdict.
    """

    def __init__(self, loop: Loop, connection: Connection, topic: str) -> None:
        self._loop, self._connection, self.topic = loop, connection, topic
        self._verdicts: deque[bool] = deque(maxlen=_REMEMBERED)
        self._nonce = b""
        self._stamps: dict[str, Stamp] = {}
        self._left = 0
        self._next: Timer | None = None

    def place(self) -> None:
        """Subscribe behind the first echo, which has just subscribed; then begin to ask."""
        self._verdicts.clear()
        self._connection.unsubscribe([self.topic])
        self._connection.subscribe([self.topic], self._placed)

    def _placed(self, granted: bool) -> None:
        if self._next is not None:
            self._next.cancel()
        self._left = _BURST
        if granted:
            self._send()

    def _send(self) -> None:
        self._nonce, self._stamps = secrets.token_bytes(_NONCE_OCTETS), {}
        self._connection.publish(self.topic, self._nonce)
        self._left -= 1
        spacing_ns = _BURST_SPACING_NS if self._left > 0 else _INTERVAL_NS
        delay_ns = int(spacing_ns * random.uniform(0.7, 1.3))
        self._next = self._loop.call_later(delay_ns, self._send)

    def arrived(self, who: str, arrival: Arrival) -> None:
        """Note an arrival at `first`, `own` or `last`; the third gives a verdict."""
        if arrival.payload != self._nonce or arrival.retain:
            return
        self._stamps[who] = arrival.stamp
        if len(self._stamps) == 3:
            first, own, last = (self._stamps[name] for name in ("first", "own", "last"))
            if all(stamp.source is Source.KERNEL for stamp in (first, own, last)):
                in_order = first.realtime_ns <= own.realtime_ns <= last.realtime_ns
                self._verdicts.append(in_order)
            self._nonce = b""

    @property
    def trusted(self) -> bool:
        """Whether the echo may be offered."""
        wrong = self._verdicts.count(False)
        return len(self._verdicts) >= _NEEDED and 32 * wrong <= max(32, len(self._verdicts))

    @property
    def says(self) -> str:
        """One word for people: `kept`, `broken` or `unknown`."""
        if len(self._verdicts) < _NEEDED:
            return "unknown"
        return "kept" if self.trusted else "broken"
