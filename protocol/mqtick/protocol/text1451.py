"""Time synchronisation of IEEE 1451.1.6 as text (clause 9), for any other IEEE 1451 node.

BR-Sync: the server publishes its time; RR-Sync: a client asks, the server answers with T2 and T3.
The text of the standard was not at hand: this is what the open implementation that cites it sends
and accepts (github westlab/1451DEMO2026, commit c7738db, NCAP.py and APP.py). Instants travel as
decimal seconds since 1970-01-01 UTC and are read with integers, never through a float. Encoders
raise `ValueError`, decoders `DecodeError` only.
"""

import re
from dataclasses import dataclass
from typing import Final

from mqtick.protocol.errors import DecodeError, shown
from mqtick.protocol.time_types import END_NS, NS_PER_S, check_instant
from mqtick.protocol.topics import topic_fault

SYN_TOPIC: Final = "_1451.1.6/BRSU/SYN"
REQUEST_TOPIC: Final = "_1451.1.6/RRS/REQ"
DEFAULT_CLIENT: Final = "client"
"""The client that is answered if a request names none."""
MAX_LNS_OCTETS: Final = 64
_MAX_PAYLOAD: Final = 256
_SPACE: Final = " \t\r\n"
_SECONDS: Final = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,18}))?")
_T1: Final = re.compile(r"(?:[ -+\--~]{0,31}[!-+\--~])?")  # ASCII, no comma, no space last


@dataclass(frozen=True, slots=True)
class TextRequest:
    """An RR-Sync request."""

    client: str
    """The client's logical name (LNS), as `location/name`."""
    t1: str
    """What the client wrote as its transmit time; the server echoes it and never reads it."""


@dataclass(frozen=True, slots=True)
class TextReply:
    """An RR-Sync reply. Nothing but `t1` says which request it answers."""

    t1: str
    """The request's t1, as it was written."""
    t2_ns: int
    """When the request arrived at the server."""
    t3_ns: int
    """When the server sent this."""
    server: str
    """The server's logical name."""


def format_seconds(instant_ns: int) -> str:
    """Return an instant (ns since 1970) as decimal seconds with nine digits."""
    seconds, nanoseconds = divmod(check_instant(instant_ns), NS_PER_S)
    return f"{seconds}.{nanoseconds:09d}"


def parse_seconds(text: str) -> int:
    """Return the instant that decimal seconds state, in ns.

    Up to 18 digits may follow the point, because another node may print more than it knows; those
    past the ninth are dropped, which is less than 1 ns. Signs, spaces, exponents, digits other than
    0 to 9 and instants after 2262 are refused.
    """
    match = _SECONDS.fullmatch(text)
    if match is None:
        raise DecodeError("format", f"{shown(text)} is not a decimal number of seconds; ignored.")
    instant_ns = int(match[1]) * NS_PER_S + int((match[2] or "").ljust(9, "0")[:9])
    if instant_ns >= END_NS:
        raise DecodeError("range", f"{shown(text)} is past the year 2262; ignored.")
    return instant_ns


def check_lns(lns: str) -> str:
    """Return a logical name if it may stand in a topic and between commas."""
    fault = _lns_fault(lns)
    if fault:
        raise ValueError(
            f"The logical name {shown(lns)} {fault}; the reply topic cannot hold it. "
            "Choose another name."
        )
    return lns


def reply_topic(lns: str) -> str:
    """Return the topic on which the client `lns` is answered."""
    return f"_1451.1.6/RRS/{check_lns(lns)}/RES"


def encode_time(transmit_ns: int) -> bytes:
    """Return the BR-Sync payload."""
    return format_seconds(transmit_ns).encode()


def decode_time(payload: bytes) -> int:
    """Return the transmit time that a BR-Sync payload states, in ns."""
    return parse_seconds(_text(payload))


def encode_request(request: TextRequest) -> bytes:
    """Return an RR-Sync request; an empty `t1` is left out."""
    check_lns(request.client)
    return (f"{request.client},{request.t1}" if request.t1 else request.client).encode()


def decode_request(payload: bytes) -> TextRequest:
    """Read an RR-Sync request.

    As in the open implementation, white space around the whole is dropped, a missing name reads
    `client`, a missing t1 is empty, further columns are ignored. But a name that cannot stand in a
    topic is refused there it is published.
    """
    columns = _text(payload).strip(_SPACE).split(",")
    client = columns[0] or DEFAULT_CLIENT
    t1 = columns[1] if len(columns) > 1 else ""
    fault = _lns_fault(client)
    if fault:
        raise DecodeError(
            "name", f"The logical name {shown(client)} {fault}; the request is ignored."
        )
    if not _T1.fullmatch(t1):
        raise DecodeError(
            "t1", f"The t1 {shown(t1)} is not up to 32 printable ASCII characters; ignored."
        )
    return TextRequest(client, t1)


def encode_reply(reply: TextReply) -> bytes:
    """Return an RR-Sync reply: t1 as it came, t2 and t3 with nine digits, the server's name."""
    check_lns(reply.server)
    t2, t3 = format_seconds(reply.t2_ns), format_seconds(reply.t3_ns)
    return f"{reply.t1},{t2},{t3},{reply.server}".encode()


def decode_reply(payload: bytes) -> TextReply:
    """Read an RR-Sync reply; the caller compares `t1` with what it sent."""
    columns = _text(payload).rstrip(_SPACE).split(",")
    if len(columns) != 4:
        raise DecodeError("format", f"A reply has 4 columns, not {len(columns)}; ignored.")
    t1, t2, t3, server = columns
    t2_ns, t3_ns = parse_seconds(t2), parse_seconds(t3)
    if not _T1.fullmatch(t1) or len(server.encode()) > MAX_LNS_OCTETS:
        raise DecodeError("format", f"The columns of {shown(payload)} are too long; ignored.")
    if t3_ns < t2_ns:
        raise DecodeError("order", f"t3 is {t2_ns - t3_ns} ns before t2; ignored.")
    return TextReply(t1, t2_ns, t3_ns, server)


def _lns_fault(lns: str) -> str | None:
    if "," in lns or lns != lns.strip():
        return "holds a comma or begins or ends with a space"
    return topic_fault(lns, MAX_LNS_OCTETS)


def _text(payload: bytes) -> str:
    if len(payload) > _MAX_PAYLOAD:
        raise DecodeError("length", f"{len(payload)} octets are more than {_MAX_PAYLOAD}; ignored.")
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise DecodeError("encoding", f"{shown(payload)} is not UTF-8; ignored.") from None
