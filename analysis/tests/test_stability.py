"""MTIE, TDEV and ADEV against published numbers, other people's programs and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.tests.clock_vectors import IN_SECONDS, MEASURES, NBS_9, NS, Floats, nist_1000, vectors
from analysis.tests.foreign_clocks import allantools
from analysis.tests.known import known
from mqtick.analysis.clocks import stability
from mqtick.analysis.clocks.stability import adev, default_factors, mtie, tdev


@pytest.mark.parametrize(
    ("measure", "x", "factors", "published"),
    [
        ("adev", nist_1000(), [1, 10, 100], [2.922319e-01, 9.159953e-02, 3.241343e-02]),
        ("tdev", nist_1000(), [1, 10, 100], [1.687202e-01, 3.563623e-01, 1.253382e00]),
        ("adev", NBS_9, [1, 2], [91.22945, 85.95287]),
        ("tdev", NBS_9, [1, 2], [52.67135, 86.35831]),
    ],
)
def test_the_1000_points_and_the_nine_frequencies_give_what_nist_sp_1065_prints(
    measure: str, x: Floats, factors: list[int], published: list[float]
) -> None:
    found = MEASURES[measure]([x * NS], 1.0, factors)
    assert found.tau_s.tolist() == factors
    assert found.value * IN_SECONDS[measure] == pytest.approx(published, rel=5e-7)


@pytest.mark.parametrize("measure", ["adev", "tdev"])
def test_values_and_intervals_are_those_of_stable32(
    measure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which was told that the noise is white frequency."""
    monkeypatch.setattr(stability, "noise_exponents", lambda *_: (0,))
    factors, low, value, high = np.array(vectors("stable32.json")[measure]).T
    found = MEASURES[measure]([nist_1000() * NS], 1.0, factors.astype(int).tolist(), 0.683)
    assert found.value * IN_SECONDS[measure] == pytest.approx(value, rel=5e-5)
    assert known(found.low) * IN_SECONDS[measure] == pytest.approx(low, rel=5e-4)
    assert known(found.high) * IN_SECONDS[measure] == pytest.approx(high, rel=5e-4)


def test_mtie_is_that_of_stable32() -> None:
    factors, _, value, _ = zip(*vectors("stable32.json")["mtie"], strict=True)
    found = mtie([nist_1000() * NS], 1.0, [int(factor) for factor in factors])
    assert found.value / NS == pytest.approx(value, rel=5e-5)
    assert found.low is None


@pytest.mark.parametrize("measure", list(MEASURES))
def test_values_are_those_that_allantools_computed(measure: str) -> None:
    theirs = vectors("allantools.json")
    found = MEASURES[measure]([nist_1000() * NS], theirs["tau0_s"], theirs["factors"])
    expected = theirs[{"adev": "oadev"}.get(measure, measure)]
    assert found.value * IN_SECONDS[measure] == pytest.approx(expected, rel=1e-9)


# ---- brute force -------------------------------------------------------------------------------


def brute(measure: str, parts: list[Floats], m: int) -> float:
    """As the definitions stand, one term after the other; ns, ADEV ns a sample."""
    if measure == "mtie":
        return max(np.ptp(x[i : i + m + 1]) for x in parts for i in range(x.size - m))
    if measure == "adev":
        squares = [
            (x[i + 2 * m] - 2 * x[i + m] + x[i]) ** 2 for x in parts for i in range(x.size - 2 * m)
        ]
        return float(np.sqrt(np.mean(squares) / 2) / m)
    squares = [
        np.mean(x[j + 2 * m : j + 3 * m] - 2 * x[j + m : j + 2 * m] + x[j : j + m]) ** 2
        for x in parts
        for j in range(x.size - 3 * m + 1)
    ]
    return float(np.sqrt(np.mean(squares) / 6))


PART = arrays(np.float64, st.integers(4, 25), elements=st.integers(-1_000_000, 1_000_000))


@pytest.mark.parametrize("measure", list(MEASURES))
@given(parts=st.lists(PART, min_size=1, max_size=3))
@settings(max_examples=15)
def test_every_measure_is_its_definition_and_never_reaches_across_a_gap(
    measure: str, parts: list[Floats]
) -> None:
    reach = {"mtie": 1, "adev": 2}.get(measure, 3)
    longest = max(part.size for part in parts)
    most = (longest - 1) // reach if measure in ("mtie", "adev") else longest // reach
    found = MEASURES[measure](parts, 1.0, range(1, most + 1))
    scale = NS if measure == "adev" else 1.0
    expected = [brute(measure, parts, m) for m in range(1, most + 1)]
    assert found.value * scale == pytest.approx(expected, rel=1e-6, abs=1e-3)


@given(arrays(np.float64, st.integers(3, 200), elements=st.integers(-(10**9), 10**9)))
@settings(max_examples=25)
def test_mtie_never_decreases_and_ends_with_the_range(x: Floats) -> None:
    found = mtie([x], 1.0, range(1, x.size))
    assert np.all(np.diff(found.value) >= 0)
    assert found.value[-1] == np.ptp(x)
    assert mtie([-x[::-1]], 1.0, range(1, x.size)).value.tolist() == found.value.tolist()


@given(offset=st.integers(-(10**12), 10**12), frequency=st.integers(-100_000, 100_000))
@settings(max_examples=10)
def test_a_constant_offset_counts_nowhere_and_a_frequency_offset_in_mtie_alone(
    offset: int, frequency: int
) -> None:
    x = np.round(nist_1000()[:300] * 1000)
    line = offset + frequency * np.arange(x.size)
    assert mtie([x + offset], 1.0).value == pytest.approx(mtie([x], 1.0).value)
    for measure in (tdev, adev):
        found = measure([x + line], 1.0, [1, 5, 60])
        assert found.value == pytest.approx(measure([x], 1.0, [1, 5, 60]).value, rel=1e-3)


def test_a_frequency_offset_makes_mtie_grow_with_tau() -> None:
    found = mtie([40.0 * np.arange(100)], 2.0)
    assert found.value == pytest.approx(20.0 * found.tau_s)


def test_default_taus_reach_half_the_record_for_mtie_and_a_quarter_for_the_others() -> None:
    x = nist_1000()
    assert 700 < mtie([x], 2.0).tau_s[-1] <= 1001
    assert 350 < tdev([x], 2.0).tau_s[-1] <= 500
    assert np.all(np.diff(mtie([x], 2.0).tau_s) > 0)


def test_default_factors_are_dense_and_whole() -> None:
    assert default_factors(0) == []
    assert default_factors(1) == [1]
    assert default_factors(12) == [1, 2, 3, 4, 5, 6, 8, 10]
    assert len(default_factors(1_000_000)) == 58


def test_a_constant_clock_is_perfectly_stable() -> None:
    for measure in MEASURES.values():
        assert np.all(measure([np.full(64, 7.0)], 1.0).value == 0)


@pytest.mark.slow
@pytest.mark.parametrize("measure", list(MEASURES))
def test_values_are_those_of_allantools_today(measure: str) -> None:
    chance = np.random.default_rng(5)
    x = np.cumsum(chance.normal(size=20_000)) * 1e-9 + chance.normal(size=20_000) * 1e-8
    factors = [1, 2, 3, 7, 20, 100, 333, 1000, 4000]
    theirs = allantools({"adev": "oadev"}.get(measure, measure), x, 0.25, factors)
    ours = MEASURES[measure]([x * NS], 0.25, factors)
    assert theirs["factors"] == factors
    assert ours.value * IN_SECONDS[measure] == pytest.approx(theirs["values"], rel=1e-8)
