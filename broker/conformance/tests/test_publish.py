"""PUBLISH: section 3.3 of both standards, retained messages and what is forwarded."""

from __future__ import annotations

import time

import pytest

from broker.conformance.client import PUBACK, PUBLISH, PUBREC, Client
from broker.conformance.connections import Mqtt, statement

NO_RETAINED_TWICE, NEVER_RETAINED = 0x10, 0x20
RETAIN_AS_PUBLISHED = 0x08


def until_marker(mqtt: Mqtt, client: Client, topic: str) -> list[bytes]:
    """Payloads that come before a message that is published now."""
    mqtt.connect().publish(topic, b"marker", qos=1)
    return [each.payload for each in client.until(b"marker")]


# ---- retained -----------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@statement("MQTT-3.3.1-5", "MQTT5-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-8", "MQTT5-3.3.1-9")
def test_the_last_retained_message_comes_with_a_new_subscription(mqtt: Mqtt, qos: int) -> None:
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic(), b"older", qos=qos, retain=True)
    publisher.publish(mqtt.topic(), b"newer", qos=qos, retain=True)
    publisher.settle()
    found = mqtt.subscriber(mqtt.topic()).message()
    assert (found.payload, found.qos, found.retain) == (b"newer", qos, True)


@statement("MQTT-3.3.1-7")
def test_a_retained_qos_0_message_replaces_the_one_before(mqtt: Mqtt) -> None:
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic(), b"older", qos=1, retain=True)
    publisher.publish(mqtt.topic(), b"newer", qos=0, retain=True)
    publisher.settle()
    watcher = mqtt.subscriber(mqtt.topic())
    assert b"older" not in until_marker(mqtt, watcher, mqtt.topic())


