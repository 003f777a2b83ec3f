"""The lower quartile of recent values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqtick.mqtt.recent import LowRecent

S = 1_000_000_000


def filled(values: list[int], now_ns: int = 0, **settings: int) -> LowRecent:
    recent = LowRecent(**settings)
    for value in values:
        recent.add(value, now_ns)
    return recent


def test_a_quarter_of_the_values_lie_below() -> None:
    assert filled([50, 30, 10, 40, 20, 60, 80, 70]).value(0) == 30


def test_fewer_than_eight_values_say_nothing() -> None:
    recent = filled([1] * 7)
    assert recent.value(0) is None
    recent.add(1, 0)
    assert recent.value(0) == 1
    assert LowRecent().spread(0) == 0


def test_one_lucky_value_does_not_move_it() -> None:
    assert filled([1, *[100] * 11]).value(0) == 100


def test_values_that_are_too_old_do_not_count() -> None:
    recent = filled([10] * 20, age_ns=60 * S)
    for _ in range(8):
        recent.add(500, 61 * S)
    assert recent.value(61 * S) == 500
    assert recent.value(122 * S) is None


def test_only_the_last_values_are_kept() -> None:
    assert filled([*[1] * 100, *[900] * 16], count=16).value(0) == 900


def test_what_no_delay_can_be_is_left_out() -> None:
    assert filled([*[-5] * 50, *[7] * 8]).value(0) == 7


def test_the_spread_is_from_the_tenth_percentile_to_the_median() -> None:
    assert filled(list(range(0, 200, 10))).spread(0) == 100 - 20
    assert filled([5] * 20).spread(0) == 0


@given(st.lists(st.integers(0, 10**12), min_size=8, max_size=64))
def test_the_value_is_one_of_those_added_and_its_rank_a_quarter(values: list[int]) -> None:
    value = filled(values).value(0)
    assert value == sorted(values)[len(values) // 4]
