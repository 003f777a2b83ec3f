"""Numbers as people read them: units, as many digits as the interval allows, no control signs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.results.result import QuantityResult
from mqtick.analysis.statistics.estimate import Estimate

NOTHING: Final = "–"
"""Shown where there is no value."""
SPACE: Final = "\N{NO-BREAK SPACE}"
_MINUS: Final = "\N{MINUS SIGN}"
_DIGITS: Final = 4
"""Of a value as it was seen."""
_UNSURE: Final = 2
"""Of an estimate that nothing bounds on one side."""
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LARGEST: Final = 1e15
_SMALLEST: Final = 1e-6


class Unit(NamedTuple):
    """A unit and how many of it make 1 us."""

    name: str
    per_us: float


MICROSECONDS: Final = Unit("µs", 1.0)
_UNITS: Final = (
    (1.0, Unit("ns", 1000.0)),
    (1e3, MICROSECONDS),
    (1e6, Unit("ms", 1e-3)),
    (math.inf, Unit("s", 1e-6)),
)
"""Those of `statistics.limit.duration`: a sentence and a table say one value in one unit."""


def unit_of(values_us: Iterable[float]) -> Unit:
    """Return the unit in which the largest of the values, in us, is neither tiny nor huge."""
    known = [abs(value) for value in values_us if math.isfinite(value)]
    largest = max(known, default=0.0)
    if largest == 0.0:
        return MICROSECONDS
    return next(unit for below, unit in _UNITS if largest < below)


def unit_for(quantities: Iterable[QuantityResult]) -> Unit:
    """Return the unit of these quantities' table and figures: that of their largest mean."""
    rows = [row.absolute for each in quantities for row in each.rows]
    return unit_of(row.mean.value for row in rows if row is not None)


def unit_for_clocks(clocks: Iterable[ClockSummary]) -> Unit:
    """Return the unit of these clocks' table and figures: that of their largest error."""
    return unit_of(clock.most_us for clock in clocks)


def plain(text: str) -> str:
    """Return a text without unprintable characters: they could control a terminal."""
    return "".join(
        sign
        if sign.isprintable() or sign == SPACE
        else " "
        if sign.isspace()
        else "\N{REPLACEMENT CHARACTER}"
        for sign in text
    )


def printed(text: str) -> str:
    """Return a sentence as it is printed: plain, and "52 us" with the µ sign, never split."""
    return re.sub(r"(?<=\d) us\b", f"{SPACE}µs", plain(text))


def number(value: float | None, decimals: int | None = None) -> str:
    """Return a number with that many decimals, or with four digits; `NOTHING` for NaN.

    -2 decimals are whole hundreds.
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) >= _LARGEST or 0 < abs(value) < _SMALLEST:
        return short(value)
    if decimals is None:
        decimals = _decimals(abs(value), _DIGITS)
    if decimals < 0:
        value, decimals = round(value, decimals), 0
    text = f"{value:,.{decimals}f}"
    if text.startswith("-"):
        return text[1:] if not text.strip("-0.,") else _MINUS + text[1:]
    return text


def short(value: float | None, digits: int = 3) -> str:
    """Return a number without zeros at its end: 0.063, 340, 12,500, 3.2·10⁷."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    # Of the rounded value: 9.9996e-5 is 10⁻⁴.
    factor, _, raised = f"{value:.{digits - 1}e}".partition("e")
    exponent = int(raised)
    tiny_or_huge = not -4 <= exponent < 6
    text = factor if tiny_or_huge else f"{value:,.{max(digits - 1 - exponent, 0)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if tiny_or_huge:
        power = f"10{str(exponent).translate(_RAISED)}"
        text = text.removesuffix("1") + power if text in ("1", "-1") else f"{text}·{power}"
    return text.replace("-", _MINUS)


def in_words(value_us: float) -> str:
    """Return a duration in us with the unit that suits it, never split: "1.467 ms"."""
    name, factor = unit_of([value_us])
    return f"{short(value_us * factor, _DIGITS)}{SPACE}{name}"


def told(estimate: Estimate) -> str:
    """Return an estimate in us in words, with as many digits as its interval allows."""
    name, factor = unit_of([estimate.value])
    return f"{value_of(estimate, factor)}{SPACE}{name}"


def value_of(estimate: Estimate | None, per_us: float = 1.0) -> str:
    """Return the value alone, in a unit of which `per_us` make the estimate's own."""
    if estimate is None:
        return NOTHING
    return number(estimate.value * per_us, _decimals_of(estimate, per_us))


def interval_of(estimate: Estimate | None, per_us: float = 1.0) -> str:
    """Return "18.7 to 21.1", "above 18.7" where no other end is known, or "" without interval."""
    if estimate is None:
        return ""
    low, high = (
        None if end is None or not math.isfinite(end) else end * per_us
        for end in (estimate.low, estimate.high)
    )
    if low is not None and high is not None:
        decimals = _decimals_of(estimate, per_us)
        return f"{number(low, decimals)} to {number(high, decimals)}"
    value = estimate.value * per_us
    if low is not None:
        return f"above {_outward(low, value, math.floor)}"
    return f"below {_outward(high, value, math.ceil)}" if high is not None else ""


def _outward(end: float, value: float, whole: Callable[[float], int]) -> str:
    """Write the one known end, rounded so that it is still a bound."""
    decimals = _unsure(end, value)
    if decimals is None:
        return number(end)
    step = 10.0**-decimals
    return number(whole(round(end / step, 6)) * step, decimals)


def _unsure(value: float, other: float) -> int | None:
    """Two digits of a value whose other end is unknown, more where that is next to `other`."""
    if value == other:
        return None
    wanted = max(_place(abs(value), _UNSURE), _place(abs(value - other), 1))
    return min(wanted, _place(abs(value), _DIGITS))


def _decimals_of(estimate: Estimate, per_us: float) -> int | None:
    """Two digits of half the interval's width, but never fewer than three of the value.

    Of a value that nothing bounds on one side fewer, because less is known of it; of one without
    any interval three.
    """
    low, high = estimate.low, estimate.high
    if (low is None) != (high is None):
        end = low if high is None else high
        return _unsure(estimate.value * per_us, (end or 0.0) * per_us)
    if low is None or high is None or not math.isfinite(high - low):
        return _decimals(abs(estimate.value) * per_us, 3)
    if not high > low:
        return None
    half = (high - low) / 2 * per_us
    value = max(abs(estimate.value), abs(low), abs(high)) * per_us
    return min(max(_decimals(half, 2), _decimals(value, 3)), _decimals(value, 6))


def _decimals(value: float, digits: int) -> int:
    return max(_place(value, digits), 0)


def _place(value: float, digits: int) -> int:
    """Return which decimal is the last of that many digits; -2 means hundreds."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(digits - 1 - math.floor(math.log10(value)), 9)
