"""Topic names and filters: section 4.7 of both standards."""

from __future__ import annotations

import pytest

from broker.conformance.client import PUBACK, SUBACK, V5
from broker.conformance.connections import Mqtt, statement

# filter, topics that match it, topics that do not
MATCHING = [
    ("a", ["a"], ["A", "a/", "/a", "b"]),
    ("a/b", ["a/b"], ["a", "a/b/c", "a//b"]),
    ("+", ["a", ""], ["a/b", "/a"]),
    ("/+", ["/a", "/"], ["a", "a/b", "/a/b"]),
    ("+/+", ["a/b", "/a", "/"], ["a", "a/b/c"]),
    ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/b/c"]),
    ("a/+", ["a/b", "a/"], ["a", "a/b/c"]),
    ("#", ["a", "a/b", "/", "a/b/c", ""], []),
    ("a/#", ["a", "a/", "a/b", "a/b/c"], ["ab", "b/a", "/a"]),
    ("a/+/#", ["a/b", "a/b/c", "a/"], ["a"]),
    ("+/b/#", ["a/b", "a/b/c", "/b"], ["b", "a/c/b"]),
    ("é/+", ["é/ü"], ["e/u", "É/ü"]),
    (" ", [" "], ["", "  "]),
]


@pytest.mark.parametrize("number", range(len(MATCHING)))
@statement("MQTT-4.7.3-4", "MQTT5-4.7.3-4", "MQTT-3.3.2-3", "MQTT5-3.3.2-3", "MQTT-4.7.1-2")
@statement("MQTT-4.7.1-3", "MQTT5-4.7.1-1", "MQTT5-4.7.1-2")
def test_a_filter_matches_what_it_should_and_nothing_else(mqtt: Mqtt, number: int) -> None:
    # Below a first level of this test; what is said of the whole topic holds for the rest.
    pattern, right, wrong = MATCHING[number]
    watcher, publisher = mqtt.subscriber((mqtt.topic(pattern), 1)), mqtt.connect()
    watcher.subscribe((mqtt.topic() + "/marker/of/it", 1))
    for name in [*wrong, *right]:
        publisher.publish(mqtt.topic(name), name.encode(), qos=1)
    publisher.publish(mqtt.topic() + "/marker/of/it", b"marker", qos=1)
    found = []
    while (message := watcher.message()).payload != b"marker":
        found.append(message.payload.decode())
    assert sorted(found) == sorted(right)


INVALID = {
    "#": ["a/#/b", "a#", "#/a", "a/#b", "##"],
    "+": ["a+", "+a", "a/+b/c", "a/b+", "++"],
    "empty": [""],
}


@pytest.mark.parametrize("why", INVALID)
@statement("MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.3-1", "MQTT5-4.7.1-1", "MQTT5-4.7.1-2")
@statement("MQTT5-4.7.3-1")
def test_an_invalid_filter_is_refused(mqtt: Mqtt, why: str) -> None:
    for pattern in INVALID[why]:
        client = mqtt.connect()
        client.send(mqtt.encode.subscribe(1, (pattern, 0)))
        if mqtt.version == V5:
            # It may refuse that filter alone, or end the connection.
            answers = [each for each in client.settle_or_end() if each.kind == SUBACK]
            assert not answers or answers[0].reasons[0] >= 0x80
        else:
            client.refused()


@statement("MQTT-4.7.3-1", "MQTT5-4.7.3-1")
def test_an_empty_topic_name_is_refused(mqtt: Mqtt) -> None:
    mqtt.connect().refused(mqtt.encode.publish(""))


@statement("MQTT-4.7.3-2", "MQTT5-4.7.3-2")
def test_a_topic_has_no_null_character(mqtt: Mqtt) -> None:
    mqtt.connect().refused(mqtt.encode.publish(b"a\0"))
    mqtt.connect().refused(mqtt.encode.subscribe(1, (b"a/\0/#", 0)))


@statement("MQTT-4.7.3-3", "MQTT5-4.7.3-3")
def test_a_topic_of_65535_octets_is_carried_or_ends_the_connection(mqtt: Mqtt) -> None:
    # A longer one cannot be said. A broker may have a limit of its own, and has to survive it.
    longest = mqtt.topic("x" * (65535 - len(mqtt.topic(""))))
    watcher, publisher = mqtt.subscriber((mqtt.topic("#"), 1)), mqtt.connect()
    publisher.send(mqtt.encode.publish(longest, b"x", qos=1, packet_id=1))
    carried = [each for each in publisher.settle_or_end() if each.kind == PUBACK]
    mqtt.connect().publish(mqtt.topic(), b"marker", qos=1)
    found = [each.topic for each in watcher.until(b"marker")]
    assert found == ([longest.encode()] if carried and not carried[0].reason else [])


@statement("MQTT-4.7.2-1", "MQTT5-4.7.2-1")
def test_wildcards_at_the_beginning_do_not_match_dollar_topics(mqtt: Mqtt) -> None:
    # $SYS is not ours to publish to; other topics with $ are.
    name = f"$conformance{mqtt.name()}"
    exact = mqtt.subscriber((f"{name}/a", 1))
    wild = mqtt.subscriber(("#", 1), ("+/a", 1), ("+/#", 1))
    below = mqtt.subscriber((f"{name}/+", 1))
    publisher = mqtt.connect()
    publisher.publish(f"{name}/a", b"hidden", qos=1)
    publisher.publish(mqtt.topic("marker"), b"marker", qos=1)
    assert exact.message().payload == b"hidden"
    assert below.message().payload == b"hidden"
    seen = []
    while (message := wild.message()).payload != b"marker":
        seen.append(message.topic)
    assert not [topic for topic in seen if topic.startswith(b"$")]
