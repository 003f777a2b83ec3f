"""A server of the precise format: its broadcasts, and the exchanges with it."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import replace

from mqtick.client.exchange import echo, one_way, two_way, without_broker
from mqtick.client.pending import ArrivalReading, Placement, PrecisePending
from mqtick.client.rhythm import Rhythm
from mqtick.client.sample import Origin, Reading, Sample, SampleVerdict
from mqtick.client.track import ClientContext, Track
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keyring, Replay
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.namesakes import is_same_count
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

_REPEATED = 2
_UNECHOED = 4
"""After so many replies in a row without the echo that was asked for, ask for follow-ups."""
_TRY_ECHO_EVERY = 64
"""Then one in so many requests still asks for an echo, because echoes may come again."""


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
        """When a message first named this server; anyone may have sent that message."""
        self.rhythm = Rhythm()
        """When broadcasts come, which exchanges should avoid."""
        self._replay = Replay(self._time_tolerance_ns)
        self._repeated = 0
        """Broadcasts refused as repeated since the last accepted one."""
        self._sequence = secrets.randbelow(2**31)
        self._stated_ns = 2**63
        """The time that our last reply states; before the first, all others are older."""
        self._anothers: tuple[Reply, bytes] | None = None
        """The last reply to a request that was not ours, and its tag."""
        self._unechoed = 0
        """Exchanges since the last echo that asked for an echo and got no answer but the reply."""
        self._previous: tuple[Time, ArrivalReading, Residence | None] | None = None
        self._server_fills = False
        """Whether the server's last message says that its broker fills trailers."""
        reply_topic = context.tree.reply(number, context.name)
        self._placement = Placement(context.connection, reply_topic)

    def use_keys(self, keyring: Keyring) -> None:
        """Sign and verify with these keys from now on; what was measured stays."""
        self._broadcast_keys, self._keys = keyring.broadcast(), keyring.client(self._context.name)
        self.secured = bool(self._keys.keys)

    # -- what is known of the server -------------------------------------------------------

    def connection_lost(self) -> None:
        """Forget exchanges that have begun, and our place behind the first echo."""
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
        """Refuse a broadcast of another generation, which may be a replay; an exchange decides."""
        if self.generation is None or not self._settings.use_two_way:
            self._note_generation(generation)
        elif generation != self.generation:
            self.wants_exchange = True
            raise DecodeError("generation", "Another generation of the server; asking it first.")

    def _known_time_ns(self) -> int | None:
        """The estimated time; None while it is not known. The unchecked host clock is not used."""
        now_ns = self._clock.raw_ns()
        estimate = self.estimator.at(now_ns)
        return estimate.reference_ns() if estimate.state.is_known else None

    # -- broadcasts ------------------------------------------------------------------------

    def on_time(self, arrival: Arrival) -> Time | None:
        """Take a time message, which completes the sample of the message before it.

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
            # Also if it is refused below: the server is present, and a request to it helps.
            self.heard_raw_ns = self._clock.raw_ns()
            if self.secured and not (self.authenticated and self.estimator.is_bounded):
                # It may be an old message, or another client's forgery: both have a valid tag.
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
            self._context.refuse("no-follow-up")  # the message with its correction was lost
        return message

    def _guard(self, message: Time) -> None:
        """Refuse a repeated broadcast; count those refused since the last accepted one."""
        try:
            self._replay.accept(message, self._known_time_ns())
        except DecodeError as error:
            self._repeated += error.reason in ("replayed", "backwards")
            raise
        self._repeated = 0

    def _forget_guard(self, pending: PrecisePending) -> None:
        """Restart the guard: an exchange succeeds, but all broadcasts seem to be repeated.

        Either the server has restarted with the same generation number (one case in 256), and its
        first echo has subscribed later than we did; or one stray message had a sequence far ahead.
        """
        self._replay = Replay(self._time_tolerance_ns)
        self._repeated = 0
        self._placement.lose()
        pending.place = None

    def _may_use_residence(self) -> bool:
        """Whether our broker states how long each message was in it, and we may use that."""
        return self._settings.use_residence and self._context.loopback.filled

    def _residence(self, message: Time | Reply) -> Residence | None:
        """The residence in the trailer of the newest message, if both brokers fill trailers."""
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
            leap = Leap(self.leap)  # any client can sign a broadcast: it must not insert a second
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
        """Whether the next request asks for an echo.

        No echo comes from a server at another site (`mqtick-join`), so after some replies without
        one, most requests ask for none. None is needed either where the broker states residence,
        which gives a better sample; and a node that was held up may deliver the reply before the
        first echo or after the last one.
        """
        is_due = self._unechoed < _UNECHOED or self._sequence % _TRY_ECHO_EVERY == 0
        return self._settings.use_echo and is_due and version == 1

    def ask(self) -> bool:
        """Send one request; False if it could not be sent."""
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
            if pending is None:
                self._anothers = reply, tag_of(arrival.payload)
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
        # Every server answers a request of version 1 in version 1, which cannot say this.
        self._server_fills = reply.fills or (self._server_fills and pending.request.version == 1)

    def on_follow_up(self, arrival: Arrival) -> None:
        """Take a follow-up or an echo, which completes an exchange."""
        try:
            message = decode_follow_up(arrival.payload)
            pending = self._pending.get(message.sequence)
            if pending is None:
                self._note_namesake(message.sequence, arrival)
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

    def _note_namesake(self, sequence: int, arrival: Arrival) -> None:
        """Note a genuine answer to another client of our name; DecodeError if it is not genuine.

        Its reply is bound to a nonce that we do not know, but the follow-up is bound to the reply.
        What was recorded before we were started is older than our own last reply.
        """
        if self._anothers is None or self._anothers[0].sequence != sequence:
            return
        (reply, tag), self._anothers = self._anothers, None
        self._keys.verify(arrival.payload, arrival.topic, tag)
        is_new = reply.transmit_ns > self._stated_ns
        if is_new and not is_same_count(sequence, self._sequence):
            self._context.namesake.note(time.monotonic_ns())

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
        self._stated_ns = reply.transmit_ns
        self.authenticated, self.wants_exchange = True, False
        if self._repeated >= _REPEATED:
            self._forget_guard(pending)
        self._note_quality(reply)
        self.heard_raw_ns = arrival.reading.instant_ns
        slewed_ns = abs(arrival.time_minus_raw_ns - pending.time_minus_raw_ns)
        origin = self._origin(reply, reply.sequence)
        if message is not None:
            origin = replace(origin, rate_change_ppb=message.rate_change_ppb)
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
                # The exchange is already widened: its interval limits that of the echo.
                self._take(bracketed.widened(slewed_ns).within(exchange), arrival)

    def _without_broker(
        self, pending: PrecisePending, message: FollowUp | Echo | None, exchange: Sample
    ) -> Sample | None:
        """Return the exchange without its time in the broker, or None if that is not known.

        Each residence is corrected, if the trailer of the next copy has come, here or at the
        server.
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
        """Return the echo sample, or None if the broker may not have delivered in echo order.

        That is: while we are not subscribed behind the first echo; or if the broker may have held
        the reply back until we acknowledged another message (see `Arrival.maybe_held`). None, too,
        while it is not known how much longer our link is than the server's: the two-way sample
        needs no such correction.
        """
        place = (message.generation, message.placement)
        if pending.place != place:
            self._placement.see_to(place)
            return None
        if pending.maybe_held:
            self._context.refuse("held")
            return None
        loop_ns = self._context.loopback.delay_ns()
        if loop_ns is None or message.loop_ns is None:
            self._context.refuse("loop-unknown")
            return None
        assert pending.reply is not None
        first_ns = pending.reply.transmit_ns + message.first_echo_ns
        return echo(
            origin,
            Reading(first_ns, StampSource(message.first_source)),
            Reading(first_ns + message.echo_span_ns, StampSource(message.last_source)),
            arrival,
            self._settings,
            loop_client_ns=loop_ns,
            loop_server_ns=message.loop_ns,
            loop_spread_ns=self._context.loopback.spread_ns(),
            exchange=exchange,
        )


def _in_broker(residence: Residence | None) -> Reading | None:
    return None if residence is None else Reading(residence.ns, StampSource(residence.source))
