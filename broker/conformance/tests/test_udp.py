"""MQTT over UDP, where statements of 3.1.1 apply to it: QoS 0, without connections and sessions."""

from __future__ import annotations

import time

import pytest

from broker.conformance.client import PING, PINGRESP, PUBLISH, SUBACK, UNSUBACK, Client
from broker.conformance.connections import Mqtt, statement
from broker.conformance.tests.test_topics import INVALID, MATCHING


def subscriber(udp: Mqtt, *filters: str) -> Client:
    client = udp.connect()
    assert client.subscribe(*((each, 0) for each in filters)).reasons == [0] * len(filters)
    return client


def payloads(client: Client, publisher: Client, topic: str) -> list[bytes]:
    """What came before a message that is published now."""
    publisher.publish(topic, b"marker")
    return [each.payload for each in client.until(b"marker")]


@statement("MQTT-3.1.4-4", "MQTT-3.2.2-1")
def test_a_connect_is_acknowledged(udp: Mqtt) -> None:
    assert not udp.connect().connack.session_present


@statement("MQTT-3.12.4-1")
def test_each_pingreq_is_answered(udp: Mqtt) -> None:
    client = udp.connect()
    client.send(PING * 3)
    assert [client.receive().kind for _ in range(3)] == [PINGRESP] * 3


@statement("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-2.3.1-7")
def test_a_subscribe_is_acknowledged_with_its_identifier(udp: Mqtt) -> None:
    client = udp.connect()
    for packet_id in (1, 256, 65535):
        client.send(udp.encode.subscribe(packet_id, (udp.topic(), 0)))
        assert client.expect(SUBACK).packet_id == packet_id


@statement("MQTT-3.8.4-4", "MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.9.3-1", "MQTT-3.9.3-2")
def test_each_filter_has_its_code(udp: Mqtt) -> None:
    answer = udp.connect().subscribe((udp.topic("a"), 0), ("a/#/b", 0), (udp.topic("b"), 2))
    assert answer.reasons == [0, 0x80, 0]


@pytest.mark.parametrize("pattern", [each for group in INVALID.values() for each in group])
@statement("MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.3-1")
def test_an_invalid_filter_is_refused(udp: Mqtt, pattern: str) -> None:
    assert udp.connect().subscribe((pattern, 0)).reasons == [0x80]


@statement("MQTT-3.8.4-3")
def test_the_same_filter_again_is_granted_and_gives_one_copy(udp: Mqtt) -> None:
    publisher = udp.connect()
    publisher.publish(udp.topic(), b"kept", retain=True)
    publisher.settle()
    client = udp.connect()
    for _ in range(2):
        client.subscribe((udp.topic(), 0))
        assert client.message().payload == b"kept"
    publisher.publish(udp.topic(), b"once")
    assert payloads(client, publisher, udp.topic()) == [b"once"]


