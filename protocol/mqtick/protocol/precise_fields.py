"""The fields of the precise format: versions, ranges, packed octets, root distance."""

from __future__ import annotations

import enum
import struct
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from mqtick.protocol.errors import DecodeError
from mqtick.protocol.time_types import END_NS, NS_PER_S, check_instant

VERSIONS: Final = (1, 2)
"""Version 2 has room for the broker's trailer in each copy (broker/spec/residence.md)."""
TAG_OCTETS: Final = 8
TRAILER_OCTETS: Final = 16
"""Octets at the end of version 2, not covered by the tag: zeros, until a broker fills them."""
NONCE_OCTETS: Final = 8
MAX_ROOT_DISTANCE_NS: Final = 2047 << 31
"""The largest root distance that can be stated (73 minutes); it means "this or more"."""
UNKNOWN_CORRECTION: Final = -(1 << 31)
"""Stands for a correction that is not known."""
UNKNOWN_LOOP: Final = (1 << 32) - 1
"""Stands for a loop delay that is not known."""
UNKNOWN_RATE_CHANGE: Final = (1 << 16) - 1
"""Stands for "the server promises nothing about its rate"."""


class Leap(enum.IntEnum):
    """The leap indicator, numbered as in NTP (RFC 5905, 7.3)."""

    NONE = 0
    INSERT = 1
    DELETE = 2
    UNSYNCHRONISED = 3


def encode_root_distance(distance_ns: int) -> int:
    """Return the 16-bit root distance: exponent (5 bits) and mantissa (11 bits), rounded up.

    What is decoded from it is never less than `distance_ns` (0 or more), and at most 0.1 % more;
    past `MAX_ROOT_DISTANCE_NS` it saturates at 0xFFFF, which means "at least".
    """
    if distance_ns < 0:
        raise ValueError(
            f"The root distance is {distance_ns} ns; it is a bound and cannot be negative. "
            "Nothing was encoded."
        )
    if distance_ns >= MAX_ROOT_DISTANCE_NS:
        return 0xFFFF
    exponent = max(0, distance_ns.bit_length() - 11)
    mantissa = -(-distance_ns >> exponent)
    if mantissa == 2048:  # rounding up carried into the next exponent
        exponent, mantissa = exponent + 1, 1024
    return exponent << 11 | mantissa


def decode_root_distance(field: int) -> int:
    """Return the root distance of a 16-bit field in ns (0xFFFF: at least this)."""
    return (field & 0x7FF) << (field >> 11)


class Layout(NamedTuple):
    """One kind of message in one version.

    Attributes:
        body: What stands before the tag.
        length: Of the whole payload; no kind has an optional part.
        absent: The values, meaning "nothing", of the last fields, which this version lacks.
    """

    body: struct.Struct
    length: int
    absent: tuple[int | bytes, ...] = ()


def layouts(body: str, added: str = "", absent: tuple[int | bytes, ...] = ()) -> dict[int, Layout]:
    """Return both versions of a kind: `body`, to which version 2 adds fields and the trailer."""
    one, two = struct.Struct(f">{body}"), struct.Struct(f">{body}{added}")
    return {
        1: Layout(one, one.size + TAG_OCTETS, absent),
        2: Layout(two, two.size + TAG_OCTETS + TRAILER_OCTETS),
    }


def version_of(payload: bytes) -> int:
    """Return the version that the first octet states, of any payload; 0 for an empty one."""
    return payload[0] >> 4 if payload else 0


def without_trailer(payload: bytes) -> bytes:
    """Return a payload of any version without its trailer, into which brokers may write."""
    return payload[:-TRAILER_OCTETS] if version_of(payload) == 2 else payload


def read_kind(payload: bytes) -> int:
    """Return the kind that the first octet names, once its version is known to be ours."""
    if not payload:
        raise DecodeError("length", "The message is empty; the shortest has 22 octets; ignored.")
    if version_of(payload) not in VERSIONS:
        raise DecodeError(
            "version",
            f"The message is of version {version_of(payload)}; only 1 and 2 are known; ignored. "
            "Bring both programs to one version.",
        )
    return payload[0] & 15


def split_instant(instant_ns: int) -> tuple[int, int, int]:
    """Split an instant as TimeInstance does: the high and low seconds, the nanoseconds."""
    seconds, nanoseconds = divmod(check_instant(instant_ns), NS_PER_S)
    return seconds >> 32, seconds & 0xFFFF_FFFF, nanoseconds


