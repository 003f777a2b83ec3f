"""What has to be said next to a figure: missed shots, drift, what a negative skew means."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from mqtick.analysis.measurement import SKEW
from mqtick.analysis.report.numbers import Unit, interval_of, unit_of, value_of
from mqtick.analysis.results.result import QuantityResult, Row
from mqtick.analysis.statistics.estimate import Estimate

__all__ = ["Drifted", "drifted", "many_missed", "negative"]

_MANY: Final = 0.05
"""Share of a row's shots: if that many are missed, its figures may be different."""
_HOUR: Final = 3600.0


def many_missed(row: Row) -> int:
    """Return out of how many shots this row's missed ones are, 0 where they are few."""
    shots = row.missed + (row.signed.n if row.signed is not None else 0)
    return shots if row.missed > _MANY * shots else 0


def negative(quantity: QuantityResult) -> str:
    """Return how many skews are negative and what that means, "" if none is."""
    count = int(np.count_nonzero(quantity.values_us < 0))
    if quantity.quantity != SKEW or not count:
        return ""
    return (
        f"Last minus first, in the order of subscription; in {count:,} of "
        f"{quantity.values_us.size:,} shots it is negative: the last to subscribe was served first."
    )


class Drifted(NamedTuple):
    """A drift in words: what it makes over the run, or each hour of a run that is longer."""

    amount: Estimate
    unit: Unit
    over: str

    @property
    def value(self) -> str:
        """Return the value alone, in its unit."""
        return value_of(self.amount, self.unit.per_us)

    @property
    def interval(self) -> str:
        """Return the interval, "" if there is none."""
        return interval_of(self.amount, self.unit.per_us)


def drifted(quantity: QuantityResult) -> Drifted | None:
    """Return the drift so that it can be judged, None where it is not known.

    For a run of a few seconds, a rate per hour would say what nobody has seen.
    """
    if quantity.drift is None:
        return None
    rate, over = quantity.drift.us_per_hour, "an hour"
    seconds = quantity.seconds[np.isfinite(quantity.seconds)]
    hours = float(np.ptp(seconds)) / _HOUR
    if hours <= 1:
        low, high = (None if end is None else end * hours for end in (rate.low, rate.high))
        rate, over = Estimate(rate.value * hours, low, high), "the run"
    ends = [end for end in (rate.value, rate.low, rate.high) if end is not None]
    return Drifted(rate, unit_of(ends), over)
