"""One end of a TCP connection, in place of the kernel's socket below the real stamps and frames.

Whoever runs the broker owns the other end: he says when octets may leave (the window), in how large
segments, and in which order those to the host arrive.
"""

from __future__ import annotations

import socket
import struct
from collections import deque

from virtual_time import MS, US, HostClock, World

_STAMPING_NEW, _STAMPING_OLD, _MEMINFO = 65, 37, 55  # asm-generic/socket.h
# linux/tcp.h, struct tcp_info: the largest segment, octets not sent, segments out of order.
_INFO = struct.Struct("=16xI124xI76xI")
_ERROR_QUEUE = int(socket.MSG_ERRQUEUE)
_WHOLE, _SMALL = 1448, 49
_STAMP = struct.Struct("=qq")
_EXTENDED_ERROR = struct.Struct("=IBBBBII")
_CALL_NS = 100 * US
"""What has not left by then is not waited for by the call that sends it."""
_PROBED_NS = 200 * MS
"""Octets that do not fit into a window leave in part when the kernel probes it."""


class Tcp:
    """A connected socket with kernel stamps (unless `stamps` is off).

    Attributes:
        window_ns: Nothing leaves before this instant of the true time.
        left_ns: When all of the last message that matters had left.
        spent_ns: How long the present call of the program has taken.
    """

    family, type = socket.AF_INET, socket.SOCK_STREAM

    def __init__(self, world: World, host: HostClock, *, stamps: bool) -> None:
        self._world, self._host, self._stamps = world, host, stamps
        self.window_ns = self.left_ns = self.spent_ns = 0
        self._hold = 0, 0, False
        self._gone_ns = 0
        self._sent = 0
        self._departures: deque[tuple[int, int]] = deque()
        self._out_of_order = 0
        self._tails: deque[int] = deque()
        self._arrived: tuple[bytes, int | None] | None = None

    def now_ns(self) -> int:
        """CLOCK_REALTIME of the host in the present call."""
        return self._host.realtime_at(self._world.now_ns + self.spent_ns)

    def setsockopt(self, _level: int, option: int, _value: object) -> None:
        if option in (_STAMPING_NEW, _STAMPING_OLD) and not self._stamps:
            raise OSError

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        if level == socket.SOL_SOCKET and option == _MEMINFO:
            return len(self._tails).to_bytes(4, "little")
        unsent = self._gone_ns > self._world.now_ns + _CALL_NS
        octets = _SMALL if self._hold[2] and self._tail_ns else _WHOLE
        return _INFO.pack(octets, unsent, self._out_of_order)[:size]

    # -- what the host sends ---------------------------------------------------------------------

    def hold_tails(self, late_ns: int, until_ns: int, *, small: bool) -> None:
        """Let the end of each message, which nobody needs to know it, leave so much later.

        `small`: by small segments; else by a window that the whole message does not fit into.
        """
        self._hold = late_ns, until_ns, small

    @property
    def _tail_ns(self) -> int:
        late_ns, until_ns, _ = self._hold
        return late_ns if self._world.now_ns < until_ns else 0

    def send(self, data: bytes) -> int:
        world = self._world
        left_ns = world.now_ns + 5 * US + world.chance_ns(25 * US)
        if self._tail_ns and not self._hold[2]:
            left_ns += _PROBED_NS
        self.left_ns = max(left_ns, self.window_ns, self._gone_ns + US)
        self._gone_ns = self.left_ns + self._tail_ns
        took_ns = self._gone_ns - world.now_ns
        self.spent_ns = took_ns + US if took_ns < _CALL_NS else 10 * US
        self._sent += len(data)
        return len(data)

    def sendmsg(self, buffers: list[bytes], _ancillary: object) -> int:
        octets = self.send(buffers[0])
        self._departures.append((self._gone_ns, (self._sent - 1) & 0xFFFFFFFF))
        return octets

    # -- what comes to it ------------------------------------------------------------------------

    def send_ahead(self, came_ns: int) -> None:
        """Have the end of a message that does not exist yet come first."""
        self._out_of_order += 1
        self._tails.append(came_ns)

    def arrive(self, frame: bytes, came_ns: int, *, stamped: bool, completes: bool) -> None:
        """Have a frame come; the kernel's stamp is of what came last *in order of octets*."""
        if completes and self._tails:
            came_ns = self._tails.popleft()
        self._arrived = frame, self._host.realtime_at(came_ns) if stamped else None

    def recv(self, _size: int) -> bytes:
        if self._arrived is None:
            raise BlockingIOError
        (frame, _), self._arrived = self._arrived, None
        return frame

    def recvmsg(
        self, size: int, _ancillary: int, flags: int = 0
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        if flags & _ERROR_QUEUE:
            return b"", self._departed(), 0, None
        stamp_ns = self._arrived[1] if self._arrived is not None else None
        found = [] if stamp_ns is None else [_stamp(stamp_ns)]
        return self.recv(size), found, 0, None

    def _departed(self) -> list[tuple[int, int, bytes]]:
        if not self._departures or self._departures[0][0] > self._world.now_ns + _CALL_NS:
            raise BlockingIOError
        gone_ns, number = self._departures.popleft()
        error = _EXTENDED_ERROR.pack(42, 4, 0, 0, 0, 0, number)
        return [_stamp(self._host.realtime_at(gone_ns)), (socket.IPPROTO_IP, 11, error)]


def _stamp(realtime_ns: int) -> tuple[int, int, bytes]:
    return socket.SOL_SOCKET, _STAMPING_NEW, _STAMP.pack(*divmod(realtime_ns, 10**9))
