"""What cannot be read or may not be said: chapter 2 of both standards, and what follows errors."""

from __future__ import annotations

from typing import Any

import pytest

from broker.conformance.client import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V3,
    V5,
    Client,
    Encoder,
    Will,
    one_property,
    packet,
    text,
    two,
)
from broker.conformance.connections import Mqtt, statement

PLAIN = {"PUBACK": PUBACK, "PUBREC": PUBREC, "PUBCOMP": PUBCOMP, "PINGREQ": PINGREQ}
"""Packets whose flags are all reserved, and which do not close the connection anyway."""


@pytest.mark.parametrize("name", PLAIN)
@statement("MQTT-2.2.2-1", "MQTT-2.2.2-2", "MQTT5-2.1.3-1", "MQTT5-4.13.1-1")
def test_reserved_flags_are_zero(mqtt: Mqtt, name: str) -> None:
    for flags in (1, 2, 4, 8, 15):
        body = b"" if name == "PINGREQ" else two(1)
        mqtt.connect().refused(packet(PLAIN[name], flags, body))


@pytest.mark.parametrize("flags", [1, 2, 8, 15])
@statement("MQTT-2.2.2-2", "MQTT5-2.1.3-1")
def test_a_connect_with_flags_is_refused(mqtt: Mqtt, flags: int) -> None:
    whole = mqtt.encode.connect(mqtt.name())
    mqtt.raw().refused(bytes([whole[0] | flags]) + whole[1:])


@pytest.mark.parametrize("flags", [0, 1, 3, 6, 10])
@statement("MQTT-3.6.1-1", "MQTT5-3.6.1-1")
def test_a_pubrel_has_flags_2(mqtt: Mqtt, flags: int) -> None:
    client = mqtt.connect()
    client.send(mqtt.encode.publish(mqtt.topic(), qos=2, packet_id=1))
    client.expect(PUBREC)
    client.refused(mqtt.encode.ack(PUBREL, 1, flags=flags))


@pytest.mark.parametrize("flags", [0, 1, 3, 6, 10])
@statement("MQTT-3.8.1-1", "MQTT5-3.8.1-1")
def test_a_subscribe_has_flags_2(mqtt: Mqtt, flags: int) -> None:
    mqtt.connect().refused(mqtt.encode.subscribe(1, (mqtt.topic(), 0), flags=flags))


@pytest.mark.parametrize("flags", [0, 1, 3, 6, 10])
@statement("MQTT-3.10.1-1", "MQTT5-3.10.1-1")
def test_an_unsubscribe_has_flags_2(mqtt: Mqtt, flags: int) -> None:
    mqtt.connect().refused(mqtt.encode.unsubscribe(1, mqtt.topic(), flags=flags))


@pytest.mark.parametrize("flags", [1, 2, 4, 8])
@statement("MQTT-3.14.1-1", "MQTT5-3.14.1-1")
def test_a_disconnect_has_no_flags(mqtt: Mqtt, flags: int) -> None:
    # It closes either way: that the will is published shows that it did not count.
    watcher = mqtt.subscriber(mqtt.topic())
    client = mqtt.connect(will=Will(mqtt.topic()))
    assert client.refused(mqtt.encode.disconnect(flags=flags)) in (None, 0x81)
    assert mourned(mqtt, watcher, mqtt.topic())


@pytest.mark.parametrize("flags", [1, 2, 4, 8])
@statement("MQTT5-3.15.1-1")
def test_an_auth_has_no_flags(mqtt: Mqtt, flags: int) -> None:
    mqtt.connect().refused(mqtt.encode.auth(0x18, flags=flags))


@statement("MQTT-3.3.1-4", "MQTT5-3.3.1-4")
def test_a_publish_with_qos_3_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    client.refused(mqtt.encode.publish(mqtt.topic(), qos=3, packet_id=1))


@statement("MQTT-3.3.1-2", "MQTT5-3.3.1-2")
def test_a_qos_0_publish_that_claims_to_be_a_duplicate_is_refused(mqtt: Mqtt) -> None:
    mqtt.connect().refused(mqtt.encode.publish(mqtt.topic(), dup=True))


