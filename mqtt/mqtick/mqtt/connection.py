"""A connection to the broker: paho-mqtt for the session, our own frames for the time.

Everything runs in one loop's thread, except that connecting (name look-up, TCP, TLS, WebSocket
handshake) blocks in a short-lived thread of its own, so that a broker that accepts and then stalls
holds up nothing.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.causes import Cause, cause_of, cause_of_refusal, why_not_connected
from mqtick.mqtt.frames import Arrival, FrameSocket
from mqtick.mqtt.loop import Loop, Timer
from mqtick.mqtt.session import Session, Will
from mqtick.mqtt.stamps import Stamp, StampSource, Transmit
from mqtick.mqtt.tls import certificate_dates_error

__all__ = ["Connection", "Will"]

_log = logging.getLogger(__name__)
_SECOND = 1_000_000_000
# Do not send retained messages at subscription: MQTT 5.0, 3.8.3.1 Retain Handling.
_SEND_RETAINED_NEVER = 2
# How long a broker may take to hear our goodbye.
_GOODBYE_S = 0.3
# Reason codes above this one say what is wrong: MQTT 5.0, 2.4.
_UNSPECIFIED = 0x80
# What brokers without MQTT 5 do about it: some say so, some hang up, amqtt falls silent.
_SEEMS_OLD = (Cause.VERSION, Cause.HUNG_UP, Cause.SILENT)


class Connection:
    """One MQTT session that keeps itself alive.

    `on_publish(arrival)` gets every QoS 0 PUBLISH, `on_up()` is called after each connect (the
    place to subscribe), `on_down(reason)` after each loss. `hooks` maps topics to functions called
    at once on arrival (see `FrameSocket`). `quiet`: a second connection to the same broker,
    where the first one already says what is wrong.
    """

    def __init__(
        self,
        loop: Loop,
        broker: Broker,
        client_id: str,
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
        self.last_error = ""
        self.last_cause = Cause.UNKNOWN
        """What is behind `last_error`, for programs."""
        self.check_dates = check_dates
        self.on_publish = on_publish
        self._on_up, self._on_down = on_up, on_down
        self._subscribed: dict[int, Callable[[bool], None]] = {}
        self._failures = 0
        self._connecting = False
        self._closing = False
        self._fd = -1
        self._writing = False
        self._retry: Timer | None = None
        self._deadline_ns = 0
        self.version_5 = broker.version == "5"
        self.error_5 = ""
        """Why MQTT 3.1.1 is spoken although the settings say 5; empty if it is not."""
        self._name, self._will = client_id, will
        self._quiet = quiet
        self._client = self._make_session()

    def _make_session(self) -> Session:
        session = Session(
            self.broker if self.version_5 else replace(self.broker, version="3.1.1"),
            self._name,
            self._will,
            lambda stream, below: FrameSocket(
                stream, below, self._arrived, self.hooks, version_5=self.version_5
            ),
            check_dates=self.check_dates,
        )
        session.on_connect = self._connect_answered
        session.on_disconnect = self._disconnect_seen
        session.on_subscribe = self._subscribe_answered
        session.on_message = self._retained_arrived
        return session

    def _arrived(self, arrival: Arrival) -> None:
        self.on_publish(arrival)

    def _retained_arrived(self, _client: Any, _userdata: Any, message: paho.MQTTMessage) -> None:
        """Take a retained message (a status) that comes with the quality it was published with.

        MQTT 3.1.1, 3.8.4 has it lowered to that of the subscription; aedes 1.2 does so only where
        the subscription has no wildcard.
        """
        if message.retain:
            stamp = Stamp(time.time_ns(), StampSource.USER)
            self._arrived(Arrival(message.topic, bytes(message.payload), stamp, True, b"", True))

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
        threading.Thread(target=self._connect_blocking, name="connect", daemon=True).start()

    def _connect_blocking(self) -> None:
        error: Exception | None = None
        try:
            self._client.reconnect()
        except Exception as caught:  # an answer that is not WebSocket gives IndexError, for one
            error = caught
        self.loop.call_soon_threadsafe(lambda: self._connect_done(error))

    def _connect_done(self, error: Exception | None) -> None:
        self._connecting = False
        if error is not None:
            why = f"cannot connect to {self.address}: {why_not_connected(error)}"
            self._lost(why, cause_of(error))
            return
        if self._closing:
            self._client.disconnect()
            return
        assert self._client.frames is not None
        self._deadline_ns = time.monotonic_ns() + int(self.broker.connect_timeout_s * _SECOND)
        self._fd = self._client.frames.fileno()
        self._writing = False
        self.loop.add(self._fd, Loop.READ, self._ready)
        self._ready(Loop.READ)  # what came together with the last handshake was read already

    @property
    def address(self) -> str:
        """The broker's address, for messages."""
        broker = self.broker
        if broker.scheme == "unix":
            return f"unix://{broker.path}"
        host = f"[{broker.host}]" if ":" in broker.host else broker.host
        path = broker.path if broker.scheme in ("ws", "wss") else ""
        return f"{broker.scheme}://{host}:{broker.port}{path}"

    def _connect_answered(
        self, _client: Any, _userdata: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if reason.is_failure:
            refusal = f"{self.address} refused the connection: {reason}"
            self._lost(refusal, cause_of_refusal(reason.value))
            return
        self.connected = True
        self.connects += 1
        self._failures = 0
        level = logging.DEBUG if self._quiet else logging.INFO
        older = f" by MQTT 3.1.1 (5 fails: {self.error_5})" if self.error_5 else ""
        _log.log(level, "%s: connected to %s%s", self._name, self.address, older)
        self._on_up()

    def _disconnect_seen(
        self, client: Any, _userdata: Any, flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if client is not self._client or self._client.frames is None:
            return  # given up already, for a more telling reason than this consequence
        if self._client.frames.is_silent:
            ended = f"{self.address} ended the connection without giving a reason"
            self._lost(ended, Cause.HUNG_UP)
            return
        says_much = flags.is_disconnect_packet_from_server or reason.value > _UNSPECIFIED
        said = f" ({reason})" if says_much else ""
        self._lost(f"the connection to {self.address} was lost{said}")

    def drop(self, reason: str) -> None:
        """Give this connection up, whose certificate's dates do not fit, and make a new one."""
        self._lost(reason, Cause.DATES)

    def _lost(self, reason: str, cause: Cause = Cause.UNKNOWN) -> None:
        if self._fd >= 0:
            self.loop.remove(self._fd)
            self._fd = -1
        if self._client.frames is not None:
            frames, self._client.frames = self._client.frames, None
            frames.close()
        self._subscribed.clear()
        was_connected, self.connected = self.connected, False
        if self._closing or self._retry is not None or self._connecting:
            return
        if self.version_5 and cause in _SEEMS_OLD:
            self._speak(version_5=False, because=reason)
            self._connect()
            return
        if self.error_5:  # the next broker at this address may know more
            self._speak(version_5=True)
        is_news = was_connected or reason != self.last_error
        self.last_error, self.last_cause = reason, cause
        self._failures += 1
        # 0.5 s, 1 s, 2 s ... 30 s, give or take a quarter, so that a fleet does not return at once.
        delay_s = min(30.0, 0.25 * 2 ** min(self._failures, 8)) * random.uniform(0.75, 1.25)
        self._retry = self.loop.call_later(int(delay_s * _SECOND), self._connect)
        if is_news:
            level = logging.DEBUG if self._quiet else logging.WARNING
            _log.log(level, "%s: %s; trying again", self._name, reason)
        if was_connected or self._failures == 1:
            self._on_down(reason)

    def _speak(self, *, version_5: bool, because: str = "") -> None:
        """Speak another version from the next connection on."""
        self.version_5, self.error_5 = version_5, because
        self._client = self._make_session()

    # -- running ---------------------------------------------------------------------------

    def _ready(self, events: int) -> None:
        frames = self._client.frames
        if frames is None or self._fd < 0:
            return
        if events & Loop.ERROR:
            frames.kernel.drain_error_queue()
        if events & ~Loop.ERROR:
            frames.pump()
            if not self._read_packets(frames):
                return
            if frames.below.buffered:  # poll sees the socket only, not what was read from it
                self.loop.call_later(0, lambda: self._ready(Loop.READ))
            if events & Loop.WRITE:
                frames.flush()
                if not frames.wants_write:
                    self._client.loop_write()
        self._watch_writing()

    def rehearse(self) -> None:
        """Read as if something had come: code that was idle for a while is slow the first time."""
        self._ready(Loop.READ)

    def _read_packets(self, frames: FrameSocket) -> bool:
        """Let paho-mqtt process its packets; False if the connection did not survive that."""
        lost, cause = f"the connection to {self.address} was lost", Cause.UNKNOWN
        while frames.has_packets and self._client.frames is frames:
            try:
                good = self._client.loop_read() == paho.MQTT_ERR_SUCCESS
            except Exception as error:  # paho raises many kinds on malformed packets
                _log.debug("%s: packet refused", self._name, exc_info=True)
                good, cause = False, Cause.NOT_MQTT
                lost = f"{self.address} sent what is not MQTT ({error!r})"
            if not good:
                if self._client.frames is frames:
                    self._lost(lost, cause)
                return False
        return self._client.frames is frames

    def _watch_writing(self) -> None:
        frames = self._client.frames
        if frames is None or self._fd < 0:
            return
        writing = frames.wants_write or self._client.want_write()
        if writing != self._writing:
            self._writing = writing
            self.loop.modify(self._fd, Loop.READ | (Loop.WRITE if writing else 0))

    def _tick(self) -> None:
        if self._closing:
            return
        if self._fd >= 0:
            if not self.connected and time.monotonic_ns() > self._deadline_ns:
                limit = self.broker.connect_timeout_s
                stalled = f"{self.address} accepted but did not answer within {limit:g} s"
                self._lost(stalled, Cause.SILENT)
            else:
                self._client.loop_misc()
                self._watch_writing()
        slack_ns = _SECOND if self.connected else 0
        self.loop.call_lazily(_SECOND, slack_ns, self._tick)

    def publish(self, topic: str, payload: bytes, properties: bytes = b"") -> Transmit | None:
        """Send a QoS 0 message now; None (and counted in `dropped`) when it cannot go now.

        The result's `stamp` is the user's until the kernel's has arrived.
        """
        return self._publish(topic, payload, properties, stamped=True)

    def _publish(
        self, topic: str, payload: bytes, properties: bytes, *, stamped: bool
    ) -> Transmit | None:
        frames = self._client.frames
        if frames is None or not self.connected:
            self.dropped += 1
            return None
        transmit = frames.send_publish(
            topic.encode(), payload, properties, time.time_ns(), stamped=stamped
        )
        if transmit is None:
            self.dropped += 1
        self._watch_writing()
        return transmit

    def publish_unstamped(self, topic: str, payload: bytes) -> Transmit | None:
        """Send as `publish` does, without asking the kernel when it left: that costs a wake-up."""
        return self._publish(topic, payload, b"", stamped=False)

    def publish_retained(self, topic: str, payload: bytes) -> None:
        """Send a retained QoS 1 message through paho-mqtt (status, never time)."""
        if self.connected:
            self._client.publish(topic, payload, qos=1, retain=True)
            self._watch_writing()

    def collect_stamps(self) -> None:
        """Take the transmit stamps that the kernel has ready."""
        if self._client.frames is not None:
            self._client.frames.kernel.drain_error_queue()

    def acknowledge_late(self) -> None:
        """Acknowledge what comes next as late as the kernel may (40 ms), to show who waits for it.

        It lasts until an acknowledgement was put off that long: ask again before each message.
        """
        if self._client.frames is not None:
            self._client.frames.kernel.quick = False
            self._client.frames.kernel.acknowledge()

    def subscribe(
        self, topics: Sequence[str], done: Callable[[bool], None] = lambda _ok: None
    ) -> None:
        """Subscribe at QoS 0; `done(granted)` is called with the broker's answer."""
        if not self.connected or not topics:
            return
        if self.version_5:
            options = SubscribeOptions(qos=0, retainHandling=_SEND_RETAINED_NEVER)
            _, mid = self._client.subscribe([(topic, options) for topic in topics])
        else:
            _, mid = self._client.subscribe([(topic, 0) for topic in topics])
        if mid is not None:
            self._subscribed[mid] = done
        self._watch_writing()

    def subscribe_retained(self, topic: str) -> None:
        """Subscribe and ask for the retained message (server status)."""
        if self.connected:
            self._client.subscribe(topic, 0)
            self._watch_writing()

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """Unsubscribe."""
        if self.connected and topics:
            self._client.unsubscribe(list(topics))
            self._watch_writing()

    def _subscribe_answered(
        self, _client: Any, _userdata: Any, mid: int, reasons: list[ReasonCode], _properties: Any
    ) -> None:
        done = self._subscribed.pop(mid, None)
        if done is not None:
            done(not any(reason.is_failure for reason in reasons))

    @property
    def kernel_stamps(self) -> bool:
        """Whether this connection has kernel timestamps."""
        return self._client.frames is not None and self._client.frames.kernel.kernel_stamps

    def certificate_dates_error(self, now_s: float) -> str | None:
        """Return a sentence if the broker's certificate is not valid at `now_s` (Unix time, s).

        From then on every new connection also checks the dates against the host's clock.
        """
        frames, context = self._client.frames, self._client.tls_context
        certificate = frames.below.peer_certificate() if frames is not None else None
        if certificate is None:
            return None
        authorities = context.get_ca_certs() if context and self.broker.ca_file else []
        error = certificate_dates_error(certificate, authorities, now_s)
        if error is not None and not self.check_dates:
            self.check_dates = True
            self._client.use_tls(check_dates=True)
        return error

    def close(self) -> None:
        """Say goodbye and stop."""
        self._closing = True
        if self.connected and self._client.frames is not None:
            self._client.frames.kernel.linger_s = _GOODBYE_S
            self._client.disconnect()
        if self._retry is not None:
            self._retry.cancel()
        self._lost("closed")
