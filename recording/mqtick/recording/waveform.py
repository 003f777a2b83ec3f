"""A waveform as an instrument recorded it: raw codes, their scale, an integer time base."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.recording.units import FS_PER_S, Floats

FS_PER_SECOND: Final = FS_PER_S

Codes = npt.NDArray[np.integer[Any]]

_MOST_FS: Final = 10**21
"""Eleven days: no record is that long, and floats cannot hold all that a damaged file may say."""


def femtoseconds(seconds: float) -> int:
    """Convert seconds to whole femtoseconds, rounded to the nearest."""
    return round(seconds * FS_PER_SECOND)


@dataclass(frozen=True, slots=True, eq=False)
class Waveform:
    """What one channel saw in one capture.

    Volts of a code: `(code - code_at_zero) * volts_per_code`. Instant of sample i, counted from
    the trigger: `start_fs + i * interval_fs` (later samples are later; before the trigger it is
    negative). There is no time axis in floats: a column of rounded seconds repeats itself in long
    records, and one made with its end point included is stretched.

    Attributes:
        codes: what the converter gave, int8, uint8, int16 or uint16, one dimension.
        volts_per_code: volts between two codes, above 0.
        code_at_zero: the code, not rounded, that stands for 0 V.
        interval_fs: time between two samples in fs, above 0, at most 10**21.
        start_fs: instant of the first sample in fs, relative to the trigger, at most 10**21 away.
    """

    codes: Codes
    volts_per_code: float
    code_at_zero: float
    interval_fs: int
    start_fs: int

    def __post_init__(self) -> None:
        if self.codes.ndim != 1 or self.codes.dtype.kind not in "iu":
            raise ValueError(
                f"A waveform is one row of integer codes, and this has {self.codes.ndim} "
                f"dimensions of {self.codes.dtype}."
            )
        if not (0 < self.volts_per_code < float("inf") and abs(self.code_at_zero) < float("inf")):
            raise ValueError(
                f"The scale is {self.volts_per_code!r} V per code around "
                f"{self.code_at_zero!r}, which is not a valid scale; the instrument's preamble was "
                "not what it should be."
            )
        if self.interval_fs <= 0:
            raise ValueError(
                f"The samples are {self.interval_fs} fs apart, which is not above 0; the "
                "instrument's preamble was not what it should be."
            )
        for what, fs in (("are apart", self.interval_fs), ("begin at", self.start_fs)):
            if abs(fs) > _MOST_FS:
                raise ValueError(
                    f"The samples {what} 10 to the {math.log10(abs(fs)):.0f} fs, and 10 to the 21 "
                    "(11 days) is the most; the instrument's preamble was not what it should be."
                )

    def volts(self) -> Floats:
        """Return the samples in volts."""
        scaled = (self.codes.astype(np.float64) - self.code_at_zero) * self.volts_per_code
        return np.asarray(scaled, dtype=np.float64)

    def instant_fs(self, index: float) -> int:
        """Return the instant of a place between samples (0 is the first one), in fs."""
        whole = int(index)
        return self.start_fs + whole * self.interval_fs + round((index - whole) * self.interval_fs)


def seen(waveform: Waveform) -> str:
    """Say how many samples a waveform has, and their range: "4,000 samples (0 to 3.3 V)"."""
    codes, scale = waveform.codes, waveform.volts_per_code
    low_v, high_v = (
        (int(each) - waveform.code_at_zero) * scale for each in (codes.min(), codes.max())
    )
    return f"{codes.size:,} samples ({low_v:.3g} to {high_v:.3g} V)"
