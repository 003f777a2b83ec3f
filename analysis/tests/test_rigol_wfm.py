"""Proprietary files through RigolWFM: what it reads becomes captures, and what it does not, errors.

Slow because RigolWFM takes two seconds to be imported.
"""

from __future__ import annotations

import shutil
import struct
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mqtick.analysis.captures.from_captures import measurement_from_captures
from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.readers import rigol_wfm
from mqtick.analysis.readers.registry import open_capture
from mqtick.recording.capture import CaptureError
from mqtick.recording.waveform import Waveform

BIN = Path(__file__).parent / "files" / "bin"

ISF = (
    b":WFMOUTPRE:BYT_NR 1;BIT_NR 8;ENCDG BIN;BN_FMT RI;BYT_OR MSB;WFID "
    b'"Ch2, DC coupling, 1.000V/div";NR_PT 100;PT_FMT Y;XUNIT "s";XINCR 4.0E-9;XZERO -2.0E-7;'
    b'PT_OFF 5;YUNIT "V";YMULT 0.04;YOFF 10;YZERO 1.5;:CURVE #3100'
)


def only(path: Path) -> tuple[str, Waveform]:
    (capture,) = open_capture(path).read()
    ((name, signal),) = capture.signals.items()
    assert isinstance(signal, Waveform)
    return name, signal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "format_name", "channel", "samples", "interval_fs", "start_fs"),
    [
        ("SDS814X-3v0-probe10x.bin", "Siglent binary", "CH1", 2000, 10**11, -(10**14)),
        ("SDS814X-zoom-z1.bin", "Siglent binary", "CH1", 200, 10**11, 5 * 10**12),
        ("lecroy_4.trc", "LeCroy TRC", "CH2", 502, 10**6, -120_745_007),
        ("trace1.000", "LeCroy TRC", "CH1", 5002, 10**6, -1_570_224_204),
        ("rs_rtp_03.bin", "Rohde & Schwarz binary", "CH1", 4000, 1_250_000_000, -25 * 10**11),
        ("T0000CH1_cut.isf", "Tektronix ISF", "CH1", 4000, 8_000_000, 34_604_800_000_000),
    ],
)
def test_files_of_instruments_are_read(
    name: str, format_name: str, channel: str, samples: int, interval_fs: int, start_fs: int
) -> None:
    pytest.importorskip("RigolWFM")
    assert open_capture(BIN / name).format == format_name
    found, waveform = only(BIN / name)
    assert (found, waveform.codes.size) == (channel, samples)
    assert (waveform.interval_fs, waveform.start_fs) == (interval_fs, start_fs)


