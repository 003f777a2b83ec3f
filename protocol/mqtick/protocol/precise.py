"""The precise format: binary time messages of at most 32 octets (docs/protocol.md draws each).

Every message has `body()`, the octets before the tag, and a class method `decode(payload)`, which
takes the whole payload and checks everything but the tag; `auth.Keys` makes and verifies that.
Encoders raise `ValueError`, decoders `DecodeError` only. `*_ns` are nanoseconds, instants since
1970-01-01 UTC; a correction is *real minus stated* transmit time.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from mqtick.protocol import precise_fields as wire
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise_fields import (
    MAX_ROOT_DISTANCE_NS,
    NONCE_OCTETS,
    TAG_OCTETS,
    VERSION,
    Leap,
    decode_root_distance,
    encode_root_distance,
)

__all__ = [
    "MAX_ROOT_DISTANCE_NS",
    "NONCE_OCTETS",
    "TAG_OCTETS",
    "VERSION",
    "Claim",
    "Echo",
    "FollowUp",
    "Leap",
    "Message",
    "Reply",
    "Request",
    "Time",
    "decode",
    "decode_follow_up",
    "decode_root_distance",
    "encode_root_distance",
    "read_server_and_sequence",
    "tag_of",
]

_ECHO_WANTED: Final = 1
_SERVER_AND_SEQUENCE: Final = struct.Struct(">xBI")


@dataclass(frozen=True, slots=True)
class Time:
    """Kind 1, the broadcast: "it is `transmit_ns` now", and the correction of the one before."""

    KIND: ClassVar[int] = 1
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">BBIHIIiHBB")

    server: int
    sequence: int
    transmit_ns: int
    """The stated transmit time."""
    previous_correction_ns: int | None
    """Correction of the message whose sequence is one less; None: not known."""
    root_distance_ns: int
    stratum: int
    leap: Leap
    correction_source: int
    """Who stamped the transmission that `previous_correction_ns` speaks of."""
    generation: int

    def body(self) -> bytes:
        """Return the 24 octets before the tag."""
        correction = wire.known_or(self.previous_correction_ns, wire.UNKNOWN_CORRECTION)
        return _pack_stated(self, correction, self.correction_source)

    @classmethod
    def decode(cls, payload: bytes) -> Time:
        """Read a payload of this kind, tag included but unverified."""
        server, sequence, transmit_ns, correction, rest = _unpack_stated(cls, payload)
        correction_ns = wire.if_known(correction, wire.UNKNOWN_CORRECTION)
        return cls(server, sequence, transmit_ns, correction_ns, *rest)


@dataclass(frozen=True, slots=True)
class Request:
    """Kind 2, from a client: begins a two-way exchange."""

    KIND: ClassVar[int] = 2
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">BBI8sBB")

    server: int
    sequence: int
    nonce: bytes
    """8 octets, fresh and unguessable; they bind the answers to this request."""
    wants_echo: bool

    def body(self) -> bytes:
        """Return the 16 octets before the tag."""
        wire.check_nonce(self.nonce)
        return wire.pack(self, self.sequence, self.nonce, _ECHO_WANTED if self.wants_echo else 0, 0)

    @classmethod
    def decode(cls, payload: bytes) -> Request:
        """Read a payload of this kind, tag included but unverified."""
        _, server, sequence, nonce, flags, reserved = wire.unpack(cls, payload)
        if flags & ~_ECHO_WANTED or reserved:
            raise wire.reserved_bits("flags and reserved octet of a request", flags << 8 | reserved)
        return cls(server, sequence, nonce, flags == _ECHO_WANTED)


@dataclass(frozen=True, slots=True)
class Reply:
    """Kind 3, the answer to a request; `sequence` is the request's."""

    KIND: ClassVar[int] = 3
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">BBIHIIIHBB")

    server: int
    sequence: int
    transmit_ns: int
    """T3, the stated transmit time of this reply."""
    residence_ns: int
    """T3 minus T2, the time from the request's arrival to T3; 0 to 4.29 s."""
    root_distance_ns: int
    stratum: int
    leap: Leap
    receive_source: int
    """Who stamped T2."""
    generation: int

    @property
    def receive_ns(self) -> int:
        """T2, when the request arrived at the server."""
        return self.transmit_ns - self.residence_ns

    def body(self) -> bytes:
        """Return the 24 octets before the tag."""
        return _pack_stated(self, self.residence_ns, self.receive_source)

    @classmethod
    def decode(cls, payload: bytes) -> Reply:
        """Read a payload of this kind, tag included but unverified."""
        server, sequence, transmit_ns, residence, rest = _unpack_stated(cls, payload)
        if residence > transmit_ns:
            raise DecodeError("range", f"T2 is {residence - transmit_ns} ns before 1970; ignored.")
        return cls(server, sequence, transmit_ns, residence, *rest)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Kind 4, after a reply: the correction of its stated transmit time."""

    KIND: ClassVar[int] = 4
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">BBIiBB")

    server: int
    sequence: int
    correction_ns: int | None
    correction_source: int
    generation: int

    def body(self) -> bytes:
        """Return the 12 octets before the tag."""
        return wire.pack(
            self,
            self.sequence,
            wire.known_or(self.correction_ns, wire.UNKNOWN_CORRECTION),
            wire.pack_sources(self.correction_source),
            self.generation,
        )

    @classmethod
    def decode(cls, payload: bytes) -> FollowUp:
        """Read a payload of this kind, tag included but unverified."""
        _, server, sequence, correction, source, generation = wire.unpack(cls, payload)
        if source > 3:
            raise wire.reserved_bits("sources of a follow-up", source)
        correction_ns = wire.if_known(correction, wire.UNKNOWN_CORRECTION)
        return cls(server, sequence, correction_ns, source, generation)


@dataclass(frozen=True, slots=True)
class Echo:
    """Kind 5, after a reply: its correction, and when its two echoes arrived at the server."""

    KIND: ClassVar[int] = 5
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">BBIiIIBBI")

    server: int
    sequence: int
    correction_ns: int | None
    first_echo_ns: int
    """Arrival of the first echo at the server minus stated T3."""
    echo_span_ns: int
    """Arrival of the last echo minus arrival of the first."""
    correction_source: int
    first_source: int
    last_source: int
    generation: int
    loop_ns: int | None
    """The server's own recent delay from transmission to arrival, through the broker."""
    placement: int = 0
    """0 to 3: changes when the first echo subscribed again; the client must do so after it."""

    def body(self) -> bytes:
        """Return the 24 octets before the tag."""
        return wire.pack(
            self,
            self.sequence,
            wire.known_or(self.correction_ns, wire.UNKNOWN_CORRECTION),
            self.first_echo_ns,
            self.echo_span_ns,
            wire.pack_sources(self.correction_source, self.first_source, self.last_source)
            | self.placement << 6,  # 4 and more overflow the octet, which struct refuses
            self.generation,
            wire.known_or(self.loop_ns, wire.UNKNOWN_LOOP),
        )

    @classmethod
    def decode(cls, payload: bytes) -> Echo:
        """Read a payload of this kind, tag included but unverified."""
        fields = wire.unpack(cls, payload)
        _, server, sequence, correction, first, span, sources, generation, loop = fields
        return cls(
            server,
            sequence,
            wire.if_known(correction, wire.UNKNOWN_CORRECTION),
            first,
            span,
            sources & 3,
            sources >> 2 & 3,
            sources >> 4 & 3,
            generation,
            wire.if_known(loop, wire.UNKNOWN_LOOP),
            sources >> 6,
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """Kind 6, among servers: "this number is mine, since then"; a question, or the answer to one.

    `server` is the number that is claimed. Of two claims the one with the lower `rank` counts.
    """

    KIND: ClassVar[int] = 6
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">BBIHII8s")

    server: int
    lot: int
    """0 to 2^32 - 1, drawn by each run of a server: tells runs apart, and decides ties."""
    since_ns: int | None
    """Since when this run could serve, by its own clock; None: it is not synchronised now."""
    nonce: bytes
    """8 octets: fresh and unguessable in a question; an answer repeats its question's."""

    @property
    def rank(self) -> tuple[bool, int, int]:
        """What claims are sorted by: synchronised first, then age, then lot."""
        return self.since_ns is None, self.since_ns or 0, self.lot

    def body(self) -> bytes:
        """Return the 24 octets before the tag."""
        wire.check_nonce(self.nonce)
        return wire.pack(self, self.lot, *wire.split_instant(self.since_ns or 0), self.nonce)

    @classmethod
    def decode(cls, payload: bytes) -> Claim:
        """Read a payload of this kind, tag included but unverified."""
        _, server, lot, high, low, ns, nonce = wire.unpack(cls, payload)
        return cls(server, lot, wire.join_instant(high, low, ns) or None, nonce)


