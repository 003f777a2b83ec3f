"""Tables beside the report: what a spreadsheet or a program reads is what was measured."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.tests.report_hostile import ODD, hostile_result
from analysis.tests.report_samples import (
    PATHOLOGICAL,
    clock_result,
    compare_results,
    mixed_result,
    skew_result,
)
from mqtick.analysis.report.tables import tables_of


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_result_has_the_tables_that_apply_to_it() -> None:
    assert set(tables_of([clock_result()])) == {"statistics.csv", "verdicts.csv", "stability.csv"}
    assert set(tables_of([mixed_result()])) == {
        "statistics.csv",
        "shots.csv",
        "edges.csv",
        "pairs.csv",
        "verdicts.csv",
        "stability.csv",
    }


def test_every_shot_has_a_row_and_a_missed_one_its_reason() -> None:
    result = skew_result()
    rows = rows_of(tables_of([result])["shots.csv"])
    assert len(rows) == len(result.measurement.shots)
    for row, shot in zip(rows, result.measurement.shots, strict=True):
        assert row["outcome"] == shot.outcome
        assert row["reason"] == shot.reason
        if shot.skew_fs is None:
            assert row["skew_us"] == ""
        else:
            assert float(row["skew_us"]) == pytest.approx(shot.skew_fs / 1e9, abs=1e-5)
    assert rows[0]["started_utc"] == "2026-11-18T11:06:40.000000000Z"


def test_statistics_have_signed_and_absolute_values_of_every_n_and_pool_none() -> None:
    rows = rows_of(tables_of([skew_result()])["statistics.csv"])
    skew = [row for row in rows if row["quantity"] == "skew"]
    assert [row["subscribers"] for row in skew[::2]] == ["2", "10", "50", "100"]
    assert {row["values"] for row in skew} == {"signed", "absolute"}
    assert skew[0]["published_software_mean_us"] == "47.43"
    assert (
        float(skew[0]["mean_low_us"]) < float(skew[0]["mean_us"]) < float(skew[0]["mean_high_us"])
    )


def test_of_several_measurements_every_row_says_of_which_it_is() -> None:
    rows = rows_of(tables_of(compare_results())["statistics.csv"])
    assert {row["measurement"] for row in rows} == {"Mosquitto 2.0", "Hardware broker"}


def test_measurements_of_one_title_are_told_apart() -> None:
    rows = rows_of(tables_of([skew_result(), skew_result()])["verdicts.csv"])
    assert len({row["measurement"] for row in rows}) == 2


def test_stability_has_every_observation_interval_with_its_unit() -> None:
    result = clock_result()
    rows = rows_of(tables_of([result])["stability.csv"])
    assert len(rows) == sum(len(each.tau_s) for each in result.clocks[0].deviations)
    assert {row["measure"]: row["unit"] for row in rows} == {
        "MTIE": "ns",
        "TDEV": "ns",
        "ADEV": "1",
    }


def test_columns_say_their_unit() -> None:
    unitless = {
        *("n", "effective_n", "missed", "subscribers", "confidence", "shot", "tau_s"),
        "samples_in_rise",
    }
    for text in tables_of([mixed_result()]).values():
        for row in rows_of(text)[:3]:
            for name, value in row.items():
                if value.replace(".", "").lstrip("-").isdigit() and "found" not in name:
                    ends = name.endswith(("_us", "_s", "value", "low", "high")) or "clipped" in name
                    assert ends or name in unitless, name


def test_no_cell_is_a_formula_and_none_steers_a_terminal() -> None:
    for text in tables_of([hostile_result()]).values():
        for row in csv.reader(io.StringIO(text)):
            for cell in row:
                assert not cell.startswith(("=", "+", "@", "\t", "\r"))
                assert not cell.startswith("-") or float(cell) < 0
        text.encode()
        assert "\x1b" not in text


@given(st.text())
def test_whatever_a_reason_is_the_table_keeps_its_shape(reason: str) -> None:
    result = PATHOLOGICAL["nothing captured"]()
    shots = [replace(shot, reason=reason) for shot in result.measurement.shots]
    result = replace(result, measurement=replace(result.measurement, shots=shots))
    rows = list(csv.reader(io.StringIO(tables_of([result])["shots.csv"])))
    assert len(rows) == 6
    assert {len(row) for row in rows} == {len(rows[0])}


@pytest.mark.parametrize("name", ODD)
def test_no_result_is_too_odd_for_tables(name: str) -> None:
    for text in tables_of([PATHOLOGICAL[name]()]).values():
        assert "nan" not in text
        assert "inf," not in text


def test_every_edge_has_a_row_that_says_how_it_was_found() -> None:
    result = skew_result(n=3)
    shots = result.measurement.shots
    mark = replace(shots[0].edges["rpi1"], quality="fitted", samples_in_rise=0.8)
    shots = [replace(shots[0], edges={**shots[0].edges, "rpi1": mark}), *shots[1:]]
    result = replace(result, measurement=replace(result.measurement, shots=shots))
    rows = rows_of(tables_of([result])["edges.csv"])
    assert len(rows) == sum(len(shot.edges) for shot in shots)
    own = next(row for row in rows if (row["shot"], row["node"]) == ("1", "rpi1"))
    assert (own["quality"], own["samples_in_rise"]) == ("fitted", "0.8")
    assert float(own["edge_us"]) == pytest.approx(mark.instant_fs / 1e9)
    assert {row["quality"] for row in rows} == {"fitted", "between samples"}
