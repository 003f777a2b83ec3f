"""CSV files of Siglent, Keysight, Tektronix, LeCroy, Rohde & Schwarz, and Saleae."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.tests.text_files import CSV, changes, read_text, read_written, wave
from mqtick.analysis.readers.text_formats import FORMATS
from mqtick.analysis.signals.capture import CaptureError
from mqtick.analysis.signals.edges import find_edges

MS = 10**12
NS = 10**6


@pytest.mark.parametrize(
    ("name", "format", "instrument", "channel", "start_ns", "interval_ns", "volts"),
    [
        ("siglent-sds1202x-e", "Siglent", "Siglent SDS1202X-E", "CH1", 0, 2000, [1.16, 1.18]),
        ("siglent-two-lines", "Siglent", "", "CH1", -10, 1, [-22.528, -19.712]),
        ("siglent-1104x-e-old-head", "Siglent", "", "CH1", -70_000, 10, [-0.194, -0.192]),
        ("keysight-infiniivision", "Keysight InfiniiVision", "", "2", -950_001_000, 10**6,
         [-0.00853, 0.000955]),
        ("tektronix-tds2001c", "Tektronix", "Tektronix TDS2001C", "CH1", -330, 1,
         [0.0056, 0.0056]),
        ("tektronix-mso3012", "Tektronix", "Tektronix MSO3012", "CH2", -200_000, 40,
         [0.00609375, 0.005625]),
        ("rohde-schwarz", "Rohde & Schwarz", "Rohde & Schwarz", "C1", -558_971_640, 9240,
         [5.68945, 5.65039]),
    ],
)  # fmt: skip
def test_a_file_of_an_instrument_has_its_time_base_and_volts(
    name: str,
    format: str,
    instrument: str,
    channel: str,
    start_ns: int,
    interval_ns: int,
    volts: list[float],
) -> None:
    opened, (capture,) = read_text(CSV / f"{name}.csv")
    assert (opened.format, opened.instrument) == (f"{format} CSV", instrument)
    waveform = wave(capture, channel)
    assert waveform.start_fs == start_ns * NS
    assert waveform.interval_fs == interval_ns * NS
    assert np.allclose(waveform.volts()[:2], volts, atol=2e-4 * np.ptp(waveform.volts()))


@pytest.mark.parametrize("path", sorted(CSV.glob("[!p]*.csv")), ids=lambda path: path.stem)
def test_a_file_is_recognised_by_its_own_format_before_plain_csv(path: Path) -> None:
    head = path.read_bytes()[: 1 << 14]
    names = [known.name for known in FORMATS if known.recognises(head)]
    assert names[-1] != names[0]
    assert names[1:] == ["CSV with named columns"] or path.stem.startswith("tektronix-tds")


def test_siglents_channels_may_be_several(tmp_path: Path) -> None:
    text = (
        "Record Length,Analog:3\nSample Interval,CH1:1.0E-06,CH3:1.0E-06\n"
        "Vertical Units,CH1:V,CH3:mV,,\nSource,CH1,CH3\nSecond,Value,Value\n"
        "-1.0E-06,1.0,100\n0.0E+00,2.0,200\n1.0E-06,3.0,300\n"
    )
    opened, (capture,) = read_written(tmp_path, text)
    assert list(capture.signals) == ["CH1", "CH3"]
    assert np.allclose(wave(capture, "CH3").volts(), [0.1, 0.2, 0.3])
    assert capture.triggered
    assert opened.notes == []


def test_siglents_record_that_begins_at_0_is_not_taken_for_triggered() -> None:
    _, (capture,) = read_text(CSV / "siglent-sds1202x-e.csv")
    assert not capture.triggered


def test_keysights_segments_are_captures_of_their_own(tmp_path: Path) -> None:
    segment = "-1.0E-06,{0},1\n+0.0E+00,{0},2\n+1.0E-06,{0},3\n"
    text = "x-axis,1,2\nsecond,Volt,Volt\n" + "".join(segment.format(n) for n in (1, 2, 3))
    _, captures = read_written(tmp_path, text)
    assert [wave(each, "1").volts()[0] for each in captures] == [1, 2, 3]
    assert {wave(each, "2").start_fs for each in captures} == {-1000 * NS}


def test_a_thousand_segments_are_read_as_fast_as_one(tmp_path: Path) -> None:
    rows = "".join(f"{n * 1e-6:.1E},{n % 7}\n" for n in range(20))
    _, captures = read_written(tmp_path, "x-axis,1\nsecond,Volt\n" + 1000 * rows)
    assert len(captures) == 1000
    assert np.allclose(wave(captures[-1], "1").volts(), np.arange(20) % 7, atol=1e-3)


def test_keysights_spectra_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="'Hertz' and not in seconds"):
        read_written(tmp_path, "x-axis,FFT\nHertz,dB\n0,1\n1,2\n")


def test_a_channel_that_ends_earlier_keeps_its_place_in_time(tmp_path: Path) -> None:
    text = "x-axis,1,2\nsecond,Volt,Volt\n0E-6,,5\n1E-6,1.5,6\n2E-6,2.5,\n3E-6,3.5,\n"
    _, (capture,) = read_written(tmp_path, text)
    assert wave(capture, "1").start_fs == 1000 * NS
    assert np.allclose(wave(capture, "1").volts(), [1.5, 2.5, 3.5])
    assert np.allclose(wave(capture, "2").volts(), [5, 6])


@pytest.mark.parametrize("timed", [True, False])
def test_infiniiums_head_tells_the_time(tmp_path: Path, timed: bool) -> None:
    head = (
        "Revision:,0\nType:,raw\nStart:,0\nPoints:,3\nXInc:,2.0E-09\nXOrg:,-4.0E-09\n"
        "XUnits:,Second\nFrame:,DSO90604A:MY1\nYUnits:,Volt\nData:,\n"
    )
    rows = ["-4E-9,1\n", "-2E-9,2\n", "0,3\n"] if timed else ["1\n", "2\n", "3\n"]
    opened, (capture,) = read_written(tmp_path, head + "".join(rows))
    assert opened.instrument == "Keysight DSO90604A:MY1"
    assert wave(capture, "1").start_fs == -4 * NS
    assert np.allclose(wave(capture, "1").volts(), [1, 2, 3])


def test_a_format_without_a_file_of_its_own_says_so() -> None:
    assert [known.name for known in FORMATS if not known.tested] == ["Keysight Infiniium CSV"]


def test_what_tektronix_own_library_writes_is_read() -> None:
    opened, (capture,) = read_text(CSV / "tektronix-tm-data-types.csv")
    waveform = wave(capture, "CH1")
    assert opened.notes == []
    assert (waveform.start_fs, waveform.interval_fs) == (-80 * NS, 4 * NS)
    (edge,) = find_edges(waveform)
    assert (
        edge.instant_fs == 2 * NS
    )  # 0.1 V until -4 ns, 0.9 V at 0, 1.7 V at 4 ns, 2.5 V from 8 on
    _, (digital,) = read_text(CSV / "tektronix-tm-data-types-digital.csv")
    assert len(digital.signals) == 8
    (edge,) = find_edges(wave(digital, "CH2_D7"))
    assert (edge.rising, edge.instant_fs) == (False, -NS // 2)


def test_lecroys_segments_are_captures_and_the_channel_is_in_the_files_name(
    tmp_path: Path,
) -> None:
    opened, captures = read_text(CSV / "lecroy-ws4054hd.csv")
    assert opened.instrument == "LeCroy WS4054HD"
    assert [wave(each, "Ampl").codes.size for each in captures] == [5, 16]
    assert [wave(each, "Ampl").start_fs for each in captures] == [7_094_280_000, -2_882_120_000]
    named = tmp_path / "C2--Trace--00000.csv"
    named.write_bytes((CSV / "lecroy-ws4054hd.csv").read_bytes())
    assert list(read_text(named)[1][0].signals) == ["C2"]


def test_saleaes_changes_are_exact_and_as_uncertain_as_the_sample_interval() -> None:
    _, (capture,) = read_text(CSV / "saleae-logic2-digital.csv")
    edges = changes(capture, "Channel 2").edges()
    assert len(edges) == 26
    assert (edges[0].instant_fs, edges[0].rising) == (4_046_318 * 10**9, False)
    assert {edge.uncertainty_fs for edge in edges} == {2_000 * NS}  # 500 kS/s
    assert changes(capture, "Channel 0").edges() == []
    assert not capture.triggered


@pytest.mark.parametrize(
    ("rate_hz", "uncertainty_ns"), [(500e6, 2), (25e6, 40), (24e6, 41.666667), (3e6, 333.333333)]
)
def test_the_sample_interval_is_found_in_rounded_times_of_changes(
    tmp_path: Path, rate_hz: float, uncertainty_ns: float
) -> None:
    samples = np.cumsum([700, 31, 1117, 2, 4099, 13, 977, 5, 8191, 3, 11, 640])
    rows = "".join(f"{1 + n / rate_hz:.9f},{i % 2}\n" for i, n in enumerate(samples))
    opened, (capture,) = read_written(tmp_path, "Time [s],publisher\n" + rows)
    assert opened.format == "Saleae Logic CSV"
    edges = changes(capture, "publisher").edges()
    assert {round(edge.uncertainty_fs / NS, 6) for edge in edges} == {uncertainty_ns}


def test_saleaes_analogue_channels_are_waveforms(tmp_path: Path) -> None:
    rows = "".join(f"{n * 1e-6:.9f},{3.3 * (n > 4)}\n" for n in range(9))
    _, (capture,) = read_written(tmp_path, "Time [s],Channel 0\n" + rows)
    (edge,) = find_edges(wave(capture, "Channel 0"))
    assert edge.instant_fs == 4_500 * NS


def test_a_channel_that_never_changed_is_no_error(tmp_path: Path) -> None:
    _, (capture,) = read_written(tmp_path, "Time [s],Channel 0\n0.000000000,1\n2.000000000,1\n")
    assert changes(capture, "Channel 0").edges() == []
    assert changes(capture, "Channel 0").initial == 1


def test_dates_instead_of_seconds_are_refused_with_the_setting_that_made_them(
    tmp_path: Path,
) -> None:
    with pytest.raises(CaptureError, match="ISO8601"):
        read_written(tmp_path, "Time [s],Channel 0\n2026-11-21T10:00:00.5+00:00,1\n")
