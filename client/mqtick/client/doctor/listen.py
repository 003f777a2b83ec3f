"""The doctor listens at the broker: for some seconds it is a second client on this host."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial

from mqtick.client.agent import Agent
from mqtick.client.config import Settings
from mqtick.client.disagreement import Disagreement
from mqtick.client.doctor.probes import Prober, Probes
from mqtick.client.doctor.result import Off
from mqtick.client.first_time import Trouble
from mqtick.client.pending import WallSample
from mqtick.client.sample import Kind, Reason, SampleVerdict
from mqtick.client.status import disagreements_at
from mqtick.client.track import Track
from mqtick.mqtt.broker import Broker
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.link import Link, look_at_door, reach
from mqtick.mqtt.loop import Loop
from mqtick.protocol import text1451
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import SystemClock
from mqtick.protocol.draft2021 import DraftTopics
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import Time
from mqtick.protocol.time_types import NS_PER_S
from mqtick.protocol.topics import TopicTree, says_gone


@dataclass(slots=True)
class Server:
    """What was heard of one server that speaks the precise format."""

    times: int = 0
    retained: int = 0
    leap: int = 3
    stratum: int = 0
    exchanges: int = 0
    echoes: int = 0
    least_delay_ns: int | None = None
    announced: bool = False
    """Whether the broker sent the server's retained status when we subscribed."""


@dataclass(slots=True)
class Heard:
    """The results of listening at the broker."""

    link: Link
    granted: dict[str, bool] = field(default_factory=dict)
    """By topic filter, the broker's answer to our subscription."""
    servers: dict[int, Server] = field(default_factory=dict)
    foreign_topics: frozenset[str] = frozenset()
    """The topics of time messages in other formats."""
    foreign: Counter[str] = field(default_factory=Counter)
    """Time messages of other formats."""
    refused: Counter[str] = field(default_factory=Counter)
    disagreements: list[Disagreement] = field(default_factory=list)
    """Pairs of servers whose intervals do not meet, among those whose intervals are known."""
    troubles: dict[str, Trouble] = field(default_factory=dict)
    """By server, why its first time is not believed."""
    probes: Probes = field(default_factory=Probes)
    off: Off | None = None
    """How far off this host's clock is, by the best server; None: not known."""


class _Listener:
    """An agent; each message is examined here before the agent handles it."""

    def __init__(
        self, settings: Settings, loop: Loop, broker: Broker, keyring: Keyring, name: str
    ) -> None:
        settings = replace(
            settings, fast=True, discipline="none", virtual_clock="", publish_status=False
        )
        self.tree = TopicTree(settings.prefix)
        self.agent = Agent(
            *(settings, loop, broker.part("doctor"), SystemClock(), keyring, name),
            on_sample=self._on_sample,
        )
        self.connection = self.agent.connection
        self.heard = Heard(Link.of(self.connection))
        self._name = name
        self.prober = Prober(loop, self.connection, self.tree, name)
        self.heard.probes = self.prober.found
        # The board of the published dialect never forgets a subscription: make only those needed.
        self._foreign = (
            {}
            if broker.dialect
            else {
                text1451.SYN_TOPIC: "1451.1.6",
                DraftTopics(settings.draft_location).syn: "draft-2021",
            }
        )
        self.heard.foreign_topics = frozenset(self._foreign)
        self._take = self.connection.on_publish
        self.connection.on_publish = self._on_publish

    def _on_publish(self, arrival: Arrival) -> None:
        if self.prober.takes(arrival):
            return
        if arrival.topic in self._foreign and not arrival.retain:
            self.heard.foreign[self._foreign[arrival.topic]] += 1
        elif arrival.topic.startswith(f"{self.tree.prefix}/t/"):
            self._note_time(arrival)
        elif arrival.topic.startswith(f"{self.tree.prefix}/s/") and arrival.retain:
            self._note_status(arrival)
        self._take(arrival)

    def _note_time(self, arrival: Arrival) -> None:
        try:
            number, message = self.tree.parse_time(arrival.topic), Time.decode(arrival.payload)
        except DecodeError:
            return  # the agent counts the refusal
        server = self.heard.servers.setdefault(number, Server())
        if arrival.retain:
            server.retained += 1
            return
        server.times += 1
        server.leap, server.stratum = message.leap, message.stratum

    def _note_status(self, arrival: Arrival) -> None:
        try:
            number = self.tree.parse_status(arrival.topic)
        except DecodeError:
            return
        if not says_gone(arrival.payload):  # no need to read the topics of a server that is gone
            self.heard.servers.setdefault(number, Server()).announced = True

    def _on_sample(self, track: Track, wall: WallSample) -> None:
        sample = wall.sample
        answers = sample.verdict is not SampleVerdict.REFUSED or sample.reason is Reason.UNCONFIRMED
        if track.number is None or not sample.kind.is_exchange or not answers:
            return
        server = self.heard.servers.setdefault(track.number, Server())
        if sample.kind is not Kind.TWO_WAY:
            server.echoes += sample.kind is Kind.ECHO
            return
        server.exchanges += 1
        delay_ns = sample.delay_ns
        server.least_delay_ns = min(delay_ns, server.least_delay_ns or delay_ns)

    def ask_topics(self) -> None:
        """Subscribe once more, each filter by itself, to tell the answers apart."""
        tree, name = self.tree, self._name
        filters = [tree.all_times(), f"{tree.prefix}/f/+/{name}", *self._foreign]
        for number in self.heard.servers:
            filters.append(tree.reply(number, name))
        for topic in filters:
            if topic not in self.heard.granted:
                self.connection.subscribe([topic], partial(self.heard.granted.__setitem__, topic))


def listen(
    settings: Settings, broker: Broker, keyring: Keyring, name: str, *, listen_s: float = 3.0
) -> Heard:
    """Connect and listen; returns at the latest after the connection's time-out and `listen_s`."""
    loop = Loop()
    listener = _Listener(settings, loop, broker, keyring, name)
    heard, connection = listener.heard, listener.connection
    try:
        connect_ns = reach(loop, [connection])
        end_ns = time.monotonic_ns() + int(listen_s * NS_PER_S) if connection.connected else 0
        next_ns = 0
        while time.monotonic_ns() < end_ns and connection.connected:
            if time.monotonic_ns() >= next_ns:
                next_ns = time.monotonic_ns() + NS_PER_S // 2
                listener.ask_topics()
                listener.agent.tick()
            loop.turn(0.05)
        heard.link = look_at_door(Link.of(connection, connect_ns), broker)
        heard.refused = listener.agent.refused.copy()
        agent = listener.agent
        heard.disagreements = disagreements_at(agent.tracks, agent.clock.raw_ns())
        heard.troubles = {
            track.label: trouble
            for track in agent.tracks
            if (trouble := track.first.trouble) is not None
        }
        if (best := agent.best()) is not None and best[1].is_measured:
            estimate = best[1]
            offset_ns, bound_ns = estimate.offset_ns or 0, estimate.bound_ns or 0
            offset_ns -= agent.clock.time_minus_raw_ns()
            heard.off = Off(offset_ns, bound_ns + estimate.root_distance_ns)
        precise = settings.format in ("auto", "precise")
        if heard.link.connected and precise and not broker.dialect:
            listener.prober.measure()
            listener.prober.trespass(heard.servers)
        return heard
    finally:
        listener.agent.close()
        loop.close()
