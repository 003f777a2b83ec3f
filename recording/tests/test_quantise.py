"""Volts become the converter's codes again, and no value is moved by more than a part of a step."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.recording.edges import find_edges, state_levels
from mqtick.recording.quantise import waveform_of_volts

# What is noisy has neighbouring codes somewhere.
RECORDS = st.lists(st.integers(0, 254), min_size=30, max_size=200).map(
    lambda codes: [*codes, *(code + 1 for code in codes[:20])]
)


@given(
    codes=RECORDS,
    step=st.floats(1e-5, 10),
    zero=st.integers(-300, 300),
    narrow=st.booleans(),
)
@settings(max_examples=25)
def test_codes_come_back_from_volts_in_64_and_32_bits(
    codes: list[int], step: float, zero: int, narrow: bool
) -> None:
    volts = (np.array(codes) - zero) * step
    given_volts = volts.astype(np.float32) if narrow else volts
    waveform = waveform_of_volts(given_volts, 1, 0)
    assert np.abs(waveform.volts() - volts).max() <= step / 100
    # of few codes the step is divided, so that find_edges has a hundred to work with
    ratio = step / waveform.volts_per_code
    assert ratio == pytest.approx(round(ratio), rel=1e-3)
    assert 1 <= round(ratio) <= max(1, 2 * 128 / (max(codes) - min(codes)))


@given(codes=st.lists(st.integers(0, 4095), min_size=50, max_size=80))
@settings(max_examples=25)
def test_twelve_bits_rounded_to_three_digits_lose_less_than_a_digit(codes: list[int]) -> None:
    volts = np.array([float(f"{code * 0.0008:.3f}") for code in codes])
    found = waveform_of_volts(volts, 1, 0).volts()
    assert np.abs(found - volts).max() <= 0.0005


@given(
    st.lists(
        st.floats(-1e6, 1e6, allow_nan=False).map(lambda v: round(v, 9)), min_size=1, max_size=60
    )
)
@settings(max_examples=50)
def test_any_volts_come_back_within_an_eighth_of_a_step(values: list[float]) -> None:
    waveform = waveform_of_volts(values, 1, 0)
    span = max(values) - min(values)
    moved = np.abs(waveform.volts() - values).max()
    assert moved <= max(waveform.volts_per_code / 2, span / 1e5) * 1.01 + 1e-9
    assert moved <= span / 8 + 1e-9


def test_a_step_without_noise_lies_between_its_samples() -> None:
    volts = np.where(np.arange(1000) < 400, 0.0, 3.3)
    waveform = waveform_of_volts(volts, 1000, 0)
    (edge,) = find_edges(waveform)
    assert edge.instant_fs == 399_500
    # Two values say between which samples the edge lies, and not where.
    assert edge.uncertainty_fs >= 500
    assert state_levels(waveform).high - state_levels(waveform).low >= 100


def test_a_step_without_noise_and_without_zero_is_an_edge_too() -> None:
    volts = np.where(np.arange(1000) < 400, 0.1, 3.2).astype(np.float32)
    assert len(find_edges(waveform_of_volts(volts, 1000, 0))) == 1


@pytest.mark.parametrize("value", [0.0, 2.5, -1e-20, 1e29])
def test_a_constant_keeps_its_value(value: float) -> None:
    assert waveform_of_volts([value] * 9, 1, 0).volts() == pytest.approx([value] * 9)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf"), 9.9e37])
def test_what_is_no_voltage_is_refused_by_its_place(wrong: float) -> None:
    with pytest.raises(ValueError, match="sample 3 is"):
        waveform_of_volts([0, 1, 2, wrong, 4], 1, 0)


@pytest.mark.parametrize("empty", [[], [[1.0, 2.0]], np.zeros((0,), np.float32)])
def test_no_samples_are_refused(empty: object) -> None:
    with pytest.raises(ValueError, match="no samples"):
        waveform_of_volts(empty, 1, 0)  # type: ignore[arg-type]


def test_rare_values_between_the_others_are_found_in_long_records() -> None:
    volts = np.arange(400_000) % 200 * 0.04
    volts[[123_457, 250_001]] += 0.02
    assert waveform_of_volts(volts, 1, 0).volts_per_code == pytest.approx(0.02)


@pytest.mark.slow
def test_ten_million_samples_take_less_than_two_seconds() -> None:
    chance = np.random.default_rng(1)
    volts = (chance.integers(0, 256, 10_000_000) * np.float32(0.02)).astype(np.float32)
    begun = time.process_time()
    waveform = waveform_of_volts(volts, 1, 0)
    assert time.process_time() - begun < 2
    assert waveform.volts_per_code == pytest.approx(0.02, rel=1e-5)