def sequence(channel: int, segments: int, told: int = 0) -> bytes:
    """Return a LeCroy file of our own making: its segments begin at -3, -3.003, ... us.

    CH1 rises at 0 us, CH2 after 2.0, 2.1, ... us. `told` is how many trigger times are missing.
    """
    codes = np.full((segments, 1000), -50, np.int8)
    for number in range(segments):
        codes[number, 300 + number // 3 + (200 + 10 * number if channel == 2 else 0) :] = 50
    wavedesc = bytearray(346)
    for at, form, values in (
        (0, "16s16s2h", (b"WAVEDESC", b"LECROY_2_3", 0, 1)),
        (36, "4i", (346, 0, 0, 16 * (segments - told))),
        (60, "i", (codes.size,)),
        (116, "i", (codes.size,)),
        (144, "i", (segments,)),
        (156, "4f3h", (0.02, 0.0, 127.0, -128.0, 8, 0, 1)),
        (176, "<fd", (1e-8, -3e-6)),
        (296, "<d4Bh", (12.5, 30, 12, 1, 2, 2023)),
        (344, "h", (channel - 1,)),
    ):
        struct.pack_into(form, wavedesc, at, *values)
    times = [(0.01 * each, -3e-6 - 3e-9 * each) for each in range(segments - told)]
    return bytes(wavedesc) + b"".join(struct.pack("<2d", *t) for t in times) + codes.tobytes()


@pytest.mark.slow
def test_the_segments_of_a_sequence_are_captures_each_at_its_own_trigger(tmp_path: Path) -> None:
    pytest.importorskip("RigolWFM")
    for channel in (1, 2):
        (tmp_path / f"SEQ_C{channel}.trc").write_bytes(sequence(channel, 5))
    found = measurement_from_captures(
        sorted(tmp_path.iterdir()), CaptureOptions({"publisher": "1", "first": "2"})
    )
    assert [shot.latency_fs for shot in found.shots] == [
        pytest.approx(2 * 10**9 + each * 10**8, abs=10**7) for each in range(5)
    ]
    begun_ns = int(datetime(2023, 2, 1, 12, 30, tzinfo=UTC).timestamp()) * 10**9 + 125 * 10**8
    assert [shot.started_ns for shot in found.shots] == [begun_ns + k * 10**7 for k in range(5)]


@pytest.mark.slow
def test_a_sequence_without_all_its_trigger_times_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("RigolWFM")
    path = tmp_path / "SEQ_C1.trc"
    path.write_bytes(sequence(1, 5, told=1))
    with pytest.raises(CaptureError, match="5 segments of a sequence"):
        list(open_capture(path).read())


@pytest.mark.slow
def test_volts_of_the_siglent_are_those_that_were_put_in() -> None:
    pytest.importorskip("RigolWFM")
    # Its name says 3.0 V at a probe of 10x.
    _, waveform = only(BIN / "SDS814X-3v0-probe10x.bin")
    assert float(np.median(waveform.volts()[-500:])) == pytest.approx(3.0, abs=0.1)


@pytest.mark.slow
def test_volts_of_the_isf_are_those_that_isfreader_gives() -> None:
    pytest.importorskip("RigolWFM")
    file = open_capture(BIN / "T0000CH1_cut.isf")
    (capture,) = file.read()
    assert capture.signals["CH1"].volts()[:3] == pytest.approx([0.9] * 3)  # type: ignore[union-attr]
    assert file.notes == ["Of several records in the file only the first one was read."]


@pytest.mark.slow
def test_an_isf_has_the_name_of_its_label_else_of_its_file(tmp_path: Path) -> None:
    pytest.importorskip("RigolWFM")
    path = tmp_path / "T0001CH3.ISF"
    path.write_bytes(ISF + bytes(50) + b"\x64" * 50)
    assert only(path)[0] == "CH2"
    path.write_bytes(ISF.replace(b"WFID", b"NONE") + bytes(50) + b"\x64" * 50)
    name, waveform = only(path)
    assert (name, waveform.interval_fs, waveform.start_fs) == ("CH3", 4_000_000, -220_000_000)
    assert waveform.volts()[[0, -1]] == pytest.approx([1.5 - 10 * 0.04, 1.5 + 90 * 0.04])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"RI", b"RP"),
        (b"NR 1", b"NR 4"),
        (b"RI", b"FP"),
        (b"BIN", b"ASCII"),
        (b"FMT Y", b"FMT ENV"),
    ],
)
def test_an_isf_of_other_codes_is_refused(old: bytes, new: bytes, tmp_path: Path) -> None:
    pytest.importorskip("RigolWFM")
    path = tmp_path / "a.isf"
    path.write_bytes(ISF.replace(old, new) + bytes(100))
    with pytest.raises(CaptureError, match=f"saved as .*{new.decode()}.*as CSV"):
        open_capture(path)


@pytest.mark.slow
def test_the_rigol_wfm_has_what_rigols_own_converter_says_of_it() -> None:
    pytest.importorskip("RigolWFM")
    (capture,) = open_capture(BIN / "DS1052E.wfm").read()
    first, second = capture.signals["CH1"], capture.signals["CH2"]
    assert isinstance(first, Waveform)
    assert isinstance(second, Waveform)
    # The head of its CSV (rigol-ds1052e.csv): 500 MHz, delay 0, least and greatest volts.
    assert (first.interval_fs, first.start_fs) == (2_000_000, -8_192_000_000)
    assert (first.volts().min(), first.volts().max()) == pytest.approx((-2.04, 1.88))
    assert (second.volts().min(), second.volts().max()) == pytest.approx((-0.24, 5.12))
    assert first.codes.dtype == np.uint8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SDS814X-zoom-z1.bin", "lecroy_4.trc", "rs_rtp_03.bin"])
