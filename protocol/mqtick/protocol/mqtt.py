"""A connection to the broker: paho-mqtt for the session, our own frames for the time.

Everything runs in one loop's thread, except that connecting (name look-up, TCP, TLS, WebSocket
handshake) blocks in a short-lived thread of its own, so that a broker that accepts and then stalls
holds up nothing.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from mqtick.protocol.broker import Broker
from mqtick.protocol.frames import Arrival, FrameSocket
from mqtick.protocol.loop import Loop, Timer
from mqtick.protocol.stamps import KernelSocket, Transmit
from mqtick.protocol.tls import TlsSocket, certificate_date_error, client_context

__all__ = ["Connection", "Will"]

_SECOND = 1_000_000_000
# Do not send retained messages at subscription: MQTT 5.0, 3.8.3.1 Retain Handling.
_SEND_RETAINED_NEVER = 2


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes, retained, when this connection breaks."""

    topic: str
    payload: bytes


class _Paho(paho.Client):
    """paho-mqtt on our sockets: the three places where it makes one are replaced."""

    frames: FrameSocket | None = None
    below: KernelSocket | TlsSocket
    make_frames: Callable[[Any, KernelSocket | TlsSocket], FrameSocket]
    broker: Broker
    tls_context: ssl.SSLContext | None = None

    def _create_socket_connection(self) -> Any:
        sock = super()._create_socket_connection()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.below = KernelSocket(sock, self.broker.kernel_stamps)
        return self.below

    def _create_unix_socket_connection(self) -> Any:
        sock = super()._create_unix_socket_connection()
        self.below = KernelSocket(sock, "user")
        return self.below

    def _ssl_wrap_socket(self, tcp_sock: Any) -> Any:
        assert self.tls_context is not None
        self.below = TlsSocket(tcp_sock, self.tls_context, self.broker.host)
        tcp_sock.settimeout(self.broker.connect_timeout_s)
        self.below.do_handshake()
        return self.below

    def _create_socket(self) -> Any:
        stream = super()._create_socket()
        self.frames = self.make_frames(stream, self.below)
        return self.frames


