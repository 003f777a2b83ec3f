"""Edges where somebody says where they are: thresholds, hysteresis, directions, windows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.recording.edge_overrides import (
    EVERY,
    EdgeOverrides,
    EdgeOverridesError,
    Rule,
    forget,
    keep,
    kept,
)
from mqtick.recording.edges import EdgeError, find_edges, state_levels
from mqtick.recording.look import ChannelEdges, look, look_at_all
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import Waveform
from recording.tests.wave_parts import SKEW_LAYOUT, US, wave

VOLT = 0.01
"""Of a code of the records here, which has 0 V at 1000."""


def record(volts: np.ndarray) -> Waveform:  # type: ignore[type-arg]
    return Waveform(np.round(volts / VOLT + 1000).astype(np.uint16), VOLT, 1000, US, 0)


def ramp(low: float = 0.0, high: float = 3.0, points: int = 300) -> Waveform:
    """Rest, a straight rise of 100 samples, rest."""
    return record(low + (high - low) * np.clip((np.arange(points) - 100) / 100, 0, 1))


def seen(waveform: Waveform, **rule: float) -> ChannelEdges:
    return look(waveform, rule=Rule(**rule))  # type: ignore[arg-type]


def at_us(found: ChannelEdges) -> list[float]:
    return [edge.instant_fs / US for edge in found.edges]


# ---- thresholds


@settings(max_examples=60)
@given(st.floats(0.05, 2.95), st.booleans())
def test_an_edge_is_where_the_signal_passes_the_threshold(volts: float, falls: bool) -> None:
    waveform = ramp(*((3.0, 0.0) if falls else (0.0, 3.0)))
    (edge,) = seen(waveform, threshold_v=volts).edges
    true_us = 100 + 100 * ((3 - volts) if falls else volts) / 3
    assert edge.rising is not falls
    assert abs(edge.instant_fs / US - true_us) <= edge.uncertainty_fs / US


def test_a_threshold_in_the_middle_finds_what_is_found_without_one() -> None:
    waveform = wave(0, 300, 700)
    without, with_it = look(waveform), seen(waveform, threshold_v=1.62)
    assert at_us(with_it) == pytest.approx(at_us(without), abs=0.01)
    assert with_it.edges == without.edges or len(with_it.edges) == 3


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 0.9), st.floats(0, 0.03))
def test_the_uncertainty_covers_noise_at_any_threshold(
    seed: int, share: float, noise_v: float
) -> None:
    random = np.random.default_rng(seed)
    begin, rise = 100 + random.uniform(), random.uniform(0.5, 40)
    clean = 3 * np.clip((np.arange(400) - begin) / rise, 0, 1)
    waveform = record(clean + random.normal(0, noise_v, 400))
    (edge,) = seen(waveform, threshold_v=3 * share).edges
    assert abs(edge.instant_fs / US - begin - rise * share) <= edge.uncertainty_fs / US


def test_a_pulse_too_short_for_a_level_and_a_signal_too_small_are_found_by_hand() -> None:
    volts = np.zeros(5000)
    volts[2000:2003] = 0.2
    assert not look(record(volts)).edges
    assert at_us(seen(record(volts), threshold_v=0.1)) == pytest.approx([1999.5, 2002.5])


def test_among_three_levels_the_threshold_says_which_step_counts() -> None:
    volts = np.repeat([0.0, 1.0, 3.3, 1.0, 0.0], 1000)
    assert at_us(seen(record(volts), threshold_v=0.5)) == pytest.approx([999.5, 3999.5], abs=0.5)
    assert at_us(seen(record(volts), threshold_v=2.0)) == pytest.approx([1999.5, 2999.5], abs=0.5)


@pytest.mark.parametrize("volts", [3.5, -0.1, 3.0, 0.0, 1e9, -1e9])
def test_a_threshold_that_nothing_passes_is_named_with_the_range(volts: float) -> None:
    found = seen(ramp(), threshold_v=volts)
    assert found.edges == []
    assert f"threshold of {volts:g} V lies outside its 300 samples (0 to 3 V)" in found.why_not


def test_a_flat_record_has_no_edge_whatever_is_said() -> None:
    flat = record(np.ones(100))
    for rule in ({"threshold_v": 1.0}, {"hysteresis_v": 0.1}, {"skip": 3}, {}):
        found = seen(flat, **rule)
        assert found.edges == []
        assert found.why_not


def test_an_empty_record_and_one_sample_are_refused_in_words() -> None:
    for size in (0, 1):
        codes = np.zeros(size, np.uint8)
        found = look(Waveform(codes, 1.0, 0.0, US, 0), rule=Rule(threshold_v=0.5))
        assert "too few for an edge" in found.why_not


# ---- hysteresis


def test_the_hysteresis_says_which_wiggle_is_an_edge() -> None:
    volts = np.repeat([0.0, 2.0, 1.3, 3.0, 0.0], 500)
    wide = seen(record(volts), threshold_v=1.65, hysteresis_v=1.0)
    narrow = seen(record(volts), threshold_v=1.65, hysteresis_v=0.3)
    assert at_us(wide) == pytest.approx([1499.5, 1999.5], abs=0.5)
    assert at_us(narrow) == pytest.approx([499.5, 999.5, 1499.5, 1999.5], abs=0.5)


def test_half_of_the_hysteresis_is_above_and_half_below() -> None:
    volts = np.repeat([0.0, 1.79, 0.0, 1.81, 0.0], 500)
    found = seen(record(volts), threshold_v=1.5, hysteresis_v=0.6)
    assert at_us(found) == pytest.approx([1499.5, 1999.5], abs=0.5)


def test_a_hysteresis_that_nothing_leaves_is_refused() -> None:
    found = seen(ramp(), hysteresis_v=3.0)
    assert found.edges == []
    assert "hysteresis of 3 V reaches beyond its 300 samples (0 to 3 V)" in found.why_not
    with pytest.raises(EdgeError):
        find_edges(ramp(), 0.5, state_levels(ramp()), 9.0)


# ---- direction, skipped edges, window


def test_inverted_edges_are_the_same_edges_the_other_way_round() -> None:
    plain, inverted = look(wave(0, 300, 700)), seen(wave(0, 300, 700), invert=True)
    assert at_us(inverted) == at_us(plain)
    assert [edge.rising for edge in inverted.edges] == [not e.rising for e in plain.edges]
    bits = Transitions("D0", 0, np.array([5, 9], np.int64), np.array([1, 0], np.int8))
    assert [edge.rising for edge in look(bits, rule=Rule(invert=True)).edges] == [False, True]


def test_skipped_edges_do_not_count_and_all_of_them_is_said() -> None:
    assert at_us(seen(wave(0, 300, 700), skip=2)) == pytest.approx([700], abs=0.5)
    found = seen(wave(0, 300, 700), skip=3)
    assert (found.edges, found.why_not) == ([], "All of its edges (3) were to be skipped.")


def test_a_window_leaves_out_what_is_outside_also_for_the_levels() -> None:
    volts = np.concatenate((np.full(500, 9.0), np.repeat([0.0, 3.0, 0.0], 500)))
    window = EdgeOverrides({}, 600 * US, 1900 * US)
    found = look(record(volts), window=window)
    assert at_us(found) == pytest.approx([999.5, 1499.5], abs=0.5)
    assert found.levels is not None
    assert found.levels.volts(record(volts)) == pytest.approx((0, 3), abs=0.01)


@pytest.mark.parametrize(("begin", "end"), [(5000, 6000), (None, -200), (5000, None)])
def test_a_window_outside_the_record_is_named_with_the_record(
    begin: int | None, end: int | None
) -> None:
    window = EdgeOverrides(
        {}, None if begin is None else begin * US, None if end is None else end * US
    )
    for signal in (wave(0), Transitions("D0", 0, np.array([US], np.int64), np.ones(1, np.int8))):
        found = look(signal, window=window)
        assert found.edges == []
        assert "is outside its record" in found.why_not


def test_each_channel_of_a_layout_has_its_rule_and_the_others_the_common_one() -> None:
    of = replace(
        SKEW_LAYOUT,
        edge_overrides=EdgeOverrides({"near": Rule(invert=True), EVERY: Rule(skip=1)}),
    )
    found = look_at_all(of, dict.fromkeys(of.channels, wave(0, 300)))
    assert {name: [e.rising for e in its.edges] for name, its in found.items()} == {
        "pub": [False],
        "near": [False, True],
        "far": [False],
    }


# ---- kept in a run folder

SAID = EdgeOverrides(
    {"first": Rule(1.65, 0.2, True, 3), "": Rule(threshold_v=-0.5)}, -2 * US, 10**15
)


def test_what_is_kept_is_read_again_and_can_be_forgotten(tmp_path: Path) -> None:
    assert not kept(tmp_path)
    keep(tmp_path, SAID)
    assert kept(tmp_path) == SAID
    forget(tmp_path)
    forget(tmp_path)
    assert not kept(tmp_path)


def damaged(**change: object) -> str:
    whole = {"format": "mqtick-edges", "version": 1, "channels": {}, "from_fs": None, "to_fs": None}
    return json.dumps({**whole, **change})


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "[" * 100_000, '{"format": "mqtick-edges"}'),
        damaged(format="other"),
        damaged(version=2),
        damaged(channels=[1]),
        damaged(channels={"a": 3}),
        damaged(channels={"a": {"treshold_v": 1.0}}),
        damaged(channels={"a": {"threshold_v": "1"}}),
        damaged(channels={"a": {"threshold_v": True}}),
        damaged(channels={"a": {"threshold_v": float("nan")}}),
        damaged(channels={"a": {"hysteresis_v": -1}}),
        damaged(channels={"a": {"invert": 1}}),
        damaged(channels={"a": {"skip": -1}}),
        damaged(channels={"a": {"skip": 1.5}}),
        damaged(from_fs=1.5),
        damaged(to_fs=10**30),
    ],
)
def test_a_damaged_file_is_not_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "edges.json").write_text(text)
    with pytest.raises(EdgeOverridesError, match=r"cannot be read .*--automatic"):
        kept(tmp_path)


def test_it_is_said_in_words() -> None:
    assert SAID.describe() == [
        "first: threshold 1.65 V, hysteresis 0.2 V, inverted, the first 3 edges of each record "
        "left out.",
        "every other channel: threshold -0.5 V.",
        "Only the part of each record from -2 us to 1,000,000 us.",
    ]
