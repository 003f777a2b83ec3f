"""The precise format: binary time messages (docs/protocol.md draws each).

Version 1 has at most 32 octets. Version 2 has at most 64: it ends with a trailer, in which a broker
states how long that copy was in it, and has further fields that need such a broker.

Every message has `body()`, the octets before the tag, and a class method `decode(payload)`, which
takes the whole payload of either version and checks everything but tag and trailer; `auth.Keys`
makes and verifies the tag, and leaves room for the trailer. Encoders raise `ValueError`, decoders
`DecodeError` only. `*_ns` are nanoseconds, instants since 1970-01-01 UTC; a correction is *real
minus stated*: of a transmit time, or of a residence.
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
    TRAILER_OCTETS,
    VERSIONS,
    Layout,
    Leap,
    decode_root_distance,
    encode_root_distance,
    without_trailer,
)

__all__ = [
    "MAX_ROOT_DISTANCE_NS",
    "NONCE_OCTETS",
    "TAG_OCTETS",
    "TRAILER_OCTETS",
    "VERSIONS",
    "Claim",
    "Echo",
    "FollowUp",
    "Leap",
    "Loop",
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
    "without_trailer",
]

_ECHO_WANTED: Final = 1
_FILLS: Final = 1
_FILLS_AND_SOURCE: Final = 7
_PADDING: Final = bytes(17)
"""Makes a request of version 2 as long as its reply, so that links take equally long for both."""
_NO_CORRECTION: Final = (wire.UNKNOWN_CORRECTION, 0)
_SERVER_AND_SEQUENCE: Final = struct.Struct(">xBI")


@dataclass(frozen=True, slots=True)
class Time:
    """Kind 1, the broadcast: "it is `transmit_ns` now", and the correction of the last one."""

    KIND: ClassVar[int] = 1
    LAYOUTS: ClassVar[dict[int, Layout]] = wire.layouts("BBIHIIiHBB", "B", absent=(0,))

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
    """Stamp source of the transmission that `previous_correction_ns` corrects."""
    generation: int
    fills: bool = False
    """Whether the server's broker fills trailers; version 2."""
    version: int = 1

    def body(self) -> bytes:
        """Return the octets before the tag."""
        correction = wire.known_or(self.previous_correction_ns, wire.UNKNOWN_CORRECTION)
        broker = wire.pack_broker(self.fills)
        return _pack_stated(self, correction, self.correction_source, broker)

    @classmethod
    def decode(cls, payload: bytes) -> Time:
        """Read a payload of this kind, tag included but unverified."""
        head, transmit_ns, correction, rest, (broker,) = _unpack_stated(cls, payload)
        correction_ns = wire.if_known(correction, wire.UNKNOWN_CORRECTION)
        fills, _ = wire.unpack_broker(broker, _FILLS)
        version, server, sequence = head
        rest += fills, version
        return cls(server, sequence, transmit_ns, correction_ns, *rest)


@dataclass(frozen=True, slots=True)
class Request:
    """Kind 2, from a client: begins a two-way exchange."""

    KIND: ClassVar[int] = 2
    LAYOUTS: ClassVar[dict[int, Layout]] = wire.layouts("BBI8sBB", "17s", absent=(_PADDING,))

    server: int
    sequence: int
    nonce: bytes
    """8 octets, fresh and unguessable; they bind the answers to this request."""
    wants_echo: bool
    version: int = 1

    def body(self) -> bytes:
        """Return the octets before the tag."""
        wire.check_nonce(self.nonce)
        flags = _ECHO_WANTED if self.wants_echo else 0
        return wire.pack(self, self.sequence, self.nonce, flags, 0, _PADDING)

    @classmethod
    def decode(cls, payload: bytes) -> Request:
        """Read a payload of this kind, tag included but unverified."""
        version, server, sequence, nonce, flags, reserved, padding = wire.unpack(cls, payload)
        if flags & ~_ECHO_WANTED or reserved:
            raise wire.reserved_bits("flags and reserved octet of a request", flags << 8 | reserved)
        if padding != _PADDING:
            raise wire.reserved_bits("padding of a request", int.from_bytes(padding, "big"))
        return cls(server, sequence, nonce, flags == _ECHO_WANTED, version)


