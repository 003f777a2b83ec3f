"""Whether values show that a limit is kept, and what it would take to show it."""

from __future__ import annotations

import dataclasses
import math
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.statistics.bootstrap import LEAST, Studentised, studentise
from mqtick.analysis.statistics.dependence import autocorrelation_time, effective_number
from mqtick.analysis.statistics.describe import QUANTILES, describe_absolute, finite
from mqtick.analysis.statistics.estimate import Distribution, Estimate
from mqtick.analysis.statistics.exact import (
    MOST_SHOTS,
    share_at_least,
    share_at_most,
    shots_to_tell,
)
from mqtick.analysis.statistics.limit import (
    FAILS,
    HOLDS,
    NOT_PROVEN,
    Limit,
    Verdict,
    duration,
)

__all__ = ["ALL", "judge"]

Floats = npt.NDArray[np.float64]
Judged = tuple[str, str]
"""State and the sentence's end."""

ALL: Final = "all N"
MAX_SHARE: Final = 0.05
"""A maximum of which fewer shots prove no more than that this share is beyond proves too little."""
_NAMES: Final = {"latency": "|latency|", "skew": "|skew|", "clock": "|time error|"}


def judge(
    limit: Limit,
    values_us: npt.ArrayLike,
    of: str,
    confidence: float = 0.95,
    uncertainty_us: float = 0.0,
) -> Verdict:
    """Judge the absolute values, taken in this order, with a one-sided confidence.

    Mean and deviation: bound of the studentised bootstrap. Quantiles: Clopper and Pearson's bound
    of the share that is beyond the limit. A maximum fails with the first value beyond it, and holds
    where so many keep it that no more than 5 % can be beyond. Values that hang together count as
    what they are worth. What holds or fails only because of the measurement's own uncertainty,
    which no number of shots takes away, is not proven (a guard band as in ISO 14253-1).
    """
    values = np.abs(finite(values_us))
    n = int(values.size)
    time = autocorrelation_time(values) if n else 1.0
    found = describe_absolute(values, confidence, time)
    head = "all shots" if of == ALL else of
    if found is None:
        words = f"{head}: nothing was measured, so nothing is shown."
        return Verdict(limit, of, NOT_PROVEN, Estimate(math.nan), 0, confidence, words)
    value = _value(limit.statistic, found)

    def against(bound_us: float) -> Judged:
        moved = dataclasses.replace(limit, bound_us=bound_us)
        if limit.statistic in ("mean", "sd"):
            return _bounded(moved, values, value.value, time, confidence)
        return _counted(moved, values, effective_number(n, time), confidence)

    state, words = against(limit.bound_us)
    guarded = uncertainty_us > 0 and limit.statistic != "sd"
    towards = {HOLDS: -uncertainty_us, FAILS: uncertainty_us}.get(state, 0.0)
    if guarded and towards and against(limit.bound_us + towards)[0] != state:
        state = NOT_PROVEN
        words += (
            f"; but single values may be off by {duration(uncertainty_us)} either way, and that "
            "leaves it open: it takes a more exact measurement, not more shots"
        )
    if limit.quantity == "clock":
        words = words.replace("shot", "sample")
    return Verdict(limit, of, state, value, n, confidence, f"{head}: {words}.")


def _value(statistic: str, found: Distribution) -> Estimate:
    if statistic == "max":
        return Estimate(found.most)
    known = {
        "mean": found.mean,
        "sd": found.deviation or Estimate(math.nan),
        "median": found.median,
        "p5": found.p5,
        "p95": found.p95,
        "p99": found.p99,
    }
    return known[statistic]


