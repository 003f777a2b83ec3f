"""Many clients, and somebody who means harm, on a real Mosquitto."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_rig import PlainNode, Served

from demo.local_broker import Mosquitto, running
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.protocol.auth import Keyring
from mqtick.protocol.precise import Request, decode
from mqtick.protocol.topics import TopicTree
from mqtick.timeserver import echo as echo_module
from mqtick.timeserver.echo import EchoPair

pytestmark = pytest.mark.needs("mosquitto")

TREE = TopicTree()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with running(Mosquitto(tmp_path)) as made:
        yield made


def ask(node: PlainNode, client: str, sequence: int, *, echo: bool = True) -> None:
    topic = TREE.request(0, client)
    body = Request(0, sequence, sequence.to_bytes(8, "big"), echo).body()
    node.say(topic, Keyring().client(client).sign(body, topic))


@pytest.mark.slow
def test_six_hundred_clients_are_all_answered(broker: Mosquitto) -> None:
    with (
        Served(broker.url, interval_s=1.0) as served,
        PlainNode(broker.port, "mqtick/r/0/+", "mqtick/f/0/+") as node,
    ):
        served.until(lambda: served.server.order.trusted)
        names = [f"client-{number}" for number in range(600)]
        began = time.monotonic()
        for sequence in range(2):
            for name in names:
                ask(node, name, sequence)
                for _ in range(3):
                    served.loop.turn(0.002)
        served.until(lambda: served.server.responder.pending == 0)
        served.until(lambda: len([one for one in node.messages if "/f/" in one.topic]) == 1200)
        assert time.monotonic() - began < 16
    replies = [one.topic for one in node.messages if one.topic.startswith("mqtick/r/")]
    assert {replies.count(TREE.reply(0, name)) for name in names} == {2}
    assert served.done["replies"] == 1200
    assert not {"rate", "rate-total", "not-sent"} & set(served.refused)
    assert served.server.lateness.missed == 0
    # From its second request on a client has an echo; some share a read, and are not told.
    assert served.done["echoes"] > 300, served.refused


@pytest.mark.slow
def test_noise_at_a_thousand_a_second_is_counted_and_others_are_answered(
    broker: Mosquitto,
) -> None:
    randomly = random.Random(7)
    with (
        Served(broker.url, echo=False) as served,
        PlainNode(broker.port, "mqtick/r/0/kitchen") as node,
        PlainNode(broker.port) as attacker,
    ):
        served.until(lambda: served.done.get("times", 0) >= 2)
        for sequence in range(20):
            for _ in range(100):
                kind = randomly.randrange(4)
                client = f"x{randomly.randrange(10**6)}"
                noise = randomly.randbytes(randomly.randrange(1, 64))
                if kind == 0:
                    attacker.say(f"mqtick/q/0/{client}", noise)
                elif kind == 1:
                    attacker.say("mqtick/t/0", noise)
                elif kind == 2:
                    attacker.say("mqtick/s/0", noise)
                else:
                    attacker.say("_1451.1.6/RRS/REQ", noise)
            ask(node, "kitchen", sequence, echo=False)
            served.run(0.1)
        served.until(lambda: len(node.messages) == 20)
    assert [decode(one.payload).sequence for one in node.messages] == list(range(20))
    assert sum(served.refused.values()) > 1000
    assert set(served.refused) <= {
        "length",
        "version",
        "kind",
        "reserved",
        "not-leading",
        "encoding",
        "name",
        "t1",
        "rate",
        "range",
        "nanoseconds",
    }
    assert served.done["times"] > 15


# -- the echoes ------------------------------------------------------------------------------------


class Echoes:
    """The echo connections alone."""

    def __init__(self, broker: Mosquitto, limit: int = 4096) -> None:
        self.loop = Loop()
        self.heard: list[tuple[str, bytes, bool]] = []
        self.placed = 0
        self.pair = EchoPair(
            self.loop,
            parse_broker_url(broker.url),
            "echo",
            0,
            TREE,
            self._heard,
            self._placed,
            limit=limit,
        )

    def _heard(self, arrival: Arrival, last: bool) -> None:
        self.heard.append((arrival.topic, arrival.payload, last))

    def _placed(self, _topic: str) -> None:
        self.placed += 1

    def __enter__(self) -> Echoes:
        self.pair.start()
        self.pair.hear(True)
        self.until(lambda: self.placed)
        return self

    def __exit__(self, *_: object) -> None:
        self.pair.close()
        self.loop.close()

    def until(self, condition: object, timeout_s: float = 30.0) -> None:
        end = time.monotonic() + timeout_s
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < end
            self.loop.turn(0.02)


def test_a_reply_comes_back_to_the_first_echo_and_then_to_the_last(broker: Mosquitto) -> None:
    with Echoes(broker) as echoes, PlainNode(broker.port) as node:
        assert not echoes.pair.ready("kitchen")
        echoes.until(lambda: echoes.pair.ready("kitchen"))
        node.say("mqtick/r/0/kitchen", b"reply")
        echoes.until(lambda: len(echoes.heard) == 2)
        assert echoes.heard == [
            ("mqtick/r/0/kitchen", b"reply", False),
            ("mqtick/r/0/kitchen", b"reply", True),
        ]
        assert echoes.pair.clients == 1


def test_echoes_wait_until_somebody_asks_where_that_is_soon_enough(broker: Mosquitto) -> None:
    with Echoes(broker) as echoes, PlainNode(broker.port) as node:
        echoes.pair.hear(False)
        echoes.until(lambda: echoes.pair.ready("kitchen"))
        node.say("mqtick/r/0/kitchen", b"reply")
        echoes.until(lambda: len(echoes.pair._arrived) == 2)
        echoes.loop.turn(0.05)
        assert echoes.heard == []
        echoes.pair.hear(False)
        assert len(echoes.heard) == 2


def test_no_more_clients_get_an_echo_than_the_limit(broker: Mosquitto) -> None:
    with Echoes(broker, limit=5) as echoes:
        for _ in range(3):
            for number in range(50):
                echoes.pair.ready(f"client-{number}")
            end = time.monotonic() + 0.2
            echoes.until(lambda end=end: time.monotonic() > end)  # type: ignore[misc]
        assert 0 < echoes.pair.clients <= 5
        assert len(echoes.pair._clients) <= 5
        ready = [echoes.pair.ready(f"client-{number}") for number in range(50)]
        assert sum(ready) == echoes.pair.clients


def test_who_has_not_asked_for_long_makes_room(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Echoes(broker, limit=3) as echoes:
        echoes.until(lambda: echoes.pair.ready("a") and echoes.pair.ready("b"))
        assert not echoes.pair.ready("c")
        monkeypatch.setattr(echo_module, "_IDLE_NS", 0)
        echoes.until(lambda: echoes.pair.ready("c"))
        assert echoes.pair.clients <= 2


def test_after_a_lost_connection_everybody_is_told_to_take_a_new_place(
    broker: Mosquitto,
) -> None:
    with Echoes(broker) as echoes:
        echoes.until(lambda: echoes.pair.ready("kitchen"))
        before = echoes.pair.placement
        broker.stop()
        echoes.until(lambda: not echoes.pair.ready("kitchen"))
        broker.start()
        echoes.until(lambda: echoes.pair.ready("kitchen"), 8)
        assert echoes.pair.placement != before
        assert echoes.placed >= 2


def test_what_nobody_takes_does_not_pile_up(broker: Mosquitto) -> None:
    with Echoes(broker) as echoes, PlainNode(broker.port) as node:
        echoes.until(lambda: echoes.pair.ready("kitchen"))
        echoes.pair.hear(False)
        echoes.pair._loop.call_soon_threadsafe(echoes.pair.last.close)
        echoes.until(lambda: not echoes.pair.last.connected)
        for _ in range(6000):
            node.say("mqtick/r/0/kitchen", b"x")
        echoes.until(lambda: len(echoes.pair._arrived) == 4096)
