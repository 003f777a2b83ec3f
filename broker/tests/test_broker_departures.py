"""`mqtick-broker` over TCP where segments are lost: no copy says wrong when the last one left."""

from __future__ import annotations

import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from broker.tests.harness.networks import ABROAD, HERE, Link, needs_networks, run, with_a_link
from broker.tests.harness.timing import UNKNOWN
from demo.local_broker import MqtickBroker, running
from mqtick.mqtt.packets import connect_packet, encode_publish, subscribe_packet

ALL_PROTOCOLS = 3
SO_TIMESTAMPNS = 35
MAC = "02:00:00:00:00:02"
TOPIC = "mqtick/t"
GREETING = 9  # octets of CONNACK and SUBACK
ANOTHERS_NS = 20_000_000  # copies, and the times that one is sent, are further apart

pytestmark = [pytest.mark.broker, needs_networks]


@dataclass
class Wire:
    """When the segments to each port left."""

    sniffer: socket.socket
    segments: dict[int, list[tuple[int, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def look(self) -> None:
        """Note what left."""
        while True:
            try:
                packet, stamps, _, _ = self.sniffer.recvmsg(100, 64, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if packet[9] != socket.IPPROTO_TCP or packet[16:20] != socket.inet_aton(ABROAD):
                continue
            tcp = packet[(packet[0] & 15) * 4 :]
            heads = (packet[0] & 15) * 4 + (tcp[12] >> 4) * 4
            start, length = int.from_bytes(tcp[4:8]), int.from_bytes(packet[2:4]) - heads
            seconds, ns = struct.unpack("@qq", stamps[0][2])
            if length:
                to = int.from_bytes(tcp[2:4])
                self.segments[to].append((start, start + length, seconds * 10**9 + ns))

    def left_ns(self, port: int, octet: int) -> list[int]:
        """When this octet left, each time."""
        octet += self.segments[port][0][0]
        return [ns for start, end, ns in self.segments[port] if start <= octet < end]


def test_no_copy_says_by_how_much_another_one_was_off_where_segments_are_lost(
    tmp_path: Path,
) -> None:
    errors_ns, times = with_a_link(lambda link: _with_losses(tmp_path, link))
    assert max(times) > 1, "segments were sent again"
    assert len(errors_ns) > 20
    assert not [error for error in errors_ns if abs(error) > ANOTHERS_NS]


def _with_losses(folder: Path, link: Link) -> tuple[list[int], list[int]]:
    """Errors of all corrections, in ns, and how often the last octet of each copy was sent."""
    broker = MqtickBroker(folder)
    broker.config.write_text(broker.config.read_text().replace("127.0.0.1:", "0.0.0.0:"))
    run(*link.inside, "ip", "link", "set", "far", "address", MAC, "up")
    run("ip", "neighbour", "add", ABROAD, "lladdr", MAC, "dev", "near")
    lost = (*link.inside, "ip", "address", "add", f"{ABROAD}/24", "dev", "far")
    run(*lost)
    with running(broker):
        return _errors_ns(broker.port, lost, link)


def _subscribed(port: int, number: int) -> socket.socket:
    sock = socket.create_connection((HERE, port), 20, (ABROAD, 0))
    sock.sendall(connect_packet(f"s{number}") + subscribe_packet([TOPIC]))
    assert len(sock.recv(GREETING, socket.MSG_WAITALL)) == GREETING
    return sock


def _errors_ns(port: int, address: tuple[str, ...], link: Link) -> tuple[list[int], list[int]]:
    wire = Wire(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.ntohs(ALL_PROTOCOLS)))
    wire.sniffer.bind(("near", ALL_PROTOCOLS))
    wire.sniffer.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    with link.abroad():
        subscribers = [_subscribed(port, number) for number in range(4)]
    publisher = socket.create_connection(("127.0.0.1", port), 20)
    publisher.sendall(connect_packet("publisher"))
    publisher.recv(4, socket.MSG_WAITALL)
    sent = []  # when each left, not before and not after
    packet = encode_publish(TOPIC.encode(), b"\x20" + bytes(31), None)
    streams = [b""] * len(subscribers)
    for number in range(50):
        if number % 10 == 6:
            run(*address[:4], "del", *address[5:])
        from_ns = time.time_ns()
        publisher.sendall(packet)
        sent.append((from_ns, time.time_ns()))
        time.sleep(0.05)
        wire.look()
        if number % 10 == 9:  # four are lost, and sent again
            time.sleep(0.3)
            run(*address)
            for place, one in enumerate(subscribers):
                while len(streams[place]) < len(packet) * len(sent):
                    streams[place] += one.recv(1 << 16)
    wire.look()
    errors: list[int] = []
    times: list[int] = []
    for one, stream in zip(subscribers, streams, strict=True):
        port_there, length = one.getsockname()[1], len(packet)
        ends = range(GREETING + length, GREETING + length * len(sent) + 1, length)
        left = [wire.left_ns(port_there, end - 1) for end in ends]
        times += map(len, left)
        for number, (stated_ns, off_ns) in enumerate(_copies(stream, length)):
            if off_ns is not None:
                from_ns, to_ns = (at + stated_ns + off_ns for at in sent[number])
                errors.append(min(0, left[number][0] - from_ns) or max(0, left[number][0] - to_ns))
    return errors, times


def _copies(stream: bytes, length: int) -> Iterator[tuple[int, int | None]]:
    """Residence of each copy in ns, and its correction if it is known."""
    ends = range(length, len(stream) + 1, length)
    trailers = [struct.unpack(">QiI", stream[end - 16 : end]) for end in ends]
    for (stated, _, copy), (_, off_ns, after) in pairwise(trailers):
        is_known = copy >> 8 and after >> 8 == (copy >> 8) + 1 and off_ns != UNKNOWN
        yield stated >> 16, off_ns if is_known else None
