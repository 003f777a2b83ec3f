"""Connections to a real Mosquitto, over every transport and both versions of MQTT."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from live import House, Node, house

from demo.local_broker import Mosquitto, free_port, running
from mqtick.mqtt.causes import Cause
from mqtick.mqtt.stamps import StampSource

pytestmark = pytest.mark.needs("mosquitto")

__all__ = ["house"]  # a fixture

TRANSPORTS = ["mqtt", "mqtts", "ws", "wss", "unix"]
TOPIC = "mqtick/l/0"


# -- every transport -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_message_goes_to_the_broker_and_back(house: House, transport: str, version: str) -> None:
    with house.node(transport, version=version) as node:
        assert node.up().subscribed(TOPIC)
        before_ns = time.time_ns()
        sent = node.connection.publish(TOPIC, b"\x00there and back\xff")
        node.until(lambda: node.arrivals)
        node.connection.collect_stamps()
        arrival = node.arrivals[0]
    assert sent is not None
    assert (arrival.topic, arrival.payload) == (TOPIC, b"\x00there and back\xff")
    assert not arrival.retain
    source = StampSource.USER if transport == "unix" else StampSource.KERNEL
    assert (sent.stamp.source, arrival.stamp.source) == (source, source)
    assert before_ns <= sent.stamp.realtime_ns < arrival.stamp.realtime_ns <= time.time_ns()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_flood_arrives_whole_and_in_order(house: House, transport: str) -> None:
    with house.node(transport) as node:
        node.up().subscribed(TOPIC)
        for number in range(200):
            node.connection.publish(TOPIC, b"%d" % number)
        node.until(lambda: len(node.arrivals) == 200)
        assert [one.payload for one in node.arrivals] == [b"%d" % n for n in range(200)]
        assert node.connection.dropped == 0


@pytest.mark.parametrize("transport", ["mqtt", "mqtts", "ws", "wss"])
def test_small_messages_are_not_held_back_to_be_sent_together(house: House, transport: str) -> None:
    with house.node(transport) as node:
        node.up()
        kernel = node.connection._session.kernel
        assert kernel is not None
        assert kernel.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_large_messages_pass_in_pieces(house: House, transport: str) -> None:
    # Over WebSocket Mosquitto 2.0.11 delivers 4 KiB each 100 ms, and nothing above 64 KiB.
    payload = os.urandom(10_000 if transport.startswith("ws") else 200_000)
    with house.node(transport) as node:
        node.up().subscribed(TOPIC)
        for _ in range(3):
            node.until(lambda: not node.connection._session.frames.wants_write)  # type: ignore[attr-defined]
            node.connection.publish(TOPIC, payload)
        node.until(lambda: len(node.arrivals) == 3)
        assert all(one.payload == payload for one in node.arrivals)


def test_who_asks_for_user_stamps_gets_them(house: House) -> None:
    with house.node(kernel_stamps="user") as node:
        node.up().subscribed(TOPIC)
        assert not node.connection.kernel_stamps
        sent = node.connection.publish(TOPIC, b"x")
        node.until(lambda: node.arrivals)
        assert sent is not None
        assert (sent.stamp.source, node.arrivals[0].stamp.source) == (
            StampSource.USER,
            StampSource.USER,
        )


def test_an_idle_connection_lets_its_loop_sleep(house: House) -> None:
    with house.node() as node:
        node.up().subscribed(TOPIC)
        node.connection.publish(TOPIC, b"x")  # its transmit stamp comes on the error queue
        node.until(lambda: node.arrivals)
        end, turns = time.monotonic() + 0.3, 0
        while time.monotonic() < end:
            node.loop.turn(0.05)
            turns += 1
    assert turns < 20


# -- subscriptions ---------------------------------------------------------------------------------


def retain(house: House, topic: str, payload: bytes) -> None:
    other = paho.Client(paho.CallbackAPIVersion.VERSION2)
    other.connect("127.0.0.1", house.broker.port)
    other.loop_start()
    other.publish(topic, payload, qos=1, retain=True).wait_for_publish(5)
    other.disconnect()
    other.loop_stop()


def test_mqtt_5_sends_no_retained_message_but_where_it_is_wanted(house: House) -> None:
    retain(house, "mqtick/t/9", b"old")
    with house.node() as node:
        node.up().subscribed("mqtick/t/9")
        node.connection.subscribe_retained("mqtick/t/9")
        node.until(lambda: node.arrivals)
        assert [(one.payload, one.retain) for one in node.arrivals] == [(b"old", True)]


def test_mqtt_3_sends_retained_messages_and_they_say_so(house: House) -> None:
    retain(house, "mqtick/t/8", b"old")
    with house.node(version="3.1.1") as node:
        node.up().subscribed("mqtick/t/8")
        node.until(lambda: node.arrivals)
        assert node.arrivals[0].retain


def test_a_hook_is_called_for_its_topic_only(house: House) -> None:
    calls: list[int] = []
    with house.node() as node:
        node.connection.hooks[TOPIC.encode()] = lambda: calls.append(len(node.arrivals))
        node.up().subscribed(TOPIC, "other")
        for topic in ("other", TOPIC, "other", TOPIC):
            node.connection.publish(topic, b"")
        node.until(lambda: len(node.arrivals) == 4)
    assert calls == [1, 3]  # each before its message


def test_unsubscribing_ends_it(house: House) -> None:
    with house.node() as node:
        node.up().subscribed(TOPIC, "other")
        node.connection.unsubscribe([TOPIC])
        node.connection.publish(TOPIC, b"not heard")
        node.connection.publish("other", b"heard")
        node.until(lambda: node.arrivals)
        assert [one.payload for one in node.arrivals] == [b"heard"]


def test_a_status_is_retained_by_the_broker(house: House) -> None:
    with house.node() as node:
        node.up().connection.publish_retained("mqtick/s/7", b"there")
        node.connection.subscribe_retained("mqtick/s/7")
        node.until(lambda: node.arrivals)
        assert node.arrivals[0].payload == b"there"


def test_a_refused_subscription_is_reported(tmp_path: Path) -> None:
    plugin = next(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so"), None)
    if plugin is None:
        pytest.skip("mosquitto came without its dynamic security plug-in")
    rules = tmp_path / "rules.json"
    rules.write_text(
        '{"defaultACLAccess": {"publishClientSend": true, "publishClientReceive": true, '
        '"subscribe": false, "unsubscribe": true}, "clients": [], "groups": [], "roles": []}'
    )
    lines = f"plugin {plugin}\nplugin_opt_config_file {rules}"
    with running(Mosquitto(tmp_path, lines)) as broker:
        for version in ("5", "3.1.1"):
            with Node(broker.url, version=version) as node:
                assert not node.up().subscribed(TOPIC)
                assert node.connection.connected


# -- trouble ---------------------------------------------------------------------------------------


def test_a_broker_that_restarts_is_found_again(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    with running(broker), Node(broker.url) as node:
        node.up()
        broker.stop()
        node.until(lambda: node.downs)
        assert node.downs == [f"the connection to {broker.url} was lost"]
        assert node.connection.publish(TOPIC, b"") is None
        assert node.connection.dropped == 1
        broker.start()
        node.up()
        assert node.subscribed(TOPIC)
        assert node.connection.connects == 2


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_wrong_password_is_reported_and_stays_reported(tmp_path: Path, version: str) -> None:
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "kitchen", "right"], check=True)
    lines = f"password_file {passwords}"
    with running(Mosquitto(tmp_path, lines, anonymous=False)) as broker:
        account = {"version": version, "username": "kitchen"}
        with Node(broker.url, password="wrong", **account) as node:
            assert f"{broker.url} refused the connection: Not authorized" in node.error()
            node.until(lambda: node.connection.attempts >= 2)
            assert "Not authorized" in node.connection.last_error
            assert node.connection.last_cause is Cause.CREDENTIALS
            assert len(node.downs) == 1
        with Node(broker.url, password="right", **account) as node:
            node.up()


@pytest.mark.parametrize(
    ("address", "says", "cause"),
    [
        ("mqtt://127.0.0.1:{port}", "[Errno 111]", Cause.NOBODY_LISTENS),
        ("unix:///nowhere/broker.sock", "[Errno 2]", Cause.NOBODY_LISTENS),
        ("mqtt://broker.invalid:1883", "[Errno -", Cause.HOST_UNKNOWN),
    ],
)
def test_where_no_broker_is_the_reason_is_reported_and_it_is_tried_again(
    address: str, says: str, cause: Cause
) -> None:
    address = address.format(port=free_port())
    with Node(address) as node:
        assert node.error().startswith(f"cannot connect to {address}: {says}")
        assert node.connection.last_cause is cause
        node.until(lambda: node.connection.attempts >= 2)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["mqtt", "ws", "mqtts"])
def test_a_broker_that_accepts_and_stalls_is_given_up(transport: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"{transport}://127.0.0.1:{server.getsockname()[1]}"
        with Node(url, connect_timeout_s=0.3) as node:
            began = time.monotonic()
            said = node.error()
            assert time.monotonic() - began < 3
            silent = transport == "mqtt"
            assert ("did not answer within 0.3 s" if silent else "timed out") in said
            assert node.connection.last_cause is (Cause.SILENT if silent else Cause.TIMED_OUT)
            node.until(lambda: node.connection.attempts >= 2)


@pytest.mark.slow
def test_a_broker_that_falls_silent_is_given_up(tmp_path: Path) -> None:
    with running(Mosquitto(tmp_path)) as broker, Node(broker.url, keepalive_s=1) as node:
        node.up()
        assert broker.process is not None
        broker.process.send_signal(signal.SIGSTOP)
        try:
            node.until(lambda: node.downs, 8)
        finally:
            broker.process.send_signal(signal.SIGCONT)
        assert node.downs[0] == f"the connection to {broker.url} was lost (Keep alive timeout)"
        node.up()


def test_while_the_broker_takes_no_data_messages_are_dropped_and_none_is_torn(
    tmp_path: Path,
) -> None:
    with running(Mosquitto(tmp_path)) as broker, Node(broker.url) as node:
        node.up().subscribed(TOPIC)
        assert broker.process is not None
        broker.process.send_signal(signal.SIGSTOP)
        taken, limit = 0, 400
        try:
            while not node.connection.dropped and taken < limit:
                taken += node.connection.publish(TOPIC, b"%06d" % taken * 20_000) is not None
        finally:
            broker.process.send_signal(signal.SIGCONT)
        assert node.connection.dropped
        node.until(lambda: len(node.arrivals) == taken, 10)
        payloads = [one.payload for one in node.arrivals]
        assert payloads == [b"%06d" % number * 20_000 for number in range(taken)]


def test_closing_says_goodbye_and_comes_back_no_more(house: House) -> None:
    node = house.node()
    with node:
        node.up()
    assert not node.connection.connected
    assert node.connection.attempts == 1
    assert node.downs == []
