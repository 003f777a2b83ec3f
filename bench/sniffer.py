"""The kernel's stamps of packets on an interface, independent of the receiving programs.

A packet socket is read in bulk: no process sleeps on it, so it wakes none. Each packet is captured
twice. When it leaves, it is stamped before the driver, where a socket's transmit stamp is made.
When it comes in, it is stamped before IP. For TCP on the loopback this is a separate reading of the
clock: a socket's receive stamp is made after IP, a little later (packet_rcv() and
ip_local_deliver_finish() of Linux, which both call skb_clear_delivery_time()).

It listens to all protocols: a packet socket for IP only would be served after TCP, and its stamps
would include TCP's work.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

_ETH_P_ALL = 0x0003
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_TIMESPEC = struct.Struct("=qq")
_BUFFER = 1 << 25


class Heard(NamedTuple):
    """A TCP segment with data, captured when it left or when it came in."""

    realtime_ns: int
    outgoing: bool
    ports: tuple[int, int]
    """Source port, destination port."""
    sequence: int
    """Sequence number of its first octet, 32 bits."""
    data: bytes


class Sniffer:
    """Listens to an interface. PermissionError without CAP_NET_RAW, which root has."""

    def __init__(self, interface: str = "lo") -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.bind((interface, _ETH_P_ALL))
        self._socket.setblocking(False)

    def packets(self, protocol: int) -> Iterator[tuple[int, bool, bytes]]:
        """Yield instant, whether it left, and what is in each IPv4 packet since the last call."""
        while True:
            try:
                packet, ancillary, _, address = self._socket.recvmsg(1 << 17, 256)
            except BlockingIOError:
                return
            if packet[0] >> 4 != 4 or packet[9] != protocol:
                continue
            seconds, nanoseconds = _TIMESPEC.unpack_from(ancillary[0][2])
            at_ns = seconds * 1_000_000_000 + nanoseconds
            octets = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4], "big")]
            yield at_ns, address[2] == socket.PACKET_OUTGOING, octets

    def read(self) -> Iterator[Heard]:
        """Yield the TCP segments captured since the last call."""
        for at_ns, outgoing, tcp in self.packets(socket.IPPROTO_TCP):
            if data := tcp[(tcp[12] >> 4) * 4 :]:
                source, destination, sequence = struct.unpack_from("!HHI", tcp)
                yield Heard(at_ns, outgoing, (source, destination), sequence, data)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
