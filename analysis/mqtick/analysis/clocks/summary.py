"""What can be said of one clock: time error, stability, convergence, holdover."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mqtick.analysis.measurement import TimeErrors
from mqtick.analysis.statistics.estimate import Distribution, Estimate

__all__ = ["ClockSummary", "Deviation", "Holdover", "MaskVerdict"]


@dataclass(frozen=True, slots=True, eq=False)
class Deviation:
    """One stability measure over observation intervals.

    Attributes:
        name: "MTIE", "TDEV" or "ADEV".
        tau_s: observation intervals in s.
        value: MTIE and TDEV in ns, ADEV without unit.
        low, high: confidence interval, None for MTIE (a maximum, it has none).
    """

    name: str
    tau_s: npt.NDArray[np.float64]
    value: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64] | None = None
    high: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class MaskVerdict:
    """Whether a measure stays below a mask of a standard.

    `worst_ratio` is the largest measure / mask, at `worst_tau_s`; None where they share no tau.
    """

    mask: str
    measure: str
    holds: bool | None
    worst_ratio: float | None
    worst_tau_s: float | None


@dataclass(frozen=True, slots=True)
class Holdover:
    """A gap without measurements, in s since the begin, and the error with which it ended.

    `change_ns` is the error after the gap minus the one before; per second of gap it is a
    frequency error.
    """

    begin_s: float
    end_s: float
    change_ns: float


@dataclass(frozen=True, slots=True, eq=False)
class ClockSummary:
    """Everything about one clock's time error.

    Attributes:
        errors: what was measured.
        constant_us: constant part (cTE): the mean after convergence, with its interval.
        spread_us: standard deviation of what remains (dTE) after convergence.
        most_us: max|TE| after convergence.
        absolute: distribution of |TE| after convergence, in us.
        converged_after_s: since the begin; None where it never stayed within its own spread.
        interval_s: the median distance of the samples.
        deviations: MTIE, TDEV, ADEV; empty with too few samples.
        masks: verdicts against masks of standards.
        holdovers: gaps, the longest first.
        outside: how many samples' stated intervals leave the error 0 out, None without intervals.
    """

    errors: TimeErrors
    constant_us: Estimate
    spread_us: Estimate
    most_us: float
    absolute: Distribution
    converged_after_s: float | None
    interval_s: float
    deviations: tuple[Deviation, ...]
    masks: tuple[MaskVerdict, ...]
    holdovers: tuple[Holdover, ...]
    outside: int | None
