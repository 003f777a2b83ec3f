"""The same random sessions of clients, at one Mosquitto and at joined brokers of several kinds."""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from joined import JOIN, Site, joined, settled, until

from broker.conformance.client import PUBLISH, V3, Client
from demo.local_broker import Amqtt, Mosquitto, MqtickBroker, Nats, program, running

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif(not JOIN.exists(), reason="mqtick-join is not built: make test-broker does"),
]
CLIENTS, PHASES = 6, 8
FILTERS = ["a/b", "a/+", "a/#", "+/b", "b/#", "c", "+/+/+", "#"]
TOPICS = ["a", "a/b", "b", "b/b", "c", "a/b/c", "d"]
Got = list[dict[str, list[bytes]]]


class DebugBroker(MqtickBroker):
    """Whichever build is there."""

    builds = ("release", "debug")


@dataclass(frozen=True)
class Step:
    """What one client does."""

    client: int
    what: str
    topic: str
    payload: bytes = b""
    qos: int = 0


def script(seed: int) -> list[list[Step]]:
    """Phases: in each, some subscriptions change or connections end, and then all publish."""
    chance = random.Random(seed)
    phases = []
    for phase in range(PHASES):
        steps = []
        for _ in range(4):
            what = chance.choice(["subscribe", "subscribe", "unsubscribe", "reconnect"])
            steps.append(Step(chance.randrange(CLIENTS), what, chance.choice(FILTERS)))
        for number in range(10):
            payload = f"{phase} {number}".encode()
            who, topic = chance.randrange(CLIENTS), chance.choice(TOPICS)
            steps.append(Step(who, "publish", topic, payload, chance.randrange(2)))
        phases.append(steps)
    return phases


def name(number: int) -> str:
    """A client's identifier."""
    return f"client-{number}"


def play(
    phases: list[list[Step]],
    port: Callable[[int], int],
    settle: Callable[[], None],
    expected: list[Got] | None,
) -> list[Got]:
    """What each client got in each phase: of each publisher on each topic with each
    QoS, in order.

    Odd clients have kept sessions.
    """

    def connected(number: int) -> Client:
        client = Client(("127.0.0.1", port(number)), V3, name(number))
        assert client.connect(clean=number % 2 == 0).reason == 0
        return client

    clients = [connected(number) for number in range(CLIENTS)]
    found: list[Got] = []
    for at, steps in enumerate(phases):
        got: Got = [{} for _ in clients]
        for step in (one for one in steps if one.what != "publish"):
            if step.what == "reconnect":
                clients[step.client].disconnect()
                clients[step.client] = connected(step.client)
            else:
                getattr(clients[step.client], step.what)(
                    (step.topic, 1) if step.what == "subscribe" else step.topic
                )
        settle()
        publishers = {}
        for step in (one for one in steps if one.what == "publish"):
            publishers[step.payload] = f"{step.client} {step.topic} {step.qos}"
            clients[step.client].publish(step.topic, step.payload, qos=step.qos)

        def take(client: int, got: Got = got, whose: dict[bytes, str] = publishers) -> None:
            for one in clients[client].settle():
                assert one.kind == PUBLISH
                if one.qos == 1:
                    clients[client].send(clients[client].encode.ack(4, one.packet_id))
                if one.topic.startswith(b"$"):
                    continue  # NATS tells who subscribes to `+/+/+` of its own business
                messages = got[client].setdefault(whose[one.payload], [])
                if one.payload not in messages:  # a copy for each of two filters is allowed
                    messages.append(one.payload)

        def all_there(got: Got = got, at: int = at) -> bool:
            for number in range(CLIENTS):
                take(number)
            return expected is None or all(
                sum(map(len, here.values())) >= sum(map(len, there.values()))
                for here, there in zip(got, expected[at], strict=True)
            )

        with contextlib.suppress(AssertionError):
            until(all_there, "not all came")
        settle()
        for _ in range(3):
            time.sleep(0.02)
            all_there()
        found.append(got)
    for client in clients:
        client.close()
    return found


@pytest.mark.parametrize("seed", range(2))
def test_joined_brokers_of_several_kinds_deliver_what_one_mosquitto_does(
    tmp_path: Path, seed: int
) -> None:
    kinds: list[type[Mosquitto]] = [Mosquitto, DebugBroker, Mosquitto, DebugBroker]
    if program("nats-server") is not None:
        kinds.insert(1, Nats)
    if (Path(sys.executable).parent / "amqtt").exists():
        kinds.append(Amqtt)
    if program("mosquitto") is None:
        pytest.skip(Mosquitto.missing)
    phases = script(seed)
    with running(Mosquitto(tmp_path, "persistence false")) as broker:
        wanted = play(phases, lambda _: broker.port, lambda: None, None)
    algorithm = ["subscriptions", "publications"][seed % 2]
    with joined(tmp_path, kinds, f'algorithm = "{algorithm}"') as sites:

        def rest() -> None:
            settled(*sites)
            for site in sites:
                until(partial(_idle, site), f"{site.name} is busy")

        found = play(phases, lambda number: sites[number % len(sites)].port, rest, wanted)
    for at, (here, there) in enumerate(zip(found, wanted, strict=True)):
        assert here == there, f"phase {at}"
    assert sum(len(one) for got in wanted for client in got for one in client.values()) > 60


def _idle(site: Site) -> bool:
    now = site.status()["now"]
    return not any(now[one] for one in ("unconfirmed", "broker_waiting", "neighbours_waiting"))
