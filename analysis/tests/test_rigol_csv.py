"""Rigol's CSV dialects: files of ten models, and what time is rebuilt from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.tests.text_files import CSV, open_text, read_text, read_written, wave
from mqtick.recording.capture import CaptureError
from mqtick.recording.edges import find_edges

NUMBERED = "X,CH1,CH2,Start,Increment,\r\nSequence,Volt,Volt,-1.0e-03,2.0e-06\r\n"


@pytest.mark.parametrize(
    ("name", "channels", "rows", "interval_ns", "start_ns"),
    [
        ("ds1042c", ["CH1"], 2000, 50, 93_000),
        ("ds1052e", ["CH 1", "CH 2"], 80, 2, 0),
        ("ds1054z", ["CH1", "CH2", "CH3", "CH4"], 60, 0.5, -300),
        ("ds1074z", ["CH1", "CH2", "CH3"], 60, 50, 8_970_001),
        ("ds1102d", ["CH 1", "CH 2"], 100, 10_000, -4_688_000),
        ("ds1102e", ["CH1"], 100, 20, -6_000),
        ("ds1204b", ["CH2", "CH4"], 80, 4_000, -16_384_000),
        ("ds2000", ["CH 1", "CH 2"], 60, 1, 0),
        ("ds2072a", ["CH2"], 60, 5_000, -3_500_000),
        ("ds4024", ["CH1", "CH2"], 60, 2_000, -1_356_000),
    ],
)
def test_every_model_has_its_channels_and_an_exact_time_base(
    name: str, channels: list[str], rows: int, interval_ns: float, start_ns: int
) -> None:
    opened, captures = read_text(CSV / f"rigol-{name}.csv")
    assert opened.format == "Rigol CSV"
    (capture,) = captures
    assert list(capture.signals) == channels
    for channel in channels:
        waveform = wave(capture, channel)
        assert waveform.codes.size == rows
        assert waveform.interval_fs == interval_ns * 1_000_000
        assert waveform.start_fs == start_ns * 1_000_000


def test_volts_are_those_of_the_file() -> None:
    _, (capture,) = read_text(CSV / "rigol-ds1054z-square.csv")
    lines = (CSV / "rigol-ds1054z-square.csv").read_text().splitlines()[2:]
    for place, channel in enumerate(capture.signals, 1):
        told = [float(line.split(",")[place]) for line in lines]
        assert np.allclose(wave(capture, channel).volts(), told, atol=1e-6)


def test_the_edges_of_a_square_wave_are_where_its_rows_say() -> None:
    # Rows 32,150 to 32,399 of the record: the square wave falls once.
    _, (capture,) = read_text(CSV / "rigol-ds1054z-square.csv")
    (edge,) = find_edges(wave(capture, "CH1"))
    assert not edge.rising
    row = (edge.instant_fs + 1_200_000_000_000) / 40_000_000
    assert 32_345 < row < 32_360  # a slow edge: 2.86 V to 0.06 V, 1.46 V at row 32,354
    uart = find_edges(wave(capture, "CH2"))
    rows = [int((each.instant_fs + 1_200_000_000_000) / 40_000_000) for each in uart]
    assert rows == [32_166]


def test_repeated_times_are_rebuilt_and_a_note_says_so() -> None:
    opened, _ = read_text(CSV / "rigol-ds1042c.csv")
    assert "1,834 of 2,000 repeat" in opened.notes[0]
    assert "5e-08 s apart" in opened.notes[0]


def test_times_that_are_stretched_to_the_end_of_the_record_are_not_believed() -> None:
    opened, (capture,) = read_text(CSV / "rigol-ds1102d.csv")
    (note,) = opened.notes
    assert "A record of 1,024 samples has them 1e-05 s apart" in note
    assert "as if they were spread over 1,023 intervals: 1e-05 s was taken" in note
    assert "uncertain by the difference, 980 parts per million" in note
    # The interval of the file is within what is stated.
    assert 978 < capture.timebase_ppm < 1010


def test_times_rounded_to_24_bits_need_no_note() -> None:
    opened, _ = read_text(CSV / "rigol-ds1102e.csv")
    assert opened.notes == []


def test_a_record_that_is_shorter_than_its_head_says_so() -> None:
    opened, _ = read_text(CSV / "rigol-ds1052e.csv")
    assert opened.notes == [
        "The head announces 8,192 samples and there are 80: the file was cut off."
    ]


@pytest.mark.parametrize(
    "head",
    [
        "CH1V,CH2V,t0 =-1.0e-3,tInc =4e-08\n",
        "CH1V,CH2V,t0 =-1.000000e-03, tInc = 4.000000e-08,\n",
        "sep=,\r\nCH1V,CH2V,t0=-1.0e-3,tInc=4e-08\r\n",
    ],
)
def test_mso5000_and_dho_tell_the_time_in_their_first_line(tmp_path: Path, head: str) -> None:
    _, (capture,) = read_written(tmp_path, head + "0.1,0.5,,\n0.2,0.6,,\n3.3,0.7,,\n")
    assert list(capture.signals) == ["CH1", "CH2"]
    assert wave(capture, "CH1").start_fs == -(10**12)
    assert wave(capture, "CH1").interval_fs == 40_000_000
    assert np.allclose(wave(capture, "CH2").volts(), [0.5, 0.6, 0.7])


def test_a_time_column_beside_t0_and_tinc_is_not_trusted(tmp_path: Path) -> None:
    text = "Time(s),CH1V,t0 =-1.0e-3,tInc =4e-08\n-1.0e-3,0\n-1.0e-3,1\n-1.0e-3,2\n"
    _, (capture,) = read_written(tmp_path, text)
    assert list(capture.signals) == ["CH1"]
    assert wave(capture, "CH1").instant_fs(2) == -(10**12) + 80_000_000


@pytest.mark.parametrize("rows", ["0,1,1,\r\n1,1,1,\r\n3,1,1,\r\n", ",1,1,\r\n"])
def test_missing_numbers_are_refused_instead_of_moving_rows_up(tmp_path: Path, rows: str) -> None:
    with pytest.raises(CaptureError, match="rows are missing"):
        read_written(tmp_path, NUMBERED + rows)


def test_half_a_file_is_read_up_to_its_last_whole_row(tmp_path: Path) -> None:
    opened, (capture,) = read_written(
        tmp_path, NUMBERED + "0,1.00e+00,1.00e+00,\r\n1,1.00e+00,2.00e+00,\r\n2,1.00e+00,2.0"
    )
    assert wave(capture, "CH2").codes.size == 2
    assert opened.notes == ["The last line of the file is cut off and was left out."]


def test_a_head_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no row of numbers"):
        read_written(tmp_path, NUMBERED)


@pytest.mark.parametrize("told", ["-1.0e-03,0", "nan,1e-6", "-1.0e-03,", "1e99,1e99", "a,b"])
def test_a_time_base_that_is_none_is_refused(tmp_path: Path, told: str) -> None:
    with pytest.raises(CaptureError, match="not seconds"):
        read_written(tmp_path, f"X,CH1,Start,Increment\nSequence,Volt,{told}\n0,1\n1,2\n")


def test_a_channel_in_millivolts_is_in_volts(tmp_path: Path) -> None:
    text = "X,CH1,Start,Increment\nSequence,mVolt,0,1e-6\n0,1000\n1,2000\n"
    _, (capture,) = read_written(tmp_path, text)
    assert np.allclose(wave(capture, "CH1").volts(), [1, 2])


def test_opening_does_not_read_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(NUMBERED + "0,1,1,\r\n" * 3)  # doubled rows are found when they are read
    assert open_text(path).format == "Rigol CSV"
