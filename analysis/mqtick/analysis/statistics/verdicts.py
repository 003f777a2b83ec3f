"""Whether values show that a limit is met, and what it would take to show it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.statistics.bootstrap import LEAST, studentise
from mqtick.analysis.statistics.dependence import autocorrelation_time, effective_number
from mqtick.analysis.statistics.describe import QUANTILES, describe_absolute, spread
from mqtick.analysis.statistics.estimate import Distribution, Estimate
from mqtick.analysis.statistics.exact import (
    MOST_SHOTS,
    share_at_least,
    share_at_most,
    shots_to_tell,
)
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN, Limit, Verdict, duration
from mqtick.recording.units import Floats

Found = tuple[str, str]
"""State and the sentence's end."""

ALL: Final = "all N"
MAX_SHARE: Final = 0.05
"""A maximum is not proven while more than this share of all shots may be beyond it."""
MISSED_SHARE: Final = 0.01
"""With more missed shots, nobody knows what mean and deviation would be with them."""
_NAMES: Final = {"latency": "|latency|", "skew": "|skew|", "clock": "|time error|"}


def verdict_on(
    limit: Limit,
    values_us: npt.ArrayLike,
    of: str,
    confidence: float = 0.95,
    within_us: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    missed: int = 0,
) -> Verdict:
    """Hold the absolute values, taken in this order, against a limit, with one-sided confidence.

    Mean: bound of the studentised bootstrap; deviation: Bonett's; both from 8 values on. Quantiles:
    Clopper and Pearson's bound of the share that is beyond the limit. A maximum fails with the
    first value beyond it, and holds where enough are within it that no more than 5 % can be beyond.
    Correlated values count as what they are worth. What holds or fails only because of the
    measurement's own uncertainty, which no number of shots takes away, is not proven (a guard band
    as in ISO 14253-1). A missed shot may be missed because it was late: before a quantile or a
    maximum holds, it counts as beyond; a mean or deviation holds only with at most 1 % of them.
    What fails, fails by the values alone.

    Args:
        limit: with its bound in us.
        values_us: signed or not, in us, each a number.
        of: of what, as in `Verdict.of`.
        confidence: 0.5 to 1.
        within_us: the least and the most that each value may truly be, signed, in us, infinite
            where nothing bounds it. None: the values are exact.
        missed: how many more shots were tried and have no value.
    """
    values = np.abs(np.asarray(values_us, np.float64))
    n = values.size
    time = autocorrelation_time(values)
    found = describe_absolute(values, confidence, time)
    head = "all shots" if of == ALL else of
    if found is None:
        without = f" ({_number(missed)} missed)" if missed else ""
        words = f"{head}: nothing was measured{without}, so nothing is proven."
        return Verdict(limit, of, NOT_PROVEN, Estimate(math.nan), 0, confidence, words)
    value = _value(limit.statistic, found)

    def against(bound_us: float, of_values: Floats) -> Found:
        moved = dataclasses.replace(limit, bound_us=bound_us)
        if limit.statistic in ("mean", "sd"):
            return _bounded(moved, of_values, time, missed, confidence)
        return _counted(moved, of_values, effective_number(n, time), missed, confidence)

    state, words = against(limit.bound_us, values)
    if within_us is not None and state != NOT_PROVEN:
        reach = _Reach.of(values, *(np.asarray(end, np.float64) for end in within_us))
        if limit.statistic == "sd":
            towards = -reach.deviation_us if state == HOLDS else reach.deviation_us
            stays = math.isfinite(towards) and against(limit.bound_us + towards, values)[0] == state
        else:
            truly = reach.most if state == HOLDS else reach.least
            able = limit.statistic != "mean" or bool(np.isfinite(truly).all())
            stays = able and against(limit.bound_us, truly)[0] == state
        if not stays:
            state, words = NOT_PROVEN, f"{words}; {reach.in_words()}"
    if limit.quantity == "clock":
        words = words.replace("shot", "sample")
    return Verdict(limit, of, state, value, n, confidence, f"{head}: {words}.")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Reach:
    """The least and the most that absolute values may truly be, and how far each is off, in us."""

    least: Floats
    most: Floats
    off: Floats

    @classmethod
    def of(cls, values: Floats, low: Floats, high: Floats) -> _Reach:
        """Of absolute values between signed ends."""
        most = np.maximum(np.maximum(np.abs(low), np.abs(high)), values)
        least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
        least = np.minimum(least, values)
        return cls(least, most, np.maximum(most - values, values - least))

    @property
    def deviation_us(self) -> float:
        """By how much the values' standard deviation may be off at the most."""
        n = self.off.size
        return math.sqrt(float((self.off**2).sum()) / max(n - 1, 1))

    def in_words(self) -> str:
        off = f"single values may be off by {duration(float(self.off.max()))} either way"
        if unbounded := int(np.count_nonzero(~np.isfinite(self.off))):
            many = f"{_number(unbounded)} of {_number(self.off.size)}"
            off = f"nothing bounds the error of {many} shots"
        return (
            f"but {off}, and that leaves it open: it takes a more exact measurement, not more shots"
        )


def _value(statistic: str, found: Distribution) -> Estimate:
    if statistic == "max":
        return Estimate(found.most)
    name = "deviation" if statistic == "sd" else statistic
    return getattr(found, name) or Estimate(math.nan)


