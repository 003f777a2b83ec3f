"""Straight lines through a time error, in one thread."""

from __future__ import annotations

import numpy as np

from mqtick.recording.units import Floats

__all__ = ["product", "slope", "without_line"]


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
