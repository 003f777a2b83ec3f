"""The result: what a measurement says in numbers; everything that a report shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.measurement import Measurement
from mqtick.analysis.statistics.drift import Drift
from mqtick.analysis.statistics.estimate import Distribution, Estimate
from mqtick.analysis.statistics.growth import Line
from mqtick.analysis.statistics.limit import Verdict
from mqtick.recording.published import Published
from mqtick.recording.units import Floats

NOT_SHOWN: Final = "not shown"
RANKS: Final = "Mann-Whitney"
SIGNED_RANKS: Final = "Wilcoxon"


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the shots, and what their edges were like.

    Attributes:
        shots: all of them: captured, missed and refused.
        captured: with every edge that its kind needs.
        missed: tried, and an edge was not in the record.
        refused: not tried, because the bench was not ready.
        doubled_edges: nodes' edges that were not the only ones in their window.
        clipped_edges: nodes' edges in a record at the converter's limits.
        missing_edges: nodes without an edge in shots that were tried and have an edge of another.
        reasons: how many shots were missed or refused for which reason, the most frequent first.
    """

    shots: int = 0
    captured: int = 0
    missed: int = 0
    refused: int = 0
    doubled_edges: int = 0
    clipped_edges: int = 0
    missing_edges: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowOfN:
    """One quantity at one N; None where nothing was captured.

    `subscribers` is None where no shot's N is known.

    `missed` counts every shot without a value, those that were refused too: they were not tried,
    and no verdict counts them. `signed` is of the values as they are, `absolute` of their absolute
    values.
    """

    subscribers: int | None
    missed: int
    signed: Distribution | None
    absolute: Distribution | None
    published: Published | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QuantityResult:
    """Everything about one quantity: latency, skew, or one clock.

    Attributes:
        quantity: "latency", "skew" or "clock".
        node: of a clock: which; else "".
        rows: one for each N, ascending; shots of different N are never one distribution.
        growth: the line over N, None with fewer than two N.
        drift: None where instants are not known or too few.
        uncertainty_us: how far a single value may be off, either way: two edges' median
            uncertainty, deskew, and the time base's error over the largest value; of a sample log
            the median of the stated ones, infinite where most samples state none.
        values_us: every captured value, in the order of the shots.
        subscribers: N of each.
        seconds: when each was taken, in s since the first; NaN where it is not known.
        numbers: shot number of each.
    """

    quantity: str
    node: str
    rows: tuple[RowOfN, ...]
    growth: Line | None
    drift: Drift | None
    uncertainty_us: float
    values_us: Floats
    subscribers: npt.NDArray[np.int64]
    seconds: Floats
    numbers: npt.NDArray[np.int64]

    @property
    def title(self) -> str:
        """Return "Skew", "Latency" or "Time error of NODE"."""
        return f"Time error of {self.node}" if self.node else self.quantity.capitalize()


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Skew of every pair of nodes that share shots.

    `median_us[i, j]` is the median of node j's edge minus node i's, in us; `n` of how many shots.
    """

    nodes: tuple[str, ...]
    median_us: Floats
    n: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One statistic of a quantity, of this measurement and of the one that it is held against.

    Attributes:
        quantity: "latency" or "skew", of absolute values as everywhere.
        subscribers: N, 0 where it is not known; None for growth.
        statistic: "mean", "median", "p95", or "growth" (us a subscriber).
        reference, value: the other measurement's and this one's, in us.
        difference: value minus reference, in us.
        ratio: value through reference; NaN where one of them is not above 0.
        p: that ranks differ as much by chance (two-sided), after Holm's correction for all N,
            quantities and measurements; None where a side has fewer than 8 values, and for growth.
        test: RANKS, or of pairs SIGNED_RANKS; "" where p is None.
        shown: "less" or "more" where p is below 1 - confidence, else "not shown".
        limit, state: a limit of the ratio, and whether it holds; "" where there is none.
    """

    quantity: str
    subscribers: int | None
    statistic: str
    reference: Estimate
    value: Estimate
    difference: Estimate
    ratio: Estimate
    p: float | None = None
    test: str = ""
    shown: str = NOT_SHOWN
    limit: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a measurement says.

    Attributes:
        measurement: of what.
        confidence: of every interval and verdict, 0 to 1.
        counts: of shots and edges.
        quantities: the one that it was made for first.
        pairs: None where fewer than three nodes share shots.
        clocks: one for each of the measurement's time errors.
        verdicts: of the limits, the worst first.
        compared: with the first of several measurements; empty for that one.
    """

    measurement: Measurement
    confidence: float
    counts: Counts
    quantities: tuple[QuantityResult, ...]
    pairs: Pairs | None
    clocks: tuple[ClockSummary, ...]
    verdicts: tuple[Verdict, ...]
    compared: tuple[Comparison, ...] = ()
