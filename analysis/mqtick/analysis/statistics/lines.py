"""Straight lines through values: least squares, and Huber's M-estimator where some are far off."""

from __future__ import annotations

from typing import Final

import numpy as np

from mqtick.recording.units import Floats

TUNING: Final = 1.345
"""Residuals beyond this many scales weigh less; 95 % efficient for normal values (Huber, 1964)."""
_CONSISTENT: Final = 1.4826
"""Of the median absolute residual: makes it the standard deviation of normal values."""
_ROUNDS: Final = 60
_DONE: Final = 1e-7
_NOTHING: Final = 1e-12
"""Residuals of less than this share of the values' range are rounding, not noise."""


def product(a: Floats, b: Floats) -> float:
    """Return the scalar product of two arrays of the same length.

    Not `a @ b`: for long arrays that is spread over threads, which took 16 ms instead of 0.04 for
    100,000 values when the processors had other work.
    """
    return float(np.einsum("i,i->", a, b))


def slope(t: Floats, values: Floats) -> float:
    """Return the slope of values over t by least squares, 0 where all t are the same."""
    t = t - t.mean()
    power = product(t, t)
    return product(t, values - values.mean()) / power if power > 0 else 0.0


def without_line(values: Floats) -> Floats:
    """Return even values less the straight line through them: without offset and frequency."""
    t = np.linspace(-1, 1, values.size)
    left: Floats = values - values.mean() - t * slope(t, values)
    return left


def scale_of(residuals: Floats, reach: Floats | float) -> Floats:
    """Return the normalised median absolute residual of each row, 0 where it is only rounding."""
    scale = _CONSISTENT * np.median(np.abs(residuals), axis=-1)
    return np.asarray(np.where(scale <= _NOTHING * reach, 0.0, scale))


def huber_line(x: Floats, y: Floats, a: Floats, b: Floats, scale: Floats) -> tuple[Floats, Floats]:
    """Return intercepts and slopes of each row of y over x by iteratively reweighted least squares.

    `a` and `b` are a resistant start of each row and `scale` its fixed scale; with a scale of 0
    (more than half of the points on one line) that line stays as it is. With a fixed scale there
    is one minimum, so the start does not decide the end.
    """
    a, b = a.copy(), b.copy()
    going = np.flatnonzero(scale > 0)
    middle = float(x.mean())
    centred = x - middle
    reach = float(np.abs(centred).max())
    for _ in range(_ROUNDS):
        if not going.size:
            break
        rows = y[going]
        size = np.abs(rows - a[going, None] - b[going, None] * x)
        limit = TUNING * scale[going, None]
        weight = limit / np.maximum(size, limit)
        total = weight.sum(axis=1)
        mean_x = weight @ centred / total
        mean_y = (weight * rows).sum(axis=1) / total
        distance = centred - mean_x[:, None]
        below = (weight * distance**2).sum(axis=1)
        slope = (weight * distance * (rows - mean_y[:, None])).sum(axis=1) / below
        start = mean_y - slope * (mean_x + middle)
        moved = np.abs(slope - b[going]) * reach
        moved += np.abs(start + slope * middle - a[going] - b[going] * middle)
        a[going], b[going] = start, slope
        going = going[moved > _DONE * scale[going]]
    return a, b
