"""What the doctor hears on the broker: for some seconds it is a client beside the running one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from mqtick.client.agent import Agent, AnyTrack
from mqtick.client.config import Settings
from mqtick.client.doctor_host import check_refusals
from mqtick.client.doctor_probes import Prober, Probes
from mqtick.client.pending import WallSample
from mqtick.client.sample import Kind, Verdict
from mqtick.protocol import text1451
from mqtick.protocol.auth import Keyring
from mqtick.protocol.broker import Broker
from mqtick.protocol.clocks import SystemClock
from mqtick.protocol.draft2021 import DraftTopics
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.frames import Arrival
from mqtick.protocol.loop import Loop
from mqtick.protocol.precise import Time
from mqtick.protocol.topics import TopicTree
from mqtick.service.check import Check, fail, ok, warn

__all__ = [
    "Heard",
    "Server",
    "check_broker",
    "check_exchanges",
    "check_statuses",
    "check_subscriptions",
    "check_times",
    "listen",
]

_SECOND = 1_000_000_000


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
    """Whether the broker had its status for us when we came."""


@dataclass(slots=True)
class Heard:
    """What was found at the broker."""

    address: str
    connected: bool = False
    error: str = ""
    connect_ns: int = 0
    """From the first attempt to the broker's answer."""
    kernel_stamps: bool = False
    """Whether messages of this connection are stamped by the kernel."""
    granted: dict[str, bool] = field(default_factory=dict)
    """By topic filter, what the broker said to our subscription."""
    servers: dict[int, Server] = field(default_factory=dict)
    foreign: Counter[str] = field(default_factory=Counter)
    """Time messages of other formats."""
    refused: Counter[str] = field(default_factory=Counter)
    probes: Probes = field(default_factory=Probes)


class _Listener:
    """An agent whose arrivals are watched on their way."""

    def __init__(
        self, settings: Settings, loop: Loop, broker: Broker, keyring: Keyring, name: str
    ) -> None:
        settings = replace(settings, fast=True, discipline="none", virtual_clock="")
        self.tree = TopicTree(settings.prefix)
        self.agent = Agent(
            settings, loop, broker, SystemClock(), keyring, name, on_sample=self._on_sample
        )
        self.connection = self.agent.connection
        self.heard = Heard(self.connection.address)
        self._name = name
        self.prober = Prober(loop, self.connection, self.tree, name)
        self.heard.probes = self.prober.found
        self._foreign = {
            text1451.SYN_TOPIC: "1451.1.6",
            DraftTopics(settings.draft_location).syn: "draft-2021",
        }
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
            return  # the agent counts it
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
        if b'"gone"' not in arrival.payload[:64]:  # nobody has to let us read the topics of those
            self.heard.servers.setdefault(number, Server()).announced = True

    def _on_sample(self, track: AnyTrack, wall: WallSample) -> None:
        sample = wall.sample
        if track.number < 0 or not sample.kind.is_exchange or sample.verdict is Verdict.REFUSED:
            return
        server = self.heard.servers.setdefault(track.number, Server())
        if sample.kind is Kind.ECHO:
            server.echoes += 1
            return
        server.exchanges += 1
        delay_ns = sample.delay_ns
        server.least_delay_ns = min(delay_ns, server.least_delay_ns or delay_ns)

    def ask_topics(self) -> None:
        """Subscribe once more, each filter by itself, so that each answer is told apart."""
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
    began_ns = time.monotonic_ns()
    connection.start()
    patience_ns = int((broker.connect_timeout_s + 2) * _SECOND)
    try:
        while not connection.connected and not connection.last_error:
            if time.monotonic_ns() - began_ns > patience_ns:
                connection.last_error = f"no answer within {patience_ns / 1e9:g} s"
            loop.turn(0.1)
        heard.connected, heard.connect_ns = connection.connected, time.monotonic_ns() - began_ns
        heard.kernel_stamps = connection.kernel_stamps
        end_ns = time.monotonic_ns() + int(listen_s * _SECOND) if connection.connected else 0
        next_ns = 0
        while time.monotonic_ns() < end_ns and connection.connected:
            if time.monotonic_ns() >= next_ns:
                next_ns = time.monotonic_ns() + _SECOND // 2
                listener.ask_topics()
                listener.agent.tick()
            loop.turn(0.05)
        heard.connected &= connection.connected
        heard.error, heard.refused = connection.last_error, listener.agent.refused.copy()
        if heard.connected and settings.format in ("auto", "precise"):
            listener.prober.measure()
            listener.prober.trespass(heard.servers)
        return heard
    finally:
        listener.agent.close()
        loop.close()


