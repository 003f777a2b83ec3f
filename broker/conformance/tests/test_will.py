"""Wills: 3.1.2 and 3.1.3 of both standards, and what DISCONNECT does to them."""

from __future__ import annotations

import pytest

from broker.conformance.client import Client, Will
from broker.conformance.connections import Mqtt, statement


def nothing_came(mqtt: Mqtt, watcher: Client, topic: str) -> bool:
    mqtt.connect().publish(topic, b"marker", qos=1)
    return watcher.until(b"marker") == []


@pytest.mark.parametrize("qos", [0, 1, 2])
@statement("MQTT-3.1.2-8", "MQTT5-3.1.2-7", "MQTT5-3.1.2-8", "MQTT-3.1.2-14", "MQTT5-3.1.2-12")
@statement("MQTT-3.1.2-9", "MQTT5-3.1.2-9")
def test_the_will_is_published_when_the_connection_is_lost(mqtt: Mqtt, qos: int) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.connect(will=Will(mqtt.topic(), b"gone", qos=qos)).vanish()
    found = watcher.message()
    assert (found.topic, found.payload, found.qos) == (mqtt.topic().encode(), b"gone", qos)


@statement("MQTT-3.1.2-8", "MQTT5-3.1.2-8")
def test_the_will_is_published_when_the_client_breaks_the_protocol(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.connect(will=Will(mqtt.topic())).refused(mqtt.encode.subscribe(1))
    assert watcher.message().payload == b"will"


@statement("MQTT-3.1.2-8", "MQTT5-3.1.2-8")
def test_the_will_of_an_empty_payload_is_a_message_too(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.connect(will=Will(mqtt.topic(), b"")).vanish()
    assert watcher.message().payload == b""


@statement("MQTT-3.14.4-3", "MQTT5-3.14.4-3", "MQTT-3.1.2-10", "MQTT5-3.1.2-10")
def test_a_client_that_says_good_bye_has_no_will(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    client = mqtt.keep(will=Will(mqtt.topic()))
    client.disconnect()
    assert nothing_came(mqtt, watcher, mqtt.topic())
    # Nor does the session have it any more.
    mqtt.keep(client.id).vanish()
    assert nothing_came(mqtt, watcher, mqtt.topic())


@statement("MQTT-3.1.2-10", "MQTT5-3.1.2-10")
def test_a_will_is_published_once(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    client = mqtt.keep(will=Will(mqtt.topic()))
    client.vanish()
    assert watcher.message().payload == b"will"
    mqtt.keep(client.id).vanish()
    assert nothing_came(mqtt, watcher, mqtt.topic())


@statement("MQTT5-3.1.2-8")
def test_a_client_may_ask_for_its_will_as_it_leaves(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.connect(will=Will(mqtt.topic())).disconnect(0x04)
    assert watcher.message().payload == b"will"


@statement("MQTT-3.1.2-12")
def test_a_client_without_a_will_leaves_nothing_behind(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic("#"))
    client = mqtt.connect(will=Will(mqtt.topic()))
    second = mqtt.raw(client.id)
    client.disconnect()
    second.connect()
    second.vanish()
    assert nothing_came(mqtt, watcher, mqtt.topic())


@statement("MQTT-3.1.2-16", "MQTT5-3.1.2-14")
def test_a_will_without_retain_is_not_kept(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.connect(will=Will(mqtt.topic(), qos=1)).vanish()
    watcher.message()
    assert nothing_came(mqtt, mqtt.subscriber(mqtt.topic()), mqtt.topic())


@statement("MQTT-3.1.2-17", "MQTT5-3.1.2-15")
def test_a_will_with_retain_is_kept(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.connect(will=Will(mqtt.topic(), qos=1, retain=True)).vanish()
    watcher.message()
    found = mqtt.subscriber(mqtt.topic()).message()
    assert (found.payload, found.retain) == (b"will", True)


@statement("MQTT5-3.1.3-9")
def test_a_delayed_will_is_dropped_when_the_client_comes_back(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    delayed = Will(mqtt.topic(), b"delayed", properties=[("will_delay", 4)])
    client = mqtt.keep(will=delayed)
    client.vanish()
    again = mqtt.keep(client.id)
    assert again.connack.session_present
    # A will that is delayed longer comes later than the first would have.
    mqtt.keep(will=Will(mqtt.topic(), b"marker", properties=[("will_delay", 6)])).vanish()
    assert watcher.until(b"marker") == []


@statement("MQTT5-3.1.2-8")
def test_a_delayed_will_comes_after_its_delay(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.keep(will=Will(mqtt.topic(), b"second", properties=[("will_delay", 5)])).vanish()
    mqtt.keep(will=Will(mqtt.topic(), b"first", properties=[("will_delay", 1)])).vanish()
    assert [watcher.message().payload for _ in range(2)] == [b"first", b"second"]


@statement("MQTT5-3.1.3-10", "MQTT5-3.1.2-9")
def test_a_will_keeps_its_properties_and_their_order(mqtt: Mqtt) -> None:
    properties = [
        ("user", (b"z", b"1")),
        ("user", (b"a", b"2")),
        ("user", (b"z", b"0")),
        ("content_type", b"text/plain"),
        ("response_topic", b"where/to"),
        ("correlation_data", b"\0\xff"),
        ("payload_format", 1),
    ]
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.connect(will=Will(mqtt.topic(), properties=properties)).vanish()
    found = watcher.message().properties
    assert sorted(found, key=str) == sorted(properties, key=str)
    assert [value for name, value in found if name == "user"] == [
        (b"z", b"1"),
        (b"a", b"2"),
        (b"z", b"0"),
    ]


@statement("MQTT5-3.2.2-12", "MQTT5-3.2.2-13")
def test_a_will_is_taken_or_refused_as_the_broker_says_of_itself(mqtt: Mqtt) -> None:
    connack = mqtt.connect().connack
    for qos in (0, 1, 2):
        for retain in (False, True):
            answer = mqtt.raw().connect(will=Will(mqtt.topic(), qos=qos, retain=retain))
            able = qos <= connack.get("maximum_qos", 2)
            able = able and (not retain or connack.get("retain_available", 1) == 1)
            assert (answer.reason == 0) == able
