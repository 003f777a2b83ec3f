from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.service.units import (
    microseconds_to_ns,
    seconds_to_ns,
    stem_of,
    suffix_of,
)


@given(st.integers(-(10**15), 10**15))
def test_seconds_written_with_nine_decimals_are_exact(nanoseconds: int) -> None:
    text = f"{Decimal(nanoseconds) / 10**9:.9f}"
    assert seconds_to_ns(text) == nanoseconds
    # 15 significant digits survive a float, so what TOML reads as float is exact too.
    assert seconds_to_ns(float(text)) == nanoseconds


@pytest.mark.parametrize(
    ("seconds", "nanoseconds"),
    [
        (0.1, 100_000_000),
        (0.123456789, 123_456_789),  # int(0.123456789 * 1e9) would be 123456788
        (1.1, 1_100_000_000),
        (3600, 3_600_000_000_000),
        ("1e-9", 1),
        (-0.000000001, -1),
        (Decimal("1795201930.427168752"), 1_795_201_930_427_168_752),
        ("0.0000000005", 0),  # half to even
        ("0.0000000015", 2),
    ],
)
def test_seconds_to_nanoseconds(seconds: float, nanoseconds: int) -> None:
    assert seconds_to_ns(seconds) == nanoseconds


def test_microseconds() -> None:
    assert microseconds_to_ns(12.345) == 12_345


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "x", "", 10**13, "1e400", True])
def test_what_is_no_duration_is_refused_with_a_sentence(bad: object) -> None:
    with pytest.raises(ValueError, match=r"is not a number of seconds|cannot be a duration"):
        seconds_to_ns(bad)  # type: ignore[arg-type]


def test_a_suffix_is_the_unit_of_a_key() -> None:
    assert (stem_of("interval_ms"), suffix_of("interval_ms")) == ("interval", "_ms")
    assert (stem_of("max_skew_ppm"), suffix_of("max_skew_ppm")) == ("max_skew", "_ppm")
    assert (stem_of("poll"), suffix_of("poll")) == ("poll", "")
    assert (stem_of("has_gps"), suffix_of("has_gps")) == ("has_gps", "")
    assert suffix_of("_s") == ""
