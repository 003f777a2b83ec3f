"""How long each copy was in the broker, as the broker states: broker/spec/residence.md.

A copy is a message as the broker delivers it to one subscriber. Its trailer is not covered by the
tag, so a dishonest broker can state anything.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from mqtick.protocol.precise_fields import TRAILER_OCTETS, UNKNOWN_CORRECTION, version_of

_TRAILER: Final = struct.Struct(">QiI")
_SHORTEST, _LONGEST = 17, 64
_LAST_COPY: Final = (1 << 24) - 1
_SOURCES: Final = range(1, 4)


@dataclass(slots=True)
class Residence:
    """The content of one copy's trailer.

    Attributes:
        stated: From arrival at the broker to departure, 2^-16 ns, as stated before the departure.
        source: Who made the stamps: 1 a program, 2 the kernel, 3 hardware.
        correction_ns: Real minus stated; the next copy states it; None: not known.
    """

    stated: int
    source: int
    correction_ns: int | None = None

    @property
    def ns(self) -> int:
        """The best known residence, ns, rounded down; never negative, whatever the correction."""
        return max((self.stated >> 16) + (self.correction_ns or 0), 0)


class Copies:
    """The copies that come by one connection, in order: each one corrects the one before."""

    def __init__(self) -> None:
        self.current: Residence | None = None
        """Residence of the message noted last; None: it states none, or has no stamps."""
        self._last: tuple[int, Residence] | None = None

    def note(self, payload: bytes) -> None:
        """Take the next message, of any kind, and even if it is refused later."""
        self.current = None
        if not (_SHORTEST <= len(payload) <= _LONGEST and version_of(payload) == 2):
            return  # brokers do not count such messages as copies
        stated, correction_ns, tail = _TRAILER.unpack_from(payload, len(payload) - TRAILER_OCTETS)
        copy, source = tail >> 8, tail & 0xFF
        if self._last is not None and correction_ns != UNKNOWN_CORRECTION:
            before, corrected = self._last
            if copy == before % _LAST_COPY + 1:  # no copy between them was lost
                corrected.correction_ns = correction_ns
        residence = Residence(stated, source)
        self._last = (copy, residence) if copy else None
        if source in _SOURCES:
            self.current = residence

    def forget(self) -> None:
        """Forget the last copy: there is a new connection, whose copies do not correct it."""
        self._last = self.current = None