def join_instant(high: int, low: int, nanoseconds: int) -> int:
    """Return the instant in ns since 1970; refuse what TimeInstance or the year 2262 forbids."""
    if nanoseconds >= NS_PER_S:
        raise DecodeError(
            "nanoseconds", f"The nanoseconds are {nanoseconds}; they end at 999999999; ignored."
        )
    instant_ns = (high << 32 | low) * NS_PER_S + nanoseconds
    if instant_ns >= END_NS:
        raise DecodeError(
            "range", f"The instant is {instant_ns} ns after 1970, past the year 2262; ignored."
        )
    return instant_ns


def known_or(value: int | None, unknown: int) -> int:
    """Return `value`, or if it is None, `unknown`: the wire's value for "not known"."""
    if value == unknown:
        raise ValueError(
            f"{value} stands for 'not known' and cannot be stated. Nothing was encoded; "
            "pass None, or do not send the message."
        )
    return unknown if value is None else value


def if_known(value: int, unknown: int) -> int | None:
    """Return `value`, or None if it stands for "not known"."""
    return None if value == unknown else value


def pack_quality(stratum: int, leap: Leap, source: int) -> int:
    """Return the octet of stratum, leap and stamp source."""
    if not 0 <= stratum <= 15:
        raise ValueError(f"The stratum is {stratum}; 0 to 15 fit. Nothing was encoded.")
    return stratum << 4 | Leap(leap) << 2 | _two_bits(source)


def pack_sources(first: int, second: int = 0, third: int = 0) -> int:
    """Return the octet of up to three stamp sources, the first in the lowest bits."""
    return _two_bits(first) | _two_bits(second) << 2 | _two_bits(third) << 4


def _two_bits(source: int) -> int:
    """Check a stamp source: 0 none, 1 a program, 2 the kernel, 3 the hardware."""
    if not 0 <= source <= 3:
        raise ValueError(f"The source of a stamp is {source}; 0 to 3 fit. Nothing was encoded.")
    return source


def reserved_bits(what: str, value: int) -> DecodeError:
    """Return the error for a message whose reserved bits are set."""
    return DecodeError("reserved", f"Reserved bits are set in the {what} ({value:#x}); ignored.")


def pack_broker(fills: bool, source: int = 0) -> int:
    """Return the octet of a flag (the server's broker fills trailers) and a residence's source."""
    return _two_bits(source) << 1 | fills


def unpack_broker(octet: int, most: int) -> tuple[bool, int]:
    """Return the flag and the source of an octet; values above `most` are reserved."""
    if octet > most:
        raise reserved_bits("broker octet", octet)
    return bool(octet & 1), octet >> 1


class _Laid(Protocol):
    """A message with a layout for each version."""

    KIND: ClassVar[int]
    LAYOUTS: ClassVar[dict[int, Layout]]

    @property
    def server(self) -> int: ...

    @property
    def version(self) -> int: ...


def unpack(kind: type[_Laid], payload: bytes) -> tuple[Any, ...]:
    """Check version, kind and length; return the version and the fields between head and tag.

    Fields that the version lacks are there too, with the value that means "nothing".
    """
    found, name, layout = read_kind(payload), kind.__name__, kind.LAYOUTS.get(version_of(payload))
    if found != kind.KIND or layout is None:
        raise DecodeError(
            "kind",
            f"The message is of kind {found}, not {kind.KIND} ({name}) as expected here; ignored.",
        )
    if len(payload) != layout.length:
        raise DecodeError(
            "length",
            f"A {name} of version {version_of(payload)} has {layout.length} octets, not "
            f"{len(payload)}; ignored.",
        )
    return version_of(payload), *layout.body.unpack_from(payload)[1:], *layout.absent


def check_nonce(nonce: bytes) -> None:
    """Refuse a nonce of wrong length, which struct would cut or fill silently; ValueError."""
    if len(nonce) != NONCE_OCTETS:
        raise ValueError(f"A nonce has 8 octets, not {len(nonce)}; nothing was encoded.")


def pack(message: _Laid, *fields: int | bytes) -> bytes:
    """Put version, kind and server before `fields`; struct checks the ranges."""
    layout = message.LAYOUTS.get(message.version)
    if layout is None or fields[len(fields) - len(layout.absent) :] != layout.absent:
        raise ValueError(
            f"Version {message.version} cannot say all of {message}. Nothing was encoded; use "
            "version 2, or leave out what only that has."
        )
    try:
        head = message.version << 4 | message.KIND
        return layout.body.pack(head, message.server, *fields[: len(fields) - len(layout.absent)])
    except struct.error as error:
        raise ValueError(
            f"A field of {message} is outside its range ({error}). Nothing was encoded; "
            "docs/protocol.md gives the ranges."
        ) from error
