"""`mqtick-accelerate` in the kernel, and somebody who sends with too many addresses for it."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from accelerate_rig import where_the_kernel_can

from demo.local_sensors import (
    CLIENT_SIDE,
    Accelerator,
    Sensor,
    between_namespaces,
    in_the_kernel,
    inside,
    until,
)

ADDRESSES = 17_000  # it learns 16,384

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Accelerator]:
    """Broker and accelerator."""
    with between_namespaces(tmp_path) as at, where_the_kernel_can():
        one = in_the_kernel(tmp_path, at, "#")
        yield one
        one.end()


def flood(one: Accelerator) -> None:
    """Have each of many addresses ask to be connected; none of them can be answered."""
    with inside(CLIENT_SIDE):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    connect = b"\x0a\x04\x04\x01\xff\xff" + b"none"
    udp = struct.pack("!HHHH", 5000, one.at[1], 8 + len(connect), 0) + connect
    header = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, 64, 17, 0)
    to = socket.inet_aton(one.at[0])
    before = one.status()["controller"]["events"]
    for number in range(ADDRESSES):
        raw.sendto(header + struct.pack("!BBH", 10, 78, number) + to + udp, (one.at[0], 0))
        if number % 1000 == 999:
            # What is lost on the way to the controller would cost more than the flood.
            until(
                lambda seen=before + number: one.status()["controller"]["events"] > seen,
                "they are not seen",
            )
    raw.close()


def from_another_host(one: Accelerator, name: str) -> Sensor:
    """Return a sensor with an address of its own."""
    place = ["ip", "-n", CLIENT_SIDE, "address", "add", "10.77.0.3/24", "dev", "c0"]
    subprocess.run(place, check=True)
    sensor = one.sensor(name)
    with inside(CLIENT_SIDE):
        sensor.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sensor.socket.bind(("10.77.0.3", 0))
    sensor.socket.connect(one.at)
    return sensor


def test_who_was_there_before_a_flood_of_addresses_is_copied_to_and_others_are_after_it(
    one: Accelerator,
) -> None:
    subscriber = one.sensor("subscriber").connect(keep_alive_s=3600).subscribe("room/1")
    publisher = one.sensor("publisher").connect(keep_alive_s=3600)
    topic_id = publisher.register("room/1")
    flood(one)
    assert one.status()["frames"]["crowded"] > 0
    count = one.is_open(publisher, topic_id, "room/1", subscriber)
    subscriber.has(*(("room/1", b"%d" % number) for number in range(count)))
    # Whoever comes meanwhile is served by the broker,
    late = from_another_host(one, "late").connect(keep_alive_s=3600).subscribe("room/2")
    other_id = publisher.register("room/2")
    for number in range(20):
        publisher.publish(other_id, b"%d" % number)
    late.has(*(("room/2", b"%d" % number) for number in range(20)))
    assert not one.topic("room/2")["open"]
    # and past it once the others are forgotten.
    end = time.monotonic() + 120
    while not one.topic("room/2")["open"] and time.monotonic() < end:
        late.ping()
        publisher.ping()
        publisher.publish(other_id, b"later")
        while late.hear(0.5):
            pass
    assert one.topic("room/2")["open"]
    assert one.status()["controller"]["lost"] == 0
