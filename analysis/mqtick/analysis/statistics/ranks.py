"""Tests of ranks, of values that may be dependent, and Holm's correction of many tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mqtick.recording.units import Floats


def ranks(values: Floats) -> Floats:
    """Return ranks from 1, equal values in the middle of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles: Floats = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return middles


def mann_whitney(reference: Floats, values: Floats, time: float = 1.0) -> tuple[float, bool]:
    """Return p (two-sided) that ranks differ as much by chance, and whether values are less.

    The variance is multiplied by an autocorrelation `time`: n correlated values are worth n
    divided by it (Mann and Whitney, Annals of Mathematical Statistics 18, 1947).
    """
    n, m = reference.size, values.size
    placed = ranks(np.concatenate((reference, values)))
    above = float(placed[n:].sum()) - m * (n + m + 1) / 2
    return _p(above, n * m / (n + m - 1) * float(placed.var()) * time), above < 0


def signed_ranks(differences: Floats, time: float = 1.0) -> tuple[float, bool]:
    """Return the same of paired differences (Wilcoxon, Biometrics Bulletin 1, 1945); not of 0."""
    differs = differences[differences != 0]
    placed = ranks(np.abs(differs))
    above = float(placed[differs > 0].sum() - placed.sum() / 2)
    return _p(above, float((placed**2).sum()) / 4 * time), above < 0


def _p(above: float, variance: float) -> float:
    """Of a normal distribution, half a rank taken off because ranks are steps."""
    z = max(abs(above) - 0.5, 0.0) / math.sqrt(variance) if variance > 0 else 0.0
    return math.erfc(z / math.sqrt(2))


def holm(found: Sequence[float]) -> list[float]:
    """Return each p, corrected for all of them (Holm, Scandinavian Journal of Statistics, 1979)."""
    corrected, least = [0.0] * len(found), 0.0
    for done, place in enumerate(sorted(range(len(found)), key=lambda each: found[each])):
        least = max(least, min(1.0, found[place] * (len(found) - done)))
        corrected[place] = least
    return corrected
