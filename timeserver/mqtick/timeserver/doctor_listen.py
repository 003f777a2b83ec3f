"""The time server's doctor listens at the broker, by a connection besides the running server's."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.link import Link, look_at_door, reach
from mqtick.mqtt.loop import Loop
from mqtick.protocol import text1451
from mqtick.protocol.auth import Keyring
from mqtick.protocol.draft2021 import DraftTopics
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import NONCE_OCTETS, Claim, Time
from mqtick.protocol.topics import TopicTree
from mqtick.timeserver.config import Settings


@dataclass(slots=True)
class Heard:
    """The results of listening at the broker."""

    link: Link
    granted: dict[str, bool] = field(default_factory=dict)
    """By topic filter, the broker's answer to our subscription."""
    loop_topic: str = ""
    loop_ns: int | None = None
    """From our transmission to our own arrival; None: it did not come."""
    times: dict[int, Time] = field(default_factory=dict)
    """The last time message of each server number."""
    counts: Counter[int] = field(default_factory=Counter)
    holders: dict[int, Claim] = field(default_factory=dict)
    """The answers of servers with our number, by lot."""
    refused: Counter[str] = field(default_factory=Counter)
    listened_s: float = 0.0


class _Listener:
    def __init__(self, settings: Settings, loop: Loop, broker: Broker, keyring: Keyring) -> None:
        self.number, self._tree = settings.number, TopicTree(settings.prefix)
        self._times, self._claims = keyring.broadcast(), keyring.server()
        self.nonce = secrets.token_bytes(NONCE_OCTETS)
        self._lot, self._sent_ns = secrets.randbits(32), 0
        self._claim_topic = self._tree.claim(self.number)
        self._draft = DraftTopics(settings.draft_location)
        self._formats = settings.formats
        self.connection = Connection(
            loop,
            broker.part("doctor"),
            f"mqtick-doctor-{self.number}",
            on_publish=self._on_publish,
            on_up=self._on_up,
            quiet=True,
        )
        self.heard = Heard(Link.of(self.connection), loop_topic=self._tree.loop(self.number))

    def _topics(self) -> list[str]:
        tree, number = self._tree, self.number
        topics = [tree.all_times(), tree.loop(number), self._claim_topic]
        if "precise" in self._formats:
            topics += [tree.all_requests(number), tree.all_replies(number)]
        if "1451.1.6" in self._formats:
            topics.append(text1451.REQUEST_TOPIC)
        if "draft-2021" in self._formats and self.connection.version_5:
            topics.append(self._draft.srq)
        return topics

    def _on_up(self) -> None:
        for topic in self._topics():
            self.connection.subscribe([topic], partial(self._answered, topic))

    def _answered(self, topic: str, granted: bool) -> None:
        self.heard.granted[topic] = granted
        if topic == self._claim_topic:  # claim as an unsynchronised server, so that none yields
            claim = Claim(self.number, self._lot, None, self.nonce)
            self.connection.publish(topic, self._claims.sign(claim.body(), topic))
        elif topic == self.heard.loop_topic:
            sent = self.connection.publish(topic, self.nonce)
            self._sent_ns = sent.stamp.realtime_ns if sent else 0

    def _on_publish(self, arrival: Arrival) -> None:
        heard = self.heard
        if not arrival.payload:
            return  # no message: see the server
        try:
            if arrival.topic == self._claim_topic:
                claim = Claim.decode(arrival.payload)
                self._claims.verify(arrival.payload, arrival.topic)
                if claim.nonce == self.nonce and claim.lot != self._lot:
                    heard.holders[claim.lot] = claim
            elif arrival.topic == heard.loop_topic:
                if arrival.payload == self.nonce and self._sent_ns:
                    heard.loop_ns = arrival.stamp.realtime_ns - self._sent_ns
            elif arrival.topic.startswith(f"{self._tree.prefix}/t/"):
                message = Time.decode(arrival.payload)
                if self._tree.parse_time(arrival.topic) == message.server and not arrival.retain:
                    self._times.verify(arrival.payload, arrival.topic)
                    heard.times[message.server] = message
                    heard.counts[message.server] += 1
        except DecodeError as error:
            heard.refused[error.reason] += 1


def listen(settings: Settings, broker: Broker, keyring: Keyring, listen_s: float) -> Heard:
    """Connect and listen; returns at the latest after the connection's time-out and `listen_s`."""
    loop = Loop()
    listener = _Listener(settings, loop, broker, keyring)
    heard, connection = listener.heard, listener.connection
    try:
        connect_ns = reach(loop, [connection])
        loop.turn_until(lambda: not connection.connected, listen_s)
        heard.link, heard.listened_s = Link.of(connection, connect_ns), listen_s
        heard.link = look_at_door(heard.link, broker)
        return heard
    finally:
        connection.close()
        loop.close()
