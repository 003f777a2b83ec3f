"""One time server, as a client follows it: its broadcasts, the exchanges with it, its estimator.

No I/O: messages come in as arrivals, requests go out through a function that is given.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable

from mqtick.client.estimator import Estimator
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.exchange import echo, one_way, two_way
from mqtick.client.first_time import FirstTime
from mqtick.client.pending import ArrivalReading, Pending, Placement, WallSample
from mqtick.client.rhythm import Rhythm
from mqtick.client.sample import Origin, Reading, Sample
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loopback import Loopback
from mqtick.mqtt.stamps import Source, Stamp, Transmit
from mqtick.protocol.auth import Keyring, Replay
from mqtick.protocol.clocks import Clock
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import TAG_OCTETS, Echo, FollowUp, Leap, Reply, Request, Time
from mqtick.protocol.topics import TopicTree

__all__ = ["Track"]

_PENDING_LIMIT = 64
_MAXIMUM_AGE_NS = 3_000_000_000
_REPEATED = 2


class Track:
    """Follows one server. Every sample goes through the estimator and then to `on_sample`.

    `publish(topic, payload)` sends a request; `collect_stamps()` fetches kernel transmit stamps;
    `place_behind()` makes the client subscribe again to its reply topic and calls `placed` when
    the broker has agreed; `refuse(reason)` counts a message that was ignored. `vouch(track, time)`
    is asked before an exchange is believed: with the time that it gives (Unix ns), everything else
    about the connection may be checked; if it says no, the exchange counts for nothing.
    """

    def __init__(
        self,
        number: int,
        name: str,
        tree: TopicTree,
        clock: Clock,
        keyring: Keyring,
        settings: EstimatorSettings,
        loopback: Loopback,
        *,
        publish: Callable[[str, bytes], Transmit | None],
        collect_stamps: Callable[[], None],
        place_behind: Callable[[Callable[[bool], None]], None],
        on_sample: Callable[[Track, WallSample], None],
        refuse: Callable[[str], None],
        vouch: Callable[[Track, int], bool] = lambda _track, _time_ns: True,
        time_tolerance_ns: int,
    ) -> None:
        self.number, self.name = number, name
        self._tree, self._clock, self._settings = tree, clock, settings
        self.use_keys(keyring)
        self._loopback = loopback
        self._publish, self._collect_stamps = publish, collect_stamps
        self._on_sample, self._refuse, self._vouch = on_sample, refuse, vouch
        self.estimator = Estimator(settings)
        self.first = FirstTime(self.estimator, time_tolerance_ns)
        self.server_loop_ns: int | None = None
        self.authenticated = False
        """Whether an authenticated exchange with a nonce has succeeded since the last reset."""
        self.generation: int | None = None
        self.heard_raw_ns: int | None = None
        self.met_raw_ns = clock.raw_ns()
        """When something first named this server, which may have been anybody."""
        self.rhythm = Rhythm()
        """When broadcasts come, which exchanges should avoid."""
        self.wants_exchange = False
        """Whether something happened that only an exchange can settle."""
        self.last_delay_ns: int | None = None
        self.stratum, self.leap, self.root_distance_ns = 0, 3, 0
        self._time_tolerance_ns = time_tolerance_ns
        self._replay = Replay(time_tolerance_ns)
        self._repeated = 0
        """Broadcasts refused as repeated since the last one that was not."""
        self._pending: OrderedDict[int, Pending] = OrderedDict()
        self._sequence = secrets.randbelow(2**31)
        self._previous: tuple[Time, ArrivalReading] | None = None
        self._placement = Placement(place_behind)

    def use_keys(self, keyring: Keyring) -> None:
        """Sign and verify with these keys from now on; what was measured stays."""
        self._broadcast_keys, self._keys = keyring.broadcast(), keyring.client(self.name)
        self.secured = bool(self._keys.keys)

    def local_ns(self) -> int:
        """Read the local timeline."""
        return self._clock.raw_ns()

    # -- helpers ---------------------------------------------------------------------------

    def _reading(self, stamp: Stamp) -> Reading:
        return Reading(self._clock.raw_of_kernel_ns(stamp.realtime_ns), stamp.source)

    def _arrival(self, stamp: Stamp) -> ArrivalReading:
        return ArrivalReading(
            self._reading(stamp), self._clock.time_minus_raw_ns(), stamp.realtime_ns
        )

    def _take(self, sample: Sample, arrival: ArrivalReading) -> None:
        judged = self.first.add(sample, arrival.time_minus_raw_ns)
        wall = WallSample(judged, arrival.time_minus_raw_ns, arrival.realtime_ns)
        self._on_sample(self, wall)

    def reset(self, reason: str) -> None:
        """Forget what was measured: the clocks are not the ones it was measured with."""
        self.estimator.reset(reason)
        self.first.reset()
        self.authenticated = False
        self._pending.clear()
        self._previous = None

    def connection_lost(self) -> None:
        """The broker was lost: nothing on its way will arrive, and our place is gone."""
        self._pending.clear()
        self._previous = None
        self._placement.lose()

    def _note_generation(self, generation: int) -> None:
        if self.generation is not None and generation != self.generation:
            self.reset("server-generation")
            self._placement.lose()
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

    def on_time(self, arrival: Arrival) -> Time | None:
        """Take a time message; the sample of the one before it becomes complete.

        Returns the message, or None if it was refused.
        """
        try:
            if arrival.retain:
                raise DecodeError("retained", "A retained time message is old by nature; ignored.")
            message = Time.decode(arrival.payload)
            if message.server != self.number:
                raise DecodeError("server", "The message names another server than its topic.")
            self._broadcast_keys.verify(arrival.payload, arrival.topic)
            # Also for one that is refused below: the server is there, and asking it helps.
            self.heard_raw_ns = self._clock.raw_ns()
            if self.secured and not (self.authenticated and self.estimator.is_bounded):
                # A replay of yesterday, or what another client has forged: the tag is right.
                raise DecodeError("before-exchange", "No exchange bounds the time yet; ignored.")
            self._check_generation(message.generation)
            self._guard(message)
        except DecodeError as error:
            self._refuse(error.reason)
            return None
        arrived = self._arrival(arrival.stamp)
        if not self.secured:
            self._note_quality(message)
        previous = self._previous
        self._previous = (message, arrived)
        in_row = previous is not None and (message.sequence - previous[0].sequence) % 2**32 == 1
        self.rhythm.note(arrived.reading.instant_ns, next_in_row=in_row)
        if not self._settings.use_follow_up:
            self._broadcast_sample(message, arrived, None, Source.NONE)
        elif previous is not None and in_row:
            self._broadcast_sample(
                *previous, message.previous_correction_ns, Source(message.correction_source)
            )
        elif previous is not None:
            self._refuse("no-follow-up")  # the message that told its correction was lost
        return message

    def _guard(self, message: Time) -> None:
        """Refuse what was heard before; count how often nothing else was heard."""
        try:
            self._replay.accept(message, self._known_time_ns())
        except DecodeError as error:
            self._repeated += error.reason in ("replayed", "backwards")
            raise
        self._repeated = 0

    def _forget_guard(self, pending: Pending) -> None:
        """Restart the guard: an exchange succeeds while all broadcasts seem to be repeated.

        Either the server restarted with the same generation number as before (one in 256), and then
        its first echo is behind us; or one stray message had a sequence far ahead.
        """
        self._replay = Replay(self._time_tolerance_ns)
        self._repeated = 0
        self._placement.lose()
        pending.place = None

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

    def _note_quality(self, message: Time | Reply) -> None:
        self.stratum, self.leap = message.stratum, message.leap
        self.root_distance_ns = message.root_distance_ns

    def _origin(self, message: Time | Reply, sequence: int) -> Origin:
        leap = message.leap
        if self.secured and isinstance(message, Time) and leap != Leap.UNSYNCHRONISED:
            leap = Leap(self.leap)  # what any client can sign must not insert a leap second
        return Origin(
            self.number,
            sequence,
            message.generation,
            message.root_distance_ns,
            message.stratum,
            leap,
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
        time_minus_raw_ns = self._clock.time_minus_raw_ns()
        transmit = self._publish(topic, payload)
        if transmit is None:
            return False
        self._collect_stamps()  # mostly there already; if left there, it would wake us up
        if len(self._pending) >= _PENDING_LIMIT:
            self._pending.popitem(last=False)
            self._refuse("no-reply")
        self._pending[request.sequence] = Pending(
            request,
            transmit,
            self._clock.raw_of_kernel_ns(transmit.user_ns),
            time_minus_raw_ns,
            self._placement.current,
            self._clock.raw_ns(),
        )
        return True

    def on_reply(self, arrival: Arrival) -> None:
        """Take a reply; the exchange is complete when its follow-up or echo has come."""
        try:
            if arrival.retain:
                raise DecodeError("retained", "A retained reply is old by nature; ignored.")
            reply = Reply.decode(arrival.payload)
            pending = self._pending.get(reply.sequence)
            if pending is None or pending.reply is not None or reply.server != self.number:
                raise DecodeError("unasked", "Nobody asked for this reply; ignored.")
            self._keys.verify(arrival.payload, arrival.topic, pending.request.nonce)
        except DecodeError as error:
            self._refuse(error.reason)
            return
        pending.reply, pending.reply_tag = reply, arrival.payload[-TAG_OCTETS:]
        pending.arrival = self._arrival(arrival.stamp)
        pending.maybe_held = arrival.maybe_held

    def on_follow_up(self, arrival: Arrival) -> None:
        """Take a follow-up or an echo, which completes an exchange."""
        try:
            message = _follow_up_or_echo(arrival.payload)
            pending = self._pending.get(message.sequence)
            if pending is None or pending.reply is None or arrival.retain:
                raise DecodeError("unasked", "No reply waits for this follow-up; ignored.")
            self._keys.verify(arrival.payload, arrival.topic, pending.reply_tag)
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
            if now_ns - pending.since_raw_ns < _MAXIMUM_AGE_NS:
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
        if reply.leap != Leap.UNSYNCHRONISED and not self._vouch(self, reply.transmit_ns):
            return
        self._note_generation(reply.generation)
        self.authenticated, self.wants_exchange = True, False
        if self._repeated >= _REPEATED:
            self._forget_guard(pending)
        self._note_quality(reply)
        self.heard_raw_ns = arrival.reading.instant_ns
        slewed_ns = abs(arrival.time_minus_raw_ns - pending.time_minus_raw_ns)
        origin = self._origin(reply, reply.sequence)
        correction_ns = message.correction_ns if message is not None else None
        corrected = Source.USER if message is None else Source(message.correction_source)
        exchange = two_way(
            origin,
            pending.sent,
            Reading(reply.transmit_ns - reply.residence_ns, Source(reply.receive_source)),
            Reading(reply.transmit_ns, corrected),
            arrival.reading,
            self._settings,
            correction_ns=correction_ns,
        ).widened(slewed_ns)
        self.last_delay_ns = exchange.delay_ns
        self._take(exchange, arrival)
        if isinstance(message, Echo) and self._settings.use_echo:
            self.server_loop_ns = message.loop_ns
            bracketed = self._echo_sample(origin, message, pending, arrival.reading, exchange)
            if bracketed is not None:
                # If the exchange is the limit, it is already as wide as it has to be.
                self._take(bracketed.widened(slewed_ns).within(exchange), arrival)

    def _echo_sample(
        self, origin: Origin, message: Echo, pending: Pending, arrival: Reading, exchange: Sample
    ) -> Sample | None:
        """Return the echo sample, or None while we are not yet behind the first echo.

        Or where the reply may have waited for our acknowledgement of another message: then it
        came later than the broker sent it to the echoes.
        """
        place = (message.generation, message.placement)
        if pending.place != place:
            self._placement.see_to(place)
            return None
        if pending.maybe_held:
            self._refuse("held")
            return None
        assert pending.reply is not None
        first_ns = pending.reply.transmit_ns + message.first_echo_ns
        return echo(
            origin,
            Reading(first_ns, Source(message.first_source)),
            Reading(first_ns + message.echo_span_ns, Source(message.last_source)),
            arrival,
            self._settings,
            loop_client_ns=self._loopback.delay_ns(),
            loop_server_ns=message.loop_ns,
            loop_spread_ns=self._loopback.spread_ns(),
            exchange=exchange,
        )


def _follow_up_or_echo(payload: bytes) -> FollowUp | Echo:
    """Decode either of the two kinds that complete an exchange."""
    return Echo.decode(payload) if payload[:1] == b"\x15" else FollowUp.decode(payload)
