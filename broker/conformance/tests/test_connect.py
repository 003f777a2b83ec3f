"""CONNECT and CONNACK: sections 3.1 and 3.2 of both standards, without sessions and wills."""

from __future__ import annotations

import string

from broker.conformance.client import (
    CONNACK,
    DISCONNECT,
    PING,
    PINGRESP,
    PUBLISH,
    V5,
    Will,
    binary,
    packet,
    text,
)
from broker.conformance.connections import Mqtt, statement

ACCEPTED = 0
CLEAN = 0x02
WILL, WILL_RETAIN, PASSWORD, USERNAME = 0x04, 0x20, 0x40, 0x80


@statement("MQTT-3.1.0-1", "MQTT5-3.1.0-1")
def test_a_first_packet_other_than_connect_ends_the_connection(mqtt: Mqtt) -> None:
    for first in (
        PING,
        mqtt.encode.publish(mqtt.topic(), b"early"),
        mqtt.encode.subscribe(1, (mqtt.topic(), 0)),
        mqtt.encode.disconnect(),
    ):
        answers = mqtt.raw().closed(first)
        assert not [each for each in answers if each.kind not in (CONNACK, DISCONNECT)]


@statement("MQTT-3.1.0-2", "MQTT5-3.1.0-2")
def test_a_second_connect_ends_the_connection(mqtt: Mqtt) -> None:
    client = mqtt.connect()
    client.refused(mqtt.encode.connect(client.id))


@statement("MQTT-3.1.2-1", "MQTT5-3.1.2-1")
def test_another_protocol_name_is_not_accepted(mqtt: Mqtt) -> None:
    for name in (b"MQTX", b"mqtt", b"", b"MQTTT", b"\0\0\0\0"):
        client = mqtt.raw()
        # In which version it answers, if it does, is its affair.
        answer = client.closed_unread(mqtt.encode.connect(client.id, protocol=name))
        assert not answer or (answer[0] == CONNACK << 4 and answer[3])


@statement("MQTT-3.1.2-2")
def test_an_unknown_protocol_level_is_refused_with_return_code_1(mqtt: Mqtt) -> None:
    for level in (0, 2, 6, 255):
        client = mqtt.raw()
        assert client.refused(mqtt.encode.connect(client.id, level=level)) == 1


@statement("MQTT5-3.1.2-2")
def test_an_unknown_protocol_version_ends_the_connection(mqtt: Mqtt) -> None:
    for level in (0, 2, 6, 255):
        client = mqtt.raw()
        # It may answer in the form of either version: a refusal, or nothing.
        answer = client.closed_unread(mqtt.encode.connect(client.id, level=level))
        assert not answer or (answer[0] == CONNACK << 4 and answer[3])


