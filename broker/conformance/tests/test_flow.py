"""Flow control, sizes and topic aliases of MQTT 5: 3.1.2, 3.3.2, 3.3.4 and 4.9."""

from __future__ import annotations

import pytest

from broker.conformance.client import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    Client,
    Will,
)
from broker.conformance.connections import Mqtt, statement


def limited(mqtt: Mqtt, maximum: int, qos: int) -> Client:
    """A subscriber with a Receive Maximum, and five messages for it."""
    client = mqtt.connect(properties=[("receive_maximum", maximum)])
    client.subscribe((mqtt.topic(), qos))
    publisher = mqtt.connect()
    for number in range(5):
        publisher.publish(mqtt.topic(), str(number).encode(), qos=qos)
    return client


@pytest.mark.parametrize("maximum", [1, 2])
@statement("MQTT5-3.3.4-9", "MQTT5-4.9.0-1", "MQTT5-4.9.0-2")
def test_no_more_than_receive_maximum_are_in_flight_at_qos_1(mqtt: Mqtt, maximum: int) -> None:
    client = limited(mqtt, maximum, 1)
    waiting = [client.expect(PUBLISH) for _ in range(maximum)]
    payloads = [each.payload for each in waiting]
    while waiting:
        assert client.settle() == []
        client.send(mqtt.encode.ack(PUBACK, waiting.pop(0).packet_id))
        if len(payloads) < 5:
            waiting.append(client.expect(PUBLISH))
            payloads.append(waiting[-1].payload)
    assert payloads == [b"0", b"1", b"2", b"3", b"4"]


@statement("MQTT5-3.3.4-9", "MQTT5-4.9.0-2")
def test_a_qos_2_message_is_in_flight_until_pubcomp(mqtt: Mqtt) -> None:
    client = limited(mqtt, 1, 2)
    for number in range(5):
        found = client.expect(PUBLISH)
        assert found.payload == str(number).encode()
        client.send(mqtt.encode.ack(PUBREC, found.packet_id))
        client.expect(PUBREL)
        assert client.settle() == []
        client.send(mqtt.encode.ack(PUBCOMP, found.packet_id))


@statement("MQTT5-3.3.4-9")
def test_a_pubrec_with_an_error_frees_a_place(mqtt: Mqtt) -> None:
    client = limited(mqtt, 1, 2)
    for _ in range(5):
        client.send(mqtt.encode.ack(PUBREC, client.expect(PUBLISH).packet_id, 0x80))


@statement("MQTT5-3.3.4-10", "MQTT5-4.9.0-3")
def test_a_full_flight_delays_nothing_else(mqtt: Mqtt) -> None:
    client = limited(mqtt, 1, 1)
    client.expect(PUBLISH)
    assert client.settle() == []
    client.publish(mqtt.topic("other"), qos=1)
    client.publish(mqtt.topic("other"), qos=2)
    client.send(mqtt.encode.subscribe(77, (mqtt.topic("zero"), 0)))
    assert client.expect(SUBACK).packet_id == 77
    mqtt.connect().publish(mqtt.topic("zero"), b"QoS 0 is not counted")
    assert client.expect(PUBLISH).payload == b"QoS 0 is not counted"
    client.unsubscribe(mqtt.topic("zero"))


@statement("MQTT5-3.1.2-24")
def test_no_packet_is_longer_than_the_client_allows(mqtt: Mqtt) -> None:
    for spare in (0, -1):
        topic = mqtt.topic(str(spare))
        whole = len(mqtt.encode.publish(topic, bytes(80)))
        watcher = mqtt.connect(properties=[("maximum_packet_size", whole + spare)])
        watcher.subscribe((topic, 0))
        publisher = mqtt.connect()
        publisher.publish(topic, bytes(80), qos=1)
        publisher.publish(topic, b"marker", qos=1)
        assert len(watcher.until(b"marker")) == 1 + spare


@pytest.mark.parametrize("qos", [1, 2])
@statement("MQTT5-3.1.2-25")
def test_what_is_too_long_counts_as_delivered(mqtt: Mqtt, qos: int) -> None:
    limits = [("maximum_packet_size", 100), ("receive_maximum", 1)]
    watcher = mqtt.connect(properties=limits)
    watcher.subscribe((mqtt.topic(), qos), (mqtt.topic("fence"), 0))
    publisher = mqtt.connect()
    for _ in range(3):
        publisher.publish(mqtt.topic(), bytes(200), qos=qos)
    publisher.publish(mqtt.topic(), b"fits", qos=qos)
    publisher.publish(mqtt.topic("fence"), b"not counted")
    found = [watcher.expect(PUBLISH).payload]
    while b"not counted" not in found:
        found.append(watcher.expect(PUBLISH).payload)
    found += [each.payload for each in watcher.settle()]
    assert sorted(found) == [b"fits", b"not counted"]


