"""Limits in words, and verdicts that claim no more than the shots show."""

from __future__ import annotations

import dataclasses
import math
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN, Limit, Verdict, duration
from mqtick.analysis.statistics.limits import (
    PRESETS,
    STATISTICS,
    LimitError,
    default_limits,
    parse_limit,
)
from mqtick.analysis.statistics.verdicts import verdict_on


def limit(text: str) -> Limit:
    (found,) = parse_limit(text)
    return found


def verdict(
    text: str,
    values: object,
    confidence: float = 0.95,
    uncertainty_us: float = 0.0,
    missed: int = 0,
) -> Verdict:
    """Judge values each of which may be off by so much either way."""
    given = np.asarray(values, np.float64)
    within = given - uncertainty_us, given + uncertainty_us
    return verdict_on(limit(text), given, "N = 100", confidence, within, missed)


@pytest.mark.parametrize(
    ("text", "quantity", "statistic", "bound_us"),
    [
        ("skew.p99<100us", "skew", "p99", 100.0),
        ("latency.mean < 0.3 ms", "latency", "mean", 300.0),
        ("clock.max<1500ns", "clock", "max", 1.5),
        (" skew.sd<1e-3s ", "skew", "sd", 1000.0),
        ("skew.median<5.µs", "skew", "median", 5.0),
    ],
)
def test_a_limit_is_written_as_one_says_it(
    text: str, quantity: str, statistic: str, bound_us: float
) -> None:
    found = limit(text)
    assert (found.quantity, found.statistic) == (quantity, statistic)
    assert found.bound_us == pytest.approx(bound_us)
    assert found.name == text.strip()
    assert not found.inclusive


@pytest.mark.parametrize("statistic", ["mean", "median", "max"])
def test_less_or_equal_allows_the_bound_itself(statistic: str) -> None:
    assert limit(f"skew.{statistic}<=3us").inclusive
    assert verdict(f"skew.{statistic}<=3us", [3.0] * 60).state == HOLDS
    assert verdict(f"skew.{statistic}<3us", [3.0] * 60).state == FAILS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("c37.118", "did you mean c37.118-60"),
        ("published_skew", "did you mean published-skew"),
        ("skw.p99<3us", "did you mean skew"),
        ("skew.p98<3us", "did you mean p99"),
        ("skew.p99<3", "no unit"),
        ("skew.p99<3parsec", "'parsec'"),
        ("skew.p99<0us", "is 0 us"),
        ("skew.p99<1e999us", "is inf us"),
        ("skew.p99<nanus", "is not a limit"),
        ("skew.p99<-3us", "is not a limit"),
        ("skew.p99>3us", "is not a limit"),
        ("", "is not a limit"),
        ("\x1b[31mskew", r"\x1b"),
        ("x" * 10**6, "..."),
    ],
)
def test_what_is_no_limit_is_told_what_is_nearest(text: str, says: str) -> None:
    with pytest.raises(LimitError) as told:
        parse_limit(text)
    assert says in str(told.value)
    assert len(str(told.value)) < 400
    assert str(told.value).isascii()
    assert str(told.value).isprintable()


@given(st.text(max_size=60) | st.text(string.ascii_letters + ".<=-e0123456789 µ", max_size=60))
@settings(max_examples=60)
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        found = parse_limit(text)
    except LimitError:
        return
    assert all(math.isfinite(each.bound_us) and each.bound_us > 0 for each in found)


def test_a_preset_says_where_it_is_from_and_may_be_held_against_another_quantity() -> None:
    for name, limits in PRESETS.items():
        assert parse_limit(name) == limits
        assert all(each.source for each in limits)
    moved = limit("skew.c37.118-60")
    assert moved == dataclasses.replace(limit("c37.118-60"), quantity="skew", name=moved.name)


def test_presets_are_the_figures_of_their_documents() -> None:
    """1 % of total vector error is 0.01 rad of a cycle."""
    assert limit("c37.118-60").bound_us == pytest.approx(0.01 / (2 * math.pi * 60) * 1e6, abs=5e-3)
    assert limit("c37.118-50").bound_us == pytest.approx(0.01 / (2 * math.pi * 50) * 1e6, abs=5e-3)
    classes = [limit(f"g8271-{number}").bound_us for number in range(1, 7)]
    assert classes == [500_000, 100, 5, 1.5, 1, 0.5]
    assert (limit("published-skew").bound_us, limit("published-latency").bound_us) == (52, 300)


