"""Checks the residence that the data plane states, by the stamps of a packet socket.

The packet socket is on the broker's interface. It sees each frame arrive (with the stamp from which
the data plane counts) and each copy leave (stamped when it is handed to the driver).
"""

from __future__ import annotations

import secrets
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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
_ETH_P_ALL, _ETH_P_IP = 3, 0x0800
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_TIMESPEC = struct.Struct("=qq")
_BUFFER = 1 << 25
_GAP_S = 0.005
_HEADERS = 42
"""Octets of the headers: Ethernet, IPv4 and UDP."""


class Copy(NamedTuple):
    """A copy that left: its residence by the stamps, and as it states, ns; its frame."""

    left_ns: int
    stamps_ns: int
    stated_ns: int
    octets: int


class Tap:
    """Captures the traffic at the broker's interface."""

    def __init__(self) -> None:
        with inside(BROKER_SIDE):
            every = socket.htons(_ETH_P_ALL)
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, every)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.bind(("b0", _ETH_P_ALL))
        self._socket.setblocking(False)

    def read(self) -> Iterator[tuple[int, bool, bytes]]:
        """Yield each datagram since the last call: instant, whether it left, UDP payload."""
        while True:
            try:
                packet, notes, _, place = self._socket.recvmsg(2048, 64)
            except BlockingIOError:
                return
            if place[1] != _ETH_P_IP or packet[9] != socket.IPPROTO_UDP:
                continue
            seconds, nanoseconds = _TIMESPEC.unpack_from(notes[0][2])
            left = place[2] == socket.PACKET_OUTGOING
            yield seconds * 10**9 + nanoseconds, left, packet[28:]

    def close(self) -> None:
        """Stop capturing."""
        self._socket.close()


def _copies(tap: Tap) -> list[Copy]:
    """Return the copies of one message; none if it passed through the broker."""
    came_ns, found = None, []
    for at_ns, left, octets in tap.read():
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
        tap = Tap()
        try:
            subscribers = [Sensor(at, f"s{number}", CLIENT_SIDE) for number in range(count)]
            for one in subscribers:
                one.connect().subscribe(TOPIC)
            publisher = Sensor(at, "publisher", CLIENT_SIDE).connect()
            topic_id = publisher.register(TOPIC)
            accelerator.is_open(publisher, topic_id, TOPIC, *subscribers)
            list(tap.read())
            found = []
            for _ in range(messages):
                publisher.publish(topic_id, Loop(0, secrets.token_bytes(8)).payload())
                time.sleep(_GAP_S)
                found.append(_copies(tap))
        finally:
            tap.close()
            accelerator.end()
    return [one for one in found if len(one) == count]
