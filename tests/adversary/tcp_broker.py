"""A broker without keys that has a TCP stack of its own, and real programs for clients.

It changes no octet that a tag covers. It passes a message on as soon as its tag can be read, even
if its host still keeps the rest of it, and it can send the end of a message before the message.
What it does with a connection is up to the `Script` of the port that the host connected to.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, Protocol

from streams import Plain, Tls, WebSocket
from tcp_stack import Address, Network, Shape, Tcp

__all__ = ["MS", "SECOND", "TRAILER", "Broker", "Certificate", "Message", "Script", "Session"]

MS, SECOND = 1_000_000, 1_000_000_000
_CONNECT, _PUBLISH, _SUBSCRIBE, _UNSUBSCRIBE, _PING = 1, 3, 8, 10, 12
_QOS, _RETAIN = 0x06, 1
TRAILER = struct.pack(">QiI", 20_000 << 16, -(1 << 31), 1)
"""Of every copy: 20 us in the broker, as a program says, and nothing known of the last copy."""
_GIVE_UP_NS = 1_500 * MS
_APART, _ROOM = 150, 400
"""So many octets are kept between two that were planted, and before the first, for padding."""


class Message(NamedTuple):
    """A PUBLISH."""

    topic: str
    payload: bytes

    @property
    def kind(self) -> str:
        """The second level of its topic, which says what it is."""
        return self.topic.split("/")[1]

    @property
    def version(self) -> int:
        """The version of the precise format."""
        return self.payload[0] >> 4 if self.payload else 0


class Certificate(NamedTuple):
    """What the broker shows by TLS, and where the keys of a connection may be written."""

    chain: Path
    key: Path
    folder: Path


class Script(Protocol):
    """What is done to the connections that a host makes to one port."""

    mss: int
    window: int
    shape: Shape
    withheld_ns: int

    @property
    def fills(self) -> bool:
        """Whether the broker fills trailers."""

    def guess(self, message: Message) -> Message | None:
        """Add the last octet of a tag by luck; None: it is not tried."""

    def came(self, session: Session, message: Message, *, is_cut: bool) -> None:
        """A message can be read; `is_cut`: its host still keeps the end of it."""

    def goes(self, session: Session, message: Message) -> None:
        """A message is to go to a host."""


@dataclass
class _Planted:
    """Ends of messages that a host's kernel has already, before the octets in front of them."""

    places: dict[bytes, tuple[int, int, int]]
    """By what was planted: its place in the stream, the number of its record, its size there."""
    since_ns: int

    @property
    def others(self) -> list[tuple[int, int]]:
        """Place and size of all that were not used."""
        return [(place, size) for place, _, size in self.places.values()]


