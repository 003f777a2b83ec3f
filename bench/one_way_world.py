"""A time server, its clients and the broker in simulated time: all messages with their instants.

The broker is its RTL, exact to the cycle; links, switch and core are the lab's assumption (`Way`).
Minutes are simulated; the RTL runs only while it is busy.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mqtick.client.config import Settings
from mqtick.lab.hardware.copies import PUBLISHER, subscriber
from mqtick.lab.hardware.crossing import Copy, Message, cross
from mqtick.lab.hardware.datagrams import publish
from mqtick.lab.hardware.way import Way
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keyring, Keys
from mqtick.protocol.precise import TRAILER_OCTETS, FollowUp, Leap, Reply, Request, Time
from mqtick.protocol.topics import TopicTree

SECOND = 1_000_000_000
START_NS = 1_800_000_000 * SECOND
"""When the simulation begins; all instants below count from there."""
TREE = TopicTree()
KEYS = Keyring(fleet=(b"fleet key of the benchmark",))
SERVER, GENERATION = 0, 1
_FS = 1_000_000
_OTHERS = "10.0.0.9:50000"
_OTHERS_TOPIC, _OTHERS_OCTETS = "plant/state", 100
_OTHERS_LEAD_NS = 60_000
_FOLLOW_UP_NS = 3_000_000
_RHYTHM_NS = 150_000_000, 950_000_000
"""A burst begins in this part of a second: clients avoid the time message."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Duration and size of the simulation.

    Attributes:
        exchanges_s: The clients ask until then; after it there are no answers.
    """

    clients: int
    seconds: int
    exchanges_s: float
    way: Way = field(default_factory=Way)
    cable_ns: int = 500


class Heard(NamedTuple):
    """A time message at a client: when the end of its frame arrived, and the payload."""

    at_ns: int
    payload: bytes


class Exchange(NamedTuple):
    """An exchange of a client: when each frame began or ended, and the broker's trailers."""

    asked_ns: int
    came_ns: int
    request_trailer: bytes
    answered_ns: int
    arrived_ns: int
    reply_trailer: bytes
    told_ns: int
    follow_up_trailer: bytes


@dataclass
class Life:
    """All messages and exchanges of one client, in order."""

    heard: list[Heard] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)


def name_of(number: int) -> str:
    """Return a client's name; all have the same length, and so do their topics."""
    return f"c{number:04}"


def asking_times(draw: random.Random, until_ns: int) -> Iterator[int]:
    """Yield when a client asks: bursts as by its settings, which avoid the time message."""
    settings = Settings()
    spacing_ns = round(settings.exchange_spacing_ms * 1e6)
    longest_s = settings.exchange_interval_s
    at_ns, count, pause_s = SECOND + draw.randrange(SECOND), settings.start_burst, 1.0
    while True:
        for _ in range(count):
            if at_ns >= until_ns:
                return
            yield at_ns
            at_ns += spacing_ns
        pause_s, count = min(2 * pause_s, longest_s), settings.exchange_burst
        at_ns += round(pause_s * draw.uniform(0.8, 1.2) * SECOND)
        earliest, latest = _RHYTHM_NS
        latest -= (count - 1) * spacing_ns
        if not earliest <= at_ns % SECOND <= latest:
            at_ns += (earliest - at_ns) % SECOND + draw.randrange(latest - earliest)


def time_messages(seconds: int, draw: random.Random) -> Iterator[tuple[int, bytes]]:
    """Yield when each time message leaves, and its payload: a server's, version 2, signed."""
    topic, correction_ns = TREE.time(SERVER), None
    for number in range(1, seconds):
        stated_ns = number * SECOND + draw.randrange(100_000)
        message = Time(
            *(SERVER, number, START_NS + stated_ns, correction_ns, 0, 1, Leap.NONE),
            correction_source=StampSource.KERNEL if correction_ns is not None else StampSource.NONE,
            generation=GENERATION,
            fills=True,
            version=2,
        )
        correction_ns = draw.randrange(20_000, 80_000)
        yield stated_ns + correction_ns, KEYS.broadcast().sign(message.body(), topic)


def _stand_ins(number: int) -> tuple[bytes, bytes, bytes]:
    """Return request, reply and follow-up as long as the true ones, which are made later.

    The broker reads topic and version only; the content identifies the messages here.
    """
    head, source = (SERVER, number), StampSource.KERNEL
    request = Request(*head, bytes(8), wants_echo=True, version=2)
    reply = Reply(*head, SECOND, 0, 0, 1, Leap.NONE, source, GENERATION, version=2)
    follow_up = FollowUp(*head, 0, source, GENERATION, version=2)
    nobody = Keys()
    return (
        nobody.sign(request.body(), ""),
        nobody.sign(reply.body(), ""),
        nobody.sign(follow_up.body(), ""),
    )