def test_each_kind_has_the_limits_that_it_is_made_for() -> None:
    names = [[each.name for each in default_limits(kind)] for kind in ("skew", "latency", "clock")]
    assert names == [["published-skew", "published-latency"], ["published-latency"], ["c37.118-60"]]
    assert default_limits("nothing") == ()


def test_twenty_shots_cannot_prove_a_p99() -> None:
    found = verdict("skew.p99<100us", [20.0, 21.0] * 10)
    assert found.state == NOT_PROVEN
    assert "none of 20 shots" in found.sentence
    assert "it takes 299 such shots" in found.sentence


def test_299_shots_without_one_beyond_prove_a_p99_and_298_do_not() -> None:
    values = np.random.default_rng(1).permutation(300)[:299] / 10
    assert verdict("skew.p99<100us", values).state == HOLDS
    assert verdict("skew.p99<100us", values[:298]).state == NOT_PROVEN
    assert verdict("skew.p99<100us", values, confidence=0.99).state == NOT_PROVEN


def test_shots_beyond_make_a_quantile_fail_once_chance_cannot_have_brought_them() -> None:
    """Of 20, two beyond a p99: chance does that once in 60; one, once in 5."""
    values = np.random.default_rng(3).uniform(1, 4, 20)
    values[7] = 20.0
    found = verdict("skew.p99<10us", values)
    assert found.state == NOT_PROVEN
    assert "1 of 20 shots has" in found.sentence
    values[15] = 30.0
    assert verdict("skew.p99<10us", values).state == FAILS


def test_the_sign_of_a_value_does_not_matter() -> None:
    values = np.random.default_rng(2).normal(0, 5, 50)
    assert verdict("skew.mean<9us", values) == verdict("skew.mean<9us", -values)


def test_a_mean_holds_fails_or_is_open_by_its_bounds() -> None:
    values = np.random.default_rng(3).normal(20, 10, 20)
    assert verdict("skew.mean<52us", values).state == HOLDS
    assert verdict("skew.mean<10us", values).state == FAILS
    found = verdict("skew.mean<22us", values)
    assert found.state == NOT_PROVEN
    assert "shots like these 20" in found.sentence
    assert found.value.value == pytest.approx(np.abs(values).mean())


def test_the_number_of_shots_that_it_would_take_is_about_enough() -> None:
    chance = np.random.default_rng(4)
    found = verdict("skew.mean<23us", chance.normal(20, 10, 20))
    needed = int(found.sentence.split("it takes about ")[1].split(" ")[0].replace(",", ""))
    held = sum(
        verdict("skew.mean<23us", chance.normal(20, 10, 2 * needed)).state == HOLDS
        for _ in range(20)
    )
    assert held >= 10


def test_a_deviation_is_judged_by_its_bound() -> None:
    values = np.random.default_rng(5).normal(100, 10, 50)
    assert verdict("skew.sd<20us", values).state == HOLDS
    assert verdict("skew.sd<5us", values).state == FAILS
    assert verdict("skew.sd<10us", values).state == NOT_PROVEN
    assert verdict("skew.sd<20us", [7.0] * 30).state == HOLDS


def test_a_maximum_fails_with_one_shot_and_holds_with_enough_that_keep_it() -> None:
    assert verdict("clock.max<10us", [1.0, 20.0]).state == FAILS
    few, many = verdict("clock.max<10us", [1.0] * 58), verdict("clock.max<10us", [1.0] * 59)
    assert (few.state, many.state) == (NOT_PROVEN, HOLDS)
    assert "none of 58 samples" in few.sentence
    assert "59 such samples" in few.sentence
    assert "at most 4.95 % of all" in many.sentence


@pytest.mark.parametrize("statistic", ["mean", "sd", "median", "p95", "p99", "max"])
@pytest.mark.parametrize("values", [[], [3.0]])
def test_one_shot_proves_nothing(statistic: str, values: list[float]) -> None:
    found = verdict(f"skew.{statistic}<100us", values)
    assert found.state == NOT_PROVEN
    assert found.n == len(values)