@statement("MQTT-2.3.1-1", "MQTT5-2.2.1-3")
@pytest.mark.parametrize(
    "kind", [PUBLISH, SUBSCRIBE, UNSUBSCRIBE], ids=["PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"]
)
def test_packet_identifier_0_is_refused(mqtt: Mqtt, kind: int) -> None:
    mqtt.connect().refused(
        {
            PUBLISH: mqtt.encode.publish(mqtt.topic(), qos=1, packet_id=0),
            SUBSCRIBE: mqtt.encode.subscribe(0, (mqtt.topic(), 0)),
            UNSUBSCRIBE: mqtt.encode.unsubscribe(0, mqtt.topic()),
        }[kind]
    )


@statement("MQTT-3.8.3-3", "MQTT5-3.8.3-2")
def test_a_subscribe_without_a_filter_is_refused(mqtt: Mqtt) -> None:
    mqtt.connect().refused(mqtt.encode.subscribe(1))


@statement("MQTT-3.10.3-2", "MQTT5-3.10.3-2")
def test_an_unsubscribe_without_a_filter_is_refused(mqtt: Mqtt) -> None:
    mqtt.connect().refused(mqtt.encode.unsubscribe(1))


@pytest.mark.parametrize("options", [3, 4, 8, 0x10, 0x40, 0x80, 0xFF])
@statement("MQTT-3.8.3-4")
def test_subscribe_options_other_than_a_qos_are_refused(mqtt: Mqtt, options: int) -> None:
    mqtt.connect().refused(mqtt.encode.subscribe(1, (mqtt.topic(), options)))


@pytest.mark.parametrize("options", [3, 0x30, 0x40, 0x80])
@statement("MQTT5-3.8.3-5")
def test_reserved_subscription_options_are_refused(mqtt: Mqtt, options: int) -> None:
    mqtt.connect().refused(mqtt.encode.subscribe(1, (mqtt.topic(), options)))


def mourned(mqtt: Mqtt, watcher: Client, topic: str) -> bool:
    """Whether the will on that topic came. It may come a moment after the connection has closed."""
    publisher = mqtt.connect()
    for _ in range(100):
        publisher.publish(topic, b"marker", qos=1)
        if watcher.until(b"marker"):
            return True
    return False


def unreadable(mqtt: Mqtt) -> dict[str, bytes]:
    """Packets that break a rule which both versions have."""
    none, topic = mqtt.encode.properties(()), text(mqtt.topic())
    return {
        "type 0": packet(0, 0, b""),
        "a remaining length of five octets": b"\x30\xff\xff\xff\xff\x01",
        "a remaining length whose fifth octet is missing": b"\xc0\x80\x80\x80\x80\x00",
        "PUBLISH without a topic": packet(PUBLISH, 0, b""),
        "PUBLISH with half a length": packet(PUBLISH, 0, b"\0"),
        "PUBLISH with a topic longer than the packet": packet(PUBLISH, 0, two(500) + b"a"),
        "PUBLISH of QoS 1 without an identifier": packet(PUBLISH, 2, topic),
        "SUBSCRIBE without an identifier": packet(SUBSCRIBE, 2, b""),
        "SUBSCRIBE with half an identifier": packet(SUBSCRIBE, 2, b"\1"),
        "SUBSCRIBE without options": packet(SUBSCRIBE, 2, two(1) + none + topic),
        "SUBSCRIBE with a filter longer than the packet": packet(
            SUBSCRIBE, 2, two(1) + none + two(500) + b"a\0"
        ),
        "UNSUBSCRIBE with a filter longer than the packet": packet(
            UNSUBSCRIBE, 2, two(1) + none + two(500) + b"a"
        ),
        "UNSUBSCRIBE with half a length": packet(UNSUBSCRIBE, 2, two(1) + none + b"\0"),
        "PUBACK with half an identifier": packet(PUBACK, 0, b"\1"),
        "PUBREC without an identifier": packet(PUBREC, 0, b""),
        "PUBREL with half an identifier": packet(PUBREL, 2, b"\1"),
        "PUBCOMP without an identifier": packet(PUBCOMP, 0, b""),
        "CONNACK": packet(CONNACK, 0, b"\0\0" + none),
        "SUBACK": packet(SUBACK, 0, two(1) + none + b"\0"),
        "UNSUBACK": packet(UNSUBACK, 0, two(1) + none + (b"\0" if mqtt.version == V5 else b"")),
        "PINGRESP": packet(PINGRESP, 0, b""),
    }


