"""State of a track: arrivals, pending requests, and its place behind the server's first echo."""

from __future__ import annotations

from dataclasses import dataclass

from mqtick.client.sample import Reading, Sample
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.stamps import Transmit
from mqtick.protocol.precise import Reply, Request
from mqtick.protocol.residence import Residence


@dataclass(frozen=True, slots=True)
class ArrivalReading:
    """When a message arrived, on all timelines."""

    reading: Reading
    time_minus_raw_ns: int
    realtime_ns: int
    waited_ns: int
    """Time from the arrival to the conversion of its stamp."""


@dataclass(slots=True)
class Pending:
    """A request that waits for its answers.

    Attributes:
        transmit: When it was transmitted; the kernel's stamp may come later.
        asked_raw_ns: When it was handed to the kernel, on the local timeline.
        time_minus_raw_ns: Judged clock minus local timeline, just before the request was sent.
    """

    transmit: Transmit
    asked_raw_ns: int
    time_minus_raw_ns: int

    @property
    def sent(self) -> Reading:
        """When the request was transmitted, on the local timeline, by the stamps that have come.

        CLOCK_REALTIME, which chronyd slews, is used only for the microseconds between the two
        stamps of the request, not for the time until the exchange is complete.
        """
        stamp = self.transmit.stamp
        went_ns = self.asked_raw_ns + stamp.realtime_ns - self.transmit.user_ns
        return Reading(went_ns, stamp.source)


@dataclass(slots=True)
class PrecisePending(Pending):
    """A request of the precise format, and the answers that have come so far.

    Attributes:
        request: The request.
        place: The first echo's (generation, placement) behind which we were subscribed when we
            asked; None if we were not behind it.
        reply: The reply, once it has come.
        reply_tag: Tag of the reply; it binds follow-up or echo to this reply.
        arrival: When the reply arrived.
        maybe_held: Whether the broker may have held the reply back (see `Arrival.maybe_held`).
        residence: How long the reply was in the broker; None if that is not to be used.
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
    """A sample, and the relation of the local timeline to the judged clock when it was taken.

    Attributes:
        time_minus_raw_ns: Judged clock minus local timeline.
        realtime_ns: CLOCK_REALTIME at the arrival. It is the judged clock, unless that is virtual.
    """

    sample: Sample
    time_minus_raw_ns: int
    realtime_ns: int

    @property
    def offset_ns(self) -> int:
        """Reference minus the judged clock."""
        return self.sample.offset_ns - self.time_minus_raw_ns


class Placement:
    """Makes sure that we are subscribed to our reply topic later than the server's first echo.

    A place is (generation, placement) of an echo message. A new place means that the first echo has
    subscribed again. Then we must subscribe again, too, and the broker must grant it.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection, self._topic = connection, topic
        self.current: tuple[int, int] | None = None
        self._wanted: tuple[int, int] | None = None

    def lose(self) -> None:
        """Forget the place: there is a new connection, or another server."""
        self.current = self._wanted = None

    def see_to(self, place: tuple[int, int]) -> None:
        """Subscribe again, unless we have this place or are waiting for it."""
        if place in (self._wanted, self.current):
            return
        self._wanted = place

        def placed(granted: bool) -> None:
            if granted and self._wanted == place:
                self.current = place
            self._wanted = None

        # UNSUBSCRIBE is needed: otherwise some brokers keep our old place in the order.
        self._connection.unsubscribe([self._topic])
        self._connection.subscribe([self._topic], placed)
