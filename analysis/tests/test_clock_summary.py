"""What is said of one clock."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.tests.known import ends, known
from mqtick.analysis.clocks.grid import evenly, gaps, median_interval
from mqtick.analysis.clocks.summary import converged_from, summarise_clock
from mqtick.analysis.measurement import TimeErrors

Floats = npt.NDArray[np.float64]


def noise(n: int, sigma_ns: float = 1000.0, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(0.0, sigma_ns, n)


def errors(error_ns: Floats, seconds: Floats | None = None, reach_ns: float = 0.0) -> TimeErrors:
    if seconds is None:
        seconds = 2.0 * np.arange(error_ns.size)
    bounds = (error_ns - reach_ns, error_ns + reach_ns) if reach_ns else (None, None)
    return TimeErrors("node", seconds, error_ns, *bounds)


# ---- convergence -------------------------------------------------------------------------------


def test_a_clock_that_was_right_from_the_start_converged_at_once() -> None:
    assert converged_from(noise(500)) == 0


@given(st.integers(0, 1000))
@settings(max_examples=15)
def test_a_clock_that_finds_its_time_converges_when_it_is_near(seed: int) -> None:
    n = 600
    away = 1e7 * np.exp(-np.arange(n) / 10)  # within 3 spreads after 81 samples
    assert 65 <= known(converged_from(away + noise(n, 1000.0, seed))) <= 90


def test_one_outlier_is_no_convergence_undone() -> None:
    x = noise(500)
    x[100] = 1e9
    assert converged_from(x) == 0


def test_an_error_long_after_is_an_error_of_a_converged_clock() -> None:
    x = noise(500)
    x[300:330] += 1e6
    summary = summarise_clock(errors(x))
    assert summary.converged_after_s == 0.0
    assert summary.most_us > 900


def test_a_clock_that_drifts_away_never_converged_and_all_of_it_counts() -> None:
    summary = summarise_clock(errors(noise(400) + 40_000.0 * np.arange(400)))
    assert summary.converged_after_s is None
    assert summary.absolute.n == 400
    assert summary.notes[0] == (
        "The clock did not converge in the first half of its samples: all of them count."
    )


def test_few_samples_do_not_tell() -> None:
    assert converged_from(noise(19)) is None
    summary = summarise_clock(errors(noise(19), 7.0 + np.arange(19.0)))
    assert "19 samples do not show" in summary.notes[0]
    assert summary.after.error_ns.size == 19


def test_a_clock_that_never_moves_converged_at_once() -> None:
    assert converged_from(np.full(100, 5.0)) == 0
    assert converged_from(np.concatenate((np.full(30, 900.0), np.full(200, 5.0)))) == 30


def test_values_that_are_mostly_equal_have_a_band() -> None:
    x = np.where(np.random.default_rng(4).random(4000) < 0.1, 50.0, 0.0)
    assert converged_from(x) == 0


# ---- an even grid ------------------------------------------------------------------------------


def test_even_samples_stay_as_they_are() -> None:
    seconds, x = 16.0 * np.arange(50), noise(50)
    even = evenly(seconds, x)
    assert even.interval_s == 16.0
    assert len(even.parts) == 1
    assert even.parts[0] == pytest.approx(x)
    assert even.note == ""


def test_a_ramp_stays_a_ramp_however_uneven_its_samples_are() -> None:
    chance = np.random.default_rng(2)
    seconds = np.cumsum(chance.uniform(12.8, 19.2, 200))
    even = evenly(seconds, 40_000.0 * seconds)
    steps = np.diff(even.parts[0])
    assert steps == pytest.approx(np.full(steps.size, 40_000.0 * even.interval_s))
    assert f"on a grid of {even.interval_s:.4g} s" in even.note
    assert re.search(r"[0-9]+ samples are nearest to no instant and were left out", even.note)


def test_a_lost_sample_is_replaced_by_its_neighbour_and_counted() -> None:
    seconds = np.delete(np.arange(20.0), 7)
    even = evenly(seconds, noise(19))
    assert even.parts[0].size == 20
    assert "left out" not in even.note
    assert "1 of 20 instants share a sample" in even.note


def test_a_gap_parts_the_series_and_nothing_is_put_into_it() -> None:
    seconds = np.concatenate((np.arange(30.0), 1e6 + np.arange(20.0)))
    even = evenly(seconds, noise(50))
    assert [part.size for part in even.parts] == [30, 20]


@given(
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=60),
    st.floats(-1e9, 1e9),
)
@settings(max_examples=40)
def test_a_grid_is_never_much_larger_than_its_samples(steps: list[float], constant: float) -> None:
    seconds = np.concatenate(([0.0], np.cumsum(steps)))
    even = evenly(seconds, np.full(seconds.size, constant))
    assert sum(part.size for part in even.parts) <= 6 * seconds.size
    assert all(part == pytest.approx(constant) for part in even.parts)
    assert len(even.parts) == gaps(seconds).size + 1
    assert even.interval_s == median_interval(seconds)


def test_one_sample_has_no_grid() -> None:
    with pytest.raises(ValueError, match="no spacing"):
        evenly(np.zeros(1), np.zeros(1))


# ---- the summary -------------------------------------------------------------------------------


def test_constant_part_and_spread_are_told_apart() -> None:
    summary = summarise_clock(errors(12_000.0 + noise(2000)))
    constant, spread = summary.constant_us, summary.spread_us
    assert constant.value == pytest.approx(12.0, abs=0.1)
    low, high = ends(constant)
    assert low < 12.0 < high
    assert spread.value == pytest.approx(1.0, abs=0.1)
    assert summary.most_us == pytest.approx(summary.absolute.most)
    assert summary.interval_s == 2.0
    assert [each.name for each in summary.deviations] == ["MTIE", "TDEV", "ADEV"]
    assert summary.notes == ()


def test_the_interval_of_the_constant_part_respects_that_errors_hang_together() -> None:
    white = noise(2000)
    slow = np.convolve(noise(2400, seed=3), np.ones(100), "valid")[:2000]
    slow *= white.std() / slow.std()

    def width(x: Floats) -> float:
        low, high = ends(summarise_clock(errors(x)).constant_us)
        return high - low

    assert width(slow) > 4 * width(white)


def test_before_convergence_nothing_counts() -> None:
    x = noise(600) + 1e9 * np.exp(-np.arange(600) / 5)
    summary = summarise_clock(errors(x))
    assert 60 < known(summary.converged_after_s) < 200
    assert summary.most_us < 10
    assert summary.absolute.n < 600


def test_a_gap_is_a_holdover_with_what_it_cost() -> None:
    seconds = np.concatenate((np.arange(100.0), 400.0 + np.arange(100.0)))
    x = np.concatenate((np.zeros(100), np.full(100, 9000.0)))
    (holdover,) = summarise_clock(errors(x, seconds)).holdovers
    assert (holdover.begin_s, holdover.end_s, holdover.change_ns) == (99.0, 400.0, 9000.0)


@given(st.floats(-1e9, 1e9), st.integers(1, 40))
@settings(max_examples=30)
def test_a_clocks_seconds_may_begin_anywhere(begin_s: float, away: int) -> None:
    x = noise(100)
    x[:away] += 1e6
    seconds = begin_s + np.concatenate((np.arange(50.0), 90.0 + np.arange(50.0)))
    summary = summarise_clock(errors(x, seconds, reach_ns=1.0))
    assert summary.after.error_ns.tolist() == x[away:].tolist()
    assert summary.after.seconds[0] == seconds[away]
    assert known(summary.after.lower_ns).size == 100 - away
    assert summary.absolute.n == 100 - away
    assert summary.holdovers[0].begin_s == seconds[49]
    assert summary.holdovers[0].end_s == seconds[50]


def test_masks_are_judged_with_the_uncertainty_after_convergence() -> None:
    x = np.concatenate((np.full(40, 1e6), noise(160, 1.0)))
    off_ns = np.where(np.arange(200) < 40, 1e3, 1.0)
    certain = summarise_clock(errors(x), 0.95, off_ns)
    assert [each.holds for each in certain.masks if each.measure == "max|TE|"] == [True] * 3
    unknown = summarise_clock(errors(x), 0.95, np.inf)
    assert {each.holds for each in unknown.masks} == {None}


def test_the_longest_holdover_stands_first() -> None:
    seconds = np.concatenate((np.arange(50.0), 60 + np.arange(50.0), 300 + np.arange(50.0)))
    summary = summarise_clock(errors(noise(150), seconds))
    assert [each.end_s for each in summary.holdovers] == [300.0, 60.0]
    assert "more than five median intervals: 2" in summary.notes[0]
    assert summary.deviations[0].tau_s[-1] <= 25


def test_stated_intervals_that_leave_zero_out_are_counted() -> None:
    x = np.tile([500.0, -500.0, 2500.0, -2500.0], 50)
    assert summarise_clock(errors(x)).outside is None
    assert summarise_clock(errors(x, reach_ns=1000.0)).outside == 100


def test_a_missing_bound_leaves_nothing_out() -> None:
    x = np.full(40, 2500.0)
    half = TimeErrors("node", np.arange(40.0), x, np.where(np.arange(40) < 10, 1.0, np.nan))
    assert summarise_clock(half).outside == 10


@pytest.mark.parametrize("n", [1, 2, 3, 15])
def test_a_few_samples_are_summarised_without_stability(n: int) -> None:
    summary = summarise_clock(errors(noise(n)))
    assert summary.deviations == ()
    assert summary.absolute.n == n
    assert [each.measure for each in summary.masks] == ["max|TE|"] * 3
    assert "MTIE, TDEV and ADEV need 16 samples" in summary.notes[-1]
    assert len(summarise_clock(errors(noise(16))).deviations) == 3


def test_samples_with_gaps_everywhere_have_no_stability() -> None:
    steps = np.tile([1.0, 1.0, 1.0, 50.0], 20)
    summary = summarise_clock(errors(noise(80), np.cumsum(steps)))
    assert summary.deviations == ()
    assert len(summary.holdovers) == 20


@pytest.mark.parametrize(
    ("seconds", "values", "sentence"),
    [
        ([], [], "at least one"),
        ([0.0, 1.0], [1.0], "one for each instant"),
        ([0.0, 1.0], [1.0, float("nan")], "not numbers"),
        ([0.0, float("inf")], [1.0, 1.0], "not numbers"),
        ([0.0, 0.0], [1.0, 1.0], "do not increase"),
        ([1.0, 0.0], [1.0, 1.0], "do not increase"),
    ],
)
def test_what_is_no_time_error_is_refused(
    seconds: list[float], values: list[float], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        summarise_clock(errors(np.array(values), np.array(seconds)))
