"""One measurement in the forms in which instruments and programs save text, all of our own making.

The publisher rises at 0 us and the first subscriber 12.5 us later, sampled every us.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.load import load
from mqtick.recording.capture import CaptureError

LATENCY_FS = 12_500_000_000
TIMES_US = np.arange(-100, 300)


def rise(after_us: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return volts of an edge that takes 4 us."""
    return np.clip((TIMES_US - after_us) / 4 + 0.5, 0, 1) * 3.3


FIRST, SECOND = rise(0), rise(12.5)
BITS = [(int(a >= 1.65), int(b >= 1.65)) for a, b in zip(FIRST, SECOND, strict=True)]


def rows(form: Callable[[int, float, float], str], end: str = "\n") -> str:
    """Return a line for each sample: its place, and the volts of both channels."""
    return end.join(form(n, a, b) for n, (a, b) in enumerate(zip(FIRST, SECOND, strict=True))) + end


PLAIN = "time [us],publisher [V],first [V]\n" + rows(lambda n, a, b: f"{n - 100},{a:.4f},{b:.4f}")
COMMAS = "time [us],publisher [V],first [V]\n" + rows(
    lambda n, a, b: f'"{n - 100},000","{a:.4f}","{b:.4f}"'.replace(".", ",")
)
RED_PITAYA = "t[us],IN1[V],IN2[V]\n" + rows(
    lambda n, a, b: f"{n - 100 if abs(n - 100) >= 10 else 1000 * (n - 100):.6f},{a:.5f},{b:.5f}"
)
OWON = (
    "Channel                :,CH1,,CH2\r\nFrequency              :,F=1.0kHz,,F=1.0kHz\r\n"
    "Time interval          :,1.00000uS\r\nVoltage per ADC value  :,20.0mV,,20.0mV\r\n"
    "index,CH1_Voltage(mV), CH2_Voltage(mV)\r\n"
) + rows(lambda n, a, b: f"{n},{a * 1e3:.2f},{b * 1e3:.2f}", "\r\n")
OWON_BACKWARDS = "Time(ms),CH1_Voltage(mV),CH2_Voltage(mV)\n" + rows(
    lambda n, a, b: f"{(100 - n) / 1e3:.5f},{a * 1e3:.2f},{b * 1e3:.2f}"
)
UNI_T = "Stop,\nCH1,400,CH2,400\nTime Base,40us\nSample Interval,1us\nNo,CH1(V),CH2(V)\n" + rows(
    lambda n, a, b: f"{n + 1},{a:.3f},{b:.3f}"
)
YOKOGAWA = (
    '"Header Size",16\n"Model Name","DL850E"\n"BlockNumber",1\n"TraceName","CH1","CH2"\n'
    '"BlockSize",400,400\n"VUnit","V","V"\n"SampleRate",1.000000E+06,1.000000E+06\n'
    '"HResolution",1.000000E-06,1.000000E-06\n"HOffset",-1.000000E-04,-1.000000E-04\n'
    '"HUnit","s","s"\n"Date","2019/03/01","2019/03/01"\n'
    '"Time","12:00:00.00000000","12:00:00.00000000"\n\n'
) + rows(lambda _, a, b: f",{a:.5E},{b:.5E}")
HANTEK = "#timebase=40000000(ps),#voltbase=1000000(uV)\n\n" + rows(
    lambda n, a, b: f"{n * 1e-6:.5E},{a * 1e3:.3f},{b * 1e3:.3f}"
)


OWON_NAMES = ("CH1_Voltage", "CH2_Voltage")
FORMS: dict[str, tuple[str | bytes, str | tuple[str, str], str]] = {
    "cr": (PLAIN.replace("\n", "\r"), "", ""),
    "le": (PLAIN.encode("utf-16-le"), "", ""),
    "be": (PLAIN.encode("utf-16-be"), "", ""),
    "utf-16": (PLAIN.encode("utf-16"), "", ""),
    "gzip": (gzip.compress(PLAIN.encode(), mtime=0), "", ""),
    "commas": (COMMAS, "", ""),
    "red-pitaya": (RED_PITAYA, "12", "change their unit in row 92"),
    "owon": (OWON, OWON_NAMES, ""),
    "backwards": (OWON_BACKWARDS, OWON_NAMES, "opposite sign"),
    "uni-t": (UNI_T, "12", ""),
    "yokogawa": (YOKOGAWA, "12", ""),
    "hantek": (HANTEK, "12", ""),
}


