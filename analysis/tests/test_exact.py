"""Exact bounds of shares, ranks and numbers of shots."""

from __future__ import annotations

import math

import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.tests.known import known
from mqtick.analysis.clocks.masks import FEWEST_FOR_MASKS
from mqtick.analysis.statistics.exact import (
    rank_above,
    rank_below,
    share_at_least,
    share_at_most,
    shots_to_tell,
    shots_with,
    student_quantile,
)
from mqtick.analysis.statistics.shots import table


@pytest.mark.parametrize(
    ("beyond", "n"), [(0, 20), (1, 20), (5, 20), (20, 20), (3, 1000), (10, 100_000)]
)
def test_clopper_and_pearsons_interval_is_scipys(beyond: int, n: int) -> None:
    low, high = scipy.stats.binomtest(beyond, n).proportion_ci(0.95, "exact")
    assert share_at_least(beyond, n, 0.975) == pytest.approx(low, rel=1e-6, abs=1e-12)
    assert share_at_most(beyond, n, 0.975) == pytest.approx(high, rel=1e-6)


@pytest.mark.parametrize(
    ("degrees", "published"), [(1, 12.706), (2, 4.303), (19, 2.093), (100, 1.984)]
)
def test_students_quantiles_are_those_of_the_tables(degrees: float, published: float) -> None:
    assert round(student_quantile(0.975, degrees), 3) == published
    assert student_quantile(0.025, degrees) == pytest.approx(-student_quantile(0.975, degrees))


@given(st.integers(1, 300), st.floats(0.01, 0.99))
@settings(max_examples=40)
def test_a_rank_bounds_no_tighter_than_the_binomial_chance_allows(n: int, share: float) -> None:
    rank = rank_above(n, n, share, 0.05)

    def chance_below(k: int) -> float:
        """That the k-th value lies below the quantile: at least k of n are below it."""
        return sum(math.comb(n, j) * share**j * (1 - share) ** (n - j) for j in range(k, n + 1))

    if rank is None:
        assert chance_below(n) > 0.05 * (1 - 1e-6)
    else:
        assert chance_below(rank) <= 0.05 * (1 + 1e-6)
        assert rank == 1 or chance_below(rank - 1) > 0.05 * (1 - 1e-6)
    mirrored = rank_below(n, n, 1 - share, 0.05)
    assert mirrored == (None if rank is None else n + 1 - rank)


@pytest.mark.parametrize(("allowed", "shots"), [(0.5, 5), (0.05, 59), (0.01, 299), (0.001, 2995)])
def test_so_many_shots_without_one_beyond_prove_a_quantile(allowed: float, shots: int) -> None:
    """The well-known sizes of a sample after Wilks, Annals of Mathematical Statistics 12, 1941."""
    assert shots_to_tell(allowed, 0.0, 0.95) == shots_with(allowed, 0, 0.95) == shots


def test_a_mask_takes_as_many_samples_as_a_maximum() -> None:
    assert shots_with(0.05, 0, 0.95) == FEWEST_FOR_MASKS


@pytest.mark.parametrize(("beyond", "shots"), [(0, 299), (1, 473), (2, 628)])
def test_each_shot_beyond_takes_more_of_them(beyond: int, shots: int) -> None:
    assert shots_with(0.01, beyond, 0.95) == shots


def test_the_table_says_how_many_shots_a_p99_takes() -> None:
    (line,) = [each for each in table().splitlines() if each.startswith("p99 ")]
    assert line.split()[1:5] == ["230", "299", "459", "473"]


def test_no_number_of_shots_tells_what_lies_on_the_limit() -> None:
    assert shots_to_tell(0.01, 0.01, 0.95) is None
    assert shots_to_tell(0.01, 0.009999999, 0.95) is None


def test_what_fails_by_far_takes_few_shots() -> None:
    assert shots_to_tell(0.01, 1.0, 0.95) == 1
    assert shots_to_tell(0.01, 0.02, 0.95) == pytest.approx(400, rel=0.3)


def test_fewer_effective_values_bound_less() -> None:
    assert rank_above(1000, 1000, 0.99, 0.025) is not None
    assert rank_above(1000, 300, 0.99, 0.025) is None
    tight, wide = (known(rank_above(1000, worth, 0.5, 0.025)) for worth in (1000, 50))
    assert tight < wide
