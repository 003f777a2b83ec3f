"""Checks the residence that the data plane states, by the stamps of a packet socket.

The packet socket is on the broker's interface. It sees each frame arrive (with the stamp from which
the data plane counts) and each copy leave (stamped when it is handed to the driver).
"""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.sniffer import Sniffer
from demo.local_sensors import (
    BROKER_SIDE,
    CLIENT_SIDE,
    PUBLISH,
    Sensor,
    between_namespaces,
    in_the_kernel,
    inside,
)
from mqtick.protocol.precise import Loop
from mqtick.protocol.residence import Copies

TOPIC = "mqtick/t/0"
_GAP_S = 0.005
_HEADERS = 42
"""Octets of the headers: Ethernet, IPv4 and UDP."""


class Copy(NamedTuple):
    """A copy that left: its residence by the stamps, and as it states, ns; its frame."""

    left_ns: int
    stamps_ns: int
    stated_ns: int
    octets: int


def _copies(tap: Sniffer) -> list[Copy]:
    """Return the copies of one message; none if it passed through the broker."""
    came_ns, found = None, []
    for at_ns, left, datagram in tap.packets(socket.IPPROTO_UDP):
        octets = datagram[8:]
        if octets[1] != PUBLISH:
            continue
        if not left:
            came_ns = at_ns
            continue
        copies = Copies()
        copies.note(octets[7:])
        if came_ns is not None and copies.current is not None:
            stated_ns = copies.current.stated >> 16
            found.append(Copy(at_ns, at_ns - came_ns, stated_ns, _HEADERS + len(octets)))
    return found


def measure(folder: Path, count: int, messages: int, queue: Sequence[str] = ()) -> list[list[Copy]]:
    """Return the copies of each message to `count` subscribers.

    `queue`: the queueing discipline of the interface, as arguments of tc; empty: none.
    """
    with between_namespaces(folder) as at:
        if queue:
            place = ["tc", "-n", BROKER_SIDE, "qdisc", "add", "dev", "b0", "root"]
            subprocess.run([*place, *queue], check=True)
        accelerator = in_the_kernel(folder, at, "#", "--residence", "mqtick/#")
        with inside(BROKER_SIDE):
            tap = Sniffer("b0")
        try:
            subscribers = [Sensor(at, f"s{number}", CLIENT_SIDE) for number in range(count)]
            for one in subscribers:
                one.connect().subscribe(TOPIC)
            publisher = Sensor(at, "publisher", CLIENT_SIDE).connect()
            topic_id = publisher.register(TOPIC)
            accelerator.is_open(publisher, topic_id, TOPIC, *subscribers)
            list(tap.packets(socket.IPPROTO_UDP))
            found = []
            for _ in range(messages):
                publisher.publish(topic_id, Loop(0, secrets.token_bytes(8)).payload())
                time.sleep(_GAP_S)
                found.append(_copies(tap))
        finally:
            tap.close()
            accelerator.end()
    return [one for one in found if len(one) == count]
