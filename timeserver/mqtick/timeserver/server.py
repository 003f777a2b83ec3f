"""The time server: schedule, broadcast, answers, echoes, status, in one thread."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from mqtick.protocol.auth import Keyring
from mqtick.protocol.broker import Broker
from mqtick.protocol.clocks import Clock, StepDetector
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.frames import Arrival
from mqtick.protocol.loop import Loop
from mqtick.protocol.loopback import Loopback
from mqtick.protocol.mqtt import Connection, Will
from mqtick.protocol.precise import Time
from mqtick.protocol.precise_fields import Leap
from mqtick.protocol.topics import TopicTree
from mqtick.service.units import microseconds_to_ns, seconds_to_ns
from mqtick.timeserver.broadcast import Broadcast
from mqtick.timeserver.config import Settings
from mqtick.timeserver.counters import Counters
from mqtick.timeserver.echo import EchoPair
from mqtick.timeserver.election import Election
from mqtick.timeserver.exchange import PreciseResponder
from mqtick.timeserver.foreign import ForeignFormats
from mqtick.timeserver.rate import RateLimit
from mqtick.timeserver.reference import Reference, ReferenceWatch, from_chronyd, unsynchronised
from mqtick.timeserver.schedule import Lateness, next_deadline_ns
from mqtick.timeserver.status import status_payload

__all__ = ["NumberInUseError", "Server"]

_SECOND = 1_000_000_000
_LOOP_BURST = 16
_LOOP_INTERVAL_NS = 4 * _SECOND


class NumberInUseError(RuntimeError):
    """Another server on this broker has our number; the text says what to do."""


class Server:
    """One time server. `start` connects and schedules; the loop does the rest.

    `before_send` and `after_send` are called right around each precise time message: pins.
    """

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        broker: Broker,
        clock: Clock,
        keyring: Keyring,
        *,
        before_send: Callable[[], None] | None = None,
        after_send: Callable[[], None] | None = None,
    ) -> None:
        self.settings, self.loop, self.clock = settings, loop, clock
        self.tree = TopicTree(settings.prefix)
        self.number = settings.number
        self.interval_ns = seconds_to_ns(settings.interval_s)
        self.counters = Counters()
        self._keys = keyring.broadcast()
        self.lateness = Lateness()
        self.generation = secrets.randbelow(256)
        self.instance = secrets.token_hex(8)
        self.started_ns = clock.time_ns()
        self.steps = 0
        self.error: NumberInUseError | None = None
        self._steps = StepDetector()
        self._status = b""
        self._before_send, self._after_send = before_send, after_send
        self._own_sequences: set[int] = set()
        timeout_ns = max(2 * _SECOND, 7 * self.interval_ns // 2)
        self.election = Election(self.number, timeout_ns, time.monotonic_ns())
        self._watch = self._make_watch()
        client_id = f"mqtick-server-{self.number}-{self.instance[:6]}"
        self.connection = Connection(
            loop,
            broker,
            client_id,
            on_publish=self._on_publish,
            on_up=self._on_up,
            will=Will(self.tree.status(self.number), b'{"state":"gone"}'),
        )
        self.echo: EchoPair | None = None
        if settings.echo:
            self.echo = EchoPair(loop, broker, client_id, self.number, self.tree, self._on_echo)
        self.broadcast = Broadcast(self.number, self.tree, clock, keyring, self.connection.publish)
        self.loopback = Loopback(
            loop,
            self.connection,
            self.tree.loop(self.number),
            burst=_LOOP_BURST,
            interval_ns=_LOOP_INTERVAL_NS,
        )
        limit = RateLimit(
            client_rate=settings.client_requests_per_s,
            client_burst=settings.client_burst,
            total_rate=settings.total_requests_per_s,
        )
        self.responder = PreciseResponder(
            self.number,
            self.tree,
            clock,
            keyring,
            limit,
            self.counters,
            publish=self.connection.publish,
            collect_stamps=self.connection.collect_stamps,
            echo_ready=self.echo.ready if self.echo else lambda _client: False,
            placement=lambda: self.echo.placement if self.echo else 0,
            loop_delay=self.loopback.delay_ns,
            later=loop.call_later,
            reference=lambda: self.reference,
            generation=lambda: self.generation,
        )
        self.foreign = ForeignFormats(
            settings, clock, limit, self.counters, self.connection, self.leads
        )

    def _make_watch(self) -> ReferenceWatch | None:
        if self.settings.trust_system_clock:
            return None
        host, port = self.settings.chronyd_host, self.settings.chronyd_port
        return ReferenceWatch(
            self.settings.chronyd_interval_s, lambda: from_chronyd(host or None, port)
        )

    @property
    def reference(self) -> Reference:
        """What is known of the clock that is served."""
        if self._watch is None:
            return Reference(
                True,
                self.settings.trusted_stratum,
                microseconds_to_ns(self.settings.trusted_root_distance_us),
                Leap.NONE,
                "the system clock is trusted by configuration.",
            )
        if self.error is not None:
            return unsynchronised(str(self.error))
        return self._watch.current

    def leads(self) -> bool:
        """Whether this server may use the topics without a number, and knows the time."""
        return self.election.leads(time.monotonic_ns()) and self.reference.synchronised

    def start(self) -> None:
        """Connect, and publish from the first deadline after the other servers were heard."""
        if self._watch is not None:
            self._watch.start()
        self.connection.start()
        if self.echo is not None:
            self.echo.start()
        self._schedule()

    def _on_up(self) -> None:
        tree = self.tree
        topics = [
            tree.loop(self.number),
            tree.all_times(),
            tree.all_requests(self.number),
            *self.foreign.topics(),
        ]
        self.connection.subscribe(topics)
        self.connection.subscribe_retained(tree.all_statuses())
        self._status = b""
        self.loopback.start()

    # -- publishing ------------------------------------------------------------------------

    def _schedule(self) -> None:
        time_ns, monotonic_ns = self.clock.time_ns(), time.monotonic_ns()
        deadline_ns = next_deadline_ns(time_ns, self.interval_ns)
        self.loop.call_at(
            monotonic_ns + deadline_ns - time_ns, lambda: self._due(deadline_ns), precise=True
        )

    def _due(self, deadline_ns: int) -> None:
        ahead_ns = deadline_ns - self.clock.time_ns()
        if ahead_ns > 100_000:  # slewed or stepped back meanwhile
            self._schedule()
            return
        self._look_for_step()
        if self.connection.connected:
            self.publish_time(deadline_ns)
        self._schedule()

    def _look_for_step(self) -> None:
        step_ns, slept_ns = self._steps.look()
        if step_ns or slept_ns:
            self.steps += 1
            self.generation = (self.generation + 1) % 256
            self.broadcast.forget_previous()
            self.counters.count("clock-steps" if step_ns else "suspends")

    def publish_time(self, deadline_ns: int) -> None:
        """Publish one round in every format."""
        reference = self.reference
        self.connection.collect_stamps()
        if "precise" in self.settings.formats:
            if self._before_send is not None:
                self._before_send()
            sent = self.broadcast.send(reference, self.generation)
            if self._after_send is not None:
                self._after_send()
            self.counters.count("times" if sent else "times-not-sent")
            self._remember(self.broadcast.sequence)
        self.lateness.note(deadline_ns, self.clock.time_ns(), self.interval_ns)
        if self.leads():
            self.foreign.publish()

    def _remember(self, sequence: int) -> None:
        self._own_sequences.add(sequence)
        self._own_sequences.discard((sequence - 64) % 2**32)

    # -- receiving -------------------------------------------------------------------------

    def _on_publish(self, arrival: Arrival) -> None:
        head = arrival.topic.removeprefix(self.tree.prefix)[:3]
        if head == "/q/":
            self.responder.on_request(arrival)
        elif head == "/t/":
            self._on_time(arrival)
        elif head == "/l/":
            self.loopback.on_arrival(arrival)
        elif head == "/s/":
            self._on_status(arrival)
        else:
            self.foreign.on_request(arrival)

    def _on_time(self, arrival: Arrival) -> None:
        """Hear the servers of this broker, ourselves among them."""
        try:
            if arrival.retain:
                raise DecodeError("retained", "A retained time message is old by nature.")
            message = Time.decode(arrival.payload)
            self._keys.verify(arrival.payload, arrival.topic)
        except DecodeError as error:
            self.counters.refuse(error.reason)
            return
        if message.server != self.number:
            self.election.heard(message.server, time.monotonic_ns())
        elif message.sequence not in self._own_sequences:
            self._conflict()

    def _conflict(self) -> None:
        """Somebody else uses our number: whoever came later has to go."""
        self.election.conflict()
        self.counters.refuse("number-in-use")
        if not self.election.settled(time.monotonic_ns()) and self.error is None:
            self.error = NumberInUseError(
                f"another time server with the number {self.number} publishes on "
                f"{self.connection.address}: this one stops, so that clients are not torn between "
                f"two clocks; give it a number of its own with --number."
            )
            self.loop.stop()

    def _on_status(self, arrival: Arrival) -> None:
        try:
            number = self.tree.parse_status(arrival.topic)
        except DecodeError as error:
            self.counters.refuse(error.reason)
            return
        if b'"gone"' in arrival.payload[:64]:
            self.election.gone(number)

    def _on_echo(self, arrival: Arrival, last: bool) -> None:
        self.responder.on_echo(arrival, last=last)

    def tick(self) -> None:
        """Do once a second what need not be done at once."""
        payload = status_payload(self)
        if payload != self._status:
            self._status = payload
            self.connection.publish_retained(self.tree.status(self.number), payload)

    def close(self) -> None:
        """Say goodbye (the status topic too) and disconnect."""
        if self._watch is not None:
            self._watch.stop()
        self.connection.publish_retained(self.tree.status(self.number), b'{"state":"gone"}')
        self.connection.close()
        if self.echo is not None:
            self.echo.close()
