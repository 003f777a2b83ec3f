"""Random sessions of MQTT clients: made, played at any brokers, compared, and made small.

A session is a list of steps. Steps can be taken out at will: one that has no sense any more, such
as what a client does that is not connected, is left out when it is played.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paho.mqtt.client import topic_matches_sub

from broker.conformance.client import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    V3,
    V5,
    Client,
    Packet,
    Will,
)

PATIENCE_S = 30.0
FILTERS = ["a/b", "a/+", "a/#", "+/b", "b/#", "c", "+/+/+", "#"]
TOPICS = ["a", "a/b", "b", "b/b", "c", "a/b/c", "d"]
FOREVER = 0xFFFFFFFF
KEEP_ALIVE_S = 600  # rumqttd takes no client without


@dataclass(frozen=True)
class Habits:
    """What a broker's clients may do so that it can be compared with Mosquitto, and what it does
    otherwise, lawfully or not. Each is given with its reason where it is used.

    Attributes:
        versions: Which MQTT it speaks.
        most_qos: The most that its clients publish and subscribe with.
        each: A message that several filters of a client of MQTT 3.1.1 match comes once for each of
            them. Mosquitto sends one there, and one for each in MQTT 5. Both are allowed (3.3.5; 5:
            3.3.4).
        qos: Whether the QoS is compared with which its clients get something.
        wills: Whether its clients have wills.
        kept: Whether its clients have kept sessions.
        unknown: Whether its clients unsubscribe from what they are not subscribed to.
        stays: Its clients unsubscribe from no filter with that end.
        retained: Whether what its clients are sent upon a SUBSCRIBE is compared.
    """

    versions: tuple[int, ...] = (V3, V5)
    most_qos: int = 2
    each: bool = False
    qos: bool = True
    wills: bool = True
    kept: bool = True
    unknown: bool = True
    stays: str | None = None
    retained: bool = True


@dataclass(frozen=True)
class Step:
    """What one client does; `number` is its own, and what it publishes says it."""

    number: int
    client: int
    what: str
    topic: str = ""
    qos: int = 0
    retain: bool = False
    clean: bool = True
    empty: bool = False
    options: int = 0

    def __str__(self) -> str:
        said = {
            "connect": f"{'clean' if self.clean else 'kept'}"
            + (f", will {self.topic} QoS {self.qos} retain {self.retain}" if self.topic else ""),
            "subscribe": f"{self.topic} QoS {self.qos} options {self.options:#x}",
            "unsubscribe": self.topic,
            "publish": f"{self.topic} QoS {self.qos} retain {self.retain}"
            + (" empty" if self.empty else ""),
        }
        return f"{self.number:3} client {self.client}: {self.what} {said.get(self.what, '')}"

    @property
    def payload(self) -> bytes:
        """What it publishes."""
        return b"" if self.empty else b"%d" % self.number


@dataclass(frozen=True)
class Copy:
    """A message as a client got it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: tuple[Any, ...] = ()
    filters: int = 1
    """How many filters of the client match it; of what was retained before it subscribed, 1."""


Got = dict[tuple[int, int], list[Copy]]
"""What came upon which step (or before the next one), to which client, in its order."""


