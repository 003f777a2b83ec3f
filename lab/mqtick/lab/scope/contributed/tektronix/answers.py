"""Parses answers of a Tektronix: the preamble of a waveform, several values in one line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects.base import number
from mqtick.recording.waveform import Waveform, femtoseconds

_NUMBERS = ("NR_Pt", "XINcr", "PT_Off", "XZEro", "YMUlt", "YOFf", "YZEro", "BYT_Nr")
FIELDS = (*_NUMBERS, "BN_Fmt", "BYT_Or")


class Preamble:
    """The preamble of a waveform, queried field by field: the order depends on the firmware."""

    def __init__(self, values: Sequence[str]) -> None:
        points, interval, offset, zero, self.scale, self.code, self.volts, octets = (
            number(value, "the preamble") for value in values[: len(_NUMBERS)]
        )
        self.points = int(points)
        kind = {"RI": "i", "RP": "u"}.get(values[8].upper()[:2])
        if (
            kind is None
            or octets not in (1, 2)
            or not (self.points > 0 and self.scale > 0 and interval >= 1e-15)
        ):
            raise InstrumentError(
                f"The instrument announces {self.points} points of {octets:g} octets in the format "
                f"{values[8][:10]}, {interval:g} s apart, with {self.scale:g} V per code, which "
                "is not a valid waveform; the capture is refused. Has there been a trigger?"
            )
        order = "<" if values[9].upper().startswith("LSB") else ">"
        self.type = np.dtype(f"{order}{kind}{int(octets)}")
        self.interval_fs = femtoseconds(interval)
        self.before_fs = round(offset * self.interval_fs)
        self.zero_fs = femtoseconds(zero)

    def waveform(self, data: bytes, deskew_fs: int) -> Waveform:
        """Make the waveform: V = YZEro + YMUlt (raw - YOFf), t = XZEro + XINcr (i - PT_Off)."""
        if len(data) != self.points * self.type.itemsize:
            raise InstrumentError(
                f"The instrument announced {self.points} points of {self.type.itemsize} octets and "
                f"sent {len(data)} octets; the capture is refused."
            )
        codes = np.frombuffer(data, self.type)
        return Waveform(
            codes=codes.astype(self.type.newbyteorder("="), copy=False),
            volts_per_code=self.scale,
            code_at_zero=self.code - self.volts / self.scale,
            interval_fs=self.interval_fs,
            start_fs=self.zero_fs - self.before_fs - deskew_fs,
        )


def fields(reply: str) -> list[str]:
    """Split the answers to several queries; headers before the values are removed."""
    return [part.strip().rsplit(" ", 1)[-1] for part in reply.split(";")]
