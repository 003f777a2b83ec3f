"""A raw MQTT 3.1.1 and 5 client that can say anything, and checks each octet that it is told.

Written from the standards for this suite alone: no codec of mqtick's brokers is used, so that a
misreading there is not confirmed by itself.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

PATIENCE_S = 30.0
"""How long an event may take before it counts as missing (`--patience`)."""

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(8, 16)
V3, V5 = 4, 5
"""Protocol levels on the wire."""

Property = tuple[str, Any]
Properties = Iterable[Property] | bytes

# name: (identifier, type, packets that a server may send it in), MQTT 5 table 2-4
_PROPERTIES: dict[str, tuple[int, str, tuple[int, ...]]] = {
    "payload_format": (0x01, "byte", (PUBLISH,)),
    "message_expiry": (0x02, "four", (PUBLISH,)),
    "content_type": (0x03, "text", (PUBLISH,)),
    "response_topic": (0x08, "text", (PUBLISH,)),
    "correlation_data": (0x09, "binary", (PUBLISH,)),
    "subscription_id": (0x0B, "variable", (PUBLISH,)),
    "session_expiry": (0x11, "four", (CONNACK,)),
    "assigned_client_id": (0x12, "text", (CONNACK,)),
    "server_keep_alive": (0x13, "two", (CONNACK,)),
    "authentication_method": (0x15, "text", (CONNACK, AUTH)),
    "authentication_data": (0x16, "binary", (CONNACK, AUTH)),
    "request_problem": (0x17, "byte", ()),
    "will_delay": (0x18, "four", ()),
    "request_response": (0x19, "byte", ()),
    "response_information": (0x1A, "text", (CONNACK,)),
    "server_reference": (0x1C, "text", (CONNACK, DISCONNECT)),
    "reason_string": (
        0x1F,
        "text",
        (CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH),
    ),
    "receive_maximum": (0x21, "two", (CONNACK,)),
    "topic_alias_maximum": (0x22, "two", (CONNACK,)),
    "topic_alias": (0x23, "two", (PUBLISH,)),
    "maximum_qos": (0x24, "byte", (CONNACK,)),
    "retain_available": (0x25, "byte", (CONNACK,)),
    "user": (
        0x26,
        "pair",
        (CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH),
    ),
    "maximum_packet_size": (0x27, "four", (CONNACK,)),
    "wildcard_available": (0x28, "byte", (CONNACK,)),
    "subscription_id_available": (0x29, "byte", (CONNACK,)),
    "shared_available": (0x2A, "byte", (CONNACK,)),
}
_NAMES = {identifier: name for name, (identifier, _, _) in _PROPERTIES.items()}
_MANY = {"user", "subscription_id"}

_ACKNOWLEDGED = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
_REASONS = {
    CONNACK: {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F},
    PUBACK: _ACKNOWLEDGED,
    PUBREC: _ACKNOWLEDGED,
    PUBREL: {0x00, 0x92},
    PUBCOMP: {0x00, 0x92},
    SUBACK: {0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    UNSUBACK: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    DISCONNECT: {
        0x00,
        0x80,
        0x81,
        0x82,
        0x83,
        0x87,
        0x89,
        0x8B,
        *range(0x8D, 0x91),
        *range(0x93, 0xA3),
    },
    AUTH: {0x00, 0x18},
}
"""Which reason codes a server may use, MQTT 5 chapter 3."""


class ViolationError(AssertionError):
    """The broker sent octets that the standard does not allow."""


class ClosedError(AssertionError):
    """The broker ended the connection while something else was expected."""


# ---- encoding -----------------------------------------------------------------------------------


def two(value: int) -> bytes:
    """Two Byte Integer."""
    return value.to_bytes(2, "big")


def variable(value: int) -> bytes:
    """Variable Byte Integer, in as few octets as it takes."""
    octets = bytearray()
    while True:
        value, low = divmod(value, 128)
        octets.append(low | (0x80 if value else 0))
        if not value:
            return bytes(octets)


def binary(data: bytes) -> bytes:
    """Binary Data: length and octets."""
    return two(len(data)) + data


def text(data: str | bytes) -> bytes:
    """UTF-8 Encoded String; octets go as they are, well-formed or not."""
    return binary(data.encode() if isinstance(data, str) else data)


def one_property(name: str, value: Any) -> bytes:
    """One property with its identifier."""
    identifier, kind, _ = _PROPERTIES[name]
    head = variable(identifier)
    if kind == "pair":
        return head + text(value[0]) + text(value[1])
    if kind in ("text", "binary"):
        return head + text(value)
    if kind == "variable":
        return head + variable(value)
    return head + int(value).to_bytes({"byte": 1, "two": 2, "four": 4}[kind], "big")


def packet(kind: int, flags: int, body: bytes) -> bytes:
    """A whole control packet."""
    return bytes([kind << 4 | flags]) + variable(len(body)) + body


@dataclass(frozen=True)
class Will:
    """A will, as CONNECT carries it."""

    topic: str | bytes
    payload: bytes = b"will"
    qos: int = 0
    retain: bool = False
    properties: Properties = ()


@dataclass(frozen=True)
class Encoder:
    """Writes packets of one protocol level. What a test does not say is valid."""

    version: int

    def properties(self, properties: Properties) -> bytes:
        """The properties with their length; nothing in 3.1.1. Octets go as they are."""
        if self.version != V5:
            return b""
        if not isinstance(properties, bytes):
            properties = b"".join(one_property(*each) for each in properties)
        return variable(len(properties)) + properties

    def connect(
        self,
        client_id: str | bytes = "",
        *,
        clean: bool = True,
        keep_alive: int = 0,
        will: Will | None = None,
        username: str | bytes | None = None,
        password: bytes | None = None,
        properties: Properties = (),
        protocol: bytes = b"MQTT",
        level: int | None = None,
        flags: int | None = None,
        tail: bytes = b"",
    ) -> bytes:
        """A CONNECT; `flags` replaces the connect flags, `tail` follows the payload."""
        right = clean << 1
        payload = text(client_id)
        if will:
            right |= 0x04 | will.qos << 3 | will.retain << 5
            payload += self.properties(will.properties) + text(will.topic) + binary(will.payload)
        if username is not None:
            right |= 0x80
            payload += text(username)
        if password is not None:
            right |= 0x40
            payload += binary(password)
        head = text(protocol) + bytes(
            [self.version if level is None else level, right if flags is None else flags]
        )
        body = head + two(keep_alive) + self.properties(properties) + payload + tail
        return packet(CONNECT, 0, body)

    def publish(
        self,
        topic: str | bytes,
        payload: bytes = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int | None = None,
        properties: Properties = (),
    ) -> bytes:
        """A PUBLISH; from QoS 1 on with a packet identifier."""
        identifier = two(packet_id or 0) if qos or packet_id else b""
        body = text(topic) + identifier + self.properties(properties) + payload
        return packet(PUBLISH, dup << 3 | qos << 1 | retain, body)

    def ack(
        self,
        kind: int,
        packet_id: int,
        reason: int | None = None,
        properties: Properties | None = None,
        *,
        flags: int | None = None,
    ) -> bytes:
        """PUBACK, PUBREC, PUBREL or PUBCOMP."""
        body = two(packet_id)
        if reason is not None:
            body += bytes([reason])
        if properties is not None:
            body += self.properties(properties)
        right = 2 if kind == PUBREL else 0
        return packet(kind, right if flags is None else flags, body)

    def subscribe(
        self,
        packet_id: int,
        *filters: tuple[str | bytes, int],
        properties: Properties = (),
        flags: int = 2,
    ) -> bytes:
        """A SUBSCRIBE with pairs of filter and options."""
        entries = b"".join(text(each) + bytes([options]) for each, options in filters)
        return packet(SUBSCRIBE, flags, two(packet_id) + self.properties(properties) + entries)

    def unsubscribe(
        self, packet_id: int, *filters: str | bytes, properties: Properties = (), flags: int = 2
    ) -> bytes:
        """An UNSUBSCRIBE."""
        entries = b"".join(map(text, filters))
        return packet(UNSUBSCRIBE, flags, two(packet_id) + self.properties(properties) + entries)

    def disconnect(
        self, reason: int | None = None, properties: Properties | None = None, *, flags: int = 0
    ) -> bytes:
        """A DISCONNECT; without a reason, the short form that both versions have."""
        body = b"" if reason is None else bytes([reason])
        if properties is not None:
            body += self.properties(properties)
        return packet(DISCONNECT, flags, body)

    def auth(self, reason: int, properties: Properties = (), *, flags: int = 0) -> bytes:
        """An AUTH."""
        return packet(AUTH, flags, bytes([reason]) + self.properties(properties))


PING = packet(PINGREQ, 0, b"")


# ---- decoding -----------------------------------------------------------------------------------


@dataclass
class Packet:
    """What the broker said: the octets and what they mean."""

    kind: int
    flags: int
    raw: bytes
    packet_id: int = 0
    topic: bytes = b""
    payload: bytes = b""
    reason: int = 0
    """CONNACK's return code in 3.1.1, the reason code in 5."""
    reasons: list[int] = field(default_factory=list)
    """Of SUBACK and UNSUBACK, one for each filter."""
    session_present: bool = False
    properties: list[Property] = field(default_factory=list)

    @property
    def qos(self) -> int:
        """Quality of service of a PUBLISH."""
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        """RETAIN of a PUBLISH."""
        return bool(self.flags & 1)

    @property
    def dup(self) -> bool:
        """DUP of a PUBLISH."""
        return bool(self.flags & 8)

    def get(self, name: str, default: Any = None) -> Any:
        """A property that comes once at most."""
        return dict(self.properties).get(name, default)

    def all(self, name: str) -> list[Any]:
        """Every value of a property, in order."""
        return [value for each, value in self.properties if each == name]


