"""How values taken one after another are correlated, and what they are worth."""

from __future__ import annotations

from typing import Final

import numpy as np

from mqtick.analysis.statistics.ranks import ranks
from mqtick.recording.units import Floats

_WINDOW: Final = 5.0
"""The sum stops at the first lag that is this many times the time summed up to it."""
_LEAST: Final = 8
_NEIGHBOURS: Final = 1.64
"""Of its own standard error: a correlation of neighbours above it counts; noise passes once in
twenty, which only widens intervals."""
_LONG: Final = 2.0
"""Of its own standard error: a sum above it counts, where neighbours alone show nothing."""
_STRONGEST: Final = 0.95
_SHORT: Final = 1000
_MOST: Final = 1 << 16
"""Of more values, means of neighbours are looked at: the variance of means has the short part of
the time in it, and their own time is the long part."""


def autocorrelation_time(values: Floats) -> float:
    """Return the integrated autocorrelation time, 1 + 2 (rho_1 + rho_2 + ...), at least 1.

    n values are worth n divided by it. The sum is cut by Sokal's rule (Madras and Sokal, Journal
    of Statistical Physics 50, 1988, appendix C). Short records make it too small: below 1,000
    values that of a first-order process with the same correlation of neighbours (bias removed
    after Kendall, Biometrika 41, 1954) is used instead, if it is larger. 1 where nothing is above
    noise. It is the time of the values or of their ranks, whichever is larger: a single far value
    hides the dependence of all others.
    """
    return max(_time(values), _time(ranks(values))) if values.size >= _LEAST else 1.0


def effective_number(n: int, time: float) -> float:
    """Return how many independent values n of them are worth: 1 to n."""
    return max(min(1.0, n), n / time)


def _time(values: Floats) -> float:
    n = values.size
    if n > _MOST:
        length = -(-n // _MOST)
        means = values[: n // length * length].reshape(-1, length).mean(axis=1)
        variance = float(values.var())
        inside = length * float(means.var()) / variance if variance > 0 else 1.0
        return max(1.0, inside * _time(means))
    centred = values - values.mean()
    largest = float(np.abs(centred).max())
    if largest == 0:
        return 1.0
    centred /= largest
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size)) ** 2
    covariance = np.fft.irfft(spectrum, size)[: n // 2]
    correlation = covariance[1:] / covariance[0]
    sums = 1 + 2 * np.cumsum(correlation)
    lags = np.arange(1, sums.size + 1)
    enough = np.flatnonzero(lags >= _WINDOW * np.maximum(sums, 0.5))
    window = int(lags[enough[0]]) if enough.size else sums.size
    # Subtracting the mean makes each coefficient about time / n too small.
    summed = float(sums[window - 1]) * (1 + (2 * window + 1) / n)
    error = summed * np.sqrt(2 * (2 * window + 1) / n)
    neighbours = (n * float(correlation[0]) + 1) / (n - 3)
    if neighbours < _NEIGHBOURS / np.sqrt(n) and summed - 1 < _LONG * error:
        return 1.0
    if n >= _SHORT:
        return max(1.0, summed)
    neighbours = min(max(neighbours, 0.0), _STRONGEST)
    return max(summed, (1 + neighbours) / (1 - neighbours))
