"""The time server: schedule, broadcast, answers, echoes, status, in one thread."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import Protocol

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.connection import Connection, Will
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop, Timer
from mqtick.mqtt.loopback import Loopback
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import Clock
from mqtick.protocol.precise import Loop as LoopMessage
from mqtick.protocol.precise_fields import NONCE_OCTETS, TRAILER_OCTETS, Leap
from mqtick.protocol.residence import Copies
from mqtick.protocol.steps import StepDetector
from mqtick.protocol.time_types import NS_PER_S
from mqtick.protocol.topics import TopicKind, TopicTree
from mqtick.service.units import microseconds_to_ns, seconds_to_ns
from mqtick.timeserver.announcement import GONE, announcement
from mqtick.timeserver.broadcast import Broadcast
from mqtick.timeserver.claims import Claims
from mqtick.timeserver.config import Settings
from mqtick.timeserver.context import Counters
from mqtick.timeserver.echo import EchoPair, NoEcho
from mqtick.timeserver.election import Election
from mqtick.timeserver.exchange import PreciseResponder
from mqtick.timeserver.foreign import ForeignFormats
from mqtick.timeserver.neighbours import Neighbours
from mqtick.timeserver.order import OrderProbe
from mqtick.timeserver.rate import RateLimit
from mqtick.timeserver.reference import Reference, ReferenceWatch, from_chronyd
from mqtick.timeserver.schedule import Lateness, next_deadline_ns
from mqtick.timeserver.served import ServedClock, most_lag_ns

_log = logging.getLogger(__name__)
_LOOP_BURST = 16
_LOOP_INTERVAL_NS = 4 * NS_PER_S


class ExperimentHooks(Protocol):
    """Callbacks for commands of an experiment's runner, if experiments are enabled."""

    topic: str

    def on_command(self, arrival: Arrival) -> None:
        """Handle a message on `topic`."""


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
        generation: int | None = None,
    ) -> None:
        """Set up, without connecting; `generation`: the first one, None: drawn by chance."""
        self.settings, self.loop = settings, loop
        self.clock = ServedClock(clock, lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
        self.tree = TopicTree(settings.prefix)
        self.number = settings.number
        self.interval_ns = seconds_to_ns(settings.interval_s)
        self.counters = Counters()
        self.lateness = Lateness()
        self.generation = secrets.randbelow(256) if generation is None else generation
        self.instance = secrets.token_hex(8)
        self.started_ns = self.clock.time_ns()
        self.steps = 0
        self.experiments: ExperimentHooks | None = None
        """To be set before `start`."""
        self.copies = Copies()
        self._steps = StepDetector()
        self._status = b""
        self._before_send, self._after_send = before_send, after_send
        timeout_ns = max(2 * NS_PER_S, 7 * self.interval_ns // 2)
        self.election = Election(self.number, timeout_ns)
        self._since_ns: int | None = None
        self._timer: Timer | None = None
        self._watch = self._make_watch()
        self._trusted = Reference(
            True,
            settings.trusted_stratum,
            microseconds_to_ns(settings.trusted_root_distance_us),
            Leap.NONE,
            "the system clock is trusted by configuration.",
        )
        name = f"mqtick-server-{self.number}"
        self.connection = Connection(
            loop,
            broker,
            name,
            on_publish=self._on_publish,
            on_up=self._on_up,
            will=Will(self.tree.status(self.number), GONE),
        )
        self.claims = Claims(self, keyring.server(), timeout_ns, since=self._since)
        self.neighbours = Neighbours(
            self, keyring.broadcast(), self.election, self.claims, interval_ns=self.interval_ns
        )
        self.order = OrderProbe(loop, self.connection)
        self.echo: EchoPair | NoEcho = NoEcho()
        if settings.echo:
            # The probe subscribes after the first echo has subscribed.
            self.echo = EchoPair(
                loop, broker, name, self.number, self.tree, self._on_echo, self.order.place
            )
        self.broadcast = Broadcast(self, keyring)
        self.loopback = Loopback(
            loop,
            self.connection,
            self.tree.loop(self.number),
            burst=_LOOP_BURST,
            interval_ns=_LOOP_INTERVAL_NS,
            make=self._loop_message,
            room=TRAILER_OCTETS,
        )
        self.responder = PreciseResponder(self, keyring, self._rate_limit())
        # Separate limits, because these requests are not signed, and must not use up the others.
        self.foreign = ForeignFormats(self, settings, self._rate_limit(), self.leads)

    def _loop_message(self) -> bytes:
        return LoopMessage(self.number, secrets.token_bytes(NONCE_OCTETS)).payload()

    def _rate_limit(self) -> RateLimit:
        return RateLimit(
            client_rate=self.settings.client_requests_per_s,
            client_burst=self.settings.client_burst,
            total_rate=self.settings.total_requests_per_s,
        )

    def _make_watch(self) -> ReferenceWatch | None:
        if self.settings.trust_system_clock:
            return None
        host, port = self.settings.chronyd_host, self.settings.chronyd_port
        return ReferenceWatch(
            self.settings.chronyd_interval_s,
            lambda: from_chronyd(host or None, port),
            self.clock.look_at_system,
        )

    @property
    def reference(self) -> Reference:
        """The present quality of the system clock."""
        if self._watch is None:
            return self._trusted
        return self._watch.current

    @property
    def root_distance_ns(self) -> int:
        """Bound of the served clock's error against UTC, now."""
        return self.reference.distance_ns(self.clock.read())

    @property
    def fills(self) -> bool:
        """Whether the broker fills trailers, so that version 2 is used."""
        return self.settings.residence and self.loopback.filled

    def leads(self) -> bool:
        """Whether this server may use the topics without a number, and knows the time."""
        may = self.election.leads(time.monotonic_ns()) and not self.claims.standing_by
        return may and self.reference.synchronised

    def _since(self) -> int | None:
        """When this run could first serve, ns of the clock; None while it is not synchronised."""
        if not self.reference.synchronised:
            return None
        if self._since_ns is None:
            self._since_ns = self.clock.time_ns()
        return self._since_ns

    def use_keys(self, keyring: Keyring) -> None:
        """Sign and verify with these keys from now on; KeyFileError before any is changed."""
        self.claims.keys = keyring.server()
        self.broadcast.keys = self.neighbours.keys = keyring.broadcast()
        self.responder.use_keys(keyring)

    def start(self) -> None:
        """Connect, and publish at each deadline from then on."""
        if self._watch is not None:
            self._watch.start()
        self.connection.start()
        self.echo.start()
        self._schedule()

    def _on_up(self) -> None:
        self.election.connected(time.monotonic_ns())
        self.claims.connecting()
        tree = self.tree
        topics = [tree.loop(self.number), tree.all_times(), self.claims.topic]
        if "precise" in self.settings.formats:
            topics.append(tree.all_requests(self.number))
        if self.experiments is not None:
            topics.append(self.experiments.topic)
        self.connection.subscribe(topics, self._heard_from_now_on)
        self.foreign.connected()
        self.connection.subscribe(self.foreign.topics(), self._foreign_subscribed)
        self.connection.subscribe_retained(tree.all_statuses())
        self._status = b""
        self.copies.forget()
        self.loopback.start()
        if self.order.topic:
            self.order.place(self.order.topic)

    def _heard_from_now_on(self, granted: bool) -> None:
        self._subscribed(granted)
        self.claims.connected()

    def _subscribed(self, granted: bool) -> None:
        if not granted:
            self.counters.refuse("subscription")
            self.connection.last_error = (
                f"{self.connection.address} refused a subscription, so requests may go "
                f"unanswered: {self.connection.broker.refusal_remedy}"
            )
            _log.warning("%s", self.connection.last_error)

    def _foreign_subscribed(self, granted: bool) -> None:
        self.foreign.refused = not granted
        self._subscribed(granted)

    # -- publishing ------------------------------------------------------------------------

    def _schedule(self) -> None:
        time_ns, monotonic_ns = self.clock.time_ns(), time.monotonic_ns()
        deadline_ns = next_deadline_ns(time_ns, self.interval_ns)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(
            monotonic_ns + deadline_ns - time_ns, lambda: self._due(deadline_ns), precise=True
        )

    def _due(self, deadline_ns: int) -> None:
        if self.clock_changed():
            return
        ahead_ns = deadline_ns - self.clock.time_ns()
        if ahead_ns > 100_000:  # the clock was slewed meanwhile
            self._schedule()
            return
        if self._may_publish():
            self.publish_time(deadline_ns)
        self._schedule()

    def _may_publish(self) -> bool:
        return self.connection.connected and not self.claims.silent

    def publish_extra(self, after_ns: int, done: Callable[[int | None, int], None]) -> None:
        """Publish one message outside the schedule; `done(sequence or None, deadline)` follows."""
        deadline_ns = self.clock.time_ns() + after_ns

        def due() -> None:
            sent = self.broadcast.sent
            if not self.clock_changed() and self._may_publish():
                self.publish_time(deadline_ns)
            is_sent = self.broadcast.sent > sent
            done(self.broadcast.sequence if is_sent else None, deadline_ns)

        self.loop.call_at(time.monotonic_ns() + after_ns, due, precise=True)

    def clock_changed(self) -> bool:
        """Whether the clock was set, taken anew, or the host slept: a new generation begins.

        The next deadline and all earlier stamps are then invalid.
        """
        change, reference = self._steps.look(), self.reference
        if change is not None:
            self.clock.begin()
            self.steps += 1
            self.counters.count(change.value)
        elif self.clock.look(
            most_lag_ns(reference.synchronised and reference.root_distance_ns),
            reference.may_be_utc,
        ):
            self.counters.count("clock-taken-anew")
        else:
            return False
        self.generation = (self.generation + 1) % 256
        self.broadcast.forget_previous()
        self.responder.forget_pending()
        self.loopback.forget_pending()
        self._schedule()
        return True

    @property
    def stamps_are_doubtful(self) -> bool:
        """Whether a message that is read now may have been stamped before the clock was set."""
        return self._steps.is_recent

    def publish_time(self, deadline_ns: int) -> None:
        """Publish one time message in each format."""
        self.connection.collect_stamps()
        sent_ns = self.clock.time_ns()
        if "precise" in self.settings.formats:
            if self.fills:
                self.loopback.warm_up()
            if self._before_send is not None:
                self._before_send()
            sent = self.broadcast.send()
            sent_ns = self.clock.time_ns()
            if self._after_send is not None:
                self._after_send()
            self.counters.count("times" if sent else "times-not-sent")
            self.neighbours.sent(self.broadcast.payload)
        self.lateness.note(deadline_ns, sent_ns, self.interval_ns)
        if self.leads():
            self.foreign.publish()
        self.connection.collect_stamps()  # else the stamp would wake the program up

    # -- receiving -------------------------------------------------------------------------

    def _on_publish(self, arrival: Arrival) -> None:
        kind = self.tree.kind_of(arrival.topic)
        if kind is TopicKind.TIME and not arrival.payload:
            return  # somebody has cleared a retained message, or a doctor tries what is forbidden
        if kind is not None:
            self.copies.note(arrival.payload)
        if kind is TopicKind.TIME:
            self.neighbours.on_time(arrival)
        elif arrival.topic == self.claims.topic:
            self.claims.on_claim(arrival)
        elif kind is TopicKind.REQUEST and self.claims.silent:
            self.counters.refuse("standing-by")
        elif kind is TopicKind.REQUEST:
            self.responder.on_request(arrival)
        elif kind is TopicKind.LOOP:
            self.clock_changed()  # if it has, the loopback forgets the message it waits for
            self.loopback.on_arrival(arrival)
        elif kind is TopicKind.ORDER:
            self.order.arrived("own", arrival)
        elif kind is TopicKind.STATUS:
            self.neighbours.on_status(arrival, self._status)
        elif kind is TopicKind.COMMAND and self.experiments is not None:
            self.experiments.on_command(arrival)
        else:
            self.foreign.on_request(arrival)

    def _on_echo(self, arrival: Arrival, last: bool) -> None:
        if self.tree.kind_of(arrival.topic) is TopicKind.ORDER:
            self.order.arrived("last" if last else "first", arrival)
        else:
            self.responder.on_echo(arrival, last=last)

    def tick(self) -> None:
        """Do what is due about once a second."""
        self.clock_changed()
        if self.connection.connected:
            self._since()
            self.foreign.say_if_silent()
        if not self.election.settled(time.monotonic_ns()) or self.claims.standing_by:
            return  # another server may hold our number, and this topic
        payload = announcement(
            self.reference,
            self.clock.read().lag_ns,
            interval_ns=self.interval_ns,
            instance=self.instance,
            since_ns=self.started_ns,
        )
        if self.neighbours.status_lost:
            self._status, self.neighbours.status_lost = b"", False
        if payload != self._status:
            self._status = payload
            self.connection.publish_retained(self.tree.status(self.number), payload)

    def close(self) -> None:
        """Publish on the status topic that we are gone, and disconnect."""
        if self._watch is not None:
            self._watch.stop()
        if not self.claims.standing_by:
            self.connection.publish_retained(self.tree.status(self.number), GONE)
        self.connection.close()
        self.echo.close()