@dataclass(eq=False)
class Session:
    """One MQTT connection."""

    broker: Broker
    script: Script
    filters: list[str] = field(default_factory=list)
    is_5: bool = True

    @property
    def has_planted(self) -> bool:
        """Whether an end is there that was not used."""
        raise NotImplementedError

    def send(self, packet: bytes) -> None:
        """Send a packet."""
        raise NotImplementedError

    def plant(self, tails: list[bytes], ahead: int) -> bool:
        """Have the host's kernel keep ends of a later message; whether that was possible."""
        raise NotImplementedError

    def send_planted(self, packet: bytes) -> int | None:
        """Send a packet whose end is there already; for how long it has been, ns.

        None, and the packet is not sent, if it is not there.
        """
        raise NotImplementedError

    def packet_of(self, message: Message) -> bytes:
        """Return the PUBLISH of a message, its trailer filled if the script says so."""
        topic, payload = message.topic.encode(), message.payload
        if self.script.fills and message.version == 2 and 17 <= len(payload) <= 64:
            payload = payload[:-16] + TRAILER
        body = struct.pack("!H", len(topic)) + topic + (b"\0" if self.is_5 else b"") + payload
        return b"\x30" + _length(len(body)) + body

    def take(self, packet: bytes, at: int, *, is_cut: bool) -> None:
        """Take a packet; its body begins at a place in it."""
        kind, body = packet[0] >> 4, packet[at:]
        if kind == _CONNECT:
            self._connect(body)
        elif kind in (_SUBSCRIBE, _UNSUBSCRIBE):
            self._subscribe(body, wants=kind == _SUBSCRIBE)
        elif kind == _PING:
            self.send(b"\xd0\0")
        elif kind == _PUBLISH:
            self._publish(packet[0], body, is_cut=is_cut)

    def _connect(self, body: bytes) -> None:
        self.is_5 = body[6] == 5
        self.send(b"\x20\3\0\0\0" if self.is_5 else b"\x20\2\0\0")

    def _subscribe(self, body: bytes, *, wants: bool) -> None:
        place = 2 + (1 + body[2] if self.is_5 else 0)
        codes, fresh = b"", []
        while place < len(body):
            size = int.from_bytes(body[place : place + 2], "big")
            pattern = body[place + 2 : place + 2 + size].decode()
            place += 2 + size + wants
            codes += b"\0"
            if pattern in self.filters:
                self.filters.remove(pattern)
            if wants:
                self.filters.append(pattern)
                fresh.append(pattern)
        answer = body[:2] + (b"\0" if self.is_5 else b"")
        answer += codes if wants or self.is_5 else b""
        self.send((b"\x90" if wants else b"\xb0") + _length(len(answer)) + answer)
        for pattern in fresh:
            for topic, packet in self.broker.retained.items():
                if matches(pattern, topic):
                    self.send(packet)

    def _publish(self, first: int, body: bytes, *, is_cut: bool) -> None:
        size = int.from_bytes(body[:2], "big")
        topic, start = body[2 : 2 + size].decode(), 2 + size
        if first & _QOS:
            self.send(b"\x40\2" + body[start : start + 2])
            start += 2
        if self.is_5:
            start += 1 + body[start]
        message = Message(topic, body[start:])
        if first & _RETAIN:
            packet = self.packet_of(message)
            self.broker.retained[topic] = bytes([packet[0] | _RETAIN]) + packet[1:]
        self.script.came(self, message, is_cut=is_cut)


def _length(number: int) -> bytes:
    coded = b""
    while number > 127:
        coded += bytes([number & 127 | 128])
        number >>= 7
    return coded + bytes([number])


