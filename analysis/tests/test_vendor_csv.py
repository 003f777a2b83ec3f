"""CSV files of Siglent, Keysight, Tektronix, LeCroy, Rohde & Schwarz, and Saleae."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.tests.text_files import CSV, changes, read_text, read_written, wave
from mqtick.analysis.readers import registry
from mqtick.analysis.readers.registry import FORMATS, open_capture
from mqtick.recording.capture import CaptureError
from mqtick.recording.edges import find_edges

MS = 10**12
NS = 10**6


# Heads as descriptions of the formats have them, over rows made up here.

SIGLENT_TWO_LINES = """Source,CH1
Second,Volt
-2.000000E-08,-3.000000E+00
-1.000000E-08,-1.000000E+00
+4.440892E-24,+1.000000E+00
+1.000000E-08,+3.000000E+00
"""
SIGLENT_OLD = """Record Length,Analog:4
Sample Rate,100000000.0
Vertical Scale,CH2: 0.05
Vertical Offset,CH2:0.00000
Horizontal Scale, 0.000010000
Second,Volt
-0.00007000000,-0.20000
-0.00006999000,-0.10000
-0.00006998000,0.00000
-0.00006997000,0.20000
"""
TEKTRONIX_TDS = """Record Length,5.00E+00,,-0.00000002,0.008
Sample Interval,1.00E-08,,-0.00000001,0.016
Trigger Point,2.00E+00,,0,0.024
,,,0.00000001,0.024
Source,CH2,,0.00000002,0.032
Vertical Units,V,,0.00000003,0.032
Horizontal Units,s,,0.00000004,0.04
Model Number,TDS2001C,,0.00000005,0.048
"""
TEKTRONIX_MSO = """Model,MSO3012
Firmware Version,2.40

Waveform Type,ANALOG,
Horizontal Units,s,
Sample Interval,4e-08,
Record Length,4,
Vertical Units,V,
,,
Label,,
TIME,CH1,CH2
-8.0000e-08,-0.25,0.5
-4.0000e-08,-0.25,0.75
0.0000e+00,0.5,1.0
4.0000e-08,0.5,1.5
"""
LECROY = """LECROYWS4054HD,18156,Waveform
Segments,2,SegmentSize,3
Segment,TrigTime,TimeSinceSegment1
#1,21-Nov-2026 10:00:00,0
#2,21-Nov-2026 10:00:00,0.001
Time,Ampl
-8.0e-009,0.25
0.0e+000,0.5
8.0e-009,0.75
-6.0e-009,0.25
2.0e-009,0.25
1.0e-008,1.25
"""
INFINIIUM = (
    "Revision:,0\nType:,raw\nStart:,0\nPoints:,3\nXInc:,2.0E-09\nXOrg:,-4.0E-09\n"
    "XUnits:,Second\nFrame:,DSO90604A:MY1\nYUnits:,Volt\nData:,\n"
)
SALEAE = "Time [s],Channel 0,Channel 1\n" + "".join(
    f"{at:.9f},1,{n % 2}\n"
    for n, at in enumerate([4.030422317, *(4.046 + 2e-6 * k for k in
                            (0, 13, 86, 98, 103, 117, 123, 136, 144, 157, 167))], start=1)
)  # fmt: skip


# Numbers as they stand in files that others published (what is left out are more rows, and serial
# numbers): a waveform of a Siglent SDS1202X-E, of an SDS1104X-E through Siglent's converter, of a
# Keysight N8900A, of a LeCroy HDO9404, and a recording of a Saleae analyser.
PUBLISHED_LECROY = """LECROYHDO9404,00000,Waveform
Segments,1,SegmentSize,5
Segment,TrigTime,TimeSinceSegment1
#1,28-Dec-2020 13:34:10,0
Time,Ampl
-1.78051e-07,-0.00034916992
-1.76051e-07,-0.00029708659
-1.74051e-07,-0.00029708659
-1.72051e-07,-0.00035812174
-1.70051e-07,-0.00042729492
"""
PUBLISHED_SIGLENT = """Record Length,Analog:5
Sample Interval,CH1:0.0000020000000
Vertical Units,CH1:V,,,
Vertical Scale,CH1:0.50,,,
Vertical Offset,CH1:0.00,,,
Horizontal Units,us,,,
Horizontal Scale,20000.0000000000,,,
Model Number,SDS1202X-E,,,
Software Version,1.3.26,,,
Source,CH1
Second,Volt
 0.00000000000,1.16000
 0.00000200000,1.18000
 0.00000400000,1.20000
 0.00000600000,1.22000
 0.00000800000,1.22000
