import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.client.bracket import Bracket, Growth, Interval, agree

SECOND = 1_000_000_000
STILL = Growth()
PPM = Growth(rate=1e-6)

limits = st.integers(-(10**6), 10**6)
intervals = st.tuples(limits, st.integers(0, 10**5)).map(lambda pair: (pair[0], sum(pair)))


def coverage(point: int, given_intervals: list[tuple[int, int]]) -> int:
    return sum(low <= point <= high for low, high in given_intervals)


# agreement


@given(st.lists(intervals, min_size=1, max_size=12))
def test_the_answer_covers_every_point_on_which_most_agree(given_intervals):
    result = agree(given_intervals)
    points = [end for interval in given_intervals for end in interval]
    most = max(coverage(point, given_intervals) for point in points)
    assert result.agreeing == most
    assert result.lower_ns <= result.upper_ns
    best = [point for point in points if coverage(point, given_intervals) == most]
    assert (result.lower_ns, result.upper_ns) == (min(best), max(best))


@given(limits, st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 10**4)), min_size=1))
def test_intervals_that_all_hold_the_truth_agree_on_it(truth, margins):
    result = agree([(truth - below, truth + above) for below, above in margins])
    assert result.agreeing == len(margins)
    assert result.lower_ns <= truth <= result.upper_ns
    assert result.upper_ns - result.lower_ns <= min(sum(margin) for margin in margins)


def test_marzullos_example_finds_the_region_of_two():
    # The example of "Marzullo's algorithm": 8..12, 11..13 and 14..15 agree on 11..12.
    assert agree([(8, 12), (11, 13), (14, 15)]) == (11, 12, 2)


def test_sets_of_equal_size_widen_the_answer_to_all_of_them():
    assert agree([(0, 10), (20, 30)]) == (0, 30, 1)
    assert agree([(0, 4), (2, 6), (10, 14), (12, 16)]) == (2, 14, 2)


def test_intervals_that_touch_agree():
    assert agree([(0, 5), (5, 9)]) == (5, 5, 2)


def test_no_interval_and_an_inverted_one_are_mistakes_of_the_caller():
    with pytest.raises(ValueError, match="No interval"):
        agree([])
    with pytest.raises(ValueError, match="ends before it starts"):
        agree([(5, 1), (0, 9)])


def test_as_many_wrong_intervals_as_are_tolerated_may_be_among_the_agreeing():
    honest = [(-10, 12), (-14, 9), (-20, 20), (-11, 30)]
    lie = (8, 40)
    assert agree([*honest, lie]) == (8, 9, 5)
    assert agree([*honest, lie], faults=1) == (-10, 12, 5)
    assert agree([*honest, (50, 60)], faults=1) == (-11, 12, 4)


@given(
    limits,
    st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 10**4)), min_size=2, max_size=9),
    intervals,
)
def test_one_lie_that_is_tolerated_never_excludes_the_truth(truth, margins, lie):
    honest = [(truth - below, truth + above) for below, above in margins]
    result = agree([*honest, lie], faults=1)
    assert result.lower_ns <= truth <= result.upper_ns


# growth


def test_an_interval_moves_with_the_frequency_and_grows_with_its_doubt():
    growth = Growth(frequency=50e-6, rate=1e-6)
    assert growth.carry(Interval(0, -100, 100), 2 * SECOND) == (97_900, 102_100)
    assert growth.carry(Interval(0, -100, 100), -2 * SECOND) == (-102_100, -97_900)


def test_wander_grows_as_time_to_the_power_of_three_halves():
    growth = Growth(wander=10.0)
    assert growth.by_ns(4 * SECOND) == 80
    assert growth.by_ns(16 * SECOND) == 640


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_no_interval_shrinks_with_age(first, second):
    growth = Growth(rate=1e-6, wander=23.0)
    assert growth.by_ns(max(first, second)) >= growth.by_ns(min(first, second))


def test_an_interval_grows_by_the_slew_of_its_reference_too():
    interval = Interval(0, -100, 100, 2e-6)
    assert Growth(rate=1e-6).carry(interval, 2 * SECOND) == (-6100, 6100)
    assert Growth().carry(interval, 3000 * SECOND) == (-18_000_100, 18_000_100)


# the bracket


@pytest.fixture
def bracket() -> Bracket:
    return Bracket(8)


def test_the_first_interval_is_taken_as_it_is(bracket):
    assert bracket.add(Interval(5, -10, 30), PPM)
    assert bracket.at(5, PPM) == (-10, 30)
    assert bracket.agreement.agreeing == len(bracket)


def test_an_empty_bracket_guarantees_nothing():
    with pytest.raises(ValueError, match="no interval"):
        Bracket(8).at(0, PPM)


def test_intervals_are_intersected_where_the_newest_is(bracket):
    bracket.add(Interval(0, -10_000, 2000), PPM)
    bracket.add(Interval(SECOND, -4000, 9000), PPM)
    assert bracket.at(SECOND, PPM) == (-4000, 3000)
    assert bracket.at(3 * SECOND, PPM) == (-6000, 5000)


def test_a_promise_holds_on_and_says_nothing_of_the_time_before_it(bracket):
    bracket.add(Interval(0, -1000, 2000, 100e-6), PPM)
    bracket.add(Interval(SECOND, -4000, 9000, 1e-6), PPM)
    bracket.add(Interval(SECOND, -4000, 9000, 100e-6), PPM)
    assert bracket.at(SECOND, PPM) == (-4000, 9000)
    assert bracket.at(3 * SECOND, PPM) == (-8000, 13_000)


