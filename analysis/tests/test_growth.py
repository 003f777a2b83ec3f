"""The line over N: robust, exact where the values are, and with intervals that hold it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from analysis.tests.known import ends, known
from mqtick.analysis.statistics.estimate import Estimate
from mqtick.analysis.statistics.growth import Line, fit_line
from mqtick.recording.published import PUBLISHED

N = np.tile([2, 10, 50, 100], 20)


def line(subscribers: object, values: object) -> Line:
    return known(fit_line(np.asarray(subscribers), np.asarray(values, np.float64)))


def test_the_published_skew_grows_by_2_985_us_a_subscriber() -> None:
    values = [PUBLISHED["skew", n].software_mean_us for n in (2, 100)]
    found = line([2, 100], values)
    assert found.b.value == pytest.approx((340.0 - 47.43) / 98)
    assert found.b.value == pytest.approx(2.985, abs=0.001)
    assert found.a.value == pytest.approx(41.46, abs=0.01)
    assert found.b.low is None, "one value at each N says nothing of how far it may be off"
    assert (found.n, found.subscribers) == (2, (2, 100))


def test_one_n_makes_no_line() -> None:
    assert fit_line(np.array([5, 5, 5]), np.array([1.0, 2.0, 3.0])) is None
    assert fit_line(np.array([], np.int64), np.array([])) is None


@given(st.floats(-1e3, 1e3), st.floats(-10, 10))
@settings(max_examples=10)
def test_exact_values_give_the_exact_line(a: float, b: float) -> None:
    found = line(N, a + b * N)
    assert found.a.value == pytest.approx(a, abs=1e-6)
    assert found.b.value == pytest.approx(b, abs=1e-8)
    assert found.b.low == pytest.approx(b, abs=1e-6)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=4)
def test_it_finds_the_line_under_heavy_tails_and_outliers(seed: int) -> None:
    chance = np.random.default_rng(seed)
    values = 40 + 3 * N + 10 * chance.standard_t(2, N.size)
    values[chance.permutation(N.size)[:8]] += chance.choice([-1, 1], 8) * 1e5
    found = line(N, values)
    assert found.a.value == pytest.approx(40, abs=12)
    assert found.b.value == pytest.approx(3, abs=0.25)


def test_exact_values_of_which_a_tenth_is_far_off_give_the_exact_line() -> None:
    values = 40.0 + 3.0 * N
    values[::10] += 1e6
    found = line(N, values)
    assert (found.a.value, found.b.value) == pytest.approx((40, 3))


@given(st.integers(0, 1000), st.floats(0.01, 100), st.integers(-500, 500), st.integers(-5, 5))
@settings(max_examples=3)
def test_another_unit_zero_or_slope_moves_the_line_and_its_interval_along(
    seed: int, scale: float, shift: int, slope: int
) -> None:
    values = 40 + 3 * N + np.random.default_rng(seed).normal(0, 30, N.size)
    one, other = line(N, values), line(N, scale * values + shift + slope * N)

    def close(found: Estimate, before: Estimate, moved: float) -> bool:
        now, then = (np.array([each.value, *ends(each)]) for each in (found, before))
        reach = 1e-5 * (scale * 100 + abs(moved))
        return bool(np.all(np.abs(now - scale * then - moved) <= reach))

    assert close(other.a, one.a, shift)
    assert close(other.b, one.b, slope)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_scipys_minimum_of_hubers_loss(seed: int) -> None:
    x = np.tile([2, 10, 100], 10)
    y = 40 + 3 * x + np.random.default_rng(seed).standard_t(2, x.size) * 20
    start = np.polyfit([2, 10, 100], [np.median(y[x == n]) for n in (2, 10, 100)], 1)
    scale = 1.4826 * np.median(np.abs(y - np.polyval(start, x)))
    best = optimize.least_squares(
        lambda of: y - np.polyval(of, x),
        start,
        loss="huber",
        f_scale=1.345 * scale,
        x_scale=[0.01, 1],
        **dict.fromkeys(("xtol", "ftol", "gtol"), 1e-15),
    )
    found = line(x, y)
    assert (found.b.value, found.a.value) == pytest.approx(tuple(best.x), rel=1e-5)


def test_many_shots_make_a_narrow_interval_in_no_more_time() -> None:
    chance = np.random.default_rng(1)
    widths = []
    for repeats in (20, 2000):
        n = np.tile([2, 10, 50, 100], repeats)
        low, high = ends(line(n, 40 + 3 * n + chance.normal(0, 30, n.size)).b)
        assert low < 3 < high
        widths.append(high - low)
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.4)


@pytest.mark.slow
@pytest.mark.parametrize("tail", ["normal", "heavy"])
def test_its_interval_holds_the_line_as_often_as_it_says(tail: str) -> None:
    chance = np.random.default_rng(2)
    held = np.zeros(2)
    for _ in range(300):
        noise = chance.normal(size=N.size) if tail == "normal" else chance.standard_t(2, N.size)
        found = line(N, 40 + 3 * N + 30 * noise)
        for place, (each, true) in enumerate(((found.a, 40), (found.b, 3))):
            low, high = ends(each)
            held[place] += low <= true <= high
    assert held.min() / 300 >= 0.90