Message = Time | Request | Reply | FollowUp | Echo | Claim
_KINDS: Final[dict[int, type[Message]]] = {
    kind.KIND: kind for kind in (Time, Request, Reply, FollowUp, Echo, Claim)
}


def decode(payload: bytes) -> Message:
    """Read a payload of any kind, tag included but unverified."""
    number = wire.read_kind(payload)
    kind = _KINDS.get(number)
    if kind is None:
        raise DecodeError("kind", f"The message is of kind {number}; 1 to 6 are known; ignored.")
    return kind.decode(payload)


def decode_follow_up(payload: bytes) -> FollowUp | Echo:
    """Read either of the two kinds that complete an exchange, tag included but unverified."""
    kind = Echo if wire.read_kind(payload) == Echo.KIND else FollowUp
    return kind.decode(payload)


def read_server_and_sequence(payload: bytes) -> tuple[int, int] | None:
    """Return what every kind has after its head, of any payload; None if it is too short."""
    return _SERVER_AND_SEQUENCE.unpack_from(payload) if len(payload) >= 6 else None


def tag_of(payload: bytes) -> bytes:
    """Return the tag at the end of a payload."""
    return payload[-TAG_OCTETS:]


def _pack_stated(message: Time | Reply, fourth: int, source: int) -> bytes:
    """Put together what a time and a reply have in common, and the field in which they differ."""
    return wire.pack(
        message,
        message.sequence,
        *wire.split_instant(message.transmit_ns),
        fourth,
        encode_root_distance(message.root_distance_ns),
        wire.pack_quality(message.stratum, message.leap, source),
        message.generation,
    )


def _unpack_stated(kind: type[Time | Reply], payload: bytes) -> tuple[Any, ...]:
    """Return server, sequence, stated time, the field in which they differ, and the rest."""
    fields = wire.unpack(kind, payload)
    _, server, sequence, high, low, ns, fourth, distance, quality, generation = fields
    leap = Leap(quality >> 2 & 3)
    rest = decode_root_distance(distance), quality >> 4, leap, quality & 3, generation
    return server, sequence, wire.join_instant(high, low, ns), fourth, rest
