"""For tests of MQTT over UDP: whom to talk to, each on a socket, in a thread.

The reference broker with trouble to order, the published board (simulated), and a peer that says
what a test tells it to say.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Self

from broker.rtl.sim.golden import Golden, Sent, Settings
from broker.rtl.sim.udp_door import UdpDoor


class Door(UdpDoor):
    """The reference broker; `mangle` says what becomes of each datagram that it sends.

    `taken` is what it got. While it is `deaf` it takes nothing.
    """

    def __init__(self, port: int = 0) -> None:
        super().__init__(self._settings(), port=port)
        self.taken: list[bytes] = []
        self.mangle: Callable[[bytes], list[bytes]] = lambda octets: [octets]
        self.deaf = False
        self._use(self.broker)

    @staticmethod
    def _settings() -> Settings:
        return Settings(secret=os.urandom(16), loopback_door=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"mqtt+udp://127.0.0.1:{self.port}"

    def forget(self) -> None:
        """Be restarted: with another secret, nobody known."""
        self._use(Golden(self._settings()))

    def _use(self, broker: Golden) -> None:
        serve = broker.datagram

        def datagram(
            now_ns: int, ip: str, port: int, octets: bytes, arrival: int | None = None
        ) -> list[Sent]:
            if self.deaf:
                return []
            self.taken.append(octets)
            sent = serve(now_ns, ip, port, octets, arrival)
            return [Sent(one.ip, one.port, out) for one in sent for out in self.mangle(one.octets)]

        broker.datagram = datagram  # type: ignore[method-assign]
        self.broker = broker

    def count(self, kind: int) -> int:
        """How many packets with this first octet it got."""
        return sum(octets[:1] == bytes((kind,)) for octets in self.taken)

    @contextlib.contextmanager
    def open(self) -> Iterator[Self]:
        """Serve for the length of a with block."""
        with _serving(self.socket, self.serve):
            yield self


class Peer:
    """A UDP socket that answers each datagram with what `answer(datagram)` returns."""

    def __init__(self, answer: Callable[[bytes], list[bytes]]) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.taken: list[bytes] = []
        self.known: tuple[str, int] = ("", 0)
        """Who spoke last."""
        self._answer = answer

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"mqtt+udp://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        datagram, self.known = self.socket.recvfrom(65_536)
        self.taken.append(datagram)
        for one in self._answer(datagram):
            self.socket.sendto(one, self.known)

    @contextlib.contextmanager
    def open(self) -> Iterator[Self]:
        """Serve for the length of a with block."""
        with _serving(self.socket, self._serve):
            yield self


class Board(Peer):
    """What the published board does on the wire, as it was read from its code; never tried.

    It copies a message to everybody who subscribed to a topic with the same first four octets,
    once for each level of the topic, overwrites the octet after the topic, and sends a
    SUBSCRIBE back to its sender. `stale` is what it sends before each copy.
    """

    def __init__(self) -> None:
        super().__init__(lambda _: [])
        self.entries: list[tuple[bytes, tuple[str, int]]] = []
        self.stale: list[bytes] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{super().url}?dialect=published"

    @property
    def filters(self) -> list[bytes]:
        """What was subscribed to."""
        return [one for one, _ in self.entries]

    def _serve(self) -> None:
        super()._serve()
        datagram, end = self.taken[-1], 4 + int.from_bytes(self.taken[-1][2:4], "big")
        topic = datagram[4:end]
        if datagram[0] >> 4 == 8:
            self.entries.append((topic, self.known))
            self.socket.sendto(datagram, self.known)
            return
        copies = [datagram[:end] + b"\x00" + datagram[end + 1 :]] * (topic.count(b"/") + 1)
        for wanted, who in self.entries:
            for one in [*self.stale, *copies] if wanted[:4] == topic[:4] else []:
                self.socket.sendto(one, who)


@contextlib.contextmanager
def _serving(sock: socket.socket, serve: Callable[[], None]) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        sock.settimeout(0.02)
        while not ended.is_set():
            with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                serve()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sock.close()
