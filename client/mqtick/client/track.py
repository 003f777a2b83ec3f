"""A client's view of one time server, whichever format it speaks.

No I/O: messages come in as arrivals, requests go out through the given connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mqtick.client.config import Settings
from mqtick.client.estimator import Estimator
from mqtick.client.first_time import FirstTime
from mqtick.client.pending import ArrivalReading, WallSample
from mqtick.client.sample import Reading, Sample
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.loopback import Loopback
from mqtick.mqtt.stamps import Stamp, Transmit
from mqtick.protocol.clocks import Clock
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.namesakes import Lasting
from mqtick.protocol.residence import Copies
from mqtick.protocol.time_types import NS_PER_S
from mqtick.protocol.topics import TopicTree

_PENDING_LIMIT = 64
_MAXIMUM_AGE_NS = 3 * NS_PER_S


@dataclass(frozen=True, slots=True)
class ClientContext:
    """What a client's parts share.

    Attributes:
        settings: The settings of the client.
        name: The client's name in topics.
        clock: The clock that is judged.
        tree: The topics of the precise format.
        connection: The connection to the broker.
        loopback: Measures the client's own path through the broker and back.
        copies: The residences that the broker states in messages that come by `connection`.
        refuse: Counts a message that was ignored, by the reason.
        on_sample: Called with the track and every sample, judged.
        on_arrival: Called at once when a time message was read, before it is decoded: pins.
        vouch: Called before an exchange is believed, with the time that it gives (Unix ns), by
            which the broker's certificate can be checked. If it returns False, the exchange is
            discarded.
        clock_changed: Returns whether the host's clock was set, or the host slept, since the last
            call.
        namesake: Genuine answers to requests of another client with our name.
    """

    settings: Settings
    name: str
    clock: Clock
    tree: TopicTree
    connection: Connection
    loopback: Loopback
    refuse: Callable[[str], None]
    on_sample: Callable[[Track, WallSample], None]
    on_arrival: Callable[[], None] | None = None
    vouch: Callable[[Track, int], bool] = lambda _track, _time_ns: True
    copies: Copies = field(default_factory=Copies)
    clock_changed: Callable[[], bool] = lambda: False
    namesake: Lasting = field(default_factory=Lasting)

    def subscribed(self, granted: bool) -> None:
        """Note the broker's answer to a subscription."""
        if not granted:
            self.refuse("subscription")
            self.connection.last_error = (
                f"{self.connection.address} refused a subscription: "
                f"{self.connection.broker.refusal_remedy}"
            )

    def hook(self, topic: str) -> None:
        """Call `on_arrival` for the time messages on a topic from now on."""
        if self.on_arrival is not None:
            self.connection.hooks[topic.encode()] = self.on_arrival

    def unhook(self, topic: str) -> None:
        """Do not call `on_arrival` for this topic any more."""
        self.connection.hooks.pop(topic.encode(), None)


class Track(ABC):
    """Follows one server. Every sample goes through the estimator and then to `on_sample`."""

    format = "precise"
    number: int | None = None
    """None where the format has no numbers."""
    secured = False
    """Whether messages carry tags that are verified."""
    server_loop_ns: int | None = None
    """The delay of the server's own messages through the broker and back, as it states."""

    def __init__(self, context: ClientContext, utc_offset_s: int | None = None) -> None:
        settings = context.settings
        self._context, self._clock = context, context.clock
        self._settings = settings.estimator
        self._time_tolerance_ns = int(settings.time_tolerance_s * NS_PER_S)
        self.estimator = Estimator(settings.estimator)
        self.first = FirstTime(self.estimator, self._time_tolerance_ns, utc_offset_s)
        self.authenticated = False
        """Whether an authenticated exchange with a nonce has succeeded since the last reset."""
        self.stratum, self.leap, self.root_distance_ns = 0, 0, 0
        self.heard_raw_ns: int | None = None
        self.last_delay_ns: int | None = None
        self.wants_exchange = False
        """Whether something happened that only an exchange can settle."""
        self._pending: OrderedDict[Any, Any] = OrderedDict()
        """The requests (`Pending`) that wait for an answer, by the key that answers repeat."""

    @property
    def label(self) -> str:
        """The server's name for people: its number, or the format if that has no numbers."""
        return self.format if self.number is None else str(self.number)

    def _arrival(self, stamp: Stamp) -> ArrivalReading:
        self.estimator.link_ns = self._context.connection.round_trip_ns
        raw_ns = self._clock.raw_of_kernel_ns(stamp.realtime_ns)
        reading = Reading(raw_ns, stamp.source)
        waited_ns = self._clock.raw_ns() - raw_ns
        return ArrivalReading(
            reading, self._clock.time_minus_raw_ns(), stamp.realtime_ns, waited_ns
        )

    def _take(self, sample: Sample, arrival: ArrivalReading) -> None:
        """Have a sample judged; DecodeError if the clock was set between its stamps."""
        if self._context.clock_changed():
            raise DecodeError("clock-changed", "The clock was set, or the host slept, meanwhile.")
        judged = self.first.add(sample, arrival.time_minus_raw_ns)
        wall = WallSample(judged, arrival.time_minus_raw_ns, arrival.realtime_ns)
        self._context.on_sample(self, wall)

    @abstractmethod
    def ask(self) -> bool:
        """Send one request; False if it could not be sent."""

    def _send(
        self, topic: str, payload: bytes, properties: bytes = b""
    ) -> tuple[Transmit, int, int] | None:
        """Send a request; returns the first fields of its `Pending`, None if it was not sent."""
        time_minus_raw_ns = self._clock.time_minus_raw_ns()
        transmit = self._context.connection.publish(topic, payload, properties)
        if transmit is None:
            return None
        # The stamp is mostly there already; if it is not collected, it wakes the program up.
        self._context.connection.collect_stamps()
        if len(self._pending) >= _PENDING_LIMIT:
            self._pending.popitem(last=False)
            self._context.refuse("no-reply")
        asked_raw_ns = self._clock.raw_of_kernel_ns(transmit.user_ns)
        return transmit, asked_raw_ns, time_minus_raw_ns

    def expire(self) -> None:
        """Give up waiting for the missing answers of old exchanges."""
        now_ns = self._clock.raw_ns()
        while self._pending:
            key, pending = next(iter(self._pending.items()))
            if now_ns - pending.asked_raw_ns < _MAXIMUM_AGE_NS:
                return
            del self._pending[key]
            self._give_up(pending)

    def _give_up(self, _pending: Any) -> None:
        self._context.refuse("no-reply")

    def reset(self) -> None:
        """Forget all measurements, because a clock is no longer the one that was measured."""
        self.estimator.reset()
        self.first.reset()
        self.authenticated = False
        self._forget_unfinished()

    def connection_lost(self) -> None:
        """Forget exchanges that have begun: their answers will not arrive."""
        self._forget_unfinished()

    def _forget_unfinished(self) -> None:
        self._pending.clear()