class Names:
    """Enough of a test to ask for the names of the packets."""

    version = V3

    encode = Encoder(V3)

    def topic(self) -> str:
        return "a"


@pytest.mark.parametrize("what", list(unreadable(Names())))  # type: ignore[arg-type]
@statement("MQTT-4.8.0-1", "MQTT5-4.13.1-1")
def test_a_packet_that_breaks_the_rules_ends_the_connection(mqtt: Mqtt, what: str) -> None:
    mqtt.connect().refused(unreadable(mqtt)[what])


@statement("MQTT-4.8.0-1")
@pytest.mark.parametrize("name", ["PINGREQ", "DISCONNECT"])
def test_an_empty_packet_may_not_have_a_body(mqtt: Mqtt, name: str) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    kind = {"PINGREQ": PINGREQ, "DISCONNECT": DISCONNECT}[name]
    mqtt.connect(will=Will(mqtt.topic())).refused(packet(kind, 0, b"\0"))
    assert mourned(mqtt, watcher, mqtt.topic())


@statement("MQTT-4.8.0-1")
def test_packet_type_15_is_forbidden(mqtt: Mqtt) -> None:
    mqtt.connect().refused(packet(AUTH, 0, b""))


@statement("MQTT-4.8.0-1", "MQTT5-4.13.1-1")
def test_others_are_not_disturbed_by_a_malformed_packet(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    good = mqtt.connect()
    for bad in unreadable(mqtt).values():
        client = mqtt.connect()
        client.send(bad)
        client.vanish()
    good.publish(mqtt.topic(), b"still here", qos=1)
    assert watcher.message().payload == b"still here"


def with_properties(kind: int, properties: bytes, *, length: int | None = None) -> bytes:
    """A packet of a client whose properties are these octets, well-formed or not."""
    size = bytes([len(properties) if length is None else length])
    head = {
        CONNECT: text("MQTT") + bytes([V5, 2, 0, 0]),
        PUBLISH: text("t") + two(1),
        SUBSCRIBE: two(1),
        UNSUBSCRIBE: two(1),
        PUBREL: two(1) + b"\0",
        DISCONNECT: b"\0",
    }[kind]
    tail = {CONNECT: text("name"), SUBSCRIBE: text("t") + b"\0", UNSUBSCRIBE: text("t")}
    flags = {PUBLISH: 2, SUBSCRIBE: 2, UNSUBSCRIBE: 2, PUBREL: 2}.get(kind, 0)
    return packet(kind, flags, head + size + properties + tail.get(kind, b""))


KINDS = {
    "CONNECT": CONNECT,
    "PUBLISH": PUBLISH,
    "SUBSCRIBE": SUBSCRIBE,
    "UNSUBSCRIBE": UNSUBSCRIBE,
    "PUBREL": PUBREL,
    "DISCONNECT": DISCONNECT,
}


VALUES: dict[str, Any] = {
    "payload_format": 1,
    "message_expiry": 60,
    "content_type": "a",
    "response_topic": "a",
    "correlation_data": b"a",
    "subscription_id": 1,
    "session_expiry": 0,
    "assigned_client_id": "a",
    "server_keep_alive": 1,
    "authentication_method": "a",
    "authentication_data": b"a",
    "request_problem": 1,
    "will_delay": 1,
    "request_response": 1,
    "response_information": "a",
    "server_reference": "a",
    "reason_string": "a",
    "receive_maximum": 1,
    "topic_alias_maximum": 1,
    "topic_alias": 1,
    "maximum_qos": 1,
    "retain_available": 1,
    "maximum_packet_size": 1000,
    "wildcard_available": 1,
    "subscription_id_available": 1,
    "shared_available": 1,
}
"""Every property that may come once, with a value that it may have."""
ALLOWED: dict[int, set[str]] = {
    CONNECT: {
        "session_expiry",
        "authentication_method",
        "authentication_data",
        "request_problem",
        "request_response",
        "receive_maximum",
        "topic_alias_maximum",
        "maximum_packet_size",
    },
    PUBLISH: {
        "payload_format",
        "message_expiry",
        "content_type",
        "response_topic",
        "correlation_data",
        "topic_alias",
    },
    SUBSCRIBE: {"subscription_id"},
    UNSUBSCRIBE: set(),
    PUBREL: {"reason_string"},
    DISCONNECT: {"session_expiry", "reason_string"},
}
"""Which of them a client may send in which packet, MQTT 5 table 2-4."""


def refuse(mqtt: Mqtt, kind: int, octets: bytes) -> None:
    """A client says that, and the broker does not accept it."""
    if kind == CONNECT:
        mqtt.raw().refused(octets)
        return
    # A DISCONNECT closes either way: it was refused if the will is published.
    topic = mqtt.topic(mqtt.name())
    watcher = mqtt.subscriber(topic)
    client = mqtt.connect(will=Will(topic))
    if kind == PUBREL:
        client.send(mqtt.encode.publish(topic + "/2", qos=2, packet_id=1))
        client.expect(PUBREC)
    client.refused(octets)
    assert mourned(mqtt, watcher, topic)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@statement("MQTT5-4.13.1-1")
def test_a_property_that_does_not_exist_is_refused(mqtt: Mqtt, kind: int) -> None:
    for identifier in (0x00, 0x04, 0x2B, 0x7F):
        refuse(mqtt, kind, with_properties(kind, bytes([identifier, 0])))


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@statement("MQTT5-4.13.1-1")
def test_a_property_of_another_packet_is_refused(mqtt: Mqtt, kind: int) -> None:
    # Whether a client may send a Server Reference, the standard does not say; that it may not send
    # a Subscription Identifier is tested by itself.
    open_or_elsewhere = {DISCONNECT: {"server_reference"}, PUBLISH: {"subscription_id"}}
    for name in sorted(VALUES.keys() - ALLOWED[kind] - open_or_elsewhere.get(kind, set())):
        refuse(mqtt, kind, with_properties(kind, one_property(name, VALUES[name])))


@pytest.mark.parametrize("name", ["session_expiry", "receive_maximum", "server_keep_alive"])
@statement("MQTT5-4.13.1-1")
def test_a_property_of_another_packet_is_refused_in_a_will(mqtt: Mqtt, name: str) -> None:
    client = mqtt.raw()
    will = Will(mqtt.topic(), properties=[(name, VALUES[name])])
    client.refused(mqtt.encode.connect(client.id, will=will))


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@statement("MQTT5-4.13.1-1")
def test_a_property_that_is_cut_off_is_refused(mqtt: Mqtt, kind: int) -> None:
    refuse(mqtt, kind, with_properties(kind, b"\x26" + text("name") + b"\0"))
    refuse(mqtt, kind, with_properties(kind, b"\x26" + text("name") + two(9) + b"v"))


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@statement("MQTT5-4.13.1-1", "MQTT5-2.2.2-1")
def test_properties_longer_than_the_packet_are_refused(mqtt: Mqtt, kind: int) -> None:
    refuse(mqtt, kind, with_properties(kind, b"", length=100))


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@statement("MQTT5-4.13.1-1")
def test_a_property_that_may_come_once_is_refused_twice(mqtt: Mqtt, kind: int) -> None:
    for name in sorted(ALLOWED[kind]):
        # Authentication Data has to follow a method, which is refused by itself.
        if name not in ("authentication_method", "authentication_data"):
            refuse(mqtt, kind, with_properties(kind, one_property(name, VALUES[name]) * 2))


@pytest.mark.parametrize(
    "name",
    [
        "will_delay",
        "payload_format",
        "message_expiry",
        "content_type",
        "response_topic",
        "correlation_data",
    ],
)
@statement("MQTT5-4.13.1-1")
def test_a_property_of_a_will_is_refused_twice(mqtt: Mqtt, name: str) -> None:
    client = mqtt.raw()
    will = Will(mqtt.topic(), properties=[(name, VALUES[name])] * 2)
    client.refused(mqtt.encode.connect(client.id, will=will))


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@statement("MQTT5-1.5.7-1", "MQTT5-1.5.4-1", "MQTT5-1.5.4-2")
def test_user_properties_are_utf_8(mqtt: Mqtt, kind: int) -> None:
    for name, value in ((b"\xff", b"v"), (b"n", b"\xff"), (b"n", b"\0")):
        refuse(mqtt, kind, with_properties(kind, b"\x26" + text(name) + text(value)))


@statement("MQTT5-4.13.1-1")
def test_a_session_expiry_that_was_zero_may_not_be_raised_at_the_end(mqtt: Mqtt) -> None:
    assert mqtt.connect().refused(mqtt.encode.disconnect(0, [("session_expiry", 5)])) in (
        None,
        0x82,
    )


@statement("MQTT5-3.3.4-6", "MQTT5-4.13.1-1")
def test_a_client_may_not_send_a_subscription_identifier(mqtt: Mqtt) -> None:
    octets = mqtt.encode.publish(mqtt.topic(), properties=[("subscription_id", 1)])
    mqtt.connect().refused(octets)


@statement("MQTT5-4.13.1-1")
def test_subscription_identifier_0_is_refused(mqtt: Mqtt) -> None:
    octets = mqtt.encode.subscribe(1, (mqtt.topic(), 0), properties=[("subscription_id", 0)])
    mqtt.connect().refused(octets)


@statement("MQTT5-4.13.1-1")
def test_a_payload_format_other_than_0_and_1_is_refused(mqtt: Mqtt) -> None:
    mqtt.connect().refused(mqtt.encode.publish(mqtt.topic(), properties=[("payload_format", 2)]))


@pytest.mark.parametrize(
    "kind", [PUBACK, PUBREC, PUBREL, PUBCOMP], ids=["PUBACK", "PUBREC", "PUBREL", "PUBCOMP"]
)
@statement("MQTT5-3.4.2-1", "MQTT5-3.5.2-1", "MQTT5-3.6.2-1", "MQTT5-3.7.2-1")
def test_an_unknown_reason_code_is_refused(mqtt: Mqtt, kind: int) -> None:
    for reason in (0x01, 0x7F, 0xFF):
        client = mqtt.connect()
        client.send(mqtt.encode.publish(mqtt.topic(), qos=2, packet_id=1))
        client.expect(PUBREC)
        client.refused(mqtt.encode.ack(kind, 1, reason))


@statement("MQTT5-3.14.2-1")
def test_a_disconnect_with_an_unknown_reason_is_no_good_bye(mqtt: Mqtt) -> None:
    for reason in (0x01, 0x7F, 0xFF):
        topic = mqtt.topic(str(reason))
        watcher = mqtt.subscriber(topic)
        mqtt.connect(will=Will(topic)).closed(mqtt.encode.disconnect(reason))
        assert mourned(mqtt, watcher, topic)


@pytest.mark.parametrize("name", ["CONNECT", "SUBSCRIBE", "UNSUBSCRIBE"])
@statement("MQTT-4.8.0-1", "MQTT5-4.13.1-1")
def test_a_packet_that_is_cut_anywhere_is_refused(mqtt: Mqtt, name: str) -> None:
    will = Will(mqtt.topic(), b"will", properties=[("user", ("name", "value"))])
    user = [("user", ("name", "value"))]
    topics = [mqtt.topic("first"), mqtt.topic("second")]
    whole, entry = {
        "CONNECT": (
            mqtt.encode.connect(
                "client", will=will, username="user", password=b"secret", properties=user
            ),
            0,
        ),
        "SUBSCRIBE": (
            mqtt.encode.subscribe(1, *((each, 0) for each in topics), properties=user),
            len(text(topics[1])) + 1,
        ),
        "UNSUBSCRIBE": (
            mqtt.encode.unsubscribe(1, *topics, properties=user),
            len(text(topics[1])),
        ),
    }[name]
    body = whole[2:]
    for cut in range(len(body)):
        # After the first filter it is whole again.
        if not entry or cut != len(body) - entry:
            client = mqtt.raw() if name == "CONNECT" else mqtt.connect()
            client.refused(packet(whole[0] >> 4, whole[0] & 0x0F, body[:cut]))