class World:
    """Builds all messages, sends them through the broker, and sorts the copies."""

    def __init__(self, plan: Plan, seed: int = 1) -> None:
        self.plan, self._draw = plan, random.Random(seed)
        self._messages: list[tuple[Message, tuple[str, int]]] = []
        """Each message with its kind, and the number of its exchange."""
        self._cables_fs = {
            subscriber(number): self._draw.randrange(plan.cable_ns + 1) * _FS
            for number in range(1, plan.clients + 1)
        }
        self._asked: list[tuple[int, int, int]] = []
        """For each exchange the client, when it asks, and when it is answered."""

    def run(self, model: Path) -> list[Life]:
        """Return the messages and exchanges of each client."""
        plan = self.plan
        for sent_ns, payload in time_messages(plan.seconds, self._draw):
            octets = publish(TREE.time(SERVER), payload)
            sent = self._send(("time", 0), PUBLISHER, sent_ns, octets, copies=plan.clients)
            if self._draw.random() < 0.5:
                self._others_before(sent)
        for number in range(1, plan.clients + 1):
            for at_ns in asking_times(self._draw, round(plan.exchanges_s * SECOND)):
                self._exchange(number, at_ns)
        self._messages.sort(key=lambda each: each[0].at_fs)
        filters: dict[str, str | list[str]] = {PUBLISHER: TREE.all_requests(SERVER)}
        for number in range(1, plan.clients + 1):
            name = name_of(number)
            filters[subscriber(number)] = [
                *(TREE.all_times(), TREE.all_follow_ups(name), TREE.reply(SERVER, name)),
                _OTHERS_TOPIC,
            ]
        copies = cross(
            model,
            filters,
            [message for message, _ in self._messages],
            link_gbps=plan.way.broker_link_gbps,
        )
        return self._lives(copies)

    def _send(
        self, what: tuple[str, int], sender: str, at_ns: int, octets: bytes, copies: int = 1
    ) -> Message:
        on_way_fs = self.plan.way.from_publisher_fs(len(octets)) + self._cables_fs.get(sender, 0)
        message = Message(at_ns * _FS + on_way_fs, sender, octets, copies)
        self._messages.append((message, what))
        return message

    def _others_before(self, message: Message) -> None:
        """Send another message to all clients just before a time message."""
        at_fs = message.at_fs - self._draw.randrange(_OTHERS_LEAD_NS * _FS)
        payload = message.at_fs.to_bytes(16, "big") + bytes(_OTHERS_OCTETS - 16)
        octets = publish(_OTHERS_TOPIC, payload)
        other = Message(at_fs, _OTHERS, octets, self.plan.clients, filled=False)
        self._messages.append((other, ("other", 0)))

    def _exchange(self, number: int, at_ns: int) -> None:
        """Send a request, its reply and its follow-up; the server takes 0.3 to 0.6 ms."""
        place, name, peer = len(self._asked), name_of(number), subscriber(number)
        answered_ns = at_ns + self._draw.randrange(300_000, 600_000)
        self._asked.append((number, at_ns, answered_ns))
        request, reply, follow_up = _stand_ins(place)
        for kind, sender, sent_ns, octets in (
            ("request", peer, at_ns, publish(TREE.request(SERVER, name), request)),
            ("reply", PUBLISHER, answered_ns, publish(TREE.reply(SERVER, name), reply)),
            (
                *("follow-up", PUBLISHER, answered_ns + _FOLLOW_UP_NS),
                publish(TREE.follow_up(SERVER, name), follow_up),
            ),
        ):
            self._send((kind, place), sender, sent_ns, octets)

    def _arrives_ns(self, copy: Copy) -> int:
        """Return when the end of a copy's frame arrives at its receiver."""
        on_way_fs = self.plan.way.to_receiver_fs(len(copy.octets))
        return (copy.at_fs + on_way_fs + self._cables_fs.get(copy.receiver, 0)) // _FS

    def _lives(self, found: list[list[Copy]]) -> list[Life]:
        lives = {subscriber(number): Life() for number in range(1, self.plan.clients + 1)}
        parts: defaultdict[int, dict[str, tuple[int, bytes]]] = defaultdict(dict)
        payload_octets = len(TREE.time(SERVER)) + 4
        for (_, (kind, place)), copies in zip(self._messages, found, strict=True):
            if kind == "time":
                for copy in copies:
                    heard = Heard(self._arrives_ns(copy), copy.octets[payload_octets:])
                    lives[copy.receiver].heard.append(heard)
            elif kind != "other":
                (copy,) = copies
                parts[place][kind] = self._arrives_ns(copy), copy.octets[-TRAILER_OCTETS:]
        for place, (number, asked_ns, answered_ns) in enumerate(self._asked):
            part = parts[place]
            came_ns, request = part["request"]
            lives[subscriber(number)].exchanges.append(
                Exchange(
                    *(asked_ns, came_ns, request, answered_ns),
                    *(*part["reply"], *part["follow-up"]),
                )
            )
        return list(lives.values())