class _Reader:
    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def take(self, count: int) -> bytes:
        if count > len(self.octets):
            raise ViolationError(f"{count} octets wanted, {len(self.octets)} left")
        taken, self.octets = self.octets[:count], self.octets[count:]
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def variable(self) -> int:
        value = 0
        for place in range(4):
            octet = self.number(1)
            value |= (octet & 0x7F) << 7 * place
            if octet < 0x80:
                if place and not octet:
                    raise ViolationError("a Variable Byte Integer longer than it has to be")
                return value
        raise ViolationError("a Variable Byte Integer of more than four octets")

    def binary(self) -> bytes:
        return self.take(self.number(2))

    def text(self) -> bytes:
        octets = self.binary()
        try:
            if "\0" in octets.decode():
                raise ViolationError(f"U+0000 in {octets!r}")
        except UnicodeDecodeError:
            raise ViolationError(f"not UTF-8: {octets!r}") from None
        return octets

    def properties(self, kind: int) -> list[Property]:
        inner = _Reader(self.take(self.variable()))
        found: list[Property] = []
        while inner.octets:
            identifier = inner.variable()
            name = _NAMES.get(identifier)
            if name is None or kind not in _PROPERTIES[name][2]:
                raise ViolationError(f"property {identifier:#x} in packet type {kind}")
            if name not in _MANY and name in dict(found):
                raise ViolationError(f"{name} twice")
            found.append((name, inner._value(_PROPERTIES[name][1])))
        return found

    def _value(self, kind: str) -> Any:
        if kind == "pair":
            return self.text(), self.text()
        if kind in ("text", "binary", "variable"):
            return getattr(self, kind)()
        return self.number({"byte": 1, "two": 2, "four": 4}[kind])


