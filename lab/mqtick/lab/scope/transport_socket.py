"""Mends pyvisa-py's session of a raw socket: no send delay, notice of the end, bounded reads."""

from __future__ import annotations

import socket
import time
from typing import Any, Final

# Time-outs restart for each piece, so that a slow instrument may take its time. These limits stop
# endless answers: no line is longer, and no link to an instrument is slower.
_CHUNK: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 20
_SLOWEST_OCTETS_PER_S: Final = 1000


class _AttentiveSocket(socket.socket):
    """A socket that raises an error when the other end has closed.

    pyvisa-py's session treats the empty read as "nothing yet", and spins until the time-out.
    """

    def recv(self, count: int, flags: int = 0, /) -> bytes:
        """Receive; ConnectionResetError at the end."""
        data = super().recv(count, flags)
        if not data:
            raise ConnectionResetError("the instrument closed the connection")
        return data


def mended(resource: Any) -> Any:
    """Mend and return pyvisa-py's (0.8) session of a socket; None with other back ends.

    pyvisa-py treats a refused connection as an open one, and does not know VI_ATTR_TCPIP_NODELAY:
    without that the kernel holds a second command back until the instrument has acknowledged the
    first, which takes up to 40 ms (Nagle's algorithm and delayed acknowledgement).
    """
    session: Any = getattr(resource.visalib, "sessions", {}).get(resource.session)
    plain = getattr(session, "interface", None)
    if not isinstance(plain, socket.socket) or not hasattr(session, "_pending_buffer"):
        return None
    try:
        plain.getpeername()
    except OSError as error:
        raise OSError(error.errno, "connection refused, or no route to the host") from error
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    session.interface = _AttentiveSocket(plain.family, plain.type, plain.proto, plain.detach())
    return session


def received(session: Any, count: int, timeout_s: float) -> bytes:
    """Read that many octets without pyvisa-py, which copies each of them four times.

    Octets in its buffer come first.
    """
    pending = session._pending_buffer
    parts = [bytes(pending[:count])]
    del pending[:count]
    left = count - len(parts[0])
    connection = session.interface
    connection.settimeout(timeout_s)
    end_s = time.monotonic() + timeout_s + count / _SLOWEST_OCTETS_PER_S
    try:
        while left:
            part = connection.recv(min(left, _CHUNK))
            parts.append(part)
            left -= len(part)
            if left and time.monotonic() > end_s:
                raise TimeoutError
    finally:
        connection.setblocking(True)
    return b"".join(parts)


def line_received(session: Any, timeout_s: float) -> bytes:
    """Read a line without its end; not by pyvisa-py, which would read an endless one forever."""
    pending = session._pending_buffer
    connection = session.interface
    connection.settimeout(timeout_s)
    end_s = time.monotonic() + timeout_s
    try:
        while (at := pending.find(b"\n")) < 0:
            if len(pending) > _LONGEST_LINE or time.monotonic() > end_s:
                raise TimeoutError
            pending += connection.recv(_CHUNK)
    finally:
        connection.setblocking(True)
    line = bytes(pending[:at])
    del pending[: at + 1]
    return line.removesuffix(b"\r")
