"""The WAVEDESC that :WAVeform:PREamble? answers: 346 octets, little endian.

Source: SDS series programming guide EN11D and EN11F, :WAVeform:PREamble, table 1. The offsets are
LeCroy's; the rest is different, and partly not initialised.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

from mqtick.lab.scope.conversation import InstrumentError

OCTETS: Final = 346
"""In sequence mode, 16 octets for each segment follow."""
_LEAST_DIVISIONS, _MOST_DIVISIONS = 6.0, 30.0


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The parts of the descriptor that are used.

    Attributes:
        words: whether :WAVeform:WIDTh is WORD.
        high_first: order of octets in a word.
        points: of one segment, regardless of :WAVeform:INTerval.
        stride: :WAVeform:INTerval; 0 if the firmware leaves it out.
        volts_per_division, offset_v: at the input, before the probe's factor.
        codes_per_division: see `volts_per_code`.
        bits: 8, or more in words (10, 12, 16).
        interval_s: a 32-bit float, so within 6e-8 only.
        probe: attenuation.
    """

    words: bool
    high_first: bool
    points: int
    stride: int
    volts_per_division: float
    offset_v: float
    codes_per_division: float
    bits: int
    interval_s: float
    probe: float

    @classmethod
    def parse(cls, data: bytes) -> Descriptor:
        """Parse a descriptor; InstrumentError if it is invalid, or if there is no waveform."""
        if len(data) < OCTETS or not (data.startswith(b"WAVEDESC") or not any(data[:OCTETS])):
            raise InstrumentError(
                f"The instrument sent {len(data)} octets that begin with {data[:8]!r} where a "
                f"waveform descriptor of {OCTETS} should be; the capture is refused."
            )

        def at(kind: str, offset: int) -> float:
            value: float = struct.unpack_from("<" + kind, data, offset)[0]
            return value

        found = cls(
            words=bool(at("h", 0x20)),
            high_first=bool(at("h", 0x22)),
            points=int(at("i", 0x74)),
            stride=int(at("i", 0x88)),
            volts_per_division=at("f", 0x9C),
            offset_v=at("f", 0xA0),
            codes_per_division=at("f", 0xA4),
            bits=int(at("h", 0xAC)),
            interval_s=at("f", 0xB0),
            probe=at("f", 0x148),
        )
        if found.points == 0 and found.codes_per_division == 0:
            raise InstrumentError(
                "The instrument has no waveform to read (its descriptor is all zero); the capture "
                "is refused. Is the channel on, and has there been a trigger?"
            )
        found._check()
        return found

    def _check(self) -> None:
        scales = (self.volts_per_division, self.codes_per_division, self.probe, self.interval_s)
        if not (
            self.points > 0
            and all(math.isfinite(scale) and scale > 0 for scale in scales)
            and math.isfinite(self.offset_v)
        ):
            raise InstrumentError(
                f"The waveform descriptor is not valid ({self.points} points, {scales}, offset "
                f"{self.offset_v}); the capture is refused."
            )

    @property
    def volts_per_code(self) -> float:
        """Volts at the probe's tip between two codes as they are transferred.

        Codes are aligned to the left, but the unit of `codes_per_division` depends on the firmware:
        octets (2000X Plus: 30), the converter's bits (6000A: 170 at 12 bits), or words (800X HD:
        7680, at any width). Only one of them gives the number of divisions of a screen.
        """
        for bits in (8, self.bits, 16):
            divisions = (1 << bits) / self.codes_per_division if 8 <= bits <= 16 else 0.0
            if _LEAST_DIVISIONS <= divisions <= _MOST_DIVISIONS:
                range_v = self.volts_per_division * self.probe * divisions
                return range_v / (65536 if self.words else 256)
        raise InstrumentError(
            f"The descriptor says {self.codes_per_division:g} codes per division and {self.bits} "
            "bits, which fits neither octets nor words; the capture is refused. Please report "
            "model and firmware."
        )
