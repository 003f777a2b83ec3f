"""A connection to the broker that keeps itself alive: a lost session is made again.

Everything runs in the loop's thread, except connecting (name look-up, TCP, TLS, WebSocket
handshake). That blocks in a short-lived thread of its own, so that a broker that accepts and then
stalls does not block the loop.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from mqtick.mqtt.broker import Broker, BrokerError
from mqtick.mqtt.causes import Cause, cause_of, why_not_connected
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop, Timer
from mqtick.mqtt.published_session import PublishedSession
from mqtick.mqtt.session import Events, Session, Will
from mqtick.mqtt.stamps import Transmit
from mqtick.mqtt.stream_session import StreamSession
from mqtick.mqtt.udp_session import UdpSession

__all__ = ["Connection", "Will"]

_log = logging.getLogger(__name__)
_SECOND = 1_000_000_000
# How long a broker may take to read our DISCONNECT.
_GOODBYE_S = 0.3
# How brokers without MQTT 5 react to it: some refuse, some close the connection, amqtt is silent.
_SEEMS_OLD = (Cause.VERSION, Cause.HUNG_UP, Cause.SILENT)
# How brokers refuse a will that is to be retained at QoS 1; those without MQTT 5 give no reason.
_REFUSES_WILL = (Cause.RETAINED, Cause.HUNG_UP)
# Name look-up, connecting, TLS and WebSocket together, in units of `connect_timeout_s`.
_TIMEOUTS_TO_CONNECT = 4


class Connection:
    """One MQTT session that keeps itself alive.

    `on_publish(arrival)` gets every QoS 0 PUBLISH, `on_up()` is called after each connect (the
    place to subscribe), `on_down(reason)` after each loss. `hooks` maps topics to functions called
    at once on arrival (see `FrameSocket`). `quiet`: log less; for a second connection to the same
    broker, because the first one already logs the faults.

    `name` is for the log. The client identifier has a secret part besides, because whoever knows it
    can end the connection by one of his own (MQTT 5.0, 3.1.4): it is shown nowhere.
    """

    def __init__(
        self,
        loop: Loop,
        broker: Broker,
        name: str,
        *,
        on_publish: Callable[[Arrival], None],
        on_up: Callable[[], None],
        on_down: Callable[[str], None] = lambda _reason: None,
        will: Will | None = None,
        check_dates: bool = True,
        quiet: bool = False,
    ) -> None:
        self.loop = loop
        self.broker = broker
        self.hooks: dict[bytes, Callable[[], None]] = {}
        self.connected = False
        self.attempts = 0
        """How often a connection was tried, the successful ones included."""
        self.connects = 0
        self.dropped = 0
        """Messages not sent because the connection was down or the broker took no data."""
        self.unread: Counter[str] = Counter()
        """What the broker sent and could not be read, by reason (see `Events`)."""
        self.last_error = ""
        self.last_cause = Cause.UNKNOWN
        """The cause of `last_error`, for programs."""
        self.unasked = 0
        """Connections ended because the broker sent what it must not (see `FrameSocket.fault`)."""
        self.lacks = ""
        """What is lost because the broker takes no retained messages; empty: nothing."""
        self.check_dates = check_dates
        self.on_publish = on_publish
        self._on_up, self._on_down = on_up, on_down
        self._failures = 0
        self._connecting = False
        self._closing = False
        self._begun = False
        self._retry: Timer | None = None
        self._deadline_ns = 0
        self.version_5 = broker.version == "5"
        self.error_5 = ""
        """Why MQTT 3.1.1 is spoken although the settings say 5; empty if it is not."""
        self._name, self._will = name, will
        self._identifier = broker.client_id or f"{name}-{secrets.token_hex(8)}"
        self._quiet = quiet
        self._session = self._make_session()

    def _make_session(self) -> Session:
        broker, will = self.broker, None if self.lacks else self._will
        events = Events(self._arrived, self._came_up, self._lost, self.unread)
        if broker.scheme == "mqtt+udp":
            kind = PublishedSession if broker.dialect == "published" else UdpSession
            return kind(self.loop, broker, self._name, will, events, self.hooks)
        return StreamSession(
            self.loop,
            broker if self.version_5 else replace(broker, version="3.1.1"),
            self._identifier,
            will,
            events,
            self.hooks,
            check_dates=self.check_dates,
        )

    def _arrived(self, arrival: Arrival) -> None:
        self.on_publish(arrival)

    # -- connecting ------------------------------------------------------------------------

    def start(self) -> None:
        """Start to connect, and keep at it until `close`."""
        self._connect()
        self._tick()

    def _connect(self) -> None:
        self._retry = None
        if self._connecting or self._closing:
            return
        self._connecting = True
        self.attempts += 1
        limit_s = _TIMEOUTS_TO_CONNECT * self.broker.connect_timeout_s
        self._limit = self.loop.call_later(int(limit_s * _SECOND), self._session.abort)
        threading.Thread(target=self._connect_blocking, name="connect", daemon=True).start()

    def _connect_blocking(self) -> None:
        error: Exception | None = None
        try:
            self._session.connect()
        except Exception as caught:  # for instance IndexError, if the answer is not WebSocket
            error = caught
        self.loop.call_soon_threadsafe(lambda: self._connect_done(error))

    def _connect_done(self, error: Exception | None) -> None:
        self._connecting = False
        self._limit.cancel()
        if error is not None:
            why = f"cannot connect to {self.address}: {why_not_connected(error)}"
            self._lost(why, cause_of(error))
            return
        if self._closing:
            self._session.close()
            return
        self._deadline_ns = time.monotonic_ns() + int(self.broker.connect_timeout_s * _SECOND)
        self._begun = True
        self._session.begin()

    @property
    def address(self) -> str:
        """The broker's address, for messages."""
        return self.broker.address

    def _came_up(self) -> None:
        self.connected = True
        self.connects += 1
        self._failures = 0
        level = logging.DEBUG if self._quiet else logging.INFO
        older = f" by MQTT 3.1.1 (5 fails: {self.error_5})" if self.error_5 else ""
        _log.log(level, "%s: connected to %s%s", self._name, self.address, older)
        if self.lacks:
            _log.warning("%s: %s", self._name, self.lacks)
        self._on_up()

    def drop(self, reason: str) -> None:
        """Give this connection up, because of its certificate's dates, and make a new one."""
        self._lost(reason, Cause.DATES)

    def _lost(self, reason: str, cause: Cause = Cause.UNKNOWN) -> None:
        self._session.close()
        self._begun = False
        was_connected, self.connected = self.connected, False
        if self._closing or self._retry is not None or self._connecting:
            return
        if self._speaks_otherwise(reason, cause):
            self._connect()
            return
        if self.error_5 or self.lacks:  # the next broker at this address may do more
            self._speak(version_5=self.broker.version == "5")
        is_news = was_connected or reason != self.last_error
        self.last_error, self.last_cause = reason, cause
        self.unasked += cause is Cause.UNASKED
        self._failures += 1
        # 0.5 s, 1 s, 2 s ... 30 s, give or take a quarter, so that a fleet does not return at once.
        delay_s = min(30.0, 0.25 * 2 ** min(self._failures, 8)) * random.uniform(0.75, 1.25)
        self._retry = self.loop.call_later(int(delay_s * _SECOND), self._connect)
        if is_news:
            level = logging.DEBUG if self._quiet else logging.WARNING
            _log.log(level, "%s: %s; trying again", self._name, reason)
        if was_connected or self._failures == 1:
            self._on_down(reason)

    def _speaks_otherwise(self, reason: str, cause: Cause) -> bool:
        """Whether to try at once what a broker takes that does less."""
        if self.version_5 and cause in _SEEMS_OLD:
            return self._speak(version_5=False, because=reason, lacks=self.lacks)
        if self._will is not None and not self.lacks and cause in _REFUSES_WILL:
            lacks = (
                f"without retained messages ({reason}): that this program ended is "
                "noticed by its silence only, and that it is there by its next message"
            )
            return self._speak(version_5=self.version_5, because=self.error_5, lacks=lacks)
        return False

    def _speak(self, *, version_5: bool, because: str = "", lacks: str = "") -> bool:
        """Use another version of MQTT from the next connection on, or do without something.

        False: all stays as it is, because files for TLS cannot be read now: they may just be in
        exchange.
        """
        before = self.version_5, self.error_5, self.lacks
        self.version_5, self.error_5, self.lacks = version_5, because, lacks
        try:
            self._session = self._make_session()
        except BrokerError as error:
            self.version_5, self.error_5, self.lacks = before
            _log.warning("%s: %s; those that were read before are used", self._name, error)
            return False
        return True

    # -- running ---------------------------------------------------------------------------

    def rehearse(self) -> None:
        """Run the code that reads, so that caches are warm when the next message comes."""
        self._session.read()

    def _tick(self) -> None:
        if self._closing:
            return
        if self._begun and not self.connected and time.monotonic_ns() > self._deadline_ns:
            limit = self.broker.connect_timeout_s
            stalled = f"{self.address} {self._session.unanswered} within {limit:g} s"
            self._lost(stalled, Cause.SILENT)
        else:
            self._session.tick()
        slack_ns = _SECOND if self.connected else 0
        self.loop.call_lazily(_SECOND, slack_ns, self._tick)

    def publish(self, topic: str, payload: bytes, properties: bytes = b"") -> Transmit | None:
        """Send a QoS 0 message now; None (and counted in `dropped`) if it cannot be sent now.

        The result's `stamp` is that of the program until the kernel's stamp has come.
        """
        return self._publish(topic, payload, properties, stamped=True)

    def _publish(
        self, topic: str, payload: bytes, properties: bytes, *, stamped: bool
    ) -> Transmit | None:
        transmit = None
        if self.connected:
            transmit = self._session.publish(topic, payload, properties, stamped=stamped)
        if transmit is None:
            self.dropped += 1
        return transmit

    def publish_unstamped(self, topic: str, payload: bytes) -> Transmit | None:
        """Send like `publish`, but without a transmit stamp, which would cost a wake-up."""
        return self._publish(topic, payload, b"", stamped=False)

    def publish_retained(self, topic: str, payload: bytes) -> None:
        """Send a retained message (status, never time): at QoS 1, over UDP at QoS 0."""
        if self.connected and not self.lacks:
            self._session.publish_retained(topic, payload)

    def collect_stamps(self) -> None:
        """Take the transmit stamps that messages wait for and the kernel has ready."""
        if (kernel := self._session.kernel) is not None:
            kernel.drain_error_queue(wanted=True)

    def acknowledge_late(self) -> None:
        """Delay the next TCP acknowledgement (by 40 ms), to find brokers that wait for it.

        It holds for one delayed acknowledgement: call it again before each message.
        """
        if (kernel := self._session.kernel) is not None:
            kernel.quick = False
            kernel.acknowledge()

    def subscribe(
        self, topics: Sequence[str], done: Callable[[bool], None] = lambda _ok: None
    ) -> None:
        """Subscribe at QoS 0; `done(granted)` is called with the broker's answer."""
        if self.connected and topics:
            self._session.subscribe(topics, done)

    def subscribe_retained(self, topic: str) -> None:
        """Subscribe and ask for the retained message (server status)."""
        if self.connected:
            self._session.subscribe([topic], lambda _ok: None, retained=True)

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """Unsubscribe."""
        if self.connected and topics:
            self._session.unsubscribe(topics)

    @property
    def kernel_stamps(self) -> bool:
        """Whether this connection has kernel timestamps."""
        kernel = self._session.kernel
        return kernel is not None and kernel.kernel_stamps

    @property
    def round_trip_ns(self) -> int:
        """The shortest round trip to the broker of the last minutes; 0 if the kernel knows none."""
        kernel = self._session.kernel
        return 0 if kernel is None else kernel.round_trip_ns

    def certificate_dates_error(self, now_s: float) -> str | None:
        """Return a sentence if the broker's certificate is not valid at `now_s` (Unix time, s).

        If so, every new connection also checks the dates against the host's clock.
        """
        error = self._session.certificate_dates_error(now_s)
        if error is not None and not self.check_dates:
            self.check_dates = True
            self._session.check_dates()
        return error

    def close(self) -> None:
        """Disconnect and stop."""
        self._closing = True
        self._session.close(_GOODBYE_S)
        if self._retry is not None:
            self._retry.cancel()
        self._lost("closed")
