"""When a clock had found its time."""

from __future__ import annotations

from typing import Final

import numpy as np

from mqtick.analysis.clocks.line import without_line
from mqtick.recording.units import Floats

__all__ = ["converged_from"]

FEWEST: Final = 20
"""Fewer samples do not show when a clock converged."""
SPREADS: Final = 3.0
"""The band extends this many spreads to either side."""
_WINDOW: Final = 5
_STAY: Final = 0.1
"""Share of the samples for which it has to stay in the band."""
_MAY_LEAVE: Final = 0.05


def converged_from(error_ns: Floats) -> int | None:
    """Return the index of the first sample of a converged clock, None if there is none.

    The second half of the samples says where the clock belongs: their median, and a band of three
    spreads to either side (half the distance of the 15.9 % and 84.1 % quantiles around their
    straight line: outliers do not widen it, nor does a drift). The clock has converged with the
    first sample from which on the median of five neighbours is in that band for 95 % of the next
    tenth of all samples: one outlier does not count, and what happens long after, a holdover say,
    is an error of a converged clock. None where that is not before the second half begins, as with
    a clock that drifts away, or with fewer than 20 samples.
    """
    n = error_ns.size
    if n < FEWEST:
        return None
    settled = error_ns[n // 2 :]
    middle = float(np.median(settled))
    band = SPREADS * _spread_around_line(settled)
    padded = np.pad(error_ns, _WINDOW // 2, mode="edge")
    medians = np.median(np.lib.stride_tricks.sliding_window_view(padded, _WINDOW), axis=1)
    beyond = np.concatenate(([0], np.cumsum(np.abs(medians - middle) > band)))
    stay = max(_WINDOW, round(_STAY * n))
    stays = np.flatnonzero(beyond[stay:] - beyond[:-stay] <= _MAY_LEAVE * stay)
    first = int(stays[0]) if stays.size else n
    # The median smooths the edge of the band: the sample itself has to be in it too.
    while first < n and abs(error_ns[first] - middle) > band:
        first += 1
    return first if first < n // 2 else None


def _spread_around_line(values: Floats) -> float:
    if 2 * np.count_nonzero(values == np.median(values)) > values.size:
        return float(np.std(values))  # values that are mostly equal have no such quantiles
    low, high = np.quantile(without_line(values), (0.1587, 0.8413))
    return float(high - low) / 2
