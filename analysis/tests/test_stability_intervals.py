"""Confidence intervals of deviations: chi-square, degrees of freedom, kinds of noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from analysis.tests.clock_vectors import MEASURES, NS, Floats, vectors
from analysis.tests.known import known
from mqtick.analysis.clocks import stability
from mqtick.analysis.clocks.noise import degrees_of_freedom, noise_exponents
from mqtick.analysis.clocks.stability import adev


def test_degrees_of_freedom_are_those_that_allantools_computed() -> None:
    rows = vectors("allantools.json")["degrees_of_freedom"]
    assert len(rows) > 150
    for alpha, factor, points, modified, expected in rows:
        terms = points - (3 * factor - 1 if modified else 2 * factor)
        found = degrees_of_freedom(alpha, factor, terms, modified=modified)
        assert found == pytest.approx(expected, rel=1e-3), (alpha, factor, points, modified)


@pytest.mark.parametrize(("sums", "alpha"), [(0, 2), (1, 0), (2, -2)])
def test_white_and_random_walk_noise_are_recognised_at_every_factor(sums: int, alpha: int) -> None:
    x = np.random.default_rng(1).normal(size=8000)
    for _ in range(sums):
        x = np.cumsum(x)
    for factor in (1, 2, 8, 32, 128):
        assert alpha in noise_exponents(x, factor)
    assert noise_exponents(x, 1) == (alpha,)


def test_too_few_values_have_no_noise_exponent() -> None:
    assert noise_exponents(np.arange(29.0), 1) == ()
    assert noise_exponents(np.arange(290.0), 11) == ()


def test_where_the_noise_is_not_known_the_interval_is_the_widest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.random.default_rng(2).normal(size=20)

    def upper() -> float:
        return float(known(adev([x], 1.0, [2]).high)[0])

    assert noise_exponents(x, 2) == ()
    unknown = upper()
    of_each = []
    for alpha in (2, 1, 0, -1, -2):
        monkeypatch.setattr(stability, "noise_exponents", lambda *_, alpha=alpha: (alpha,))
        of_each.append(upper())
    assert unknown == max(of_each)


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["tdev", "adev"])
@pytest.mark.parametrize("sums", [0, 1])
def test_a_95_percent_interval_holds_the_truth_in_about_95_percent(measure: str, sums: int) -> None:
    chance = np.random.default_rng(3)
    factors = np.array([1, 4, 16, 40])
    inside = np.zeros(factors.size)
    rounds = 1000
    for _ in range(rounds):
        x = chance.normal(size=200)
        x = np.cumsum(x) if sums else x
        found = MEASURES[measure]([x], 1.0, factors.tolist())
        truth = _truth(measure, sums, factors)
        inside += (known(found.low) <= truth) & (truth <= known(found.high))
    assert np.all(inside / rounds > 0.91), inside  # found: 93 to 97 %
    assert np.all(inside / rounds < 0.99), inside


def _truth(measure: str, sums: int, m: npt.NDArray[np.int_]) -> Floats:
    """Of white phase noise (sums 0) and white frequency noise (1) of 1 ns a sample of 1 s."""
    if measure == "adev":
        return np.asarray((np.sqrt(3.0) / m if sums == 0 else 1 / np.sqrt(m)) / NS, np.float64)
    if sums == 0:
        return np.asarray(1 / np.sqrt(m), np.float64)
    return np.asarray(np.sqrt((m + 1 / m) / 6), np.float64)
