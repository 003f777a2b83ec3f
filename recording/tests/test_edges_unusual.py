"""Waveforms that are not as one would wish: drift, droop, short pulses, clipped, cut off, noisy."""

from __future__ import annotations

import numpy as np
import pytest

from mqtick.recording.channel_edges import channel_edges
from mqtick.recording.edges import BETWEEN, EdgeError, find_edges, state_levels
from mqtick.recording.waveform import Waveform
from recording.tests.edge_parts import digitised

_SIZE = 20_000
_AMPLITUDE = 150  # of digitised, in codes


def edge(at: float, rise: float, size: int = _SIZE) -> np.ndarray:
    """A smooth edge from 0 to 1; `rise` is its 10-90 % time in samples."""
    x = np.clip((np.arange(size) - at) / rise * 4.394, -60, 60)
    return np.asarray(1 / (1 + np.exp(-x)))


def noise(sigma: float = 0.01, size: int = _SIZE) -> np.ndarray:
    return np.random.default_rng(11).normal(0, sigma, size)


def found(shares: np.ndarray) -> list[tuple[bool, float, float]]:
    """Direction, place and uncertainty of each edge, in samples."""
    return [
        (one.rising, one.instant_fs / 1e9, one.uncertainty_fs / 1e9)
        for one in find_edges(digitised(shares))
    ]


@pytest.mark.parametrize("rise", [2.0, 20.0])
@pytest.mark.parametrize(
    "drift",
    [0.3 * np.arange(_SIZE) / _SIZE, 0.12 * np.sin(np.arange(_SIZE) / 900)],
    ids=["slope", "hum"],
)
def test_where_the_level_drifts_an_edge_is_at_half_of_its_own(
    drift: np.ndarray, rise: float
) -> None:
    at = 11_000.3
    for shares in (edge(at, rise) + drift + noise(), 0.7 * edge(at, rise) + drift):
        ((_, place, stated),) = found(shares)
        assert place == pytest.approx(at, abs=0.02 * rise + 0.03)
        assert abs(place - at) <= stated < 0.1 + 0.1 * rise


@pytest.mark.parametrize("rise", [2.0, 20.0])
def test_behind_an_ac_input_both_edges_of_a_pulse_are_where_they_were(rise: float) -> None:
    places, tau = (5000.3, 13_000.6), 25_000
    shares = np.zeros(_SIZE)
    for at, sign in zip(places, (1, -1), strict=True):
        droop = np.exp(-np.maximum(np.arange(_SIZE) - at, 0) / tau)
        shares += 0.8 * sign * edge(at, rise) * droop
    edges = found(shares + 0.2 + noise())
    assert [up for up, _, _ in edges] == [True, False]
    for (_, place, stated), at in zip(edges, places, strict=True):
        assert place == pytest.approx(at, abs=0.02 * rise + 0.03)
        assert abs(place - at) <= stated


@pytest.mark.parametrize("samples", [1, 2, 3, 5, 10])
def test_a_pulse_of_few_samples_in_a_long_record_has_both_edges(samples: int) -> None:
    size = 100_000
    shares = edge(50_000.3, 0.4, size) - edge(50_000.3 + samples, 0.4, size)
    edges = found(shares + noise(0.005, size))
    assert [up for up, _, _ in edges] == [True, False]
    for (_, place, stated), at in zip(edges, (50_000.3, 50_000.3 + samples), strict=True):
        assert abs(place - at) <= stated < 1


def test_the_levels_of_a_ten_thousandth_of_a_record_are_right() -> None:
    size = 100_000
    shares = edge(50_000.3, 2, size) - edge(50_010.3, 2, size)
    levels = state_levels(digitised(shares + noise(0.005, size)))
    assert levels.amplitude == pytest.approx(_AMPLITUDE, abs=2)
    assert levels.noise == pytest.approx(0.005 * _AMPLITUDE, rel=0.3)


def test_ringing_is_no_noise() -> None:
    t = np.maximum(np.arange(_SIZE) - 9000.3, 0)
    shares = 1 - np.exp(-t / 60) * np.cos(t / 12)
    levels = state_levels(digitised(shares * (t > 0) + noise(0.005), amplitude=110))
    assert levels.amplitude == pytest.approx(110, abs=1)
    assert levels.noise == pytest.approx(0.005 * 110, rel=0.5)


def test_a_step_at_the_very_end_is_an_edge() -> None:
    shares = np.zeros(_SIZE)
    shares[-1] = 1
    ((up, place, stated),) = found(shares + noise(0.005))
    assert up
    assert place == pytest.approx(_SIZE - 1.5, abs=0.05)
    assert stated >= 0.5


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.45, 0.6])
def test_an_edge_within_which_the_record_began_is_none(share: float) -> None:
    whole = edge(3000.3, 40.0)
    begin = int(np.argmax(whole > max(share, 1e-9)))
    assert found(np.concatenate((whole[begin:], np.ones(begin)))) == [] or share == 0


def test_an_edge_after_two_samples_of_rest_counts() -> None:
    shares = np.ones(_SIZE)
    shares[:2] = 0
    assert [place for _, place, _ in found(shares)] == [1.5]


