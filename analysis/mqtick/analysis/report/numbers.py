"""Numbers as people read them: units, as many digits as the interval allows, no control signs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mqtick.analysis.statistics.estimate import Estimate

__all__ = [
    "MICROSECONDS",
    "NOTHING",
    "SPACE",
    "Unit",
    "interval_of",
    "number",
    "plain",
    "power",
    "short",
    "unit_of",
    "value_of",
]

NOTHING: Final = "–"
"""Stands where there is no value."""
SPACE: Final = "\N{NO-BREAK SPACE}"
_MINUS: Final = "\N{MINUS SIGN}"
_DIGITS: Final = 4
"""Of a value without an interval."""
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LARGEST: Final = 1e15
_SMALLEST: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit and how many of it make 1 us."""

    name: str
    per_us: float


MICROSECONDS: Final = Unit("µs", 1.0)
_UNITS: Final = (
    (1.0, Unit("ns", 1000.0)),
    (20_000.0, MICROSECONDS),
    (20_000_000.0, Unit("ms", 1e-3)),
    (math.inf, Unit("s", 1e-6)),
)


def unit_of(values_us: Iterable[float]) -> Unit:
    """Return the unit in which the largest of the values, in us, is neither tiny nor huge."""
    known = [abs(value) for value in values_us if math.isfinite(value)]
    largest = max(known, default=0.0)
    if largest == 0.0:
        return MICROSECONDS
    return next(unit for below, unit in _UNITS if largest < below)


def plain(text: str) -> str:
    """Return a text without signs that do not print: they could steer a terminal or turn a line."""
    return "".join(
        sign if sign.isprintable() or sign == SPACE else "\N{REPLACEMENT CHARACTER}"
        for sign in text
    )


def number(value: float | None, decimals: int | None = None) -> str:
    """Return a number with so many decimals, or with four digits; `NOTHING` where it is none."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) >= _LARGEST or 0 < abs(value) < _SMALLEST:
        return power(value)
    if decimals is None:
        decimals = _decimals(abs(value), _DIGITS)
    text = f"{value:,.{decimals}f}"
    if text.startswith("-"):
        return text[1:] if not text.strip("-0.,") else _MINUS + text[1:]
    return text


def short(value: float | None) -> str:
    """Return a number with four digits at most, and no zeros at its end: bounds, instants."""
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def power(value: float) -> str:
    """Return a number that may be very small, with three digits: 1.76·10⁻⁶."""
    if not math.isfinite(value) or value == 0 or 1e-3 <= abs(value) < 1e6:
        return number(value)
    factor, _, exponent = f"{value:.2e}".partition("e")
    return f"{factor.replace('-', _MINUS)}·10{str(int(exponent)).translate(_RAISED)}"


def value_of(estimate: Estimate | None, per_us: float = 1.0) -> str:
    """Return the value alone, in a unit of which `per_us` make the estimate's own."""
    if estimate is None:
        return NOTHING
    return number(estimate.value * per_us, _decimals_of(estimate, per_us))


def interval_of(estimate: Estimate | None, per_us: float = 1.0) -> str:
    """Return "18.7 to 21.1", "above 18.7" where no other end is known, or "" without interval."""
    if estimate is None:
        return ""
    decimals = _decimals_of(estimate, per_us)
    low, high = (
        None if end is None or not math.isfinite(end) else number(end * per_us, decimals)
        for end in (estimate.low, estimate.high)
    )
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"above {low}" if low is not None else f"below {high}" if high is not None else ""


def _decimals_of(estimate: Estimate, per_us: float) -> int | None:
    """Two digits of half the interval's width, but never fewer than three of the value."""
    low, high = estimate.low, estimate.high
    if low is None or high is None or not high > low or not math.isfinite(high - low):
        return None
    half = (high - low) / 2 * per_us
    value = max(abs(estimate.value), abs(low), abs(high)) * per_us
    return min(max(_decimals(half, 2), _decimals(value, 3)), _decimals(value, 6))


def _decimals(value: float, digits: int) -> int:
    if value == 0 or not math.isfinite(value):
        return 0
    return min(max(digits - 1 - math.floor(math.log10(value)), 0), 9)
