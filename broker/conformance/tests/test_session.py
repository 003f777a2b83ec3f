"""Sessions: 3.1.2, 3.2.2 and 4.1 of both standards, keeping alive and leaving."""

from __future__ import annotations

import time

from broker.conformance.client import (
    CONNACK,
    DISCONNECT,
    PING,
    PINGRESP,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    V5,
    Will,
)
from broker.conformance.connections import Mqtt, statement


@statement("MQTT-3.1.2-4", "MQTT5-3.1.2-5", "MQTT-3.2.2-2", "MQTT5-3.2.2-3", "MQTT-3.1.3-2")
@statement("MQTT5-3.1.3-2", "MQTT-3.1.2-5", "MQTT5-3.1.2-23")
def test_a_session_is_taken_up_with_its_subscriptions_and_messages(mqtt: Mqtt) -> None:
    first = mqtt.keep()
    assert not first.connack.session_present
    first.subscribe((mqtt.topic(), 2))
    first.disconnect()
    publisher = mqtt.connect()
    for qos in (1, 2):
        publisher.publish(mqtt.topic(), str(qos).encode(), qos=qos)
    again = mqtt.keep(first.id)
    assert again.connack.session_present
    assert [(m.payload, m.qos) for m in (again.message(), again.message())] == [
        (b"1", 1),
        (b"2", 2),
    ]
    publisher.publish(mqtt.topic(), b"now", qos=1)
    assert again.message().payload == b"now"


@statement("MQTT-3.1.2-4", "MQTT5-3.1.2-5", "MQTT5-3.1.2-23")
def test_a_session_outlives_a_lost_connection(mqtt: Mqtt) -> None:
    first = mqtt.keep()
    first.subscribe((mqtt.topic(), 1))
    first.vanish()
    again = mqtt.keep(first.id)
    assert again.connack.session_present
    mqtt.connect().publish(mqtt.topic(), b"x", qos=1)
    assert again.message().payload == b"x"


@statement("MQTT-3.1.3-2", "MQTT5-3.1.3-2")
def test_a_session_belongs_to_its_client_identifier(mqtt: Mqtt) -> None:
    first = mqtt.keep()
    first.subscribe((mqtt.topic(), 1))
    first.disconnect()
    other = mqtt.keep(first.id.upper())
    assert not other.connack.session_present
    assert mqtt.keep(first.id).connack.session_present


@statement("MQTT-3.1.2-4", "MQTT5-3.1.2-6", "MQTT-3.2.2-3", "MQTT5-3.2.2-3")
def test_without_a_session_a_new_one_begins(mqtt: Mqtt) -> None:
    assert not mqtt.keep().connack.session_present
    assert not mqtt.connect(clean=False).connack.session_present


@statement("MQTT-3.1.2-6", "MQTT5-3.1.2-4", "MQTT-3.1.4-3", "MQTT5-3.1.4-4", "MQTT-3.2.2-1")
@statement("MQTT5-3.2.2-2")
def test_a_clean_start_discards_the_session(mqtt: Mqtt) -> None:
    first = mqtt.keep()
    first.subscribe((mqtt.topic(), 1))
    first.disconnect()
    publisher = mqtt.connect()
    publisher.publish(mqtt.topic(), b"lost", qos=1)
    clean = mqtt.connect(first.id, clean=True)
    assert not clean.connack.session_present
    clean.subscribe((mqtt.topic("marker"), 1))
    publisher.publish(mqtt.topic(), b"lost", qos=1)
    publisher.publish(mqtt.topic("marker"), b"marker", qos=1)
    assert clean.until(b"marker") == []
    clean.disconnect()
    assert not mqtt.keep(first.id).connack.session_present


@statement("MQTT-3.1.2-6", "MQTT5-4.1.0-2")
def test_a_session_that_was_not_to_be_kept_ends_with_its_connection(mqtt: Mqtt) -> None:
    client = mqtt.connect(clean=True)
    client.subscribe((mqtt.topic(), 1))
    client.disconnect()
    assert not mqtt.connect(client.id, clean=False).connack.session_present


@statement("MQTT-4.1.0-1", "MQTT5-4.1.0-1")
def test_a_session_lasts_as_long_as_its_connection(mqtt: Mqtt) -> None:
    # The interval counts from the end of the connection, so it may pass during it.
    options = {"properties": [("session_expiry", 1)]} if mqtt.version == V5 else {"clean": False}
    client = mqtt.connect(**options)
    client.subscribe((mqtt.topic(), 2))
    publisher = mqtt.connect()
    publisher.send(mqtt.encode.publish(mqtt.topic(), b"x", qos=2, packet_id=1))
    publisher.expect(PUBREC)
    time.sleep(2 if mqtt.version == V5 else 0)
    # The broker may have forwarded the message already, or do so when it is released.
    publisher.send(mqtt.encode.ack(PUBREL, 1))
    assert publisher.expect(PUBCOMP).packet_id == 1
    assert client.message().payload == b"x"


