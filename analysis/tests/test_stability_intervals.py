"""Confidence intervals of deviations: chi-square, degrees of freedom, kinds of noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.tests.clock_vectors import MEASURES, NS, Floats, vectors
from mqtick.analysis.clocks import stability
from mqtick.analysis.clocks.chi_square import chi_square_quantile, chi_square_share
from mqtick.analysis.clocks.noise import degrees_of_freedom, noise_exponents
from mqtick.analysis.clocks.stability import adev


def test_degrees_of_freedom_are_those_that_allantools_computed() -> None:
    rows = vectors("allantools.json")["degrees_of_freedom"]
    assert len(rows) > 150
    for alpha, factor, points, modified, expected in rows:
        terms = points - (3 * factor - 1 if modified else 2 * factor)
        found = degrees_of_freedom(alpha, factor, terms, modified=modified)
        assert found == pytest.approx(expected, rel=1e-3), (alpha, factor, points, modified)


def test_chi_square_quantiles_are_those_of_scipy() -> None:
    for share, degrees, expected in vectors("allantools.json")["chi_square"]:
        exact = 1e-5 if degrees > 2000 else 1e-10
        assert chi_square_quantile(share, degrees) == pytest.approx(expected, rel=exact)


@pytest.mark.parametrize(
    ("share", "degrees", "published"),
    [
        (0.95, 1, 3.841),
        (0.975, 5, 12.833),
        (0.025, 5, 0.831),
        (0.99, 10, 23.209),
        (0.01, 10, 2.558),
        (0.05, 30, 18.493),
        (0.975, 100, 129.561),
    ],
)
def test_chi_square_quantiles_are_those_of_the_tables(
    share: float, degrees: int, published: float
) -> None:
    assert round(chi_square_quantile(share, degrees), 3) == published


@given(st.floats(0.001, 0.999), st.floats(0.2, 1500))
@settings(max_examples=30)
def test_a_quantile_has_the_share_below_it(share: float, degrees: float) -> None:
    assert chi_square_share(chi_square_quantile(share, degrees), degrees) == pytest.approx(share)


def test_a_quantile_that_does_not_exist_is_refused() -> None:
    for share, degrees in ((0.0, 1.0), (1.0, 1.0), (0.5, 0.0), (float("nan"), 1.0)):
        with pytest.raises(ValueError, match=r"share|degrees"):
            chi_square_quantile(share, degrees)


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
        high = adev(x, 1.0, [2]).high
        assert high is not None
        return float(high[0])

    assert noise_exponents(x, 2) == ()
    unknown = upper()
    known = []
    for alpha in (2, 1, 0, -1, -2):
        monkeypatch.setattr(stability, "noise_exponents", lambda *_, alpha=alpha: (alpha,))
        known.append(upper())
    assert unknown == max(known)


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
        found = MEASURES[measure](x, 1.0, factors)
        assert found.low is not None
        assert found.high is not None
        truth = _truth(measure, sums, factors)
        inside += (found.low <= truth) & (truth <= found.high)
    assert np.all(inside / rounds > 0.91), inside  # found: 93 to 97 %
    assert np.all(inside / rounds < 0.99), inside


def _truth(measure: str, sums: int, m: npt.NDArray[np.int_]) -> Floats:
    """Of white phase noise (sums 0) and white frequency noise (1) of 1 ns a sample of 1 s."""
    if measure == "adev":
        return np.asarray((np.sqrt(3.0) / m if sums == 0 else 1 / np.sqrt(m)) / NS, np.float64)
    if sums == 0:
        return np.asarray(1 / np.sqrt(m), np.float64)
    return np.asarray(np.sqrt((m + 1 / m) / 6), np.float64)


def test_an_impossible_confidence_or_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="confidence"):
        adev([1.0, 2.0, 4.0, 3.0], 1.0, confidence=1.0)
    with pytest.raises(ValueError, match="alpha 3"):
        degrees_of_freedom(3, 1, 10, modified=False)
