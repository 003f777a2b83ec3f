"""A typical shot is drawn with few points, and nothing that matters is lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.analysis.overlay import DRAWN_HEIGHT, thinned
from mqtick.recording.edges import find_edges
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import Waveform


def waveform(codes: np.ndarray, interval_fs: int = 10**8) -> Waveform:
    return Waveform(codes.astype(np.uint8), 0.02, 20.0, interval_fs, -1000 * interval_fs)


def step(size: int = 100_000, at: int = 60_000) -> np.ndarray:
    codes = np.full(size, 20)
    codes[at:] = 200
    return codes


def test_a_short_record_is_drawn_as_it_is() -> None:
    signal = waveform(step(500, 300))
    us, volts = thinned(signal, [0], 10**9)
    assert us[0] == -1000 * 0.1 - 1
    assert us.size == 500
    assert np.allclose(np.diff(us), 0.1)
    assert np.array_equal(volts, signal.volts())


@given(
    size=st.integers(1, 20_000),
    points=st.integers(0, 3000),
    around=st.lists(st.integers(-(10**16), 10**16), max_size=6),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_the_line_is_increasing_within_its_points_and_keeps_the_extremes(
    size: int, points: int, around: list[int], seed: int
) -> None:
    signal = waveform(np.random.default_rng(seed).integers(0, 256, size))
    us, volts = thinned(signal, around, 0, points)
    assert us.size == volts.size <= max(points, 16)
    assert (np.diff(us) > 0).all()
    assert (volts.min(), volts.max()) == (signal.volts().min(), signal.volts().max())


def test_near_an_edge_every_sample_is_drawn() -> None:
    signal = waveform(step())
    (edge,) = find_edges(signal)
    us, _ = thinned(signal, [edge.instant_fs], edge.instant_fs)
    near = us[np.abs(us) < 40]
    assert near.size == 800
    assert np.allclose(np.diff(near), 0.1)


def test_a_glitch_of_one_sample_far_from_the_edges_is_drawn() -> None:
    codes = step()
    codes[12_345] = 250
    us, volts = thinned(waveform(codes), [5 * 10**12], 0)
    assert us[volts.argmax()] == (12_345 - 1000) * 0.1
    assert volts.max() == (250 - 20) * 0.02


def test_the_changes_of_a_digital_signal_are_vertical_lines() -> None:
    signal = Transitions("D0", 0, np.array([10**10, 3 * 10**10]), np.array([1, 0], np.int8))
    us, volts = thinned(signal, [10**10], 10**10)
    assert us.tolist() == [-2, 0, 0, 20, 20, 22]
    assert volts.tolist() == [0, 0, DRAWN_HEIGHT, DRAWN_HEIGHT, 0, 0]


def test_an_unknown_level_is_not_drawn() -> None:
    signal = Transitions("D0", -1, np.array([10**10]), np.array([1], np.int8))
    _, volts = thinned(signal, [], 0)
    assert np.isnan(volts[:2]).all()
    assert volts[2:].tolist() == [DRAWN_HEIGHT, DRAWN_HEIGHT]


def test_a_digital_signal_that_never_changes_is_a_line() -> None:
    signal = Transitions("D0", 1, np.zeros(0, np.int64), np.zeros(0, np.int8))
    us, volts = thinned(signal, [], 5 * 10**9)
    assert us.tolist() == [-1, 1]
    assert volts.tolist() == [DRAWN_HEIGHT, DRAWN_HEIGHT]


def test_of_many_changes_those_next_to_the_edges_are_drawn() -> None:
    instants = np.arange(100_000) * 10**9
    levels = (np.arange(100_000) % 2).astype(np.int8)
    us, volts = thinned(Transitions("D0", 1, instants, levels), [50_000 * 10**9], 0, 500)
    assert us.size == volts.size <= 500
    assert (np.diff(us) >= 0).all()
    near = us[np.abs(us - 50_000) < 50]
    assert np.array_equal(np.unique(near), np.arange(49_951, 50_050))
