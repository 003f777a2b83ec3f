"""Strings: 1.5.3 of 3.1.1, 1.5.4 and 1.5.5 of 5."""

from __future__ import annotations

import pytest

from broker.conformance.client import CONNACK, PUBLISH, SUBACK, Will
from broker.conformance.connections import Mqtt, statement

ILL_FORMED = {
    "a lone octet": b"a\xff",
    "a lone continuation": b"a\x80",
    "a cut sequence": b"a\xe2\x82",
    "an overlong sequence": b"a\xc0\xaf",
    "a surrogate": b"a\xed\xa0\x80",
    "beyond U+10FFFF": b"a\xf4\x90\x80\x80",
}
WITH_NULL = b"a\0b"


def strings(mqtt: Mqtt, bad: bytes) -> dict[str, bytes]:
    """Each place of a client's packets that a string has in both versions."""
    return {
        "client identifier": mqtt.encode.connect(bad),
        "will topic": mqtt.encode.connect(mqtt.name(), will=Will(bad)),
        "user name": mqtt.encode.connect(mqtt.name(), username=bad),
        "topic name": mqtt.encode.publish(bad),
        "topic filter": mqtt.encode.subscribe(1, (bad, 0)),
        "filter to unsubscribe": mqtt.encode.unsubscribe(1, bad),
    }


PLACES = (
    "client identifier",
    "will topic",
    "user name",
    "topic name",
    "topic filter",
    "filter to unsubscribe",
)


def refuse(mqtt: Mqtt, place: str, bad: bytes) -> None:
    octets = strings(mqtt, bad)[place]
    (mqtt.raw() if octets[0] == 0x10 else mqtt.connect()).refused(octets)


@pytest.mark.parametrize("place", PLACES)
@statement("MQTT-1.5.3-1", "MQTT5-1.5.4-1")
def test_ill_formed_utf_8_ends_the_connection(mqtt: Mqtt, place: str) -> None:
    for bad in ILL_FORMED.values():
        refuse(mqtt, place, bad)


@pytest.mark.parametrize("place", PLACES)
@statement("MQTT-1.5.3-2", "MQTT5-1.5.4-2")
def test_the_null_character_ends_the_connection(mqtt: Mqtt, place: str) -> None:
    refuse(mqtt, place, WITH_NULL)


@statement("MQTT-3.8.3-1", "MQTT5-3.8.3-1")
def test_a_filter_to_subscribe_is_utf_8(mqtt: Mqtt) -> None:
    mqtt.connect().refused(mqtt.encode.subscribe(1, (b"a/\xff", 0)))


@statement("MQTT-3.10.3-1", "MQTT5-3.10.3-1")
def test_a_filter_to_unsubscribe_is_utf_8(mqtt: Mqtt) -> None:
    mqtt.connect().refused(mqtt.encode.unsubscribe(1, b"a/\xff"))


@statement("MQTT-3.3.2-1", "MQTT5-3.3.2-1")
def test_a_topic_name_is_utf_8(mqtt: Mqtt) -> None:
    mqtt.connect().refused(mqtt.encode.publish(b"a/\xff"))


@statement("MQTT5-3.3.2-13")
def test_a_response_topic_is_utf_8(mqtt: Mqtt) -> None:
    bad = [("response_topic", b"a/\xff")]
    mqtt.connect().refused(mqtt.encode.publish(mqtt.topic(), properties=bad))


@statement("MQTT5-3.3.2-19")
def test_a_content_type_is_utf_8(mqtt: Mqtt) -> None:
    bad = [("content_type", b"a/\xff")]
    mqtt.connect().refused(mqtt.encode.publish(mqtt.topic(), properties=bad))


@statement("MQTT-1.5.3-3", "MQTT5-1.5.4-3")
def test_a_byte_order_mark_is_a_character_like_any_other(mqtt: Mqtt) -> None:
    marked, plain = mqtt.topic("\ufeffa"), mqtt.topic("a")
    watcher = mqtt.subscriber(marked)
    mqtt.connect().publish(plain, b"without", qos=1)
    mqtt.connect().publish(marked, b"with", qos=1)
    found = watcher.expect(PUBLISH)
    assert (found.topic, found.payload) == (marked.encode(), b"with")


@statement("MQTT5-1.5.5-1", "MQTT5-4.2.0-1", "MQTT-7.1.1-1")
def test_long_messages_arrive_whole_and_lengths_are_as_short_as_they_can_be(mqtt: Mqtt) -> None:
    # The client refuses any that is not.
    watcher, publisher = mqtt.subscriber(mqtt.topic()), mqtt.connect()
    for size in (100, 130, 16_300, 16_390, 100_000):
        payload = bytes(number % 251 for number in range(size))
        publisher.publish(mqtt.topic(), payload, qos=1)
        assert watcher.message().payload == payload


@statement("MQTT5-4.2.0-1", "MQTT-7.1.1-1")
def test_packets_may_come_in_pieces_and_together(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    octets = mqtt.encode.connect(client.id) + mqtt.encode.subscribe(1, (mqtt.topic(), 0))
    for each in octets:
        client.send(bytes([each]))
    client.expect(CONNACK)
    client.expect(SUBACK)
    client.send(*(mqtt.encode.publish(mqtt.topic(), bytes([n])) for n in range(100)))
    assert [each.payload for each in client.settle()[:100]] == [bytes([n]) for n in range(100)]
