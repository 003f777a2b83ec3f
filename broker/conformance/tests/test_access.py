"""What a broker with users and an access list refuses, and how."""

from __future__ import annotations

from typing import Any

import pytest

from broker.conformance.client import PUBACK, PUBCOMP, PUBREC, PUBREL, V3
from broker.conformance.connections import Mqtt, statement
from broker.conformance.launch import PASSWORD, USER

WHO: dict[str, Any] = {"username": USER, "password": PASSWORD}
DENIED = "denied/a"


@pytest.mark.parametrize(
    "who",
    [{}, {"username": USER}, {"username": USER, "password": b"wrong"}, {"username": "nobody"}],
    ids=["nobody", "no-password", "wrong-password", "wrong-user"],
)
@statement("MQTT-3.2.2-4", "MQTT-3.2.2-5", "MQTT-3.1.4-5", "MQTT5-3.1.4-2", "MQTT5-3.1.4-6")
@statement("MQTT5-3.2.2-7", "MQTT5-3.2.2-8", "MQTT5-4.13.2-1")
def test_who_is_not_let_in_is_told_so_and_not_heard(guarded: Mqtt, who: dict[str, Any]) -> None:
    watcher = guarded.connect(**WHO)
    watcher.subscribe((guarded.topic(), 1))
    client = guarded.raw()
    reason = client.refused(
        guarded.encode.connect(client.id, **who),
        guarded.encode.publish(guarded.topic(), b"forbidden", qos=1, packet_id=1),
    )
    assert reason in ((4, 5) if guarded.version == V3 else (None, 0x86, 0x87))
    watcher.publish(guarded.topic(), b"marker", qos=1)
    assert watcher.until(b"marker") == []


@pytest.mark.parametrize("qos", [0, 1, 2])
@statement("MQTT-3.3.5-2")
def test_a_forbidden_publish_is_acknowledged_or_ends_the_connection(
    guarded: Mqtt, qos: int
) -> None:
    client = guarded.connect(**WHO)
    client.send(guarded.encode.publish(DENIED, b"x", qos=qos, packet_id=qos and 7))
    answers = client.settle_or_end()
    # Nothing else can be said in 3.1.1.
    expected = {0: [], 1: [PUBACK], 2: [PUBREC]}[qos]
    assert [each.kind for each in answers] in ([], expected)
    guarded.connect(**WHO)


@statement("MQTT5-3.4.2-1", "MQTT5-3.5.2-1")
def test_a_forbidden_publish_gets_a_reason_code_or_ends_the_connection(guarded: Mqtt) -> None:
    for qos in (1, 2):
        client = guarded.connect(**WHO)
        client.send(guarded.encode.publish(DENIED, b"x", qos=qos, packet_id=7))
        assert [each.reason for each in client.settle_or_end()] in ([], [0x87])


@statement("MQTT5-4.3.3-9")
def test_an_identifier_is_free_again_after_a_pubrec_with_an_error(guarded: Mqtt) -> None:
    watcher = guarded.connect(**WHO)
    watcher.subscribe((guarded.topic(), 2))
    client = guarded.connect(**WHO)
    client.send(guarded.encode.publish(DENIED, b"x", qos=2, packet_id=7))
    if client.expect(PUBREC).reason < 0x80:
        pytest.skip("the broker acknowledges what it does not forward")
    client.send(guarded.encode.publish(guarded.topic(), b"new", qos=2, packet_id=7))
    assert client.expect(PUBREC).reason < 0x80
    client.send(guarded.encode.ack(PUBREL, 7))
    client.expect(PUBCOMP)
    assert watcher.message().payload == b"new"


@statement("MQTT-3.9.3-2", "MQTT5-3.9.3-2", "MQTT-3.8.4-5", "MQTT5-3.8.4-6")
def test_a_forbidden_filter_does_not_spoil_the_others(guarded: Mqtt) -> None:
    client = guarded.connect(**WHO)
    answer = client.subscribe((DENIED, 1), (guarded.topic(), 1))
    # Mosquitto grants what it then never delivers; others refuse with a code of the table.
    assert len(answer.reasons) == 2
    assert answer.reasons[1] == 1
    client.publish(guarded.topic(), b"marker", qos=1)
    assert client.until(b"marker") == []
