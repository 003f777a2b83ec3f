"""`mqtick-broker` over TCP where segments are lost: no copy says wrong when the last one left."""

from __future__ import annotations

import concurrent.futures
import ctypes
import os
import shutil
import socket
import struct
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from demo.local_broker import MqtickBroker, running
from mqtick.mqtt.packets import connect_packet, encode_publish, subscribe_packet

NEW_NETWORK = 0x40000000
ALL_PROTOCOLS = 3
SO_TIMESTAMPNS = 35
HERE, ABROAD, MAC = "10.9.0.1", "10.9.0.2", "02:00:00:00:00:02"
TOPIC = "mqtick/t"
UNKNOWN = -(1 << 31)
GREETING = 9  # octets of CONNACK and SUBACK
ANOTHERS_NS = 20_000_000  # copies, and the times that one is sent, are further apart
_libc = ctypes.CDLL(None, use_errno=True)

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make networks"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed"),
]


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


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
    """In a thread of its own, since a thread may have a network of its own."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        errors_ns, times = pool.submit(_with_losses, tmp_path).result()
    assert max(times) > 1, "segments were sent again"
    assert len(errors_ns) > 20
    assert not [error for error in errors_ns if abs(error) > ANOTHERS_NS]


def _with_losses(folder: Path) -> tuple[list[int], list[int]]:
    """Errors of all corrections, in ns, and how often the last octet of each copy was sent."""
    if _libc.unshare(NEW_NETWORK) != 0:
        pytest.skip("no network can be made here")
    broker = MqtickBroker(folder)
    broker.config.write_text(broker.config.read_text().replace("127.0.0.1:", "0.0.0.0:"))
    here = Path("/proc/thread-self/ns/net")
    abroad = subprocess.Popen(["unshare", "--net", "sleep", "120"])
    theirs = Path(f"/proc/{abroad.pid}/ns/net")
    try:
        while theirs.readlink() == here.readlink():
            time.sleep(0.01)
        inside = ("nsenter", f"--net={theirs}")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "near", "type", "veth", "peer", "far", "netns", str(abroad.pid))
        _run("ip", "address", "add", f"{HERE}/24", "dev", "near")
        _run("ip", "link", "set", "near", "up")
        _run(*inside, "ip", "link", "set", "far", "address", MAC, "up")
        _run("ip", "neighbour", "add", ABROAD, "lladdr", MAC, "dev", "near")
        lost = (*inside, "ip", "address", "add", f"{ABROAD}/24", "dev", "far")
        _run(*lost)
        with running(broker):
            return _errors_ns(broker.port, lost, (here, theirs))
    finally:
        abroad.kill()
        abroad.wait()


def _subscribed(port: int, number: int) -> socket.socket:
    sock = socket.create_connection((HERE, port), 20, (ABROAD, 0))
    sock.sendall(connect_packet(f"s{number}") + subscribe_packet([TOPIC]))
    assert len(sock.recv(GREETING, socket.MSG_WAITALL)) == GREETING
    return sock


def _errors_ns(
    port: int, address: tuple[str, ...], networks: tuple[Path, Path]
) -> tuple[list[int], list[int]]:
    with networks[0].open() as here, networks[1].open() as theirs:
        wire = Wire(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.ntohs(ALL_PROTOCOLS)))
        wire.sniffer.bind(("near", ALL_PROTOCOLS))
        wire.sniffer.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        assert _libc.setns(theirs.fileno(), NEW_NETWORK) == 0
        subscribers = [_subscribed(port, number) for number in range(4)]
        assert _libc.setns(here.fileno(), NEW_NETWORK) == 0
    publisher = socket.create_connection(("127.0.0.1", port), 20)
    publisher.sendall(connect_packet("publisher"))
    publisher.recv(4, socket.MSG_WAITALL)
    sent = []  # when each left, not before and not after
    packet = encode_publish(TOPIC.encode(), b"\x20" + bytes(31), None)
    streams = [b""] * len(subscribers)
    for number in range(50):
        if number % 10 == 6:
            _run(*address[:4], "del", *address[5:])
        from_ns = time.time_ns()
        publisher.sendall(packet)
        sent.append((from_ns, time.time_ns()))
        time.sleep(0.05)
        wire.look()
        if number % 10 == 9:  # four are lost, and sent again
            time.sleep(0.3)
            _run(*address)
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