@lru_cache(4096)
def matches(pattern: str, topic: str) -> bool:
    """Whether a topic is one of a filter's."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted, levels = wanted[:-1], levels[: len(wanted) - 1]
    return len(wanted) == len(levels) and all(
        want in ("+", level) for want, level in zip(wanted, levels, strict=True)
    )


class StreamSession(Session):
    """Over TCP, with or without TLS and WebSocket."""

    def __init__(self, broker: Broker, script: Script, line: Tcp, stream: Plain) -> None:
        super().__init__(broker, script)
        self.line, self.stream = line, stream
        self._clear = b""
        self._taken = False
        """Whether the packet whose beginning is here was passed on already."""
        self._planted: _Planted | None = None
        self._waiting: list[bytes] = []
        line.mss, line.window, line.shape = script.mss, script.window, script.shape
        line.withheld_ns = script.withheld_ns
        line.on_octets, line.on_end = self._octets, lambda: broker.sessions.remove(self)

    @property
    def has_planted(self) -> bool:
        """See `Session`."""
        return self._planted is not None

    # -- from the host -----------------------------------------------------------------------------

    def _octets(self, octets: bytes) -> None:
        self._clear += self.stream.read(octets)
        if answer := self.stream.to_send:
            self.stream.to_send = b""
            self.line.write(answer)
        while packet := self._next():
            whole, at, missing = packet
            if not missing:
                self._clear = self._clear[len(whole) :]
                is_last = not self._clear
                if self._taken:
                    self._taken = False
                else:
                    self.take(whole, at, is_cut=is_last and self.stream.missing)
                continue
            if not self._taken and (guessed := self._completed(whole, at, missing)):
                self._taken = True
                self.take(guessed, at, is_cut=True)
            return

    def _next(self) -> tuple[bytes, int, int] | None:
        """The first packet, as far as it is here; where its body begins; how much is missing."""
        length, place = 0, 1
        while True:
            if place >= len(self._clear):
                return None
            octet = self._clear[place]
            length |= (octet & 127) << 7 * (place - 1)
            place += 1
            if not octet & 128:
                break
        packet = self._clear[: place + length]
        return packet, place, place + length - len(packet)

    def _completed(self, packet: bytes, at: int, missing: int) -> bytes | None:
        """What the packet is as a whole, if that is known: a trailer may be anything."""
        body = packet[at:]
        size = int.from_bytes(body[:2], "big")
        start = 2 + size + (1 if self.is_5 else 0)
        if packet[0] & ~_RETAIN != 0x30 or len(body) <= start:
            return None
        message = Message(body[2 : 2 + size].decode(), body[start:])
        if message.version == 2:
            return packet + bytes(missing) if missing <= 16 else None
        guessed = self.script.guess(message) if missing == 1 else None
        return packet + guessed.payload[-1:] if guessed is not None else None

    # -- to the host -------------------------------------------------------------------------------

    def send(self, packet: bytes) -> None:
        """See `Session`; it waits while it does not fit before what was planted."""
        planted = self._planted
        if planted is not None and (self._waiting or not self._fits(packet, planted)):
            self._waiting.append(packet)
        else:
            self.line.write(self.stream.piece(packet))

    def _fits(self, packet: bytes, planted: _Planted) -> bool:
        """Whether there is still room for the message that what was planted is for, and padding."""
        size = len(packet) + self.stream.piece_overhead
        place, number, _ = min(planted.places.values(), default=(0, 0, 0))
        return self.line.at + size + _ROOM < place and number > self.stream.pieces + 3

    def plant(self, tails: list[bytes], ahead: int) -> bool:
        """See `Session`; each end has a place of its own, so that any of them may be used."""
        if self._planted is not None or not self.line.is_open:
            return False
        places, place = dict[bytes, tuple[int, int, int]](), self.line.at + ahead
        number = self.stream.pieces + 12
        if ahead < _ROOM:  # right after the rest of the message
            place, number = place + self.stream.piece_overhead, self.stream.pieces + 1
        for tail in tails:
            octets = self.stream.piece(tail, number)
            places[tail] = place, number, len(octets)
            self.line.plant(place, octets)
            place, number = place + len(octets) + _APART, number + 4
        planted = self._planted = _Planted(places, time.monotonic_ns())
        self.broker.network.later(
            _GIVE_UP_NS, lambda: self._cover() if self._planted is planted else None
        )
        return True

    def send_planted(self, packet: bytes) -> int | None:
        """See `Session`."""
        planted, stream, line = self._planted, self.stream, self.line
        found = [tail for tail in planted.places if packet.endswith(tail)] if planted else []
        if planted is None or not found:
            self._cover()
            return None
        tail = found[0]
        place, number, _ = planted.places.pop(tail)
        head, pieces = packet[: -len(tail)], number - stream.pieces - 1
        if stream.is_encrypted:
            size = place - line.at - len(head) - stream.piece_overhead
        else:
            size = place - line.at - len(stream.piece(packet)) + len(tail)
        padding = stream.pad(size, pieces) if size else b""
        if bool(size) == (not padding) or (stream.is_encrypted and not size and pieces):
            self._cover()
            return None
        if padding:
            line.write_over(padding, planted.others)
        if stream.is_encrypted:
            line.write(stream.piece(head))
            line.skip(stream.piece(tail))
        else:
            whole = stream.piece(packet)
            line.write(whole[: -len(tail)])
            line.skip(tail)
        # What follows comes later, else the host reads it together with this one.
        self.broker.network.later(10 * MS, self._cover)
        return time.monotonic_ns() - planted.since_ns

    def _cover(self) -> None:
        """Have the host's kernel forget what was planted and not used: other octets come there."""
        planted, self._planted = self._planted, None
        if not self.line.is_open:
            return
        others = planted.others if planted is not None else []
        rest = max((place + size - self.line.at for place, size in others), default=0)
        if rest > 0:
            self.line.write_over(self.stream.pad(max(rest, 100), 1), others)
        waiting, self._waiting = self._waiting, []
        for packet in waiting:
            self.send(packet)


