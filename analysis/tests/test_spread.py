"""The interval of a standard deviation: near the values also where they are skewed."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.tests.known import known
from mqtick.analysis.statistics.describe import describe
from mqtick.analysis.statistics.spread import spread


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