def test_a_constant_channel_and_mere_noise_have_no_edge() -> None:
    for shares in (np.zeros(_SIZE), noise(0.05), 0.5 + noise(0.2)):
        with pytest.raises(EdgeError):
            find_edges(digitised(shares))


@pytest.mark.parametrize("sigma", [0.01, 0.05, 0.08])
@pytest.mark.parametrize("rise", [1.0, 30.0])
def test_noise_makes_no_edge_and_hides_none(sigma: float, rise: float) -> None:
    at = np.arange(1, 200) * 100.0 + np.random.default_rng(2).uniform(-1, 1, 199)
    x = np.arange(_SIZE)
    nearest = np.clip(np.rint(x / 100), 1, 199).astype(int) - 1
    shares = 1 / (1 + np.exp(-(x - at[nearest]) / rise * 4.394))
    shares = np.where(nearest % 2, 1 - shares, shares)
    edges = found(shares + noise(sigma))
    assert [up for up, _, _ in edges] == [index % 2 == 0 for index in range(199)]
    places = np.array([place for _, place, _ in edges])
    assert np.abs(places - at).max() < 1 + sigma * 5 * rise


def test_two_levels_of_one_bit_carry_half_an_interval() -> None:
    bits = (np.arange(1000) // 7 % 2).astype(np.uint8)
    edges = find_edges(Waveform(bits, 3.3, 0.0, 10**9, 0))
    assert {one.uncertainty_fs for one in edges} == {5 * 10**8}
    assert {one.quality for one in edges} == {BETWEEN}
    assert edges[0].instant_fs == 65 * 10**8


def is_clipped(waveform: Waveform) -> bool:
    try:
        return state_levels(waveform).cut_off
    except EdgeError:
        return False


@pytest.mark.parametrize("dtype", ["u1", "i1"])
def test_a_level_at_the_converters_limit_is_clipped(dtype: str) -> None:
    shares = edge(9000.3, 2.0) + noise(0.02)
    assert is_clipped(digitised(shares, dtype, 300))
    assert is_clipped(digitised(shares + 0.4, dtype))
    assert is_clipped(digitised(shares - 0.4, dtype))
    assert not is_clipped(digitised(shares, dtype))


def test_a_level_cut_flat_below_the_limit_is_clipped() -> None:
    shares = edge(9000.3, 2.0) + noise(0.02)
    assert is_clipped(digitised(np.minimum(shares, 0.95), "<u2", 3000))
    assert is_clipped(digitised(np.maximum(shares, 0.05), "i2", 3000))
    assert not is_clipped(digitised(shares, "<u2", 3000))


def test_the_clipped_top_of_a_short_pulse_is_seen() -> None:
    shares = edge(9000.3, 0.5) - edge(9020.3, 0.5)
    assert is_clipped(digitised(shares * 2 - 0.2 + noise(0.01)))


def test_what_has_no_noise_or_no_levels_or_overshoots_to_the_limit_is_not_clipped() -> None:
    assert not is_clipped(digitised(edge(9000.3, 2.0)))
    assert not is_clipped(digitised(np.zeros(_SIZE)))
    assert not is_clipped(Waveform(np.zeros(0, np.uint8), 0.1, 0.0, 1, 0))
    overshoots = edge(9000.3, 2.0) + noise(0.01)
    overshoots[9003:9006] = 2.0
    assert not is_clipped(digitised(overshoots))
    bits = (np.arange(1000) // 7 % 2).astype(np.uint8)
    assert not is_clipped(Waveform(bits, 3.3, 0.0, 10**9, 0))


def test_codes_of_a_text_file_begin_at_zero_and_are_not_clipped_there() -> None:
    codes = np.rint(3000 * (edge(9000.3, 2.0) + noise(0.02)))
    codes = (codes - codes.min()).astype(np.uint16)
    assert not is_clipped(Waveform(codes, 0.001, 0.0, 10**9, 0))


def test_trains_of_pulses_that_hardly_rest_keep_every_edge_within_what_is_stated() -> None:
    random = np.random.default_rng(8)
    for _ in range(40):
        rise = 10 ** random.uniform(-1, 1)
        apart = max(2, 3 * rise) * random.uniform(1, 2)
        places = 20 + 2 * rise + np.arange(int(min(900 / apart, 60))) * apart
        places += random.uniform(-0.2, 0.2, places.size)
        shares = sum(edge(at, rise, 1000) * (-1) ** index for index, at in enumerate(places))
        edges = found(np.asarray(shares) + random.normal(0, 0.02, 1000))
        assert len(edges) == places.size
        for (_, place, stated), at in zip(edges, places, strict=True):
            assert abs(place - at) <= stated


def test_a_record_of_hours_has_edges_though_64_bits_cannot_count_it_in_fs() -> None:
    codes = np.repeat(np.array([20, 220] * 5, np.uint8), 2000)
    found = channel_edges(Waveform(codes, 0.02, 20.0, 10**15, 0))
    assert [edge.instant_fs for edge in found.edges][-1] == 17_999_500_000_000_000_000
