"""Exact distributions, against scipy's."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.analysis.statistics.exact import (
    beta_quantile,
    beta_share,
    rank_above,
    rank_below,
    share_at_least,
    share_at_most,
    shots_to_tell,
    student_quantile,
)
from mqtick.analysis.statistics.shots import shots_with, table

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "vectors" / "statistics.json").read_text(encoding="utf-8")
)


def test_the_beta_function_is_scipys() -> None:
    for a, b, x, expected in VECTORS["beta_share"]:
        assert beta_share(a, b, x) == pytest.approx(expected, rel=1e-7, abs=1e-10)


def test_students_quantiles_are_scipys() -> None:
    for share, degrees, expected in VECTORS["student"]:
        assert student_quantile(share, degrees) == pytest.approx(expected, rel=1e-6)


def test_clopper_and_pearsons_interval_is_scipys() -> None:
    for beyond, n, low, high in VECTORS["clopper_pearson"]:
        assert share_at_least(beyond, n, 0.975) == pytest.approx(low, rel=1e-6, abs=1e-12)
        assert share_at_most(beyond, n, 0.975) == pytest.approx(high, rel=1e-6)


def test_ranks_that_bound_a_quantile_are_scipys() -> None:
    for case in VECTORS["quantiles"]:
        values = sorted(case["values"])
        n = len(values)
        low = rank_below(n, n, case["share"], 0.025)
        high = rank_above(n, n, case["share"], 0.025)
        assert (None if low is None else values[low - 1]) == case["low"]
        assert (None if high is None else values[high - 1]) == case["high"]


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


@given(st.floats(0.5, 500), st.floats(0.5, 500), st.floats(0.001, 0.999))
@settings(max_examples=40)
def test_a_quantile_undoes_a_share(a: float, b: float, share: float) -> None:
    x = beta_quantile(a, b, share)
    assert x <= 1e-12 or x >= 1 - 1e-12 or beta_share(a, b, x) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize(("allowed", "shots"), [(0.5, 5), (0.05, 59), (0.01, 299), (0.001, 2995)])
def test_so_many_shots_without_one_beyond_prove_a_quantile(allowed: float, shots: int) -> None:
    """The well-known sizes of a sample after Wilks, Annals of Mathematical Statistics 12, 1941."""
    assert shots_to_tell(allowed, 0.0, 0.95) == shots


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
    tight, wide = rank_above(1000, 1000, 0.5, 0.025), rank_above(1000, 50, 0.5, 0.025)
    assert tight is not None
    assert wide is not None
    assert tight < wide
