"""When the kernel received what the broker sent: from outside, the same for every receiver.

A packet socket on the loopback returns the same stamp (skb->tstamp) that SO_TIMESTAMPING would
give the receiving program, which does not notice. It is read in bulk: no process sleeps on it,
so it wakes none.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

_ETH_P_IP = 0x0800
_ETH_P_ALL = 0x0003
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_TIMESPEC = struct.Struct("=qq")
_BUFFER = 1 << 24


class Received(NamedTuple):
    """A TCP segment with data, as it came in."""

    realtime_ns: int
    from_port: int
    data: bytes


class Sniffer:
    """Listens to the loopback. PermissionError without CAP_NET_RAW, which root has.

    With `outgoing`, it hears packets as they leave rather than as they come in.
    """

    def __init__(self, *, outgoing: bool = False) -> None:
        # A socket bound to one protocol sees only the receiving side's copies.
        protocol = _ETH_P_ALL if outgoing else _ETH_P_IP
        self._kind = socket.PACKET_OUTGOING if outgoing else socket.PACKET_HOST
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(protocol))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.bind(("lo", protocol))
        self._socket.setblocking(False)

    def read(self) -> Iterator[Received]:
        """Yield what came since the last call."""
        while True:
            try:
                packet, ancillary, _, address = self._socket.recvmsg(65536, 256)
            except BlockingIOError:
                return
            seconds, nanoseconds = _TIMESPEC.unpack_from(ancillary[0][2])
            if address[2] != self._kind or packet[9] != socket.IPPROTO_TCP:
                continue
            tcp = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4], "big")]
            data = tcp[(tcp[12] >> 4) * 4 :]
            if data:
                realtime_ns = seconds * 1_000_000_000 + nanoseconds
                yield Received(realtime_ns, int.from_bytes(tcp[:2], "big"), data)

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()
