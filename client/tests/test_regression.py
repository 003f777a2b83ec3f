import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.client.regression import Point, Prior, RegressionSettings, fit

SECOND = 1_000_000_000
EPOCH = 1_790_000_000 * SECOND
PLAIN = RegressionSettings()
FADING = RegressionSettings(time_constant_s=64.0)

frequencies = st.floats(-1e-4, 1e-4)
times = st.lists(st.integers(0, 1000), min_size=2, max_size=30, unique=True).map(sorted)


def line(
    seconds: list[int], frequency: float, offset: int = EPOCH, start: int = 10**14
) -> list[Point]:
    return [
        Point(start + t * SECOND, offset + round(frequency * t * SECOND), 1000.0) for t in seconds
    ]


@given(times, frequencies, st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62))
def test_an_exact_line_is_recovered(seconds, frequency, offset, start):
    points = line(seconds, frequency, offset, start)
    result = fit(points, PLAIN)
    assert abs(result.offset_ns - points[-1].offset_ns) <= 2
    span = (seconds[-1] - seconds[0]) * SECOND
    assert result.frequency == pytest.approx(frequency, abs=2 / span)
    assert result.outliers == 0
    assert abs(result.at(points[0].local_ns) - points[0].offset_ns) <= 4


@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.integers(-(10**6), 10**6), st.floats(100, 1e5)),
        min_size=1,
        max_size=20,
        unique_by=lambda item: item[0],
    ),
    st.integers(-(2**62), 2**62),
    st.integers(-(2**62), 2**62),
)
def test_shifting_time_or_offset_only_shifts_the_line(raw, later, higher):
    points = [Point(t * SECOND, y, s) for t, y, s in sorted(raw)]
    shifted = [Point(t + later, y + higher, s) for t, y, s, *_ in points]
    here, there = (fit(p, FADING, Prior(0.0, 25e-6)) for p in (points, shifted))
    assert there.offset_ns - here.offset_ns == higher
    assert there.frequency == here.frequency
    assert there.frequency_sigma == here.frequency_sigma


def test_one_point_gives_its_offset_and_no_frequency():
    result = fit([Point(5, EPOCH, 700.0)], PLAIN)
    assert (result.offset_ns, result.frequency) == (EPOCH, 0.0)
    assert math.isinf(result.frequency_sigma)


def test_one_point_and_a_prior_give_the_frequency_of_the_prior():
    result = fit([Point(5, EPOCH, 700.0)], PLAIN, Prior(30e-6, 25e-6))
    assert result.frequency == pytest.approx(30e-6)
    assert result.frequency_sigma == pytest.approx(25e-6)


def test_a_prior_is_overruled_by_enough_points():
    result = fit(line(list(range(0, 200, 8)), 50e-6), PLAIN, Prior(0.0, 25e-6))
    assert result.frequency == pytest.approx(50e-6, abs=1e-10)


def test_points_at_the_same_instant_give_their_mean():
    result = fit([Point(7, EPOCH + 10, 1.0), Point(7, EPOCH + 20, 1.0)], PLAIN)
    assert result.offset_ns == EPOCH + 15
    assert math.isinf(result.frequency_sigma)


def test_no_point_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="No point"):
        fit([], PLAIN)


def test_points_with_greater_deviation_weigh_less():
    points = [Point(0, 0, 1.0), Point(1, 0, 1.0), Point(2, 900, 3000.0)]
    assert abs(fit(points, PLAIN, Prior(0.0, 1e-12)).offset_ns) < 5


def test_outliers_are_left_out_and_counted():
    points = line(list(range(40)), 20e-6)
    for place in (7, 20, 39):
        points[place] = points[place]._replace(offset_ns=points[place].offset_ns + 5_000_000)
    result = fit(points, PLAIN)
    assert result.outliers == 3
    assert abs(result.offset_ns - (EPOCH + round(20e-6 * 39 * SECOND))) < 200
    assert result.frequency == pytest.approx(20e-6, abs=1e-8)


