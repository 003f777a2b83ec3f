"""The MQTT control packets that we write and read ourselves (MQTT 3.1.1 and 5.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# The first octet: the type in the high four bits, the flags of a PUBLISH in the low ones.
CONNACK: Final = 0x20
PUBLISH: Final = 0x30
PUBACK: Final = 0x40
SUBACK: Final = 0x90
UNSUBACK: Final = 0xB0
PINGRESP: Final = 0xD0
TYPE_MASK: Final = 0xF0
QOS_MASK: Final = 0x06
RETAIN: Final = 0x01
DISCONNECT: Final = b"\xe0\x00"
# The other packets that a broker sends to a client that subscribes and publishes at QoS 0 and 1. A
# PUBLISH at QoS 1 is one: aedes 1.2 does not lower it to the QoS of the subscription.
_WANTED: Final = (CONNACK, PUBACK, SUBACK, UNSUBACK, PINGRESP, DISCONNECT[0])
_QOS_1: Final = 0x02

# MQTT 3.1.1, 3.2.2.3
_CONNECT_REFUSALS: Final = {
    1: "it does not speak MQTT 3.1.1",
    2: "it does not accept the client identifier",
    3: "it is not available",
    4: "user name or password is wrong",
    5: "this user may not connect",
}
_SUBSCRIPTION_REFUSED: Final = 0x80  # 3.9.3


def is_wanted(head: int) -> bool:
    """Whether a packet with this first octet may come from a broker, besides QoS 0 PUBLISH."""
    return head & TYPE_MASK in _WANTED or head & (TYPE_MASK | QOS_MASK) == PUBLISH | _QOS_1


def read_variable_length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Decode a variable byte integer (MQTT 5.0, 1.5.5).

    Return (value, next position), or (-1, at) if it is cut short. More than four octets is
    malformed: ValueError.
    """
    value = 0
    for count in range(4):
        if at + count >= end:
            return -1, at
        digit = data[at + count]
        value |= (digit & 0x7F) << (7 * count)
        if digit < 0x80:
            return value, at + count + 1
    raise ValueError("a length of more than four octets")


def encode_publish(
    topic: bytes, payload: bytes, properties: bytes | None, *, retain: bool = False
) -> bytes:
    """Return a QoS 0 PUBLISH; `properties` is None for MQTT 3.1.1."""
    body = len(topic).to_bytes(2, "big") + topic
    if properties is not None:
        body += _variable_length(len(properties)) + properties
    return _packet(PUBLISH | RETAIN if retain else PUBLISH, body + payload)


def connect_packet(
    client_id: str,
    username: str | None = None,
    password: str | None = None,
    *,
    keepalive_s: int = 0,
) -> bytes:
    """Return a CONNECT (MQTT 3.1.1, 3.1): clean session, no will; keep-alive 0 is none."""
    flags = 0x02 | (0x80 if username is not None else 0) | (0x40 if password is not None else 0)
    body = _text("MQTT") + bytes((4, flags)) + keepalive_s.to_bytes(2, "big") + _text(client_id)
    for value in (username, password):
        if value is not None:
            body += _text(value)
    return _packet(0x10, body)


def subscribe_packet(topics: Sequence[str], identifier: int = 1) -> bytes:
    """Return a SUBSCRIBE at QoS 0 (MQTT 3.1.1, 3.8)."""
    filters = b"".join(_text(topic) + b"\x00" for topic in topics)
    return _packet(0x82, identifier.to_bytes(2, "big") + filters)


def unsubscribe_packet(topics: Sequence[str], identifier: int) -> bytes:
    """Return an UNSUBSCRIBE (MQTT 3.1.1, 3.10)."""
    return _packet(0xA2, identifier.to_bytes(2, "big") + b"".join(map(_text, topics)))


def read_connack(body: bytes) -> str | None:
    """Return why the broker refuses the connection, "" if it does not; None: not MQTT 3.1.1."""
    if len(body) != 2:
        return None
    return _CONNECT_REFUSALS.get(body[1], f"return code {body[1]}") if body[1] else ""


def read_suback(body: bytes) -> bool | None:
    """Return whether the broker grants the one subscription; None: not MQTT 3.1.1."""
    return body[2] != _SUBSCRIPTION_REFUSED if len(body) == 3 else None


def _packet(head: int, body: bytes) -> bytes:
    return bytes((head,)) + _variable_length(len(body)) + body


def _text(value: str) -> bytes:
    octets = value.encode()
    return len(octets).to_bytes(2, "big") + octets


def _variable_length(value: int) -> bytes:
    encoded = bytearray()
    while True:
        value, digit = divmod(value, 128)
        encoded.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(encoded)
