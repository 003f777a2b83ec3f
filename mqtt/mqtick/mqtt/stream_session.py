"""A session over a stream (TCP, TLS, WebSocket, Unix socket): paho-mqtt on our own frames."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.causes import Cause, cause_of_refusal
from mqtick.mqtt.frames import Arrival, FrameSocket
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.paho_client import PahoClient
from mqtick.mqtt.session import Events, Will
from mqtick.mqtt.stamps import KernelSocket, Stamp, StampSource, Transmit
from mqtick.mqtt.tls import certificate_dates_error

_log = logging.getLogger(__name__)
# Do not send retained messages at subscription: MQTT 5.0, 3.8.3.1 Retain Handling.
_SEND_RETAINED_NEVER = 2
# Reason codes above this one name a specific error: MQTT 5.0, 2.4.
_UNSPECIFIED = 0x80
# In one SUBSCRIBE: AWS IoT Core ends the connection if there are more.
_MOST_FILTERS = 8


class StreamSession:
    """See `Session`. `hooks` maps topics to functions called at once (see `FrameSocket`)."""

    unanswered = "accepted but did not answer"

    def __init__(
        self,
        loop: Loop,
        broker: Broker,
        client_id: str,
        will: Will | None,
        events: Events,
        hooks: dict[bytes, Callable[[], None]],
        *,
        check_dates: bool,
    ) -> None:
        self._loop, self._broker, self._name, self._events = loop, broker, client_id, events
        self._version_5 = broker.version == "5"
        self._subscribed: dict[int, Callable[[bool], None]] = {}
        self._fd = -1
        self._writing = False
        self._accepted = False
        self._client = PahoClient(
            broker,
            client_id,
            will,
            lambda stream, below: FrameSocket(
                stream,
                below,
                events.arrived,
                hooks,
                version_5=self._version_5,
                unread=events.unread,
            ),
            check_dates=check_dates,
        )
        self._client.on_connect = self._connect_answered
        self._client.on_disconnect = self._disconnect_seen
        self._client.on_subscribe = self._subscribe_answered
        self._client.on_message = self._retained_arrived

    @property
    def frames(self) -> FrameSocket | None:
        """The frames on the stream; None while there is none."""
        return self._client.frames

    @property
    def kernel(self) -> KernelSocket | None:
        """See `Session`."""
        return self.frames.kernel if self.frames is not None else None

    def connect(self) -> None:
        """See `Session`: name look-up, TCP, TLS and WebSocket handshake."""
        self._client.drop_out_messages()  # of the last connection: statuses, which are made anew
        self._client.reconnect()

    def abort(self) -> None:
        """See `Session`."""
        self._client.abort()

    def begin(self) -> None:
        """See `Session`."""
        assert self.frames is not None
        self._fd = self.frames.fileno()
        self._writing = self._accepted = False
        self._loop.add(self._fd, Loop.READ, self._ready)
        self.read()  # handle octets that were read together with the last handshake

    def close(self, linger_s: float = 0.0) -> None:
        """See `Session`."""
        if linger_s and self._accepted and self.frames is not None:
            self.frames.kernel.linger_s = linger_s
            self._client.disconnect()
        self._accepted = False
        if self._fd >= 0:
            self._loop.remove(self._fd)
            self._fd = -1
        if self.frames is not None:
            frames, self._client.frames = self.frames, None
            frames.close()
        self._subscribed.clear()

    # -- packets from the broker -----------------------------------------------------------

    def _retained_arrived(self, _client: Any, _userdata: Any, message: paho.MQTTMessage) -> None:
        """Take a retained message (a status) that comes with the QoS of its publication.

        By MQTT 3.1.1, 3.8.4, brokers lower it to the QoS of the subscription; aedes 1.2 does so
        only if the subscription has no wildcard.
        """
        if message.retain:
            stamp = Stamp(time.time_ns(), StampSource.USER)
            payload = bytes(message.payload)
            self._events.arrived(Arrival(message.topic, payload, stamp, True, b"", True))

    def _connect_answered(
        self, _client: Any, _userdata: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if reason.is_failure:
            refusal = f"{self._broker.address} refused the connection: {reason}"
            self._events.lost(refusal, cause_of_refusal(reason.value))
            return
        self._accepted = True
        self._events.up()

    def _disconnect_seen(
        self, client: Any, _userdata: Any, flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if client is not self._client or self.frames is None:
            return  # given up already, and the reason was reported
        address = self._broker.address
        if self.frames.is_silent and not self.frames.fault:
            ended = f"{address} ended the connection without giving a reason"
            self._events.lost(ended, Cause.HUNG_UP)
            return
        says_much = flags.is_disconnect_packet_from_server or reason.value > _UNSPECIFIED
        said, cause = "", Cause.UNKNOWN
        if says_much:
            said, cause = f" ({reason})", cause_of_refusal(reason.value)
        self._end(self.frames, f"the connection to {address} was lost{said}", cause)

    def _end(self, frames: FrameSocket, said: str, cause: Cause) -> None:
        """Report the end of the session; what the broker did wrong says more than what followed."""
        if frames.fault:
            said, cause = f"{self._broker.address} {frames.fault}", Cause.UNASKED
        self._events.lost(said, cause)

    def _subscribe_answered(
        self, _client: Any, _userdata: Any, mid: int, reasons: list[ReasonCode], _properties: Any
    ) -> None:
        done = self._subscribed.pop(mid, None)
        if done is not None:
            done(not any(reason.is_failure for reason in reasons))

    # -- running ---------------------------------------------------------------------------

    def _ready(self, events: int) -> None:
        frames = self.frames
        if frames is None or self._fd < 0:
            return
        if events & Loop.ERROR:
            frames.kernel.drain_error_queue()
        if events & ~Loop.ERROR:
            frames.pump()
            if not self._read_packets(frames):
                return
            if frames.below.buffered:  # epoll does not report octets that were read already
                self._loop.call_later(0, self.read)
            if events & Loop.WRITE:
                frames.flush()
                if not frames.wants_write:
                    self._client.loop_write()
        self._watch_writing()

    def read(self) -> None:
        """See `Session`."""
        self._ready(Loop.READ)

    def _read_packets(self, frames: FrameSocket) -> bool:
        """Let paho-mqtt process its packets; False if the connection did not survive that."""
        while frames.has_packets and self.frames is frames:
            lost, cause = f"the connection to {self._broker.address} was lost", Cause.UNKNOWN
            try:
                good = self._client.loop_read() == paho.MQTT_ERR_SUCCESS
            except Exception as error:  # paho raises many types on malformed packets
                _log.debug("%s: packet refused", self._name, exc_info=True)
                good, cause = False, Cause.NOT_MQTT
                lost = f"{self._broker.address} sent what is not MQTT ({error!r})"
            if not good:
                if self.frames is frames:
                    self._end(frames, lost, cause)
                return False
        return self.frames is frames

    def _watch_writing(self) -> None:
        frames = self.frames
        if frames is None or self._fd < 0:
            return
        writing = frames.wants_write or self._client.want_write()
        if writing != self._writing:
            self._writing = writing
            self._loop.modify(self._fd, Loop.READ | (Loop.WRITE if writing else 0))

    def tick(self) -> None:
        """See `Session`."""
        if self._fd >= 0:
            self._client.loop_misc()
            self.read()  # notices what was given up meanwhile

    # -- packets to the broker -------------------------------------------------------------

    def publish(
        self, topic: str, payload: bytes, properties: bytes, *, stamped: bool
    ) -> Transmit | None:
        """See `Session`."""
        if self.frames is None:
            return None
        transmit = self.frames.send_publish(
            topic.encode(), payload, properties, time.time_ns(), stamped=stamped
        )
        self._watch_writing()
        return transmit

    def publish_retained(self, topic: str, payload: bytes) -> None:
        """See `Session`; QoS 1, through paho-mqtt."""
        info = self._client.publish(topic, payload, qos=1, retain=True)
        if info.rc == paho.MQTT_ERR_QUEUE_SIZE and self.frames is not None:
            self.frames.give_up("acknowledges nothing that is published")
        self._watch_writing()

    def subscribe(
        self, topics: Sequence[str], done: Callable[[bool], None], *, retained: bool = False
    ) -> None:
        """See `Session`; only with MQTT 5 there is a choice about retained messages."""
        if len(topics) > _MOST_FILTERS:

            def rest(granted: bool) -> None:
                self.subscribe(
                    topics[_MOST_FILTERS:], lambda more: done(granted and more), retained=retained
                )

            self.subscribe(topics[:_MOST_FILTERS], rest, retained=retained)
            return
        if self._version_5 and not retained:
            options = SubscribeOptions(qos=0, retainHandling=_SEND_RETAINED_NEVER)
            _, mid = self._client.subscribe([(topic, options) for topic in topics])
        else:
            _, mid = self._client.subscribe([(topic, 0) for topic in topics])
        if mid is not None:
            self._subscribed[mid] = done
        self._watch_writing()

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """See `Session`."""
        self._client.unsubscribe(list(topics))
        self._watch_writing()

    # -- certificates ----------------------------------------------------------------------

    def certificate_dates_error(self, now_s: float) -> str | None:
        """See `Session`."""
        frames, context = self.frames, self._client.tls_context
        certificate = frames.below.peer_certificate() if frames is not None else None
        if certificate is None:
            return None
        authorities = context.get_ca_certs() if context and self._broker.ca_file else []
        return certificate_dates_error(certificate, authorities, now_s)

    def check_dates(self) -> None:
        """See `Session`."""
        self._client.check_dates()
