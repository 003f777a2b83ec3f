"""A socket with kernel timestamps for received and transmitted data.

Linux, Documentation/networking/timestamping.rst: SO_TIMESTAMPING. A receive stamp comes with the
data: on a stream it belongs to the last segment in it. A transmit stamp comes later, on the error
queue, with a number (SOF_TIMESTAMPING_OPT_ID): on a stream the number of the last octet of its
send(); on a datagram socket the number of the datagram among those with a requested stamp. Stamps
are matched by this number, never by order. If the error queue is not drained, every poll returns at
once.

Whoever owns the other end of a stream chooses when TCP lets octets through, and the stamps follow.
An interval may rest on a transmit stamp only if nobody can have made it late, and on a receive
stamp only if nobody can have made it early. So:

- A transmit stamp of the kernel counts only if the message left whole inside the call that sent it:
  in one segment, with no octets waiting before it, stamped before the call returned. A closed
  window, small segments, or a withheld acknowledgement (then the only stamp may be that of a
  retransmission) make it later. Otherwise the program's stamp before the call counts.
- A receive stamp of the kernel counts only if all octets came in order. If the last ones came
  first, the stamp is theirs, although the message was not whole until later. Otherwise the
  program's stamp after the read counts.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import socket
import struct
import sys
import time
from typing import NamedTuple

# asm-generic/socket.h and linux/net_tstamp.h; Python names none of them.
_SO_TIMESTAMPING_OLD, _SO_TIMESTAMPING_NEW = 37, 65
_TX_SOFTWARE, _RX_SOFTWARE, _SOFTWARE = 1 << 1, 1 << 3, 1 << 4
_OPT_ID, _OPT_TSONLY = 1 << 7, 1 << 11
_FLAGS = _RX_SOFTWARE | _SOFTWARE | _OPT_ID | _OPT_TSONLY
_IP_RECVERR, _IPV6_RECVERR = (0, 11), (41, 25)
_ORIGIN_TIMESTAMPING = 4
_EXTENDED_ERROR = struct.Struct("=IBBBBII")  # linux/errqueue.h, struct sock_extended_err
_TIMESPEC_64 = struct.Struct("=qq")
_TIMESPEC_32 = struct.Struct("=ii")
_TRANSMIT_FLAG = struct.pack("=I", _TX_SOFTWARE)
# A request for one message's stamp always uses the old option: Linux 5.1 to 6.7 know the new one
# in setsockopt(), but refuse it in sendmsg() with EINVAL ("net: Implement missing
# SO_TIMESTAMPING_NEW cmsg support", January 2024). It holds flags only, no time.
_TRANSMIT_REQUEST = (socket.SOL_SOCKET, _SO_TIMESTAMPING_OLD, _TRANSMIT_FLAG)
_ANCILLARY = 256
# linux/tcp.h, struct tcp_info: tcpi_snd_mss, tcpi_notsent_bytes, tcpi_min_rtt, and tcpi_rcv_ooopack
# (Linux 5.4).
_TCP_INFO = struct.Struct("=16xI124xII72xI")
_RTT_UNKNOWN = 0xFFFF_FFFF
# asm-generic/socket.h; linux/sock_diag.h: the first number is SK_MEMINFO_RMEM_ALLOC.
_SO_MEMINFO = 55
# All options of a TCP header. While segments of the other side are out of order, the selective
# acknowledgements take this room from our own segments, and tcpi_snd_mss does not say so.
_OPTION_OCTETS = 40
_PENDING_LIMIT = 4096
_ERROR_QUEUE = int(socket.MSG_ERRQUEUE) | int(socket.MSG_DONTWAIT)


class StampSource(enum.IntEnum):
    """The source of a timestamp; the numbers are those of the precise wire format."""

    NONE = 0
    USER = 1
    KERNEL = 2
    HARDWARE = 3


class Stamp(NamedTuple):
    """An instant on CLOCK_REALTIME (ns) and its source."""

    realtime_ns: int
    source: StampSource


class Transmit:
    """The stamps of a sent message; none is later than the instant at which its first octet left.

    Attributes:
        user_ns: Just before the call that gave it to the kernel, CLOCK_REALTIME.
        returned_ns: When that call returned; None if the message did not go out whole in it.
        kernel_ns: When the kernel sent it, if that was inside the call; None if it was not, or is
            not known yet.
    """

    __slots__ = ("kernel_ns", "returned_ns", "user_ns")

    def __init__(self, user_ns: int) -> None:
        self.user_ns = user_ns
        self.returned_ns: int | None = None
        self.kernel_ns: int | None = None

    def note(self, kernel_ns: int) -> None:
        """Take the kernel's stamp of the last octet, if nobody outside can have made it late."""
        if self.returned_ns is not None and self.user_ns <= kernel_ns <= self.returned_ns:
            self.kernel_ns = kernel_ns

    @property
    def stamp(self) -> Stamp:
        """The best stamp known by now."""
        if self.kernel_ns is not None:
            return Stamp(self.kernel_ns, StampSource.KERNEL)
        return Stamp(self.user_ns, StampSource.USER)


