"""A broker that says what no broker should: the connection ends, the program does not."""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path

import pytest

from mqtick.mqtt.packets import encode_publish

sys.path.insert(0, str(Path(__file__).parent))
from live import Node, scripted

CONNACK = b"\x20\x03\x00\x00\x00"  # MQTT 5: no session, success, no properties
UPGRADE = b"HTTP/1.1 101 Switching Protocols\r\n"


def script(*lines: bytes) -> contextlib.AbstractContextManager[str]:
    """Say the next line to each connection, and the last one to all that follow."""
    left = list(lines)
    return scripted(lambda _first: left.pop(0) if len(left) > 1 else left[0])


def test_a_retained_message_of_a_quality_that_nobody_asked_for_is_taken() -> None:
    """As aedes sends it to a subscription with a wildcard."""
    status, time_1 = (
        b"\x33\x11\x00\x0amqtick/s/0\x00\x07\x00up",
        b"\x32\x11\x00\x0amqtick/t/0\x00\x08\x00no",
    )
    with (
        script(CONNACK + status + time_1) as broker,
        Node(f"mqtt://{broker}") as node,
    ):
        node.until(lambda: node.arrivals)
        (arrival,) = node.arrivals
        assert (arrival.topic, arrival.payload, arrival.retain) == ("mqtick/s/0", b"up", True)


HOSTILE = {
    "CONNACK with broken properties": b"\x20\x05\x00\x00\x02\xff\xff",
    "CONNACK that is too short": b"\x20\x01\x00",
    "CONNACK with an unknown reason": b"\x20\x03\x00\x7f\x00",
    "SUBACK for nobody": CONNACK + b"\x90\x03\x00\x07\x00",
    "SUBACK that is too short": CONNACK + b"\x90\x01\x00",
    "SUBACK with an unknown reason": CONNACK + b"\x90\x04\x00\x01\x00\x7e",
    "PUBLISH of quality 1 without a topic": CONNACK + b"\x32\x01\x00",
    "PUBLISH of quality 3": CONNACK + b"\x36\x06\x00\x01t\x00\x01\x00",
    "PUBREL from nowhere": CONNACK + b"\x62\x02\x00\x01",
    "CONNECT, as if we were the broker": CONNACK + b"\x10\x00",
    "a packet of type 0": CONNACK + b"\x00\x00",
    "AUTH": CONNACK + b"\xf0\x02\x18\x00",
    "DISCONNECT with broken properties": CONNACK + b"\xe0\x03\x00\x01\xff",
    "a length of five octets": CONNACK + b"\x30\xff\xff\xff\xff\x7f",
    "a second CONNACK": CONNACK + CONNACK,
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_packet_ends_the_connection_at_most(said: bytes) -> None:
    good = CONNACK + encode_publish(b"mqtick/t/0", b"good", b"")
    with script(said + good, good) as broker, Node(f"mqtt://{broker}") as node:
        node.until(lambda: node.arrivals and node.connection.connected)
        assert node.arrivals[-1].payload == b"good"


def test_a_hostile_packet_is_what_the_status_shows() -> None:
    with script(b"\x20\x05\x00\x00\x02\xff\xff") as broker:
        url = f"mqtt://{broker}"
        with Node(url) as node:
            assert node.error() == f"the connection to {url} was lost (Protocol error)"
            assert node.downs == [node.connection.last_error]


@pytest.mark.slow
def test_random_octets_end_no_program() -> None:
    randomly = random.Random(7)
    for _ in range(15):
        noise = CONNACK + randomly.randbytes(randomly.randrange(1, 60))
        with script(noise) as broker, Node(f"mqtt://{broker}") as node:
            node.until(lambda node=node: node.connection.connects)  # type: ignore[misc]
            for _ in range(5):
                node.loop.turn(0.01)


def test_an_mqtt_5_broker_says_why_it_hangs_up() -> None:
    with script(CONNACK + b"\xe0\x01\x8e") as broker:
        url = f"mqtt://{broker}"
        with Node(url) as node:
            node.until(lambda: node.downs)
        assert node.downs == [f"the connection to {url} was lost (Session taken over)"]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        UPGRADE + b"Connection: close\r\n\r\n",
        UPGRADE + b"Connection: Upgrade\r\nSec-WebSocket-Accept\r\n\r\n",
        UPGRADE + b"Connection: Upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n",
        b"\xff\xfe\xfd connection sec-websocket-accept\n",
        b"\r\n\r\n",
    ],
    ids=["404", "no upgrade", "no accept", "wrong accept", "no text", "empty"],
)
def test_what_is_no_websocket_is_refused_and_tried_again(answer: bytes) -> None:
    with script(answer) as broker:
        url = f"ws://{broker}"
        with Node(url, connect_timeout_s=0.3) as node:
            node.until(lambda: node.connection.attempts >= 2)
            assert node.connection.last_error.startswith(f"cannot connect to {url}/mqtt: ")


def test_what_is_no_tls_is_refused_and_tried_again() -> None:
    with script(CONNACK) as broker:
        url = f"mqtts://{broker}"
        with Node(url, connect_timeout_s=0.3) as node:
            node.until(lambda: node.connection.attempts >= 2)
            assert node.connection.last_error.startswith(f"cannot connect to {url}: ")
