"""The line over time: what moved, and what only wandered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.tests.coverage_found import autoregressive
from analysis.tests.known import ends, known
from mqtick.analysis.statistics.drift import Drift, fit_drift

SECONDS = np.arange(200) * 9.0


def drift(seconds: object, values: object) -> Drift:
    return known(fit_drift(np.asarray(seconds), np.asarray(values, np.float64)))


@given(st.floats(-1, 1), st.floats(-1e3, 1e3))
@settings(max_examples=20)
def test_an_exact_line_is_found_exactly(us_per_s: float, start: float) -> None:
    found = drift(SECONDS, start + us_per_s * SECONDS)
    assert found.us_per_hour.value == pytest.approx(3600 * us_per_s, abs=1e-5)
    assert found.total_us == pytest.approx(us_per_s * SECONDS[-1], abs=1e-5)


def test_a_drift_stands_out_of_noise_and_outliers() -> None:
    chance = np.random.default_rng(1)
    values = 0.01 * SECONDS + chance.normal(size=200)
    values[::15] += 500
    found = drift(SECONDS, values)
    assert found.significant
    assert found.us_per_hour.value == pytest.approx(36, rel=0.1)
    low, high = ends(found.us_per_hour)
    assert low < 36 < high


def test_order_and_gaps_do_not_matter() -> None:
    chance = np.random.default_rng(2)
    values = 0.01 * SECONDS + chance.normal(size=200)
    mixed = chance.permutation(200)
    gaps = np.concatenate((SECONDS[mixed], [np.nan]))
    assert drift(gaps, [*values[mixed], 1.0]) == drift(SECONDS, values)


def test_too_few_values_or_one_instant_say_nothing() -> None:
    assert fit_drift(SECONDS[:9], np.ones(9)) is None
    assert fit_drift(np.zeros(50), np.arange(50.0)) is None
    assert fit_drift(np.full(50, np.nan), np.arange(50.0)) is None


def test_equal_values_do_not_drift() -> None:
    found = drift(SECONDS, np.full(200, 7.0))
    assert not found.significant
    assert found.us_per_hour.value == 0


def test_what_only_wanders_is_seldom_called_a_drift() -> None:
    """Of 40 records 2; without regard for dependence it were about 23."""
    chance = np.random.default_rng(3)
    called = sum(drift(SECONDS, autoregressive(0.8)(chance, 200)).significant for _ in range(40))
    assert called <= 7


@pytest.mark.slow
@pytest.mark.parametrize(("strength", "n", "most"), [(0, 20, 0.08), (0.6, 100, 0.09)])
def test_its_interval_holds_the_slope_as_often_as_it_says(
    strength: float, n: int, most: float
) -> None:
    chance = np.random.default_rng(4)
    called = sum(
        drift(np.arange(n), autoregressive(strength)(chance, n)).significant for _ in range(600)
    )
    assert called / 600 <= most
