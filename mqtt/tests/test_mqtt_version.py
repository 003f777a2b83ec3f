"""A broker that speaks MQTT 3.1.1 only is spoken to in 3.1.1, whatever the settings say."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from live import Amqtt, Mosquitto, Nats, Node, running

TOPIC = "mqtick/t/0"
# The level of the protocol in a CONNECT, behind the packet's length and the name MQTT.
LEVEL_AT = 8
REFUSED = b"\x20\x02\x00\x01"  # MQTT 3.1.1, table 3.1: unacceptable protocol version
ACCEPTED = b"\x20\x02\x00\x00"
WAITS = b"\0"
ACCEPTED_5 = b"\x20\x03\x00\x00\x00"


class OldBroker:
    """Answers each CONNECT by its level with what `answers` says.

    Nothing: it hangs up; a 0 octet: it says nothing, and waits.
    """

    def __init__(self, answers: dict[int, bytes]) -> None:
        self.answers, self.levels = answers, list[int]()
        self.url = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[OldBroker]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.url = f"mqtt://127.0.0.1:{server.getsockname()[1]}"
            thread = threading.Thread(target=self._serve, args=(server,), daemon=True)
            thread.start()
            yield self

    def _serve(self, server: socket.socket) -> None:
        kept = []
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                self.levels.append(connection.recv(4096)[LEVEL_AT])
                answer = self.answers[self.levels[-1]]
                if answer != WAITS:
                    connection.sendall(answer)
                if answer in (b"", REFUSED):
                    connection.close()
                kept.append(connection)


@pytest.mark.parametrize(
    ("said", "because"),
    [
        (REFUSED, "Unsupported protocol version"),
        (b"", "without giving a reason"),
        pytest.param(WAITS, "did not answer within 0.3 s", marks=pytest.mark.slow),
    ],
)
def test_a_broker_that_does_not_take_mqtt_5_is_asked_at_once_by_3_1_1(
    said: bytes, because: str
) -> None:
    broker = OldBroker({5: said, 4: ACCEPTED})
    with broker.running(), Node(broker.url, connect_timeout_s=0.3) as node:
        node.until(lambda: node.connection.connected)
        assert broker.levels == [5, 4]
        assert not node.connection.version_5
        assert because in node.connection.error_5
        assert node.connection.last_error == ""
        assert not node.downs


def test_after_a_loss_mqtt_5_is_tried_first_again() -> None:
    with OldBroker({5: REFUSED, 4: ACCEPTED}).running() as broker, Node(broker.url) as node:
        node.until(lambda: node.connection.connected)
        broker.answers = {5: ACCEPTED_5}
        node.connection.drop("the broker was replaced")
        node.until(lambda: node.connection.connected)
        assert broker.levels == [5, 4, 5]
        assert node.connection.version_5
        assert node.connection.error_5 == ""


def test_a_broker_that_hangs_up_on_everybody_is_tried_again_and_again() -> None:
    with OldBroker({5: b"", 4: b""}).running() as broker, Node(broker.url) as node:
        # After each hang-up at 3.1.1 it begins with 5 again.
        node.until(lambda: len(broker.levels) >= 4 and node.connection.error_5 == "")
        assert broker.levels[:4] == [5, 4, 5, 4]
        assert "ended the connection without giving a reason" in node.connection.last_error


def test_who_asks_for_3_1_1_gets_nothing_else() -> None:
    with OldBroker({4: b""}).running() as broker, Node(broker.url, version="3.1.1") as node:
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
