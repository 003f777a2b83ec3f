"""A few wrong samples move no edge, make none and hide none, and the report names them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.tests.text_files import CSV, read_text
from mqtick.analysis import load
from mqtick.analysis.captures.look import look_at
from mqtick.recording.edges import EdgeError, find_edges, state_levels
from mqtick.recording.quantise import waveform_of_volts
from mqtick.recording.sample_notes import outliers_of
from mqtick.recording.units import Floats
from mqtick.recording.waveform import Waveform
from recording.tests.edge_parts import digitised, gaussian, ringing

SIZE = 20_000
US_FS = 10**9


def pulse(begin: float, width: float, rise: float = 2.0, noise: float = 0.01) -> Floats:
    """One pulse from 0 to 1, in samples, with noise."""
    x = np.arange(SIZE, dtype=np.float64)
    shares = gaussian((x - begin) / rise) - gaussian((x - begin - width) / rise)
    return shares + np.random.default_rng(3).normal(0, noise, SIZE)


def recorded(shares: Floats) -> Waveform:
    """A converter of 12 bits that a pulse of 1 fills to a tenth."""
    return digitised(shares, "<u2", 400, 1000, bits=12)


def places(waveform: Waveform) -> list[float]:
    return [edge.instant_fs / US_FS for edge in find_edges(waveform)]


@pytest.mark.parametrize("width", [20, 200, 10_000, 19_900])  # 0.1 % of the record and more
@pytest.mark.parametrize("wrong", [[2.42], [7.0], [-2.0, 7.0], [5.0, 6.0, 7.0]])
def test_outliers_move_no_edge(width: int, wrong: list[float]) -> None:
    shares = pulse(50.3, width)
    truth = places(recorded(shares))
    assert len(truth) == 2
    for first in (0, 20, 60, SIZE - len(wrong)):
        with_wrong = shares.copy()
        with_wrong[first : first + len(wrong)] = wrong
        waveform = recorded(with_wrong)
        assert places(waveform) == pytest.approx(truth, abs=0.02)
        assert state_levels(waveform).outliers == len(wrong)


def test_garbage_at_the_start_hides_no_edge() -> None:
    x = np.arange(SIZE)
    shares = (x // 900 % 2).astype(np.float64) + np.random.default_rng(1).normal(0, 0.02, SIZE)
    clean = len(find_edges(recorded(shares)))
    shares[:3] = 7.0, -2.4, 7.5
    assert clean == 22
    assert len(find_edges(recorded(shares))) == clean


def test_an_edge_beside_an_outlier_is_as_uncertain_as_the_outlier_hides() -> None:
    shares = pulse(5000.3, 5000)
    (sure, _) = find_edges(recorded(shares))
    shares[4999:5003] = 7.0
    (unsure, _) = find_edges(recorded(shares))
    assert abs(unsure.instant_fs - sure.instant_fs) <= unsure.uncertainty_fs
    assert (
        sure.uncertainty_fs + 4 * US_FS <= unsure.uncertainty_fs < sure.uncertainty_fs + 6 * US_FS
    )


@pytest.mark.parametrize("samples", [1, 3, 20])
@pytest.mark.parametrize("disturbed", ["noise", "hum", "drift", "last bit", "ringing"])
def test_a_short_pulse_is_no_outlier_whatever_its_base_does(samples: int, disturbed: str) -> None:
    x = np.arange(SIZE, dtype=np.float64)
    base = {
        "noise": np.random.default_rng(2).normal(0, 0.02, SIZE),
        "hum": 0.1 * np.sin(x / 700),
        "drift": 0.2 * x / SIZE,
        "last bit": x % 2 / 400,
        "ringing": 0.2 * np.exp(-x / 3000) * np.sin(x / 50),
    }[disturbed]
    base[9000 : 9000 + samples] += 1
    assert places(recorded(base)) == pytest.approx([8999.5, 8999.5 + samples], abs=0.6)


@pytest.mark.parametrize("samples", [1, 3])
def test_a_level_of_three_samples_or_less_is_said(samples: int) -> None:
    shares = np.random.default_rng(2).normal(0, 0.02, SIZE)
    shares[9000 : 9000 + samples] += 1
    waveform = recorded(shares)
    assert f"Only {samples} of 20,000 samples" in outliers_of(waveform, state_levels(waveform))
    shares[9000:9010] = 1
    assert outliers_of(recorded(shares), state_levels(recorded(shares))) == ""


@pytest.mark.parametrize("wrong", [[-3.0, 7.0], [-1.5, -1.3, 5.0], [-2.3, 2.4]])
def test_outliers_on_both_sides_hide_no_slow_edge(wrong: list[float]) -> None:
    shares = pulse(5000.3, 2000, rise=600.0)
    truth = places(recorded(shares))
    shares[:: SIZE // len(wrong)][: len(wrong)] = wrong
    assert places(recorded(shares)) == pytest.approx(truth, abs=2)


def test_overshoot_is_no_outlier() -> None:
    x = np.arange(SIZE, dtype=np.float64)
    waveform = recorded(ringing((x - 9000.3) / 4) - ringing((x - 9060.3) / 4))
    assert state_levels(waveform).outliers == 0
    assert places(waveform) == pytest.approx([9000.3, 9060.3], abs=0.1)


def test_samples_outside_that_are_no_few_are_said_and_not_passed_over() -> None:
    shares = pulse(5000.3, 2000)
    shares[::19], shares[1::19] = 3.4, -2.4
    waveform = recorded(shares)
    said = outliers_of(waveform, state_levels(waveform))
    assert "2,106 of 20,000 samples lie far outside its levels of" in said
    assert "too many for outliers" in said


@given(
    amplitude=st.sampled_from([0.7, 3.3, 5.0]),
    step=st.sampled_from([0.0, 0.02, 0.04]),
    wrong=st.lists(st.floats(-1e29, 1e29).filter(lambda v: abs(v) > 20), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
)
@settings(max_examples=20, deadline=None)
def test_volts_of_any_size_among_those_of_a_text_file_hide_no_edge(
    amplitude: float, step: float, wrong: list[float], seed: int
) -> None:
    random = np.random.default_rng(seed)
    volts = amplitude * pulse(5000.3, 200)
    if step:
        volts = np.rint(volts / step) * step
    truth = places(waveform_of_volts(volts, US_FS, 0))
    volts[random.choice(4000, len(wrong), replace=False)] = wrong
    waveform = waveform_of_volts(volts, US_FS, 0)
    assert places(waveform) == pytest.approx(truth, abs=0.05)
    assert state_levels(waveform, 0.5).outliers == len(wrong)


def written(path: Path, *, wrong: bool) -> Path:
    """1,200 rows 1 us apart: the publisher's edge at 0, the answer 120 us later."""
    at_us = np.arange(-200, 1000)
    publisher, answer = (3.3 * ((at_us >= at) & (at_us < at + 100)) for at in (0, 120))
    if wrong:
        answer[[50, 900]] = 8.0
        publisher[:3] = 4e5, -1e9, 77
    rows = zip((at_us * 1e-6).tolist(), publisher.tolist(), answer.tolist(), strict=True)
    lines = [f"{at:.6f},{one:.2f},{two:.2f}" for at, one, two in rows]
    path.write_text("\n".join(["time [s],publisher,first", *lines, ""]))
    return path


