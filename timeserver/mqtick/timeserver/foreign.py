"""Publishes and answers the formats of other implementations: 1451.1.6 text and the 2021 draft.

Neither can state `unsynchronised`, and neither has a server number. So only the lowest server alive
serves them, and only while its clock is synchronised.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable

from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.properties import decode_properties, encode_properties
from mqtick.protocol import draft2021, text1451
from mqtick.protocol.draft2021 import DraftReply, DraftTopics
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.text1451 import TextReply
from mqtick.protocol.topics import topic_fault
from mqtick.timeserver.config import Settings
from mqtick.timeserver.context import Context
from mqtick.timeserver.rate import RateLimit

_log = logging.getLogger(__name__)
_RESPONSE_TOPIC_OCTETS = 128
# A broker that allows no dots in topics (nats-server before 2.10) refuses the subscription, and
# closes the connection on the first message. If that happens repeatedly, it is no accident.
_SHORT_S = 10.0
_SHORT_CONNECTIONS = 2


class ForeignFormats:
    """Publishes and answers in the formats of other IEEE 1451 nodes.

    A request may name a Response Topic and Correlation Data (MQTT 5.0, 4.10). The reply goes to
    that topic, but never to a topic that carries time, which only servers may write.
    """

    def __init__(
        self, context: Context, settings: Settings, limit: RateLimit, leads: Callable[[], bool]
    ) -> None:
        self._clock, self._connection = context.clock, context.connection
        self._context = context
        self._counters, self._limit, self._leads = context.counters, limit, leads
        self.text = "1451.1.6" in settings.formats
        self._wants_draft = "draft-2021" in settings.formats
        self._draft = DraftTopics(settings.draft_location)
        self._name = text1451.check_lns(settings.name or f"mqtick/{socket.gethostname()}"[:64])
        self._own = (f"{settings.prefix}/", "$")
        self.refused = False
        """Whether the broker refused the subscription to the requests."""
        self._connected_s = float("-inf")
        self._short = 0
        self._was_silent = False

    @property
    def draft(self) -> bool:
        """Whether draft-2021 is in use: not with MQTT 3.1.1, which has no user properties."""
        return self._wants_draft and self._connection.version_5

    @property
    def silent(self) -> str:
        """Why the clock's state keeps these formats from being served; empty: it does not."""
        wanted = ["1451.1.6"] * self.text + ["draft-2021"] * self.draft
        reference = self._context.reference
        if not wanted or reference.synchronised:
            return ""
        return (
            f"{', '.join(wanted)}: without a way to say that the clock is not synchronised, which "
            f"it is not: {reference.reason} trust_system_clock would serve it all the same."
        )

    def say_if_silent(self) -> None:
        """Log once, each time it begins, why nothing is published in these formats."""
        if self.silent and not self._was_silent:
            _log.warning("not served: %s", self.silent)
        self._was_silent = bool(self.silent)

    def topics(self) -> list[str]:
        """Return the topics on which requests come."""
        return [text1451.REQUEST_TOPIC] * self.text + [self._draft.srq] * self.draft

    def connected(self) -> None:
        """Note a new connection; switch the text format off if it has ended the previous ones."""
        now_s = time.monotonic()
        was_short = self.text and self.refused and now_s - self._connected_s < _SHORT_S
        self._short = self._short + 1 if was_short else 0
        self._connected_s, self.refused = now_s, False
        if self._wants_draft and not self.draft:
            _log.info("draft-2021 is off: it needs the user properties of MQTT 5")
        if self._short >= _SHORT_CONNECTIONS:
            self.text = False
            _log.warning(
                "1451.1.6 is off: %s refuses its topic %s and ends the connection when time is "
                "published there; leave it out of formats to avoid this",
                self._connection.address,
                text1451.REQUEST_TOPIC,
            )

    def publish(self) -> None:
        """Publish the time in each format, now."""
        if self.text:
            self._connection.publish(
                text1451.SYN_TOPIC, text1451.encode_time(self._clock.time_ns())
            )
        if self.draft:
            properties = encode_properties(draft2021.encode_syn(self._clock.time_ns()))
            self._connection.publish(self._draft.syn, draft2021.SYN_PAYLOAD, properties)

    def on_request(self, arrival: Arrival) -> None:
        """Answer a request in its own format, or count the reason for refusing it."""
        try:
            if not self._leads():
                raise DecodeError("not-leading", "Another server answers, or none can.")
            if arrival.retain:
                raise DecodeError("retained", "A retained request is not answered.")
            if self.text and arrival.topic == text1451.REQUEST_TOPIC:
                self._answer_text(arrival)
            elif self.draft and arrival.topic == self._draft.srq:
                self._answer_draft(arrival)
            else:
                raise DecodeError("topic", "Nobody asked for this topic.")
        except DecodeError as error:
            self._counters.refuse(error.reason)

    def _answer_text(self, arrival: Arrival) -> None:
        request = text1451.decode_request(arrival.payload)
        self._allow(request.client)
        topic, correlation = self._address(arrival, text1451.reply_topic(request.client))
        received_ns = self._clock.span_of_kernel_ns(arrival.stamp.realtime_ns)[1]
        reply = TextReply(request.t1, received_ns, self._clock.time_ns(), self._name)
        self._send(topic, text1451.encode_reply(reply), correlation, [])

    def _answer_draft(self, arrival: Arrival) -> None:
        try:
            user = getattr(decode_properties(arrival.properties), "UserProperty", [])
        except ValueError as error:
            raise DecodeError("properties", str(error)) from None
        t1 = draft2021.decode_srq(user)
        self._allow(None)  # the draft's requests do not name the client
        topic, correlation = self._address(arrival, self._draft.srs)
        received_ns = self._clock.span_of_kernel_ns(arrival.stamp.realtime_ns)[1]
        reply = DraftReply(t1, received_ns, self._clock.time_ns())
        self._send(topic, draft2021.SRS_PAYLOAD, correlation, draft2021.encode_srs(reply))

    def _allow(self, client: str | None) -> None:
        now_ns = time.monotonic_ns()
        known = client is None or self._limit.allow_client(client, now_ns)
        if not known or not self._limit.allow_total(now_ns):
            raise DecodeError("rate", "Asked too often; not answered.")

    def _address(self, arrival: Arrival, usual: str) -> tuple[str, bytes | None]:
        """Return the topic of the reply, and the Correlation Data that it repeats."""
        if not arrival.properties:
            return usual, None
        try:
            properties = decode_properties(arrival.properties)
        except ValueError as error:
            raise DecodeError("properties", str(error)) from None
        correlation: bytes | None = getattr(properties, "CorrelationData", None)
        wanted: str | None = getattr(properties, "ResponseTopic", None)
        if wanted is None:
            return usual, correlation
        time_topics = (text1451.SYN_TOPIC, text1451.REQUEST_TOPIC, self._draft.syn, self._draft.srq)
        if (
            topic_fault(wanted, _RESPONSE_TOPIC_OCTETS)
            or wanted.startswith(self._own)
            or wanted in time_topics
        ):
            raise DecodeError("response-topic", "The reply may not be sent to that topic.")
        return wanted, correlation

    def _send(
        self, topic: str, payload: bytes, correlation: bytes | None, user: list[tuple[str, str]]
    ) -> None:
        if self._context.clock_changed() or self._context.stamps_are_doubtful:
            raise DecodeError("clock-changed", "The clock was set while the reply was made.")
        properties = b""
        if self._connection.version_5 and (user or correlation is not None):
            properties = encode_properties(user, correlation_data=correlation)
        if self._connection.publish(topic, payload, properties) is None:
            raise DecodeError("not-sent", "The broker takes no data now.")
        self._counters.count("replies")