def test_half_a_file_is_refused(name: str, tmp_path: Path) -> None:
    pytest.importorskip("RigolWFM")
    if name.startswith("rs"):  # the samples beside it are missing
        shutil.copy(BIN / name, tmp_path)
    else:
        content = (BIN / name).read_bytes()
        (tmp_path / name).write_bytes(content[: max(len(content) // 4, 360)])
    with pytest.raises(CaptureError) as error:
        list(open_capture(tmp_path / name).read())
    assert "CSV" in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("magic", sorted(rigol_wfm._RIGOL))
def test_what_only_begins_as_a_rigol_file_is_refused(magic: bytes, tmp_path: Path) -> None:
    pytest.importorskip("RigolWFM")
    path = tmp_path / "scope.wfm"
    for rest in (b"", bytes(4000), b"\xff" * 4000):
        path.write_bytes(magic + rest)
        with pytest.raises(CaptureError):
            list(open_capture(path).read())


@pytest.mark.parametrize(
    "name",
    ["SDS814X-zoom-z1.bin", "T0000CH1_cut.isf", "rs_rtp_03.bin", "tm_int8.wfm"],
)
def test_without_rigolwfm_the_way_to_get_it_is_said(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("RigolWFM", *(each for each in sys.modules if each.startswith("RigolWFM."))):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CaptureError, match=r"pip install 'mqtick\[captures\]'`, or export"):
        open_capture(BIN / name)


# ---- what is taken from it, and what is not -----------------------------------------------------


def channel(raw: list[int], volts: list[float], times: list[float]) -> SimpleNamespace:
    return SimpleNamespace(
        name="CH 1",
        raw=np.array(raw, np.uint8),
        volts=np.array(volts),
        times=np.array(times),
        seconds_per_point=1e-6,
    )


def taken(found: SimpleNamespace, parser: str = "wfm1000z") -> Waveform:
    signals: dict[str, object] = {}
    notes: list[str] = []
    rigol_wfm._add_channel(Path("x.wfm"), found, parser, signals, notes)  # type: ignore[arg-type]
    assert notes == []
    waveform = signals["CH1"]
    assert isinstance(waveform, Waveform)
    return waveform


def test_a_time_axis_that_includes_its_end_is_not_taken() -> None:
    stretched = np.linspace(-5e-6, 5e-6, 10).tolist()
    waveform = taken(channel([10] * 5 + [200] * 5, [0.0] * 5 + [3.8] * 5, stretched))
    assert (waveform.interval_fs, waveform.start_fs) == (10**9, -5 * 10**9)


@pytest.mark.parametrize("falling", [False, True])
def test_codes_of_the_file_stay_what_they_are_whichever_way_they_count(falling: bool) -> None:
    raw = [0, 0, 10, 128, 255, 255]
    volts = [(code - 128) * (-0.02 if falling else 0.02) for code in raw]
    waveform = taken(channel(raw, volts, [k * 1e-6 for k in range(6)]))
    assert waveform.codes.tolist() == ([255 - code for code in raw] if falling else raw)
    assert waveform.volts() == pytest.approx(volts)


def test_codes_that_do_not_belong_to_the_volts_are_not_taken() -> None:
    volts = [0.0, 1.0, 2.0, 3.5, 3.5, 0.5]
    for parser, raw in (("wfm2000", [1, 2, 3, 4, 99, 6]), ("siglent_bin", [0, 1, 2, 3, 4, 5])):
        waveform = taken(channel(raw, volts, [k * 1e-6 for k in range(6)]), parser)
        assert waveform.volts() == pytest.approx(volts, abs=1e-4)
