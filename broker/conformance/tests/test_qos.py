"""The flows of QoS 1 and 2, and sending again: 4.3 and 4.4, and 3.4 to 3.7 of MQTT 5."""

from __future__ import annotations

import time

import pytest

from broker.conformance.client import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    Client,
    Packet,
)
from broker.conformance.connections import Mqtt, statement

# ---- the broker receives ------------------------------------------------------------------------


@statement("MQTT-4.3.2-2", "MQTT5-4.3.2-4", "MQTT-2.3.1-6", "MQTT5-2.2.1-5", "MQTT5-3.4.2-1")
def test_a_qos_1_publish_is_acknowledged_with_its_identifier(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    for packet_id in (1, 65535, 256, 77):
        client.send(mqtt.encode.publish(mqtt.topic(), qos=1, packet_id=packet_id))
        assert client.expect(PUBACK).packet_id == packet_id


@statement("MQTT-4.3.2-2", "MQTT5-4.3.2-5")
def test_an_identifier_is_free_again_after_puback_whatever_dup_says(mqtt: Mqtt) -> None:
    watcher, client = mqtt.subscriber(mqtt.topic()), mqtt.connect()
    for dup in (False, True):
        client.send(mqtt.encode.publish(mqtt.topic(), b"x", qos=1, dup=dup, packet_id=9))
        client.expect(PUBACK)
    client.publish(mqtt.topic(), b"marker", qos=1)
    assert len(watcher.until(b"marker")) == 2


@statement("MQTT-4.3.3-2", "MQTT5-4.3.3-8", "MQTT5-4.3.3-11", "MQTT-2.3.1-6", "MQTT5-2.2.1-5")
@statement("MQTT5-3.5.2-1", "MQTT5-3.7.2-1")
def test_a_qos_2_publish_is_received_and_completed_with_its_identifier(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    for packet_id in (1, 65535, 256):
        client.send(mqtt.encode.publish(mqtt.topic(), qos=2, packet_id=packet_id))
        assert client.expect(PUBREC).packet_id == packet_id
        client.send(mqtt.encode.ack(PUBREL, packet_id))
        assert client.expect(PUBCOMP).packet_id == packet_id


@statement("MQTT-4.3.3-2", "MQTT5-4.3.3-10")
def test_a_repeated_qos_2_publish_is_received_again_and_delivered_once(mqtt: Mqtt) -> None:
    watcher, client = mqtt.subscriber(mqtt.topic()), mqtt.connect()
    for dup in (False, True, True):
        client.send(mqtt.encode.publish(mqtt.topic(), b"x", qos=2, dup=dup, packet_id=5))
        assert client.expect(PUBREC).packet_id == 5
    client.send(mqtt.encode.ack(PUBREL, 5))
    client.expect(PUBCOMP)
    client.publish(mqtt.topic(), b"marker", qos=2)
    assert len(watcher.until(b"marker")) == 1


@statement("MQTT-4.3.3-2", "MQTT5-4.3.3-10", "MQTT-4.4.0-1", "MQTT5-4.4.0-1")
def test_a_qos_2_publish_is_delivered_once_over_a_lost_connection(mqtt: Mqtt) -> None:
    watcher, client = mqtt.subscriber(mqtt.topic()), mqtt.keep()
    client.send(mqtt.encode.publish(mqtt.topic(), b"x", qos=2, packet_id=5))
    client.expect(PUBREC)
    client.vanish()
    again = mqtt.keep(client.id)
    again.send(mqtt.encode.publish(mqtt.topic(), b"x", qos=2, dup=True, packet_id=5))
    again.expect(PUBREC)
    again.send(mqtt.encode.ack(PUBREL, 5))
    again.expect(PUBCOMP)
    mqtt.connect().publish(mqtt.topic(), b"marker", qos=2)
    assert len(watcher.until(b"marker")) == 1


@statement("MQTT-4.3.3-2", "MQTT5-4.3.3-12")
def test_an_identifier_is_free_again_after_pubcomp(mqtt: Mqtt) -> None:
    watcher, client = mqtt.subscriber(mqtt.topic()), mqtt.connect()
    for dup in (False, True):
        client.send(mqtt.encode.publish(mqtt.topic(), b"x", qos=2, dup=dup, packet_id=5))
        client.expect(PUBREC)
        client.send(mqtt.encode.ack(PUBREL, 5))
        client.expect(PUBCOMP)
    client.publish(mqtt.topic(), b"marker", qos=2)
    assert len(watcher.until(b"marker")) == 2


@statement("MQTT-4.3.3-2", "MQTT5-4.3.3-11")
def test_a_pubrel_for_nothing_is_completed_too(mqtt: Mqtt) -> None:
    # After a lost PUBCOMP a client cannot know that the broker has forgotten the message.
    client = mqtt.connect()
    client.send(mqtt.encode.ack(PUBREL, 1234))
    assert client.expect(PUBCOMP).packet_id == 1234


@statement("MQTT5-4.3.3-13")
def test_a_publish_that_expires_is_completed(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    expiry = [("message_expiry", 1)]
    client.send(mqtt.encode.publish(mqtt.topic(), qos=2, packet_id=5, properties=expiry))
    client.expect(PUBREC)
    time.sleep(2)
    client.send(mqtt.encode.ack(PUBREL, 5))
    assert client.expect(PUBCOMP).reason == 0


# ---- the broker sends ---------------------------------------------------------------------------


def delivered(mqtt: Mqtt, qos: int) -> tuple[Client, Packet]:
    """A client with a lasting session, and a message to it that it has not acknowledged."""
    client = mqtt.keep()
    client.subscribe((mqtt.topic(), qos))
    mqtt.connect().publish(mqtt.topic(), b"x", qos=qos)
    return client, client.expect(PUBLISH)


@statement("MQTT-2.3.1-4", "MQTT5-2.2.1-4", "MQTT5-4.3.2-1", "MQTT5-4.3.2-2", "MQTT-4.3.2-1")
@statement("MQTT5-4.3.3-1", "MQTT5-4.3.3-2", "MQTT-4.3.3-1")
def test_messages_in_flight_have_identifiers_of_their_own_and_no_dup(mqtt: Mqtt) -> None:
    watcher, publisher = mqtt.subscriber(mqtt.topic()), mqtt.connect()
    for number in range(10):
        publisher.publish(mqtt.topic(), b"x", qos=1 + number % 2)
    found = [watcher.expect(PUBLISH) for _ in range(10)]
    assert len({each.packet_id for each in found}) == 10
    assert not any(each.dup for each in found)


@pytest.mark.parametrize("qos", [1, 2])
@statement("MQTT-4.4.0-1", "MQTT5-4.4.0-1", "MQTT-3.3.1-1", "MQTT5-3.3.1-1", "MQTT-4.3.2-1")
@statement("MQTT5-4.3.2-3", "MQTT5-4.3.3-3", "MQTT-4.3.3-1")
def test_what_was_not_acknowledged_comes_again_as_a_duplicate(mqtt: Mqtt, qos: int) -> None:
    client, first = delivered(mqtt, qos)
    assert client.settle() == []
    client.vanish()
    again = mqtt.keep(client.id).expect(PUBLISH)
    assert (again.packet_id, again.payload, again.qos) == (first.packet_id, b"x", qos)
    assert again.dup


@statement("MQTT-4.4.0-1", "MQTT5-4.4.0-1", "MQTT-4.6.0-6", "MQTT5-4.6.0-5")
def test_several_come_again_in_their_order(mqtt: Mqtt) -> None:
    client = mqtt.keep()
    client.subscribe((mqtt.topic(), 1))
    publisher = mqtt.connect()
    payloads = [str(number).encode() for number in range(5)]
    for payload in payloads:
        publisher.publish(mqtt.topic(), payload, qos=1)
    first = [client.expect(PUBLISH) for _ in payloads]
    client.vanish()
    connection = mqtt.keep(client.id)
    again = [connection.expect(PUBLISH) for _ in payloads]
    assert [(each.packet_id, each.payload) for each in again] == [
        (each.packet_id, each.payload) for each in first
    ]


@statement("MQTT-4.3.2-1", "MQTT5-4.3.2-3")
def test_what_was_acknowledged_does_not_come_again(mqtt: Mqtt) -> None:
    client, first = delivered(mqtt, 1)
    client.send(mqtt.encode.ack(PUBACK, first.packet_id))
    client.disconnect()
    again = mqtt.keep(client.id)
    mqtt.connect().publish(mqtt.topic(), b"marker", qos=1)
    assert again.until(b"marker") == []


@statement("MQTT-4.3.3-1", "MQTT5-4.3.3-4", "MQTT5-3.6.2-1", "MQTT-2.3.1-6", "MQTT5-2.2.1-5")
def test_a_pubrec_is_answered_by_a_pubrel_of_the_same_identifier(mqtt: Mqtt) -> None:
    client, first = delivered(mqtt, 2)
    client.send(mqtt.encode.ack(PUBREC, first.packet_id))
    released = client.expect(PUBREL)
    assert (released.packet_id, released.reason) == (first.packet_id, 0)


@statement("MQTT-4.3.3-1", "MQTT5-4.3.3-5", "MQTT5-4.3.3-6", "MQTT-4.4.0-1", "MQTT5-4.4.0-1")
def test_a_pubrel_comes_again_until_pubcomp_and_the_publish_does_not(mqtt: Mqtt) -> None:
    client, first = delivered(mqtt, 2)
    client.send(mqtt.encode.ack(PUBREC, first.packet_id))
    client.expect(PUBREL)
    client.vanish()
    again = mqtt.keep(client.id)
    assert again.receive().packet_id == first.packet_id
    again.send(mqtt.encode.ack(PUBCOMP, first.packet_id))
    again.disconnect()
    last = mqtt.keep(client.id)
    mqtt.connect().publish(mqtt.topic(), b"marker", qos=2)
    assert last.until(b"marker") == []


@statement("MQTT5-4.4.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_an_error_acknowledges_too(mqtt: Mqtt, qos: int) -> None:
    client, first = delivered(mqtt, qos)
    client.send(mqtt.encode.ack(PUBACK if qos == 1 else PUBREC, first.packet_id, 0x80))
    # No PUBREL: the exchange is over.
    assert client.settle() == []
    client.disconnect()
    again = mqtt.keep(client.id)
    mqtt.connect().publish(mqtt.topic(), b"marker", qos=qos)
    assert again.until(b"marker") == []


@statement("MQTT5-4.3.3-7")
def test_a_publish_that_was_sent_does_not_expire(mqtt: Mqtt) -> None:
    client = mqtt.keep()
    client.subscribe((mqtt.topic(), 2))
    expiry = [("message_expiry", 2)]
    mqtt.connect().publish(mqtt.topic(), b"x", qos=2, properties=expiry)
    first = client.expect(PUBLISH)
    time.sleep(4)
    client.vanish()
    connection = mqtt.keep(client.id)
    mqtt.connect().publish(mqtt.topic(), b"marker", qos=2)
    again = connection.expect(PUBLISH)
    assert (again.packet_id, again.payload) == (first.packet_id, b"x")


@statement("MQTT-4.5.0-1", "MQTT5-4.5.0-1")
def test_a_message_is_kept_for_each_session_that_subscribed(mqtt: Mqtt) -> None:
    offline = [mqtt.keep() for _ in range(3)]
    for client in offline:
        client.subscribe((mqtt.topic(), 1))
        client.disconnect()
    online = mqtt.subscriber((mqtt.topic(), 1))
    mqtt.connect().publish(mqtt.topic(), b"x", qos=1)
    for client in [online, *(mqtt.keep(each.id) for each in offline)]:
        assert client.message().payload == b"x"


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBCOMP], ids=["PUBACK", "PUBREC", "PUBCOMP"])
@statement("MQTT5-3.4.2-2", "MQTT5-3.4.2-3", "MQTT5-3.5.2-2", "MQTT5-3.5.2-3", "MQTT5-3.7.2-2")
@statement("MQTT5-3.7.2-3")
def test_an_acknowledgement_has_no_text_that_makes_it_too_long(mqtt: Mqtt, kind: int) -> None:
    # No subscriber: a reason is likely (0x10). CONNACK has to fit as well.
    least = len(mqtt.connect().connack.raw)
    client = mqtt.connect(properties=[("maximum_packet_size", least)])
    qos = 1 if kind == PUBACK else 2
    client.send(mqtt.encode.publish(mqtt.topic(), qos=qos, packet_id=1))
    answer = client.receive()
    if kind == PUBCOMP:
        client.send(mqtt.encode.ack(PUBREL, 1))
        answer = client.receive()
    assert answer.kind == kind
    assert len(answer.raw) <= least


@statement("MQTT5-3.6.2-2", "MQTT5-3.6.2-3")
def test_a_pubrel_has_no_text_that_makes_it_too_long(mqtt: Mqtt) -> None:
    least = len(mqtt.connect().connack.raw)
    client = mqtt.connect(properties=[("maximum_packet_size", max(least, 30))])
    client.subscribe((mqtt.topic(), 2))
    mqtt.connect().publish(mqtt.topic(), b"x", qos=2)
    client.send(mqtt.encode.ack(PUBREC, client.expect(PUBLISH).packet_id))
    assert len(client.expect(PUBREL).raw) <= 30


@statement("MQTT5-3.1.2-29")
def test_no_text_comes_to_a_client_that_does_not_want_problem_information(mqtt: Mqtt) -> None:
    client = mqtt.connect(properties=[("request_problem", 0)])
    answers = [
        client.publish(mqtt.topic(), qos=1),
        client.publish(mqtt.topic(), qos=2),
        client.subscribe(mqtt.topic()),
        client.unsubscribe(mqtt.topic("never")),
    ]
    assert not [each for each in answers if each is None or each.properties]
