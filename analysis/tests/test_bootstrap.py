"""Intervals hold the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.tests.coverage_found import KINDS, coverage
from mqtick.analysis.statistics.bootstrap import studentise


def test_many_normal_values_give_students_interval() -> None:
    values = np.random.default_rng(1).normal(10, 2, 200)
    found = studentise(values, 1.0)
    half = 1.972 * values.std(ddof=1) / 200**0.5
    assert found.bound(0.975) - found.value == pytest.approx(half, rel=0.08)
    assert found.value - found.bound(0.025) == pytest.approx(half, rel=0.08)


def test_an_interval_of_skewed_values_reaches_further_to_their_long_side() -> None:
    values = np.random.default_rng(2).lognormal(size=40)
    found = studentise(values, 1.0)
    assert found.bound(0.975) - found.value > 1.3 * (found.value - found.bound(0.025))


def test_blocks_and_single_values_agree_on_independent_values() -> None:
    """Beyond 256 values blocks are resampled: that may not change the interval."""
    values = np.random.default_rng(3).gamma(4.0, 1.0, 2000)
    found = studentise(values, 1.0)
    half = 1.961 * values.std(ddof=1) / 2000**0.5
    assert found.bound(0.975) - found.value == pytest.approx(half, rel=0.1)


def test_dependence_widens_an_interval_by_its_root() -> None:
    values = np.random.default_rng(4).normal(size=400)
    alone, together = (studentise(values, each) for each in (1.0, 4.0))
    wide = together.bound(0.975) - together.bound(0.025)
    narrow = alone.bound(0.975) - alone.bound(0.025)
    assert wide == pytest.approx(2 * narrow, rel=0.1)


def test_bounds_are_in_the_order_of_their_probability() -> None:
    found = studentise(np.random.default_rng(5).lognormal(size=12), 1.5)
    bounds = [found.bound(each) for each in (0.001, 0.05, 0.5, 0.95, 0.999)]
    assert bounds == sorted(bounds)


LEAST = {
    ("normal", 10): {"mean": 0.92, "deviation": 0.94},
    ("bimodal", 20): {"mean": 0.93, "deviation": 0.94},
    ("exponential", 10): {"mean": 0.91, "deviation": 0.89},
    ("exponential", 20): {"mean": 0.89, "deviation": 0.86},
    ("normal", 20): {
        "mean": 0.93,
        "mean below": 0.92,
        "deviation": 0.94,
        "median": 0.94,
        "p5": 0.95,
    },
    ("lognormal", 20): {
        "mean": 0.90,
        "mean below": 0.85,
        "deviation": 0.72,
        "median": 0.94,
        "p95": 0.95,
    },
    ("AR(1) 0.6", 20): {"mean": 0.84, "deviation": 0.69, "median": 0.79, "p99": 0.95},
    ("AR(1) 0.6", 100): {"mean": 0.93, "deviation": 0.94, "median": 0.95, "p99": 0.97},
    ("lognormal", 100): {"mean": 0.89, "deviation": 0.76, "median": 0.94, "p99": 0.95},
}
"""Coverage that docs/statistics.md states, less three standard errors of 500 records."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "n"), list(LEAST))
def test_intervals_hold_the_truth_as_often_as_the_manual_says(kind: str, n: int) -> None:
    assert kind in KINDS
    found = coverage(kind, n, 500, seed=2)
    for name, least in LEAST[kind, n].items():
        assert found[name] >= least, (name, found)