@statement("MQTT5-4.1.0-2", "MQTT5-3.1.2-8")
def test_a_session_ends_when_its_expiry_has_passed_and_the_will_is_published(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    will = Will(mqtt.topic(), properties=[("will_delay", 3600)])
    client = mqtt.connect(will=will, properties=[("session_expiry", 1)])
    client.vanish()
    # The will says that the session has ended.
    assert watcher.message().payload == b"will"
    assert not mqtt.connect(client.id, clean=False).connack.session_present


@statement("MQTT5-3.1.2-23")
def test_a_disconnect_may_shorten_the_life_of_the_session(mqtt: Mqtt) -> None:
    client = mqtt.keep()
    client.disconnect(0, [("session_expiry", 0)])
    assert not mqtt.keep(client.id).connack.session_present


@statement("MQTT-4.1.0-2")
def test_a_session_is_kept_while_its_client_is_away(mqtt: Mqtt) -> None:
    names = [mqtt.keep() for _ in range(5)]
    for client in names:
        client.disconnect()
    assert all(mqtt.keep(client.id).connack.session_present for client in names)


@statement("MQTT-3.1.2-7")
def test_retained_messages_outlive_the_session_that_published_them(mqtt: Mqtt) -> None:
    client = mqtt.connect(clean=True)
    client.publish(mqtt.topic(), b"kept", qos=1, retain=True)
    client.disconnect()
    assert mqtt.subscriber(mqtt.topic()).message().payload == b"kept"


@statement("MQTT-3.1.2-24", "MQTT5-3.1.2-22", "MQTT5-3.2.2-22")
def test_a_silent_client_is_dropped_as_if_the_network_had_failed(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    client = mqtt.connect(keep_alive=1, will=Will(mqtt.topic()))
    if client.connack.get("server_keep_alive", 1) == 1:
        client.ended()
        assert watcher.message().payload == b"will"


@statement("MQTT-3.1.2-24", "MQTT5-3.1.2-22")
def test_a_client_that_pings_is_not_dropped(mqtt: Mqtt) -> None:
    client = mqtt.connect(keep_alive=2)
    for _ in range(8):
        time.sleep(0.5)
        assert client.settle() == []


@statement("MQTT-3.12.4-1", "MQTT5-3.12.4-1")
def test_each_pingreq_is_answered(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    client.send(PING * 5)
    assert [client.receive().kind for _ in range(5)] == [PINGRESP] * 5


@statement("MQTT5-3.14.4-1", "MQTT5-3.14.4-2")
def test_nothing_counts_that_follows_a_disconnect(mqtt: Mqtt) -> None:
    watcher, client = mqtt.subscriber(mqtt.topic()), mqtt.connect()
    said = client.closed(mqtt.encode.disconnect(), mqtt.encode.publish(mqtt.topic(), b"late"))
    assert said == []
    mqtt.connect().publish(mqtt.topic(), b"marker", qos=1)
    assert watcher.until(b"marker") == []


@statement("MQTT5-3.14.4-1", "MQTT5-3.14.4-2", "MQTT5-3.14.2-1", "MQTT5-3.14.2-2")
@statement("MQTT5-4.13.2-1")
def test_the_broker_s_own_disconnect_is_its_last_word(mqtt: Mqtt) -> None:
    # The client refuses properties and reason codes that a server's DISCONNECT may not have.
    client = mqtt.connect()
    said = client.closed(mqtt.encode.subscribe(1))
    assert [each.kind for each in said] in ([], [DISCONNECT])


@statement("MQTT5-3.14.2-3", "MQTT5-3.14.2-4")
def test_a_disconnect_has_no_text_that_makes_it_too_long(mqtt: Mqtt) -> None:
    least = len(mqtt.connect().connack.raw)
    client = mqtt.connect(properties=[("maximum_packet_size", least)])
    assert all(len(each.raw) <= least for each in client.closed(mqtt.encode.subscribe(1)))


@statement("MQTT5-4.12.0-7", "MQTT5-4.12.0-6", "MQTT5-4.13.1-1")
def test_an_auth_without_a_method_is_refused(mqtt: Mqtt) -> None:
    for reason in (0x18, 0x19):
        mqtt.connect().refused(mqtt.encode.auth(reason))


@statement("MQTT-3.2.0-1", "MQTT5-3.2.0-1")
def test_the_acknowledgement_comes_before_what_waits(mqtt: Mqtt) -> None:
    client = mqtt.keep()
    client.subscribe((mqtt.topic(), 1))
    client.disconnect()
    mqtt.connect().publish(mqtt.topic(), b"x", qos=1)
    again = mqtt.raw(client.id)
    expiry = [("session_expiry", 3600)]
    again.send(mqtt.encode.connect(client.id, clean=False, properties=expiry))
    assert [again.receive().kind for _ in range(2)] == [CONNACK, PUBLISH]
