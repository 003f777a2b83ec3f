"""A small HTTP server for some pages, such as `GET /metrics`, in a daemon thread.

It is bound to loopback by default, and has no authentication. Clients may be hostile: at most 8 KiB
of a request are read, and at most 16 connections are open. A new connection closes the oldest, so
idle ones cannot keep Prometheus out; each is closed after 5 seconds.
"""

from __future__ import annotations

import contextlib
import errno
import http.server
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from io import BufferedIOBase
from typing import Any

from mqtick.service.metrics import CONTENT_TYPE, Metric, render

_log = logging.getLogger(__name__)

_MAXIMUM_REQUEST = 8192
_MAXIMUM_CONNECTIONS = 16
_TIMEOUT_S = 5.0
_ONLY_OURS = "default-src 'self' 'unsafe-inline'; img-src data:"
_IP_FREEBIND = 15  # linux/in.h; not among the socket module's names before Python 3.14


Pages = Mapping[str, Callable[[], tuple[str, bytes]]]
"""By path, a function that returns a page's type and octets."""


class PageError(OSError):
    """The pages cannot be served; the message is a sentence."""


def parse_address(text: str) -> tuple[str, int]:
    """Split `127.0.0.1:9752` or `[::1]:9752` into host and port; port 0 lets the kernel choose.

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


def _listen(family: int, address: tuple[Any, ...]) -> socket.socket:
    """Listen at an address, even one that no interface has yet.

    DHCP may assign the address later, or another one: metrics must not keep the program from
    starting.
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


class _Head:
    """The limited head of a request; http.server alone would read up to 6 MiB."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file, self._left = file, _MAXIMUM_REQUEST

    def readline(self, most: int) -> bytes:
        line = self._file.readline(min(most, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        self._file.close()


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection, in a thread of its own."""

    server: _Server
    timeout = _TIMEOUT_S
    error_message_format = "%(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def setup(self) -> None:
        super().setup()
        head: Any = _Head(self.rfile)
        self.rfile = head

    def do_GET(self) -> None:
        pages = self.server.pages
        page = pages.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(404, f"only {' and '.join(pages)} is here")
            return
        try:
            content_type, body = page()
        except Exception:
            # Any exception of the program's page must be logged.
            _log.exception("%s could not be made; the client got status 500", self.path)
            self.send_error(500, f"{self.path} could not be made")
            return
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        # A page shows what its own server says, and loads nothing from elsewhere.
        self.send_header("Content-Security-Policy", _ONLY_OURS)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def version_string(self) -> str:
        return "mqtick"

    def log_message(self, format: str, *arguments: Any) -> None:
        _log.debug(format, *arguments)


class _Server(socketserver.ThreadingTCPServer):
    """Accepts connections and ends those that take too long."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, pages: Pages) -> None:
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.pages = pages
        self.open: dict[Any, float] = {}
        """Connections, the oldest first, and when each will be closed."""
        self._stopped = False

    def run(self) -> None:
        """Serve until `stop`; wakes up only for connections."""
        while not self._stopped:
            self.timeout = min(1.0, _TIMEOUT_S) if self.open else None
            self.handle_request()
            now_s = time.monotonic()
            self._cut([each for each, until_s in list(self.open.items()) if until_s <= now_s])
        self._cut(list(self.open))
        self.server_close()

    def stop(self) -> None:
        """End `run`, and every connection."""
        self._stopped = True
        with contextlib.suppress(OSError):  # `run` may have ended already
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes it up

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:
            # Most likely, there are no file descriptors left: pause, to avoid a busy loop.
            time.sleep(0.0 if self._stopped else 0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        self._cut(list(self.open)[: max(len(self.open) - _MAXIMUM_CONNECTIONS + 1, 0)])
        self.open[request] = time.monotonic() + _TIMEOUT_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection for a page broke", exc_info=True)

    def _cut(self, connections: list[Any]) -> None:
        """Shut down these connections; their threads notice it and end."""
        for connection in connections:
            self.open.pop(connection, None)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class PageServer:
    """Serves pages at an address; `what` names them in messages.

    A page's function is called in another thread for each request; it must not block, and must not
    read data that the program changes meanwhile. If it raises, the client gets status 500 and the
    program goes on.
    """

    def __init__(self, address: str, pages: Pages, what: str) -> None:
        """Store the arguments; nothing is opened before `start`. ValueError: bad address."""
        self._host, self._port = parse_address(address)
        self._pages, self._what = pages, what
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._starting: threading.Thread | None = None
        self.trouble = ""
        """Why nothing is served; empty if it is, or nobody has tried."""

    @property
    def address(self) -> str:
        """The address at which it listens, with the port that the kernel chose."""
        port = self._server.server_address[1] if self._server else self._port
        return f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"

    def start(self) -> None:
        """Bind and serve from a daemon thread; raises PageError if it cannot bind."""
        try:
            info = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            listener = _listen(info[0][0], info[0][4][:2])
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            reason = reason.partition(" (while attempting")[0]  # create_server() adds the address
            raise PageError(
                f"{self._what} cannot be served at {self.address}: {reason}; "
                "choose another address, or find who uses this one with: ss -ltnp"
            ) from error
        self._server = _Server(listener, self._pages)
        self._thread = threading.Thread(target=self._server.run, name="pages", daemon=True)
        self._thread.start()

    def tend(self) -> None:
        """Start, again if it failed; in a thread, since a name may have to be resolved."""
        if self._server is None and not (self._starting and self._starting.is_alive()):
            self._starting = threading.Thread(target=self._try, name="pages-start", daemon=True)
            self._starting.start()

    def _try(self) -> None:
        trouble = ""
        try:
            self.start()
        except PageError as error:
            trouble = str(error)
            if trouble != self.trouble:
                _log.warning("%s", trouble)
        self.trouble = trouble

    def stop(self) -> None:
        """Close every connection and end the thread."""
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join(timeout=2 * _TIMEOUT_S)


class MetricsServer(PageServer):
    """Serves `snapshot()` at /metrics, as Prometheus reads it."""

    def __init__(self, address: str, snapshot: Callable[[], Iterable[Metric]]) -> None:
        """See `PageServer`."""
        pages = {"/metrics": lambda: (CONTENT_TYPE, render(snapshot()).encode("utf-8", "replace"))}
        super().__init__(address, pages, "metrics")
