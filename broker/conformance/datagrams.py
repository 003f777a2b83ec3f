"""MQTT over UDP (broker/spec/mqtt-udp.md) under the suite's client: one packet a datagram."""

from __future__ import annotations

import socket

CHALLENGE = b"\x30\x10\x00\x06$proof"
GOOD_BYE = b"\xe0\x00"
CONNECT, SUBSCRIBE = 0x10, 0x82


def packets(octets: bytes) -> list[bytes]:
    """Whole packets, one after another; their lengths have to be right."""
    found = []
    while octets:
        size, low = octets[1] & 0x7F, 2
        if octets[1] & 0x80:
            size, low = size | octets[2] << 7, 3
        found.append(octets[: low + size])
        octets = octets[low + size :]
    return found


class Datagrams:
    """A subscriber's port, used like a socket. It proves its address whenever it is asked to."""

    def __init__(self, address: tuple[str, int], patience_s: float) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(address)
        self._socket.settimeout(patience_s)
        self._asked: list[bytes] = []

    def sendall(self, octets: bytes) -> None:
        """Send each packet in a datagram of its own."""
        for packet in packets(octets):
            if packet[0] in (CONNECT, SUBSCRIBE):
                self._asked.append(packet)
            self._socket.send(packet)

    def recv(self, size: int) -> bytes:
        """The next datagram that is no challenge."""
        while (got := self._socket.recv(size)).startswith(CHALLENGE):
            self._socket.send(got)
            # Nothing was kept of what was asked before.
            for packet in self._asked:
                self._socket.send(packet)
            self._asked = []
        self._asked = []
        return got

    def settimeout(self, seconds: float) -> None:
        """As a socket has it."""
        self._socket.settimeout(seconds)

    def shutdown(self, _: int) -> None:
        """There is nothing to shut down."""

    def close(self) -> None:
        """Give back what the broker keeps for this port."""
        self._socket.send(GOOD_BYE)
        self._socket.close()