def _bounded(limit: Limit, values: Floats, time: float, missed: int, confidence: float) -> Found:
    """Mean or deviation against its bounds."""
    n, bound = values.size, limit.bound_us
    name = "the mean " if limit.statistic == "mean" else "the standard deviation of "
    name += _NAMES[limit.quantity]
    if n == 1:
        what = "is that of one shot" if limit.statistic == "mean" else "of one shot is unknown"
        return NOT_PROVEN, f"{name} {what}: estimating the scatter takes at least {LEAST}"
    found = studentise(values, time) if limit.statistic == "mean" else spread(values, time)
    value, low, high = found.value, found.bound(1 - confidence), found.bound(confidence)
    sentence, limit_words = f"{name} is {duration(value)}", f"the limit is {duration(bound)}"
    if n < LEAST:
        return NOT_PROVEN, f"{sentence} of only {n} shots; {limit_words}: it takes at least {LEAST}"
    sure = f"with {_percent(confidence)} confidence"
    share = missed / (n + missed)
    lost = f"; {_number(missed)} of {_number(n + missed)} shots were missed" if missed else ""
    if high is not None and _keeps(high, limit):
        sentence += f" and {sure} below {duration(high)}; {limit_words}{lost}"
        if share <= MISSED_SHARE:
            return HOLDS, sentence
        return NOT_PROVEN, (
            f"{sentence}, perhaps because they were late: it takes a run in which at most "
            f"{_percent(MISSED_SHARE)} are"
        )
    if low is not None and not _keeps(low, limit):
        return FAILS, f"{sentence} and {sure} above {duration(low)}; {limit_words}{lost}"
    if low is None and high is None:
        return NOT_PROVEN, f"{sentence}; {limit_words}{lost}: it takes more shots"
    lower = "anything" if low is None else duration(low)
    upper = "anything" if high is None else duration(high)
    sentence += f" and {sure} between {lower} and {upper}; {limit_words}{lost}"
    end = low if value > bound else high
    if end is None or value == bound:
        return NOT_PROVEN, f"{sentence}: it takes more shots"
    needed = n * ((end - value) / (bound - value)) ** 2
    return NOT_PROVEN, f"{sentence}: it takes about {_shots(needed)} shots like these {_number(n)}"


def _counted(
    limit: Limit, values: Floats, effective: float, missed: int, confidence: float
) -> Found:
    """Quantile or maximum, by the share of the values that is beyond the limit."""
    n = values.size
    beyond = n - int(np.count_nonzero(_keeps(values, limit)))
    weight = effective / n
    most = share_at_most((beyond + missed) * weight, (n + missed) * weight, confidence)
    sentence = _describe(limit, beyond, n, effective)
    sure = f"with {_percent(confidence)} confidence"
    if limit.statistic == "max":
        if beyond:
            return FAILS, f"{sentence}; the largest is {duration(float(values.max()))}"
        if missed:
            return NOT_PROVEN, (
                f"{sentence}, but {_number(missed)} of {_number(n + missed)} shots were missed, "
                "perhaps because they were late: it takes a run in which none is"
            )
        sentence += f": {sure}, at most {_percent(most)} of all are"
        if most <= MAX_SHARE:
            return HOLDS, sentence
        needed = shots_to_tell(MAX_SHARE, 0.0, confidence)
        return NOT_PROVEN, f"{sentence}; {_percent(MAX_SHARE)} takes {_takes(needed, weight)}"
    allowed = 1 - QUANTILES[limit.statistic]
    name = "the median" if limit.statistic == "median" else limit.statistic
    allows = f"{name} allows {_percent(allowed)}"
    least = share_at_least(beyond * weight, effective, confidence)
    if least > allowed:
        return FAILS, f"{sentence}: {sure} at least {_percent(least)} of all are, and {allows}"
    if missed:
        sentence += f", and {_number(missed)} more shots were missed, which count as beyond"
    if most <= allowed:
        return HOLDS, f"{sentence}: {sure} at most {_percent(most)} of all are, and {allows}"
    sentence += (
        f": {sure} {_percent(least)} to {_percent(most)} of all are, and {allows}; it takes "
    )
    seen, at_worst = beyond / n, (beyond + missed) / (n + missed)
    if missed and at_worst >= allowed >= seen:
        return NOT_PROVEN, f"{sentence}a run in which fewer are missed"
    needed = shots_to_tell(allowed, seen if seen > allowed else at_worst, confidence)
    return NOT_PROVEN, sentence + _takes(needed, weight)


def _describe(limit: Limit, beyond: int, n: int, effective: float) -> str:
    count = "none" if beyond == 0 else _number(beyond)
    worth = "" if effective > 0.9 * n else f" (worth {_number(effective)}, as they are correlated)"
    passes = "beyond" if limit.inclusive else "at or beyond"
    verb = "has" if beyond < 2 else "have"
    shots = f"{_number(n)} shot{'s' if n > 1 else ''}{worth}"
    what = f"{_NAMES[limit.quantity]} {passes} {duration(limit.bound_us)}"
    return f"{count} of {shots} {verb} a {what}"


def _keeps(value: Any, limit: Limit) -> Any:
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