@statement("MQTT-3.3.1-9", "MQTT5-3.3.1-12")
def test_a_message_to_an_established_subscription_is_not_called_retained(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.connect().publish(mqtt.topic(), b"now", qos=1, retain=True)
    assert not watcher.message().retain


@statement("MQTT5-3.3.1-13")
def test_retain_as_published_keeps_the_flag(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber((mqtt.topic(), RETAIN_AS_PUBLISHED))
    publisher = mqtt.connect()
    for retain in (True, False):
        publisher.publish(mqtt.topic(), b"now", qos=1, retain=retain)
        assert watcher.message().retain == retain


@statement("MQTT-3.3.1-10", "MQTT-3.3.1-11", "MQTT5-3.3.1-6", "MQTT5-3.3.1-7")
def test_an_empty_retained_message_is_forwarded_and_removes_the_one_before(mqtt: Mqtt) -> None:
    publisher, watcher = mqtt.connect(), mqtt.subscriber(mqtt.topic())
    publisher.publish(mqtt.topic(), b"old", qos=1, retain=True)
    publisher.publish(mqtt.topic(), b"", qos=1, retain=True)
    assert [watcher.message().payload for _ in range(2)] == [b"old", b""]
    later = mqtt.subscriber(mqtt.topic())
    assert until_marker(mqtt, later, mqtt.topic()) == []


@statement("MQTT-3.3.1-12", "MQTT5-3.3.1-8")
def test_a_message_without_retain_leaves_the_retained_one_alone(mqtt: Mqtt) -> None:
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic("never"), b"not kept", qos=1)
    publisher.publish(mqtt.topic(), b"kept", qos=1, retain=True)
    publisher.publish(mqtt.topic(), b"passing", qos=1)
    publisher.publish(mqtt.topic(), b"", qos=1)
    later = mqtt.subscriber(mqtt.topic("+"))
    assert until_marker(mqtt, later, mqtt.topic()) == [b"kept"]


@statement("MQTT5-3.3.1-9")
def test_retain_handling_0_sends_all_retained_messages_each_time(mqtt: Mqtt) -> None:
    publisher = mqtt.connect()
    for name in ("a", "b"):
        publisher.publish(mqtt.topic(name), name.encode(), qos=1, retain=True)
    watcher = mqtt.connect()
    for _ in range(2):
        watcher.subscribe(mqtt.topic("+"))
        assert {watcher.message().payload for _ in range(2)} == {b"a", b"b"}


@statement("MQTT5-3.3.1-10")
def test_retain_handling_1_sends_them_to_new_subscriptions_only(mqtt: Mqtt) -> None:
    mqtt.connect().publish(mqtt.topic(), b"kept", qos=1, retain=True)
    watcher = mqtt.subscriber((mqtt.topic(), NO_RETAINED_TWICE))
    assert watcher.message().payload == b"kept"
    watcher.subscribe((mqtt.topic(), NO_RETAINED_TWICE))
    assert until_marker(mqtt, watcher, mqtt.topic()) == []


@statement("MQTT5-3.3.1-11")
def test_retain_handling_2_sends_none(mqtt: Mqtt) -> None:
    mqtt.connect().publish(mqtt.topic(), b"kept", qos=1, retain=True)
    watcher = mqtt.subscriber((mqtt.topic(), NEVER_RETAINED))
    assert until_marker(mqtt, watcher, mqtt.topic()) == []


# ---- what is forwarded --------------------------------------------------------------------------


@statement("MQTT-3.3.2-2", "MQTT5-3.3.2-2", "MQTT-4.7.1-1", "MQTT5-4.7.0-1")
def test_a_topic_name_with_a_wildcard_is_refused(mqtt: Mqtt) -> None:
    for name in ("+", "#", mqtt.topic("+"), mqtt.topic("#"), mqtt.topic("a+b"), mqtt.topic("a#")):
        mqtt.connect().refused(mqtt.encode.publish(name))


@statement("MQTT-3.3.2-3", "MQTT5-3.3.2-3")
def test_the_topic_arrives_as_it_was_published(mqtt: Mqtt) -> None:
    for name in ("a/b", "a//b", "Ä/ é", "a/" + "x" * 300):
        watcher = mqtt.subscriber(mqtt.topic("#"))
        mqtt.connect().publish(mqtt.topic(name), b"x", qos=1)
        assert watcher.message().topic == mqtt.topic(name).encode()


@statement("MQTT-3.3.1-3", "MQTT5-3.3.1-3")
def test_the_publisher_s_dup_is_not_passed_on(mqtt: Mqtt) -> None:
    watcher, publisher = mqtt.subscriber(mqtt.topic()), mqtt.connect()
    publisher.send(mqtt.encode.publish(mqtt.topic(), b"x", qos=1, dup=True, packet_id=1))
    publisher.expect(PUBACK)
    assert not watcher.message().dup


@statement("MQTT-3.3.4-1", "MQTT5-3.3.4-1")
def test_a_publish_is_answered_as_its_qos_demands(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    client.send(mqtt.encode.publish(mqtt.topic()))
    assert client.settle() == []
    client.send(mqtt.encode.publish(mqtt.topic(), qos=1, packet_id=1))
    assert client.expect(PUBACK).packet_id == 1
    client.send(mqtt.encode.publish(mqtt.topic(), qos=2, packet_id=2))
    assert client.expect(PUBREC).packet_id == 2


FORWARDED = [
    ("payload_format", 1, "MQTT5-3.3.2-4"),
    ("response_topic", b"where/to", "MQTT5-3.3.2-15"),
    ("correlation_data", b"\x00\xff42", "MQTT5-3.3.2-16"),
    ("content_type", b"text/plain", "MQTT5-3.3.2-20"),
]


@pytest.mark.parametrize(("name", "value"), [each[:2] for each in FORWARDED], ids=lambda each: "")
@statement(*(each[2] for each in FORWARDED))
def test_a_property_is_forwarded_unaltered(mqtt: Mqtt, name: str, value: object) -> None:
    watchers = [mqtt.subscriber(mqtt.topic()), mqtt.subscriber(mqtt.topic("#"))]
    mqtt.connect().publish(mqtt.topic(), b"text", qos=1, properties=[(name, value)], retain=True)
    for watcher in [*watchers, mqtt.subscriber(mqtt.topic())]:
        assert watcher.message().properties == [(name, value)]


@statement("MQTT5-3.3.2-17", "MQTT5-3.3.2-18")
def test_user_properties_are_forwarded_in_their_order(mqtt: Mqtt) -> None:
    pairs = [(b"b", b"1"), (b"a", b"2"), (b"b", b"1"), (b"", b""), (b"a", b"\xef\xbb\xbf")]
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.connect().publish(mqtt.topic(), b"", qos=1, properties=[("user", each) for each in pairs])
    assert watcher.message().all("user") == pairs


@statement("MQTT5-3.3.2-14")
def test_a_response_topic_with_a_wildcard_is_refused(mqtt: Mqtt) -> None:
    for topic in ("a/+", "#"):
        octets = mqtt.encode.publish(mqtt.topic(), properties=[("response_topic", topic)])
        mqtt.connect().refused(octets)


@statement("MQTT5-3.3.2-6")
def test_the_expiry_interval_is_what_is_left_of_it(mqtt: Mqtt) -> None:
    offline = mqtt.keep()
    offline.subscribe((mqtt.topic(), 1))
    offline.disconnect()
    expiry = [("message_expiry", 1000)]
    mqtt.connect().publish(mqtt.topic(), b"x", qos=1, retain=True, properties=expiry)
    # Time has to pass, and no broker says when it does.
    time.sleep(2)
    for found in (mqtt.keep(offline.id).message(), mqtt.subscriber(mqtt.topic()).message()):
        assert 900 < found.get("message_expiry") < 1000


@statement("MQTT5-3.3.2-5")
def test_a_message_is_not_delivered_after_its_expiry(mqtt: Mqtt) -> None:
    offline = mqtt.keep()
    offline.subscribe((mqtt.topic(), 1))
    offline.disconnect()
    expiry = [("message_expiry", 1)]
    mqtt.connect().publish(mqtt.topic(), b"late", qos=1, retain=True, properties=expiry)
    time.sleep(3)
    assert until_marker(mqtt, mqtt.keep(offline.id), mqtt.topic()) == []
    later = mqtt.subscriber(mqtt.topic())
    assert until_marker(mqtt, later, mqtt.topic()) == []


# ---- several subscriptions of one client --------------------------------------------------------


@statement("MQTT-3.3.5-1", "MQTT5-3.3.4-2")
def test_overlapping_subscriptions_deliver_at_the_highest_qos(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber((mqtt.topic(), 0), (mqtt.topic("+"), 2), (mqtt.topic("#"), 1))
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic(), b"one", qos=2)
    publisher.publish(mqtt.topic(), b"marker", qos=2)
    copies = [watcher.message()]
    while (found := watcher.message()).payload == b"one":
        copies.append(found)
    assert max(each.qos for each in copies) == 2
    assert len(copies) <= 3


@statement("MQTT5-3.3.4-3", "MQTT5-3.3.4-4", "MQTT5-3.3.4-5")
def test_messages_carry_the_identifiers_of_their_subscriptions(mqtt: Mqtt) -> None:
    watcher = mqtt.connect()
    watcher.subscribe(mqtt.topic(), properties=[("subscription_id", 1)])
    watcher.subscribe(mqtt.topic("+"), properties=[("subscription_id", 268_435_455)])
    watcher.subscribe(mqtt.topic("#"))
    watcher.subscribe(mqtt.topic("other"), properties=[("subscription_id", 7)])
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic(), b"one", qos=2)
    publisher.publish(mqtt.topic(), b"marker", qos=2)
    copies = [watcher.message()]
    while (found := watcher.message()).payload == b"one":
        copies.append(found)
    identifiers = [each.all("subscription_id") for each in copies]
    # One copy has them all; several have their own each.
    assert sorted(number for each in identifiers for number in each) == [1, 268_435_455]
    assert len(copies) == 1 or all(len(each) <= 1 for each in identifiers)


@statement("MQTT-4.6.0-5", "MQTT-4.6.0-6", "MQTT5-4.6.0-5", "MQTT5-4.6.0-6")
def test_messages_of_a_client_arrive_in_the_order_they_were_sent(mqtt: Mqtt) -> None:
    for qos in (0, 1):
        watcher, publisher = mqtt.subscriber(mqtt.topic(str(qos))), mqtt.connect()
        payloads = [str(number).encode() for number in range(15)]
        publisher.send(
            *(
                mqtt.encode.publish(
                    mqtt.topic(str(qos)), payload, qos=qos, packet_id=qos and number + 1
                )
                for number, payload in enumerate(payloads)
            )
        )
        assert [watcher.message().payload for _ in payloads] == payloads


@statement("MQTT-4.3.1-1", "MQTT5-4.3.1-1", "MQTT-3.3.1-2", "MQTT5-3.3.1-2", "MQTT-2.3.1-5")
@statement("MQTT5-2.2.1-2")
def test_a_qos_0_message_arrives_once_without_dup_and_identifier(mqtt: Mqtt) -> None:
    # With an identifier, the payload would begin with two octets more.
    watcher, publisher = mqtt.subscriber(mqtt.topic()), mqtt.connect()
    publisher.publish(mqtt.topic(), b"payload")
    publisher.publish(mqtt.topic(), b"marker")
    (found,) = watcher.until(b"marker")
    assert (found.payload, found.qos, found.dup) == (b"payload", 0, False)


@statement("MQTT-2.3.1-5", "MQTT5-2.2.1-2")
def test_a_qos_0_publish_is_read_without_an_identifier(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.connect().publish(mqtt.topic(), b"\0\1 starts like one")
    assert watcher.expect(PUBLISH).payload == b"\0\1 starts like one"
