"""Decodes the datagrams of MQTT over UDP (broker/spec/mqtt-udp.md).

Each datagram is exactly one packet of MQTT 3.1.1, without further octets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from mqtick.mqtt.packets import CONNACK, PUBLISH, RETAIN, SUBACK, read_variable_length

LONGEST: Final = 1472
"""Octets of a datagram that fills an Ethernet frame; the broker refuses longer ones."""
LONGEST_TOPIC: Final = 64
"""Octets of a topic or filter; the broker refuses longer ones."""
PROOF: Final = "$proof"
"""Topic of a challenge, and of the answer to it."""
PINGREQ: Final = b"\xc0\x00"
UNSUBACK: Final = 0xB0
PINGRESP: Final = 0xD0

_PROOF = PROOF.encode()
_TOKEN_OCTETS = 8
_MOST_FILTERS = 32
_HEAD_OCTETS = 5  # first octet, length, identifier
_FILTER_OCTETS = 3  # its length, and the QoS asked for
# Octets of the body of an answer, MQTT 3.1.1, 3.2, 3.11 and 3.13. A SUBACK has at least three.
_BODIES: Final = {CONNACK: 2, UNSUBACK: 2, PINGRESP: 0}


class Message(NamedTuple):
    """A PUBLISH of QoS 0."""

    topic: bytes
    payload: bytes
    retain: bool

    @property
    def is_challenge(self) -> bool:
        """Whether it must be sent back, which proves that we receive at our address."""
        return self.topic == _PROOF and len(self.payload) == _TOKEN_OCTETS


class Answer(NamedTuple):
    """The broker's answer to a request.

    Attributes:
        kind: CONNACK, SUBACK, UNSUBACK or PINGRESP.
        identifier: The packet identifier of the request; 0 if it has none.
        codes: Return codes: a CONNACK has one, a SUBACK one for each filter.
    """

    kind: int
    identifier: int
    codes: bytes


def decode(datagram: bytes) -> Message | Answer | None:
    """Read a datagram from a broker; None if it is not a packet that brokers send."""
    try:
        length, body = read_variable_length(datagram, 1, len(datagram))
    except ValueError:
        return None
    if length < 0 or body + length != len(datagram):
        return None
    head = datagram[0]
    if head & ~RETAIN == PUBLISH:
        return _message(datagram, body, head & RETAIN != 0)
    if head == SUBACK and length >= 3:
        return Answer(head, int.from_bytes(datagram[body : body + 2], "big"), datagram[body + 2 :])
    if _BODIES.get(head) != length:
        return None
    if head == CONNACK:
        return Answer(head, 0, datagram[body + 1 :])
    return Answer(head, int.from_bytes(datagram[body:], "big"), b"")


def _message(datagram: bytes, body: int, retain: bool) -> Message | None:
    payload = body + 2 + int.from_bytes(datagram[body : body + 2], "big")
    if len(datagram) < body + 2 or payload > len(datagram):
        return None
    return Message(datagram[body + 2 : payload], datagram[payload:], retain)


def share_out(topics: Sequence[str]) -> list[list[str]]:
    """Distribute filters, none longer than `LONGEST_TOPIC`, over as few packets as possible."""
    shares: list[list[str]] = []
    room = 0
    for topic in topics:
        size = len(topic.encode()) + _FILTER_OCTETS
        if room < size or len(shares[-1]) == _MOST_FILTERS:
            shares.append([])
            room = LONGEST - _HEAD_OCTETS
        shares[-1].append(topic)
        room -= size
    return shares
