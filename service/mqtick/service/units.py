"""Units: the suffixes of key names, and conversion to integer nanoseconds.

Inside the programs instants and durations are `int` nanoseconds. A person writes seconds
or microseconds in decimal, and expects `0.1` to be exactly 100,000,000 ns: so the
conversion goes through the decimal text of the number, never through a binary multiplication.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation, localcontext

SUFFIXES: dict[str, str] = {
    "_s": "seconds",
    "_ms": "milliseconds",
    "_us": "microseconds",
    "_ns": "nanoseconds",
    "_ppm": "parts per million",
    "_ppb": "parts per billion",
    "_hz": "hertz",
    "_percent": "percent",
}
"""Unit suffixes of key names, and their names for people."""

# Enough digits for any duration between 1 ns and the age of the universe, written in decimal.
_PRECISION = 60


def suffix_of(name: str) -> str:
    """Return the unit suffix of a key name (`"_ms"`), or `""` if it has none."""
    cut = name.rfind("_")
    return name[cut:] if cut > 0 and name[cut:] in SUFFIXES else ""


def stem_of(name: str) -> str:
    """Return a key name without its unit suffix."""
    suffix = suffix_of(name)
    return name[: len(name) - len(suffix)] if suffix else name


def _to_ns(value: int | float | str | Decimal, exponent: int, unit: str) -> int:
    """Convert to nanoseconds; `exponent` is the power of ten from the unit to nanoseconds."""
    text = repr(value) if isinstance(value, float) else str(value)
    with localcontext() as context:
        context.prec = _PRECISION
        try:
            number = Decimal(text.strip())
        except InvalidOperation:
            raise ValueError(f"{value!r} is not a number of {unit}") from None
        # 10**12 seconds are 30,000 years: anything beyond is a mistake, not a duration.
        if not number.is_finite() or (number and number.adjusted() + exponent > 21):
            raise ValueError(f"{value!r} {unit} cannot be a duration: it is not finite or too long")
        return int(number.scaleb(exponent).to_integral_value(rounding=ROUND_HALF_EVEN))


def seconds_to_ns(value: int | float | str | Decimal) -> int:
    """Convert seconds to nanoseconds, exactly wherever the decimal text has at most 9 decimals.

    A `float` is taken as the shortest decimal text that represents it (0.1 is 0.1). Fractions of a
    nanosecond are rounded half to even. Raises ValueError, with a sentence, for values that are not
    a number, not finite, or above 10**12 seconds.
    """
    return _to_ns(value, 9, "seconds")


def microseconds_to_ns(value: int | float | str | Decimal) -> int:
    """Convert microseconds to nanoseconds; as `seconds_to_ns`."""
    return _to_ns(value, 3, "microseconds")
