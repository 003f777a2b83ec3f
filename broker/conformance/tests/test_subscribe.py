"""SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK: 3.8 to 3.11 of both standards."""

from __future__ import annotations

import pytest

from broker.conformance.client import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
)
from broker.conformance.connections import Mqtt, statement

NO_LOCAL, RETAIN_AS_PUBLISHED = 0x04, 0x08


@statement("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT5-3.8.4-1", "MQTT5-3.8.4-2", "MQTT-2.3.1-7")
@statement("MQTT5-2.2.1-6")
def test_a_subscribe_is_acknowledged_with_its_identifier(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    for packet_id in (1, 256, 65535):
        client.send(mqtt.encode.subscribe(packet_id, (mqtt.topic(), 0)))
        assert client.expect(SUBACK).packet_id == packet_id


@statement("MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.9.3-1", "MQTT-3.9.3-2", "MQTT-3.8.4-4")
@statement("MQTT5-3.8.4-5", "MQTT5-3.8.4-6", "MQTT5-3.8.4-7", "MQTT5-3.9.3-1", "MQTT5-3.9.3-2")
def test_each_filter_has_its_code_in_the_order_of_the_filters(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    asked = [0, 1, 2, 2, 0, 1]
    granted = client.subscribe(
        *((mqtt.topic(str(number)), qos) for number, qos in enumerate(asked))
    ).reasons
    assert granted == asked
    publisher = mqtt.connect()
    for number, qos in enumerate(asked):
        publisher.publish(mqtt.topic(str(number)), b"x", qos=2)
        assert client.message().qos == qos


@pytest.mark.parametrize("published", [0, 1, 2])
@statement("MQTT-3.8.4-6", "MQTT5-3.8.4-8")
def test_messages_come_at_the_lower_of_both_qos(mqtt: Mqtt, published: int) -> None:
    publisher = mqtt.connect()
    for granted in (0, 1, 2):
        watcher = mqtt.subscriber((mqtt.topic(), granted))
        publisher.publish(mqtt.topic(), b"x", qos=published)
        assert watcher.message().qos == min(published, granted)


@statement("MQTT-3.8.3-2")
def test_wildcards_are_supported_or_refused(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    if client.subscribe((mqtt.topic("+"), 0)).reasons == [0]:
        mqtt.connect().publish(mqtt.topic("x"), b"x")
        assert client.message().payload == b"x"


@statement("MQTT-3.8.4-3", "MQTT5-3.8.4-3", "MQTT5-3.8.4-4")
def test_the_same_filter_replaces_the_subscription_and_sends_retained_again(mqtt: Mqtt) -> None:
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic(), b"kept", qos=2, retain=True)
    client = mqtt.connect()
    for qos in (0, 2, 1):
        assert client.subscribe((mqtt.topic(), qos)).reasons == [qos]
        assert client.message().payload == b"kept"
    publisher.publish(mqtt.topic(), b"once", qos=2)
    publisher.publish(mqtt.topic(), b"marker", qos=2)
    (found,) = client.until(b"marker")
    assert (found.payload, found.qos) == (b"once", 1)


@statement("MQTT-3.8.4-3", "MQTT5-3.8.4-4")
def test_no_message_is_lost_while_a_subscription_is_replaced(mqtt: Mqtt) -> None:
    client, publisher = mqtt.subscriber((mqtt.topic(), 0)), mqtt.connect()
    count = 50
    for number in range(count):
        client.send(mqtt.encode.subscribe(number + 10, (mqtt.topic(), 0)))
        publisher.send(mqtt.encode.publish(mqtt.topic(), str(number).encode()))
    publisher.publish(mqtt.topic(), b"marker", qos=1)
    found = []
    while b"marker" not in found:
        packet = client.receive()
        if packet.kind == PUBLISH:
            found.append(packet.payload)
    assert found == [*(str(number).encode() for number in range(count)), b"marker"]


@statement("MQTT-3.8.4-4", "MQTT5-3.8.4-5")
def test_several_filters_are_as_several_subscribes(mqtt: Mqtt) -> None:
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic("a"), b"a", qos=1, retain=True)
    publisher.publish(mqtt.topic("b"), b"b", qos=1, retain=True)
    # The same filter again: it counts as the later one.
    client = mqtt.subscriber((mqtt.topic("a"), 2), (mqtt.topic("b"), 1), (mqtt.topic("a"), 0))
    assert {client.message().payload for _ in range(3)} == {b"a", b"b"}
    publisher.publish(mqtt.topic("a"), b"now", qos=1)
    assert client.message().qos == 0


@statement("MQTT5-3.8.3-3")
def test_no_local_keeps_a_client_s_own_messages_from_it(mqtt: Mqtt) -> None:
    client = mqtt.subscriber((mqtt.topic(), 1 | NO_LOCAL))
    client.publish(mqtt.topic(), b"own", qos=1)
    mqtt.connect().publish(mqtt.topic(), b"marker", qos=1)
    assert client.until(b"marker") == []


@statement("MQTT5-3.8.4-3")
def test_the_same_filter_replaces_the_options(mqtt: Mqtt) -> None:
    client = mqtt.subscriber((mqtt.topic(), 1 | NO_LOCAL))
    client.subscribe((mqtt.topic(), 1 | RETAIN_AS_PUBLISHED))
    client.publish(mqtt.topic(), b"own", qos=1, retain=True)
    mqtt.connect().publish(mqtt.topic(), b"marker", qos=1)
    (found,) = client.until(b"marker")
    assert found.retain


@statement("MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT5-3.10.4-4", "MQTT5-3.10.4-5", "MQTT-2.3.1-7")
@statement("MQTT5-2.2.1-6")
def test_an_unsubscribe_is_acknowledged_even_for_nothing(mqtt: Mqtt) -> None:
    client = mqtt.subscriber(mqtt.topic())
    for packet_id, topic in ((7, mqtt.topic()), (65535, mqtt.topic("never"))):
        client.send(mqtt.encode.unsubscribe(packet_id, topic))
        assert client.expect(UNSUBACK).packet_id == packet_id


@statement("MQTT5-3.11.3-1", "MQTT5-3.11.3-2", "MQTT5-3.10.4-6")
def test_an_unsuback_says_which_subscriptions_existed(mqtt: Mqtt) -> None:
    client = mqtt.subscriber(mqtt.topic("a"), mqtt.topic("b"))
    filters = [mqtt.topic(name) for name in ("a", "never", "b", "a")]
    assert client.unsubscribe(*filters).reasons == [0x00, 0x11, 0x00, 0x11]


@statement("MQTT-3.10.4-1", "MQTT-3.10.4-2", "MQTT5-3.10.4-1", "MQTT5-3.10.4-2")
def test_unsubscribing_ends_exactly_that_subscription(mqtt: Mqtt) -> None:
    client, publisher = mqtt.subscriber(mqtt.topic("a/+")), mqtt.connect()
    client.unsubscribe(mqtt.topic("a/b"), mqtt.topic("a/#"), mqtt.topic("A/+"), mqtt.topic("+/+"))
    publisher.publish(mqtt.topic("a/b"), b"still", qos=1)
    assert client.message().payload == b"still"
    client.subscribe(mqtt.topic("marker"))
    client.unsubscribe(mqtt.topic("a/+"))
    publisher.publish(mqtt.topic("a/b"), b"no more", qos=1)
    publisher.publish(mqtt.topic("marker"), b"marker", qos=1)
    assert client.until(b"marker") == []


@pytest.mark.parametrize("qos", [1, 2])
@statement("MQTT-3.10.4-3", "MQTT5-3.10.4-3")
def test_a_delivery_that_has_begun_is_completed_after_unsubscribing(mqtt: Mqtt, qos: int) -> None:
    client = mqtt.keep()
    client.subscribe((mqtt.topic(), qos))
    mqtt.connect().publish(mqtt.topic(), b"x", qos=qos)
    first = client.expect(PUBLISH)
    client.unsubscribe(mqtt.topic())
    client.vanish()
    again = mqtt.keep(client.id)
    second = again.expect(PUBLISH)
    assert (second.packet_id, second.payload) == (first.packet_id, b"x")
    if qos == 1:
        again.send(mqtt.encode.ack(PUBACK, second.packet_id))
    else:
        again.send(mqtt.encode.ack(PUBREC, second.packet_id))
        again.expect(PUBREL)
        again.send(mqtt.encode.ack(PUBCOMP, second.packet_id))
    assert again.settle() == []


@statement("MQTT-3.10.4-6", "MQTT5-3.10.4-6")
def test_several_filters_are_as_several_unsubscribes(mqtt: Mqtt) -> None:
    names = [mqtt.topic(name) for name in ("a", "b", "c")]
    client = mqtt.subscriber(*names)
    client.unsubscribe(*names[:2])
    publisher = mqtt.connect()
    for name in names:
        publisher.publish(name, name.encode(), qos=1)
    assert client.message().topic == names[2].encode()


@statement("MQTT5-3.9.2-1", "MQTT5-3.9.2-2", "MQTT5-3.11.2-1", "MQTT5-3.11.2-2")
def test_these_acknowledgements_have_no_text_that_makes_them_too_long(mqtt: Mqtt) -> None:
    least = len(mqtt.connect().connack.raw)
    client = mqtt.connect(properties=[("maximum_packet_size", least)])
    assert len(client.subscribe("$share/x", mqtt.topic()).raw) <= least
    assert len(client.unsubscribe(mqtt.topic("never")).raw) <= least


@statement("MQTT5-3.2.2-9", "MQTT5-3.2.2-10")
def test_subscribing_at_any_qos_is_accepted_whatever_can_be_published(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    highest = client.connack.get("maximum_qos", 2)
    assert highest in (0, 1, 2)
    assert max(client.subscribe(*((mqtt.topic(str(qos)), qos) for qos in range(3))).reasons) <= 2
    for qos in range(1, highest + 1):
        answer = client.publish(mqtt.topic("nobody"), qos=qos)
        assert answer is not None
        assert answer.reason in (0, 0x10)
