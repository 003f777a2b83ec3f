"""Measurements held against each other: differences, ratios, ranks, and limits of a ratio."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from mqtick.analysis.measurement import Measurement
from mqtick.analysis.report.as_json import as_json
from mqtick.analysis.results.analyse import analyse
from mqtick.analysis.results.compare import RatioLimit, compare
from mqtick.analysis.results.result import Comparison, Result
from mqtick.analysis.statistics.estimate import Estimate
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN
from mqtick.analysis.statistics.ranks import holm, mann_whitney, signed_ranks
from mqtick.recording.shot import Shot


def result(
    scale: float,
    seed: int,
    *,
    shots: int = 200,
    dependence: float = 0.0,
    events: int = 0,
    missed: int = 0,
) -> Result:
    """Return the analysis of made-up latencies, log-normal around `scale` us, at N = 1 and 100.

    Those with the same `events` have in common what makes an event late. One shot of `missed` has
    no edge.
    """
    common = np.random.default_rng(events) if events else None
    random = np.random.default_rng(seed)
    made = []
    for subscribers in (1, 100):
        noise = random.normal(size=shots)
        for place in range(1, shots):
            noise[place] = dependence * noise[place - 1] + noise[place] * math.sqrt(
                1 - dependence**2
            )
        if common is not None:
            noise = 0.3 * noise + 3 * common.normal(size=shots)
        for value in scale * (1 + subscribers / 100) * np.exp(0.3 * noise):
            made.append(
                Shot(
                    len(made) + 1, subscribers, latency_fs=round(value * 1e9), started_ns=len(made)
                )
            )
    if missed:
        made = [shot for shot in made if (shot.number + seed) % missed]
    measurement = Measurement(title="made up", kind="latency", shots=made, nodes=("publisher",))
    return analyse(measurement, [], 0.95)


def of(found: tuple[Comparison, ...], statistic: str, subscribers: int = 1) -> Comparison:
    return next(x for x in found if (x.statistic, x.subscribers) == (statistic, subscribers))


def test_the_difference_and_the_ratio_are_those_that_were_put_in() -> None:
    found = compare(result(100, 1), [result(80, 2)])[0]
    for statistic in ("mean", "median", "p95"):
        each = of(found, statistic)
        assert each.ratio.low is not None
        assert each.ratio.high is not None
        assert each.ratio.low < 0.8 < each.ratio.high
        assert each.difference.value == pytest.approx(each.value.value - each.reference.value)
        assert each.shown == "less"
    growth = next(x for x in found if x.subscribers is None)
    assert growth.difference.value == pytest.approx(-0.2, abs=0.1)


@pytest.mark.slow
def test_equal_measurements_are_told_apart_as_seldom_as_it_is_said() -> None:
    """With dependence too: if it were left out, one in three would differ."""
    pairs = 100
    told, outside = 0, 0
    for seed in range(pairs):
        (found,) = compare(
            result(100, 2 * seed, shots=60, dependence=0.6),
            [result(100, 2 * seed + 1, shots=60, dependence=0.6)],
        )
        told += any(each.shown != "not shown" for each in found)
        mean = of(found, "mean").difference
        assert mean.low is not None
        assert mean.high is not None
        outside += not mean.low <= 0 <= mean.high
    assert told <= 12
    assert outside <= 12


@pytest.mark.parametrize(("most", "state"), [(0.9, HOLDS), (0.8, NOT_PROVEN), (0.7, FAILS)])
def test_a_limit_of_a_ratio_is_judged_by_its_interval(most: float, state: str) -> None:
    limit = RatioLimit("latency.mean<x", "latency", "mean", most)
    found = compare(result(100, 1), [result(80, 2)], [limit])[0]
    assert {each.state for each in found if each.limit} == {state}
    assert {each.statistic for each in found if each.limit} == {"mean"}


def test_few_shots_prove_nothing() -> None:
    found = compare(result(100, 1, shots=5), [result(50, 2, shots=5)])[0]
    assert {(each.p, each.shown) for each in found} == {(None, "not shown")}


def test_a_report_of_one_has_nothing_to_compare() -> None:
    assert as_json([result(100, 1)])["results"][0]["compared"] == []


def width(of_what: Estimate) -> float:
    assert of_what.low is not None
    assert of_what.high is not None
    return of_what.high - of_what.low


def test_shots_of_one_event_show_what_independent_ones_do_not() -> None:
    one, other = result(100, 1, shots=40, events=7), result(95, 2, shots=40, events=7)
    (apart,), (together,) = compare(one, [other]), compare(one, [other], paired=True)
    assert {each.test for each in apart if each.subscribers} == {"Mann-Whitney"}
    assert {each.test for each in together if each.subscribers} == {"Wilcoxon"}
    for statistic in ("mean", "median"):
        assert (of(apart, statistic).shown, of(together, statistic).shown) == ("not shown", "less")
        assert width(of(together, statistic).ratio) < width(of(apart, statistic).ratio) / 2
    low, high = of(together, "mean").ratio.low, of(together, "mean").ratio.high
    assert low is not None
    assert high is not None
    assert low < 0.95 < high


@pytest.mark.slow
@pytest.mark.parametrize("missed", [0, 10])  # shots without a partner may not make them narrower
@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_intervals_of_pairs_hold_the_truth_as_often_as_they_say(
    statistic: str, missed: int
) -> None:
    outside = 0
    for seed in range(100):
        pair = (
            result(100, 2 * seed + each, shots=60, events=seed + 1, missed=missed)
            for each in range(2)
        )
        ratio = of(compare(next(pair), [next(pair)], paired=True)[0], statistic).ratio
        assert ratio.low is not None
        assert ratio.high is not None
        outside += not ratio.low <= 1 <= ratio.high
    assert outside <= 12


def test_a_ratio_to_nothing_is_zero_and_can_be_judged() -> None:
    one, other = result(100, 1), result(0, 2)
    found = compare(one, [other], [RatioLimit("latency.mean<0.5x", "latency", "mean", 0.5)])[0]
    assert (of(found, "mean").ratio.value, of(found, "mean").state) == (0, HOLDS)


def test_every_measurement_more_raises_p() -> None:
    one, other = result(100, 1, shots=20), result(85, 2, shots=20)
    alone = of(compare(one, [other])[0], "mean").p
    beside = of(compare(one, [other, result(100, 3, shots=20)])[0], "mean").p
    assert alone is not None
    assert beside is not None
    assert beside > alone


@pytest.mark.parametrize("decimals", [3, 0])  # with 0, most values are equal to others
def test_tests_of_ranks_are_those_of_scipy(decimals: int) -> None:
    random = np.random.default_rng(3)
    one = np.round(random.normal(0.0, 2.0, 40), decimals)
    other = np.round(random.normal(0.8, 2.0, 40), decimals)
    p, less = mann_whitney(one, other)
    theirs = scipy.stats.mannwhitneyu(other, one, method="asymptotic")
    assert (p, less) == (pytest.approx(theirs.pvalue), False)
    p, less = signed_ranks(other - one)
    theirs = scipy.stats.wilcoxon(other - one, correction=True, method="asymptotic")
    assert (p, less) == (pytest.approx(theirs.pvalue), False)


def test_corrected_p_is_that_of_the_definition() -> None:
    # Each p times how many are not smaller, never below a smaller one's.
    assert holm([0.04, 0.01, 0.03, 0.5]) == pytest.approx([0.09, 0.04, 0.09, 0.5])


def test_intervals_are_about_those_of_a_bootstrap_of_pairs() -> None:
    one, other = result(100, 1, shots=100, events=7), result(90, 2, shots=100, events=7)
    values = [np.abs(each.quantities[0].values_us[:100]) for each in (one, other)]
    theirs = scipy.stats.bootstrap(
        values, lambda a, b, axis: b.mean(axis) / a.mean(axis), paired=True, rng=1
    ).confidence_interval
    (found,) = compare(one, [other], paired=True)
    ours = of(found, "mean").ratio
    assert width(ours) == pytest.approx(theirs.high - theirs.low, rel=0.25)
