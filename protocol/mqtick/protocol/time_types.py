"""IEEE 1451 time types, to and from integer nanoseconds.

* 1451.0-2024 TimeInstance, 10 octets: u48 seconds, u32 nanoseconds; Unix epoch, never negative.
* 1451.0-2024 TimeDuration, 8 octets: i64, nanoseconds times 2**16 (IEEE 1588's TimeInterval).
* 1451.0-2007 TimeRepresentation (its TimeInstance and TimeDuration; ISO/IEC/IEEE 21450:2010, 4.9),
  8 octets: u32 seconds, u32 nanoseconds whose top bit is the sign of the whole value.

All are big endian. Encoders raise `ValueError` for a value the type cannot hold; decoders raise
`DecodeError` only.
"""

import struct
from typing import Final

from mqtick.protocol.errors import DecodeError

__all__ = [
    "NS_PER_S",
    "decode_duration",
    "decode_instance",
    "decode_time_2007",
    "encode_duration",
    "encode_instance",
    "encode_time_2007",
]

NS_PER_S: Final = 1_000_000_000
_INSTANCE: Final = struct.Struct(">HII")  # u48 seconds as u16 and u32
_DURATION: Final = struct.Struct(">q")
_TIME_2007: Final = struct.Struct(">II")
_SIGN_2007: Final = 1 << 31
_HALF: Final = 1 << 15  # half a nanosecond in units of 2**-16 ns


def encode_instance(instant_ns: int) -> bytes:
    """Return the 10-octet TimeInstance of 1451.0-2024.

    `instant_ns`: nanoseconds since 1970-01-01 UTC, 0 to 2**48 s. The octet strings sort as the
    instants do.
    """
    seconds, nanoseconds = divmod(instant_ns, NS_PER_S)
    if not 0 <= seconds < 1 << 48:
        raise ValueError(
            f"The instant {instant_ns} ns does not fit a TimeInstance, which counts 0 to 2**48 - 1 "
            "seconds from 1970-01-01. Nothing was encoded; check the clock it was read from."
        )
    return _INSTANCE.pack(seconds >> 32, seconds & 0xFFFF_FFFF, nanoseconds)


def decode_instance(octets: bytes) -> int:
    """Return the instant of a 10-octet TimeInstance (1451.0-2024) in ns since 1970-01-01 UTC."""
    _want_length("TimeInstance", octets, _INSTANCE.size)
    high, low, nanoseconds = _INSTANCE.unpack(octets)
    _want_nanoseconds("TimeInstance", nanoseconds)
    return int((high << 32 | low) * NS_PER_S + nanoseconds)


def encode_duration(duration_ns: int) -> bytes:
    """Return the 8-octet TimeDuration of 1451.0-2024; signed, less than 2**47 ns (39 h)."""
    if not -(1 << 47) <= duration_ns < 1 << 47:
        raise ValueError(
            f"The duration {duration_ns} ns does not fit a TimeDuration, which ends at 2**47 ns "
            "(39 hours) either way. Nothing was encoded; send two instants instead."
        )
    return _DURATION.pack(duration_ns << 16)


def decode_duration(octets: bytes) -> int:
    """Return a TimeDuration (1451.0-2024) in ns, signed.

    Another node may state fractions of a nanosecond; they are rounded to the nearest nanosecond
    (a half goes up). What `encode_duration` wrote comes back exactly.
    """
    _want_length("TimeDuration", octets, _DURATION.size)
    (scaled,) = _DURATION.unpack(octets)
    return (int(scaled) + _HALF) >> 16


def encode_time_2007(value_ns: int) -> bytes:
    """Return the 8-octet TimeRepresentation of 1451.0-2007, for its TimeInstance or TimeDuration.

    `value_ns`: an instant in ns since 1970-01-01, or a duration; signed, less than 2**32 s either
    way. Zero is always written without the sign.
    """
    seconds, nanoseconds = divmod(abs(value_ns), NS_PER_S)
    if seconds >= 1 << 32:
        raise ValueError(
            f"The value {value_ns} ns does not fit a 1451.0-2007 TimeRepresentation, which ends at "
            "2**32 seconds (the year 2106) either way. Nothing was encoded; use the 2024 type."
        )
    return _TIME_2007.pack(seconds, nanoseconds | (_SIGN_2007 if value_ns < 0 else 0))


def decode_time_2007(octets: bytes) -> int:
    """Return a TimeRepresentation (1451.0-2007) in ns, signed.

    Minus zero (no seconds, only the sign bit) is read as zero: the excerpts of the standard do not
    rule it out, and it means nothing else.
    """
    _want_length("TimeRepresentation", octets, _TIME_2007.size)
    seconds, field = _TIME_2007.unpack(octets)
    nanoseconds = field & ~_SIGN_2007
    _want_nanoseconds("TimeRepresentation", nanoseconds)
    magnitude = int(seconds) * NS_PER_S + int(nanoseconds)
    return -magnitude if field & _SIGN_2007 else magnitude


def _want_length(what: str, octets: bytes, length: int) -> None:
    if len(octets) != length:
        raise DecodeError("length", f"A {what} has {length} octets, not {len(octets)}; ignored.")


def _want_nanoseconds(what: str, nanoseconds: int) -> None:
    if nanoseconds >= NS_PER_S:
        raise DecodeError(
            "nanoseconds",
            f"The nanoseconds of a {what} are {nanoseconds}; they end at 999999999; ignored.",
        )
