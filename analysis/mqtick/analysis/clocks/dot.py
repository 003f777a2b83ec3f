"""Scalar products in one thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["product"]

Floats = npt.NDArray[np.float64]


def product(a: Floats, b: Floats) -> float:
    """Return the scalar product of two arrays of the same length.

    Not `a @ b`: for long arrays that is spread over threads, which took 16 ms instead of 0.04 for
    100,000 values when the processors had other work.
    """
    return float(np.einsum("i,i->", a, b))
