"""A broker of others, behind TCP, given what came to ours over UDP: who gets what?

Each UDP subscriber has one TCP connection. What our broker refuses is not asked of the other one.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable

from broker.rtl.sim.golden import Address, Reader, Sent, body_of, packet

CONNECTED, PONG = bytes.fromhex("20020000"), bytes.fromhex("d000")
# Topic, payload and RETAIN; how often.
Received = Counter[tuple[bytes, bytes, bool]]


class Connection:
    """A client, as plain as can be."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")
        client = name.encode()
        self.send(
            packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x00" + len(client).to_bytes(2, "big") + client)
        )
        if self._packet() != CONNECTED:
            raise ConnectionError("the broker did not accept a client")

    def send(self, octets: bytes) -> None:
        """Send one packet."""
        self.socket.sendall(octets)

    def settle(self) -> list[bytes]:
        """Return what has come, when the broker has done all that it was sent before."""
        self.send(packet(0xC0, b""))
        return list(iter(self._packet, PONG))

    def _packet(self) -> bytes:
        header = self._read(2)
        length = header[1]
        if length & 0x80:
            header += self._read(1)
            length = length & 0x7F | header[2] << 7
        return header + self._read(length)

    def _read(self, count: int) -> bytes:
        octets = self.stream.read(count)
        if len(octets) != count:
            raise ConnectionError("the broker closed a connection")
        return octets

    def close(self) -> None:
        """End without a DISCONNECT."""
        self.stream.close()
        self.socket.close()


def received(octets: Iterable[bytes]) -> Received:
    """Count the messages among these packets."""
    found: Received = Counter()
    for one in octets:
        if one[0] & 0xF0 == 0x30:
            read = Reader(body_of(one))
            found[read.string(), read.left, bool(one[0] & 1)] += 1
    return found


class OverTcp:
    """The other broker, and the connections of those that ours knows."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.publisher = Connection(port, "publisher")
        self.subscribers: dict[Address, Connection] = {}

    def follow(
        self,
        who: Address,
        octets: bytes,
        sent: list[Sent],
        known: set[Address],
        refused: bool,
    ) -> None:
        """Do what our broker has just done for a datagram, and compare who got what.

        Args:
            who: sent the datagram.
            octets: the datagram.
            sent: what our broker sent for it.
            known: who has a lease with our broker now.
            refused: the datagram as a whole; the other broker is not asked.
        """
        for gone in self.subscribers.keys() - known:
            self.subscribers.pop(gone).close()
        for new in known - self.subscribers.keys():
            self.subscribers[new] = Connection(self.port, f"{new[0]}:{new[1]}")
        kind = octets[0] >> 4
        if refused:
            pass
        elif kind == 3 and b"$proof" not in octets:
            self.publisher.send(octets)
            self.publisher.settle()
        elif kind == 8 and who in known:
            self._subscribe(who, octets, sent[0].octets[4:])
        elif kind == 10 and who in known:
            self.subscribers[who].send(octets)
        for address, connection in self.subscribers.items():
            ours = received(one.octets for one in sent if (one.ip, one.port) == address)
            theirs = received(connection.settle())
            if ours != theirs:
                raise AssertionError(f"{octets!r}: {address} got {ours}, there {theirs}")
        strangers = {(one.ip, one.port) for one in sent if one.octets[4:10] != b"$proof"} - known
        if strangers:
            raise AssertionError(f"{octets!r}: {strangers} got something without a lease")

    def _subscribe(self, who: Address, octets: bytes, codes: bytes) -> None:
        read, wanted = Reader(body_of(octets)), []
        identifier = read.take(2)
        while read.left:
            wanted.append((read.string(), read.take(1)))
        granted = [
            len(one).to_bytes(2, "big") + one + b"\0"
            for (one, _), code in zip(wanted, codes, strict=True)
            if code == 0
        ]
        if granted:
            self.subscribers[who].send(packet(0x82, identifier + b"".join(granted)))

    def close(self) -> None:
        """End all connections."""
        for connection in (self.publisher, *self.subscribers.values()):
            connection.close()
