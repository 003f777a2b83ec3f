"""How long each copy was in the broker, as the broker itself says: broker/spec/residence.md.

A trailer is outside the tag: whoever runs the broker writes into it what he likes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from mqtick.protocol.precise_fields import TRAILER_OCTETS, UNKNOWN_CORRECTION, version_of

__all__ = ["Copies", "Residence"]

_TRAILER: Final = struct.Struct(">QiI")
_SHORTEST, _LONGEST = 17, 64
_LAST_COPY: Final = (1 << 24) - 1
_SOURCES: Final = range(1, 4)


@dataclass(slots=True)
class Residence:
    """What the trailer of one copy says.

    Attributes:
        stated: From its arrival at the broker to its departure, 2^-16 ns, as stated before it left.
        source: Who made the stamps: 1 a program, 2 the kernel, 3 hardware.
        correction_ns: Real minus stated, once the next copy has said it; None: not known.
    """

    stated: int
    source: int
    correction_ns: int | None = None

    @property
    def ns(self) -> int:
        """The best that is known, ns, rounded down; a correction below nothing is a lie."""
        return max((self.stated >> 16) + (self.correction_ns or 0), 0)


class Copies:
    """The copies that come by one connection, in their order: each one corrects the one before."""

    def __init__(self) -> None:
        self.current: Residence | None = None
        """That of the message that was noted last; None: it has none, or nobody made its stamps."""
        self._last: tuple[int, Residence] | None = None

    def note(self, payload: bytes) -> None:
        """Take the next message that came, whatever it is and whatever becomes of it."""
        self.current = None
        if not (_SHORTEST <= len(payload) <= _LONGEST and version_of(payload) == 2):
            return  # no broker counts it
        stated, correction_ns, tail = _TRAILER.unpack_from(payload, len(payload) - TRAILER_OCTETS)
        copy, source = tail >> 8, tail & 0xFF
        if self._last is not None and correction_ns != UNKNOWN_CORRECTION:
            before, corrected = self._last
            if copy == before % _LAST_COPY + 1:  # none between them was lost
                corrected.correction_ns = correction_ns
        residence = Residence(stated, source)
        self._last = (copy, residence) if copy else None
        if source in _SOURCES:
            self.current = residence

    def forget(self) -> None:
        """Another connection: what comes corrects nothing that came before."""
        self._last = self.current = None