@pytest.mark.parametrize("statistic", ["mean", "sd", "median", "p95", "p99"])
def test_few_shots_prove_nothing(statistic: str) -> None:
    """Student's bound of a mean takes them for normal, which nobody knows of so few."""
    assert verdict(f"skew.{statistic}<100us", [3.0, 4.0, 3.5]).state == NOT_PROVEN
    assert verdict("skew.mean<100us", [3.0, 4.0]).state == NOT_PROVEN
    assert verdict("skew.mean<100us", [3.0, 4.0] * 3 + [3.5]).state == NOT_PROVEN
    assert verdict("skew.mean<100us", [3.0, 4.0] * 4).state == HOLDS
    assert "of only 7 shots" in verdict("skew.mean<1us", [3.0, 4.0] * 3 + [3.5]).sentence


@pytest.mark.parametrize("statistic", STATISTICS)
def test_shots_that_were_missed_are_no_shots_that_keep_a_limit(statistic: str) -> None:
    """What is too late for its record is just what is missed."""
    values = np.random.default_rng(9).normal(20, 2, 100)
    found = verdict(f"skew.{statistic}<52us", values, missed=900 if statistic != "p5" else 9000)
    assert found.state == NOT_PROVEN
    assert "missed" in found.sentence


def test_missed_shots_count_as_beyond_a_quantile() -> None:
    values = np.random.default_rng(9).permutation(1000) / 1e3
    assert verdict("skew.p95<52us", values, missed=10).state == HOLDS
    assert "10 more shots were missed" in verdict("skew.p95<52us", values, missed=10).sentence
    assert verdict("skew.p95<52us", values, missed=45).state == NOT_PROVEN
    found = verdict("skew.p95<52us", values, missed=100)
    assert found.state == NOT_PROVEN
    assert "it takes a run in which fewer are missed" in found.sentence
    assert verdict("skew.median<52us", values, missed=100).state == HOLDS


def test_one_missed_shot_proves_no_maximum() -> None:
    found = verdict("skew.max<52us", [20.0] * 10_000, missed=1)
    assert found.state == NOT_PROVEN
    assert "1 of 10,001 shots were missed" in found.sentence


@pytest.mark.parametrize("statistic", ["mean", "sd"])
def test_a_mean_holds_with_one_shot_of_a_hundred_missed_and_says_so(statistic: str) -> None:
    values = np.random.default_rng(9).normal(20, 2, 99)
    few = verdict(f"skew.{statistic}<52us", values, missed=1)
    many = verdict(f"skew.{statistic}<52us", values, missed=2)
    assert (few.state, many.state) == (HOLDS, NOT_PROVEN)
    assert "1 of 100 shots were missed" in few.sentence
    assert "2 of 101 shots were missed" in many.sentence


@pytest.mark.parametrize("statistic", STATISTICS)
def test_missed_shots_make_nothing_fail(statistic: str) -> None:
    values = np.random.default_rng(9).normal(20, 2, 100)
    state = {
        missed: verdict(f"skew.{statistic}<1us", values, missed=missed).state for missed in (0, 900)
    }
    assert state[0] == state[900]


def test_where_every_shot_was_missed_the_verdict_says_so() -> None:
    assert "nothing was measured (9 missed)" in verdict("skew.p99<1us", [], missed=9).sentence


def test_shots_that_hang_together_prove_less_and_the_sentence_says_so() -> None:
    values = 50 + np.cumsum(np.random.default_rng(6).normal(size=400)) / 10
    found = verdict("skew.p99<100us", values)
    assert found.state == NOT_PROVEN
    assert "as they are correlated" in found.sentence


def test_what_holds_only_within_the_measurements_uncertainty_is_not_proven() -> None:
    values = np.random.default_rng(7).uniform(9.0, 9.9, 400)
    assert verdict("skew.p99<10us", values, uncertainty_us=0.05).state == HOLDS
    found = verdict("skew.p99<10us", values, uncertainty_us=0.2)
    assert found.state == NOT_PROVEN
    assert "may be off by 200 ns either way" in found.sentence
    assert verdict("skew.max<9.8us", values, uncertainty_us=0.2).state == NOT_PROVEN
    assert verdict("skew.max<9.5us", values, uncertainty_us=0.2).state == FAILS


