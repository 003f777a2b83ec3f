"""What both of Siglent's command sets write: names, numbers with units, words."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.lab.scope.contributed.siglent.values import (
    interleaved,
    nearest_depth,
    quantity,
    run_state,
)
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.settings import State


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.00GSa/s", 1e9),
        ("SARA 1.00GSa/s", 1e9),
        ("5.00E+08Sa/s", 5e8),
        ("500MSa/s", 5e8),
        ("50.0kSa/s", 5e4),
        ("SARA 1.25MSa", 1.25e6),
        ("2.00V", 2.0),
        ("C1:VDIV 5.00E-01V", 0.5),
        ("500mV", 0.5),
        ("500MV", 0.5),  # as users write millivolts, and as it may come back
        ("0.00E+00 V", 0.0),
        ("TRDL -5.000000ns", -5e-9),
        ("TDIV 5.00E-09S", 5e-9),
        ("5.00E-04s", 5e-4),
        ("14K", 14e3),
        ("1.4M", 1.4e6),
        ("140Mpts", 1.4e8),
        ("INR 8193", 8193),
        ("-1.65E+00", -1.65),
        (".5", 0.5),
    ],
)
def test_numbers_come_with_units_and_prefixes(text: str, value: float) -> None:
    assert quantity(text, "it") == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "****", "Undefined header", "DAT2,#9", "9.9E37", "V", "E5S"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InstrumentError):
        quantity(text, "the scale")


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    with contextlib.suppress(InstrumentError):
        assert abs(quantity(text, "it")) < 1e50


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("Stop", State.STOPPED),
        ("SAST Stop", State.STOPPED),
        ("FStop", State.STOPPED),
        ("Arm", State.PREPARING),  # takes what lies before the trigger: no trigger counts
        ("Armed", State.PREPARING),
        ("Ready", State.ARMED),
        ("Trig'd", State.TRIGGERED),
        ("SAST Trig`d", State.TRIGGERED),
        ("Auto", State.PREPARING),
        ("Roll", State.PREPARING),
    ],
)
def test_armed_is_not_ready(word: str, state: State) -> None:
    assert run_state(word) is state


@pytest.mark.parametrize("word", ["", "8193", "SAST", "1.00E+09", "Undefined header"])
def test_another_word_is_refused(word: str) -> None:
    with pytest.raises(InstrumentError):
        run_state(word)


def test_memory_is_the_nearest_that_there_is() -> None:
    depths = ["7K", "70K", "700K", "7M"]
    assert nearest_depth(depths, 10_000) == "7K"
    assert nearest_depth(depths, 100_000) == "70K"
    assert nearest_depth(depths, 500_000) == "700K"
    assert nearest_depth(depths, 10**9) == "7M"
    assert nearest_depth(depths, 0) == "7K"


def test_two_channels_share_a_converter() -> None:
    assert interleaved([1])
    assert interleaved([2, 3])
    assert not interleaved([1, 2])
    assert not interleaved([1, 3, 4])