"""
PUBLISHED_SIGLENT_CONVERTED = """Record Length,Analog:14000
Sample Rate,100000000.0
Vertical Scale,CH1: 0.05
Vertical Offset,CH1:0.00000
Horizontal Scale, 0.000010000
Second,Volt
-0.00007000000,-0.19400
-0.00006999000,-0.19200
-0.00006998000,-0.19200
-0.00006997000,-0.19400
"""
PUBLISHED_INFINIIUM = """Revision:           0
Type:               interpolation
Start:              0
Points:             4
Count:              1
XDispRange:         1.00000E-09
XDispOrg:           -5.00000000E-10
XInc:               3.90625E-13
XOrg:               -3.118266724E-09
XUnits:             Second
YUnits:             Volt
Frame:              N8900A
Max Bandwidth:      62000000000
Data:\x20
-3.118267E-09,4.422743E-02
-3.117876E-09,4.370251E-02
-3.117485E-09,4.318980E-02
-3.117095E-09,4.267709E-02
"""
PUBLISHED_SALEAE = """Time [s],Channel 2
1.470471113,0
1.471132000,1
1.471144000,0
1.471466000,1
1.471480000,0
1.475325983,0
"""


def test_an_interval_of_parts_of_a_femtosecond_is_known_as_well_as_it_can_be(
    tmp_path: Path,
) -> None:
    opened, (capture,) = read_written(tmp_path, PUBLISHED_INFINIIUM)
    assert (opened.format, opened.instrument) == ("Keysight Infiniium CSV", "Keysight N8900A")
    waveform = wave(capture, "1")
    assert (waveform.start_fs, waveform.interval_fs) == (-3_118_267, 391)
    assert waveform.volts()[:2] == pytest.approx([4.422743e-2, 4.370251e-2], abs=1e-5)
    assert capture.timebase_ppm == pytest.approx((391 / 390.625 - 1) * 1e6)


def test_a_recording_of_a_saleae_has_its_edges(tmp_path: Path) -> None:
    opened, (capture,) = read_written(tmp_path, PUBLISHED_SALEAE)
    assert opened.format == "Saleae Logic CSV"
    assert changes(capture, "Channel 2").instants_fs() == [
        1_471_132_000_000_000, 1_471_144_000_000_000, 1_471_466_000_000_000, 1_471_480_000_000_000,
    ]  # fmt: skip


@pytest.mark.parametrize("between", [",", ";", " "])
def test_lecroy_separates_in_several_ways(tmp_path: Path, between: str) -> None:
    text = LECROY.replace("Segments,2", "Segments,1").replace("#2,21", "#1,21")
    head, rows = text.partition("Time,Ampl\n")[::2]
    text = f"{head}Time,Ampl\n" + "".join(rows.splitlines(keepends=True)[:3])
    path = tmp_path / "C2--run--00000.csv"
    path.write_text(text.replace(",", between))
    opened = open_capture(path)
    (capture,) = opened.read()
    assert (opened.format, opened.instrument) == ("LeCroy CSV", "LeCroy WS4054HD")
    assert wave(capture, "C2").volts()[:2] == pytest.approx([0.25, 0.5], abs=1e-4)


INFINIIUM_BESIDE = (
    ",Channel 1,Channel 3\nRevision:,2,2\nPoints:,3,3\nXInc:,2.0E-09,2.0E-09\n"
    "XOrg:,-4.0E-09,-4.0E-09\nFrame:,DSOS804A,DSOS804A\nTime Tags,0,0\n"
    + "".join(f"{at}E-9,0.{n},{at}E-9,1.{n}\n" for n, at in enumerate((-4, -2, 0)))
)


def test_channels_of_an_infiniium_may_each_have_their_times(tmp_path: Path) -> None:
    _, (capture,) = read_written(tmp_path, INFINIIUM_BESIDE)
    assert list(capture.signals) == ["Channel 1", "Channel 3"]
    assert wave(capture, "Channel 3").volts() == pytest.approx([1.0, 1.1, 1.2], abs=1e-4)


def test_segments_of_an_infiniium_are_not_taken_for_channels(tmp_path: Path) -> None:
    segments = INFINIIUM_BESIDE.replace("Channel 3", "Channel 1")
    with pytest.raises(CaptureError, match=r"2 segments side by side.*save it as \.bin"):
        read_written(tmp_path, segments)


@pytest.mark.parametrize(
    ("text", "format", "instrument", "channel", "start_ns", "interval_ns", "volts"),
    [
        (PUBLISHED_SIGLENT, "Siglent", "Siglent SDS1202X-E", "CH1", 0, 2000, [1.16, 1.18]),
        (PUBLISHED_SIGLENT_CONVERTED, "Siglent", "Siglent", "CH1", -70_000, 10, [-0.194, -0.192]),
        (SIGLENT_TWO_LINES, "Siglent", "Siglent", "CH1", -20, 10, [-3, -1]),
        (SIGLENT_OLD, "Siglent", "Siglent", "CH2", -70_000, 10, [-0.2, -0.1]),
        (TEKTRONIX_TDS, "Tektronix", "Tektronix TDS2001C", "CH2", -20, 10, [0.008, 0.016]),
        (TEKTRONIX_MSO, "Tektronix", "Tektronix MSO3012", "CH2", -80, 40, [0.5, 0.75]),
        (LECROY, "LeCroy", "LeCroy WS4054HD", "Ampl", -8, 8, [0.25, 0.5]),
        (
            PUBLISHED_LECROY, "LeCroy", "LeCroy HDO9404",
            "Ampl", -178.051, 2, [-0.00034917, -0.000297087],
        ),
        (
            (CSV / "keysight-scope-plot.csv").read_text(),
            "Keysight InfiniiVision", "Keysight", "2", -1000, 1, [-0.000201005, 0],
        ),
        (
            (CSV / "rohde-schwarz.csv").read_text(),
            "Rohde & Schwarz", "Rohde & Schwarz", "C1", -558_971_640, 9240, [5.68945, 5.65039],
        ),
    ],
)  # fmt: skip
def test_a_file_of_an_instrument_has_its_time_base_and_volts(
    tmp_path: Path,
    text: str,
    format: str,
    instrument: str,
    channel: str,
    start_ns: float,
    interval_ns: int,
    volts: list[float],
) -> None:
    opened, (capture, *_) = read_written(tmp_path, text)
    assert (opened.format, opened.instrument) == (f"{format} CSV", instrument)
    waveform = wave(capture, channel)
    assert waveform.start_fs == start_ns * NS
    assert waveform.interval_fs == interval_ns * NS
    assert np.allclose(waveform.volts()[:2], volts, atol=2e-4 * np.ptp(waveform.volts()))


HEADS = [path.read_bytes() for path in sorted(CSV.glob("[!s]*.csv"))] + [
    text.encode()
    for text in (PUBLISHED_SIGLENT, SIGLENT_TWO_LINES, SIGLENT_OLD, TEKTRONIX_MSO, LECROY, SALEAE)
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: str(head[:20]))
def test_a_file_is_recognised_by_its_own_format_before_plain_csv(head: bytes) -> None:
    names = [known.name for known in FORMATS if known.recognises(head[: 1 << 14])]
    assert len(names) == 2
    assert names[1] == "CSV with named columns"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    head=st.sampled_from([*HEADS, TEKTRONIX_TDS.encode(), INFINIIUM.encode()]),
    cut=st.integers(0, 3000),
    at=st.integers(0, 2000),
    junk=st.binary(max_size=12),
)
def test_damaged_files_are_read_or_refused_and_nothing_else(
    tmp_path: Path, head: bytes, cut: int, at: int, junk: bytes
) -> None:
    whole = head[:3000]
    damaged = (whole[:at] + junk + whole[at + len(junk) :])[:cut]
    try:
        opened, captures = read_written(tmp_path, damaged)
    except CaptureError:
        return
    assert opened.format
    assert captures


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x-axis,FFT\nHertz,dB\n0,1\n1,2\n", "the time is in 'Hertz', which must be s"),
        (TEKTRONIX_MSO.replace("Units,s", "Units,Hz"), "the time is in 'Hz'"),
        (
            PUBLISHED_SIGLENT.partition("Second")[0],
            "head of a file of Siglent CSV but no line of names",
        ),
        (TEKTRONIX_MSO.partition("-8.0")[0], "head of a file of Tektronix CSV but no line"),
        (LECROY.partition("-8.0")[0], "head of a file of LeCroy CSV but no line of names"),
    ],
)
def test_a_file_without_samples_over_time_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(CaptureError, match=says):
        read_written(tmp_path, text)


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


def test_siglents_record_that_begins_at_0_is_not_taken_for_triggered(tmp_path: Path) -> None:
    _, (capture,) = read_written(tmp_path, PUBLISHED_SIGLENT)
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


def test_a_channel_that_ends_earlier_keeps_its_place_in_time(tmp_path: Path) -> None:
    text = "x-axis,1,2\nsecond,Volt,Volt\n0E-6,,5\n1E-6,1.5,6\n2E-6,2.5,\n3E-6,3.5,\n"
    _, (capture,) = read_written(tmp_path, text)
    assert wave(capture, "1").start_fs == 1000 * NS
    assert np.allclose(wave(capture, "1").volts(), [1.5, 2.5, 3.5])
    assert np.allclose(wave(capture, "2").volts(), [5, 6])


@pytest.mark.parametrize("timed", [True, False])
def test_infiniiums_head_tells_the_time(tmp_path: Path, timed: bool) -> None:
    rows = ["-4E-9,1\n", "-2E-9,2\n", "0,3\n"] if timed else ["1\n", "2\n", "3\n"]
    opened, (capture,) = read_written(tmp_path, INFINIIUM + "".join(rows))
    assert opened.instrument == "Keysight DSO90604A:MY1"
    assert wave(capture, "1").start_fs == -4 * NS
    assert np.allclose(wave(capture, "1").volts(), [1, 2, 3])


def test_a_format_without_a_file_of_its_own_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(LECROY)
    unseen = [replace(known, tested="") for known in registry.FORMATS]
    monkeypatch.setattr(registry, "FORMATS", unseen)
    assert "untested: no such file by other authors was available" in open_capture(path).notes[0]


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
    _, captures = read_written(tmp_path, LECROY)
    assert [wave(each, "Ampl").start_fs for each in captures] == [-8 * NS, -6 * NS]
    named = tmp_path / "C2--Trace--00000.csv"
    named.write_text(LECROY)
    assert list(read_text(named)[1][0].signals) == ["C2"]


def test_saleaes_changes_are_exact_and_as_uncertain_as_the_sample_interval(tmp_path: Path) -> None:
    _, (capture,) = read_written(tmp_path, SALEAE)
    edges = changes(capture, "Channel 1").edges()
    assert len(edges) == 11
    assert (edges[0].instant_fs, edges[0].rising) == (4_046 * 10**12, False)
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


@pytest.mark.parametrize("more_ppm", [978, 3000])
def test_a_head_that_tells_another_interval_than_the_times_is_believed(
    tmp_path: Path, more_ppm: float
) -> None:
    head = "Record Length,Analog:1023\nSample Interval,CH1:1.0E-05\nSource,CH1\nSecond,Volt\n"
    rows = (f"{n * 1e-5 * (1 + more_ppm * 1e-6):.9e},{n % 100 // 50}.5\n" for n in range(1023))
    opened, (capture,) = read_written(tmp_path, head + "".join(rows))
    assert wave(capture, "CH1").interval_fs == 10**10
    (note,) = opened.notes
    assert "The head says that samples are 1e-05 s apart, and the times are" in note
    assert "1e-05 s was taken, and the time base counts as uncertain by the difference" in note
    assert more_ppm <= capture.timebase_ppm < more_ppm + 1


def test_times_of_every_fourth_sample_are_believed_and_not_the_head(tmp_path: Path) -> None:
    head = "Record Length,Analog:500\nSample Interval,CH1:1.0E-05\nSource,CH1\nSecond,Volt\n"
    rows = (f"{n * 4e-5:.6e},{n % 100 // 50}.5\n" for n in range(500))
    opened, (capture,) = read_written(tmp_path, head + "".join(rows))
    assert wave(capture, "CH1").interval_fs == 4 * 10**10
    assert (
        "4e-05 s apart (3,000,000 parts per million off); the times were taken" in opened.notes[0]
    )
