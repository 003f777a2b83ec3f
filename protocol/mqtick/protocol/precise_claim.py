"""The precise format's claim, by which servers given the same number find out whose it is."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from mqtick.protocol import precise_fields as wire

__all__ = ["Claim"]


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
