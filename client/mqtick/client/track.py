"""One time server, as a client follows it: its broadcasts, the exchanges with it, its estimator.

No I/O: messages come in as arrivals, requests go out through a function that is given.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from mqtick.client.estimator import Estimator
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.exchange import echo, one_way, two_way
from mqtick.client.sample import Origin, Reading, Sample
from mqtick.protocol.auth import Keyring, Replay
from mqtick.protocol.clocks import Clock
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.frames import Arrival
from mqtick.protocol.precise import Echo, FollowUp, Reply, Request, Time
from mqtick.protocol.recent import LowRecent
from mqtick.protocol.stamps import Source, Stamp, Transmit
from mqtick.protocol.topics import TopicTree

__all__ = ["Track", "WallSample"]

_PENDING_LIMIT = 64
_MAXIMUM_AGE_NS = 3_000_000_000


@dataclass(frozen=True, slots=True)
class ArrivalReading:
    """When a message arrived, on every timeline that will be asked for."""

    reading: Reading
    time_minus_raw_ns: int
    realtime_ns: int


@dataclass(slots=True)
class Pending:
    """A request on its way."""

    request: Request
    transmit: Transmit
    asked_raw_ns: int
    placement: tuple[int, int] | None
    """(generation, placement) behind which we were placed when we asked; None if we were not."""
    reply: Reply | None = None
    arrival: ArrivalReading | None = None


@dataclass(frozen=True, slots=True)
class WallSample:
    """A sample, and what made its local timeline into the judged clock when it was taken."""

    sample: Sample
    time_minus_raw_ns: int
    realtime_ns: int
    """CLOCK_REALTIME at the arrival (the judged clock too, unless that is a virtual one)."""

    @property
    def offset_ns(self) -> int:
        """Reference minus the judged clock."""
        return self.sample.offset_ns - self.time_minus_raw_ns


class Track:
    """Follows one server. Every sample goes through the estimator and then to `on_sample`.

    `publish(topic, payload)` sends a request; `collect_stamps()` fetches kernel transmit stamps;
    `place_behind()` makes the client subscribe anew to its reply topic and calls `placed` when
    the broker has agreed; `refuse(reason)` counts a message that was ignored.
    """

    def __init__(
        self,
        number: int,
        name: str,
        tree: TopicTree,
        clock: Clock,
        keyring: Keyring,
        settings: EstimatorSettings,
        *,
        publish: Callable[[str, bytes], Transmit | None],
        collect_stamps: Callable[[], None],
        place_behind: Callable[[Callable[[bool], None]], None],
        on_sample: Callable[[Track, WallSample], None],
        refuse: Callable[[str], None],
        time_tolerance_ns: int,
    ) -> None:
        self.number, self.name = number, name
        self._tree, self._clock, self._settings = tree, clock, settings
        self._broadcast_keys, self._keys = keyring.broadcast(), keyring.client(name)
        self.secured = bool(self._keys.keys)
        self._publish, self._collect_stamps = publish, collect_stamps
        self._place_behind, self._on_sample, self._refuse = place_behind, on_sample, refuse
        self.estimator = Estimator(settings)
        self.loop_delay = LowRecent()
        """Our own transmit to our own arrival through the broker, ns."""
        self.server_loop_ns: int | None = None
        self.authenticated = False
        """Whether an authenticated exchange with a nonce has succeeded since the last reset."""
        self.generation: int | None = None
        self.heard_raw_ns: int | None = None
        self.wants_exchange = False
        """Whether something happened that only an exchange can settle."""
        self.last_delay_ns: int | None = None
        self.stratum, self.leap, self.root_distance_ns = 0, 3, 0
        self._replay = Replay(time_tolerance_ns)
        self._pending: OrderedDict[int, Pending] = OrderedDict()
        self._sequence = secrets.randbelow(2**31)
        self._previous: tuple[Time, ArrivalReading] | None = None
        self._placement: tuple[int, int] | None = None
        self._placing: tuple[int, int] | None = None

    # -- helpers ---------------------------------------------------------------------------

    def _reading(self, stamp: Stamp) -> Reading:
        return Reading(self._clock.raw_of_kernel_ns(stamp.realtime_ns), stamp.source)

    def _arrival(self, stamp: Stamp) -> ArrivalReading:
        return ArrivalReading(
            self._reading(stamp), self._clock.time_minus_raw_ns(), stamp.realtime_ns
        )

    def _take(self, sample: Sample, arrival: ArrivalReading) -> None:
        judged = self.estimator.add(sample)
        wall = WallSample(judged, arrival.time_minus_raw_ns, arrival.realtime_ns)
        self._on_sample(self, wall)

    def reset(self, reason: str) -> None:
        """Forget what was measured: the clocks are not the ones it was measured with."""
        self.estimator.reset(reason)
        self._pending.clear()
        self._previous = None
        self.loop_delay.clear()

    def connection_lost(self) -> None:
        """The broker was lost: nothing on its way will arrive, and our place is gone."""
        self._pending.clear()
        self._previous = None
        self._placement = self._placing = None

    def _note_generation(self, generation: int) -> None:
        if self.generation is not None and generation != self.generation:
            self.reset("server-generation")
            self._placement = self._placing = None
        self.generation = generation

    def _check_generation(self, generation: int) -> None:
        """Let only an exchange change the generation: a broadcast of another may be a replay."""
        if self.generation is None or not self._settings.use_two_way:
            self._note_generation(generation)
        elif generation != self.generation:
            self.wants_exchange = True
            raise DecodeError("generation", "Another generation of the server; asking it first.")

    def _known_time_ns(self) -> int | None:
        """The time as far as it is known: by the estimate, never by a clock nobody checked."""
        now_ns = self._clock.raw_ns()
        estimate = self.estimator.at(now_ns)
        return estimate.reference_ns() if estimate.state.is_known else None

    # -- broadcasts ------------------------------------------------------------------------

    def on_time(self, arrival: Arrival) -> None:
        """Take a time message; the sample of the one before it becomes complete."""
        try:
            if arrival.retain:
                raise DecodeError("retained", "A retained time message is old by nature; ignored.")
            message = Time.decode(arrival.payload)
            if message.server != self.number:
                raise DecodeError("server", "The message names another server than its topic.")
            self._broadcast_keys.verify(arrival.payload, arrival.topic)
            if self.secured and not self.authenticated:
                # It may be a replay of yesterday: the tag alone says nothing about when.
                raise DecodeError("before-exchange", "No authenticated exchange yet; ignored.")
            self._check_generation(message.generation)
            self._replay.accept(message, self._known_time_ns())
        except DecodeError as error:
            self._refuse(error.reason)
            return
        arrived = self._arrival(arrival.stamp)
        self.heard_raw_ns = arrived.reading.instant_ns
        self._note_quality(message.stratum, message.leap, message.root_distance_ns)
        previous = self._previous
        self._previous = (message, arrived)
        if not self._settings.use_follow_up:
            self._broadcast_sample(message, arrived, None, Source.NONE)
        elif previous is not None and previous[0].sequence == (message.sequence - 1) % 2**32:
            self._broadcast_sample(
                *previous, message.previous_correction_ns, message.correction_source
            )

    def _broadcast_sample(
        self,
        message: Time,
        arrived: ArrivalReading,
        correction_ns: int | None,
        source: Source,
    ) -> None:
        stated = Reading(message.transmit_ns, source or Source.USER)
        sample = one_way(
            self._origin(message, message.sequence),
            stated,
            arrived.reading,
            self._settings,
            correction_ns=correction_ns,
        )
        self._take(sample, arrived)

    def _note_quality(self, stratum: int, leap: int, root_distance_ns: int) -> None:
        self.stratum, self.leap, self.root_distance_ns = stratum, leap, root_distance_ns

    def _origin(self, message: Time | Reply, sequence: int) -> Origin:
        return Origin(
            self.number,
            sequence,
            message.generation,
            message.root_distance_ns,
            message.stratum,
            message.leap,
            self.secured,
        )

    # -- exchanges -------------------------------------------------------------------------

    def ask(self) -> bool:
        """Send one request; False when it could not go."""
        self._sequence = (self._sequence + 1) % 2**32
        request = Request(
            self.number, self._sequence, secrets.token_bytes(8), self._settings.use_echo
        )
        topic = self._tree.request(self.number, self.name)
        payload = self._keys.sign(request.body(), topic)
        transmit = self._publish(topic, payload)
        if transmit is None:
            return False
        if len(self._pending) >= _PENDING_LIMIT:
            self._pending.popitem(last=False)
            self._refuse("no-reply")
        self._pending[request.sequence] = Pending(
            request, transmit, self._clock.raw_ns(), self._placement
        )
        return True

    def on_own_request(self, arrival: Arrival) -> None:
        """Our own request came back through the broker: the loop delay, on our clock alone."""
        try:
            request = Request.decode(arrival.payload)
        except DecodeError as error:
            self._refuse(error.reason)
            return
        pending = self._pending.get(request.sequence)
        if pending is None or pending.request.nonce != request.nonce or arrival.retain:
            self._refuse("unasked")
            return
        self._collect_stamps()
        sent, came = pending.transmit.stamp, arrival.stamp
        if sent.source is came.source:
            self.loop_delay.add(came.realtime_ns - sent.realtime_ns, self._clock.raw_ns())

    def on_reply(self, arrival: Arrival) -> None:
        """Take a reply; the exchange is complete when its follow-up or echo has come."""
        try:
            if arrival.retain:
                raise DecodeError("retained", "A retained reply is old by nature; ignored.")
            reply = Reply.decode(arrival.payload)
            pending = self._pending.get(reply.sequence)
            if pending is None or pending.reply is not None:
                raise DecodeError("unasked", "Nobody asked for this reply; ignored.")
            self._keys.verify(arrival.payload, arrival.topic, pending.request.nonce)
        except DecodeError as error:
            self._refuse(error.reason)
            return
        pending.reply = reply
        pending.arrival = self._arrival(arrival.stamp)

    def on_follow_up(self, arrival: Arrival) -> None:
        """Take a follow-up or an echo, which completes an exchange."""
        try:
            message = _follow_up_or_echo(arrival.payload)
            pending = self._pending.get(message.sequence)
            if pending is None or pending.reply is None or arrival.retain:
                raise DecodeError("unasked", "No reply waits for this follow-up; ignored.")
            self._keys.verify(arrival.payload, arrival.topic, pending.request.nonce)
        except DecodeError as error:
            self._refuse(error.reason)
            return
        del self._pending[message.sequence]
        self._complete(pending, message)

    def expire(self) -> None:
        """Complete exchanges whose follow-up never came; count requests without a reply."""
        now_ns = self._clock.raw_ns()
        while self._pending:
            sequence, pending = next(iter(self._pending.items()))
            if now_ns - pending.asked_raw_ns < _MAXIMUM_AGE_NS:
                return
            del self._pending[sequence]
            if pending.reply is None:
                self._refuse("no-reply")
            else:
                self._complete(pending, None)

    def _complete(self, pending: Pending, message: FollowUp | Echo | None) -> None:
        reply, arrival = pending.reply, pending.arrival
        assert reply is not None
        assert arrival is not None
        self._collect_stamps()
        self._note_generation(reply.generation)
        self.authenticated, self.wants_exchange = True, False
        self._note_quality(reply.stratum, reply.leap, reply.root_distance_ns)
        self.heard_raw_ns = arrival.reading.instant_ns
        sent = self._reading(pending.transmit.stamp)
        origin = self._origin(reply, reply.sequence)
        correction_ns = message.correction_ns if message is not None else None
        source = message.correction_source if message is not None else Source.USER
        exchange = two_way(
            origin,
            sent,
            Reading(reply.transmit_ns - reply.residence_ns, reply.receive_source),
            Reading(reply.transmit_ns, source),
            arrival.reading,
            self._settings,
            correction_ns=correction_ns,
        )
        self.last_delay_ns = exchange.delay_ns
        self._take(exchange, arrival)
        if isinstance(message, Echo) and self._settings.use_echo:
            self.server_loop_ns = message.loop_ns
            bracketed = self._echo_sample(origin, message, pending, arrival.reading, exchange)
            if bracketed is not None:
                self._take(bracketed, arrival)

    def _echo_sample(
        self, origin: Origin, message: Echo, pending: Pending, arrival: Reading, exchange: Sample
    ) -> Sample | None:
        """Return the echo sample, or None while we are not yet behind the first echo."""
        place = (message.generation, message.placement)
        if pending.placement != place:
            self._see_to_place(place)
            return None
        assert pending.reply is not None
        first_ns = pending.reply.transmit_ns + message.first_echo_ns
        return echo(
            origin,
            Reading(first_ns, message.first_source),
            Reading(first_ns + message.echo_span_ns, message.last_source),
            arrival,
            self._settings,
            loop_client_ns=self.loop_delay.value(self._clock.raw_ns()),
            loop_server_ns=message.loop_ns,
            exchange=exchange,
        )

    def _see_to_place(self, place: tuple[int, int]) -> None:
        if place in (self._placing, self._placement):
            return
        self._placing = place

        def placed(granted: bool) -> None:
            if granted and self._placing == place:
                self._placement = place
            self._placing = None

        self._place_behind(placed)


def _follow_up_or_echo(payload: bytes) -> FollowUp | Echo:
    """Decode either of the two kinds that complete an exchange."""
    return Echo.decode(payload) if payload[:1] == b"\x15" else FollowUp.decode(payload)
