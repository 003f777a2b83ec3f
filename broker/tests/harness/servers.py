"""A broker that the test itself plays."""

from __future__ import annotations

import contextlib
import socket
import threading


class Server:
    """Listens on this host, and serves each connection in a thread of its own.

    To a site or `running` it looks like a broker.
    """

    process = None

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = int(self.socket.getsockname()[1])
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.open_ones: list[socket.socket] = []

    @property
    def connections(self) -> int:
        """How many there were."""
        return len(self.open_ones)

    def start(self) -> None:
        """Serve."""
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        """End all connections, and take no more."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for one in self.open_ones:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self.socket.accept()
                self.open_ones.append(one)
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.serve(one)

    def serve(self, one: socket.socket) -> None:
        """Talk on a connection, until it ends or fails."""
        raise NotImplementedError
