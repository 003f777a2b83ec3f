"""Time synchronisation of draft P21451-1-6 (2021), in MQTT 5 user properties.

SYN: the server states its time. SRQ, SRS: a client asks, the server answers with T1, t2, t3. The
rest of the draft (FUP, Correction) changes no time and is ignored. Source: the code and the notes
of github westlab/IES-TCSTD-Plugfest (2021-22). Properties are lists of (name, value), in the order
of the wire.

Instants travel as `datetime.isoformat()` of *naive local time*: microseconds at most, no fraction
when it is zero, no zone. Both ends must know the server's offset from UTC, it changes with summer
time, and when that ends an hour is ambiguous: use the precise format where you can choose.
Encoders raise `ValueError`, decoders `DecodeError` only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mqtick.protocol.errors import DecodeError, shown
from mqtick.protocol.time_types import END_NS, NS_PER_S, check_instant
from mqtick.protocol.topics import topic_fault

UserProperties = Sequence[tuple[str, str]]

SYN_PAYLOAD: Final = b"SYN"
SRQ_PAYLOAD: Final = b"SRQ"
SRS_PAYLOAD: Final = b"SRS"
MAX_PROPERTIES: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:(Z)|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))?"
)
_T1: Final = re.compile(r"[ -~]{0,40}")


@dataclass(frozen=True, slots=True)
class DraftTopics:
    """The four topics; `location` is a topic prefix of 1 to 64 octets, which may have levels."""

    location: str = "location"

    def __post_init__(self) -> None:
        fault = topic_fault(self.location, 64)
        if fault:
            raise ValueError(
                f"The location {shown(self.location)} {fault}; it is part of topics. "
                "Choose another one, the same for all nodes."
            )

    @property
    def syn(self) -> str:
        """From the server: the time."""
        return f"{self.location}/TIME/SYN"

    @property
    def srq(self) -> str:
        """From a client: a request."""
        return f"{self.location}/TIME/SRQ"

    @property
    def srs(self) -> str:
        """From the server: a reply. All clients get all replies; compare T1."""
        return f"{self.location}/TIME/SRS"


@dataclass(frozen=True, slots=True)
class DraftTime:
    """A SYN message."""

    transmit_ns: int


@dataclass(frozen=True, slots=True)
class DraftReply:
    """An SRS message."""

    t1: str
    """The request's T1, as it was written."""
    t2_ns: int
    t3_ns: int


def format_local(instant_ns: int, utc_offset_s: int = 0) -> str:
    """Return an instant (ns, UTC) as naive local time, cut to microseconds.

    `utc_offset_s`: local time minus UTC.
    """
    since = timedelta(microseconds=check_instant(instant_ns) // 1000)
    local = _EPOCH + since + timedelta(seconds=_offset(utc_offset_s))
    return local.replace(tzinfo=None).isoformat()


def parse_local(text: str, utc_offset_s: int = 0) -> int:
    """Return the instant of a local time in ns, UTC.

    `utc_offset_s` (local time minus UTC) holds unless the text states an offset (`Z`, `+09:00`).
    """
    offset = timedelta(seconds=_offset(utc_offset_s))
    match = _LOCAL.fullmatch(text)
    if match is None:
        raise DecodeError("format", f"{shown(text)} is not a date and time; ignored.")
    stated, fraction, zulu, sign, hours, minutes = match.groups()
    if sign:
        offset = timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    try:
        local = datetime.fromisoformat(stated).replace(tzinfo=UTC)
    except ValueError:
        raise DecodeError("format", f"There is no date and time {shown(text)}; ignored.") from None
    seconds = (local - _EPOCH - (timedelta() if zulu else offset)) // timedelta(seconds=1)
    instant_ns = seconds * NS_PER_S + int((fraction or "").ljust(9, "0"))
    if not 0 <= instant_ns < END_NS:
        raise DecodeError("range", f"{shown(text)} is before 1970 or after 2262; ignored.")
    return instant_ns


def encode_syn(transmit_ns: int, utc_offset_s: int = 0) -> list[tuple[str, str]]:
    """Return the properties of a SYN message; its payload is `SYN_PAYLOAD`."""
    return [("timestamp", format_local(transmit_ns, utc_offset_s))]


def decode_syn(properties: UserProperties, utc_offset_s: int = 0) -> DraftTime:
    """Read the properties of a SYN message."""
    found = _collect(properties, "timestamp")
    return DraftTime(parse_local(_wanted(found, "timestamp"), utc_offset_s))


def encode_srq(t1: str) -> list[tuple[str, str]]:
    """Return the properties of a request; write `t1` with `format_local` and keep it."""
    return [("T1", t1)]


def decode_srq(properties: UserProperties) -> str:
    """Return the T1 of a request, which the server echoes and never reads; empty if missing."""
    return _t1(_collect(properties, "T1").get("T1", ""))


def encode_srs(reply: DraftReply, utc_offset_s: int = 0) -> list[tuple[str, str]]:
    """Return the properties of a reply; its payload is `SRS_PAYLOAD`."""
    return [
        ("T1", reply.t1),
        ("t2", format_local(reply.t2_ns, utc_offset_s)),
        ("t3", format_local(reply.t3_ns, utc_offset_s)),
    ]


def decode_srs(properties: UserProperties, utc_offset_s: int = 0) -> DraftReply:
    """Read the properties of a reply; replies to others come too, so compare `t1`."""
    found = _collect(properties, "T1", "t2", "t3")
    t2_ns = parse_local(_wanted(found, "t2"), utc_offset_s)
    t3_ns = parse_local(_wanted(found, "t3"), utc_offset_s)
    if t3_ns < t2_ns:
        raise DecodeError("order", f"t3 is {t2_ns - t3_ns} ns before t2; ignored.")
    return DraftReply(_t1(_wanted(found, "T1")), t2_ns, t3_ns)


def _collect(properties: UserProperties, *names: str) -> dict[str, str]:
    """Return the properties of these names; each may occur once, others are skipped."""
    if len(properties) > MAX_PROPERTIES:
        raise DecodeError("properties", f"{len(properties)} properties are too many; ignored.")
    found: dict[str, str] = {}
    for name, value in properties:
        if name in found:
            raise DecodeError(
                "properties",
                f"The property {name} occurs twice, so one of them is not the sender's; ignored. "
                "Does a broker's plug-in add timestamps?",
            )
        if name in names:
            found[name] = value
    return found


def _t1(text: str) -> str:
    if not _T1.fullmatch(text):
        raise DecodeError(
            "t1", f"The T1 {shown(text)} is not up to 40 printable ASCII characters; ignored."
        )
    return text


def _wanted(found: dict[str, str], name: str) -> str:
    if name not in found:
        raise DecodeError("properties", f"The property {name} is missing; ignored.")
    return found[name]


def _offset(utc_offset_s: int) -> int:
    if not -86_400 < utc_offset_s < 86_400:
        raise ValueError(
            f"The offset from UTC is {utc_offset_s} s; it is less than a day. Set it in seconds."
        )
    return utc_offset_s
