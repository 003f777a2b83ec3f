"""What the fields of the precise format mean: ranges, packed octets, root distance."""

import enum
import struct
from typing import Any, ClassVar, Final, Protocol

from mqtick.protocol.errors import DecodeError
from mqtick.protocol.time_types import NS_PER_S

__all__ = [
    "MAX_ROOT_DISTANCE_NS",
    "NONCE_OCTETS",
    "TAG_OCTETS",
    "UNKNOWN_CORRECTION",
    "UNKNOWN_LOOP",
    "VERSION",
    "Leap",
    "check_head",
    "check_nonce",
    "decode_root_distance",
    "encode_root_distance",
    "if_known",
    "join_instant",
    "known_or",
    "pack",
    "pack_quality",
    "pack_sources",
    "read_kind",
    "reserved_bits",
    "split_instant",
    "unpack",
]

VERSION: Final = 1
TAG_OCTETS: Final = 8
NONCE_OCTETS: Final = 8
MAX_ROOT_DISTANCE_NS: Final = 2047 << 31
"""The largest root distance that can be stated (73 minutes); it means "this or more"."""
UNKNOWN_CORRECTION: Final = -(1 << 31)
"""Stands for a correction that is not known."""
UNKNOWN_LOOP: Final = (1 << 32) - 1
"""Stands for a loop delay that is not known."""


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


def read_kind(payload: bytes) -> int:
    """Return the kind that the first octet names, once its version is known to be ours."""
    if not payload:
        raise DecodeError("length", "The message is empty; the shortest has 20 octets; ignored.")
    version, kind = payload[0] >> 4, payload[0] & 15
    if version != VERSION:
        raise DecodeError(
            "version",
            f"The message is of version {version}; only version {VERSION} is known; ignored. "
            "Bring both programs to one version.",
        )
    return kind


def check_head(payload: bytes, name: str, kind: int, length: int) -> None:
    """Refuse what is not of this version, kind and length; no kind has an optional part."""
    found = read_kind(payload)
    if found != kind:
        raise DecodeError(
            "kind",
            f"The message is of kind {found}, not {kind} ({name}) as expected here; ignored.",
        )
    if len(payload) != length:
        raise DecodeError("length", f"A {name} has {length} octets, not {len(payload)}; ignored.")


def split_instant(instant_ns: int) -> tuple[int, int, int]:
    """Split an instant as TimeInstance does: the high and low seconds, the nanoseconds."""
    seconds, nanoseconds = divmod(instant_ns, NS_PER_S)
    return 0, seconds, nanoseconds


def join_instant(high: int, low: int, nanoseconds: int) -> int:
    """Return the instant in ns since 1970; refuse what TimeInstance or the year 2106 forbids."""
    if high:
        raise DecodeError(
            "range", f"The instant is {high << 32 | low} s after 1970, past the year 2106; ignored."
        )
    if nanoseconds >= NS_PER_S:
        raise DecodeError(
            "nanoseconds", f"The nanoseconds are {nanoseconds}; they end at 999999999; ignored."
        )
    return low * NS_PER_S + nanoseconds


def known_or(value: int | None, unknown: int) -> int:
    """Return `value`, or if it is None what stands for "not known" on the wire."""
    if value == unknown:
        raise ValueError(
            f"{value} ns stands for 'not known' and cannot be stated. Nothing was encoded; "
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
    """Who made a stamp: 0 nobody, 1 a program, 2 the kernel, 3 the hardware."""
    if not 0 <= source <= 3:
        raise ValueError(f"The source of a stamp is {source}; 0 to 3 fit. Nothing was encoded.")
    return source


def reserved_bits(what: str, value: int) -> DecodeError:
    """Return the refusal of a message whose reserved bits are set."""
    return DecodeError("reserved", f"Reserved bits are set in the {what} ({value:#x}); ignored.")


class _Laid(Protocol):
    """A message with a layout."""

    KIND: ClassVar[int]
    LAYOUT: ClassVar[struct.Struct]

    @property
    def server(self) -> int: ...


def unpack(kind: type[_Laid], payload: bytes) -> tuple[Any, ...]:
    """Check version, kind and length; return the fields before the tag."""
    check_head(payload, kind.__name__, kind.KIND, kind.LAYOUT.size + TAG_OCTETS)
    return kind.LAYOUT.unpack_from(payload)


def check_nonce(nonce: bytes) -> None:
    """Refuse a nonce of another length, which struct would cut or fill silently; ValueError."""
    if len(nonce) != NONCE_OCTETS:
        raise ValueError(f"A nonce has 8 octets, not {len(nonce)}; nothing was encoded.")


def pack(message: _Laid, *fields: int | bytes) -> bytes:
    """Put version, kind and server before `fields`; struct checks the ranges."""
    try:
        head = VERSION << 4 | message.KIND
        return message.LAYOUT.pack(head, message.server, *fields)
    except struct.error as error:
        raise ValueError(
            f"A field of {message} is outside its range ({error}). Nothing was encoded; "
            "docs/protocol.md gives the ranges."
        ) from error
