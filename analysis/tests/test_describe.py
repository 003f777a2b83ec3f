"""What is said of values: estimates with intervals, and None where nothing can be said."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.tests.coverage_found import autoregressive
from analysis.tests.known import ends, known
from mqtick.analysis.statistics.dependence import autocorrelation_time
from mqtick.analysis.statistics.describe import describe, describe_absolute, spread
from mqtick.analysis.statistics.estimate import Distribution, Estimate

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60)


def of(values: object, confidence: float = 0.95) -> Distribution:
    return known(describe(np.asarray(values, np.float64), confidence))


def estimates(found: Distribution) -> list[Estimate]:
    some = [found.mean, found.deviation, found.median, found.p5, found.p95, found.p99]
    return [each for each in some if each is not None]


@given(VALUES)
@settings(max_examples=20)
def test_values_are_those_of_the_standard_library(values: list[float]) -> None:
    found = of(values)
    assert found.n == len(values)
    assert found.mean.value == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert known(found.deviation).value == pytest.approx(
        statistics.stdev(values), rel=1e-6, abs=1e-6
    )
    assert found.median.value == pytest.approx(statistics.median(values), abs=1e-6)
    assert (found.least, found.most) == (min(values), max(values))


@given(VALUES)
@settings(max_examples=20)
def test_an_interval_holds_its_estimate_and_ends_are_in_order(values: list[float]) -> None:
    found = of(values)
    assert 1 <= found.effective_n <= found.n
    for each in estimates(found):
        slack = 1e-9 * (1 + abs(each.value))
        assert each.low is None or each.low <= each.value + slack
        assert each.high is None or each.value - slack <= each.high


@given(VALUES, st.floats(0.01, 100), st.integers(-1000, 1000))
@settings(max_examples=10)
def test_another_unit_or_zero_gives_the_same_interval_in_that_unit(
    values: list[float], scale: float, shift: int
) -> None:
    rounded = np.round(np.array(values))
    one, other = of(rounded), of(rounded * scale + shift)
    reach = (1 + float(np.abs(rounded).max())) * scale + abs(shift)
    if float(rounded.std()) * scale < 1e-6 * reach:
        return
    low = known(one.mean.low) * scale + shift
    assert other.mean.low == pytest.approx(low, abs=1e-5 * reach)


def test_quantiles_are_rs_type_7() -> None:
    """R: quantile(1:10, c(.05, .5, .95, .99)) gives 1.45, 5.5, 9.55, 9.91."""
    found = of(range(1, 11))
    values = [found.p5.value, found.median.value, found.p95.value, found.p99.value]
    assert values == pytest.approx([1.45, 5.5, 9.55, 9.91])


def test_nothing_is_said_of_no_values() -> None:
    assert describe(np.array([])) is None


def test_one_value_has_no_interval() -> None:
    found = of([3.5])
    assert found.deviation is None
    assert found.mean == found.median == found.p99 == Estimate(3.5)


def test_few_values_have_students_interval_of_the_mean_and_none_of_the_deviation() -> None:
    """Student's t with 2 degrees of freedom is 4.3027 at 97.5 %."""
    found = of([1.0, 2.0, 3.0])
    assert found.mean.high == pytest.approx(2 + 4.3027 / 3**0.5, rel=1e-4)
    assert found.deviation == Estimate(1.0)


def test_equal_values_have_intervals_without_width() -> None:
    found = of([5.0] * 20)
    assert found.mean == found.median == Estimate(5.0, 5.0, 5.0)
    assert found.deviation == Estimate(0.0, 0.0, 0.0)
    assert found.effective_n == 20


def test_one_different_value_of_twenty_bounds_the_deviation_and_warns_of_nothing() -> None:
    with np.errstate(all="raise"):
        found = of([0.0] * 19 + [1.0])
    assert 0.5 < ends(found.deviation)[1] < 1.0


def test_nobody_knows_how_large_the_p99_of_20_shots_may_be() -> None:
    found = of(np.random.default_rng(1).normal(size=20))
    assert found.p99.high is None
    assert found.p95.high is None
    assert found.p5.low is None
    assert ends(found.median)


