"""TCP and UDP over IPv4 on a TUN device, for whoever decides himself when which octet goes through.

The hosts' own kernels are on the other side. Nothing here is more than such a peer may do: it picks
segment sizes, windows and the order of segments, and acknowledges when it likes.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from demo.local_sensors import inside

__all__ = ["HERE", "Address", "Network", "Shape", "Tcp"]

HERE, THERE = bytes([10, 77, 0, 2]), "10.77.0.1/24"
"""Our address, and that of the hosts' end of the device."""
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
_TCP, _UDP = 6, 17
# linux/if_tun.h
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 1, 0x1000
_MORE_FRAGMENTS = 0x2000
_MASK = 0xFFFFFFFF
_REPEAT_NS = 300_000_000


class Address(NamedTuple):
    """One end of a connection on the hosts' side."""

    host: bytes
    port: int


@dataclass
class Shape:
    """How octets are cut into segments, and in which order these leave; durations in ns."""

    size: int = 1400
    backwards: bool = False
    pause_ns: int = 0
    """Between two segments of one message."""
    overlap: int = 0
    """So many octets before each segment are sent again in it, with other values."""
    copies: int = 1


def _checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


class Network:
    """The device, a clock for what is due later, and a thread that runs it all."""

    def __init__(self, namespace: str) -> None:
        with inside(namespace):
            self._device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            request = struct.pack("16sH22s", b"hostile", _IFF_TUN | _IFF_NO_PI, b"")
            fcntl.ioctl(self._device, _TUNSETIFF, request)
            for words in (f"address add {THERE} dev hostile", "link set hostile up"):
                subprocess.run(["ip", *words.split()], check=True)
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self.take_syn: Callable[[int], Callable[[Tcp], None] | None] = lambda _port: None
        """Asked with the port of a new connection; who takes it, None to refuse it."""
        self.take_datagram: Callable[[int, Address, bytes], None] = lambda _port, _from, _data: None
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._packets = itertools.count(1)
        self._lines: dict[tuple[int, Address], Tcp] = {}
        self._ended = False
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)

    def start(self) -> None:
        """Run from now on."""
        self._thread.start()

    def later(self, wait_ns: int, call: Callable[[], None]) -> None:
        """Call something after a while, on the network's thread."""
        due_ns = time.monotonic_ns() + max(0, wait_ns)
        heapq.heappush(self._timers, (due_ns, next(self._count), call))

    def _run(self) -> None:
        waiting = select.poll()
        waiting.register(self._device, select.POLLIN)
        try:
            while not self._ended:
                wait_ns = self._timers[0][0] - time.monotonic_ns() if self._timers else 10**8
                if waiting.poll(max(0, min(wait_ns, 10**8) / 1e6)):
                    with contextlib.suppress(BlockingIOError):
                        for _ in range(64):
                            self._take(os.read(self._device, 65536))
                while self._timers and self._timers[0][0] <= time.monotonic_ns():
                    heapq.heappop(self._timers)[2]()
        except BaseException as error:
            self.fault = error
            raise

    def close(self) -> None:
        """End the thread, and take the device away."""
        self._ended = True
        if self._thread.is_alive():
            self._thread.join(10)
        os.close(self._device)

    # -- packets ---------------------------------------------------------------------------------

    def packet(
        self, kind: int, far: Address, body: bytes, *, number: int | None = None, fragment: int = 0
    ) -> None:
        """Send an IPv4 packet; `fragment` is the header's field of this name, flags included."""
        header = struct.pack(
            "!BBHHHBBH4s4s",
            *(0x45, 0, 20 + len(body), (number or next(self._packets)) & 0xFFFF, fragment),
            *(64, kind, 0, HERE, far.host),
        )
        header = header[:10] + struct.pack("!H", _checksum(header)) + header[12:]
        os.write(self._device, header + body)

    def datagram(self, port: int, far: Address, data: bytes) -> bytes:
        """Return a UDP datagram without a checksum, which IPv4 allows."""
        return struct.pack("!HHHH", port, far.port, 8 + len(data), 0) + data

    def send_fragments(
        self, far: Address, datagram: bytes, cut: int, *, number: int, head: bool, tail: bool
    ) -> None:
        """Send the first octets up to `cut`, a multiple of 8, the others, or both."""
        if tail:
            self.packet(_UDP, far, datagram[cut:], number=number, fragment=cut // 8)
        if head:
            self.packet(_UDP, far, datagram[:cut], number=number, fragment=_MORE_FRAGMENTS)

    def send_datagram(self, far: Address, datagram: bytes) -> None:
        """Send a datagram as one packet."""
        self.packet(_UDP, far, datagram)

    def next_number(self) -> int:
        """Return an identification for the fragments of a packet."""
        return next(self._packets) & 0xFFFF or self.next_number()

    def _take(self, packet: bytes) -> None:
        if packet[0] >> 4 != 4 or packet[16:20] != HERE:
            return
        start, end = 4 * (packet[0] & 15), struct.unpack_from("!H", packet, 2)[0]
        body = packet[start:end]
        source, port = struct.unpack_from("!HH", body)
        far = Address(packet[12:16], source)
        if packet[9] == _UDP:
            self.take_datagram(port, far, body[8:])
        elif packet[9] == _TCP:
            self._take_segment(port, far, body)

    def _take_segment(self, port: int, far: Address, body: bytes) -> None:
        sequence, acknowledged, offset, flags = struct.unpack_from("!IIBB", body, 4)
        line = self._lines.get((port, far))
        if flags & SYN:
            taker = self.take_syn(port)
            if taker is not None:
                line = self._lines[port, far] = Tcp(self, port, far, sequence)
                taker(line)
                line.accept()
        elif line is not None:
            line.take(sequence, acknowledged, flags, body[4 * (offset >> 4) :])
            if flags & (FIN | RST):
                del self._lines[port, far]


class Tcp:
    """One connection, on which each octet leaves, and is acknowledged, when we like."""

    def __init__(self, network: Network, port: int, far: Address, first: int) -> None:
        self.network, self.port, self.far = network, port, far
        self.mss, self.window = 1400, 60_000
        self.withheld_ns = 0
        """How long an acknowledgement is withheld."""
        self.shape = Shape()
        self.on_octets: Callable[[bytes], None] = lambda _octets: None
        self.on_end: Callable[[], None] = lambda: None
        self.is_open = True
        self._expected = first + 1
        self.at = random.getrandbits(31)
        """Where the next octet of the stream goes."""
        self._unread = self.at + 1
        self._kept: dict[int, bytes] = {}
        """What was written, and was not acknowledged yet, by place."""
        self._last_ns = self._farthest = 0

    def accept(self) -> None:
        """Answer the SYN."""
        # Maximum segment size, and selective acknowledgements (RFC 2018): these make the host's
        # segments shorter by 12 octets and more while it has octets out of order.
        self._segment(SYN | ACK, options=struct.pack("!BBHBBBB", 2, 4, self.mss, 4, 2, 1, 1))
        self.at += 1
        self.network.later(_REPEAT_NS, self._repeat)

    def _segment(
        self, flags: int, data: bytes = b"", at: int | None = None, options: bytes = b""
    ) -> None:
        if not self.is_open:
            return
        # A window that is opened again counts only beyond whatever came before.
        self._farthest = max(self._farthest, self.at if at is None else at)
        words = 5 + len(options) // 4
        segment = struct.pack(
            "!HHIIBBHHH",
            *(self.port, self.far.port, (self.at if at is None else at) & _MASK),
            *(self._expected & _MASK, words << 4, flags, self.window, 0),
            0,
        )
        segment += options + data
        whole = HERE + self.far.host + struct.pack("!HH", _TCP, len(segment)) + segment
        segment = segment[:16] + struct.pack("!H", _checksum(whole)) + segment[18:]
        self.network.packet(_TCP, self.far, segment)

    # -- to the host -----------------------------------------------------------------------------

    def write(self, octets: bytes) -> None:
        """Put octets at the end of the stream; its shape says how they leave."""
        shape, begin = self.shape, self._append(octets)
        starts = list(range(0, len(octets), shape.size))
        if shape.backwards:
            starts.reverse()
        for turn, start in enumerate(starts):
            data, at = octets[start : start + shape.size], begin + start
            again = min(shape.overlap, start)
            # Other octets than those that came before; where none came yet, they would be taken.
            true = octets[start - again : start]
            data, at = (true if shape.backwards else b"\xff" * again) + data, at - again
            for _ in range(shape.copies):
                self._at_turn(turn * shape.pause_ns, PSH | ACK, data, at)

    def write_over(self, octets: bytes, planted: Iterable[tuple[int, int]]) -> None:
        """Put octets at the end of the stream, also where others (place, size) were planted.

        The kernel forgets what it has if a segment comes that begins before it and ends after it.
        """
        begin, start = self._append(octets), 0
        while start < len(octets):
            end = start + 1400
            for place, size in planted:
                if place - begin <= end <= place - begin + size:
                    end = place - begin - 1
            self._segment(PSH | ACK, octets[start:end], begin + start)
            start = end

    def _append(self, octets: bytes) -> int:
        """Note octets that are written, and return their place."""
        begin = self.at
        self._kept[begin] = octets
        self.at += len(octets)
        self._last_ns = time.monotonic_ns()
        return begin

    def _at_turn(self, wait_ns: int, flags: int, data: bytes, at: int) -> None:
        if wait_ns:
            self.network.later(wait_ns, lambda: self._segment(flags, data, at))
        else:
            self._segment(flags, data, at)

    def plant(self, at: int, octets: bytes) -> None:
        """Send octets of a later place of the stream now."""
        self._segment(PSH | ACK, octets, at)

    def skip(self, octets: bytes) -> None:
        """Take for written what was planted at the end of the stream."""
        self._append(octets)

    def _repeat(self) -> None:
        """Send again what the host has not acknowledged: its kernel may have dropped it."""
        if not self.is_open:
            return
        if self._kept and time.monotonic_ns() - self._last_ns > 2 * _REPEAT_NS:
            self._last_ns = time.monotonic_ns()
            for at, octets in sorted(self._kept.items())[:8]:
                for start in range(0, len(octets), 1400):
                    self._segment(PSH | ACK, octets[start : start + 1400], at + start)
        self.network.later(_REPEAT_NS, self._repeat)

    # -- from the host ---------------------------------------------------------------------------

    def take(self, sequence: int, acknowledged: int, flags: int, data: bytes) -> None:
        """Take a segment."""
        if flags & RST:
            self.end()
            return
        read = self._unread + ((acknowledged - self._unread + (1 << 31)) & _MASK) - (1 << 31)
        if read > self._unread:
            self._unread, self._last_ns = read, time.monotonic_ns()
            for at in [at for at, octets in self._kept.items() if at + len(octets) <= read]:
                del self._kept[at]
        old = (self._expected - sequence) & _MASK
        if data and old <= len(data):
            fresh = data[old:]
            self._expected += len(fresh)
            if fresh:
                self.on_octets(fresh)
        if data:
            self._at_turn(self.withheld_ns, ACK, b"", self.at)
        if flags & FIN:
            self._expected += 1
            self._segment(ACK | FIN)
            self.end()

    def acknowledge(self) -> None:
        """Say how far the window is open now."""
        self._segment(ACK, at=self._farthest)

    def end(self) -> None:
        """Forget the connection."""
        if self.is_open:
            self.is_open = False
            self.on_end()