def version(client: int, habits: Sequence[Habits]) -> int:
    """Which MQTT a client speaks."""
    versions = habits[client % len(habits)].versions
    return versions[client // len(habits) % len(versions)]


def made(seed: int, clients: int, habits: Sequence[Habits], count: int) -> list[Step]:
    """A session: client n is at broker n modulo their number.

    All filters of a client have one QoS, and the same options but for retain handling. Otherwise a
    message that several of them match may come in different ways: which, is its broker's business.
    """
    chance = random.Random(seed)
    steps: list[Step] = []
    # Nothing of its own, or retain as published.
    options = [chance.choice([0, 0, 0x04, 0x08]) for _ in range(clients)]
    asked = [chance.randrange(habits[one % len(habits)].most_qos + 1) for one in range(clients)]

    def change(client: int, what: str) -> Step:
        own = habits[client % len(habits)]
        qos = chance.randrange(own.most_qos + 1)
        step = Step(len(steps), client, what, qos=qos)
        if what == "connect":
            step = replace(step, clean=not own.kept or chance.random() < 0.4)
            if own.wills and chance.random() < 0.5:
                step = replace(step, topic=chance.choice(TOPICS), retain=chance.random() < 0.4)
        elif what in ("subscribe", "unsubscribe"):
            step = replace(step, topic=chance.choice(FILTERS), qos=asked[client])
            if what == "subscribe" and version(client, habits) == V5:
                # What is retained comes always, if it is a new one, or never.
                own_options = options[client] | chance.choice([0, 0, 0x10, 0x20])
                step = replace(step, options=own_options)
        elif what == "publish":
            retain = chance.random() < 0.25
            empty = retain and chance.random() < 0.3
            topic = chance.choice(TOPICS)
            step = replace(step, topic=topic, retain=retain, empty=empty)
        return step

    for client in range(clients):
        steps.append(change(client, "connect"))
        steps.append(change(client, "subscribe"))
    while len(steps) < count:
        for _ in range(chance.randrange(1, 4)):
            what = chance.choice(
                ["subscribe", "subscribe", "unsubscribe", "disconnect", "vanish", "connect"]
            )
            steps.append(change(chance.randrange(clients), what))
        for _ in range(chance.randrange(2, 9)):
            steps.append(change(chance.randrange(clients), "publish"))
    return steps


class Player(Client):
    """A client that answers what it is sent at once."""

    def __init__(self, port: int, mqtt: int, name: str) -> None:
        super().__init__(("127.0.0.1", port), mqtt, name)
        self.unreleased: set[int] = set()

    def receive(self) -> Packet:
        """The next packet that is not answered here."""
        while (found := super().receive()).kind == PUBREL:
            self.unreleased.discard(found.packet_id)
            self.send(self.encode.ack(PUBCOMP, found.packet_id))
        if found.kind == PUBLISH and found.qos:
            if found.qos == 2:
                self.unreleased.add(found.packet_id)
            kind = PUBACK if found.qos == 1 else PUBREC
            self.send(self.encode.ack(kind, found.packet_id))
        return found


class Play:
    """One session at brokers (one port for each client) that nobody else talks to."""

    def __init__(
        self,
        name: str,
        ports: Sequence[int],
        habits: Sequence[Habits],
        rest: Callable[[], None] = lambda: None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.name, self.ports, self.habits, self.rest = name, ports, habits, rest
        self.patience_s = patience_s
        self.clients: dict[int, Player] = {}
        self.got: Got = {}
        self.seen: dict[int, list[Packet]] = {}
        self.filters: dict[int, set[str]] = {}
        self.is_kept: dict[int, bool] = {}

    def run(self, steps: Sequence[Step], expected: Got | None = None) -> Got:
        """Play it; what is expected is waited for, and what comes beside it found."""
        for at, step in enumerate(steps):
            next_one = steps[at + 1] if at + 1 < len(steps) else None
            self._do(step)
            # Publishers of messages that are not kept need not wait for each other.
            is_plain = step.what == "publish" and not step.retain
            goes_on = next_one is not None and next_one.what == "publish" and not next_one.retain
            if not (is_plain and goes_on):
                self._collect(step, expected)
        self._end(steps)
        return self.got

    def _do(self, step: Step) -> None:
        client = self.clients.get(step.client)
        if step.what == "connect":
            if client is not None:
                client.disconnect()
                self.rest()
            self.clients[step.client] = self._connected(step)
            return
        if client is None:
            return
        if step.what in ("disconnect", "vanish"):
            getattr(client, step.what)()
            del self.clients[step.client]
        elif step.what == "subscribe":
            client.subscribe((self._filter(step.topic), step.qos | step.options))
            self.filters[step.client].add(step.topic)
        elif step.what == "unsubscribe":
            own = self.habits[step.client % len(self.habits)]
            is_known = own.unknown or step.topic in self.filters[step.client]
            if not is_known or (own.stays and step.topic.endswith(own.stays)):
                return
            client.unsubscribe(self._filter(step.topic))
            self.filters[step.client].discard(step.topic)
        else:
            with_user = [("user", (b"step", b"%d" % step.number))] if client.version == V5 else []
            client.publish(
                f"{self.name}/{step.topic}",
                step.payload,
                qos=step.qos,
                retain=step.retain,
                properties=with_user,
            )
            if not step.qos:
                client.received.extend(client.settle())  # the broker has it

    def _filter(self, plain: str) -> str:
        return plain if plain == "#" else f"{self.name}/{plain}"

    def _connected(self, step: Step) -> Player:
        will = None
        if step.topic:
            will = Will(f"{self.name}/{step.topic}", step.payload, step.qos, step.retain)
        name, mqtt = f"{self.name}c{step.client}", version(step.client, self.habits)
        end = time.monotonic() + self.patience_s
        while True:
            client = Player(self.ports[step.client], mqtt, name)
            expiry = [("session_expiry", FOREVER)] if mqtt == V5 and not step.clean else []
            answer = client.connect(
                clean=step.clean, keep_alive=KEEP_ALIVE_S, will=will, properties=expiry
            )
            if answer.reason == 0 or time.monotonic() > end:
                break
            # NATS turns away for a second whose former connection it has not ended yet.
            client.ended()
            time.sleep(0.1)
        assert answer.reason == 0, answer
        if step.clean or not self.is_kept.get(step.client):
            self.filters[step.client] = set()
        self.is_kept[step.client] = not step.clean
        return client

    def _collect(self, step: Step, expected: Got | None) -> None:
        self.rest()
        end = time.monotonic() + self.patience_s
        while not self._is_there(step, expected) and time.monotonic() < end:
            time.sleep(0.005)
        self.rest()
        while not self._is_there(step, None) and time.monotonic() < end + self.patience_s:
            pass

    def _is_there(self, step: Step, expected: Got | None) -> bool:
        """Whether nothing comes any more, and as much as is expected has come."""
        fresh = [self._take(step, client) for client in self.clients]
        if any(fresh) or any(one.unreleased for one in self.clients.values()):
            return False
        places = [(step.number, client) for client in self.clients]
        return expected is None or all(
            len(self.got[place]) >= len(expected.get(place, [])) for place in places
        )

    def _take(self, step: Step, client: int) -> bool:
        copies = self.got.setdefault((step.number, client), [])
        before = len(copies)
        for one in self.clients[client].settle():
            assert one.kind == PUBLISH, one
            run, _, topic = one.topic.decode().partition("/")
            if run == self.name:  # not what a broker says of itself
                of_old = step.what == "subscribe" and step.client == client
                count = (
                    1
                    if of_old
                    else sum(topic_matches_sub(each, topic) for each in self.filters[client])
                )
                properties = tuple(sorted(one.properties))
                copies.append(Copy(topic, one.payload, one.qos, one.retain, properties, count))
        return len(copies) > before

    def _end(self, steps: Sequence[Step]) -> None:
        """Leave nothing behind."""
        for client in self.clients.values():
            client.disconnect()
        kept = {step.topic for step in steps if step.retain}
        for number in self.filters:
            client = self._connected(Step(0, number, "connect"))
            for topic in kept:
                client.publish(f"{self.name}/{topic}", b"", qos=1, retain=True)
            kept = set()
            client.disconnect()
        self.rest()


def differences(
    steps: Sequence[Step], wanted: Got, found: Got, habits: Sequence[Habits]
) -> list[str]:
    """What came to whom otherwise than at one Mosquitto, in words."""
    by_number = {step.number: step for step in steps}
    wrong: list[str] = []
    for at, client in sorted({*wanted, *found}):
        own = habits[client % len(habits)]
        here, there = (
            [copy for copy in one.get((at, client), []) if own.retained or not copy.retain]
            for one in (found, wanted)
        )
        if own.each and version(client, habits) == V3:
            there = [copy for copy in there for _ in range(copy.filters)]
        if not own.qos:
            here, there = ([replace(copy, qos=0) for copy in one] for one in (here, there))
        place = f"after step {at}, client {client}"
        surplus, missing = Counter(here) - Counter(there), Counter(there) - Counter(here)
        wrong += [f"{place}: too much: {one} x{count}" for one, count in surplus.items()]
        wrong += [f"{place}: missing: {one} x{count}" for one, count in missing.items()]
        if not surplus and not missing:
            ours, right = (_orders(one, by_number) for one in (here, there))
            wrong += [
                f"{place}: {whose} in the order {ours[whose]}, not {order}"
                for whose, order in right.items()
                if ours[whose] != order
            ]
    return wrong


def _orders(copies: Sequence[Copy], by_number: dict[int, Step]) -> dict[str, list[bytes]]:
    """Of each publisher on each topic with each QoS: what came first of each message, in order."""
    orders: dict[str, list[bytes]] = {}
    for one in copies:
        if not one.payload or one.retain:
            continue
        step = by_number[int(one.payload)]
        whose = f"client {step.client} on {one.topic} with QoS {step.qos}"
        order = orders.setdefault(whose, [])
        if one.payload not in order:
            order.append(one.payload)
    return orders


def smallest(
    steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool], most_tries: int
) -> list[Step]:
    """Take out steps while it still fails: first many at once, then one by one."""
    left, size, tries = list(steps), len(steps) // 2, 0
    while size:
        at = 0
        while at < len(left) and tries < most_tries:
            without = left[:at] + left[at + size :]
            tries += 1
            if without and fails(without):
                left = without
            else:
                at += size
        size //= 2
    return left