def test_a_latency_is_the_same_with_and_without_outliers_and_the_report_names_them(
    tmp_path: Path,
) -> None:
    clean = load(written(tmp_path / "clean.csv", wrong=False))
    found = load(written(tmp_path / "wrong.csv", wrong=True))
    for measurement in (clean, found):
        assert [shot.latency_fs for shot in measurement.shots] == [
            pytest.approx(120 * US_FS, abs=US_FS / 2)
        ]
    assert not any("outlier" in note for note in clean.notes)
    first, second = (note for note in found.notes if "outlier" in note)
    assert "publisher: 3 of 1,200 samples lie far outside its levels of 0 and 3.3 V" in first
    assert "or beyond" in first
    assert "first: 2 of 1,200 samples lie far outside its levels of 0 and 3.3 V" in second
    assert "as far as 8 V: " in second


@pytest.mark.parametrize("garbage", ["9.9e3", "-70", "1.2e7"])
@pytest.mark.parametrize("name", ["rigol-ds1042c", "rigol-ds1102e", "tektronix-tm-data-types"])
def test_three_rows_of_garbage_hide_no_edge_of_a_real_oscilloscope(
    tmp_path: Path, name: str, garbage: str
) -> None:
    lines = (CSV / f"{name}.csv").read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if n and line[:1] in tuple("-0123456789"))
    wrong = [f"{line.split(',')[0]},{garbage}" for line in lines[first : first + 3]]
    path = tmp_path / "wrong.csv"
    path.write_text("\n".join([*lines[:first], *wrong, *lines[first + 3 :], ""]))
    counts = []
    for each in (CSV / f"{name}.csv", path):
        _, captures = read_text(each)
        signal = next(iter(captures[0].signals.values()))
        assert isinstance(signal, Waveform)
        counts.append(len(find_edges(signal, 0.1)))
    assert counts[0] == counts[1] > 0


def test_a_listing_names_them_too(tmp_path: Path) -> None:
    text = look_at([written(tmp_path / "wrong.csv", wrong=True)]).text
    assert "publisher  2 edges, the first one rising at" in text
    assert "first: 2 of 1,200 samples lie far outside" in text


@pytest.mark.parametrize(
    ("volts", "said"),
    [
        (np.full(4000, 1.5), "flat: 0 V .* of 4,000 samples .1.5 to 1.5 V."),
        (0.1 * (np.arange(4000) // 70 % 2), "flat: 0.1 V .* of 4,000 samples .0 to 0.1 V."),
        (np.random.default_rng(0).normal(1, 1, 4000), "no two levels: of 4,000 samples"),
    ],
)
def test_no_edge_is_never_said_without_what_was_seen(volts: Floats, said: str) -> None:
    with pytest.raises(EdgeError, match=said):
        find_edges(waveform_of_volts(volts, US_FS, 0), 0.5)


def test_levels_without_a_passage_between_them_are_said_in_the_listing(tmp_path: Path) -> None:
    path = tmp_path / "runts.csv"
    late = np.minimum(np.arange(1, 1001) / 600, 1) * 3.3  # began before the record did
    late = 3.3 - 3.3 * np.exp(-np.arange(40, 1040) / 60)
    lines = [f"{at}e-6,{value:.4f},{value:.4f}" for at, value in enumerate(late)]
    path.write_text("\n".join(["time [s],a,b", *lines, ""]))
    assert "no edge. Its 1,000 samples (" in look_at([path]).text
