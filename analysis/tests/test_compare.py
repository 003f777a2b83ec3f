"""Measurements held against each other: differences, ratios, ranks, and limits of a ratio."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mqtick.analysis.measurement import Measurement
from mqtick.analysis.report.as_json import as_json
from mqtick.analysis.results.analyse import analyse
from mqtick.analysis.results.compare import RatioLimit, compare
from mqtick.analysis.results.result import Comparison, Result
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN
from mqtick.recording.shot import Shot


def result(scale: float, seed: int, *, shots: int = 200, dependence: float = 0.0) -> Result:
    """Return the analysis of made-up latencies, log-normal around `scale` us, at N = 1 and 100."""
    random = np.random.default_rng(seed)
    made = []
    for subscribers in (1, 100):
        noise = random.normal(size=shots)
        for place in range(1, shots):
            noise[place] = dependence * noise[place - 1] + noise[place] * math.sqrt(
                1 - dependence**2
            )
        for value in scale * (1 + subscribers / 100) * np.exp(0.3 * noise):
            made.append(
                Shot(
                    len(made) + 1, subscribers, latency_fs=round(value * 1e9), started_ns=len(made)
                )
            )
    measurement = Measurement(title="made up", kind="latency", shots=made, nodes=("publisher",))
    return analyse(measurement, [], 0.95)


def of(found: tuple[Comparison, ...], statistic: str, subscribers: int = 1) -> Comparison:
    return next(x for x in found if (x.statistic, x.subscribers) == (statistic, subscribers))


def test_the_difference_and_the_ratio_are_those_that_were_put_in() -> None:
    found = compare(result(100, 1), result(80, 2))
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
        found = compare(
            result(100, 2 * seed, shots=60, dependence=0.6),
            result(100, 2 * seed + 1, shots=60, dependence=0.6),
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
    found = compare(result(100, 1), result(80, 2), [limit])
    assert {each.state for each in found if each.limit} == {state}
    assert {each.statistic for each in found if each.limit} == {"mean"}


def test_few_shots_prove_nothing() -> None:
    found = compare(result(100, 1, shots=5), result(50, 2, shots=5))
    assert {(each.p, each.shown) for each in found} == {(None, "not shown")}


def test_a_report_of_one_has_nothing_to_compare() -> None:
    assert as_json([result(100, 1)])["results"][0]["compared"] == []