def test_a_third_of_wild_points_does_not_move_the_line_far():
    draw = random.Random(4)
    points = [
        point._replace(offset_ns=point.offset_ns + round(draw.gauss(0, 1000)))
        for point in line(list(range(60)), -40e-6)
    ]
    for place in range(0, 60, 3):
        points[place] = points[place]._replace(offset_ns=points[place].offset_ns + 400_000)
    result = fit(points, PLAIN)
    truth = EPOCH + round(-40e-6 * 59 * SECOND)
    assert abs(result.offset_ns - truth) < 3000


def test_the_stated_deviations_hold_for_normal_noise():
    draw = random.Random(1)
    pulls = []
    for _ in range(300):
        points = [
            point._replace(offset_ns=point.offset_ns + round(draw.gauss(0, 1000)))
            for point in line(list(range(0, 160, 8)), 10e-6)
        ]
        result = fit(points, PLAIN)
        pulls.append((result.frequency - 10e-6) / result.frequency_sigma)
    assert 0.7 < math.sqrt(sum(pull * pull for pull in pulls) / len(pulls)) < 1.2


@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.floats(-1, 1), st.floats(100, 1e5), st.floats(0, 1e5)),
        min_size=2,
        max_size=20,
        unique_by=lambda item: item[0],
    )
)
def test_no_errors_within_their_reach_turn_the_line_by_more_than_it_says(raw):
    points = [
        Point(t * SECOND, EPOCH + 30_000 * t + round(share * reach), sigma, reach)
        for t, share, sigma, reach in sorted(raw)
    ]
    result = fit(points, FADING)
    rounding = 1e-9 + 1e-9 / (points[-1].local_ns - points[0].local_ns)
    assert abs(result.frequency - 30e-6) <= result.frequency_reach + rounding


def test_the_prior_has_the_share_of_the_frequency_that_points_leave_it():
    far, near = line([0, 100], 10e-6), [Point(5, EPOCH, 700.0), Point(5000, EPOCH, 700.0)]
    prior = Prior(0.0, 25e-6)
    assert fit(far, PLAIN, prior).prior_share < 0.01
    assert fit(near, PLAIN, prior).prior_share > 0.99
    assert fit(near[:1], PLAIN, prior).prior_share == 1.0
    assert fit(far, PLAIN).prior_share == 0.0


def test_deviations_that_were_stated_too_small_are_raised():
    draw = random.Random(2)
    points = [Point(t * SECOND, round(draw.gauss(0, 10_000)), 1000.0) for t in range(40)]
    as_stated = 1000e-9 / math.sqrt(sum((t - 19.5) ** 2 for t in range(40)))
    assert fit(points, PLAIN).frequency_sigma > 5 * as_stated


def test_a_short_time_constant_follows_a_change_of_frequency():
    points = line(list(range(0, 400, 8)), 0.0)
    bent = [
        p._replace(offset_ns=p.offset_ns + max(0, (i - 40) * 8000)) for i, p in enumerate(points)
    ]
    slow, fast = fit(bent, PLAIN), fit(bent, RegressionSettings(time_constant_s=20.0))
    truth = bent[-1].offset_ns
    assert abs(fast.offset_ns - truth) < abs(slow.offset_ns - truth) / 3


def test_what_is_many_time_constants_old_is_not_looked_at():
    points = line([0, 8, 16], 0.0) + line([4000, 4008, 4016], 30e-6, offset=EPOCH + 10**9)
    result = fit(points, FADING)
    assert result.points == 3
    assert result.frequency == pytest.approx(30e-6, abs=1e-9)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62))))
def test_no_points_in_the_range_raise(raw):
    points = [Point(t, y, 1000.0) for t, y in sorted(raw)]
    if points:
        result = fit(points, FADING, Prior(0.0, 25e-6))
        assert math.isfinite(result.frequency)
