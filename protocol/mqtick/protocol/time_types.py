"""How instants and durations are counted: `int`, in nanoseconds, instants since 1970-01-01 UTC."""

from typing import Final

NS_PER_S: Final = 1_000_000_000
END_NS: Final = 1 << 63
"""The first instant that nobody states or reads: 64-bit programs count no further (year 2262)."""


def check_instant(instant_ns: int) -> int:
    """Return an instant that can be stated; ValueError for any other."""
    if not 0 <= instant_ns < END_NS:
        raise ValueError(
            f"The instant {instant_ns} ns is before 1970 or after 2262. Nothing was encoded; "
            "check the clock it was read from."
        )
    return instant_ns