@statement("MQTT-3.1.2-3", "MQTT5-3.1.2-3")
def test_the_reserved_connect_flag_has_to_be_zero(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    client.refused(mqtt.encode.connect(client.id, flags=CLEAN | 1))


@statement("MQTT-3.1.2-9", "MQTT5-3.1.2-9")
def test_a_will_flag_without_the_fields_of_a_will_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    client.refused(mqtt.encode.connect(client.id, flags=CLEAN | WILL))
    properties = mqtt.encode.properties(())
    client = mqtt.raw()
    client.refused(
        mqtt.encode.connect(client.id, flags=CLEAN | WILL, tail=properties + text(mqtt.topic()))
    )


@statement("MQTT-3.1.2-11")
def test_the_fields_of_a_will_without_its_flag_are_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    tail = text(mqtt.topic()) + binary(b"will")
    client.refused(mqtt.encode.connect(client.id, flags=CLEAN, tail=tail))


@statement("MQTT-3.1.2-13", "MQTT-3.1.2-11", "MQTT5-3.1.2-11")
def test_a_will_qos_without_a_will_is_refused(mqtt: Mqtt) -> None:
    for qos in (1, 2, 3):
        client = mqtt.raw()
        client.refused(mqtt.encode.connect(client.id, flags=CLEAN | qos << 3))


@statement("MQTT-3.1.2-14", "MQTT5-3.1.2-12")
def test_will_qos_3_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    client.refused(mqtt.encode.connect(client.id, will=Will(mqtt.topic(), qos=3)))


@statement("MQTT-3.1.2-15", "MQTT-3.1.2-11", "MQTT5-3.1.2-13")
def test_a_will_retain_without_a_will_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    client.refused(mqtt.encode.connect(client.id, flags=CLEAN | WILL_RETAIN))


@statement("MQTT-3.1.2-18", "MQTT5-3.1.2-16")
def test_a_user_name_without_its_flag_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    client.refused(mqtt.encode.connect(client.id, tail=text("user")))


@statement("MQTT-3.1.2-19", "MQTT5-3.1.2-17")
def test_a_user_name_flag_without_a_user_name_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    client.refused(mqtt.encode.connect(client.id, flags=CLEAN | USERNAME))


@statement("MQTT-3.1.2-20", "MQTT5-3.1.2-18")
def test_a_password_without_its_flag_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    client.refused(mqtt.encode.connect(client.id, username="user", tail=binary(b"secret")))


@statement("MQTT-3.1.2-21", "MQTT5-3.1.2-19")
def test_a_password_flag_without_a_password_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    flags = CLEAN | USERNAME | PASSWORD
    client.refused(mqtt.encode.connect(client.id, username="user", flags=flags))


@statement("MQTT-3.1.2-22")
def test_a_password_without_a_user_name_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    client.refused(mqtt.encode.connect(client.id, password=b"secret"))


@statement("MQTT5-3.1.2-19")
def test_a_password_without_a_user_name_is_well_formed(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    assert client.connect(password=b"secret").reason in (ACCEPTED, 0x86, 0x87)


@statement("MQTT-3.1.3-1", "MQTT5-3.1.3-1", "MQTT-3.1.3-3", "MQTT5-3.1.3-3")
def test_the_payload_is_read_in_its_order(mqtt: Mqtt) -> None:
    topic = mqtt.topic("will")
    watcher = mqtt.subscriber(topic)
    client = mqtt.connect(will=Will(topic, b"last words"), username="user", password=b"secret")
    client.vanish()
    assert watcher.message().payload == b"last words"


@statement("MQTT-3.1.3-3", "MQTT5-3.1.3-3")
def test_a_connect_without_a_client_identifier_is_refused(mqtt: Mqtt) -> None:
    head = text(b"MQTT") + bytes([mqtt.version, CLEAN, 0, 0]) + mqtt.encode.properties(())
    mqtt.raw().refused(packet(1, 0, head))


@statement("MQTT-3.1.3-4", "MQTT5-3.1.3-4")
def test_a_client_identifier_is_utf_8(mqtt: Mqtt) -> None:
    mqtt.raw().refused(mqtt.encode.connect(b"a\xff"))


@statement("MQTT-3.1.3-5", "MQTT5-3.1.3-5")
def test_client_identifiers_of_1_to_23_letters_and_digits_are_allowed(mqtt: Mqtt) -> None:
    letters = string.digits + string.ascii_letters
    for name in ("Z", letters[:23], letters[23:46], letters[46:]):
        mqtt.connect(name)


@statement("MQTT-3.1.3-6", "MQTT5-3.1.3-6")
def test_clients_without_an_identifier_get_one_each(mqtt: Mqtt) -> None:
    one, other = mqtt.connect(""), mqtt.connect("")
    assert [one.settle(), other.settle()] == [[], []]


@statement("MQTT5-3.1.3-8")
def test_an_identifier_that_is_not_accepted_ends_the_connection(mqtt: Mqtt) -> None:
    # Whether such a long one is accepted is up to the broker.
    name = (mqtt.name() + "x" * 65535)[:65535]
    client = mqtt.raw(name)
    if client.connect().reason:
        assert client.connack.reason == 0x85
        client.ended()
    else:
        assert client.settle() == []


@statement("MQTT5-3.1.3-7", "MQTT5-3.2.2-16")
def test_the_identifier_that_the_broker_made_up_is_told_and_works(mqtt: Mqtt) -> None:
    keep = [("session_expiry", 60)]
    one, other = (mqtt.connect("", properties=keep) for _ in range(2))
    names = [each.connack.get("assigned_client_id").decode() for each in (one, other)]
    assert len(set(names)) == 2
    assert all(names)
    one.disconnect()
    again = mqtt.connect(names[0], clean=False)
    assert again.connack.session_present
    assert again.connack.get("assigned_client_id") is None


@statement("MQTT-3.1.3-7", "MQTT-3.1.3-8", "MQTT-3.1.3-9")
def test_no_identifier_and_no_clean_session_is_refused_with_return_code_2(mqtt: Mqtt) -> None:
    assert mqtt.raw("").refused(mqtt.encode.connect("", clean=False)) == 2


@statement("MQTT-3.1.3-11", "MQTT5-3.1.3-12")
def test_a_user_name_is_utf_8(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    client.refused(mqtt.encode.connect(client.id, username=b"\xc3\x28"))


@statement("MQTT-3.1.3-10", "MQTT5-3.1.3-11")
def test_a_will_topic_is_utf_8(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    client.refused(mqtt.encode.connect(client.id, will=Will(b"\xf0\x28\x8c\x28")))


@statement("MQTT-3.1.4-1", "MQTT5-3.1.4-1")
def test_a_malformed_connect_gets_no_positive_answer(mqtt: Mqtt) -> None:
    whole = mqtt.encode.connect("abc")[2:]
    for body in (whole + b"\0", whole[:-1], whole[:9], whole[:5], b""):
        answers = mqtt.raw().closed(packet(1, 0, body))
        assert not [each for each in answers if each.kind == CONNACK and not each.reason]


@statement("MQTT-3.1.4-2", "MQTT5-3.1.4-3")
def test_a_second_connection_of_a_client_ends_the_first(mqtt: Mqtt) -> None:
    first = mqtt.connect()
    second = mqtt.connect(first.id)
    said = first.closed()
    if mqtt.version == V5:
        assert [each.reason for each in said] == [0x8E]
    assert second.settle() == []


@statement("MQTT-3.1.4-4", "MQTT5-3.1.4-5", "MQTT-3.2.0-1", "MQTT5-3.2.0-1", "MQTT5-3.2.0-2")
def test_a_good_connect_is_acknowledged_once_and_first(mqtt: Mqtt) -> None:
    # A message waits in the session, and may not overtake the acknowledgement.
    client = mqtt.keep()
    client.subscribe((mqtt.topic(), 1))
    client.disconnect()
    mqtt.connect().publish(mqtt.topic(), b"waits", qos=1)
    again = mqtt.raw(client.id)
    expiry = [("session_expiry", 3600)]
    again.send(mqtt.encode.connect(client.id, clean=False, properties=expiry), PING)
    kinds = [again.receive().kind for _ in range(3)]
    assert kinds[0] == CONNACK
    assert sorted(kinds) == [CONNACK, PUBLISH, PINGRESP]


@statement("MQTT-3.1.4-5", "MQTT5-3.1.4-6")
def test_what_follows_a_refused_connect_is_not_processed(mqtt: Mqtt) -> None:
    watcher = mqtt.subscriber(mqtt.topic())
    mqtt.raw().closed(
        mqtt.encode.connect(mqtt.name(), flags=CLEAN | 1),
        mqtt.encode.publish(mqtt.topic(), b"forbidden"),
    )
    mqtt.connect().publish(mqtt.topic(), b"allowed")
    assert watcher.until(b"allowed") == []


@statement("MQTT-3.2.2-4", "MQTT-3.2.2-5")
def test_a_refusal_says_no_session_and_closes(mqtt: Mqtt) -> None:
    kept = mqtt.keep()
    kept.disconnect()
    client = mqtt.raw(kept.id)
    # The client checks that no session is present.
    assert client.refused(mqtt.encode.connect(kept.id, clean=False, level=99)) == 1


@statement("MQTT-3.2.2-6")
def test_a_fault_without_a_return_code_closes_without_an_answer(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    assert client.closed(mqtt.encode.connect(client.id, flags=CLEAN | 1)) == []


@statement("MQTT5-3.2.2-6", "MQTT5-3.2.2-7", "MQTT5-4.13.2-1", "MQTT5-4.12.0-1")
def test_an_unknown_authentication_method_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    method = [("authentication_method", "none-of-ours")]
    reason = client.refused(mqtt.encode.connect(client.id, properties=method))
    assert reason in (None, 0x8C, 0x87)


@statement("MQTT5-3.2.2-1", "MQTT5-3.2.2-8", "MQTT5-2.2.2-1", "MQTT5-4.12.0-6")
def test_an_acknowledgement_is_well_formed(mqtt: Mqtt) -> None:
    # The client refuses other flags, other reason codes, and properties that do not add up.
    connack = mqtt.connect().connack
    assert connack.reason == ACCEPTED
    assert connack.get("authentication_method") is None


@statement("MQTT5-3.1.2-28")
def test_response_information_comes_only_when_it_was_asked_for(mqtt: Mqtt) -> None:
    for asked in ([], [("request_response", 0)]):
        assert mqtt.connect(properties=asked).connack.get("response_information") is None


@statement("MQTT5-3.1.4-1", "MQTT5-4.13.1-1")
def test_forbidden_values_of_properties_are_refused(mqtt: Mqtt) -> None:
    for forbidden in (
        [("receive_maximum", 0)],
        [("maximum_packet_size", 0)],
        [("request_problem", 2)],
        [("request_response", 2)],
        [("receive_maximum", 5), ("receive_maximum", 5)],
        [("topic_alias", 1)],
    ):
        client = mqtt.raw()
        client.refused(mqtt.encode.connect(client.id, properties=forbidden))


@statement("MQTT5-3.1.4-1")
def test_authentication_data_without_a_method_is_refused(mqtt: Mqtt) -> None:
    client = mqtt.raw()
    data = [("authentication_data", b"without a method")]
    client.refused(mqtt.encode.connect(client.id, properties=data))


@statement("MQTT5-3.14.0-1")
def test_no_disconnect_comes_before_the_acknowledgement(mqtt: Mqtt) -> None:
    for first in (
        PING,
        mqtt.encode.connect("a", flags=CLEAN | 1),
        mqtt.encode.connect("a", properties=[("receive_maximum", 0)]),
        mqtt.encode.auth(0x18),
    ):
        assert not [each for each in mqtt.raw().closed(first) if each.kind == DISCONNECT]


@statement("MQTT5-3.2.2-19", "MQTT5-3.2.2-20")
def test_an_acknowledgement_has_no_text_that_makes_it_too_long(mqtt: Mqtt) -> None:
    least = len(mqtt.connect().connack.raw)
    client = mqtt.connect(properties=[("maximum_packet_size", least)])
    assert len(client.connack.raw) <= least
