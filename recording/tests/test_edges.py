"""Edges are found where they were, within the uncertainty that is stated."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.recording.edges import (
    BETWEEN,
    FITTED,
    INTERPOLATED,
    Edge,
    EdgeError,
    find_edges,
    state_levels,
)
from mqtick.recording.waveform import Waveform
from recording.tests import edge_parts
from recording.tests.edge_parts import exponential, gaussian, ringing, straight


def shape(kind: str, x: np.ndarray, rise: float) -> np.ndarray:
    """An edge from 0 to 1 that is at 0.5 at x = 0; `rise` is its 10-90 % time."""
    shapes = {
        "gaussian": gaussian,
        "exponential": exponential,
        "ringing": ringing,
        "straight": straight,
    }
    return shapes[kind](x / rise)


def digitised(
    shares: np.ndarray, dtype: str = "u1", amplitude: float = 150, interval_fs: int = 1_000_000
) -> Waveform:
    """Hundred samples before the trigger."""
    return edge_parts.digitised(
        shares, dtype, amplitude, interval_fs=interval_fs, start_fs=-100 * interval_fs
    )


def pulses(*changes: float, size: int = 1000, rise: float = 0.01) -> np.ndarray:
    """Up at the first place, down at the second, and so on; in samples."""
    x = np.arange(size)
    edges = (shape("straight", x - at, rise) for at in changes)
    return np.asarray(sum(edge * (-1) ** index for index, edge in enumerate(edges)))


@given(
    kind=st.sampled_from(["gaussian", "straight", "exponential"]),
    rise=st.floats(-2, 2).map(lambda power: 10.0**power),
    at=st.floats(400, 600),
    noise=st.floats(0, 0.03),
    step=st.sampled_from([("u1", 30), ("u1", 250), ("i1", 150), ("<u2", 3000), ("i2", 50_000)]),
    interval_fs=st.sampled_from([10**5, 250_000, 10**6, 10**8]),
    rising=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60)
def test_the_instant_is_within_the_stated_uncertainty(
    kind: str,
    rise: float,
    at: float,
    noise: float,
    step: tuple[str, float],
    interval_fs: int,
    rising: bool,
    seed: int,
) -> None:
    shares = shape(kind, np.arange(1000) - at, rise)
    shares = (shares if rising else 1 - shares) + np.random.default_rng(seed).normal(0, noise, 1000)
    (edge,) = find_edges(digitised(shares, *step, interval_fs))
    assert edge.rising is rising
    truth_fs = (at - 100) * interval_fs
    # The stated one holds four standard deviations of noise: chance goes beyond it now and then.
    assert abs(edge.instant_fs - truth_fs) <= 1.5 * edge.uncertainty_fs + 1
    assert edge.uncertainty_fs < (1.5 + rise) * interval_fs


def beyond(kind: str, rise: float, noise: float, amplitude: float, count: int) -> int:
    """How many of so many edges are further from the truth than they say."""
    random = np.random.default_rng(7)
    found = 0
    for at in random.uniform(400, 401, count):
        shares = shape(kind, np.arange(1000) - at, rise) + random.normal(0, noise, 1000)
        waveform = digitised(shares, "u1" if amplitude < 256 else "<u2", amplitude)
        (edge,) = find_edges(waveform)
        found += abs(edge.instant_fs - (at - 100) * 10**6) > edge.uncertainty_fs + 1
    return found


@pytest.mark.parametrize("rise", [0.3, 3.0, 8.0, 30.0])
def test_noise_goes_beyond_the_stated_uncertainty_next_to_never(rise: float) -> None:
    assert beyond("gaussian", rise, 0.02, 150, 100) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "straight", "exponential", "ringing"])
@pytest.mark.parametrize(
    ("rise", "noise", "amplitude"),
    [(0.3, 0.02, 150), (1.0, 0.0, 45), (3.0, 0.02, 150), (8.0, 0.001, 3000), (30.0, 0.02, 150)],
)
def test_noise_goes_beyond_the_stated_uncertainty_once_in_a_thousand_at_most(
    kind: str, rise: float, noise: float, amplitude: float
) -> None:
    assert beyond(kind, rise, noise, amplitude, 1000) <= 1


@pytest.mark.parametrize(
    ("interval_ns", "rise_ns", "most_ns"),
    # Standard deviations of linear interpolation with 8 bits and 15 mV of noise on 3.3 V; a method
    # that is worse than these has a fault.
    [(1.0, 2.0, 0.03), (1.0, 5.0, 0.03), (4.0, 5.0, 0.25), (4.0, 2.0, 0.7), (100.0, 5.0, 30.0)],
)
def test_the_error_is_as_small_as_sampling_allows(
    interval_ns: float, rise_ns: float, most_ns: float
) -> None:
    random = np.random.default_rng(1)
    errors_ns = []
    for at in random.uniform(400, 500, 150):
        shares = shape("gaussian", np.arange(1000) - at, rise_ns / interval_ns)
        waveform = digitised(shares + random.normal(0, 0.015 / 3.3, 1000))
        errors_ns.append(((find_edges(waveform)[0].instant_fs / 1e6) + 100 - at) * interval_ns)
    assert np.std(errors_ns) < most_ns
    assert abs(np.mean(errors_ns)) < 0.2 * most_ns + 2 * np.std(errors_ns) / 150**0.5


@pytest.mark.parametrize(("rise", "quality"), [(0.3, BETWEEN), (2.5, INTERPOLATED), (20.0, FITTED)])
def test_an_edge_says_how_it_was_timed_and_how_long_it_took(rise: float, quality: str) -> None:
    shares = shape("gaussian", np.arange(1000) - 500.4, rise)
    shares += np.random.default_rng(1).normal(0, 0.005, 1000)
    (edge,) = find_edges(digitised(shares))
    assert edge.quality == quality
    if quality == BETWEEN:
        assert edge.samples_in_rise < 1.5
    else:
        assert edge.samples_in_rise == pytest.approx(rise, rel=0.25)


@pytest.mark.parametrize("kind", ["gaussian", "exponential", "ringing"])
@pytest.mark.parametrize("rise", [2.0, 20.0])
def test_the_error_is_not_larger_than_a_straight_lines(kind: str, rise: float) -> None:
    random = np.random.default_rng(6)
    errors, line = [], []
    for at in random.uniform(500, 501, 60):
        shares = shape(kind, np.arange(1000) - at, rise) + random.normal(0, 0.003, 1000)
        waveform = digitised(shares, "u1", 200)
        errors.append(find_edges(waveform)[0].instant_fs / 1e6 + 100 - at)
        volts = waveform.volts()
        after = int(np.argmax(volts >= 1.65))
        line.append(float(np.interp(1.65, volts[after - 1 : after + 1], [after - 1, after])) - at)
    assert np.std(errors) < np.std(line) * 1.1
    assert abs(np.mean(errors)) < max(abs(np.mean(line)), 0.02 + 0.001 * rise)


def test_a_slow_noisy_edge_is_one_edge_and_better_than_a_sample_by_itself() -> None:
    random = np.random.default_rng(2)
    errors = []
    for at in random.uniform(4000, 6000, 30):
        shares = shape("straight", np.arange(10_000) - at, 2000) + random.normal(0, 0.02, 10_000)
        (edge,) = find_edges(digitised(shares))
        errors.append(edge.instant_fs / 1e6 + 100 - at)
    one_sample = 0.02 * 1.25 * 2000  # noise over slope
    assert np.std(errors) < one_sample / 5
    assert abs(np.mean(errors)) < one_sample / 10


def test_levels_are_where_the_signal_rests_not_where_it_overshoots() -> None:
    shares = pulses(500.25, rise=3.0)
    shares[503:511] += 0.3 * np.exp(-np.arange(8) / 3)
    waveform = digitised(shares)
    levels = state_levels(waveform)
    assert levels.amplitude == pytest.approx(150, abs=1.5)
    (edge,) = find_edges(waveform)
    assert edge.instant_fs / 1e6 == pytest.approx(400.25, abs=0.03)


def test_every_edge_is_found_in_order_the_double_ones_too() -> None:
    places = [100.3, 110.6, 112.2, 115.7, 900.1]
    edges = find_edges(digitised(pulses(*places, rise=1.0)))
    assert [edge.rising for edge in edges] == [True, False, True, False, True]
    assert [edge.instant_fs / 1e6 + 100 for edge in edges] == pytest.approx(places, abs=0.05)


def test_a_runt_is_no_edge() -> None:
    shares = pulses(300.0) * 0
    shares[200:220] = 0.6  # passes the middle, and turns back
    shares[500:] = 1
    assert [edge.instant_fs // 10**6 for edge in find_edges(digitised(shares))] == [399]


def test_an_edge_that_began_before_the_record_has_no_instant() -> None:
    shares = shape("straight", np.arange(1000) + 10.0, 100.0)  # at 60 % when the record begins
    shares[700:] = 0
    edges = find_edges(digitised(shares))
    assert [edge.rising for edge in edges] == [False]


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", ">u2", "i2"])
def test_codes_of_any_width_order_and_sign_give_the_same_edges(dtype: str) -> None:
    (edge,) = find_edges(digitised(shape("gaussian", np.arange(1000) - 500.25, 2.0), dtype))
    assert edge.instant_fs / 1e6 == pytest.approx(400.25, abs=0.02)


@pytest.mark.parametrize(("dtype", "shift"), [("u1", 0), ("i1", 0), ("<u2", 8)])
def test_clipped_samples_are_counted_in_the_upper_half_of_a_word_too(
    dtype: str, shift: int
) -> None:
    shares = pulses(500.0) + np.random.default_rng(3).normal(0, 0.02, 1000)
    waveform = digitised(shares, dtype if not shift else "u1", amplitude=300)
    codes = waveform.codes.astype(dtype) << shift
    clipped = Waveform(codes, 3.3 / (300 << shift), 0.0, 10**6, 0)
    assert state_levels(clipped).clipped == pytest.approx(1000, abs=10)
    assert state_levels(digitised(pulses(500.0))).clipped == 0
    (edge,) = find_edges(clipped)
    assert edge.clipped
    assert edge.instant_fs / 1e6 == pytest.approx(499.5, abs=0.6)


def test_a_short_pulse_in_a_long_record_has_both_its_levels() -> None:
    shares = pulses(70_000.5, 70_100.5, size=100_000, rise=2.0)
    shares += np.random.default_rng(4).normal(0, 0.02, shares.size)
    assert state_levels(digitised(shares)).amplitude == pytest.approx(150, abs=3)
    edges = find_edges(digitised(shares))
    assert [edge.rising for edge in edges] == [True, False]
    assert (edges[1].instant_fs - edges[0].instant_fs) / 1e6 == pytest.approx(100, abs=0.3)


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        (np.zeros(0), "0 samples, too few"),
        (np.zeros(1), "1 samples, too few"),
        (np.full(1000, 0.5), "flat: 0 V"),
        (pulses(500.0) * 0.1, r"flat: 0.3\d+ V"),
        (0.5 + np.random.default_rng(5).normal(0, 0.1, 1000), "no two levels"),
    ],
)
def test_what_has_no_edge_is_a_sentence_that_says_where_to_look(
    shares: np.ndarray, sentence: str
) -> None:
    with pytest.raises(EdgeError, match=sentence):
        find_edges(digitised(shares))


@given(st.binary(min_size=8, max_size=400), st.sampled_from(["i1", "u1", "<i2", ">i2", "<u2"]))
def test_any_codes_give_edges_in_order_or_a_sentence(data: bytes, dtype: str) -> None:
    codes = np.frombuffer(data[: len(data) // 2 * 2], dtype)
    waveform = Waveform(codes, 0.1, 0.0, 10**6, 0)
    try:
        edges = find_edges(waveform)
    except EdgeError:
        return
    instants = [edge.instant_fs for edge in edges]
    assert instants == sorted(instants)
    assert all(0 <= instant <= (codes.size - 1) * 10**6 for instant in instants)
    assert all(one.rising != two.rising for one, two in itertools.pairwise(edges))
    assert all(edge.uncertainty_fs > 0 and edge.samples_in_rise > 0 for edge in edges)


@pytest.mark.parametrize("power", [22, 400, 10_000])
def test_instants_that_no_record_has_are_refused_with_a_sentence(power: int) -> None:
    codes = np.zeros(4, np.uint8)
    Waveform(codes, 0.1, 0.0, 10**21, -(10**21))
    with pytest.raises(ValueError, match=f"apart 10 to the {power} fs"):
        Waveform(codes, 0.1, 0.0, 10**power, 0)
    with pytest.raises(ValueError, match="begin at 10 to the"):
        Waveform(codes, 0.1, 0.0, 1, -(10**power))


def test_more_edges_than_a_host_has_memory_for_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waveform = digitised(pulses(*range(10, 1000, 10)))
    assert len(find_edges(waveform)) == 99
    monkeypatch.setattr("mqtick.recording.edges.MOST_EDGES", 98)
    with pytest.raises(EdgeError, match=r"None of its 99 edges .* at most 98"):
        find_edges(waveform)


def test_codes_of_more_than_sixteen_bits_take_no_memory() -> None:
    codes = np.array([0, 0, 2**62, 2**62], np.int64)
    with pytest.raises(EdgeError, match="more than 16 bits"):
        find_edges(Waveform(codes, 1e-15, 0.0, 10**6, 0))


def test_two_edges_are_equal_whatever_their_uncertainty() -> None:
    assert Edge(5, True, 1) == Edge(5, True, 2) != Edge(5, False, 1)


def test_a_long_record_with_many_edges_takes_no_time() -> None:
    waveform = digitised(np.arange(1_000_000) // 20 % 2 * 1.0)
    began_s = time.process_time()
    assert len(find_edges(waveform)) == 49_999
    assert time.process_time() - began_s < 1.0
