"""Answers two-way requests of the precise format, and offers the private echo.

A reply's real transmit time, and the arrivals of its two echoes, are known only after it was sent;
they follow in a message of their own (kinds follow-up and echo of docs/protocol.md).
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loopback import Loopback
from mqtick.mqtt.recent import LowRecent
from mqtick.mqtt.stamps import Stamp, StampSource, Transmit
from mqtick.protocol.auth import Keyring
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.namesakes import Namesakes
from mqtick.protocol.precise import (
    Echo,
    FollowUp,
    Reply,
    Request,
    read_server_and_sequence,
    tag_of,
    without_trailer,
)
from mqtick.protocol.residence import Residence
from mqtick.timeserver.context import Context
from mqtick.timeserver.echo import EchoPair, NoEcho
from mqtick.timeserver.order import OrderProbe
from mqtick.timeserver.rate import RateLimit
from mqtick.timeserver.served import Reading

_Sent = tuple[str, int]  # the topic of a reply, and its sequence
_U32 = 2**32
_CORRECTION_LIMIT = 2**31 - 1
_PENDING_LIMIT = 8192
# Beyond the server's own round trip through the broker.
_ECHO_WAIT_NS = 500_000_000
# The follow-up is sent this long after the reply. By then the kernel's transmit stamp has come, and
# the client has read the reply: if it read both at once, the reply would have no kernel stamp.
_STAMP_WAIT_NS = 3_000_000
# Longer than any client waits for an answer (3 s).
_NONCE_AGE_NS = 8_000_000_000


class Exchanging(Context, Protocol):
    """A time server, as exchanges need it.

    Attributes:
        loopback: Measures the server's own path through the broker and back.
    """

    loopback: Loopback

    @property
    def echo(self) -> EchoPair | NoEcho:
        """The connections on which each client's replies are echoed."""

    @property
    def order(self) -> OrderProbe:
        """Tests whether the broker delivers in the order that makes the echoes a bracket."""


class _Client(NamedTuple):
    """Its name, and the topics on which it is answered."""

    name: str
    reply: str
    follow_up: str


