"""As many subscribers, and topics, as there may be: in the kernel between two network namespaces.

Nothing is set: with `net.core.netdev_max_backlog` at 1,000, as kernels have it, a veth
takes a quarter of 4,000 copies, and whatever it does not take has to be counted.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import pytest
from accelerate_rig import where_the_kernel_can

from demo.local_sensors import (
    Accelerator,
    Sensor,
    between_namespaces,
    in_the_kernel,
    until,
)

CROWD = 4000
KEEP_ALIVE_S = 3600  # nobody is given up meanwhile
COPIED = 20
RULES = 2000
BY_TOPIC = itemgetter(0)  # the order of what has the same stays

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


@contextlib.contextmanager
def accelerated(folder: Path, *more: str) -> Iterator[Accelerator]:
    """Start broker and accelerator, with room for a socket of each client."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        with between_namespaces(folder) as at, where_the_kernel_can():
            one = in_the_kernel(folder, at, "#", *more)
            try:
                yield one
            finally:
                one.process.terminate()
                one.process.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def hear_all(sensors: list[Sensor]) -> None:
    for sensor in sensors:
        while sensor.hear(0):
            pass


def test_of_copies_to_4000_subscribers_none_is_lost_that_is_not_counted(tmp_path: Path) -> None:
    with accelerated(tmp_path) as one:
        crowd = [one.sensor(f"s{number}").connect(KEEP_ALIVE_S) for number in range(CROWD)]
        for sensor in crowd:
            sensor.subscribe("room/1")
        publisher = one.sensor("publisher").connect(KEEP_ALIVE_S)
        topic_id = publisher.register("room/1")
        sent = 0

        def opens() -> bool:
            nonlocal sent
            if one.topic("room/1")["open"]:
                return True
            publisher.publish(topic_id, b"%d" % sent)
            sent += 1
            publisher.ping()  # while copies come through the broker nothing is opened
            hear_all(crowd)
            return False

        until(opens, "it is not copied to all")
        assert one.topic("room/1")["subscribers"] == CROWD
        before = one.status()["frames"]
        for number in range(sent, sent + COPIED):
            publisher.publish(topic_id, b"%d" % number)
        publisher.ping()
        frames = one.status()["frames"]
        counted = {name: frames[name] - before[name] for name in frames}
        assert counted["hits"] == COPIED
        assert counted["copies"] + counted["refused"] == CROWD * COPIED

        def copies() -> list[list[int]]:
            hear_all(crowd)
            got = [[int(payload) for _, payload in sensor.got] for sensor in crowd]
            return [[number for number in numbers if number >= sent] for numbers in got]

        until(lambda: sum(map(len, copies())) >= counted["copies"], "copies are missing")
        assert sum(map(len, copies())) == counted["copies"]
        # In order, and none twice.
        assert all(numbers == sorted(set(numbers)) for numbers in copies())
        assert one.status()["controller"]["lost"] == 0


def keeps_up(one: Accelerator) -> None:
    """Wait until it has read all events: what finds no room makes it begin again."""

    def has_read() -> bool:
        found = one.status()
        return bool(found["controller"]["events"] >= found["frames"]["events"])

    until(has_read, "it does not keep up")


def test_of_65535_topics_as_many_are_copied_as_there_is_room_for_and_all_arrive(
    tmp_path: Path,
) -> None:
    each = 256  # subscriptions that the broker lets one client have
    names = [[f"t/{pair}/{number}" for number in range(each)] for pair in range(256)]
    names[-1].pop()
    with accelerated(tmp_path, "--rules", str(RULES)) as one:
        pairs = []
        for pair, topics in enumerate(names):
            if pair % 8 == 0:
                keeps_up(one)
            subscriber = one.sensor(f"s{pair}").connect(KEEP_ALIVE_S)
            for topic in topics:
                subscriber.subscribe(topic)
            publisher = one.sensor(f"p{pair}").connect(KEEP_ALIVE_S)
            pairs.append((publisher, [publisher.register(topic) for topic in topics], subscriber))
        wanted: list[list[tuple[str, bytes]]] = [[] for _ in pairs]
        for message in range(3):
            payload = b"%d" % message
            for pair, (publisher, ids, subscriber) in enumerate(pairs):
                if pair % 16 == 0:
                    keeps_up(one)
                topics, all_of_one = names[pair], wanted[pair]
                for number, (topic, topic_id) in enumerate(zip(topics, ids, strict=True)):
                    publisher.publish(topic_id, payload)
                    all_of_one.append((topic, payload))
                    # Before a socket's queue is full.
                    while number % 32 == 31 and len(subscriber.got) < len(all_of_one):
                        assert subscriber.hear()
                while len(subscriber.got) < len(all_of_one):
                    assert subscriber.hear()
                # The order is that of each topic: what is copied passes what is not.
                assert sorted(subscriber.got, key=BY_TOPIC) == sorted(all_of_one, key=BY_TOPIC)
        status = one.status()
        reasons = [topic["reason"] for topic in status["topics"] if topic["reason"]]
        assert len(status["topics"]) == 65_535
        assert len(reasons) == 65_535 - RULES
        assert set(reasons) == {"there is no room for another rule"}
        assert status["controller"]["lost"] == 0
        assert status["frames"]["copies"] > 0
        peak = Path(f"/proc/{one.process.pid}/status").read_text().partition("VmHWM:")[2]
        assert int(peak.split()[0]) < 300_000, "kB"
