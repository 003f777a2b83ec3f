"""What a track remembers: arrivals, requests on their way, and its place behind the first echo."""

from __future__ import annotations

from dataclasses import dataclass

from mqtick.client.sample import Reading, Sample
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.stamps import Transmit
from mqtick.protocol.precise import Reply, Request
from mqtick.protocol.residence import Residence

__all__ = ["ArrivalReading", "Pending", "Placement", "PrecisePending", "WallSample"]


@dataclass(frozen=True, slots=True)
class ArrivalReading:
    """When a message arrived, on every timeline that will be asked for."""

    reading: Reading
    time_minus_raw_ns: int
    realtime_ns: int
    waited_ns: int
    """How long ago that was when its stamp was converted."""


@dataclass(slots=True)
class Pending:
    """A request on its way.

    Attributes:
        transmit: When it went, as far as is known by now.
        asked_raw_ns: When it was handed over, on the local timeline.
        time_minus_raw_ns: What turned the local timeline into the judged clock just before.
    """

    transmit: Transmit
    asked_raw_ns: int
    time_minus_raw_ns: int

    @property
    def sent(self) -> Reading:
        """When the request went, on the local timeline, as far as is known by now.

        Of the clock that chronyd slews only the microseconds between its two stamps are taken, not
        the time until the exchange is complete.
        """
        stamp = self.transmit.stamp
        went_ns = self.asked_raw_ns + stamp.realtime_ns - self.transmit.user_ns
        return Reading(went_ns, stamp.source)


@dataclass(slots=True)
class PrecisePending(Pending):
    """A request of the precise format, and what has come of its answers.

    Attributes:
        request: What was asked.
        place: (generation, placement) behind which we were placed when we asked; None if we were
            not.
        reply: The answer, once it has come.
        reply_tag: Binds follow-up or echo to this very reply.
        arrival: When the reply arrived.
        maybe_held: Whether the broker may have held the reply back (see `Arrival.maybe_held`).
        residence: How long the reply was in the broker, if that is to be used.
    """

    request: Request
    place: tuple[int, int] | None
    reply: Reply | None = None
    reply_tag: bytes = b""
    arrival: ArrivalReading | None = None
    maybe_held: bool = False
    residence: Residence | None = None


@dataclass(frozen=True, slots=True)
class WallSample:
    """A sample, and what turned its local timeline into the judged clock when it was taken.

    Attributes:
        realtime_ns: CLOCK_REALTIME at the arrival (the judged clock too, unless that is a virtual
            one).
    """

    sample: Sample
    time_minus_raw_ns: int
    realtime_ns: int

    @property
    def offset_ns(self) -> int:
        """Reference minus the judged clock."""
        return self.sample.offset_ns - self.time_minus_raw_ns


class Placement:
    """Makes sure that we are subscribed to our reply topic behind the server's first echo.

    A place is (generation, placement) of an echo message; a new one means that the first echo
    subscribed again: we must do the same, and the broker must agree.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection, self._topic = connection, topic
        self.current: tuple[int, int] | None = None
        self._wanted: tuple[int, int] | None = None

    def lose(self) -> None:
        """The connection or the server is another one: our place means nothing any more."""
        self.current = self._wanted = None

    def see_to(self, place: tuple[int, int]) -> None:
        """Go there, unless we are there or on our way."""
        if place in (self._wanted, self.current):
            return
        self._wanted = place

        def placed(granted: bool) -> None:
            if granted and self._wanted == place:
                self.current = place
            self._wanted = None

        # Only UNSUBSCRIBE moves us behind those who subscribed meanwhile.
        self._connection.unsubscribe([self._topic])
        self._connection.subscribe([self._topic], placed)