@dataclass(frozen=True, slots=True)
class Reply:
    """Kind 3, the answer to a request; `sequence` is the request's."""

    KIND: ClassVar[int] = 3
    LAYOUTS: ClassVar[dict[int, Layout]] = wire.layouts("BBIHIIIHBB", "QB", absent=(0, 0))

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
    """Stamp source of T2."""
    generation: int
    fills: bool = False
    """Whether the server's broker fills trailers; this and the next fields are of version 2."""
    request_residence: int = 0
    """The residence in the request's trailer when it arrived at the server, 2^-16 ns."""
    request_source: int = 0
    """Stamp source of that residence; 0: the residence is not known."""
    version: int = 1

    @property
    def receive_ns(self) -> int:
        """T2, when the request arrived at the server."""
        return self.transmit_ns - self.residence_ns

    def body(self) -> bytes:
        """Return the octets before the tag."""
        broker = wire.pack_broker(self.fills, self.request_source)
        return _pack_stated(
            self, self.residence_ns, self.receive_source, self.request_residence, broker
        )

    @classmethod
    def decode(cls, payload: bytes) -> Reply:
        """Read a payload of this kind, tag included but unverified."""
        head, transmit_ns, residence, rest, (request, broker) = _unpack_stated(cls, payload)
        if residence > transmit_ns:
            raise DecodeError("range", f"T2 is {residence - transmit_ns} ns before 1970; ignored.")
        fills, source = wire.unpack_broker(broker, _FILLS_AND_SOURCE)
        version, server, sequence = head
        rest += fills, request, source, version
        return cls(server, sequence, transmit_ns, residence, *rest)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Kind 4, after a reply: the correction of its stated transmit time."""

    KIND: ClassVar[int] = 4
    LAYOUTS: ClassVar[dict[int, Layout]] = wire.layouts("BBIiBBH", "iB", absent=_NO_CORRECTION)

    server: int
    sequence: int
    correction_ns: int | None
    correction_source: int
    generation: int
    rate_change_ppb: int | None = None
    """As in `Echo`."""
    request_correction_ns: int | None = None
    """Correction of the request's residence, as the reply repeats it, ns; version 2."""
    request_source: int = 0
    """Stamp source of that residence and its correction; 0: not known."""
    version: int = 1

    def body(self) -> bytes:
        """Return the octets before the tag."""
        return wire.pack(
            self,
            self.sequence,
            wire.known_or(self.correction_ns, wire.UNKNOWN_CORRECTION),
            wire.pack_sources(self.correction_source),
            self.generation,
            wire.known_or(self.rate_change_ppb, wire.UNKNOWN_RATE_CHANGE),
            wire.known_or(self.request_correction_ns, wire.UNKNOWN_CORRECTION),
            wire.pack_sources(self.request_source),
        )

    @classmethod
    def decode(cls, payload: bytes) -> FollowUp:
        """Read a payload of this kind, tag included but unverified."""
        version, server, sequence, correction, source, *rest = wire.unpack(cls, payload)
        if source > 3:
            raise wire.reserved_bits("sources of a follow-up", source)
        correction_ns = wire.if_known(correction, wire.UNKNOWN_CORRECTION)
        generation, change, *request = rest
        change_ppb = wire.if_known(change, wire.UNKNOWN_RATE_CHANGE)
        rest = [generation, change_ppb, *_request(*request), version]
        return cls(server, sequence, correction_ns, source, *rest)


