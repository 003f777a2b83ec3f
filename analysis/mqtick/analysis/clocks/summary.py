"""What can be said about one clock: time error, stability, convergence, holdover."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.clocks.grid import evenly, gaps, median_interval
from mqtick.analysis.clocks.masks import MaskVerdict, mask_verdicts
from mqtick.analysis.clocks.stability import Deviation, adev, mtie, tdev
from mqtick.analysis.measurement import TimeErrors
from mqtick.analysis.statistics.describe import describe
from mqtick.analysis.statistics.estimate import Distribution, Estimate
from mqtick.analysis.statistics.lines import without_line
from mqtick.recording.units import NS_PER_US, Floats

FEWEST: Final = 20
"""Fewer samples do not show when a clock converged."""
SPREADS: Final = 3.0
"""The band extends this many spreads to either side."""
_WINDOW: Final = 5
_STAY: Final = 0.1
"""Share of the samples for which it has to stay in the band."""
_MAY_LEAVE: Final = 0.05
FEWEST_FOR_STABILITY: Final = 16


@dataclass(frozen=True, slots=True)
class Holdover:
    """A gap without measurements, and what the error changed by meanwhile.

    `begin_s` and `end_s` are instants of `TimeErrors.seconds`: of the last sample before the gap
    and the first one after it. `change_ns` is the error after the gap minus the one before; per
    second of gap it is a frequency error.
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
        spread_us: standard deviation of what remains (dTE) after convergence; NaN of one sample.
        most_us: max|TE| after convergence.
        absolute: distribution of |TE| after convergence, in us.
        converged_after_s: since the first sample, which need not be at second 0; None where it
            never stayed within its own spread, and everything then counts as after convergence.
        interval_s: the median distance of the samples.
        deviations: MTIE, TDEV, ADEV after convergence; empty with too few samples.
        masks: verdicts against masks of standards.
        holdovers: gaps, the longest first.
        outside: after convergence, how many samples' stated intervals exclude the error 0, None
            without intervals.
        notes: sentences on how the samples had to be treated.
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
    notes: tuple[str, ...] = ()

    @property
    def after(self) -> TimeErrors:
        """Return the time errors from convergence on; all of them where it never converged."""
        errors = self.errors
        # The same subtraction as that of `converged_after_s`, so that its own sample is in.
        chosen = errors.seconds - errors.seconds[0] >= (self.converged_after_s or 0.0)
        return replace(
            errors,
            seconds=errors.seconds[chosen],
            error_ns=errors.error_ns[chosen],
            lower_ns=None if errors.lower_ns is None else errors.lower_ns[chosen],
            upper_ns=None if errors.upper_ns is None else errors.upper_ns[chosen],
        )


def summarise_clock(
    errors: TimeErrors, confidence: float = 0.95, uncertainty_ns: npt.ArrayLike = 0.0
) -> ClockSummary:
    """Say what a clock's time error is like.

    When it converged is told by `converged_from`; everything but the holdovers is about
    the time from then on. A gap is where two samples are more than five median intervals apart.

    Args:
        errors: at least one sample; instants increasing.
        confidence: of every interval, 0 to 1.
        uncertainty_ns: how far each sample may be off, or all of them, either way; infinite where
            nothing bounds it. Masks are judged by it.

    Raises:
        ValueError: no sample, values that are not numbers, instants that do not increase.
    """
    seconds, error_ns = _checked(errors)
    first = converged_from(error_ns)
    begin = 0 if first is None else first
    after_s, after_ns = seconds[begin:], error_ns[begin:]
    values_us = after_ns / NS_PER_US
    signed = describe(values_us, confidence)
    absolute = describe(np.abs(values_us), confidence)
    if signed is None or absolute is None:  # values were checked: there are some
        raise ValueError(f"{errors.name}: no sample.")
    most_us = float(np.abs(values_us).max())
    deviations, notes = _deviations(after_s, after_ns, confidence)
    if first is None:
        notes = (_never_converged(seconds.size), *notes)
    return ClockSummary(
        errors=errors,
        constant_us=signed.mean,
        spread_us=signed.deviation or Estimate(float("nan")),
        most_us=most_us,
        absolute=absolute,
        converged_after_s=None if first is None else float(seconds[first] - seconds[0]),
        interval_s=median_interval(seconds),
        deviations=deviations,
        masks=mask_verdicts(
            deviations,
            most_us * NS_PER_US,
            samples=after_ns.size,
            uncertainty_ns=float(np.broadcast_to(uncertainty_ns, error_ns.shape)[begin:].max()),
        ),
        holdovers=_holdovers(seconds, error_ns),
        outside=_outside(errors, begin),
        notes=notes,
    )


def _checked(errors: TimeErrors) -> tuple[Floats, Floats]:
    seconds = np.asarray(errors.seconds, np.float64)
    error_ns = np.asarray(errors.error_ns, np.float64)
    if not seconds.size or seconds.shape != error_ns.shape:
        raise ValueError(
            f"{errors.name}: {error_ns.size} time errors at {seconds.size} instants; there has to "
            "be at least one, and one for each instant."
        )
    if not (np.isfinite(seconds).all() and np.isfinite(error_ns).all()):
        raise ValueError(f"{errors.name}: instants or time errors that are not numbers.")
    if np.any(np.diff(seconds) <= 0):
        raise ValueError(f"{errors.name}: instants that do not increase.")
    return seconds, error_ns


def _never_converged(samples: int) -> str:
    if samples < FEWEST:
        return (
            f"{samples} samples do not show when the clock converged ({FEWEST} would): all of them "
            "count."
        )
    return "The clock did not converge in the first half of its samples: all of them count."


def _deviations(
    seconds: Floats, error_ns: Floats, confidence: float
) -> tuple[tuple[Deviation, ...], tuple[str, ...]]:
    few = (
        f"MTIE, TDEV and ADEV need {FEWEST_FOR_STABILITY} samples after convergence without a gap "
        "between them."
    )
    if seconds.size < FEWEST_FOR_STABILITY:
        return (), (few,)
    even = evenly(seconds, error_ns)
    if max(part.size for part in even.parts) < FEWEST_FOR_STABILITY:
        return (), (few,)
    notes = [even.note] if even.note else []
    if len(even.parts) > 1:
        notes.append(
            "MTIE, TDEV and ADEV are computed of parts between gaps, never across one; gaps, of "
            f"more than five median intervals: {len(even.parts) - 1}."
        )
    parts = list(even.parts)
    return (
        mtie(parts, even.interval_s),
        tdev(parts, even.interval_s, confidence=confidence),
        adev(parts, even.interval_s, confidence=confidence),
    ), tuple(notes)


def _holdovers(seconds: Floats, error_ns: Floats) -> tuple[Holdover, ...]:
    found = [
        Holdover(
            float(seconds[last]),
            float(seconds[last + 1]),
            float(error_ns[last + 1] - error_ns[last]),
        )
        for last in gaps(seconds)
    ]
    return tuple(sorted(found, key=lambda gap: gap.begin_s - gap.end_s))


def _outside(errors: TimeErrors, begin: int) -> int | None:
    if errors.lower_ns is None and errors.upper_ns is None:
        return None
    # A bound that is missing is NaN, and no comparison with it is true.
    is_outside = np.zeros(errors.error_ns.size - begin, bool)
    if errors.lower_ns is not None:
        is_outside |= np.asarray(errors.lower_ns, np.float64)[begin:] > 0
    if errors.upper_ns is not None:
        is_outside |= np.asarray(errors.upper_ns, np.float64)[begin:] < 0
    return int(np.count_nonzero(is_outside))


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
