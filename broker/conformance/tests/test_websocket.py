"""MQTT in WebSocket frames: chapter 6 of both standards."""

from __future__ import annotations

import pytest

from broker.conformance import client as suite
from broker.conformance.client import SUBACK, Client
from broker.conformance.connections import Mqtt, statement
from broker.conformance.websocket import BINARY, TEXT, WebSocket


def connect(mqtt: Mqtt) -> tuple[Client, WebSocket]:
    """A client on a WebSocket, that has said nothing."""
    if mqtt.broker.websocket is None:
        pytest.skip("no WebSocket listener is known")
    carrier = WebSocket(mqtt.broker.websocket, suite.PATIENCE_S)
    return mqtt.raw(carrier=carrier), carrier


@statement("MQTT-6.0.0-4", "MQTT5-6.0.0-4")
def test_the_subprotocol_is_mqtt(mqtt: Mqtt) -> None:
    _, carrier = connect(mqtt)
    assert carrier.headers[b"sec-websocket-protocol"] == b"mqtt"


@statement("MQTT-6.0.0-1", "MQTT5-6.0.0-1")
def test_packets_go_in_binary_frames(mqtt: Mqtt) -> None:
    # The WebSocket here takes no others.
    client, _ = connect(mqtt)
    assert client.connect().reason == 0
    client.subscribe(mqtt.topic())
    for payload in (b"small", bytes(200), bytes(70_000)):
        client.publish(mqtt.topic(), payload, qos=1)
        assert client.message().payload == payload


@pytest.mark.parametrize("connected", [False, True], ids=["before", "after"])
@statement("MQTT-6.0.0-1", "MQTT5-6.0.0-1")
def test_a_text_frame_ends_the_connection(mqtt: Mqtt, connected: bool) -> None:
    client, carrier = connect(mqtt)
    if connected:
        assert client.connect().reason == 0
    carrier.opcode = TEXT
    client.send(mqtt.encode.connect(client.id) if not connected else suite.PING)
    carrier.opcode = BINARY
    client.closed()


@pytest.mark.parametrize("split", [1, 3, 1000])
@statement("MQTT-6.0.0-2", "MQTT5-6.0.0-2")
def test_packets_and_frames_have_borders_of_their_own(mqtt: Mqtt, split: int) -> None:
    client, carrier = connect(mqtt)
    carrier.split = split
    subscribe = mqtt.encode.subscribe(7, (mqtt.topic(), 0))
    messages = [mqtt.encode.publish(mqtt.topic(), bytes([number])) for number in range(5)]
    client.send(mqtt.encode.connect(client.id), subscribe, *messages)
    client.connack = client.expect(suite.CONNACK)
    assert client.expect(SUBACK).packet_id == 7
    assert [client.message().payload for _ in messages] == [bytes([n]) for n in range(5)]
