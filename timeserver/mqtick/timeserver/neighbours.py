"""The time servers of a broker, heard by one of them: who is alive, and who uses our number."""

from __future__ import annotations

import time
from collections import deque

from mqtick.mqtt.frames import Arrival
from mqtick.protocol.auth import Keys
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import Time, without_trailer
from mqtick.protocol.topics import says_gone
from mqtick.timeserver.claims import Claims
from mqtick.timeserver.context import Context
from mqtick.timeserver.election import Election

__all__ = ["Neighbours"]


class Neighbours:
    """Feeds an `Election` and our `Claims` with what arrives, and counts what is refused."""

    def __init__(
        self,
        context: Context,
        keys: Keys,
        election: Election,
        claims: Claims,
        *,
        interval_ns: int,
    ) -> None:
        self._context, self.keys = context, keys
        self._election, self._claims = election, claims
        self._own: deque[bytes] = deque(maxlen=election.timeout_ns // interval_ns + 64)
        self.status_lost = False
        """Whether somebody overwrote the status on our topic."""

    def sent(self, payload: bytes) -> None:
        """Remember a time message of our own, to know it when it comes back."""
        self._own.append(without_trailer(payload))

    def on_time(self, arrival: Arrival) -> None:
        """Take a time message, our own among them."""
        try:
            if arrival.retain:
                raise DecodeError("retained", "A retained time message is old by nature.")
            message = Time.decode(arrival.payload)
            if self._context.tree.parse_time(arrival.topic) != message.server:
                raise DecodeError("server", "The message names another server than its topic.")
            self.keys.verify(arrival.payload, arrival.topic)
        except DecodeError as error:
            self._context.counters.refuse(error.reason)
            return
        if message.server != self._election.number:
            self._election.heard(message.server, time.monotonic_ns())
        elif without_trailer(arrival.payload) not in self._own:
            self._claims.stranger()

    def on_status(self, arrival: Arrival, own: bytes) -> None:
        """Take a status; `own` is what we last said on our own topic."""
        try:
            number = self._context.tree.parse_status(arrival.topic)
        except DecodeError as error:
            self._context.counters.refuse(error.reason)
            return
        if number == self._election.number:
            self.status_lost = arrival.payload != own
        elif says_gone(arrival.payload):
            self._election.gone(number)