def _bounded(limit: Limit, values: Floats, value: float, time: float, confidence: float) -> Judged:
    """Mean or deviation against the bounds that a bootstrap gives."""
    n, bound = values.size, limit.bound_us
    name = "the mean " if limit.statistic == "mean" else "the standard deviation of "
    name += _NAMES[limit.quantity]
    replicates = studentise(values, time) if n > 1 else None
    low, high = _ends(limit.statistic, replicates, confidence)
    told = f"{name} is {duration(value)}"
    if replicates is None:
        what = "is that of one shot" if limit.statistic == "mean" else "of one shot is unknown"
        return NOT_PROVEN, f"{name} {what}: how far shots scatter takes at least {LEAST}"
    sure, limit_words = f"with {_percent(confidence)} confidence", f"the limit is {duration(bound)}"
    if high is not None and _keeps(high, limit):
        return HOLDS, f"{told} and {sure} below {duration(high)}; {limit_words}"
    if low is not None and not _keeps(low, limit):
        return FAILS, f"{told} and {sure} above {duration(low)}; {limit_words}"
    if low is None or (high is None and n < LEAST):
        return NOT_PROVEN, f"{told} of only {n} shots; {limit_words}: it takes at least {LEAST}"
    upper = "anything" if high is None else duration(high)
    told += f" and {sure} between {duration(low)} and {upper}; {limit_words}"
    end = low if value > bound else high
    if end is None or value == bound:
        return NOT_PROVEN, f"{told}: it takes more shots"
    needed = n * ((end - value) / (bound - value)) ** 2
    return NOT_PROVEN, f"{told}: it takes about {_shots(needed)} shots like these {_number(n)}"


def _ends(
    statistic: str, replicates: Studentised | None, confidence: float
) -> tuple[float | None, float | None]:
    if replicates is None:
        return None, None
    if statistic == "mean":
        return replicates.mean_bound(1 - confidence), replicates.mean_bound(confidence)
    return replicates.deviation_bound(1 - confidence), replicates.deviation_bound(confidence)


def _counted(limit: Limit, values: Floats, effective: float, confidence: float) -> Judged:
    """Quantile or maximum, by the share of the values that is beyond the limit."""
    n = values.size
    kept = values <= limit.bound_us if limit.inclusive else values < limit.bound_us
    beyond = n - int(np.count_nonzero(kept))
    weight = effective / n
    most = share_at_most(beyond * weight, effective, confidence)
    told = _told(limit, beyond, n, effective)
    if limit.statistic == "max":
        if beyond:
            return FAILS, f"{told}; the largest is {duration(float(values.max()))}"
        told += f": with {_percent(confidence)} confidence, at most {_percent(most)} of all are"
        if most <= MAX_SHARE:
            return HOLDS, told
        needed = shots_to_tell(MAX_SHARE, 0.0, confidence)
        return NOT_PROVEN, f"{told}; {_percent(MAX_SHARE)} takes {_takes(needed, weight)}"
    allowed = 1 - QUANTILES[limit.statistic]
    name = "the median" if limit.statistic == "median" else limit.statistic
    allows = f"{name} allows {_percent(allowed)}"
    sure = f"with {_percent(confidence)} confidence"
    if most <= allowed:
        return HOLDS, f"{told}: {sure} at most {_percent(most)} of all are, and {allows}"
    least = share_at_least(beyond * weight, effective, confidence)
    if least > allowed:
        return FAILS, f"{told}: {sure} at least {_percent(least)} of all are, and {allows}"
    needed = shots_to_tell(allowed, beyond / n, confidence)
    return (
        NOT_PROVEN,
        f"{told}: {sure} {_percent(least)} to {_percent(most)} of all are, and {allows}; "
        f"it takes {_takes(needed, weight)}",
    )


def _told(limit: Limit, beyond: int, n: int, effective: float) -> str:
    count = "none" if beyond == 0 else _number(beyond)
    worth = "" if effective > 0.9 * n else f" (worth {_number(effective)}, as they hang together)"
    passes = "beyond" if limit.inclusive else "at or beyond"
    verb = "has" if beyond < 2 else "have"
    shots = f"{_number(n)} shot{'s' if n > 1 else ''}{worth}"
    what = f"{_NAMES[limit.quantity]} {passes} {duration(limit.bound_us)}"
    return f"{count} of {shots} {verb} a {what}"


def _keeps(value: float, limit: Limit) -> bool:
    return value <= limit.bound_us if limit.inclusive else value < limit.bound_us


def _takes(needed: int | None, weight: float) -> str:
    if needed is None:
        return f"more than {_number(MOST_SHOTS)} such shots"
    return f"{_shots(needed / weight)} such shots"


def _shots(number: float) -> str:
    return _number(math.ceil(number)) if number <= MOST_SHOTS else f"over {_number(MOST_SHOTS)}"


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
