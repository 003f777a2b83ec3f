"""Following a server by other authors: 1451.1.6 text, or the 2021 draft.

Their broadcasts have no sequence, no quality and no tag; their replies are matched by t1 alone.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from mqtick.client.config import Settings
from mqtick.client.estimator import Estimator
from mqtick.client.exchange import one_way, two_way
from mqtick.client.first_time import FirstTime
from mqtick.client.pending import WallSample
from mqtick.client.sample import Origin, Reading, Sample
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.properties import decode_properties, encode_properties
from mqtick.mqtt.stamps import Source, Transmit
from mqtick.protocol import draft2021, text1451
from mqtick.protocol.clocks import Clock
from mqtick.protocol.draft2021 import DraftTopics
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.text1451 import TextRequest

__all__ = ["ForeignTrack"]

_PENDING_LIMIT = 64
_MAXIMUM_AGE_NS = 3_000_000_000
_SECOND = 1_000_000_000


class ForeignTrack:
    """Follows one server that speaks 1451.1.6 text or the 2021 draft, and asks it now and then.

    A lucky broadcast gives a one-way sample, a reply a two-way one. Retained messages are refused
    and nothing here is authenticated.
    """

    number = -1

    def __init__(
        self,
        format_: str,
        settings: Settings,
        name: str,
        clock: Clock,
        *,
        publish: Callable[[str, bytes, bytes], Transmit | None],
        collect_stamps: Callable[[], None],
        on_sample: Callable[[Any, WallSample], None],
        refuse: Callable[[str], None],
    ) -> None:
        self.format, self._settings, self._clock = format_, settings, clock
        self._publish, self._collect_stamps = publish, collect_stamps
        self._on_sample, self._refuse = on_sample, refuse
        self.estimator = Estimator(settings.estimator)
        is_local = format_ == "draft-2021"
        self.first = FirstTime(
            self.estimator,
            int(settings.time_tolerance_s * _SECOND),
            settings.draft_utc_offset_s if is_local else None,
        )
        self.authenticated = False
        self.stratum, self.leap, self.root_distance_ns = 0, 0, 0
        self.heard_raw_ns: int | None = None
        self.last_delay_ns: int | None = None
        self._name = f"mqtick/{name}"
        self._draft = DraftTopics(settings.draft_location)
        self._pending: OrderedDict[str, tuple[Transmit, int, int]] = OrderedDict()
        """t1 -> the request, when it went, and time minus raw just before."""
        self._next_ask_ns = 0
        self._sequence = 0
        self._last_stated_ns = -1

    @property
    def time_topic(self) -> str:
        """Where its time messages arrive."""
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
        arrived = Reading(
            self._clock.raw_of_kernel_ns(arrival.stamp.realtime_ns), arrival.stamp.source
        )
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
        return Origin(self.number, self._sequence)

    def _on_time(self, arrival: Arrival, arrived: Reading) -> None:
        if self.format == "1451.1.6":
            stated_ns = text1451.decode_time(arrival.payload)
        else:
            offset_s = self._settings.draft_utc_offset_s
            properties = self._user_properties(arrival)
            stated_ns = draft2021.decode_syn(properties, offset_s).transmit_ns
        if stated_ns == self._last_stated_ns:
            raise DecodeError("replayed", "The message states the time of the one before.")
        self._last_stated_ns = stated_ns
        self.heard_raw_ns = arrived.instant_ns
        stated = Reading(stated_ns, Source.USER)
        sample = one_way(self._origin(), stated, arrived, self._settings.estimator)
        self._take(sample, arrival.stamp.realtime_ns)
        if self._settings.estimator.use_two_way and arrived.instant_ns >= self._next_ask_ns:
            first = self._next_ask_ns == 0
            interval_ns = int(self._settings.exchange_interval_s * _SECOND)
            self._next_ask_ns = arrived.instant_ns + (_SECOND if first else interval_ns)
            self.ask()

    def ask(self) -> None:
        """Send one request; t1 says the local clock, and is how the reply is recognised."""
        # The last digits are ours to choose: they make t1 unlike any other.
        unlike_ns = secrets.randbelow(1000)
        t1_ns = self._clock.time_ns() // 1000 * 1000 + unlike_ns
        time_minus_raw_ns = self._clock.time_minus_raw_ns()
        if self.format == "1451.1.6":
            t1 = text1451.format_seconds(t1_ns)
            payload = text1451.encode_request(TextRequest(self._name, t1))
            transmit = self._publish(text1451.REQUEST_TOPIC, payload, b"")
        else:
            t1 = draft2021.format_local(t1_ns, self._settings.draft_utc_offset_s)
            properties = encode_properties(draft2021.encode_srq(t1))
            transmit = self._publish(self._draft.srq, draft2021.SRQ_PAYLOAD, properties)
        if transmit is not None:
            if len(self._pending) >= _PENDING_LIMIT:
                self._pending.popitem(last=False)
            self._pending[t1] = (transmit, self._clock.raw_ns(), time_minus_raw_ns)

    def _on_reply(self, arrival: Arrival, arrived: Reading) -> None:
        reply: text1451.TextReply | draft2021.DraftReply
        if self.format == "1451.1.6":
            reply = text1451.decode_reply(arrival.payload)
            wanted = self._settings.server_name
            if wanted and reply.server != wanted:
                raise DecodeError("server", "The reply comes from another server.")
        else:
            offset_s = self._settings.draft_utc_offset_s
            reply = draft2021.decode_srs(self._user_properties(arrival), offset_s)
        asked = self._pending.pop(reply.t1, None)
        if asked is None:
            raise DecodeError("unasked", "Nobody asked for this reply; ignored.")
        self._collect_stamps()
        transmit, _, time_minus_raw_ns = asked
        stamp = transmit.stamp
        sample = two_way(
            self._origin(),
            Reading(self._clock.raw_of_kernel_ns(stamp.realtime_ns), stamp.source),
            Reading(reply.t2_ns, Source.USER),
            Reading(reply.t3_ns, Source.USER),
            arrived,
            self._settings.estimator,
        ).widened(abs(self._clock.time_minus_raw_ns() - time_minus_raw_ns))
        self.last_delay_ns = sample.delay_ns
        self._take(sample, arrival.stamp.realtime_ns)

    def _take(self, sample: Sample, realtime_ns: int) -> None:
        time_minus_raw_ns = self._clock.time_minus_raw_ns()
        judged = self.first.add(sample, time_minus_raw_ns)
        self._on_sample(self, WallSample(judged, time_minus_raw_ns, realtime_ns))

    def expire(self) -> None:
        """Count requests that were not answered."""
        now_ns = self._clock.raw_ns()
        while self._pending:
            t1, (_, asked_ns, _) = next(iter(self._pending.items()))
            if now_ns - asked_ns < _MAXIMUM_AGE_NS:
                return
            del self._pending[t1]
            self._refuse("no-reply")

    def reset(self, reason: str) -> None:
        """Forget what was measured."""
        self.estimator.reset(reason)
        self.first.reset()
        self._pending.clear()

    def connection_lost(self) -> None:
        """Nothing on its way will arrive."""
        self._pending.clear()