@pytest.mark.parametrize(("content", "channels", "said"), FORMS.values(), ids=FORMS)
def test_volts_are_read_in_every_form(
    content: str | bytes, channels: str | tuple[str, str], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    names = dict(zip(("publisher", "first"), channels, strict=True)) if channels else {}
    measured = load(path, options=CaptureOptions(names))
    (shot,) = measured.shots
    assert shot.latency_fs == pytest.approx(LATENCY_FS, abs=4 * 10**7)
    assert said in " ".join(measured.notes)


def test_gw_instek_saves_one_channel_a_file(tmp_path: Path) -> None:
    for number, volts in enumerate((FIRST, SECOND), start=1):
        head = (
            f"Format,2.0B\nMemory Length,400\nTrigger Address,99\nSource,CH{number}\n"
            "Vertical Units,V\nProbe Ratio,1.000e+01\nVertical Scale,1.000e+00\n"
            "Horizontal Units,S\nHorizontal Scale,4.000E-05\nSampling Period,1.000E-06\n"
            "Firmware,V1.19\nTime,23-Nov-20 12:00:00\nMode,Detail\nWaveform Data,\n"
        )
        lines = (f"{t * 1e-6:e},{v:e},\n" for t, v in zip(TIMES_US, volts, strict=True))
        (tmp_path / f"DS0001_CH{number}.CSV").write_text(head + "".join(lines))
    (shot,) = load(tmp_path, channels={"publisher": "1", "first": "2"}).shots
    assert shot.latency_fs == pytest.approx(LATENCY_FS, abs=4 * 10**7)


ILA = "Sample in Buffer,Sample in Window,TRIGGER,a,b\nRadix - UNSIGNED,UNSIGNED,UNSIGNED,HEX,HEX\n"
ILA += "".join(f"{n},{n},{int(n == 100)},{a},{b}\n" for n, (a, b) in enumerate(BITS))
PULSEVIEW = "; CSV generated by libsigrok 0.5.2\n; Channels (2/2): a, b\n; Samplerate: 1 MHz\na,b\n"
PULSEVIEW += "".join(f"{a},{b}\n" for a, b in BITS)
DSVIEW = "; CSV, generated by libsigrok4DSL 0.2.0\n; Channels (2/16)\n; Sample rate: 1 MHz\n"
DSVIEW += "; Sample count: 400 Samples\nTime(s),a,b\n"
DSVIEW += "".join(f"{n / 1e6:.9f},{a},{b}\n" for n, (a, b) in enumerate(BITS))
ISO = "Time [s],a,b\n2023-05-04T17:09:33.000000000+00:00,0,0\n"
ISO += "2023-05-04T17:09:33.000100000+00:00,1,0\n2023-05-04T17:09:33.000113000+00:00,1,1\n"
LONG = "Time [s],a,b\n0.0,0,0\n" + "".join(
    f"{t + after:.9f},{a},{b}\n"
    for t in range(0, 12_000, 10)
    for after, a, b in ((0.5, 1, 0), (0.500013, 1, 1), (0.6, 0, 1), (0.600013, 0, 0))
)


LEVELS = {
    "vivado": ("# sample rate: 1 MHz\n" + ILA, 5 * 10**8),
    "pulseview": (PULSEVIEW, 5 * 10**8),
    "dsview": (DSVIEW, 5 * 10**8),
    "dates": (ISO, 10**6),
    "three-hours": (LONG, 10**12),
}


@pytest.mark.parametrize(("content", "half_fs"), LEVELS.values(), ids=LEVELS)
def test_levels_are_read_in_every_form(content: str, half_fs: int, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    shots = load(path, channels={"publisher": "a", "first": "b"}).shots
    assert len(shots) == (1200 if content is LONG else 1)
    assert {shot.latency_fs for shot in shots} == {13 * 10**9}
    assert shots[-1].edges["first"].uncertainty_fs <= half_fs


def test_an_ila_without_the_rate_of_its_clock_is_refused_with_the_line_to_add(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ILA)
    with pytest.raises(CaptureError, match="# sample rate: 100 MHz"):
        load(path)


@pytest.mark.skipif(not shutil.which("sigrok-cli"), reason="sigrok-cli is not installed")
def test_a_rate_in_the_head_is_believed_where_times_add_up_a_rounded_interval(
    tmp_path: Path,
) -> None:
    """sigrok-cli writes 41 ns for each sample of 24 MHz, so 5 ms would be 4.92 ms."""
    bits = bytes((i >= 24_000) | (i >= 144_000) << 1 for i in range(240_000))
    (tmp_path / "t.bin").write_bytes(bits)
    for arguments in (
        "-i t.bin -I binary:numchannels=2:samplerate=24000000 -o t.sr",
        "-i t.sr -O csv:time=true -o t.csv",
    ):
        subprocess.run(["sigrok-cli", *arguments.split()], cwd=tmp_path, check=True)
    measured = load(tmp_path / "t.csv", channels={"publisher": "0", "first": "1"})
    assert measured.shots[0].latency_fs == pytest.approx(5 * 10**12, abs=10**6)
    assert any("16,000 parts per million off" in note for note in measured.notes)


def test_times_that_go_back_are_parts_and_a_note_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(PLAIN + PLAIN.partition("\n")[2])
    measured = load(path)
    assert len(measured.shots) == 2
    assert "go back 1 time among the rows: the 2 parts" in " ".join(measured.notes)
