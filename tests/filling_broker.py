#!/usr/bin/env python3
"""A broker of a page that says how long each message was in it: broker/spec/residence.md over TCP.

filling_broker.py PORT [--silent]     serve 127.0.0.1 until killed; --silent: fill no trailer

MQTT 3.1.1, QoS 0 (1 is accepted and delivered at 0), retained messages, no wills, no sessions: what
our programs need and no more. A message is delivered to exact subscriptions in their order, then to
`+`, then to `#`, as Mosquitto does. The residence runs from the kernel's stamp of the arrival to
the clock just before the copy is written; the next copy says by how much the kernel's stamp of the
departure was later.
"""

from __future__ import annotations

import argparse
import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Iterator

from mqtick.mqtt.packets import encode_publish, read_variable_length
from mqtick.mqtt.stamps import KernelSocket, Stamp, StampSource, Transmit

_CONNECT, _PUBLISH, _SUBSCRIBE, _UNSUBSCRIBE, _PINGREQ, _DISCONNECT = 1, 3, 8, 10, 12, 14
_UNKNOWN = -(1 << 31)
_LAST_COPY = (1 << 24) - 1
_TRAILER = struct.Struct(">QiI")
_NOT_STATED = _TRAILER.pack(0, _UNKNOWN, 0)


class BadPacketError(Exception):
    """What came is no MQTT that is spoken here; the connection ends."""


def matches(pattern: str, topic: str) -> bool:
    """Whether a filter matches a topic (MQTT 3.1.1, 4.7)."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted = wanted[:-1]
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        want in ("+", level) for want, level in zip(wanted, levels, strict=True)
    )


class _Client:
    """One connection, and what its trailers say."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self.socket = KernelSocket(sock)
        self._rest = b""
        self._copy = 0
        self._before: tuple[Transmit, int] | None = None
        """The counted copy before: its transmission, and when it was said to leave."""

    def packets(self) -> Iterator[tuple[int, bytes, Stamp]]:
        """Yield first octet, body and arrival of what has come; BadPacketError at the end."""
        data = self.socket.recv(65536)
        if not data:
            raise BadPacketError
        self.socket.acknowledge()
        came, data = self.socket.received, self._rest + data
        at = 0
        while len(data) - at >= 2:
            try:
                length, body = read_variable_length(data, at + 1, len(data))
            except ValueError:
                raise BadPacketError from None
            if length < 0 or body + length > len(data):
                break
            first, at = data[at], body + length
            # The stamp is that of the last octet read; what came before that came no later.
            source = came.source if at == len(data) else StampSource.USER
            yield first, data[body:at], Stamp(came.realtime_ns, source)
        self._rest = data[at:]

    def send(self, packet: bytes) -> None:
        """Send all of it, or give the connection up."""
        if self.socket.send(packet) != len(packet):
            raise BadPacketError

    def deliver(self, topic: bytes, payload: bytes, came: Stamp | None) -> None:
        """Send a copy whose trailer says how long it was here; `came`: None if that is long ago."""
        self.socket.drain_error_queue()
        trailer = payload[-16:]
        is_chained = any(trailer)  # another broker has filled it, which owns count and correction
        stood, _, tail = _TRAILER.unpack(trailer)
        now_ns = time.time_ns()
        stated = stood + (now_ns - came.realtime_ns << 16) if came is not None else -1
        if not stood <= stated < 1 << 64 or (is_chained and tail & 0xFF not in (1, 2, 3)):
            self.send(encode_publish(topic, payload[:-16] + _NOT_STATED, None))
            return
        if is_chained:
            trailer = _TRAILER.pack(stated, _UNKNOWN, StampSource.USER)
            self.send(encode_publish(topic, payload[:-16] + trailer, None))
            return
        correction_ns = _UNKNOWN
        if self._before is not None and self._before[0].kernel_ns is not None:
            correction_ns = self._before[0].kernel_ns - self._before[1]
        self._copy = self._copy % _LAST_COPY + 1
        trailer = _TRAILER.pack(stated, correction_ns, self._copy << 8 | StampSource.USER)
        transmit = Transmit(now_ns)
        self.socket.transmit = transmit
        try:
            self.send(encode_publish(topic, payload[:-16] + trailer, None))
        finally:
            self.socket.transmit = None
        self._before = transmit, now_ns


