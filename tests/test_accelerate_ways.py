"""Copies take the way that the kernel would take, also when it changes: between two namespaces."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from accelerate_rig import where_the_kernel_can

from demo.local_sensors import (
    BRIDGE,
    BROKER_SIDE,
    CLIENT_SIDE,
    Accelerator,
    between_namespaces,
    in_the_kernel,
    until,
)

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


def ip(space: str, words: str) -> str:
    return subprocess.check_output(["ip", "-n", space, *words.split()], text=True)


def received(link: str) -> int:
    path = f"/sys/class/net/{link}/statistics/rx_packets"
    command = ["ip", "netns", "exec", CLIENT_SIDE, "cat", path]
    return int(subprocess.check_output(command))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Accelerator]:
    """Start broker and accelerator, with a second link between their host and the clients'."""
    with contextlib.ExitStack() as open_ones:
        at = open_ones.enter_context(between_namespaces(tmp_path))
        peer = f"type veth peer name c1 netns {CLIENT_SIDE}"
        ip(BROKER_SIDE, f"link add b1 {peer}")
        for space, link in ((BROKER_SIDE, "b1"), (CLIENT_SIDE, "c1")):
            ip(space, f"link set {link} up")
        with where_the_kernel_can():
            started = in_the_kernel(tmp_path, at, "#", "--interface", "b1")
        open_ones.callback(started.process.wait)
        open_ones.callback(started.process.terminate)
        yield started


@pytest.mark.parametrize(
    "change",
    ["route replace 10.77.0.2/32 dev b1", "neighbour change 10.77.0.2 nud failed dev b0"],
    ids=["another interface", "a neighbour that fails"],
)
def test_nothing_is_lost_while_the_way_to_a_subscriber_changes(
    one: Accelerator, change: str
) -> None:
    subscriber = one.sensor("subscriber").connect().subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", subscriber)
    messages = [b"%d" % number for number in range(count)]
    ip(BROKER_SIDE, change)
    fast = one.topic("room/1")["fast"]

    def is_copied_again() -> bool:
        publisher.publish(topic_id, b"after %d" % len(messages))
        messages.append(b"after %d" % len(messages))
        while subscriber.hear(0.05):
            pass
        return bool(one.topic("room/1")["fast"] >= fast + 20)

    until(is_copied_again, "copies do not begin again")
    subscriber.has(*(("room/1", message) for message in messages))
    if "route" in change:
        before, at_first = received("c1"), received("c0")
        publisher.publish(topic_id, b"last")
        subscriber.has(*(("room/1", message) for message in (*messages, b"last")))
        assert (received("c1"), received("c0")) == (before + 1, at_first)


def test_who_moves_to_another_port_of_a_bridge_gets_its_copies_there(tmp_path: Path) -> None:
    with contextlib.ExitStack() as open_ones:
        at = open_ones.enter_context(between_namespaces(tmp_path, bridged=True))
        peer = f"type veth peer name rd netns {BRIDGE}"
        ip(CLIENT_SIDE, f"link add c1 {peer}")
        ip(BRIDGE, "link set rd master br0 up")
        with where_the_kernel_can():
            one = in_the_kernel(tmp_path, at, "#", "--interface", "rd", bridged=True)
        open_ones.callback(one.process.wait)
        open_ones.callback(one.process.terminate)
        subscriber = one.sensor("subscriber").connect().subscribe("room/1")
        publisher = one.sensor("publisher").connect()
        topic_id = publisher.register("room/1")
        count = one.is_open(publisher, topic_id, "room/1", subscriber)
        # The same host, on another cable.
        mac = ip(CLIENT_SIDE, "-o link show c0").partition("link/ether ")[2].split()[0]
        ip(CLIENT_SIDE, "link set c0 down")
        ip(CLIENT_SIDE, "address del 10.77.0.2/24 dev c0")
        ip(CLIENT_SIDE, f"link set c1 address {mac} up")
        ip(CLIENT_SIDE, "address add 10.77.0.2/24 dev c1")
        for sensor in (subscriber, publisher):
            sensor.ping()
        fast = one.topic("room/1")["fast"]

        def is_copied_again() -> bool:
            nonlocal count
            publisher.publish(topic_id, b"%d" % count)
            count += 1
            while subscriber.hear(0.05):
                pass
            return bool(one.topic("room/1")["fast"] >= fast + 20)

        until(is_copied_again, "copies do not begin again")
        subscriber.has(*(("room/1", b"%d" % number) for number in range(count)))
