"""From volts in floats, as text files have them, back to the codes of the converter."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.waveform import Waveform

__all__ = ["waveform_of_volts"]

_MOST_CODES: Final = 65_000
_EXACT: Final = 0.02
"""How far a value may lie from a multiple of the step, as a share of the step."""


def waveform_of_volts(
    volts: npt.ArrayLike, interval_fs: int, start_fs: int, step_v: float | None = None
) -> Waveform:
    """Return a waveform of volts; ValueError where a value is not finite, or there is none.

    The least distance of two values is taken for the converter's step where every value is a
    multiple of it (`step_v` tells it where the file does); else the range is divided into 65,000
    codes, finer than any converter of these instruments.
    """
    values = np.asarray(volts, np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError("there are no samples")
    if not np.isfinite(values).all():
        raise ValueError(f"sample {int(np.flatnonzero(~np.isfinite(values))[0])} is no number")
    used = np.unique(values)
    lowest, span = float(used[0]), float(used[-1] - used[0])
    if step_v is None:
        # Volts are rounded in the file, so that equal distances come out a little unequal.
        steps = np.diff(used)
        steps = steps[steps > span * 1e-5]
        step_v = float(steps.min()) if steps.size else 0.0
        if step_v:
            multiples = (used - lowest) / step_v
            nearest = np.rint(multiples)
            # a better step out of the largest multiple, before the others are held against it
            step_v = span / float(nearest[-1])
            away = np.abs((used - lowest) / step_v - np.rint((used - lowest) / step_v))
            if float(away.max()) > _EXACT + 1e-9 * nearest[-1]:
                step_v = 0.0
    if not step_v or span / step_v > _MOST_CODES:
        step_v = span / _MOST_CODES if span else 1.0
    codes = np.rint((values - lowest) / step_v).astype(np.uint16)
    return Waveform(codes, step_v, -lowest / step_v, interval_fs, start_fs)