class FillingBroker:
    """Serves one port; `fills` may be changed while it does."""

    def __init__(self, port: int, *, fills: bool = True, prefix: str = "mqtick") -> None:
        self.fills, self._prefix = fills, prefix
        self._exact: dict[str, dict[_Client, None]] = {}
        self._wild: dict[str, dict[_Client, None]] = {}
        self._retained: dict[str, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self._selector.register(self._listener, selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Serve for ever."""
        while True:
            for key, _ in self._selector.select():
                client: _Client | None = key.data
                if client is None:
                    client = _Client(self._listener.accept()[0])
                    self._selector.register(client.socket.sock, selectors.EVENT_READ, client)
                    continue
                client.socket.drain_error_queue()
                try:
                    for packet in client.packets():
                        self._take(client, *packet)
                except BlockingIOError:
                    pass
                except (BadPacketError, OSError, UnicodeDecodeError, struct.error, IndexError):
                    self._forget(client)

    def _forget(self, client: _Client) -> None:
        for table in (self._exact, self._wild):
            for clients in table.values():
                clients.pop(client, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(client.socket.sock)
        client.socket.close()

    def _take(self, client: _Client, first: int, body: bytes, came: Stamp) -> None:
        kind = first >> 4
        if kind == _PUBLISH:
            self._publish(client, first, body, came)
        elif kind == _CONNECT:
            if body[:7] != b"\0\4MQTT\4":
                client.send(b"\x20\x02\0\1")
                raise BadPacketError
            client.send(b"\x20\x02\0\0")
        elif kind == _SUBSCRIBE:
            topics = list(_topics(body, 1))
            client.send(bytes((0x90, 2 + len(topics))) + body[:2] + bytes(len(topics)))
            for topic in topics:
                self._table(topic).setdefault(topic, {}).setdefault(client)
                for name, payload in list(self._retained.items()):
                    if matches(topic, name):
                        packet = encode_publish(name.encode(), payload, None)
                        client.send(bytes((packet[0] | 1,)) + packet[1:])
        elif kind == _UNSUBSCRIBE:
            for topic in _topics(body, 0):
                self._table(topic).get(topic, {}).pop(client, None)
            client.send(b"\xb0\x02" + body[:2])
        elif kind == _PINGREQ:
            client.send(b"\xd0\0")
        elif kind == _DISCONNECT or kind != 4:
            raise BadPacketError

    def _table(self, pattern: str) -> dict[str, dict[_Client, None]]:
        return self._wild if "+" in pattern or "#" in pattern else self._exact

    def _publish(self, client: _Client, first: int, body: bytes, came: Stamp) -> None:
        length, qos = struct.unpack_from(">H", body)[0], first >> 1 & 3
        name, payload = body[2 : 2 + length], body[2 + length :]
        topic = name.decode()
        if qos:
            client.send(b"\x40\x02" + payload[:2])
            payload = payload[2:]
        below = topic == self._prefix or topic.startswith(f"{self._prefix}/")
        is_filled = self.fills and below and 17 <= len(payload) <= 64 and payload[0] >> 4 == 2
        if first & 1:
            self._retained[topic] = payload[:-16] + _NOT_STATED if is_filled else payload
        plain = encode_publish(name, payload, None)
        for each in self._subscribers(topic):
            try:
                if is_filled:
                    each.deliver(name, payload, None if qos else came)
                else:
                    each.send(plain)
            except (BadPacketError, OSError):
                self._forget(each)

    def _subscribers(self, topic: str) -> list[_Client]:
        found = dict(self._exact.get(topic, {}))
        for wild in ("+", "#"):
            for pattern, clients in self._wild.items():
                if wild in pattern and matches(pattern, topic):
                    found.update(clients)
        return list(found)


def _topics(body: bytes, more: int) -> Iterator[str]:
    """Yield the filters of a SUBSCRIBE (each has `more` octets behind it) or UNSUBSCRIBE."""
    at = 2
    while at < len(body):
        end = at + 2 + struct.unpack_from(">H", body, at)[0]
        yield body[at + 2 : end].decode()
        at = end + more


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--silent", action="store_true", help="fill no trailer")
    given = parser.parse_args()
    FillingBroker(given.port, fills=not given.silent).serve()


if __name__ == "__main__":
    main()