def test_a_single_contradiction_is_refused_and_changes_nothing(bracket):
    bracket.add(Interval(0, -10, 10), STILL)
    assert not bracket.add(Interval(1, 500, 600), STILL)
    assert (bracket.at(1, STILL), len(bracket)) == ((-10, 10), 1)


def test_a_falseticker_that_got_in_is_outvoted_and_counted(bracket):
    for instant in range(4):
        bracket.add(Interval(instant, -30, 30), STILL)
    assert bracket.add(Interval(4, 25, 80), STILL)
    assert bracket.at(4, STILL) == (25, 30)
    for instant in (5, 6):
        assert bracket.add(Interval(instant, -12, 12), STILL)
    lower, upper = bracket.at(6, STILL)
    assert lower <= 0 <= upper
    assert bracket.agreement.agreeing == len(bracket) - 1


def test_an_accepted_interval_is_always_part_of_the_answer(bracket):
    for _ in range(5):
        bracket.add(Interval(0, 0, 10), STILL)
    for _ in range(2):
        bracket.add(Interval(0, 0, 4), STILL)
    assert bracket.add(Interval(0, 6, 20), STILL)  # agrees with five, contradicts two
    lower, upper = bracket.at(0, STILL)
    assert lower <= 4
    assert upper >= 6


def test_a_late_interval_is_carried_forward(bracket):
    bracket.add(Interval(10 * SECOND, -50_000, 50_000), PPM)
    assert bracket.add(Interval(9 * SECOND, -1000, 1000), PPM)
    assert bracket.local_ns == 10 * SECOND
    assert bracket.at(10 * SECOND, PPM) == (-2000, 2000)


def test_the_narrower_interval_of_an_exchange_takes_the_place_of_the_wider(bracket):
    for instant in range(3):
        bracket.add(Interval(instant, -30, 30), STILL)
    assert bracket.add(Interval(3, -30, 30), STILL)
    assert bracket.add(Interval(3, -8, 8), STILL, replaces_last=True)
    assert (bracket.at(3, STILL), len(bracket)) == ((-8, 8), 4)
    assert not bracket.add(Interval(3, 90, 99), STILL, replaces_last=True)
    assert (bracket.at(3, STILL), len(bracket)) == ((-8, 8), 4)


def test_a_tolerated_fault_needs_two_honest_ones_beside_it():
    bracket = Bracket(8, faults=1)
    bracket.add(Interval(0, -30, 30), STILL)
    bracket.add(Interval(0, -20, 20), STILL)
    assert bracket.at(0, STILL) == (-20, 20)
    bracket.add(Interval(0, 15, 60), STILL)
    assert bracket.at(0, STILL) == (-20, 30)


def test_clearing_forgets_the_intervals(bracket):
    bracket.add(Interval(0, -10, 10), STILL)
    bracket.clear()
    assert bracket.add(Interval(1, 500, 600), STILL)
    assert bracket.at(1, STILL) == (500, 600)


@given(st.lists(st.tuples(st.integers(0, 10**10), intervals), min_size=1, max_size=20))
def test_the_answer_is_never_empty_and_never_shrinks_with_age(steps):
    bracket, local = Bracket(8), 0
    for elapsed, (lower, upper) in steps:
        local += elapsed
        bracket.add(Interval(local, lower, upper), PPM)
    widths = [
        high - low
        for low, high in (bracket.at(local + age * SECOND, PPM) for age in (0, 1, 60, 3600))
    ]
    assert widths[0] >= 0
    assert widths == sorted(widths)


@given(
    st.integers(-(2**62), 2**62),
    st.lists(st.tuples(st.integers(0, 10**10), intervals), min_size=1, max_size=12),
)
def test_a_shift_of_time_and_offset_shifts_the_answer(shift, steps):
    answers = []
    for by in (0, shift):
        bracket, local = Bracket(16), by
        for elapsed, (lower, upper) in steps:
            local += elapsed
            bracket.add(Interval(local, lower + by, upper + by), PPM)
        low, high = bracket.at(local, PPM)
        answers.append((low - by, high - by))
    assert answers[0] == answers[1]


def second(at_s: int, offset_ns: int, half_ns: int) -> Interval:
    return Interval(at_s * 10**9, offset_ns - half_ns, offset_ns + half_ns)


def test_two_intervals_limit_the_frequency_between_them(bracket) -> None:
    bracket.add(second(0, 0, 100_000), Growth(rate=1e-4))
    assert bracket.frequency_limits == (-math.inf, math.inf)
    bracket.add(second(10, 50_000, 100_000), Growth(rate=1e-4))
    assert bracket.frequency_limits == pytest.approx((-15e-6, 25e-6))  # 5 ppm, 200 us in 10 s
    bracket.clear()
    assert bracket.frequency_limits == (-math.inf, math.inf)


def test_one_wrong_interval_does_not_make_the_limits_of_the_frequency_wrong() -> None:
    bracket = Bracket(8, faults=1)
    for at_s in range(0, 60, 10):
        lie_ns = 150_000 if at_s == 30 else 0
        bracket.add(second(at_s, at_s * 5_000 + lie_ns, 100_000), Growth(rate=1e-4))
    least, most = bracket.frequency_limits
    assert least <= 5e-6 <= most
    assert most - least < 20e-6


def test_growth_keeps_to_limits_and_ignores_those_that_exclude_it() -> None:
    growth = Growth(10e-6, 50e-6, 1.0)
    unlimited = growth.within(-math.inf, math.inf)
    assert (unlimited.frequency, unlimited.rate) == pytest.approx((10e-6, 50e-6))
    narrower = growth.within(0.0, 20e-6)
    assert (narrower.frequency, narrower.rate) == pytest.approx((10e-6, 10e-6))
    assert growth.within(70e-6, 80e-6) == growth
