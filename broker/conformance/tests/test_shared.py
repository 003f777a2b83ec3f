"""Shared subscriptions of MQTT 5: section 4.8.2."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.conformance.client import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    Client,
    Packet,
)
from broker.conformance.connections import Mqtt, statement

NO_LOCAL = 0x04


def shared(mqtt: Mqtt, name: str = "group") -> str:
    """A shared filter of this test."""
    return f"$share/{name}/{mqtt.topic()}"


@statement("MQTT5-4.8.2-1", "MQTT5-4.8.2-2")
def test_a_group_gets_each_message_once_and_others_get_all(mqtt: Mqtt) -> None:
    members = [mqtt.subscriber((shared(mqtt), 1)) for _ in range(3)]
    other_group = mqtt.subscriber((shared(mqtt, "other"), 1))
    alone = mqtt.subscriber((mqtt.topic(), 1))
    publisher, count = mqtt.connect(), 30
    for number in range(count):
        publisher.publish(mqtt.topic(), str(number).encode(), qos=1)
    expected = [str(number).encode() for number in range(count)]
    assert [alone.message().payload for _ in expected] == expected
    assert [other_group.message().payload for _ in expected] == expected
    seen: Counter[bytes] = Counter()
    while sum(seen.values()) < count:
        seen.update(each.payload for member in members for each in acknowledged(member))
    assert seen == Counter(expected)


def acknowledged(client: Client) -> list[Packet]:
    """What came, which the broker now knows."""
    found = client.settle()
    for each in found:
        client.send(client.encode.ack(PUBACK, each.packet_id))
    return found


@pytest.mark.parametrize(
    "pattern",
    ["$share/", "$share/a", "$share//a", "$share/a/", "$share/a+/b", "$share/#/b"],
)
@statement("MQTT5-4.8.2-1", "MQTT5-4.8.2-2")
def test_an_invalid_shared_filter_is_refused(mqtt: Mqtt, pattern: str) -> None:
    client = mqtt.connect()
    client.send(mqtt.encode.subscribe(1, (pattern, 0)))
    answers = [each for each in client.settle_or_end() if each.kind == SUBACK]
    assert not answers or answers[0].reasons[0] >= 0x80


@statement("MQTT5-3.8.3-4")
def test_no_local_on_a_shared_subscription_is_refused(mqtt: Mqtt) -> None:
    mqtt.connect().refused(mqtt.encode.subscribe(1, (shared(mqtt), NO_LOCAL)))


@statement("MQTT5-4.8.2-3")
def test_each_member_gets_messages_at_its_own_qos(mqtt: Mqtt) -> None:
    publisher = mqtt.connect()
    for granted in (0, 1, 2):
        member = mqtt.subscriber((shared(mqtt), granted))
        publisher.publish(mqtt.topic(), b"x", qos=2)
        assert member.message().qos == granted
        member.disconnect()


@statement("MQTT5-4.8.2-4")
def test_a_qos_2_delivery_is_completed_with_the_member_it_was_begun_with(mqtt: Mqtt) -> None:
    first = mqtt.keep()
    first.subscribe((shared(mqtt), 2))
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic(), b"x", qos=2)
    sent = first.expect(PUBLISH)
    first.send(mqtt.encode.ack(PUBREC, sent.packet_id))
    first.expect(PUBREL)
    other = mqtt.subscriber((shared(mqtt), 2))
    first.vanish()
    again = mqtt.keep(first.id)
    assert again.expect(PUBREL).packet_id == sent.packet_id
    again.send(mqtt.encode.ack(PUBCOMP, sent.packet_id))
    assert [again.settle(), other.settle()] == [[], []]


@statement("MQTT5-4.8.2-5")
def test_a_qos_2_delivery_ends_with_the_session_it_was_begun_with(mqtt: Mqtt) -> None:
    first = mqtt.connect()
    first.subscribe((shared(mqtt), 2))
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic(), b"x", qos=2)
    sent = first.expect(PUBLISH)
    first.send(mqtt.encode.ack(PUBREC, sent.packet_id))
    first.expect(PUBREL)
    other = mqtt.subscriber((shared(mqtt), 2))
    first.vanish()
    publisher.publish(mqtt.topic(), b"marker", qos=2)
    assert other.until(b"marker") == []


@pytest.mark.parametrize("qos", [1, 2])
@statement("MQTT5-4.8.2-6")
def test_a_message_that_a_member_refuses_goes_to_nobody_else(mqtt: Mqtt, qos: int) -> None:
    first = mqtt.subscriber((shared(mqtt), qos))
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic(), b"x", qos=qos)
    sent = first.expect(PUBLISH)
    other = mqtt.subscriber((shared(mqtt), qos))
    first.send(mqtt.encode.ack(PUBACK if qos == 1 else PUBREC, sent.packet_id, 0x83))
    first.unsubscribe(shared(mqtt))
    publisher.publish(mqtt.topic(), b"marker", qos=qos)
    assert other.until(b"marker") == []
    assert first.settle() == []
