"""The statistics of a run, and how they are told."""

from __future__ import annotations

import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.lab.runner.summary import Statistics, Summary, summarise_shots
from mqtick.recording.published import PUBLISHED
from mqtick.recording.shot import CAPTURED, MISSED, REFUSED, Shot

US = 10**9


def summary(*shots: Shot, kind: str = "skew", simulated: bool = False) -> Summary:
    return summarise_shots(shots, title="a run", kind=kind, simulated=simulated)


def skew(number: int, subscribers: int, value_us: float) -> Shot:
    return Shot(number, subscribers, CAPTURED, skew_fs=round(value_us * US))


@given(st.lists(st.integers(-(10**12), 10**12), min_size=2, max_size=50))
def test_statistics_are_those_of_the_standard_library(values_fs: list[int]) -> None:
    found = Statistics.of(values_fs)
    assert found is not None
    values = [value / US for value in values_fs]
    assert found.n == len(values)
    assert found.mean_us == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert found.deviation_us == pytest.approx(statistics.stdev(values), abs=1e-6)
    assert found.median_us == pytest.approx(statistics.median(values), abs=1e-6)
    assert found.least_us <= found.median_us <= found.p99_us <= found.most_us


def test_one_value_has_no_deviation_and_none_no_statistics() -> None:
    one = Statistics.of([US])
    assert one is not None
    assert one.deviation_us is None
    assert Statistics.of([]) is None


def test_reasons_that_differ_in_numbers_only_are_one() -> None:
    late = [f"far has {n} edges, the first {n}.5 us late (input 2)." for n in (1, 1200)]
    other = "client:pi8 did not answer.", "client:pi7 did not answer."
    found = summary(*(Shot(n, 2, MISSED, why) for n, why in enumerate((*other, *late), 1)))
    assert found.reasons == {
        f"{late[0]} (and others with other numbers)": 2,
        "client:pi8 did not answer.": 1,
        "client:pi7 did not answer.": 1,
    }


def test_rows_are_by_quantity_and_n_and_count_what_failed() -> None:
    found = summary(
        skew(1, 100, 340),
        skew(2, 2, 40),
        skew(3, 2, 60),
        Shot(4, 2, MISSED, "No trigger."),
        Shot(5, 600, REFUSED, "The crowd is short."),
    )
    told = [(row.subscribers, row.missed, row.refused) for row in found.rows]
    assert told == [(2, 1, 0), (100, 0, 0), (600, 0, 1)]
    first = found.rows[0].statistics
    assert first is not None
    assert (first.n, first.mean_us) == (2, 50.0)
    assert found.rows[2].statistics is None
    assert found.reasons == {"No trigger.": 1, "The crowd is short.": 1}


def test_published_figures_stand_beside_their_own_n_only() -> None:
    found = summary(skew(1, 2, 40), skew(2, 10, 40), skew(3, 100, 40))
    assert [row.published for row in found.rows] == [
        PUBLISHED["skew", 2],
        None,
        PUBLISHED["skew", 100],
    ]
    assert "340 +- 86.32 | 19.92 +- 13.62" in found.as_text()


def test_the_kind_of_the_run_comes_first() -> None:
    both = Shot(1, 2, CAPTURED, skew_fs=1, latency_fs=2)
    assert [row.quantity for row in summary(both).rows] == ["skew", "latency"]
    assert [row.quantity for row in summary(both, kind="latency").rows] == ["latency", "skew"]


def test_each_clock_has_its_row() -> None:
    shot = Shot(1, 0, CAPTURED, clock_fs={"pi1": US, "pi2": -US})
    found = summary(shot, kind="clock")
    assert [row.quantity for row in found.rows] == ["clock pi1", "clock pi2"]
    assert "(pi2)" in found.as_text()


def test_what_is_simulated_says_so_and_what_is_not_does_not() -> None:
    assert summary(skew(1, 2, 1), simulated=True).as_text().startswith("SIMULATED")
    one = Shot(1, 2, CAPTURED, skew_fs=1, simulated=True)
    assert summary(one).simulated
    assert "SIMULATED" not in summary(skew(1, 2, 1)).as_text()


def test_it_takes_as_many_shots_to_bound_a_p99_as_the_report_says() -> None:
    told = summary(*(skew(n, 2, n) for n in range(298))).as_text()
    assert "p99 of 298 shots" in told
    assert "takes 299 or more" in told
    assert "p99 of" not in summary(*(skew(n, 2, n) for n in range(299))).as_text()


def test_a_run_of_missed_shots_only_can_be_told() -> None:
    found = summary(Shot(1, 2, MISSED, "No trigger."))
    assert "1 x No trigger." in found.as_text()
    json.dumps(found.as_json(), allow_nan=False)
