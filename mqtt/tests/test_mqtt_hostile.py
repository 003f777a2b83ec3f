"""A broker that says what no broker should: the connection ends, the program does not."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import random
import re
import socket
import threading
import time

import pytest
from live import Node, scripted

from mqtick.mqtt.causes import Cause
from mqtick.mqtt.packets import encode_publish

CONNACK = b"\x20\x03\x00\x00\x00"  # MQTT 5: no session, success, no properties
PUBLISH_256_MB = b"\x30\xff\xff\xff\x7f" + bytes(2 << 20)  # begins
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
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


UNASKED = {
    "PUBLISH at QoS 2": (b"\x34\x06\x00\x01t\x00\x01\x00", "nobody asked for"),
    "PINGREQ": (b"\xc0\x00", "nobody asked for"),
    "PUBREC": (b"\x50\x02\x00\x01", "nobody asked for"),
    "SUBSCRIBE": (b"\x82\x07\x00\x01\x00\x00\x01t\x00", "nobody asked for"),
    "a SUBACK of 268 MB": (b"\x90\xff\xff\xff\x7f", "more than 256 KiB"),
    "20,000 SUBACKs": (b"\x90\x04\x00\x07\x00\x00" * 20_000, "more than this program can read"),
}


@pytest.mark.parametrize(("said", "why"), UNASKED.values(), ids=UNASKED.keys())
def test_what_nobody_asked_for_ends_the_connection_for_that_reason_and_is_counted(
    said: bytes, why: str
) -> None:
    with script(CONNACK + said) as broker, Node(f"mqtt://{broker}") as node:
        assert why in node.error()
        assert (node.connection.last_cause, node.connection.unasked) == (Cause.UNASKED, 1)


def test_statuses_that_are_never_acknowledged_are_not_kept_for_ever() -> None:
    with script(CONNACK) as broker, Node(f"mqtt://{broker}") as node:
        node.up()
        for number in range(65):
            node.connection.publish_retained("mqtick/s/0", b"%d" % number)
        assert node.error().endswith("acknowledges nothing that is published")
        node.up().connection.publish_retained("mqtick/s/0", b"new")  # and room again


def test_an_endless_line_in_the_handshake_of_websocket_is_given_up() -> None:
    def drip() -> None:
        """Say an octet now and then, so that no single wait is long."""
        with contextlib.suppress(OSError):
            while True:
                said.sendall(b"x")
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"ws://127.0.0.1:{server.getsockname()[1]}"
        with Node(url, connect_timeout_s=0.1) as node:
            said = server.accept()[0]
            threading.Thread(target=drip, daemon=True).start()
            node.until(lambda: node.connection.attempts == 2)
        said.close()


def test_an_endless_frame_of_websocket_is_given_up() -> None:
    def answer(first: bytes) -> bytes:
        (key,) = re.findall(rb"Sec-WebSocket-Key: (\S+)", first)
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        lines = UPGRADE + b"Connection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        return lines + b"\x82\x7f" + (1 << 40).to_bytes(8, "big") + PUBLISH_256_MB

    with scripted(answer) as broker, Node(f"ws://{broker}") as node:
        assert node.error().endswith("sends a WebSocket frame of more than 1 MiB")