@dataclass(slots=True)
class Exchange:
    """A reply that was sent, and whose follow-up was not sent yet."""

    client: _Client
    request: Request
    reply: bytes
    generation: int
    stated_ns: int
    transmit: Transmit
    wants_echo: bool
    version: int = 1
    residence: Residence | None = None
    """How long the request was in the broker; None: the broker does not state it."""
    first: Stamp | None = None
    last: Stamp | None = None
    first_maybe_held: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether both echoes have come, or none are wanted."""
        return not self.wants_echo or (self.first is not None and self.last is not None)


class PreciseResponder:
    """Turns requests into replies, and completed exchanges into follow-ups and echoes.

    Arrivals at the echoes are fetched when they are needed (`on_echo` is called then), because each
    call from the echoes' thread costs the program a wake-up.
    """

    def __init__(self, context: Exchanging, keyring: Keyring, limit: RateLimit) -> None:
        self._context, self._limit = context, limit
        self._number, self._tree, self._clock = context.number, context.tree, context.clock
        self._counters, self._later = context.counters, context.loop.call_later
        self.use_keys(keyring)
        self._client_of = lru_cache(_PENDING_LIMIT)(self._parse)
        self._pending: OrderedDict[_Sent, Exchange] = OrderedDict()
        self._late: set[_Sent] = set()
        """Replies whose echoes had not come in time."""
        self._told_at_once = False
        self._answered: dict[tuple[str, bytes], int] = {}
        """Client and nonce of recent requests, and when they came; the oldest first."""
        self.namesakes = Namesakes()
        self.spans = LowRecent()
        """Time from the first to the last echo, ns."""

    def _parse(self, topic: str) -> _Client:
        """Return who asks on a topic."""
        _, name = self._tree.parse_request(topic)
        number = self._number
        return _Client(name, self._tree.reply(number, name), self._tree.follow_up(number, name))

    def use_keys(self, keyring: Keyring) -> None:
        """Sign and verify with the keys of this ring from now on."""
        self._keys = lru_cache(_PENDING_LIMIT)(keyring.client)

    @property
    def pending(self) -> int:
        """Exchanges whose follow-up was not sent yet."""
        return len(self._pending)

    def forget_pending(self) -> None:
        """Forget all pending replies: the clock was set, so later stamps do not fit to them."""
        self._pending.clear()
        self._late.clear()

    def on_request(self, arrival: Arrival) -> None:
        """Answer one request, or count the reason for refusing it."""
        now_ns = time.monotonic_ns()
        try:
            asking = self._client_of(arrival.topic)
            client = asking.name
            if arrival.retain:
                raise DecodeError("retained", "A retained request is not answered.")
            request = Request.decode(arrival.payload)
            if request.server != self._number:
                raise DecodeError("server", "The request names another server; not answered.")
            # The limit per client is checked before the tag, because that check is expensive. The
            # limit for all is checked after it, else a stranger could use it up for all clients.
            if not self._limit.allow_client(client, now_ns):
                raise DecodeError("rate", f"Client {client} asks too often; not answered.")
            self._keys(client).verify(arrival.payload, arrival.topic)
            if not self._limit.allow_total(now_ns):
                raise DecodeError("rate-total", "All clients ask too often; not answered.")
            self._note_nonce((client, request.nonce), now_ns)
            self.namesakes.note(client, request.sequence, now_ns)
        except DecodeError as error:
            self._counters.refuse(error.reason)
            return
        self._answer(arrival.stamp, request, asking)

    def _note_nonce(self, key: tuple[str, bytes], now_ns: int) -> None:
        """Refuse a request that was answered already: else the broker could choose the reply."""
        while self._answered and now_ns - next(iter(self._answered.values())) > _NONCE_AGE_NS:
            del self._answered[next(iter(self._answered))]
        if key in self._answered:
            raise DecodeError("replayed", f"Client {key[0]} asked this before; not answered.")
        self._answered[key] = now_ns

    def _answer(self, received: Stamp, request: Request, client: _Client) -> None:
        now = self._clock.read()
        # Not earlier than it can be, because what the client takes for certain rests on it.
        received_ns = self._clock.span_of_kernel_ns(received.realtime_ns, now)[1]
        context, connection = self._context, self._context.connection
        reference, generation = context.reference, context.generation
        root_distance_ns = reference.distance_ns(now)
        version = 2 if request.version == 2 and context.fills else 1
        residence = context.copies.current if version == 2 else None
        # `ready` comes first: it subscribes for the client even before the order is known.
        ready = request.wants_echo and context.echo.ready(client.name) and context.order.trusted
        stated_ns = self._clock.time_ns()
        residence_ns = stated_ns - received_ns
        if context.clock_changed() or context.stamps_are_doubtful:
            self._counters.refuse("clock-changed")
            return
        if not 0 <= residence_ns < _U32:
            self._counters.refuse("residence")
            return
        reply = Reply(
            self._number,
            request.sequence,
            stated_ns,
            residence_ns,
            root_distance_ns,
            reference.stratum,
            reference.leap,
            received.source,
            generation,
            fills=version == 2,
            request_residence=residence.stated if residence else 0,
            request_source=residence.source if residence else 0,
            version=version,
        )
        payload = self._keys(client.name).sign(reply.body(), client.reply, request.nonce)
        transmit = connection.publish(client.reply, payload)
        if transmit is None:
            self._counters.refuse("not-sent")
            return
        # The stamp is mostly there already; if it is not collected, it wakes the program up.
        connection.collect_stamps()
        self._counters.count("replies")
        if len(self._pending) >= _PENDING_LIMIT:
            self._late.discard(self._pending.popitem(last=False)[0])
        exchange = Exchange(
            *(client, request, payload, generation, stated_ns, transmit, ready),
            version=version,
            residence=residence,
        )
        key = (client.reply, request.sequence)
        self._pending[key] = exchange
        if residence is not None and residence.source != StampSource.HARDWARE:
            self._later(_STAMP_WAIT_NS // 2, lambda: self._fetch_correction(residence))
        self._later(_STAMP_WAIT_NS, lambda: self._due(key, exchange))

    def _fetch_correction(self, residence: Residence) -> None:
        """Have the broker send a copy if none has come since: it states the correction."""
        if residence.correction_ns is None:
            self._context.loopback.poke()

    def on_echo(self, arrival: Arrival, *, last: bool) -> None:
        """Note that a reply came back to the server, on the first or the last echo connection.

        The first copy counts: any further copy was sent by another program.
        """
        _, sequence = read_server_and_sequence(arrival.payload) or (0, -1)
        key = (arrival.topic, sequence)
        exchange = self._pending.get(key)
        stripped = without_trailer(arrival.payload)
        if exchange is None or stripped != without_trailer(exchange.reply):
            with contextlib.suppress(DecodeError):
                self._tree.parse_reply(arrival.topic)
                Reply.decode(arrival.payload)
                return  # not one that is waited for
            self._counters.refuse("echo")
            return
        if arrival.retain:
            return
        if last:
            exchange.last = exchange.last or arrival.stamp
        elif exchange.first is None:
            exchange.first, exchange.first_maybe_held = arrival.stamp, arrival.maybe_held
        if exchange.is_complete and key in self._late:
            self._later(_STAMP_WAIT_NS, lambda: self._finish(key, exchange))

    def _due(self, key: _Sent, exchange: Exchange) -> None:
        """Finish the exchange, or wait longer if its echoes have not come yet."""
        if not exchange.is_complete:
            self._told_at_once = True
            self._context.echo.hear(True)
        if exchange.is_complete:
            self._finish(key, exchange)
        elif self._pending.get(key) is exchange:
            self._late.add(key)
            wait_ns = _ECHO_WAIT_NS - _STAMP_WAIT_NS + (self._context.loopback.delay_ns() or 0)
            self._later(wait_ns, lambda: self._finish(key, exchange))
        self._relax()

    def _relax(self) -> None:
        """If no echo is late, stop the echoes' thread from calling by itself."""
        if self._told_at_once and not self._late:
            self._told_at_once = False
            self._context.echo.hear(False)

    def _finish(self, key: _Sent, exchange: Exchange) -> None:
        """Send the follow-up or echo message, once; not if the clock was set meanwhile."""
        self._context.clock_changed()
        if self._pending.get(key) is not exchange:
            return
        del self._pending[key]
        self._late.discard(key)
        self._relax()
        self._context.connection.collect_stamps()
        sent, now = exchange.transmit.stamp, self._clock.read()  # after all stamps
        correction_ns: int | None = self._since(sent, exchange, now)[0]
        if abs(correction_ns or 0) > _CORRECTION_LIMIT:
            correction_ns = None
        message = self._echo(exchange, sent, correction_ns, now) or FollowUp(
            self._number,
            exchange.request.sequence,
            correction_ns,
            sent.source if correction_ns is not None else StampSource.NONE,
            exchange.generation,
            self._clock.rate_change_ppb,
            *_of_request(exchange),
        )
        topic, keys = exchange.client.follow_up, self._keys(exchange.client.name)
        payload = keys.sign(message.body(), topic, tag_of(exchange.reply))
        self._context.connection.publish_unstamped(topic, payload)

    def _since(self, stamp: Stamp, exchange: Exchange, now: Reading) -> tuple[int, int]:
        """Earliest and latest time of a stamp, minus stated T3."""
        earliest_ns, latest_ns = self._clock.span_of_kernel_ns(stamp.realtime_ns, now)
        return earliest_ns - exchange.stated_ns, latest_ns - exchange.stated_ns

    def _echo(
        self, exchange: Exchange, sent: Stamp, correction_ns: int | None, now: Reading
    ) -> Echo | None:
        """Return the echo message if both echoes came, in order and with their own stamps."""
        first, last = exchange.first, exchange.last
        if not exchange.wants_echo:
            return None
        if first is None or last is None:
            self._counters.refuse("echo-missing")
            return None
        if exchange.first_maybe_held:
            self._counters.refuse("echo-held")
            return None
        # If the first echo's stamp is late, it is not a lower bound.
        if first.source is StampSource.USER and sent.source is StampSource.KERNEL:
            self._counters.refuse("echo-shared-read")
            return None
        first_ns, _ = self._since(first, exchange, now)
        span_ns = self._since(last, exchange, now)[1] - first_ns
        in_order = first.realtime_ns <= last.realtime_ns
        if not (in_order and 0 <= first_ns < _U32 and 0 <= span_ns < _U32):
            self._counters.refuse("echo-order")
            return None
        self.spans.add(span_ns, time.monotonic_ns())
        self._counters.count("echoes")
        loop_ns = self._context.loopback.delay_ns()
        return Echo(
            self._number,
            exchange.request.sequence,
            correction_ns,
            first_ns,
            span_ns,
            sent.source if correction_ns is not None else StampSource.NONE,
            first.source,
            last.source,
            exchange.generation,
            loop_ns if loop_ns is not None and loop_ns < _U32 - 1 else None,
            self._context.echo.placement,
            self._clock.rate_change_ppb,
            *_of_request(exchange),
        )


def _of_request(exchange: Exchange) -> tuple[int | None, int, int]:
    """Return correction and source of the request's residence, and the version of the message."""
    residence = exchange.residence
    if residence is None or residence.correction_ns is None:
        return None, StampSource.NONE, exchange.version
    return residence.correction_ns, residence.source, exchange.version