def test_equal_values_of_a_coarse_capture_show_no_small_deviation() -> None:
    assert verdict("skew.sd<1ns", [20.0] * 20, uncertainty_us=1.0).state == NOT_PROVEN
    assert verdict("skew.sd<2us", [20.0] * 20, uncertainty_us=1.0).state == HOLDS
    wide = np.tile([10.0, 30.0], 20)
    assert verdict("skew.sd<8us", wide, uncertainty_us=1.0).state == FAILS
    assert verdict("skew.sd<8us", wide, uncertainty_us=3.0).state == NOT_PROVEN


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("ends", [(-np.inf, np.inf), (0.0, np.inf), (-np.inf, 1.0)])
def test_values_that_nothing_bounds_keep_no_limit(
    statistic: str, ends: tuple[float, float]
) -> None:
    values = np.random.default_rng(1).permutation(400) / 400
    within = np.full(400, ends[0]), np.full(400, ends[1])
    found = verdict_on(limit(f"clock.{statistic}<26us"), values, "pi", within_us=within)
    assert found.state == NOT_PROVEN
    assert "nothing bounds the error of 400 of 400 samples" in found.sentence


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("statistic", ["mean", "median", "p95", "p99", "max"])
def test_a_lopsided_interval_counts_by_its_far_end(sign: int, statistic: str) -> None:
    """An error from 1 us ahead to 40 us behind may be 40 us, however near 0 the estimate is."""
    values = np.zeros(400)
    within = np.sort([values - sign * 1.0, values + sign * 40.0], axis=0)
    strict, loose = (
        verdict_on(limit(f"clock.{statistic}<{bound}us"), values, "pi", within_us=tuple(within))
        for bound in (26.53, 40.1)
    )
    assert (strict.state, loose.state) == (NOT_PROVEN, HOLDS)
    assert "off by 40 us" in strict.sentence


def test_the_values_own_intervals_decide_not_the_typical_one() -> None:
    """Two in a hundred may be 100 us off: of them p99 is made, whatever the median one is."""
    values = np.random.default_rng(10).normal(0, 1, 1000)
    off = np.where(np.arange(1000) % 50 == 0, 100.0, 1.0)
    within = values - off, values + off
    assert verdict_on(limit("clock.p99<26us"), values, "pi", within_us=within).state == NOT_PROVEN
    assert verdict_on(limit("clock.p95<26us"), values, "pi", within_us=within).state == HOLDS
    assert verdict_on(limit("clock.max<26us"), values, "pi", within_us=within).state == NOT_PROVEN


def test_what_lies_beyond_for_certain_fails_though_it_has_no_upper_bound() -> None:
    values = np.full(100, 50.0)
    within = np.full(100, 30.0), np.full(100, np.inf)
    assert verdict_on(limit("clock.p99<26us"), values, "pi", within_us=within).state == FAILS


@given(
    st.sampled_from(STATISTICS),
    st.lists(st.floats(-1e4, 1e4), max_size=40),
    st.floats(0.001, 1e4),
)
@settings(max_examples=40)
def test_a_wider_limit_is_never_judged_worse(
    statistic: str, values: list[float], bound_us: float
) -> None:
    order = [FAILS, NOT_PROVEN, HOLDS]
    array = np.array(values)
    strict, loose = (
        verdict_on(Limit("any", "skew", statistic, each), array, "all N")
        for each in (bound_us, 1.5 * bound_us)
    )
    assert order.index(strict.state) <= order.index(loose.state)
    assert strict.sentence.endswith(".")
    assert strict.sentence.startswith("all shots: ")


@pytest.mark.parametrize(
    ("value_us", "text"),
    [(0, "0 us"), (0.0265, "26.5 ns"), (26.53, "26.53 us"), (1500, "1.5 ms"), (2e6, "2 s")],
)
def test_a_duration_is_said_in_the_unit_that_suits_it(value_us: float, text: str) -> None:
    assert duration(value_us) == text


@pytest.mark.slow
@pytest.mark.parametrize("text", ["skew.mean<1us", "skew.p95<3us", "skew.median<0.7us"])
def test_a_limit_that_is_just_missed_seldom_holds(text: str) -> None:
    """Exponential values whose mean, p95 or median lies on the limit: 5 % may hold."""
    chance = np.random.default_rng(8)
    scale = {"mean": 1.0, "p95": 3 / math.log(20), "median": 0.7 / math.log(2)}
    statistic = limit(text).statistic
    held = sum(
        verdict(text, chance.exponential(scale[statistic], 60)).state == HOLDS for _ in range(400)
    )
    assert held / 400 <= 0.09