def decode(version: int, kind: int, flags: int, body: bytes, raw: bytes) -> Packet:
    """Read a packet of a server, and judge it: whatever the standard does not allow is raised."""
    found = Packet(kind, flags, raw)
    reader = _Reader(body)
    five = version == V5
    right = flags if kind == PUBLISH else 2 if kind == PUBREL else 0
    if flags != right:
        raise ViolationError(f"flags {flags:#x} in packet type {kind}")
    if kind == CONNACK:
        acknowledge = reader.number(1)
        if acknowledge > 1:
            raise ViolationError(f"connect acknowledge flags {acknowledge:#x}")
        found.session_present = bool(acknowledge)
        found.reason = reader.number(1)
        if five:
            found.properties = reader.properties(kind)
    elif kind == PUBLISH:
        if found.qos == 3 or (found.dup and not found.qos):
            raise ViolationError(f"PUBLISH with flags {flags:#x}")
        found.topic = reader.text()
        if found.qos:
            found.packet_id = reader.number(2)
        if five:
            found.properties = reader.properties(kind)
        found.payload = reader.take(len(reader.octets))
    elif kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        found.packet_id = reader.number(2)
        if five and reader.octets:
            found.reason = reader.number(1)
            if reader.octets:
                found.properties = reader.properties(kind)
    elif kind in (SUBACK, UNSUBACK):
        found.packet_id = reader.number(2)
        if five:
            found.properties = reader.properties(kind)
        if five or kind == SUBACK:
            found.reasons = list(reader.take(len(reader.octets)))
    elif kind in (DISCONNECT, AUTH) and five:
        if reader.octets:
            found.reason = reader.number(1)
            if reader.octets:
                found.properties = reader.properties(kind)
    elif kind != PINGRESP:
        raise ViolationError(f"packet type {kind} from a server")
    if reader.octets:
        raise ViolationError(f"{len(reader.octets)} octets too many in packet type {kind}")
    _judge(five, found)
    return found


