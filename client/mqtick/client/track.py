"""One time server as a client follows it, whichever format it speaks.

No I/O: messages come in as arrivals, requests go out through the connection that is given.
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
from mqtick.protocol.residence import Copies
from mqtick.protocol.time_types import NS_PER_S
from mqtick.protocol.topics import TopicTree

__all__ = ["ClientContext", "Track"]

_PENDING_LIMIT = 64
_MAXIMUM_AGE_NS = 3 * NS_PER_S


@dataclass(frozen=True, slots=True)
class ClientContext:
    """What a client's parts share.

    Attributes:
        settings: Those of the client.
        name: The client's name in topics.
        clock: The clock that is judged.
        tree: The topics of the precise format.
        connection: The connection to the broker.
        loopback: The client's own way through the broker.
        copies: What the broker says of the messages that come by `connection`.
        refuse: Counts a message that was ignored, by the reason.
        on_sample: Called with the track and every sample, judged.
        on_arrival: Called at once when a time message was read, before it is decoded: pins.
        vouch: Asked before an exchange is believed: with the time that it gives (Unix ns),
            everything else about the connection may be checked; if it says no, the exchange counts
            for nothing.
        clock_changed: Whether the host's clock was set, or the host slept, since this was asked.
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

    def subscribed(self, granted: bool) -> None:
        """Note the broker's answer to a subscription."""
        if not granted:
            self.refuse("subscription")
            self.connection.last_error = (
                f"{self.connection.address} refused a subscription: "
                f"{self.connection.broker.refusal_remedy}"
            )

    def hook(self, topic: str) -> None:
        """Have `on_arrival` called for the time messages on a topic."""
        if self.on_arrival is not None:
            self.connection.hooks[topic.encode()] = self.on_arrival

    def unhook(self, topic: str) -> None:
        """End that."""
        self.connection.hooks.pop(topic.encode(), None)


class Track(ABC):
    """Follows one server. Every sample goes through the estimator and then to `on_sample`."""

    format = "precise"
    number: int | None = None
    """None where the format has no numbers."""
    secured = False
    """Whether messages carry tags that are verified."""
    server_loop_ns: int | None = None
    """The server's own way through the broker, as it says."""

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
        """By what tells answers apart, the requests (`Pending`) that wait for one."""

    @property
    def label(self) -> str:
        """What people call the server: its number, or the format if that has none."""
        return self.format if self.number is None else str(self.number)

    def _arrival(self, stamp: Stamp) -> ArrivalReading:
        raw_ns = self._clock.raw_of_kernel_ns(stamp.realtime_ns)
        reading = Reading(raw_ns, stamp.source)
        waited_ns = self._clock.raw_ns() - raw_ns
        return ArrivalReading(
            reading, self._clock.time_minus_raw_ns(), stamp.realtime_ns, waited_ns
        )

    def _take(self, sample: Sample, arrival: ArrivalReading) -> None:
        """Have a sample judged; DecodeError if its stamps may have been made by two clocks."""
        if self._context.clock_changed():
            raise DecodeError("clock-changed", "The clock was set, or the host slept, meanwhile.")
        judged = self.first.add(sample, arrival.time_minus_raw_ns)
        wall = WallSample(judged, arrival.time_minus_raw_ns, arrival.realtime_ns)
        self._context.on_sample(self, wall)

    @abstractmethod
    def ask(self) -> bool:
        """Send one request; False when it could not go."""

    def _send(
        self, topic: str, payload: bytes, properties: bytes = b""
    ) -> tuple[Transmit, int, int] | None:
        """Send a request; returns what a `Pending` begins with, None if it could not go."""
        time_minus_raw_ns = self._clock.time_minus_raw_ns()
        transmit = self._context.connection.publish(topic, payload, properties)
        if transmit is None:
            return None
        self._context.connection.collect_stamps()  # mostly there; left there, it would wake us up
        if len(self._pending) >= _PENDING_LIMIT:
            self._pending.popitem(last=False)
            self._context.refuse("no-reply")
        asked_raw_ns = self._clock.raw_of_kernel_ns(transmit.user_ns)
        return transmit, asked_raw_ns, time_minus_raw_ns

    def expire(self) -> None:
        """Give up waiting for what is missing of old exchanges."""
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
        """Forget what was measured: the clocks are not the ones it was measured with."""
        self.estimator.reset()
        self.first.reset()
        self.authenticated = False
        self._forget_unfinished()

    def connection_lost(self) -> None:
        """Nothing on its way will arrive."""
        self._forget_unfinished()

    def _forget_unfinished(self) -> None:
        self._pending.clear()