# ---- topic aliases ------------------------------------------------------------------------------


@statement("MQTT5-3.1.2-27")
@pytest.mark.parametrize("said", [[], [("topic_alias_maximum", 0)]], ids=["absent", "zero"])
def test_no_alias_comes_to_a_client_that_wants_none(
    mqtt: Mqtt, said: list[tuple[str, int]]
) -> None:
    watcher, publisher = mqtt.connect(properties=said), mqtt.connect()
    watcher.subscribe(mqtt.topic())
    for _ in range(4):
        publisher.publish(mqtt.topic(), b"x", qos=1)
        found = watcher.message()
        assert (found.topic, found.get("topic_alias")) == (mqtt.topic().encode(), None)


@statement("MQTT5-3.1.2-26", "MQTT5-3.3.2-11", "MQTT5-3.3.2-8")
def test_aliases_that_come_are_within_the_client_s_maximum_and_known(mqtt: Mqtt) -> None:
    watcher, publisher = mqtt.connect(properties=[("topic_alias_maximum", 2)]), mqtt.connect()
    watcher.subscribe(mqtt.topic("+"))
    known: dict[int, bytes] = {}
    for number in [0, 1, 2, 0, 1, 2, 2, 1, 0]:
        publisher.publish(mqtt.topic(str(number)), b"x", qos=1)
        found = watcher.message()
        alias = found.get("topic_alias")
        if alias is not None:
            assert 1 <= alias <= 2
            if found.topic:
                known[alias] = found.topic
        assert (found.topic or known[alias]) == mqtt.topic(str(number)).encode()


def aliases(mqtt: Mqtt) -> tuple[Client, int]:
    """A publisher, and how many aliases the broker takes from it."""
    client = mqtt.connect()
    maximum = client.connack.get("topic_alias_maximum", 0)
    if not maximum:
        pytest.skip("the broker takes no aliases")
    return client, maximum


@statement("MQTT5-3.3.2-12")
def test_every_alias_up_to_the_broker_s_maximum_works(mqtt: Mqtt) -> None:
    publisher, maximum = aliases(mqtt)
    watcher = mqtt.subscriber((mqtt.topic("+"), 1))
    for alias in dict.fromkeys((1, 2, maximum // 2 or 1, maximum)):
        topic = mqtt.topic(f"of{alias}")
        publisher.publish(topic, b"first", qos=1, properties=[("topic_alias", alias)])
        publisher.publish("", b"second", qos=1, properties=[("topic_alias", alias)])
        found = [watcher.message() for _ in range(2)]
        assert [(each.topic, each.payload) for each in found] == [
            (topic.encode(), b"first"),
            (topic.encode(), b"second"),
        ]
        assert [each.get("topic_alias") for each in found] == [None, None]
    # An alias can be given to another topic.
    publisher.publish(mqtt.topic("new"), b"x", qos=1, properties=[("topic_alias", 1)])
    publisher.publish("", b"x", qos=1, properties=[("topic_alias", 1)])
    assert {watcher.message().topic for _ in range(2)} == {mqtt.topic("new").encode()}


@statement("MQTT5-3.3.2-7")
def test_aliases_end_with_the_connection(mqtt: Mqtt) -> None:
    aliases(mqtt)
    client = mqtt.keep()
    client.publish(mqtt.topic(), b"x", qos=1, properties=[("topic_alias", 1)])
    client.disconnect()
    again = mqtt.keep(client.id)
    assert again.connack.session_present
    again.refused(mqtt.encode.publish("", b"x", properties=[("topic_alias", 1)]))


@statement("MQTT5-3.3.2-8", "MQTT5-4.13.1-1")
def test_alias_0_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    client.refused(mqtt.encode.publish(mqtt.topic(), properties=[("topic_alias", 0)]))


@statement("MQTT5-4.13.1-1")
def test_an_alias_beyond_the_broker_s_maximum_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    beyond = client.connack.get("topic_alias_maximum", 0) + 1
    if beyond > 65535:
        pytest.skip("there is no alias beyond the broker's maximum")
    client.refused(mqtt.encode.publish(mqtt.topic(), properties=[("topic_alias", beyond)]))


@statement("MQTT5-4.13.1-1")
def test_an_alias_that_was_never_given_is_refused(mqtt: Mqtt) -> None:
    client, maximum = aliases(mqtt)
    client.refused(mqtt.encode.publish("", properties=[("topic_alias", maximum)]))


@statement("MQTT5-4.13.1-1")
def test_an_alias_in_a_will_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    will = Will(mqtt.topic(), properties=[("topic_alias", 1)])
    client.refused(mqtt.encode.connect(client.id, will=will))
