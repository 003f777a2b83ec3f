"""Follows a server of another implementation: 1451.1.6 text, or the 2021 draft.

Their broadcasts have no sequence, no quality and no tag; their replies are matched by t1 alone.
"""

from __future__ import annotations

import math
import secrets
from collections import OrderedDict

from mqtick.client.exchange import one_way, two_way
from mqtick.client.pending import ArrivalReading, Pending
from mqtick.client.sample import Origin, Reading
from mqtick.client.track import ClientContext, Track
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.properties import decode_properties, encode_properties
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol import draft2021, text1451
from mqtick.protocol.draft2021 import DraftTopics
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.text1451 import TextRequest
from mqtick.protocol.time_types import NS_PER_S


class ForeignTrack(Track):
    """Follows one server that speaks 1451.1.6 text or the 2021 draft, and asks it now and then.

    A broadcast gives a one-way sample, a reply a two-way sample. Retained messages are refused, and
    nothing here is authenticated.
    """

    _pending: OrderedDict[str, Pending]
    """The key is the t1 that the request states."""

    def __init__(self, context: ClientContext, format_: str) -> None:
        settings = context.settings
        is_local = format_ == "draft-2021"
        super().__init__(context, settings.draft_utc_offset_s if is_local else None)
        self.format = format_
        self._name = f"mqtick/{context.name}"
        self._draft = DraftTopics(settings.draft_location)
        self._next_ask_ns = 0
        self._sequence = 0
        self._last_stated_ns = -1

    @property
    def time_topic(self) -> str:
        """The topic of its time messages."""
        return text1451.SYN_TOPIC if self.format == "1451.1.6" else self._draft.syn

    def topics(self) -> list[str]:
        """Return what to subscribe to."""
        if self.format == "1451.1.6":
            return [self.time_topic, text1451.reply_topic(self._name)]
        return [self.time_topic, self._draft.srs]

    def on_publish(self, arrival: Arrival) -> None:
        """Take a time message or a reply; DecodeError when it is refused."""
        if arrival.retain:
            raise DecodeError("retained", "A retained time message is old by nature; ignored.")
        arrived = self._arrival(arrival.stamp)
        if arrival.topic == self.time_topic:
            self._on_time(arrival, arrived)
        elif arrival.topic in self.topics():
            self._on_reply(arrival, arrived)
        else:
            raise DecodeError("topic", "Nobody asked for this topic.")

    def _user_properties(self, arrival: Arrival) -> list[tuple[str, str]]:
        try:
            found = getattr(decode_properties(arrival.properties), "UserProperty", [])
        except ValueError as error:
            raise DecodeError("properties", str(error)) from None
        return list(found)

    def _origin(self) -> Origin:
        self._sequence += 1
        return Origin(sequence=self._sequence)

    def _on_time(self, arrival: Arrival, arrived: ArrivalReading) -> None:
        settings, heard_ns = self._context.settings, arrived.reading.instant_ns
        if self.format == "1451.1.6":
            stated_ns = text1451.decode_time(arrival.payload)
        else:
            properties = self._user_properties(arrival)
            stated_ns = draft2021.decode_syn(properties, settings.draft_utc_offset_s).transmit_ns
        if stated_ns == self._last_stated_ns:
            raise DecodeError("replayed", "The message states the time of the one before.")
        self._last_stated_ns = stated_ns
        self.heard_raw_ns = heard_ns
        stated = Reading(stated_ns, StampSource.USER)
        sample = one_way(
            self._origin(), stated, arrived.reading, self._settings, waited_ns=arrived.waited_ns
        )
        self._take(sample.widened(_resolution_ns(stated_ns)), arrived)
        if self._settings.use_two_way and heard_ns >= self._next_ask_ns:
            first = self._next_ask_ns == 0
            interval_ns = int(settings.exchange_interval_s * NS_PER_S)
            self._next_ask_ns = heard_ns + (NS_PER_S if first else interval_ns)
            self.ask()

    def ask(self) -> bool:
        """Send one request; its t1 is the local clock's time, by which the reply is recognised."""
        # In 1451.1.6 the random nanoseconds make t1 unique; the draft states only microseconds.
        t1_ns = self._clock.time_ns() // 1000 * 1000 + secrets.randbelow(1000)
        if self.format == "1451.1.6":
            t1 = text1451.format_seconds(t1_ns)
            payload = text1451.encode_request(TextRequest(self._name, t1))
            sent = self._send(text1451.REQUEST_TOPIC, payload)
        else:
            t1 = draft2021.format_local(t1_ns, self._context.settings.draft_utc_offset_s)
            properties = encode_properties(draft2021.encode_srq(t1))
            sent = self._send(self._draft.srq, draft2021.SRQ_PAYLOAD, properties)
        if sent is not None:
            self._pending[t1] = Pending(*sent)
        return sent is not None

    def _on_reply(self, arrival: Arrival, arrived: ArrivalReading) -> None:
        settings = self._context.settings
        reply: text1451.TextReply | draft2021.DraftReply
        if self.format == "1451.1.6":
            reply = text1451.decode_reply(arrival.payload)
            wanted = settings.server_name
            if wanted and reply.server != wanted:
                raise DecodeError("server", "The reply comes from another server.")
        else:
            properties = self._user_properties(arrival)
            reply = draft2021.decode_srs(properties, settings.draft_utc_offset_s)
        pending = self._pending.pop(reply.t1, None)
        if pending is None:
            raise DecodeError("unasked", "Nobody asked for this reply; ignored.")
        self._context.connection.collect_stamps()
        slewed_ns = abs(arrived.time_minus_raw_ns - pending.time_minus_raw_ns)
        sample = two_way(
            self._origin(),
            pending.sent,
            Reading(reply.t2_ns, StampSource.USER),
            Reading(reply.t3_ns, StampSource.USER),
            arrived.reading,
            self._settings,
        ).widened(slewed_ns + _resolution_ns(reply.t2_ns, reply.t3_ns))
        self.last_delay_ns = sample.delay_ns
        self._take(sample, arrived)


def _resolution_ns(*stated_ns: int) -> int:
    """Return the most by which stated instants can be cut or rounded.

    These formats do not say how fine a server's stamps are. If all are multiples of a millisecond,
    the truth may be a millisecond away. Nanoseconds have a small common divisor by chance only.
    """
    return math.gcd(*stated_ns, NS_PER_S)