def check_broker(heard: Heard) -> Check:
    """Check that the broker took our connection, and kept it."""
    if not heard.connected:
        return fail("broker", heard.error, "a connection", _remedy(heard.error))
    value = f"{heard.address} answered within {heard.connect_ns / 1e6:.0f} ms"
    if heard.kernel_stamps:
        return ok("broker", f"{value}, kernel timestamps")
    remedy = "unix:// has none, and `timestamps` may say user; mqtt:// and mqtts:// have them"
    return warn("broker", f"{value}, timestamps by the program", "kernel timestamps", remedy)


def _remedy(error: str) -> str:
    for part, remedy in (
        ("uthori", "username and password_file: does the broker know them?"),
        ("password", "username and password_file: does the broker know them?"),
        ("certificate", "ca_file: who signed the broker's certificate? is the system clock right?"),
        ("CERTIFICATE", "ca_file: who signed the broker's certificate? is the system clock right?"),
        ("SSL", "mqtts:// to a port without TLS, or a protocol that one side does not know"),
        ("not known", "the host's name: does `getent hosts NAME` find it?"),
        ("efused", "is the broker up? Mosquitto listens beyond its host only with `listener`"),
    ):
        if part in error:
            return remedy
    return "try mosquitto_sub -h HOST -t 'mqtick/#' -v from this host"


def check_subscriptions(heard: Heard) -> Check:
    """Check that the broker granted each subscription."""
    refused = sorted(topic for topic, granted in heard.granted.items() if not granted)
    if refused:
        return fail(
            "subscriptions",
            f"refused: {', '.join(refused)}",
            "granted",
            "the broker's access list: compare it with docs/protocol.md",
        )
    if not heard.granted:
        return warn("subscriptions", "no answer", "granted", "the broker is overloaded, or no MQTT")
    return ok("subscriptions", f"all {len(heard.granted)} granted")


def check_statuses(heard: Heard) -> Iterator[Check]:
    """Check that the broker keeps what servers say of themselves for those who come later."""
    for number, server in sorted(heard.servers.items()):
        if server.times and not server.announced:
            remedy = (
                "does the broker keep retained messages, and let the time server write PREFIX/s/"
                f"{number} and us read it? (one that has just started says it within seconds)"
            )
            yield warn(f"status of server {number}", "not kept by the broker", "retained", remedy)


def check_times(heard: Heard, format_: str, listen_s: float) -> Iterator[Check]:
    """Check whose time was heard; `format_` is the setting."""
    precise = {number: server for number, server in heard.servers.items() if server.times}
    formats = sorted(heard.foreign)
    for number, server in sorted(precise.items()):
        name = f"time of server {number}"
        value = f"precise, {server.times} in {listen_s:g} s, stratum {server.stratum}"
        if server.leap == 3:
            remedy = "mqtick-timeserver status on that host: its chronyd has no source"
            yield warn(name, f"{value}, not synchronised", "synchronised", remedy)
        else:
            yield ok(name, f"{value}, synchronised")
    for number, server in sorted(heard.servers.items()):
        if server.retained:
            topic = f"mosquitto_pub -t PREFIX/t/{number} -r -n"
            yield warn(f"time of server {number}", "retained by somebody", "none retained", topic)
    if formats:
        yield ok("other formats", ", ".join(formats))
    wanted = formats if format_ not in ("auto", "precise") else sorted(precise)
    if format_ == "auto":
        wanted = wanted or formats
    if not wanted or (format_ in ("1451.1.6", "draft-2021") and format_ not in formats):
        remedy = (
            "is a time server up (mqtick-timeserver status), with the same prefix? does the "
            "broker's access list let it write, and us read, PREFIX/t/+?"
        )
        yield fail("time messages", f"none in {listen_s:g} s", f"some, format {format_}", remedy)


def check_exchanges(heard: Heard, *, use_two_way: bool) -> Iterator[Check]:
    """Check that servers answer us, which alone bounds the time on both sides."""
    if use_two_way:
        for number, server in sorted(heard.servers.items()):
            name = f"exchange with server {number}"
            if server.exchanges and server.least_delay_ns is not None:
                echo = f", {server.echoes} with echo" if server.echoes else ", none with echo"
                delay = f"round trip {server.least_delay_ns / 1000:.0f} us"
                yield ok(name, f"{server.exchanges} answered{echo}, {delay}")
            elif server.leap != 3:
                remedy = (
                    f"access list: may we write PREFIX/q/{number}/NAME, and read r and f, and the "
                    "server the other way round? keys; rate limit"
                )
                yield fail(name, "no answer that counts", "an answer", remedy)
    refused = Counter(heard.refused)
    if not use_two_way:  # then it was we who made no exchange
        del refused["before-exchange"]
    yield from check_refusals("refused while listening", refused)
