"""CSV as instruments and programs write it: right, or refused, and never wrong without a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from analysis.tests.text_files import read_written, wave
from mqtick.analysis.readers.units import named, time_unit, unit_of
from mqtick.recording.capture import CaptureError

ROWS = 400
LOW_V, HIGH_V = 0.1, 3.3
RISES = (200, 230)
"""In which rows the two channels rise."""


def us(row: int) -> str:
    return f"{row - 100}"


def rows(
    time: Callable[[int], str] = us,
    *,
    factors: Sequence[float] = (1.0, 1.0),
    sep: str = ",",
    end: str = "",
    comma: bool = False,
) -> str:
    """Rows of two channels, 1 us apart in the units that `time` writes."""
    lines = []
    for row in range(ROWS):
        volts = (HIGH_V if row >= rise else LOW_V for rise in RISES)
        cells = [time(row), *(f"{v * factor:g}" for v, factor in zip(volts, factors, strict=True))]
        if comma:
            cells = [cell.replace(".", ",") for cell in cells]
        lines.append(sep.join(cells) + end)
    return "\n".join(lines) + "\n"


def mv_rows(time: Callable[[int], str] = us, sep: str = ",", comma: bool = False) -> str:
    """Rows of two channels in mV."""
    return rows(time, factors=(1e3, 1e3), sep=sep, comma=comma)


def ms(row: int) -> str:
    return f"{(row - 100) / 1000:.3f}"


def seconds(row: int) -> str:
    return f"{(row - 100) * 1e-6:.6f}"


def since_1970(row: int) -> str:
    return f"1764115200.{row:06d}"


READ = {
    "units behind a space": "Time us,CH1 mV,CH2 mV\n" + mv_rows(),
    "one of them in V": "Time us,CH1 V,CH2 mV\n" + rows(factors=(1, 1e3)),
    "with spaces around it": "t / us;U1 / mV;U2 / mV\n" + mv_rows(sep=";"),
    "behind a comma in quotes": '"Time, us","CH1, mV","CH2, mV"\n' + mv_rows(),
    "nothing but units": "Time us,V,mV\n" + rows(factors=(1, 1e3)),
    "a row of units": "Time,CH1,CH2\nus,mV,mV\n" + mv_rows(),
    "a row of units between empty lines": "Time,A,B\n\n(us),(mV),(mV)\n\n" + mv_rows(),
    "a row of units that the time has already": "time [us],A,B\n,mV,mV\n" + mv_rows(),
    "a row of types over that of units": "time,A,B\nf,f,f\nus,mV,mV\n" + mv_rows(),
    "a row of units in a comment": "# time A B\n# us mV mV\n" + mv_rows(sep=" "),
    "names over columns of spaces": "  time_us    A_mV    B_mV\n" + mv_rows(sep="   "),
    "German": "Zeit [ms];Kanal 1 [mV];Kanal 2 [mV]\n" + mv_rows(ms, sep=";", comma=True),
    "German with tabs": "Zeit ms\tU1 mV\tU2 mV\n" + mv_rows(ms, sep="\t", comma=True),
    "a decimal comma not in the first rows": "time [us];A;B\n" + rows(sep=";", comma=True),
    "LabVIEW": "***End_of_Header***\t\nX_Value\tUntitled\tUntitled 1\n" + rows(seconds, sep="\t"),
    "seconds since 1970": "timestamp,A,B\n" + rows(since_1970),
    "ms since 1970": "time_ms,A,B\n" + rows(lambda row: f"1764115200000.{row:03d}"),
    "ns since 1970": "time_ns,A,B\n" + rows(lambda row: f"{1764115200 * 10**9 + row * 1000}"),
    "since 1970, in rows that need repair": "time [s],A,B,\n" + rows(since_1970, end=",ok"),
    "commas at the end of rows": "time [us],A,B\n" + rows(end=","),
    "words at the end of rows": "time [us],A,B,note\n" + rows(end=",ok"),
    "names that only look like units": "time [us],MOTOR V,s\n" + rows(),
    "other names that only look like it": "time [us],A,3V3\n" + rows(),
}  # fmt: skip


@pytest.mark.parametrize("what", READ)
def test_what_programs_write_is_read_as_it_is_meant(tmp_path: Path, what: str) -> None:
    _, (capture,) = read_written(tmp_path, READ[what])
    for name, rise in zip(capture.signals, RISES, strict=True):
        volts = wave(capture, name).volts()
        assert wave(capture, name).interval_fs == 10**9
        assert (volts[rise - 1], volts[rise]) == (
            pytest.approx(LOW_V, abs=1e-3),
            pytest.approx(HIGH_V, abs=1e-3),
        )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time [us],CH1 (MV),CH2 (MV)\n" + rows(), "unit of column 'CH1 .MV.' is not certain"),
        ("time [us],mV_A,mV_B\n" + mv_rows(), r"'mV_A' is not certain.*`CH1 \[mV\]`"),
        ("time [us],chAmV,chBmV\n" + mv_rows(), "'chAmV' is not certain"),
        ("time [us],CH1 (mV) avg,CH2 (mV) avg\n" + mv_rows(), "is not certain"),
        ("time [us],A (mV/div),B (mV/div)\n" + rows(), "is not certain"),
        ("time [us],A [0.001 V],B [0.001 V]\n" + mv_rows(), "is not certain"),
        ("time [us],A*1000,B*1000\n" + mv_rows(), "is not certain"),
        ("time,A mV,B mV\nus,V,V\n" + rows(), "it says another one|its name says another one"),
        ("time (min),A,B\n" + rows(), "'min', which must be s, ms, us, ns or ps"),
        ("time [1e-6 s],A,B\n" + rows(), "'1e-6 s', which must be"),
        ("us,mV,mV\nTime,A,B\n" + mv_rows(), "the head says 'us,mV,mV' and the names"),
        ("X Units,us\nTime,A,B\n" + rows(), "the head says 'X Units,us'"),
        ("# all in mV\ntime [us],A,B\n" + mv_rows(), "the head says '# all in mV'"),
        ("time [us],A,B\nscale,0.001,0.001\n" + mv_rows(), "'scale,0.001,0.001'.*a factor"),
        ("time [us],A\n" + rows(), "names has 2 cells and its rows have 3"),
        ('"time [us]","A"\n"1",0,0.1\n"2",1,0.2\n"3",2,0.2\n', "2 cells and its rows have 3"),
        ("time [ms],A,B\n" + rows(ms, comma=True), "3 cells and its rows have [56]"),
        ("Time us  CH1 mV  CH2 mV\n" + mv_rows(sep="  "), "6 cells and its rows have 3"),
        (
            "time [us];A;B\n" + rows(lambda row: f"{row * 100:,}".replace(",", "."), sep=";"),
            "'1.000' may have a point between its thousands",
        ),
        (
            "time [us];A;B\n" + rows(lambda row: f"{row / 2:.1f}".replace(".", ","), sep=";")
            .replace("3.3", "3.300,5").replace("0.1", "0,1"),
            "'3.300,5' has a point between its thousands",
        ),
        ("time,A,B\n" + rows(lambda row: f"{1764115200000 + row}"), "no seconds since 1970"),
        (
            "time [ns];A;B\n" + rows(lambda row: f"{row * 1000:,}".replace(",", " "), sep=";"),
            "1 times in a segment of 400 rows.*no plain numbers",
        ),
    ],
)  # fmt: skip
def test_what_may_mean_two_things_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(CaptureError, match=says):
        read_written(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time [us],A (mA),B\n" + rows(), "'A (mA)' is in mA and not in V"),
        ("time [us],A (counts),B\n" + rows(), "'A (counts)' is in counts and not in V"),
        ("Scale,0.001\ntime [us],A,B\n" + rows(), "'Scale,0.001'; the numbers were taken as volts"),
        (
            "time [us],A,B\n" + rows(lambda row: f"{10**10 + row}"),
            "from the first one, 10000000000",
        ),
    ],
)
def test_what_cannot_be_known_is_said(tmp_path: Path, text: str, says: str) -> None:
    opened, (capture,) = read_written(tmp_path, text)
    assert len(capture.signals) == 2
    assert any(says in note for note in opened.notes)


@pytest.mark.parametrize("word", ["inf", "NaN", "OL", "#N/A", "null", "0x1F", "9.9E+37", ""])
def test_a_channel_that_begins_with_a_word_is_one(tmp_path: Path, word: str) -> None:
    text = "time [us],A,B\n" + rows().replace("0.1", word, 1)
    opened, (capture,) = read_written(tmp_path, text)
    assert list(capture.signals) == ["A", "B"]
    assert "A: 1 sample" in opened.notes[1]


def test_words_below_the_rows_are_no_sample(tmp_path: Path) -> None:
    opened, (capture,) = read_written(tmp_path, "time [us],A,B\n" + rows() + "Mean,5,6\nMax,9,9\n")
    assert wave(capture, "A").codes.size == ROWS
    assert wave(capture, "A").volts().max() == pytest.approx(HIGH_V, abs=1e-3)
    assert opened.notes[0] == "Among the rows, the line 'Mean,5,6' and 1 more were left out."


@pytest.mark.parametrize("again", ["time [ms],A,B", "time [us],A [mV],B [mV]"])
def test_other_names_further_down_are_refused(tmp_path: Path, again: str) -> None:
    head = "time [us],A,B\n"
    _, captures = read_written(tmp_path, head + rows() + head + rows())
    assert len(captures) == 2
    with pytest.raises(CaptureError, match=r"other names further down, 'time .*maybe other units"):
        read_written(tmp_path, head + rows() + f"{again}\n" + rows())


def test_units_in_a_column_of_their_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"column 'unit' has a unit in each row .'mV'."):
        read_written(tmp_path, "time [us],A,B,unit\n" + rows(end=",mV"))


def test_a_second_column_of_times_is_no_channel(tmp_path: Path) -> None:
    text = "Time[us],Time abs [s],A,B\n" + rows(lambda row: f"{row},{row * 1e-6:.6f}")
    opened, (capture,) = read_written(tmp_path, text)
    assert list(capture.signals) == ["A", "B"]
    assert opened.notes[0] == "'Time abs [s]' has times and no volts; it was left out."


def test_seconds_since_1970_keep_all_their_digits(tmp_path: Path) -> None:
    text = "".join(f"1764115200.{row:09d},{row % 7}.5\n" for row in range(ROWS))
    _, (capture,) = read_written(tmp_path, "time [s],A\n" + text)
    assert wave(capture, "A").interval_fs == 10**6
    assert np.allclose(
        wave(capture, "A").volts()[:9], [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 0.5, 1.5]
    )


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        *((name, 1.0) for name in ("V", "A (V)", "MOTOR V", "PinV", "GPIO (3.3V)", "VDD_1V8", "s")),
        *((name, 1.0) for name in ("V(out)", "3V3", "A (Vdc)", "gate (open)", "PV", "MV2X", "x")),
        ("A_V", 1.0),
        *((name, 1e-3) for name in ("mV", "CH1mV", "Ch 12 mv", "A:mV", "A <mV>", "A [m V]")),
        *((name, 1e-3) for name in ("CH1_mV", "U1/mV", "CH1-mV", "A.mV", "A {mV}", "v_mv")),
        *((name, 1e-3) for name in ("A (millivolts)", "B (mVolts)", "A millivolts")),
        *((name, 1e-6) for name in ("µV", "A [μV]", "A uV", "A (microvolt)")),
        *((name, 1e3) for name in ("A kV", "A (kilovolts)")),
    ],
)  # fmt: skip
def test_the_factor_of_a_channel_is_in_its_name(name: str, factor: float) -> None:
    assert named(Path("a.csv"), name).to_volts == factor


@pytest.mark.parametrize("name", ["UV", "A UV", "A (KV)", "nv", "BeamV", "A offset 5 mV"])
def test_a_name_that_may_have_a_unit_is_not_guessed(name: str) -> None:
    with pytest.raises(CaptureError, match="not certain"):
        named(Path("a.csv"), name)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        *((name, 1.0) for name in ("t", "s", "Time sec", "x", "in s", "seconds")),
        *((name, 1e-3) for name in ("TIME_MS", "time msec", "t|ms", "Elapsed Time (ms)")),
        *((name, 1e-6) for name in ("Time (uSec)", "t:us", "time in µs", "X in us", "in us")),
        *((name, 1e-6) for name in ("time_us", "t/us", "time-us", "time.us", "TIME_US", "t_us")),
        *((name, 1e-6) for name in ("time {us}", "time_usec", "Time (microseconds)")),
        ("time microseconds", 1e-6),
        ("time_ns", 1e-9),
        *((name, 1e-12) for name in ("t_ps", "time [ps]", "time [picoseconds]")),
    ],
)  # fmt: skip
def test_the_factor_of_a_time_is_in_its_name(name: str, factor: float) -> None:
    assert unit_of(time_unit(name) or "s", "s") == factor


@pytest.mark.parametrize("name", ["us", "MOTOR s", "timeUs", "Var1_us", "downtime_s", "voltage"])
def test_other_names_are_no_times(name: str) -> None:
    assert time_unit(name) is None
