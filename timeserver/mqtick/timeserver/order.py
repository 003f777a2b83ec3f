"""Tests whether the broker delivers in the order on which the echo relies.

The server acts as a client: it subscribes to a topic of its own later than the first echo, sends
itself messages there, and checks that they reach first echo, itself, last echo in this order.
"""

from __future__ import annotations

import random
import secrets
from collections import OrderedDict, deque

from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop, Timer
from mqtick.mqtt.stamps import StampSource

_BURST = 12
_BURST_SPACING_NS = 40_000_000
_INTERVAL_NS = 16_000_000_000
# Used if the last message was in order, but too many before were not: 64 messages take 32 s.
_DOUBT_INTERVAL_NS = 500_000_000
_NEEDED = 8
_REMEMBERED = 64
_NONCE_OCTETS = 8


def keeps_order(wrong: int, messages: int) -> bool:
    """Whether a broker with `wrong` of `messages` out of order counts as keeping the order.

    One in 32 is tolerated: now and then two interrupts are served in the wrong order.
    """
    return 32 * wrong <= max(32, messages)


class OrderProbe:
    """Sends itself messages on a topic and keeps the last verdicts.

    `trusted` is true from eight verdicts on, while the broker `keeps_order`. A message gives no
    verdict if one of its stamps is not the kernel's, or if the broker may have held it back until
    the previous one was acknowledged (Nagle's algorithm), as a loaded broker does.
    """

    def __init__(self, loop: Loop, connection: Connection) -> None:
        self._loop, self._connection, self.topic = loop, connection, ""
        self._verdicts: deque[bool] = deque(maxlen=_REMEMBERED)
        self._pending: OrderedDict[bytes, dict[str, Arrival]] = OrderedDict()
        """Messages on their way, at most a burst: where each has arrived."""
        self._left = 0
        self._next: Timer | None = None

    def place(self, topic: str) -> None:
        """Subscribe behind the first echo, which has just subscribed; then begin to test."""
        self._verdicts.clear()
        self._pending.clear()
        self._connection.unsubscribe([self.topic] if self.topic else [])
        self.topic = topic
        self._connection.subscribe([topic], self._placed)

    def _placed(self, granted: bool) -> None:
        if self._next is not None:
            self._next.cancel()
        self._left = _BURST
        if granted:
            self._send()

    def _send(self) -> None:
        nonce = secrets.token_bytes(_NONCE_OCTETS)
        self._pending[nonce] = {}
        if len(self._pending) > _BURST:
            self._pending.popitem(last=False)
        self._connection.publish(self.topic, nonce)
        self._left -= 1
        spacing_ns = _INTERVAL_NS
        if self._left > 0:
            spacing_ns = _BURST_SPACING_NS
        elif self._verdicts and self._verdicts[-1] and not self.trusted:
            spacing_ns = _DOUBT_INTERVAL_NS
        delay_ns = int(spacing_ns * random.uniform(0.7, 1.3))
        self._next = self._loop.call_later(delay_ns, self._send)

    def arrived(self, who: str, arrival: Arrival) -> None:
        """Note an arrival at `first`, `own` or `last`; three arrivals give a verdict."""
        arrivals = None if arrival.retain else self._pending.get(arrival.payload)
        if arrivals is None:
            return
        arrivals[who] = arrival
        if len(arrivals) == 3:
            all_three = [arrivals[name] for name in ("first", "own", "last")]
            del self._pending[arrival.payload]
            if all(
                one.stamp.source is StampSource.KERNEL and not one.maybe_held for one in all_three
            ):
                first_ns, own_ns, last_ns = (one.stamp.realtime_ns for one in all_three)
                self._verdicts.append(first_ns <= own_ns <= last_ns)

    @property
    def trusted(self) -> bool:
        """Whether the echo may be offered."""
        known = len(self._verdicts)
        return known >= _NEEDED and keeps_order(self._verdicts.count(False), known)

    @property
    def says(self) -> str:
        """One word for people: `kept`, `broken` or `unknown`."""
        if len(self._verdicts) < _NEEDED:
            return "unknown"
        return "kept" if self.trusted else "broken"