def _judge(five: bool, found: Packet) -> None:
    acknowledges = found.kind in (PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK)
    if (acknowledges or (found.kind == PUBLISH and found.qos)) and not found.packet_id:
        raise ViolationError("packet identifier 0")
    allowed = _REASONS.get(found.kind) if five else {SUBACK: {0, 1, 2, 0x80}}.get(found.kind)
    reasons = found.reasons if found.kind in (SUBACK, UNSUBACK) else [found.reason]
    if allowed is not None and (wrong := set(reasons) - allowed):
        raise ViolationError(f"reason codes {wrong} in packet type {found.kind}")
    if found.kind == CONNACK and found.reason and found.session_present:
        raise ViolationError("a session is present although the connection is refused")


# ---- the connection -----------------------------------------------------------------------------


class Carrier(Protocol):
    """As much of a socket as a connection needs."""

    def sendall(self, octets: bytes, /) -> None: ...  # noqa: D102
    def recv(self, size: int, /) -> bytes: ...  # noqa: D102
    def settimeout(self, seconds: float, /) -> None: ...  # noqa: D102
    def shutdown(self, how: int, /) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


def connect_tcp(address: tuple[str, int]) -> socket.socket:
    """A TCP connection that sends at once."""
    made = socket.create_connection(address, PATIENCE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Client:
    """One connection, and what was received on it but not asked for yet."""

    def __init__(
        self,
        address: tuple[str, int],
        version: int,
        client_id: str = "",
        carrier: Carrier | None = None,
    ) -> None:
        self.version, self.id = version, client_id
        self.encode = Encoder(version)
        self.socket: Carrier = carrier or connect_tcp(address)
        self.received: deque[Packet] = deque()
        self.octets = b""
        self.connack = Packet(CONNACK, 0, b"")
        self._packet_id = 0

    def close(self) -> None:
        """End the connection without a word."""
        self.socket.close()

    def send(self, *packets: bytes) -> None:
        """Send octets in one go; that the broker has closed shows when something is read."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(b"".join(packets))

    def next_id(self) -> int:
        """A packet identifier that was not used before on this connection."""
        self._packet_id += 1
        return self._packet_id

    # -- receiving

    def _more(self, end: float) -> None:
        self.socket.settimeout(max(end - time.monotonic(), 0.001))
        try:
            chunk = self.socket.recv(65536)
        except TimeoutError:
            raise AssertionError(f"nothing came within {PATIENCE_S:g} s") from None
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise ClosedError(f"the broker closed the connection; unread: {self.octets!r}")
        self.octets += chunk

    def _whole(self) -> Packet | None:
        """Take a packet off what was received, if it is complete."""
        head = self.octets[1:5]
        size = next((n for n, octet in enumerate(head, 1) if octet < 0x80), 0)
        if not size:
            if len(head) == 4:
                raise ViolationError("a remaining length of more than four octets")
            return None
        if size > 1 and not head[size - 1]:
            raise ViolationError("a remaining length longer than it has to be")
        start = 1 + size
        end = start + sum((octet & 0x7F) << 7 * n for n, octet in enumerate(head[:size]))
        if len(self.octets) < end:
            return None
        raw, self.octets = self.octets[:end], self.octets[end:]
        return decode(self.version, raw[0] >> 4, raw[0] & 0x0F, raw[start:], raw)

    def receive(self) -> Packet:
        """The next packet; ClosedError when there is none any more."""
        end = time.monotonic() + PATIENCE_S
        while (found := self._whole()) is None:
            self._more(end)
        return found

    def expect(self, kind: int) -> Packet:
        """The next packet of that type; messages that come before it are kept."""
        for found in self.received:
            if found.kind == kind:
                self.received.remove(found)
                return found
        while (found := self.receive()).kind != kind:
            if found.kind != PUBLISH:
                raise AssertionError(f"packet type {found.kind} instead of {kind}: {found}")
            self.received.append(found)
        return found

    def message(self) -> Packet:
        """The next message, acknowledged as far as it takes for the broker to forget it."""
        found = self.expect(PUBLISH)
        if found.qos == 1:
            self.send(self.encode.ack(PUBACK, found.packet_id))
        elif found.qos == 2:
            self.send(self.encode.ack(PUBREC, found.packet_id))
            assert self.expect(PUBREL).packet_id == found.packet_id
            self.send(self.encode.ack(PUBCOMP, found.packet_id))
        return found

    def until(self, payload: bytes) -> list[Packet]:
        """Messages that come before the one with that payload."""
        found = []
        while (message := self.message()).payload != payload:
            found.append(message)
        return found

    def settle(self) -> list[Packet]:
        """Whatever came before the answer to a PINGREQ."""
        self.send(PING)
        self.expect(PINGRESP)
        found = list(self.received)
        self.received.clear()
        return found

    def settle_or_end(self) -> list[Packet]:
        """Whatever came before the answer to a PINGREQ, or before the broker closed."""
        self.send(PING)
        found = list(self.received)
        self.received.clear()
        with contextlib.suppress(ClosedError):
            while (last := self.receive()).kind != PINGRESP:
                found.append(last)
        return found

    def closed(self, *after: bytes) -> list[Packet]:
        """What came before the broker closed, once it was sent that.

        A PINGREQ follows. If it is answered, the broker has read what should have made it close,
        and did not.
        """
        self.send(*after, PING)
        found = list(self.received)
        while True:
            try:
                found.append(self.receive())
            except ClosedError:
                return found
            assert found[-1].kind != PINGRESP, f"the broker did not close after {after!r}"

    def closed_unread(self, *after: bytes) -> bytes:
        """The same, but what came is not read: nobody can say in which version it is."""
        self.send(*after, PING)
        end = time.monotonic() + PATIENCE_S
        with contextlib.suppress(ClosedError):
            while not self.octets.endswith(packet(PINGRESP, 0, b"")):
                self._more(end)
            raise AssertionError(f"the broker did not close after {after!r}")
        return self.octets

    def refused(self, *after: bytes) -> int | None:
        """The broker closes upon that. Returns the reason that it gave, if it gave one.

        In MQTT 5 a reason has to be one for an error.
        """
        found = [each for each in self.closed(*after) if each.kind in (CONNACK, DISCONNECT)]
        if not found:
            return None
        (last,) = found
        assert last.reason >= (0x80 if self.version == V5 else 1), last
        return last.reason

    def ended(self) -> None:
        """Wait until the broker has closed, whatever it still sends."""
        while True:
            try:
                self.receive()
            except ClosedError:
                return

    # -- whole exchanges

    def connect(self, **options: Any) -> Packet:
        """CONNECT, whatever the answer is."""
        self.send(self.encode.connect(self.id, **options))
        self.connack = self.expect(CONNACK)
        return self.connack

    def disconnect(self, *arguments: Any) -> None:
        """DISCONNECT, and wait until the broker has closed: it knows by then."""
        self.send(self.encode.disconnect(*arguments))
        self.socket.shutdown(socket.SHUT_WR)
        self.ended()
        self.close()

    def vanish(self) -> None:
        """End the connection as a failing host does, and wait until the broker has noticed."""
        self.socket.shutdown(socket.SHUT_WR)
        self.ended()
        self.close()

    def subscribe(self, *filters: str | tuple[str, int], properties: Properties = ()) -> Packet:
        """SUBSCRIBE; a filter alone asks for QoS 2."""
        packet_id = self.next_id()
        pairs = [(each, 2) if isinstance(each, str) else each for each in filters]
        self.send(self.encode.subscribe(packet_id, *pairs, properties=properties))
        answer = self.expect(SUBACK)
        assert answer.packet_id == packet_id
        return answer

    def unsubscribe(self, *filters: str) -> Packet:
        """UNSUBSCRIBE."""
        packet_id = self.next_id()
        self.send(self.encode.unsubscribe(packet_id, *filters))
        answer = self.expect(UNSUBACK)
        assert answer.packet_id == packet_id
        return answer

    def publish(
        self,
        topic: str | bytes,
        payload: bytes = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Sequence[Property] = (),
    ) -> Packet | None:
        """PUBLISH and everything that belongs to it; returns the broker's first answer."""
        packet_id = self.next_id() if qos else None
        self.send(
            self.encode.publish(
                topic, payload, qos=qos, retain=retain, packet_id=packet_id, properties=properties
            )
        )
        if not packet_id:
            return None
        answer = self.expect(PUBACK if qos == 1 else PUBREC)
        assert answer.packet_id == packet_id
        if qos == 2 and answer.reason < 0x80:
            self.send(self.encode.ack(PUBREL, packet_id))
            assert self.expect(PUBCOMP).packet_id == packet_id
        return answer
