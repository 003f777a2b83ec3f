"""The report for machines."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.tests.report_hostile import ODD, hostile_result
from analysis.tests.report_samples import (
    HARDWARE,
    PATHOLOGICAL,
    clock_result,
    mixed_result,
    skew_result,
)
from mqtick.analysis.report.as_json import FORMAT, VERSION, as_json


def numbers_in(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers_in(each)]
    if isinstance(value, list):
        return [number for each in value for number in numbers_in(each)]
    return [value] if isinstance(value, float) else []


def test_it_says_its_format_and_whether_the_limits_hold() -> None:
    said = as_json([skew_result()])
    assert (said["format"], said["version"]) == (FORMAT, VERSION)
    assert said["holds"] is False
    assert as_json([skew_result(limits=())])["holds"] is None


def test_it_holds_only_when_every_verdict_does() -> None:
    software, hardware = skew_result(), skew_result(broker=HARDWARE, missed=0)
    assert as_json([hardware])["holds"] is True
    assert as_json([software, hardware])["holds"] is False


def test_estimates_have_their_interval_and_keys_their_unit() -> None:
    quantity = as_json([skew_result()])["results"][0]["quantities"][0]
    row = quantity["rows"][0]["absolute"]
    assert row["mean_us"]["low"] < row["mean_us"]["value"] < row["mean_us"]["high"]
    assert set(quantity["growth"]) == {"a_us", "b_us_per_subscriber", "n", "subscribers"}
    assert [each["subscribers"] for each in quantity["rows"]] == [2, 10, 50, 100]


@pytest.mark.parametrize("name", ODD)
def test_every_result_is_strict_json_and_comes_back_as_it_went(name: str) -> None:
    said = as_json([PATHOLOGICAL[name]()])
    assert json.loads(json.dumps(said, allow_nan=False)) == said


def test_what_is_no_number_is_null() -> None:
    result = mixed_result()
    assert result.pairs is not None
    pairs = replace(result.pairs, median_us=np.full((4, 4), np.nan))
    said = as_json([replace(result, pairs=pairs)])
    assert said["results"][0]["pairs"]["median_us"] == [[None] * 4] * 4
    assert all(map(math.isfinite, numbers_in(said)))


def test_clocks_have_their_parts_and_their_stability() -> None:
    clock = as_json([clock_result()])["results"][0]["clocks"][0]
    assert {each["measure"] for each in clock["deviations"]} == {"MTIE", "TDEV", "ADEV"}
    assert clock["constant_us"]["value"] == pytest.approx(1.2, abs=0.2)
    assert clock["holdovers"][0]["end_s"] == 2100.0


def test_hostile_text_is_text_that_can_be_written() -> None:
    text = json.dumps(as_json([hostile_result()]), ensure_ascii=False)
    text.encode()
    assert "\\u001b" not in text


def test_every_channel_says_how_its_edges_were_found() -> None:
    edges = as_json([skew_result()])["results"][0]["edges"]
    assert [each["channel"] for each in edges] == ["publisher", "rpi1", "rpi2"]
    assert edges[1]["median_uncertainty_us"] == 0.004
    assert {"fitted", "interpolated", "between_samples", "largest_uncertainty_us"} <= set(edges[0])
