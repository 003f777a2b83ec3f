"""The time servers of a broker, heard by one of them: who is alive, and who has our number."""

from __future__ import annotations

import time
from collections import deque

from mqtick.protocol.auth import Keys
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.frames import Arrival
from mqtick.protocol.precise import Time
from mqtick.protocol.topics import TopicTree
from mqtick.timeserver.counters import Counters
from mqtick.timeserver.election import Election

__all__ = ["GONE", "Neighbours"]

GONE = b'{"state":"gone"}'
"""The status of a server that left, also its last will."""


class Neighbours:
    """Feeds an `Election` with what arrives, and counts what is refused.

    `has_to_go` becomes true when somebody else has our number and we came later.
    """

    def __init__(
        self,
        tree: TopicTree,
        keys: Keys,
        election: Election,
        counters: Counters,
        *,
        interval_ns: int,
        generation: int,
    ) -> None:
        self._tree, self.keys = tree, keys
        self._election, self._counters = election, counters
        self._interval_ns = interval_ns
        self._own: deque[bytes] = deque(maxlen=election.timeout_ns // interval_ns + 64)
        self._sequence, self._stated_ns, self._generation = 0, 0, generation
        self._up_ns = 0
        self.has_to_go = False
        self.status_lost = False
        """Whether somebody overwrote the status on our topic."""

    def connected(self, time_ns: int) -> None:
        """From `time_ns`, on the served clock, the others can be heard."""
        self._up_ns = time_ns
        self._stated_ns = time_ns // self._interval_ns * self._interval_ns
        self._election.connected(time.monotonic_ns())

    def sent(self, payload: bytes) -> None:
        """Remember a time message of our own, to know it when it comes back."""
        self._own.append(payload)
        message = Time.decode(payload)
        self._sequence, self._generation = message.sequence, message.generation
        self._stated_ns = message.transmit_ns

    def on_time(self, arrival: Arrival) -> None:
        """Take a time message, our own among them."""
        try:
            if arrival.retain:
                raise DecodeError("retained", "A retained time message is old by nature.")
            message = Time.decode(arrival.payload)
            if self._tree.parse_time(arrival.topic) != message.server:
                raise DecodeError("server", "The message names another server than its topic.")
            self.keys.verify(arrival.payload, arrival.topic)
        except DecodeError as error:
            self._counters.refuse(error.reason)
            return
        if message.server != self._election.number:
            self._election.heard(message.server, time.monotonic_ns())
        elif arrival.payload not in self._own:
            self._on_rival(message)

    def _on_rival(self, message: Time) -> None:
        """Somebody else uses our number: whoever came later has to go."""
        if self.keys.keys and message.transmit_ns < self._up_ns:
            # Nobody else can sign; but whoever recorded what we said before can send it again.
            self._counters.refuse("replayed")
            return
        self._counters.refuse("number-in-use")
        # Who has sent more by the same stated time was here first; both come to the same answer,
        # whatever is on its way. Those that began in the same interval draw lots.
        rounds = round((message.transmit_ns - self._stated_ns) / self._interval_ns)
        ahead = message.sequence - self._sequence - rounds
        is_older = ahead > 0 or (ahead == 0 and message.generation <= self._generation)
        self.has_to_go |= self._election.conflict(time.monotonic_ns(), rival_is_older=is_older)

    def on_status(self, arrival: Arrival, own: bytes) -> None:
        """Take a status; `own` is what we said last on our own topic."""
        try:
            number = self._tree.parse_status(arrival.topic)
        except DecodeError as error:
            self._counters.refuse(error.reason)
            return
        if number == self._election.number:
            self.status_lost = arrival.payload != own
        elif GONE[1:-1] in arrival.payload[:64].replace(b" ", b""):
            self._election.gone(number)
