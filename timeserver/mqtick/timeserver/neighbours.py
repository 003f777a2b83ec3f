"""Watches the other time servers of a broker: which are alive, and whether one uses our number."""

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


class Neighbours:
    """Passes messages of other servers to an `Election` and our `Claims`; counts refused ones."""

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
        """Whether another program has overwritten the status on our topic."""

    def sent(self, payload: bytes) -> None:
        """Remember a time message of our own, to recognise it when it comes back."""
        self._own.append(without_trailer(payload))

    def on_time(self, arrival: Arrival) -> None:
        """Take a time message, which may be our own."""
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
        """Take a status; `own` is the one that we last published on our topic."""
        try:
            number = self._context.tree.parse_status(arrival.topic)
        except DecodeError as error:
            self._context.counters.refuse(error.reason)
            return
        if number == self._election.number:
            self.status_lost = arrival.payload != own
        elif says_gone(arrival.payload):
            self._election.gone(number)