class DatagramSession(Session):
    """Over UDP; what is planted are fragments."""

    def __init__(self, broker: Broker, script: Script, port: int, far: Address) -> None:
        super().__init__(broker, script, is_5=False)
        self._port, self._far = port, far
        self._planted: tuple[int, bytes, int, int] | None = None

    @property
    def has_planted(self) -> bool:
        """See `Session`."""
        return self._planted is not None

    def take_datagram(self, datagram: bytes) -> None:
        """Take a packet."""
        at = 2
        while datagram[at - 1] & 128:
            at += 1
        self.take(datagram, at, is_cut=False)

    def send(self, packet: bytes) -> None:
        """See `Session`; in fragments, the last one first, or whole."""
        network, shape = self.broker.network, self.script.shape
        datagram = network.datagram(self._port, self._far, packet)
        cut = len(datagram) // 2 // 8 * 8
        for _ in range(shape.copies):
            if shape.backwards and cut:
                number = network.next_number()
                part = partial(network.send_fragments, self._far, datagram, cut, number=number)
                part(head=False, tail=True)
                network.later(shape.pause_ns, partial(part, head=True, tail=False))
            else:
                network.send_datagram(self._far, datagram)

    def plant(self, tails: list[bytes], ahead: int) -> bool:
        """See `Session`; `ahead`: so long is the packet without this end."""
        network, size = self.broker.network, ahead + len(tails[0])
        if self._planted is not None or size < len(TRAILER):
            return False
        datagram = network.datagram(self._port, self._far, bytes(size - len(TRAILER)) + TRAILER)
        cut = (len(datagram) - len(TRAILER) + 7) // 8 * 8
        number = network.next_number()
        network.send_fragments(self._far, datagram, cut, number=number, head=False, tail=True)
        self._planted = number, datagram[cut:], len(datagram), time.monotonic_ns()
        return True

    def send_planted(self, packet: bytes) -> int | None:
        """See `Session`."""
        planted, self._planted = self._planted, None
        network = self.broker.network
        datagram = network.datagram(self._port, self._far, packet)
        if planted is None or len(datagram) != planted[2] or not datagram.endswith(planted[1]):
            return None
        number, tail, size, since_ns = planted
        network.send_fragments(
            self._far, datagram, size - len(tail), number=number, head=True, tail=False
        )
        return time.monotonic_ns() - since_ns


class Broker:
    """Passes messages on between the sessions."""

    def __init__(self, network: Network, certificate: Certificate | None = None) -> None:
        self.network, self._certificate = network, certificate
        self.sessions: list[Session] = []
        self.retained: dict[str, bytes] = {}
        self._ports: dict[int, tuple[Script, str]] = {}
        self._datagrams: dict[tuple[int, Address], DatagramSession] = {}
        network.take_syn, network.take_datagram = self._take_syn, self._take_datagram

    def listen(self, port: int, script: Script, scheme: str = "mqtt") -> str:
        """Play a script with whoever connects to a port; the address."""
        self._ports[port] = script, scheme
        return f"{scheme}://10.77.0.2:{port}"

    def _take_syn(self, port: int) -> Callable[[Tcp], None] | None:
        return self._accept if port in self._ports else None

    def _accept(self, line: Tcp) -> None:
        script, scheme = self._ports[line.port]
        stream = Plain()
        if scheme == "ws":
            stream = WebSocket()
        elif scheme == "mqtts":
            assert self._certificate is not None
            chain, key, folder = self._certificate
            log = folder / f"keys-{line.port}-{line.far.port}-{len(list(folder.iterdir()))}"
            stream = Tls(chain, key, log)
        self.sessions.append(StreamSession(self, script, line, stream))

    def _take_datagram(self, port: int, far: Address, datagram: bytes) -> None:
        if port not in self._ports or len(datagram) < 2:
            return
        session = self._datagrams.get((port, far))
        if session is None or datagram[0] >> 4 == _CONNECT:
            if session is not None:
                self.sessions.remove(session)
            session = DatagramSession(self, self._ports[port][0], port, far)
            self._datagrams[port, far] = session
            self.sessions.append(session)
        session.take_datagram(datagram)

    def route(self, message: Message) -> None:
        """Pass a message on: first where its topic was named, then to `+`, then to `#`."""
        found = []
        for session in self.sessions:
            hits = [one for one in session.filters if matches(one, message.topic)]
            if hits:
                found.append((min(("+" in one) + 2 * ("#" in one) for one in hits), session))
        for _, session in sorted(found, key=lambda pair: pair[0]):
            session.script.goes(session, message)
