"""A small HTTP server for one page, ``GET /metrics``, in a daemon thread.

It is bound to loopback unless told otherwise, and has no authentication.  What it reads is
hostile: a request is at most 8 KiB and at most 16 connections are open; the oldest is closed when
another comes, so idle connections cannot keep Prometheus out; each is closed after 5 seconds.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from mqtick.service.metrics import CONTENT_TYPE, Metric, render

_log = logging.getLogger(__name__)

_MAXIMUM_REQUEST = 8192
_MAXIMUM_CONNECTIONS = 16
# After the answer a client may still send this much before it is cut off: closing a socket with
# unread octets would reset the connection, and the client could lose the answer.
_MAXIMUM_DRAIN = 1 << 18
_TIMEOUT_S = 5.0
_IP_FREEBIND = 15  # linux/in.h; not among the socket module's names before Python 3.14


class MetricsError(OSError):
    """The metrics cannot be served; the message is a sentence."""


def parse_address(text: str) -> tuple[str, int]:
    """Split ``127.0.0.1:9752`` or ``[::1]:9752`` into host and port; port 0 lets the kernel choose.

    Raises ValueError with a sentence.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address needs brackets, as in [::1]:9752")
    if not (colon and host and port.isascii() and port.isdigit() and len(port) <= 5):
        raise ValueError(f"{text!r} is not an address; write host:port, as in 127.0.0.1:9752")
    if int(port) > 65535:
        raise ValueError(f"{text!r}: the port is {port}, but at most 65535 is possible")
    return host, int(port)


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    deadline_s: float
    received: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None  # what is still to be sent
    drained: int = 0


def _listen(family: int, address: tuple[Any, ...]) -> socket.socket:
    """Listen at an address, even one that no interface has yet.

    DHCP may come later or assign another address: metrics must not stop the time.
    """
    try:
        return socket.create_server(address, family=family, backlog=16)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
    _log.warning("no interface has the address %s yet: metrics are served once one has", address[0])
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(16)
    except OSError:
        listener.close()
        raise
    return listener


class MetricsServer:
    """Serves ``snapshot()`` at an address.

    ``snapshot`` is called in the server's thread for each request; it must not block.  If it
    raises, the client gets status 500 and the program goes on.
    """

    def __init__(self, address: str, snapshot: Callable[[], Iterable[Metric]]) -> None:
        """Store the arguments; nothing is opened before :meth:`start`.  ValueError: bad address."""
        self._host, self._port = parse_address(address)
        self._snapshot = snapshot
        self._connections: dict[_Connection, None] = {}  # a set that keeps the order of arrival
        self._selector = selectors.DefaultSelector()
        self._thread: threading.Thread | None = None
        self._listener: socket.socket | None = None
        self._bound: tuple[str, int] | None = None
        self._wake, self._wake_end = socket.socketpair()
        self.failures = 0
        """Requests that ended in status 500."""

    @property
    def address(self) -> str:
        """Where it listens, with the port that the kernel chose."""
        host, port = self._bound or (self._host, self._port)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        """Bind and serve from a daemon thread; raises MetricsError if it cannot bind."""
        try:
            info = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            self._listener = _listen(info[0][0], info[0][4][:2])
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            reason = reason.partition(" (while attempting")[0]  # create_server() adds the address
            raise MetricsError(
                f"metrics cannot be served at {self.address}: {reason}; "
                "choose another address, or find who uses this one with: ss -ltnp"
            ) from error
        self._bound = self._listener.getsockname()[:2]
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_end, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close every connection and end the thread; it cannot be started again."""
        self._wake.close()
        if self._thread is None:
            self._release()
        else:
            self._thread.join(timeout=2 * _TIMEOUT_S)

    def _run(self) -> None:
        while self._serve_once():
            pass
        self._release()

    def _release(self) -> None:
        for connection in list(self._connections):
            self._close(connection)
        for end in (self._listener, self._wake_end, self._selector):
            if end is not None:
                end.close()

    def _serve_once(self) -> bool:
        """Wait for something and handle it; False when :meth:`stop` was called."""
        now = time.monotonic()
        deadlines = [connection.deadline_s for connection in self._connections]
        wait = max(min(deadlines) - now, 0.0) if deadlines else None
        for ready, _ in self._selector.select(wait):
            if ready.fileobj is self._wake_end:
                return False
            if ready.fileobj is self._listener:
                self._accept()
            elif ready.data in self._connections:  # it may have been closed to make room
                self._advance(ready.data)
        now = time.monotonic()
        for connection in [c for c in self._connections if c.deadline_s <= now]:
            self._close(connection)
        return True

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            # Out of file descriptors, most likely: without a pause this would be a busy loop.
            time.sleep(0.1)
            return
        client.setblocking(False)
        if len(self._connections) >= _MAXIMUM_CONNECTIONS:
            self._close(next(iter(self._connections)))
        connection = _Connection(client, time.monotonic() + _TIMEOUT_S)
        self._connections[connection] = None
        self._selector.register(client, selectors.EVENT_READ, connection)

    def _advance(self, connection: _Connection) -> None:
        try:
            if connection.answer:
                self._send(connection)
            else:
                self._receive(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._close(connection)

    def _receive(self, connection: _Connection) -> None:
        octets = connection.socket.recv(4096)
        if connection.answer is not None:  # answered: only the end of the connection matters
            connection.drained += len(octets)
        else:
            connection.received += octets
            if answer := self._answer(bytes(connection.received)):
                connection.answer = memoryview(answer)
                self._send(connection)
                return
        if not octets or connection.drained > _MAXIMUM_DRAIN:
            self._close(connection)

    def _send(self, connection: _Connection) -> None:
        assert connection.answer is not None
        with contextlib.suppress(BlockingIOError):
            connection.answer = connection.answer[connection.socket.send(connection.answer) :]
        if connection.answer:
            self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        else:
            connection.socket.shutdown(socket.SHUT_WR)
            self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    def _close(self, connection: _Connection) -> None:
        del self._connections[connection]
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _answer(self, request: bytes) -> bytes | None:
        """Return the answer to what was received so far, or None while the request goes on."""
        if len(request) > _MAXIMUM_REQUEST:
            return _response("431 Request Header Fields Too Large", "the request is too long\n")
        if b"\r\n\r\n" not in request and b"\n\n" not in request:
            return None
        words = request.split(b"\n", 1)[0].split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", "this is not an HTTP 1 request\n")
        if words[0] != b"GET":
            return _response("405 Method Not Allowed", "only GET is answered\n", "Allow: GET\r\n")
        if words[1].partition(b"?")[0] != b"/metrics":
            return _response("404 Not Found", "only /metrics is here\n")
        try:
            text = render(self._snapshot())
        except Exception:
            # Whatever the program's snapshot raises must neither end this thread nor be silent.
            self.failures += 1
            _log.exception("the metrics could not be collected; the client got status 500")
            return _response("500 Internal Server Error", "the metrics could not be collected\n")
        return _response("200 OK", text, content_type=CONTENT_TYPE)


def _response(
    status: str, text: str, header: str = "", content_type: str = "text/plain; charset=utf-8"
) -> bytes:
    body = text.encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n{header}\r\n"
    )
    return head.encode("ascii") + body
