"""paho-mqtt on our own sockets: it handles the session, we handle octets and timestamps."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from mqtick.mqtt.broker import Broker, BrokerError
from mqtick.mqtt.frames import FrameSocket, Transport
from mqtick.mqtt.happy_eyeballs import connect_to
from mqtick.mqtt.session import Will
from mqtick.mqtt.stamps import KernelSocket
from mqtick.mqtt.tls import NO_CHECK_TIME, TlsSocket, client_context

# Statuses, one a second at most, that wait for the broker's acknowledgement.
_MOST_UNACKNOWLEDGED = 64


class PahoClient(paho.Client):
    """A paho client whose methods that make a socket are replaced.

    `make_frames(stream, below)` makes the frame layer. The owner sets the callbacks (`on_connect`
    and so on). `reconnect` connects, and blocks meanwhile. BrokerError if the files for TLS cannot
    be used.
    """

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        will: Will | None,
        make_frames: Callable[[Any, Transport], FrameSocket],
        *,
        check_dates: bool,
    ) -> None:
        is_5 = broker.version == "5"
        transport = {"ws": "websockets", "wss": "websockets", "unix": "unix"}.get(broker.scheme)
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=MQTTProtocolVersion.MQTTv5 if is_5 else MQTTProtocolVersion.MQTTv311,
            transport=transport or "tcp",  # type: ignore[arg-type]
            reconnect_on_failure=False,  # paho would connect within the callback, and block there
            clean_session=None if is_5 else True,
            # Nobody asked for QoS 1; while the broker does not read, acknowledgements queue up.
            manual_ack=True,
        )
        self.broker = broker
        self.frames: FrameSocket | None = None
        self.below: Transport | None = None
        self.tls_context: ssl.SSLContext | None = None
        self._make_frames = make_frames
        self.max_queued_messages_set(_MOST_UNACKNOWLEDGED)
        self.connect_timeout = broker.connect_timeout_s
        if broker.username is not None:
            self.username_pw_set(broker.username, broker.password)
        if broker.scheme in ("ws", "wss"):
            self.ws_set_options(path=broker.path)
        if broker.scheme in ("mqtts", "wss"):
            self.tls_set_context(ssl.create_default_context())  # only tells paho to use TLS
            self._use_tls(check_dates=check_dates)
        if will is not None:
            self.will_set(will.topic, will.payload, qos=1, retain=True)
        # A resumed session would keep the order of its old subscriptions.
        self.connect_async(
            broker.path if broker.scheme == "unix" else broker.host,
            broker.port or 1,
            broker.keepalive_s,
            clean_start=True if is_5 else paho.MQTT_CLEAN_START_FIRST_ONLY,
        )

    def _use_tls(self, *, check_dates: bool) -> None:
        broker = self.broker
        try:
            self.tls_context = client_context(
                ca_file=broker.ca_file,
                certificate_file=broker.certificate_file,
                key_file=broker.key_file,
                check_dates=check_dates,
            )
        except OSError as error:
            files = (broker.ca_file, broker.certificate_file, broker.key_file)
            raise BrokerError(
                f"TLS cannot be set up with {', '.join(filter(None, files))}: {error}; "
                "authorities, certificate and key must be PEM files that belong together"
            ) from error

    def check_dates(self) -> None:
        """Also check the dates of the broker's certificate, from the next connection on."""
        if self.tls_context is not None:
            self.tls_context.verify_flags &= ~ssl.VerifyFlags(NO_CHECK_TIME)

    def abort(self) -> None:
        """Make a handshake in another thread fail: `connect_timeout` holds for each octet only."""
        if self.below is not None:
            with contextlib.suppress(OSError):
                self.below.kernel.sock.shutdown(socket.SHUT_RDWR)

    def _create_socket_connection(self) -> Any:
        sock = connect_to(self.broker.host, self.broker.port, self.broker.connect_timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.below = KernelSocket(sock, self.broker.kernel_stamps)
        return self.below

    def _create_unix_socket_connection(self) -> Any:
        sock = super()._create_unix_socket_connection()
        self.below = KernelSocket(sock, "user")
        return self.below

    def _ssl_wrap_socket(self, tcp_sock: Any) -> Any:
        assert self.tls_context is not None
        self.below = tls = TlsSocket(tcp_sock, self.tls_context, self.broker.host)
        tcp_sock.settimeout(self.broker.connect_timeout_s)
        tls.do_handshake()
        return tls

    def _create_socket(self) -> Any:
        self.below = None
        try:
            stream = super()._create_socket()
        except BaseException:
            if self.below is not None:
                self.below.close()  # paho leaves the socket open after a failed handshake
            raise
        assert self.below is not None
        self.frames = self._make_frames(stream, self.below)
        return self.frames
