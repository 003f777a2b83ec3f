"""Timed datagrams as `mqtick-broker-model batch` reads and writes them: a line each.

A line is CYCLE ADDRESS:PORT OCTETS: the clock cycle, of `CYCLE_FS`, in which the first word of the
payload passes the broker's boundary; its sender or receiver; the payload in hexadecimal.
Lines that begin with # are comments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mqtick.mqtt.packets import encode_publish, subscribe_packet

CYCLE_FS: Final = 6_400_000
"""A clock cycle at 156.25 MHz, fs."""
OVERHEAD_OCTETS: Final = 66
"""Octets of a datagram on the wire besides its payload: preamble, headers, check sequence, gap."""
_LEAST_PAYLOAD: Final = 18
"""Shorter ones are padded to Ethernet's minimum frame."""
_MOST_OCTETS: Final = 1472


class DatagramError(ValueError):
    """A file of datagrams is damaged; the text says which line and why."""


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram and when it passed the boundary, in cycles since the broker was ready."""

    cycle: int
    peer: str
    """ADDRESS:PORT of the peer: the sender, or for datagrams from the broker the receiver."""
    octets: bytes


def frame_octets(payload: int) -> int:
    """Return how many octets a datagram with this payload takes on the wire."""
    return OVERHEAD_OCTETS + max(payload, _LEAST_PAYLOAD)


def as_line(datagram: Datagram) -> str:
    """Return a datagram as its line of the file."""
    return f"{datagram.cycle} {datagram.peer} {datagram.octets.hex()}\n"


def read_lines(lines: Iterable[str], name: str = "datagrams") -> Iterator[Datagram]:
    """Yield the datagrams of a file; DatagramError."""
    for number, line in enumerate(lines, start=1):
        if line.startswith("#") or not line.strip():
            continue
        try:
            cycle, peer, octets = line.split()
            one = Datagram(int(cycle), peer, bytes.fromhex(octets))
        except ValueError:
            raise DatagramError(
                f"Line {number} of {name} is not CYCLE ADDRESS:PORT OCTETS."
            ) from None
        if one.cycle < 0 or not 0 < len(one.octets) <= _MOST_OCTETS:
            raise DatagramError(f"Line {number} of {name} has a number that cannot be.")
        yield one


def publish(topic: str, payload: bytes) -> bytes:
    """Return a PUBLISH of QoS 0."""
    return encode_publish(topic.encode(), payload, None)


def subscribe(identifier: int, *filters: str) -> bytes:
    """Return a SUBSCRIBE; the identifier is 1 to 65,535."""
    return subscribe_packet(filters, identifier)
