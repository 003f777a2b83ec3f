"""A measurement's result: what is counted, what stands in each row, and what is judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from analysis.tests.known import ends, known
from mqtick.analysis.measurement import (
    CAPTURED,
    CLOCK,
    LATENCY,
    MISSED,
    REFUSED,
    SKEW,
    Measurement,
    Shot,
    TimeErrors,
)
from mqtick.analysis.results.analyse import analyse
from mqtick.analysis.results.result import QuantityResult, Result
from mqtick.analysis.statistics.growth import time_within
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN
from mqtick.analysis.statistics.limits import parse_limit
from mqtick.recording.edges import Edge
from mqtick.recording.published import PUBLISHED

US = 10**9
NODES = ("pub", "first", "last")
PLAN = [2, 10, 50, 100]


def shot(number: int, subscribers: int, latency_us: float, skew_us: float, **more: object) -> Shot:
    latency, skew = round(latency_us * US), round(skew_us * US)
    marks = {
        "pub": Edge(0, True, 2_000_000),
        "first": Edge(latency, True, 3_000_000),
        "last": Edge(latency + skew, True, 5_000_000),
    }
    made = Shot(
        number,
        subscribers,
        started_ns=10**18 + number * 9 * 10**9,
        edges=marks,
        latency_fs=latency,
        skew_fs=skew,
    )
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def run(shots: list[Shot], kind: str = SKEW, **more: object) -> Measurement:
    made = Measurement("a run", kind, nodes=NODES, shots=shots, timebase_ppm=0.0)
    made.reference, made.first, made.last = NODES
    for name, value in more.items():
        setattr(made, name, value)
    return made


def as_published(rounds: int = 20) -> list[Shot]:
    """Shots around the published line of the software broker, with its spread at two."""
    chance = np.random.default_rng(1)
    plan = [n for _ in range(rounds) for n in PLAN]
    return [
        shot(place, n, chance.normal(462.2, 37), chance.normal(41.46 + 2.985 * n, 20))
        for place, n in enumerate(plan, 1)
    ]


@pytest.fixture(scope="module")
def published() -> Result:
    return analyse(run(as_published()))


def only(result: Result, quantity: str) -> QuantityResult:
    (found,) = [each for each in result.quantities if each.quantity == quantity]
    return found


def test_what_was_measured_for_comes_first(published: Result) -> None:
    assert [each.quantity for each in published.quantities] == [SKEW, LATENCY]
    turned = analyse(run(as_published(2), LATENCY))
    assert [each.quantity for each in turned.quantities] == [LATENCY, SKEW]


def test_there_is_a_row_for_each_n_with_the_published_beside_and_none_that_pools_them(
    published: Result,
) -> None:
    rows = only(published, SKEW).rows
    assert [row.subscribers for row in rows] == list(PLAN)
    assert [row.published for row in rows] == [PUBLISHED.get((SKEW, n)) for n in PLAN]
    assert [row.signed.n for row in rows if row.signed] == [20, 20, 20, 20]


def test_where_no_n_is_known_there_is_one_row() -> None:
    (row,) = only(analyse(run([shot(place, 0, 100, 10.0) for place in range(1, 4)])), SKEW).rows
    assert row.subscribers is None
    assert known(row.absolute).n == 3


def test_a_plan_that_goes_through_n_is_no_dependence(published: Result) -> None:
    ordered = sorted(as_published(), key=lambda each: each.subscribers)
    ordered = [dataclasses.replace(each, number=place) for place, each in enumerate(ordered)]
    for result in (published, analyse(run(ordered))):
        skew = only(result, SKEW)
        assert time_within(skew.subscribers, skew.values_us) < 80 / 60


def test_growth_is_the_published_one(published: Result) -> None:
    low, high = ends(known(only(published, SKEW).growth).b)
    assert low < 2.985 < high
    assert known(only(published, LATENCY).growth).b.value == pytest.approx(0, abs=0.3)


def test_growth_of_skew_is_of_its_absolute_values() -> None:
    shots = [shot(n, n, 100, (-1) ** n * (40.0 + 3 * n)) for n in range(2, 30)]
    growth = known(only(analyse(run(shots)), SKEW).growth)
    assert (growth.a.value, growth.b.value) == pytest.approx((40, 3))


def test_rows_are_of_signed_and_of_absolute_values() -> None:
    shots = [shot(place, 2, 100, 10.0 * (-1) ** place) for place in range(1, 21)]
    (row,) = only(analyse(run(shots)), SKEW).rows
    signed, absolute = known(row.signed), known(row.absolute)
    assert (signed.mean.value, absolute.mean.value) == pytest.approx((0, 10))
    assert (signed.least, signed.most) == (-10, 10)


def test_shots_without_a_value_are_counted_by_n_and_by_reason() -> None:
    shots = [
        shot(1, 2, 462, 47),
        Shot(2, 2, MISSED, "No trigger."),
        Shot(3, 100, MISSED, "No trigger."),
        Shot(4, 600, REFUSED, "The crowd is short."),
        shot(5, 2, 460, 40, edges={"pub": Edge(0, True, found=2)}, skew_fs=None),
        shot(6, 2, 461, 44, edges={name: Edge(0, True, clipped=True) for name in NODES}),
    ]
    result = analyse(run(shots))
    counts = result.counts
    assert (counts.shots, counts.captured, counts.missed, counts.refused) == (6, 3, 2, 1)
    assert (counts.doubled_edges, counts.clipped_edges, counts.missing_edges) == (1, 3, 2)
    assert counts.reasons == {"No trigger.": 2, "The crowd is short.": 1}
    rows = only(result, SKEW).rows
    assert [(row.subscribers, row.missed) for row in rows] == [
        (2, 2),
        (100, 1),
        (600, 1),
    ]
    assert rows[1].signed is None
    assert [row.missed for row in only(result, LATENCY).rows] == [1, 1, 1]


def test_uncertainty_is_that_of_both_edges_the_channels_and_the_time_base() -> None:
    measurement = run([shot(1, 2, 1000, 100)], channel_uncertainty_fs=1_000_000, timebase_ppm=25.0)
    result = analyse(measurement)
    assert only(result, SKEW).uncertainty_us == pytest.approx(0.008 + 0.001 + 100 * 25e-6)
    assert only(result, LATENCY).uncertainty_us == pytest.approx(0.005 + 0.001 + 1000 * 25e-6)


def test_drift_is_what_moves_at_every_n() -> None:
    shots = as_published(10)
    moved = [
        dataclasses.replace(each, skew_fs=(each.skew_fs or 0) + round(each.number * 3 * US))
        for each in shots
    ]
    still, drifting = (known(only(analyse(run(each)), SKEW).drift) for each in (shots, moved))
    assert not still.significant
    assert drifting.significant
    assert drifting.us_per_hour.value == pytest.approx(3 / 9 * 3600, rel=0.3)
    unknown = [dataclasses.replace(each, started_ns=None) for each in shots]
    assert only(analyse(run(unknown)), SKEW).drift is None


def test_verdicts_are_for_each_n_and_the_worst_stands_first(published: Result) -> None:
    of = [(each.limit.name, each.of) for each in published.verdicts]
    assert sorted(of) == sorted(
        (name, f"N = {n}") for name in ("published-skew", "published-latency") for n in PLAN
    )
    order = [FAILS, NOT_PROVEN, HOLDS]
    states = [order.index(each.state) for each in published.verdicts]
    assert states == sorted(states)
    state_of = {(each.limit.name, each.of): each.state for each in published.verdicts}
    assert state_of["published-skew", "N = 100"] == FAILS
    assert state_of["published-latency", "N = 2"] == FAILS
    assert all(each.sentence.startswith(each.of) for each in published.verdicts)


def test_a_limit_whose_quantity_was_not_measured_is_not_proven_and_says_so(
    published: Result,
) -> None:
    measurement = run(published.measurement.shots[:4])
    (found,) = analyse(measurement, parse_limit("clock.max<1us")).verdicts
    assert found.state == NOT_PROVEN
    assert "no clock was measured" in found.sentence
    assert found.n == 0


def test_nobody_is_judged_by_default_on_what_they_did_not_measure() -> None:
    shots = [dataclasses.replace(each, latency_fs=None) for each in as_published(2)]
    names = {each.limit.name for each in analyse(run(shots)).verdicts}
    assert names == {"published-skew"}
    empty = analyse(run([Shot(1, 2, MISSED, "No trigger.")]))
    assert [each.state for each in empty.verdicts] == [NOT_PROVEN]
    assert empty.quantities == ()
    assert empty.pairs is None


def test_nothing_at_all_has_a_result() -> None:
    for kind in (LATENCY, SKEW, CLOCK):
        result = analyse(Measurement("empty", kind))
        assert result.counts.shots == 0
        assert all(each.state == NOT_PROVEN for each in result.verdicts)


def test_an_n_at_which_nothing_was_captured_is_judged_not_proven() -> None:
    shots = [shot(1, 2, 462, 47), Shot(2, 100, MISSED, "No trigger.")]
    verdicts = analyse(run(shots), parse_limit("published-skew")).verdicts
    assert {each.of for each in verdicts} == {"N = 2", "N = 100"}
    assert all(each.state == NOT_PROVEN for each in verdicts)


def test_shots_of_unknown_n_make_one_row_and_one_verdict() -> None:
    shots = [shot(place, 0, 100 + place % 3, 20 + place % 5) for place in range(1, 31)]
    result = analyse(run(shots), parse_limit("published-skew"))
    assert [row.subscribers for row in only(result, SKEW).rows] == [None]
    assert only(result, SKEW).growth is None
    (found,) = result.verdicts
    assert (found.state, found.of) == (HOLDS, "all N")
    assert found.sentence.startswith("all shots: ")


def test_pairs_are_the_median_of_the_later_name_minus_the_earlier(published: Result) -> None:
    pairs = known(published.pairs)
    assert pairs.nodes == NODES
    latency, skew = only(published, LATENCY).values_us, only(published, SKEW).values_us
    assert pairs.median_us[0, 1] == pytest.approx(np.median(latency))
    assert pairs.median_us[1, 2] == pytest.approx(np.median(skew))
    assert pairs.median_us[2, 0] == pytest.approx(-np.median(latency + skew))
    assert (pairs.n == 80).all()


def test_two_nodes_make_no_matrix_and_nodes_that_never_meet_have_no_number() -> None:
    two = [shot(1, 2, 5, 1, edges={"pub": Edge(0, True), "first": Edge(US, True)})]
    assert analyse(run(two)).pairs is None
    apart = [
        shot(1, 2, 5, 1, edges={"pub": Edge(0, True), "first": Edge(US, True)}),
        shot(2, 2, 5, 1, edges={"pub": Edge(0, True), "last": Edge(2 * US, True)}),
    ]
    pairs = known(analyse(run(apart)).pairs)
    assert np.isnan(pairs.median_us[1, 2])
    assert pairs.n[1, 2] == 0


def pps(name: str, offset_us: float, n: int = 400) -> list[Shot]:
    chance = np.random.default_rng(2)
    return [
        Shot(
            place,
            started_ns=10**18 + place * 10**9,
            edges={"ref": Edge(0, True), name: Edge(0, True)},
            clock_fs={name: round(chance.normal(offset_us, 1) * US)},
        )
        for place in range(1, n + 1)
    ]


def test_clocks_are_told_apart_by_node_and_judged_by_node() -> None:
    measurement = Measurement("pps", CLOCK, nodes=("ref", "a", "b"), reference="ref")
    measurement.shots = [
        dataclasses.replace(one, clock_fs={**one.clock_fs, **other.clock_fs})
        for one, other in zip(pps("a", 5), pps("b", -80), strict=True)
    ]
    result = analyse(measurement)
    assert [(each.quantity, each.node) for each in result.quantities] == [
        (CLOCK, "a"),
        (CLOCK, "b"),
    ]
    assert [(each.of, each.state) for each in result.verdicts] == [("b", FAILS), ("a", HOLDS)]
    assert result.quantities[0].title == "Time error of a"
    assert result.quantities[0].growth is None


def log(error_ns: Sequence[float], half_ns: float | None = None) -> Measurement:
    errors = np.asarray(error_ns, np.float64)
    made = TimeErrors("pi", np.arange(errors.size) * 4.0, errors, source="samples of the client")
    if half_ns is not None:
        made = dataclasses.replace(made, lower_ns=errors - half_ns, upper_ns=errors + half_ns)
    return Measurement("log", CLOCK, time_errors=[made])


def test_a_sample_log_is_a_clock_whose_stated_interval_is_its_uncertainty() -> None:
    noise = np.random.default_rng(3).normal(5_000, 500, 1000)
    result = analyse(log(noise, 2_000))
    (clock,) = result.quantities
    assert (clock.quantity, clock.node, clock.values_us.size) == (CLOCK, "pi", 1000)
    assert clock.uncertainty_us == pytest.approx(2.0)
    assert [each.state for each in result.verdicts] == [HOLDS]
    (wide,) = analyse(log(noise, 40_000)).verdicts
    assert wide.state == NOT_PROVEN
    assert "either way" in wide.sentence


def test_a_clock_is_judged_from_its_convergence_on() -> None:
    noise = np.random.default_rng(4).normal(5_000, 500, 1000)
    noise[:50] += 1e6
    (found,) = analyse(log(noise, 2_000)).verdicts
    assert found.state == HOLDS
    assert "200 s until it had converged are left out" in found.sentence
    assert found.n == 950


@pytest.mark.parametrize("begin_s", [0.0, 3.0, 1e6])
def test_a_clock_whose_first_sample_is_late_is_judged_all_the_same(begin_s: float) -> None:
    """As with a clock whose first shot was missed: its seconds count from the first shot."""
    noise = np.random.default_rng(4).normal(0, 500, 1000)
    noise[:50] += 40e3
    measurement = log(noise, 2_000)
    (errors,) = measurement.time_errors
    moved = dataclasses.replace(errors, seconds=errors.seconds + begin_s)
    (found,) = analyse(dataclasses.replace(measurement, time_errors=[moved])).verdicts
    assert (found.state, found.n) == (HOLDS, 950)
    assert "the 200 s until" in found.sentence


@pytest.mark.parametrize("bound", ["lower_ns", "upper_ns"])
def test_a_log_that_bounds_no_error_from_both_sides_proves_nothing(bound: str) -> None:
    """One-way samples have a lower bound only: how late the clock really is, nobody knows."""
    noise = np.random.default_rng(3).normal(0, 500, 1000)
    measurement = log(noise)
    assert [each.state for each in analyse(measurement).verdicts] == [NOT_PROVEN]
    (errors,) = measurement.time_errors
    half = dataclasses.replace(errors, **{bound: noise})
    (found,) = analyse(dataclasses.replace(measurement, time_errors=[half])).verdicts
    assert found.state == NOT_PROVEN
    assert "nothing bounds the error of 1,000 of 1,000 samples" in found.sentence
    assert {each.holds for each in analyse(measurement).clocks[0].masks} == {None}


def test_missed_shots_keep_a_limit_from_holding_but_refused_ones_do_not() -> None:
    shots = [shot(place, 2, 100, 20 + place % 3) for place in range(1, 101)]

    def with_others(outcome: str) -> list[str]:
        others = [Shot(place, 2, outcome, "No trigger.") for place in range(101, 1001)]
        limits = [parse_limit(f"skew.{each}<52us")[0] for each in ("p95", "max", "mean", "sd")]
        return [each.state for each in analyse(run([*shots, *others]), limits).verdicts]

    assert with_others(MISSED) == [NOT_PROVEN] * 4
    assert with_others(REFUSED) == [HOLDS] * 4


def test_a_shot_without_the_edge_in_question_was_missed_for_it_alone() -> None:
    shots = [shot(place, 2, 100, 20 + place % 3) for place in range(1, 101)]
    shots += [shot(place, 2, 100, 0, skew_fs=None) for place in range(101, 111)]
    limits = [parse_limit(text)[0] for text in ("skew.max<52us", "latency.max<300us")]
    found = {each.limit.quantity: each for each in analyse(run(shots), limits).verdicts}
    assert (found[SKEW].state, found[LATENCY].state) == (NOT_PROVEN, HOLDS)
    assert "10 of 110 shots were missed" in found[SKEW].sentence


def test_shots_are_missed_at_their_own_n_only() -> None:
    shots = [shot(place, 2 + place % 2, 100, 20) for place in range(1, 201)]
    shots += [Shot(place, 3, MISSED, "No trigger.") for place in range(201, 301)]
    found = {
        each.of: each.state for each in analyse(run(shots), parse_limit("skew.p95<52us")).verdicts
    }
    assert found == {"N = 2": HOLDS, "N = 3": NOT_PROVEN}


def test_what_holds_says_how_many_damaged_files_it_knows_nothing_of() -> None:
    shots = [shot(place, 2, 100, 20) for place in range(1, 101)]
    for damaged, words in (([], ""), (["a"], "1 damaged file "), (["a", "b"], "2 damaged files ")):
        (found,) = analyse(run(shots, damaged=damaged), parse_limit("skew.max<52us")).verdicts
        assert found.state == HOLDS
        assert words in found.sentence
        assert ("damaged" in found.sentence) == bool(words)


def test_a_clock_that_never_answered_is_not_proven() -> None:
    measurement = Measurement("pps", CLOCK, nodes=("ref", "pi4", "pi5"), reference="ref")
    measurement.shots = pps("pi4", 5)
    states = {each.of: each.state for each in analyse(measurement).verdicts}
    assert states == {"pi4": HOLDS, "pi5": NOT_PROVEN}
    measurement.shots = [Shot(1, 0, MISSED, "No trigger.")]
    states = {each.of: each.state for each in analyse(measurement).verdicts}
    assert states == {"pi4": NOT_PROVEN, "pi5": NOT_PROVEN}


def clocked(offsets_us: Sequence[float], **more: float) -> Measurement:
    """Shots of one clock, one a second, None where its edge is missing."""
    made = Measurement("pps", CLOCK, nodes=("ref", "a"), reference="ref", **more)  # type: ignore[arg-type]
    seen = np.isfinite(offsets_us)
    made.shots = [
        Shot(place, clock_fs={"a": round(each * US)}) if fine else Shot(place, 0, MISSED, "None.")
        for place, (each, fine) in enumerate(zip(offsets_us, seen, strict=True), 1)
    ]
    seconds = np.arange(len(offsets_us), dtype=np.float64)[seen]
    errors_ns = np.asarray(offsets_us)[seen] * 1e3
    made.time_errors = [TimeErrors("a", seconds, errors_ns, source="pps edges")]
    return made


def test_two_instruments_are_each_wrong_over_the_whole_time_since_their_trigger() -> None:
    shots = [shot(number, 2, 10_000, 5) for number in range(1, 10)]
    one, two = (run(shots, timebase_ppm=25.0, instruments=many) for many in (1, 2))
    edges_us = 0.008
    assert only(analyse(one), SKEW).uncertainty_us == pytest.approx(edges_us + 5 * 25e-6)
    assert only(analyse(two), SKEW).uncertainty_us == pytest.approx(edges_us + 20_005 * 25e-6)


def test_a_time_base_is_as_wrong_as_what_is_judged_is_long() -> None:
    """Half a second before convergence is 12.5 us at 25 ppm; of 20 us it is half a nanosecond."""
    offsets = np.random.default_rng(5).normal(20, 0.1, 400)
    offsets[:20] = 500_000.0
    measurement = clocked(offsets)
    (found,) = analyse(measurement).verdicts
    assert (found.state, found.n) == (HOLDS, 380)
    assert analyse(measurement).quantities[0].uncertainty_us == pytest.approx(12.5)


def test_what_a_clock_missed_before_it_converged_is_left_out_too() -> None:
    offsets = np.random.default_rng(5).normal(20, 0.1, 400)
    offsets[:20] = 500_000.0
    offsets[3:8] = np.nan
    assert [each.state for each in analyse(clocked(offsets)).verdicts] == [HOLDS]
    offsets[100:105] = np.nan
    (found,) = analyse(clocked(offsets)).verdicts
    assert found.state == NOT_PROVEN
    assert "5 more samples were missed" in found.sentence


def test_a_clock_that_is_hours_off_until_it_converges_is_judged_by_what_is_left() -> None:
    offsets = np.full(60, 20.0)
    offsets[:25], offsets[40:] = 1e10, 1e10
    for shown in (offsets, offsets[::-1]):
        (found,) = analyse(clocked(shown)).verdicts
        assert found.state == NOT_PROVEN


def test_a_clock_seen_by_its_pps_is_told_to_have_no_whole_seconds() -> None:
    assert "whole seconds reads 0" in analyse(clocked([1.0] * 30)).clocks[0].notes[-1]
    notes = analyse(log([1.0] * 30)).clocks[0].notes
    assert not any("whole seconds" in each for each in notes)


def test_numbers_that_no_run_can_have_are_left_out() -> None:
    far = 10**400
    shots = [
        shot(1, 2, 462, 47),
        shot(2, 2, 462, 47, skew_fs=far, started_ns=far),
        shot(3, 2, 462, 47, latency_fs=-far, edges={"pub": Edge(far, True), "last": Edge(0, True)}),
    ]
    result = analyse(run(shots))
    assert only(result, SKEW).values_us.tolist() == pytest.approx([47, 47])
    assert only(result, LATENCY).values_us.tolist() == pytest.approx([462, 462])
    assert np.isnan(only(result, LATENCY).seconds).tolist() == [False, True]


@pytest.mark.parametrize("confidence", [0.0, 0.3, 1.0, 95.0, float("nan")])
def test_a_confidence_that_is_none_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="usually"):
        analyse(Measurement("empty", SKEW), confidence=confidence)


def test_only_captured_shots_bring_values() -> None:
    found = [
        analyse(run([shot(1, 2, 462, 47, outcome=outcome)])).quantities
        for outcome in (CAPTURED, MISSED, REFUSED)
    ]
    assert [len(each) for each in found] == [2, 0, 0]