@dataclass(frozen=True, slots=True)
class Echo:
    """Kind 8, after a reply: its correction, and when its two echoes arrived at the server."""

    KIND: ClassVar[int] = 8
    LAYOUTS: ClassVar[dict[int, Layout]] = wire.layouts("BBIiIHHBBI", "iB", absent=_NO_CORRECTION)

    server: int
    sequence: int
    correction_ns: int | None
    first_echo_ns: int
    """Arrival of the first echo at the server minus stated T3."""
    echo_span_ns: int
    """Arrival of the last echo minus arrival of the first; stated as root distances are."""
    correction_source: int
    first_source: int
    last_source: int
    generation: int
    loop_ns: int | None
    """The server's own recent delay from transmission to arrival, through the broker."""
    placement: int = 0
    """0 to 3: changes when the first echo subscribed again; the client must do so after it."""
    rate_change_ppb: int | None = None
    """What the served time, from now on and within this generation, departs at most from the
    straight line through its last 1000 s, ns for each second that passes; None: no promise."""
    request_correction_ns: int | None = None
    """Correction of the request's residence, as the reply repeats it, ns; version 2."""
    request_source: int = 0
    """Stamp source of that residence and its correction; 0: not known."""
    version: int = 1

    def body(self) -> bytes:
        """Return the octets before the tag."""
        return wire.pack(
            self,
            self.sequence,
            wire.known_or(self.correction_ns, wire.UNKNOWN_CORRECTION),
            self.first_echo_ns,
            encode_root_distance(self.echo_span_ns),
            wire.known_or(self.rate_change_ppb, wire.UNKNOWN_RATE_CHANGE),
            wire.pack_sources(self.correction_source, self.first_source, self.last_source)
            | self.placement << 6,  # 4 and more overflow the octet, which struct refuses
            self.generation,
            wire.known_or(self.loop_ns, wire.UNKNOWN_LOOP),
            wire.known_or(self.request_correction_ns, wire.UNKNOWN_CORRECTION),
            wire.pack_sources(self.request_source),
        )

    @classmethod
    def decode(cls, payload: bytes) -> Echo:
        """Read a payload of this kind, tag included but unverified."""
        version, server, sequence, correction, first, span, change, *rest = wire.unpack(
            cls, payload
        )
        sources, generation, loop, *request = rest
        return cls(
            server,
            sequence,
            wire.if_known(correction, wire.UNKNOWN_CORRECTION),
            first,
            decode_root_distance(span),
            sources & 3,
            sources >> 2 & 3,
            sources >> 4 & 3,
            generation,
            wire.if_known(loop, wire.UNKNOWN_LOOP),
            sources >> 6,
            wire.if_known(change, wire.UNKNOWN_RATE_CHANGE),
            *_request(*request),
            version,
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """Kind 6, among servers: "this number is mine, since then"; a question or an answer.

    `server` is the claimed number. Of two claims the one with the lower `rank` wins.
    """

    KIND: ClassVar[int] = 6
    LAYOUTS: ClassVar[dict[int, Layout]] = wire.layouts("BBIHII8s")

    server: int
    lot: int
    """0 to 2^32 - 1, drawn by each run of a server: tells runs apart, and decides ties."""
    since_ns: int | None
    """Since when this run could serve, by its own clock; None: it is not synchronised now."""
    nonce: bytes
    """8 octets: fresh and unguessable in a question; an answer repeats them."""
    version: int = 1

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The sort key of claims: synchronised first, then age, then lot."""
        return self.since_ns is None, self.since_ns or 0, self.lot

    def body(self) -> bytes:
        """Return the 24 octets before the tag."""
        wire.check_nonce(self.nonce)
        return wire.pack(self, self.lot, *wire.split_instant(self.since_ns or 0), self.nonce)

    @classmethod
    def decode(cls, payload: bytes) -> Claim:
        """Read a payload of this kind, tag included but unverified."""
        version, server, lot, high, low, ns, nonce = wire.unpack(cls, payload)
        return cls(server, lot, wire.join_instant(high, low, ns) or None, nonce, version)


@dataclass(frozen=True, slots=True)
class Loop:
    """Kind 7, from a node to itself, version 2 only: measures the path to the broker and back.

    It has no tag: only its sender reads it, and recognises it by the nonce.
    """

    KIND: ClassVar[int] = 7
    LAYOUTS: ClassVar[dict[int, Layout]] = {2: Layout(struct.Struct(">BB8s"), 10 + TRAILER_OCTETS)}

    server: int
    """0 if a client sends it."""
    nonce: bytes
    """8 octets, fresh and unguessable."""
    version: int = 2

    def body(self) -> bytes:
        """Return the 10 octets before the trailer."""
        wire.check_nonce(self.nonce)
        return wire.pack(self, self.nonce)

    def payload(self) -> bytes:
        """Return the whole message."""
        return self.body() + bytes(TRAILER_OCTETS)

    @classmethod
    def decode(cls, payload: bytes) -> Loop:
        """Read a payload of this kind."""
        version, server, nonce = wire.unpack(cls, payload)
        return cls(server, nonce, version)


Message = Time | Request | Reply | FollowUp | Echo | Claim | Loop
_KINDS: Final[dict[int, type[Message]]] = {
    kind.KIND: kind for kind in (Time, Request, Reply, FollowUp, Claim, Loop, Echo)
}


def decode(payload: bytes) -> Message:
    """Read a payload of any kind, tag included but unverified."""
    number = wire.read_kind(payload)
    kind = _KINDS.get(number)
    if kind is None:
        known = ", ".join(map(str, _KINDS))
        raise DecodeError("kind", f"The message is of kind {number}; {known} are known; ignored.")
    return kind.decode(payload)


def decode_follow_up(payload: bytes) -> FollowUp | Echo:
    """Read either of the two kinds that complete an exchange, tag included but unverified."""
    kind = Echo if wire.read_kind(payload) == Echo.KIND else FollowUp
    return kind.decode(payload)


def read_server_and_sequence(payload: bytes) -> tuple[int, int] | None:
    """Return server and sequence, which every kind has; None if the payload is too short."""
    return _SERVER_AND_SEQUENCE.unpack_from(payload) if len(payload) >= 6 else None


def tag_of(payload: bytes) -> bytes:
    """Return the tag of a payload."""
    return without_trailer(payload)[-TAG_OCTETS:]


def _pack_stated(message: Time | Reply, fourth: int, source: int, *added: int) -> bytes:
    """Pack the fields that a time and a reply have in common, and those in which they differ."""
    return wire.pack(
        message,
        message.sequence,
        *wire.split_instant(message.transmit_ns),
        fourth,
        encode_root_distance(message.root_distance_ns),
        wire.pack_quality(message.stratum, message.leap, source),
        message.generation,
        *added,
    )


def _unpack_stated(kind: type[Time | Reply], payload: bytes) -> tuple[Any, ...]:
    """Return (version, server, sequence), stated time, the differing field, the rest, the added."""
    fields = wire.unpack(kind, payload)
    *head, high, low, ns, fourth, distance, quality, generation = fields[:10]
    leap = Leap(quality >> 2 & 3)
    rest = decode_root_distance(distance), quality >> 4, leap, quality & 3, generation
    return head, wire.join_instant(high, low, ns), fourth, rest, fields[10:]


def _request(correction: int, source: int) -> tuple[int | None, int]:
    """Return the correction of the request's residence, and its stamp source."""
    if source > 3:
        raise wire.reserved_bits("source of a request's residence", source)
    return wire.if_known(correction, wire.UNKNOWN_CORRECTION), source
