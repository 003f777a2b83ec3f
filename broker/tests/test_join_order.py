"""The order of messages, subscriptions and acknowledgements at `mqtick-join`."""

from __future__ import annotations

import signal
from collections import defaultdict
from pathlib import Path

import pytest

from broker.conformance.client import PUBACK, PUBREC, SUBACK, UNSUBACK, V3
from broker.tests.harness.events import until
from broker.tests.harness.sites import MARKS, Site, joined, settled
from demo.local_broker import Mosquitto

pytestmark = MARKS


def test_several_connections_keep_the_order_of_each_publisher_on_each_topic(
    row: list[Site],
) -> None:
    count, topics = 40, [f"t/{number}" for number in range(6)]
    reader = row[2].client("reader")
    reader.subscribe("t/#")
    settled(*row)
    writers = [row[0].client(f"writer-{number}", V3) for number in range(2)]
    for number, writer in enumerate(writers):
        say, found = writer.encode.publish, []
        for at in range(count):
            for topic in topics:
                found.append(say(topic, b"%d 0 %d" % (number, at)))
                packet_id = writer.next_id()
                found.append(say(topic, b"%d 1 %d" % (number, at), qos=1, packet_id=packet_id))
        writer.send(*found)
    came: dict[tuple[bytes | str | None, bytes, bytes], list[int]] = defaultdict(list)
    for _ in range(len(writers) * len(topics) * 2 * count):
        message = reader.message()
        who, qos, at = message.payload.split()
        came[message.topic, who, qos].append(int(at))
    assert len(came) == len(writers) * len(topics) * 2
    assert all(found == list(range(count)) for found in came.values())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("at", "first", "last"), [(0, 1, 2), (0, 2, 1), (1, 0, 2)])
def test_with_reliability_all_a_publisher_waits_for_the_last_site_of_all(
    tmp_path: Path, at: int, first: int, last: int, qos: int
) -> None:
    with joined(tmp_path, [Mosquitto] * 3, 'reliability = "all"') as sites:
        others = [sites[first], sites[last]]
        readers = [site.client("reader") for site in others]
        for reader in readers:
            reader.subscribe("t")
        settled(*sites)
        for site in others:
            assert site.broker.process is not None
            site.broker.process.send_signal(signal.SIGSTOP)
        here = sites[at]
        writer = here.client("writer")
        writer.send(writer.encode.publish("t", b"1", qos=qos, packet_id=7))
        until(lambda: all(site.now("unconfirmed") for site in sites), "all sites have it")
        for site, reader in zip(others, readers, strict=True):
            assert [one.status()["now"]["unconfirmed"] for one in sites][at] == 1
            assert writer.settle() == [], "somebody does not have it"
            assert site.broker.process is not None
            site.broker.process.send_signal(signal.SIGCONT)
            assert reader.message().payload == b"1"
            until(lambda here=site: here.now("broker_waiting") == 0, "its broker confirms it")
        assert writer.expect(PUBACK if qos == 1 else PUBREC).packet_id == 7


def test_what_a_client_subscribes_to_and_ends_at_once_counts_in_its_order(row: list[Site]) -> None:
    reader = row[2].client("reader")
    subscribe, unsubscribe = reader.encode.subscribe, reader.encode.unsubscribe
    turns = 50
    packets, expected = [], []
    for turn in range(turns):
        for topic, is_on in (("on", turn % 2 == 1), ("off", turn % 2 == 0)):
            packet_id = reader.next_id()
            expected.append((SUBACK if is_on else UNSUBACK, packet_id))
            packets.append(
                subscribe(packet_id, (topic, 1)) if is_on else unsubscribe(packet_id, topic)
            )
    reader.send(*packets)
    answers = [reader.receive() for _ in expected]
    assert [(one.kind, one.packet_id) for one in answers] == expected
    settled(*row)
    writer = row[0].client("writer")
    for topic in ("off", "on"):
        writer.publish(topic, topic.encode(), qos=1)
    assert reader.message().topic == b"on"
    assert reader.settle() == []