@statement("MQTT-3.10.4-1", "MQTT-3.10.4-2", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.10.4-6")
def test_unsubscribing_ends_exactly_those_subscriptions(udp: Mqtt) -> None:
    names = [udp.topic(name) for name in ("a", "b", "c")]
    client, publisher = subscriber(udp, *names), udp.connect()
    client.send(udp.encode.unsubscribe(77, names[0], udp.topic("never"), udp.topic("+"), names[1]))
    assert client.expect(UNSUBACK).packet_id == 77
    for name in names:
        publisher.publish(name, name.encode())
    assert payloads(client, publisher, names[2]) == [names[2].encode()]


@statement("MQTT-4.3.1-1", "MQTT-3.3.1-2", "MQTT-2.3.1-5", "MQTT-3.3.4-1")
def test_a_message_arrives_once_as_it_was_sent(udp: Mqtt) -> None:
    client, publisher = subscriber(udp, udp.topic()), udp.connect()
    publisher.publish(udp.topic(), b"\0\1payload")
    found = client.expect(PUBLISH)
    assert (found.topic, found.payload) == (udp.topic().encode(), b"\0\1payload")
    assert found.flags == 0
    assert payloads(client, publisher, udp.topic()) == []
    assert publisher.settle() == []


@pytest.mark.parametrize("number", range(len(MATCHING)))
@statement("MQTT-3.3.2-3", "MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.3-4")
def test_a_filter_matches_what_it_should_and_nothing_else(udp: Mqtt, number: int) -> None:
    pattern, right, wrong = MATCHING[number]
    marker = udp.topic() + "/marker/of/it"
    client, publisher = subscriber(udp, udp.topic(pattern), marker), udp.connect()
    for name in [*wrong, *right]:
        publisher.publish(udp.topic(name), name.encode())
    publisher.publish(marker, b"marker")
    # One copy for each subscription that matches the marker.
    found = [each.payload.decode() for each in client.until(b"marker")]
    assert sorted(found) == sorted(right)


@statement("MQTT-3.3.2-2", "MQTT-4.7.1-1")
def test_a_topic_name_with_a_wildcard_goes_nowhere(udp: Mqtt) -> None:
    client, publisher = subscriber(udp, udp.topic("#")), udp.connect()
    for name in ("+", "a+", "#"):
        publisher.publish(udp.topic(name), b"x")
    assert payloads(client, publisher, udp.topic()) == []


@statement("MQTT-4.7.2-1")
def test_dollar_topics_are_not_seen(udp: Mqtt) -> None:
    client, publisher = subscriber(udp, "#"), udp.connect()
    publisher.publish("$hidden/a", b"hidden")
    assert b"hidden" not in payloads(client, publisher, udp.topic())


@statement("MQTT-4.6.0-5", "MQTT-4.6.0-6")
def test_messages_arrive_in_the_order_they_were_sent(udp: Mqtt) -> None:
    client, publisher = subscriber(udp, udp.topic()), udp.connect()
    sent = [str(number).encode() for number in range(20)]
    for payload in sent:
        publisher.publish(udp.topic(), payload)
        # A socket's buffer is not the broker's affair.
        assert client.message().payload == payload
    assert payloads(client, publisher, udp.topic()) == []


@statement("MQTT-3.3.5-1")
def test_overlapping_subscriptions_get_the_message(udp: Mqtt) -> None:
    client, publisher = subscriber(udp, udp.topic(), udp.topic("+")), udp.connect()
    publisher.publish(udp.topic(), b"x")
    assert {each.payload for each in (client.message(), client.message())} == {b"x"}


@statement("MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-7", "MQTT-3.3.1-8", "MQTT-3.3.1-9")
def test_the_last_retained_message_comes_with_a_new_subscription(udp: Mqtt) -> None:
    established, publisher = subscriber(udp, udp.topic()), udp.connect()
    publisher.publish(udp.topic(), b"older", retain=True)
    publisher.publish(udp.topic(), b"newer", retain=True)
    assert [established.message().retain for _ in range(2)] == [False, False]
    found = subscriber(udp, udp.topic()).message()
    assert (found.payload, found.retain) == (b"newer", True)


@statement("MQTT-3.3.1-10", "MQTT-3.3.1-11", "MQTT-3.3.1-12")
def test_an_empty_retained_message_removes_the_one_before(udp: Mqtt) -> None:
    established, publisher = subscriber(udp, udp.topic()), udp.connect()
    publisher.publish(udp.topic(), b"kept", retain=True)
    publisher.publish(udp.topic(), b"passing")
    publisher.publish(udp.topic(), b"marker")
    established.until(b"marker")
    assert subscriber(udp, udp.topic()).message().payload == b"kept"
    publisher.publish(udp.topic(), b"", retain=True)
    assert established.message().payload == b""
    assert payloads(subscriber(udp, udp.topic()), publisher, udp.topic()) == []


@statement("MQTT-3.1.2-24")
def test_a_silent_subscriber_is_forgotten(udp: Mqtt) -> None:
    awake, publisher = subscriber(udp, udp.topic()), udp.connect()
    silent = udp.connect(keep_alive=1)
    silent.subscribe((udp.topic(), 0))
    time.sleep(3)
    assert payloads(awake, publisher, udp.topic()) == []
    # It begins again; what was published came to others alone.
    assert silent.connect().reason == 0
    assert silent.settle() == []