class _TcpInfo(NamedTuple):
    """What the kernel says of a connection (tcp(7), TCP_INFO)."""

    segment_octets: int
    """The most that goes into one segment."""
    unsent_octets: int
    round_trip_us: int
    """The shortest of the last minutes; `_RTT_UNKNOWN` before the first."""
    out_of_order: int
    """Segments that have come out of order so far."""


class Buffered(abc.ABC):
    """Reads large chunks and returns small pieces: one system call for many small reads.

    The other socket methods that paho-mqtt needs are those of the kernel's socket.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0

    @property
    @abc.abstractmethod
    def kernel(self) -> KernelSocket:
        """The socket at the bottom, which has the stamps."""

    @abc.abstractmethod
    def _read(self, size: int) -> bytes:
        """Read what is there; b"" at the end, BlockingIOError if there is nothing yet."""

    def read_chunk(self, size: int = 65536) -> bytes:
        """Read what is there; b"" at the end, BlockingIOError if there is nothing yet."""
        if self._buffer:
            data, self._buffer = self._buffer[self._at :], b""
            return data
        return self._read(size)

    def recv(self, size: int) -> bytes:
        """Read at most `size` octets."""
        if not self._buffer:
            self._buffer, self._at = self._read(65536), 0
        start, self._at = self._at, self._at + size
        data = self._buffer[start : self._at]
        if self._at >= len(self._buffer):
            self._buffer = b""
        return data

    @property
    def buffered(self) -> int:
        """Octets read from the kernel and not yet handed on."""
        return len(self._buffer) - self._at if self._buffer else 0

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        return self.kernel.sock.fileno()

    def setblocking(self, flag: bool) -> None:
        """Set or clear blocking mode."""
        self.kernel.sock.setblocking(flag)

    def settimeout(self, timeout_s: float | None) -> None:
        """Set the time-out of blocking calls, in seconds."""
        self.kernel.sock.settimeout(timeout_s)


class KernelSocket(Buffered):
    """Wraps a connected socket; has the methods that paho-mqtt needs, and stamps.

    `mode` is `auto` (kernel stamps if the socket has them) or `user` (never ask for them). AF_UNIX
    sockets have no kernel stamps. Each read of a datagram socket returns one datagram.
    """

    def __init__(self, sock: socket.socket, mode: str = "auto") -> None:
        super().__init__()
        self.sock = sock
        self.received = Stamp(0, StampSource.NONE)
        """When the last octets that were read arrived."""
        self.transmit: Transmit | None = None
        """Set for one send to get its transmit stamp: of the last octet, or of the datagram."""
        self.linger_s = 0.0
        """How long `close` waits until the other side has read all data and has closed."""
        self.quick = True
        """Whether `acknowledge` acknowledges at once; else it delays, as most programs do."""
        self.sent = 0
        """Octets sent on a stream, or datagrams with a requested stamp: what the kernel counts."""
        self._pending: dict[int, Transmit] = {}
        """By number: the messages whose stamps have not come."""
        self._info: _TcpInfo | None = None
        """What the kernel said when something was read last."""
        self._out_of_order = 0
        """Segments out of order up to the last moment when none of them was waiting."""
        self._cmsg_type = 0
        is_network = sock.family in (socket.AF_INET, socket.AF_INET6)
        self._is_stream = sock.type == socket.SOCK_STREAM
        self._is_tcp = is_network and self._is_stream
        if mode != "user" and is_network:
            self._enable()

    @property
    def kernel(self) -> KernelSocket:
        """This socket itself."""
        return self

    def _enable(self) -> None:
        # The old option, only for kernels without the new one, has 32-bit seconds on 32-bit hosts.
        for option in (_SO_TIMESTAMPING_NEW, _SO_TIMESTAMPING_OLD):
            try:
                self.sock.setsockopt(socket.SOL_SOCKET, option, _FLAGS)
            except OSError:
                continue
            self._cmsg_type = option
            return

    @property
    def kernel_stamps(self) -> bool:
        """Whether the kernel accepted the request for timestamps."""
        return self._cmsg_type != 0

    def _stamp_of(self, data: bytes) -> int:
        """Nanoseconds of the software stamp in a SCM_TIMESTAMPING message, 0 if there is none."""
        narrow = self._cmsg_type == _SO_TIMESTAMPING_OLD and sys.maxsize < 2**32
        layout = _TIMESPEC_32 if narrow else _TIMESPEC_64
        if len(data) < layout.size:
            return 0
        seconds, nanoseconds = layout.unpack_from(data)
        return int(seconds) * 1_000_000_000 + int(nanoseconds)

    def _read(self, size: int) -> bytes:
        """Read, and set `received` to the time of arrival; b"" at the end of stream."""
        if not self._cmsg_type:
            data = self.sock.recv(size)
            self.received = Stamp(time.time_ns(), StampSource.USER)
            return data
        try:
            data, ancillary, _, _ = self.sock.recvmsg(size, _ANCILLARY)
        except BlockingIOError:
            self._see_whether_all_is_in_order()
            raise
        now_ns, kernel_ns = time.time_ns(), 0
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == self._cmsg_type:
                kernel_ns = self._stamp_of(value)
        if self._is_in_order() and kernel_ns:
            self.received = Stamp(kernel_ns, StampSource.KERNEL)
        else:
            self.received = Stamp(now_ns, StampSource.USER)
        return data

    def _tcp_info(self) -> _TcpInfo | None:
        """Ask the kernel; None if it does not say enough, as kernels before Linux 5.4."""
        size = _TCP_INFO.size
        found = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        return _TcpInfo(*_TCP_INFO.unpack(found)) if len(found) == size else None

    @property
    def round_trip_ns(self) -> int:
        """The shortest TCP round trip of the last minutes; 0 if it is not known."""
        info = self._info or (self._tcp_info() if self._is_tcp else None)
        if info is None or info.round_trip_us == _RTT_UNKNOWN:
            return 0
        return info.round_trip_us * 1000

    def _is_in_order(self) -> bool:
        """Whether all that was read now has come in order."""
        if not self._is_tcp:
            return True  # a datagram comes whole
        self._info = self._tcp_info()
        return self._info is not None and self._info.out_of_order == self._out_of_order

    def _see_whether_all_is_in_order(self) -> None:
        """Trust stamps again if nothing waits in the socket, in order or out of order.

        Counted first: what comes between the two questions makes the next stamp count as doubtful.
        """
        if self._info is None or self._info.out_of_order == self._out_of_order:
            return  # nothing was out of order when something was read last
        self._info = info = self._tcp_info()
        if info is not None:
            used = self.sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4)
            if used == bytes(4):
                self._out_of_order = info.out_of_order

    def acknowledge(self) -> None:
        """Acknowledge at once, not 40 ms later (tcp(7), TCP_QUICKACK, which is not permanent).

        A broker with Nagle's algorithm on, as Mosquitto by default, holds the next message back
        until then.
        """
        if self._is_tcp:
            with contextlib.suppress(OSError):  # closed meanwhile: the next read will fail
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, int(self.quick))

    def send(self, data: bytes | bytearray) -> int:
        """Send; if `transmit` is set, ask the kernel for the transmit stamp."""
        transmit = self.transmit if self._cmsg_type else None
        if transmit is None:
            count = self.sock.send(data)
            self.sent += count if self._is_stream else 0
            return count
        self.transmit = None  # what a second call sends is not the beginning of the message
        goes_whole = self._goes_whole(len(data))
        transmit.user_ns = time.time_ns()
        try:
            count = self.sock.sendmsg([data], [_TRANSMIT_REQUEST])
        except OSError:
            self._count_anew()
            raise
        if goes_whole and count == len(data):
            transmit.returned_ns = time.time_ns()
        self.sent += count if self._is_stream else 1
        if transmit.returned_ns is not None:
            if len(self._pending) >= _PENDING_LIMIT:
                self._pending.pop(next(iter(self._pending)))
            self._pending[(self.sent - 1) & 0xFFFFFFFF] = transmit
        return count

    def _goes_whole(self, octets: int) -> bool:
        """Whether so many octets fit into one segment, and none wait to be sent before them."""
        if not self._is_tcp:
            return True
        info = self._tcp_info()
        if info is None or info.unsent_octets:
            return False
        return octets + _OPTION_OCTETS <= info.segment_octets

    def _count_anew(self) -> None:
        """Start the numbers at 0 again, here and in the kernel, after a datagram was not sent.

        Kernels before 2024 count such datagrams, too ("net-timestamp: make sk_tskey more
        predictable in error path", February 2024): every later stamp would be matched wrongly.
        """
        if self._is_stream:
            return
        self.drain_error_queue()
        self._pending.clear()
        self.sent = 0
        with contextlib.suppress(OSError):  # the next read will fail
            for flags in (_FLAGS & ~_OPT_ID, _FLAGS):  # the kernel's count is reset to 0
                self.sock.setsockopt(socket.SOL_SOCKET, self._cmsg_type, flags)

    @property
    def unsent(self) -> int:
        """Octets accepted, but not yet given to the kernel: always 0 for a plain socket."""
        return 0

    def flush(self) -> None:
        """Do nothing: a plain socket has no unsent octets."""

    def peer_certificate(self) -> None:
        """Return None: there is no certificate without TLS."""

    def drain_error_queue(self, *, wanted: bool = False) -> int:
        """Take all transmit stamps from the error queue; return how many matched a message.

        `wanted`: no more of them than messages wait for.
        """
        matched = 0
        while self._cmsg_type and (self._pending or not wanted):
            try:
                _, ancillary, _, _ = self.sock.recvmsg(0, _ANCILLARY, _ERROR_QUEUE)
            except OSError:  # BlockingIOError: empty; after others the next read will fail
                break
            if not ancillary:
                break
            realtime_ns, offset = 0, -1
            for level, kind, value in ancillary:
                if level == socket.SOL_SOCKET and kind == self._cmsg_type:
                    realtime_ns = self._stamp_of(value)
                elif (level, kind) in (_IP_RECVERR, _IPV6_RECVERR):
                    fields = _EXTENDED_ERROR.unpack_from(value)
                    if fields[1] == _ORIGIN_TIMESTAMPING:
                        offset = fields[6]
            transmit = self._pending.pop(offset, None)
            if transmit is not None and realtime_ns:
                transmit.note(realtime_ns)
                matched += 1
        return matched

    def close(self) -> None:
        """Close the socket; transmit stamps that have not come yet are lost."""
        if self.linger_s and self._is_stream:
            self._let_read()
        self.sock.close()

    def _let_read(self) -> None:
        """Shut down our side, and wait until the other side closes.

        If a broker writes to a socket that is closed already, it gets a reset, and does not read
        the DISCONNECT that came before.
        """
        end_s = time.monotonic() + self.linger_s
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
            while (rest_s := end_s - time.monotonic()) > 0:
                self.sock.settimeout(rest_s)
                if not self.sock.recv(65536):
                    return