def test_a_p99_with_both_ends_takes_368_shots() -> None:
    values = np.random.default_rng(1).normal(size=368)
    assert known(describe(values[:367], time=1.0)).p99.high is None
    assert known(describe(values, time=1.0)).p99.high == values.max()


def test_the_same_values_give_the_same_interval_and_more_confidence_a_wider_one() -> None:
    values = np.random.default_rng(2).lognormal(size=50)
    assert of(values) == of(values)
    wide, narrow = ends(of(values, 0.99).mean), ends(of(values, 0.9).mean)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_the_mean_of_absolute_values_is_not_below_zero() -> None:
    wandering = np.cumsum(np.random.default_rng(4).normal(size=200))
    found = known(describe_absolute(wandering))
    assert 0 <= known(found.mean.low) < found.mean.value
    assert found.least >= 0


@pytest.mark.parametrize("strength", [0.6, 0.9])
def test_values_that_hang_together_are_worth_as_many_as_theory_says(strength: float) -> None:
    """Of a first-order autoregression: n (1 - rho) / (1 + rho)."""
    values = autoregressive(strength)(np.random.default_rng(3), 20_000)
    expected = values.size * (1 - strength) / (1 + strength)
    assert of(values).effective_n == pytest.approx(expected, rel=0.3)


def test_independent_values_are_worth_what_they_are() -> None:
    chance = np.random.default_rng(5)
    times = [autocorrelation_time(chance.normal(size=100)) for _ in range(60)]
    assert sum(each == 1.0 for each in times) >= 52


def test_a_single_far_value_does_not_hide_that_values_hang_together() -> None:
    level = np.repeat(np.random.default_rng(6).normal(size=20), 20)
    level[200] = 1e6
    assert of(level).effective_n < 100


def test_rounding_to_few_values_is_no_dependence() -> None:
    chance = np.random.default_rng(7)
    assert autocorrelation_time(chance.integers(0, 2, 1000).astype(float)) < 1.3


@pytest.mark.slow
@pytest.mark.parametrize(("n", "most_s"), [(1000, 0.05), (1_000_000, 2.0)])
def test_it_is_fast(n: int, most_s: float) -> None:
    values = np.random.default_rng(8).normal(size=n)
    took = []
    for _ in range(3):
        begin = time.process_time()
        of(values)
        took.append(time.process_time() - begin)
    assert min(took) < most_s


def test_many_normal_values_give_the_interval_of_theory() -> None:
    """The logarithm of a normal deviation has the standard error 1 / sqrt(2 n)."""
    found = spread(np.random.default_rng(1).normal(10, 2, 5000), 1.0)
    upper, lower = known(found.bound(0.975)), known(found.bound(0.025))
    half = 1.96 / (2 * 5000) ** 0.5
    assert np.log(upper / found.value) == pytest.approx(half, rel=0.1)
    assert np.log(found.value / lower) == pytest.approx(half, rel=0.1)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5])
def test_of_skewed_values_no_end_is_absurd(sigma: float) -> None:
    """A studentised bootstrap said 12.3 of values up to 4.45, once in twenty even more."""
    chance = np.random.default_rng(2)
    for _ in range(100):
        values = chance.lognormal(0, sigma, 20)
        found = known(known(describe(values, time=1.0)).deviation)
        assert known(found.high) < min(4 * found.value, 1.5 * values.max())


def test_values_worth_fewer_than_eight_have_no_interval() -> None:
    values = np.random.default_rng(3).normal(size=20)
    assert spread(values, 2.4).bound(0.95) is not None
    assert spread(values, 2.6).bound(0.95) is None
    assert spread(values[:7], 1.0).bound(0.95) is None


def test_one_value_among_many_that_hang_together_bounds_nothing_from_above() -> None:
    values = np.zeros(1000)
    values[500] = 1.0
    assert spread(values, 100.0).bound(0.975) is None
    assert spread(values, 100.0).bound(0.025) is not None


def test_bounds_are_in_the_order_of_their_probability() -> None:
    found = spread(np.random.default_rng(5).lognormal(size=12), 1.2)
    bounds = [known(found.bound(each)) for each in (0.001, 0.05, 0.5, 0.95, 0.99)]
    assert bounds == sorted(bounds)
    assert bounds[2] == pytest.approx(found.value)