class Connection:
    """One MQTT session that keeps itself alive.

    `on_publish(arrival)` gets every QoS 0 PUBLISH, `on_up()` is called after each connect (the
    place to subscribe), `on_down(reason)` after each loss. `hooks` maps topics to functions called
    at once on arrival (see `FrameSocket`).
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
    ) -> None:
        self.loop = loop
        self.broker = broker
        self.hooks: dict[bytes, Callable[[], None]] = {}
        self.connected = False
        self.connects = 0
        self.dropped = 0
        """Messages not sent because the connection was down or the broker took no data."""
        self.last_error = ""
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
        self._client = self._make_client(client_id, will)

    def _make_client(self, client_id: str, will: Will | None) -> _Paho:
        broker = self.broker
        transport = {"ws": "websockets", "wss": "websockets", "unix": "unix"}.get(broker.scheme)
        version = MQTTProtocolVersion.MQTTv5 if self.version_5 else MQTTProtocolVersion.MQTTv311
        client = _Paho(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=version,
            transport=transport or "tcp",  # type: ignore[arg-type]
            **({} if self.version_5 else {"clean_session": True}),
        )
        client.broker = broker
        client.make_frames = lambda stream, below: FrameSocket(
            stream,
            below,
            self._arrived,
            self.hooks,
            version_5=self.version_5,
        )
        client.connect_timeout = broker.connect_timeout_s
        if broker.username is not None:
            client.username_pw_set(broker.username, broker.password)
        if broker.scheme in ("ws", "wss"):
            client.ws_set_options(path=broker.path)
        if broker.scheme in ("mqtts", "wss"):
            client.tls_set_context(ssl.create_default_context())
            client.tls_context = self._tls_context()
        if will is not None:
            client.will_set(will.topic, will.payload, qos=1, retain=True)
        client.on_connect = self._connect_answered
        client.on_disconnect = self._disconnect_seen
        client.on_subscribe = self._subscribe_answered
        if broker.scheme == "unix":
            client.connect_async(broker.path, 1, broker.keepalive_s)
        else:
            client.connect_async(broker.host, broker.port, broker.keepalive_s)
        return client

    def _tls_context(self) -> ssl.SSLContext:
        broker = self.broker
        return client_context(
            ca_file=broker.ca_file,
            certificate_file=broker.certificate_file,
            key_file=broker.key_file,
            check_dates=self.check_dates,
        )

    def _arrived(self, arrival: Arrival) -> None:
        self.on_publish(arrival)

    # -- connecting ------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect, and go on until `close`."""
        self._connect()
        self._tick()

    def _connect(self) -> None:
        self._retry = None
        if self._connecting or self._closing:
            return
        self._connecting = True
        threading.Thread(target=self._connect_blocking, name="connect", daemon=True).start()

    def _connect_blocking(self) -> None:
        error: Exception | None = None
        try:
            self._client.reconnect()
        except (OSError, ValueError, paho.WebsocketConnectionError) as caught:
            error = caught
        with contextlib.suppress(OSError):  # the loop was closed meanwhile
            self.loop.call_soon_threadsafe(lambda: self._connect_done(error))

    def _connect_done(self, error: Exception | None) -> None:
        self._connecting = False
        if error is not None:
            self._lost(f"cannot connect to {self.address}: {error}")
            return
        if self._closing:
            self._client.disconnect()
            return
        assert self._client.frames is not None
        self._deadline_ns = time.monotonic_ns() + int(self.broker.connect_timeout_s * _SECOND)
        self._fd = self._client.frames.fileno()
        self._writing = False
        self.loop.add(self._fd, Loop.READ, self._ready)

    @property
    def address(self) -> str:
        """The broker's address, for messages."""
        broker = self.broker
        if broker.scheme == "unix":
            return f"unix://{broker.path}"
        return f"{broker.scheme}://{broker.host}:{broker.port}"

    def _connect_answered(
        self, _client: Any, _userdata: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._lost(f"{self.address} refused the connection: {reason}")
            return
        self.connected = True
        self.connects += 1
        self._failures = 0
        self._on_up()

    def _disconnect_seen(
        self, _client: Any, _userdata: Any, flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        said = f" ({reason})" if flags.is_disconnect_packet_from_server else ""
        self._lost(f"the connection to {self.address} was lost{said}")

    def drop(self, reason: str) -> None:
        """Give this connection up and make a new one."""
        self._lost(reason)

    def _lost(self, reason: str) -> None:
        if self._fd >= 0:
            self.loop.remove(self._fd)
            self._fd = -1
        if self._client.frames is not None:
            frames, self._client.frames = self._client.frames, None
            frames.close()
        self._subscribed.clear()
        was_connected, self.connected = self.connected, False
        self.last_error = reason
        if self._closing or self._retry is not None or self._connecting:
            return
        self._failures += 1
        # 0.5 s, 1 s, 2 s ... 30 s, give or take a quarter, so that a fleet does not return at once.
        delay_s = min(30.0, 0.25 * 2 ** min(self._failures, 8)) * random.uniform(0.75, 1.25)
        self._retry = self.loop.call_later(int(delay_s * _SECOND), self._connect)
        if was_connected or self._failures == 1:
            self._on_down(reason)

    # -- running ---------------------------------------------------------------------------

    def _ready(self, events: int) -> None:
        frames = self._client.frames
        if frames is None:
            return
        if events & Loop.ERROR:
            frames.kernel.drain_error_queue()
        if events & ~Loop.ERROR:
            frames.pump()
            while frames.has_packets and self._client.frames is frames:
                if self._client.loop_read() != paho.MQTT_ERR_SUCCESS:
                    if self._client.frames is frames:
                        self._lost(f"the connection to {self.address} was lost")
                    return
            if events & Loop.WRITE:
                frames.flush()
                if not frames.wants_write:
                    self._client.loop_write()
        self._watch_writing()

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
                self._lost(f"{self.address} accepted but did not answer within {limit:g} s")
            else:
                self._client.loop_misc()
                self._watch_writing()
        self.loop.call_later(_SECOND, self._tick)

    def publish(self, topic: str, payload: bytes, properties: bytes = b"") -> Transmit | None:
        """Send a QoS 0 message now; None (and counted in `dropped`) when it cannot go now.

        The result's `stamp` is the user's until the kernel's has arrived.
        """
        frames = self._client.frames
        if frames is None or not self.connected:
            self.dropped += 1
            return None
        transmit = frames.send_publish(topic.encode(), payload, properties, time.time_ns())
        if transmit is None:
            self.dropped += 1
        self._watch_writing()
        return transmit

    def publish_retained(self, topic: str, payload: bytes) -> None:
        """Send a retained QoS 1 message through paho-mqtt (status, never time)."""
        if self.connected:
            self._client.publish(topic, payload, qos=1, retain=True)
            self._watch_writing()

    def collect_stamps(self) -> None:
        """Take the transmit stamps that the kernel has ready."""
        if self._client.frames is not None:
            self._client.frames.kernel.drain_error_queue()

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

    def check_certificate_dates(self, now_s: float) -> str | None:
        """Check the dates that were not checked on connecting; a sentence when they are wrong.

        From now on every new connection checks them.
        """
        if self.check_dates or self.broker.scheme not in ("mqtts", "wss"):
            return None
        self.check_dates = True
        frames, context = self._client.frames, self._client.tls_context
        self._client.tls_context = self._tls_context()
        error = None
        if frames is not None and isinstance(frames.below, TlsSocket):
            before, after = frames.below.peer_dates()
            error = certificate_date_error(before, after, now_s, "the broker's certificate")
        for authority in context.get_ca_certs() if context is not None else ():
            before, after = (
                int(ssl.cert_time_to_seconds(str(authority[name])))
                for name in ("notBefore", "notAfter")
            )
            if self.broker.ca_file:  # the system's store holds many that this chain does not use
                error = error or certificate_date_error(
                    before, after, now_s, f"an authority in {self.broker.ca_file}"
                )
        return error

    def close(self) -> None:
        """Say goodbye and stop."""
        self._closing = True
        if self.connected:
            self._client.disconnect()
        if self._retry is not None:
            self._retry.cancel()
        self._lost("closed")
