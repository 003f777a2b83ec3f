"""The report on a terminal."""

from __future__ import annotations

import re

import numpy as np
import pytest

from analysis.tests.report_hostile import ODD, hostile_result
from analysis.tests.report_samples import (
    PATHOLOGICAL,
    clock_result,
    compare_results,
    latency_result,
    same_n,
    skew_result,
)
from mqtick.analysis.report.as_text import as_text


def test_title_answer_numbers_table_and_verdicts_come_in_this_order() -> None:
    text = as_text([skew_result()])
    parts = ("SIMULATED: ", "Of 100 subscribers", "mean |skew| at N = 100", "fails", "missed")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_shots_of_different_n_are_in_no_row_together() -> None:
    table = as_text([skew_result()]).split("|skew|, us\n")[1].split("\n\n")[0]
    assert re.findall(r"(?m)^ *(\S+) +40 ", table) == ["2", "10", "50", "100"]


def test_a_negative_skew_is_counted_and_explained() -> None:
    shots = np.array([-30.0, 20.0, 40.0, -5.0])
    said = " ".join(as_text([same_n(shots)]).split())
    assert "in 2 of 4 shots it is negative: the last to subscribe was served first" in said
    assert "to subscribe get a message" in said
    assert "negative" not in as_text([same_n(np.abs(shots))])


def test_missed_shots_have_their_reason() -> None:
    text = as_text([skew_result(missed=2)])
    assert "160 of 162 shots captured, 2 missed." in text
    assert "2 x no edge of last in its window" in text


def test_several_stand_one_below_the_other() -> None:
    text = as_text(compare_results())
    assert text.startswith("SIMULATED: Mosquitto 2.0 beside Hardware broker\n")
    assert "\nMosquitto 2.0\n" in text
    assert "\nHardware broker\n" in text


def test_clocks_have_a_table_of_their_own() -> None:
    text = as_text([clock_result(clocks=("rpi1", "rpi2"))])
    assert "constant" in text
    assert "\nrpi2 " in text


def test_what_was_measured_on_real_nodes_is_not_called_simulated() -> None:
    assert "SIMULATED" not in as_text([latency_result()])


@pytest.mark.parametrize("name", ODD)
def test_every_result_fits_a_hundred_columns_of_a_plain_terminal(name: str) -> None:
    text = as_text([PATHOLOGICAL[name]()])
    assert max(map(len, text.split("\n"))) < 100
    if name != "long title":
        text.encode("ascii")


def test_hostile_text_does_not_steer_the_terminal() -> None:
    text = as_text([hostile_result()])
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert max(map(len, text.split("\n"))) < 100


def test_a_row_of_which_many_shots_were_missed_is_marked() -> None:
    assert "2!" in as_text([skew_result(20, (2,), missed=2)])
    assert "!" not in as_text([skew_result(40, (2,), missed=2)])
