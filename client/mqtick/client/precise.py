"""A server of the precise format: its broadcasts, and the exchanges with it."""

from __future__ import annotations

import secrets
from collections import OrderedDict

from mqtick.client.exchange import echo, one_way, two_way, without_broker
from mqtick.client.pending import ArrivalReading, Placement, PrecisePending
from mqtick.client.rhythm import Rhythm
from mqtick.client.sample import Origin, Reading, Sample, SampleVerdict
from mqtick.client.track import ClientContext, Track
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keyring, Replay
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import (
    Echo,
    FollowUp,
    Leap,
    Reply,
    Request,
    Time,
    decode_follow_up,
    tag_of,
)
from mqtick.protocol.residence import Residence

__all__ = ["PreciseTrack"]

_REPEATED = 2
_UNECHOED = 4
"""So many replies in a row without the echo that was asked for: follow-ups are asked for."""
_TRY_ECHO_EVERY = 64
"""But once in so many requests: the echo may come again."""


class PreciseTrack(Track):
    """Follows one server of the precise format."""

    number: int
    _pending: OrderedDict[int, PrecisePending]

    def __init__(self, context: ClientContext, number: int, keyring: Keyring) -> None:
        super().__init__(context)
        self.number = number
        self.leap = Leap.UNSYNCHRONISED
        self.use_keys(keyring)
        self.generation: int | None = None
        self.met_raw_ns = self._clock.raw_ns()
        """When something first named this server, which may have been anybody."""
        self.rhythm = Rhythm()
        """When broadcasts come, which exchanges should avoid."""
        self._replay = Replay(self._time_tolerance_ns)
        self._repeated = 0
        """Broadcasts refused as repeated since the last one that was not."""
        self._sequence = secrets.randbelow(2**31)
        self._unechoed = 0
        """Replies since the last echo behind which nothing came, though one was asked for."""
        self._previous: tuple[Time, ArrivalReading, Residence | None] | None = None
        self._server_fills = False
        """Whether the server said last that its broker fills trailers."""
        reply_topic = context.tree.reply(number, context.name)
        self._placement = Placement(context.connection, reply_topic)

    def use_keys(self, keyring: Keyring) -> None:
        """Sign and verify with these keys from now on; what was measured stays."""
        self._broadcast_keys, self._keys = keyring.broadcast(), keyring.client(self._context.name)
        self.secured = bool(self._keys.keys)

    # -- what is known of the server -------------------------------------------------------

    def connection_lost(self) -> None:
        """Nothing on its way will arrive, and our place is gone."""
        super().connection_lost()
        self._placement.lose()
        self._unechoed = 0

    def _forget_unfinished(self) -> None:
        super()._forget_unfinished()
        self._previous = None

    def _note_generation(self, generation: int) -> None:
        if self.generation is not None and generation != self.generation:
            self.reset()
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
            self._server_fills = message.fills
            # Also for one that is refused below: the server is there, and asking it helps.
            self.heard_raw_ns = self._clock.raw_ns()
            if self.secured and not (self.authenticated and self.estimator.is_bounded):
                # A replay of yesterday, or what another client has forged: the tag is right.
                raise DecodeError("before-exchange", "No exchange bounds the time yet; ignored.")
            self._check_generation(message.generation)
            self._guard(message)
        except DecodeError as error:
            self._context.refuse(error.reason)
            return None
        arrived = self._arrival(arrival.stamp)
        if not self.secured:
            self._note_quality(message)
        previous = self._previous
        self._previous = (message, arrived, self._residence(message))
        in_row = previous is not None and (message.sequence - previous[0].sequence) % 2**32 == 1
        if not self._settings.use_follow_up:
            self._broadcast_sample(*self._previous, None, StampSource.NONE)
        elif previous is not None and in_row:
            self._broadcast_sample(
                *previous, message.previous_correction_ns, StampSource(message.correction_source)
            )
        elif previous is not None:
            self._context.refuse("no-follow-up")  # the message that told its correction was lost
        return message

    def _guard(self, message: Time) -> None:
        """Refuse what was heard before; count how often nothing else was heard."""
        try:
            self._replay.accept(message, self._known_time_ns())
        except DecodeError as error:
            self._repeated += error.reason in ("replayed", "backwards")
            raise
        self._repeated = 0

    def _forget_guard(self, pending: PrecisePending) -> None:
        """Restart the guard: an exchange succeeds while all broadcasts seem to be repeated.

        Either the server restarted with the same generation number as before (one in 256), and then
        its first echo is behind us; or one stray message had a sequence far ahead.
        """
        self._replay = Replay(self._time_tolerance_ns)
        self._repeated = 0
        self._placement.lose()
        pending.place = None

    def _may_use_residence(self) -> bool:
        """Whether the broker that we are connected to says how long messages were in it."""
        return self._settings.use_residence and self._context.loopback.filled

    def _residence(self, message: Time | Reply) -> Residence | None:
        """What the trailer of this message says, if both brokers fill trailers; None if not."""
        use = message.fills and self._may_use_residence()
        return self._context.copies.current if use else None

    def _broadcast_sample(
        self,
        message: Time,
        arrived: ArrivalReading,
        residence: Residence | None,
        correction_ns: int | None,
        source: StampSource,
    ) -> None:
        stated = Reading(message.transmit_ns, source or StampSource.USER)
        sample = one_way(
            self._origin(message, message.sequence),
            stated,
            arrived.reading,
            self._settings,
            waited_ns=arrived.waited_ns,
            correction_ns=correction_ns,
            in_broker=_in_broker(residence),
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
            server=self.number,
            sequence=sequence,
            generation=message.generation,
            root_distance_ns=message.root_distance_ns,
            stratum=message.stratum,
            leap=leap,
            authenticated=self.secured,
        )

    # -- exchanges -------------------------------------------------------------------------

    def _wants_echo(self, version: int) -> bool:
        """Whether to ask for one: of a server at another site none comes (`mqtick-join`).

        Nor where residence is stated: that says more, and a node may state it that was held up and
        has handed the reply on before the first echo, or after the last one.
        """
        is_due = self._unechoed < _UNECHOED or self._sequence % _TRY_ECHO_EVERY == 0
        return self._settings.use_echo and is_due and version == 1

    def ask(self) -> bool:
        """Send one request; False when it could not go."""
        self._sequence = (self._sequence + 1) % 2**32
        version = 2 if self._server_fills and self._may_use_residence() else 1
        wants_echo = self._wants_echo(version)
        request = Request(
            self.number, self._sequence, secrets.token_bytes(8), wants_echo, version=version
        )
        topic = self._context.tree.request(self.number, self._context.name)
        payload = self._keys.sign(request.body(), topic)
        if request.version == 2:
            self._context.loopback.warm_up()
        sent = self._send(topic, payload)
        if sent is not None:
            place = self._placement.current
            self._pending[request.sequence] = PrecisePending(*sent, request, place)
        return sent is not None

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
            self._context.refuse(error.reason)
            return
        pending.reply, pending.reply_tag = reply, tag_of(arrival.payload)
        pending.arrival = self._arrival(arrival.stamp)
        pending.maybe_held = arrival.maybe_held
        pending.residence = self._residence(reply)
        # To a request of version 1 every server answers in version 1.
        self._server_fills = reply.fills or (self._server_fills and pending.request.version == 1)

    def on_follow_up(self, arrival: Arrival) -> None:
        """Take a follow-up or an echo, which completes an exchange."""
        try:
            message = decode_follow_up(arrival.payload)
            pending = self._pending.get(message.sequence)
            if pending is None or pending.reply is None or arrival.retain:
                raise DecodeError("unasked", "No reply waits for this follow-up; ignored.")
            self._keys.verify(arrival.payload, arrival.topic, pending.reply_tag)
        except DecodeError as error:
            self._context.refuse(error.reason)
            return
        del self._pending[message.sequence]
        if isinstance(message, Echo):
            self._unechoed = 0
        self._complete(pending, message)

    def _give_up(self, pending: PrecisePending) -> None:
        """Complete an exchange whose follow-up never came; count a request without a reply."""
        if pending.reply is None:
            self._context.refuse("no-reply")
        else:
            self._unechoed += pending.request.wants_echo
            self._complete(pending, None)

    def _complete(self, pending: PrecisePending, message: FollowUp | Echo | None) -> None:
        reply, arrival = pending.reply, pending.arrival
        assert reply is not None
        assert arrival is not None
        self._context.connection.collect_stamps()
        if reply.leap != Leap.UNSYNCHRONISED and not self._context.vouch(self, reply.transmit_ns):
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
        corrected = StampSource.USER if message is None else StampSource(message.correction_source)
        exchange = two_way(
            origin,
            pending.sent,
            Reading(reply.receive_ns, StampSource(reply.receive_source)),
            Reading(reply.transmit_ns, corrected),
            arrival.reading,
            self._settings,
            correction_ns=correction_ns,
        ).widened(slewed_ns)
        self.last_delay_ns = exchange.delay_ns
        self._take(exchange, arrival)
        if isinstance(message, Echo):
            self.server_loop_ns = message.loop_ns
        refined = self._without_broker(pending, message, exchange)
        if refined is not None:
            self._take(refined.within(exchange), arrival)
        elif isinstance(message, Echo) and self._settings.use_echo:
            bracketed = self._echo_sample(origin, message, pending, arrival.reading, exchange)
            if bracketed is not None:
                # If the exchange is the limit, it is already as wide as it has to be.
                self._take(bracketed.widened(slewed_ns).within(exchange), arrival)

    def _without_broker(
        self, pending: PrecisePending, message: FollowUp | Echo | None, exchange: Sample
    ) -> Sample | None:
        """Return the exchange without the broker's share, or None if that is not known.

        Corrected as far as the trailer of the next copy, here and at the server, has come.
        """
        reply, in_broker = pending.reply, _in_broker(pending.residence)
        assert reply is not None
        if in_broker is None or not reply.request_source:
            return None
        if exchange.verdict is SampleVerdict.REFUSED:
            return None
        request = Residence(reply.request_residence, reply.request_source)
        if message is not None and message.request_source:
            request.correction_ns = message.request_correction_ns
            request.source = min(request.source, message.request_source)
        asked = Reading(request.ns, StampSource(request.source))
        return without_broker(exchange, asked, in_broker, self._settings)

    def _echo_sample(
        self,
        origin: Origin,
        message: Echo,
        pending: PrecisePending,
        arrival: Reading,
        exchange: Sample,
    ) -> Sample | None:
        """Return the echo sample, or None while we are not yet behind the first echo.

        Or where the reply may have waited for our acknowledgement of another message: then it
        came later than the broker sent it to the echoes. Or with another message in a node: then
        it came sooner.
        """
        place = (message.generation, message.placement)
        if pending.place != place:
            self._placement.see_to(place)
            return None
        if pending.maybe_held:
            self._context.refuse("held")
            return None
        assert pending.reply is not None
        first_ns = pending.reply.transmit_ns + message.first_echo_ns
        return echo(
            origin,
            Reading(first_ns, StampSource(message.first_source)),
            Reading(first_ns + message.echo_span_ns, StampSource(message.last_source)),
            arrival,
            self._settings,
            loop_client_ns=self._context.loopback.delay_ns(),
            loop_server_ns=message.loop_ns,
            loop_spread_ns=self._context.loopback.spread_ns(),
            exchange=exchange,
        )


def _in_broker(residence: Residence | None) -> Reading | None:
    return None if residence is None else Reading(residence.ns, StampSource(residence.source))
