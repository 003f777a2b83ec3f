"""A broker that speaks MQTT 3.1.1 only is spoken to in 3.1.1, whatever the settings say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import Node, scripted

from demo.local_broker import Amqtt, Mosquitto, Nats, running

TOPIC = "mqtick/t/0"
# The level of the protocol in a CONNECT, behind the packet's length and the name MQTT.
LEVEL_AT = 8
REFUSED = b"\x20\x02\x00\x01"  # MQTT 3.1.1, table 3.1: unacceptable protocol version
ACCEPTED = b"\x20\x02\x00\x00"
ACCEPTED_5 = b"\x20\x03\x00\x00\x00"


class OldBroker:
    """Answers each CONNECT by its level with what `answers` says (see `scripted`)."""

    def __init__(self, answers: dict[int, bytes | None]) -> None:
        self.answers, self.levels = answers, list[int]()

    def _answer(self, connect: bytes) -> bytes | None:
        self.levels.append(connect[LEVEL_AT])
        return self.answers[self.levels[-1]]

    @contextlib.contextmanager
    def node(self, **options: object) -> Iterator[Node]:
        with scripted(self._answer) as address, Node(f"mqtt://{address}", **options) as node:
            yield node


@pytest.mark.parametrize(
    ("said", "because"),
    [
        (REFUSED, "Unsupported protocol version"),
        (b"", "without giving a reason"),
        pytest.param(None, "did not answer within 0.3 s", marks=pytest.mark.slow),
    ],
)
def test_a_broker_that_does_not_take_mqtt_5_is_asked_at_once_by_3_1_1(
    said: bytes | None, because: str
) -> None:
    broker = OldBroker({5: said, 4: ACCEPTED})
    with broker.node(connect_timeout_s=0.3) as node:
        node.until(lambda: node.connection.connected)
        assert broker.levels == [5, 4]
        assert not node.connection.version_5
        assert because in node.connection.error_5
        assert node.connection.last_error == ""
        assert not node.downs


def test_after_a_loss_mqtt_5_is_tried_first_again() -> None:
    broker = OldBroker({5: REFUSED, 4: ACCEPTED})
    with broker.node() as node:
        node.until(lambda: node.connection.connected)
        broker.answers = {5: ACCEPTED_5}
        node.connection.drop("the broker was replaced")
        node.until(lambda: node.connection.connected)
        assert broker.levels == [5, 4, 5]
        assert node.connection.version_5
        assert node.connection.error_5 == ""


def test_a_broker_that_hangs_up_on_everybody_is_tried_again_and_again() -> None:
    broker = OldBroker({5: b"", 4: b""})
    with broker.node() as node:
        # After each hang-up at 3.1.1 it begins with 5 again.
        node.until(lambda: len(broker.levels) >= 4 and node.connection.error_5 == "")
        assert broker.levels[:4] == [5, 4, 5, 4]
        assert "ended the connection without giving a reason" in node.connection.last_error


def test_who_asks_for_3_1_1_gets_nothing_else() -> None:
    broker = OldBroker({4: b""})
    with broker.node(version="3.1.1") as node:
        node.until(lambda: len(broker.levels) >= 2)
        assert set(broker.levels) == {4}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Amqtt, Nats])
def test_messages_go_both_ways_at_real_brokers_without_mqtt_5(
    tmp_path: Path, kind: type[Mosquitto]
) -> None:
    try:
        broker = kind(tmp_path)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with running(broker), Node(broker.url) as node:
        node.up().subscribed(TOPIC)
        assert not node.connection.version_5
        node.connection.publish(TOPIC, b"time")
        node.until(lambda: node.arrivals)
        assert node.arrivals[0].payload == b"time"
