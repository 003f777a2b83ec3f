"""CSV files with named columns, and what is wrong with files that people have."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.tests.text_files import changes, read_text, read_written, wave
from mqtick.analysis.readers import columns
from mqtick.analysis.readers.time_base import even_times
from mqtick.recording.capture import CaptureError
from mqtick.recording.edges import state_levels

NS = 10**6
ROWS = [(-1.0, 0.1, 3.3), (0.0, 0.2, 3.2), (1.0, 3.0, 0.1), (2.0, 3.1, 0.2)]


def table(head: str, delimiter: str = ",", comma: bool = False, factor: float = 1.0) -> str:
    lines = [delimiter.join(f"{cell * (factor if not n else 1):.9g}" for n, cell in enumerate(row))
             for row in ROWS]  # fmt: skip
    text = "\n".join(lines)
    return f"{head}\n{text.replace('.', ',') if comma else text}\n"


@pytest.mark.parametrize(
    ("text", "interval_ns"),
    [
        (table("time,publisher,first"), 10**9),
        (table("t [us],publisher,first"), 1000),
        (table("seconds;publisher;first", ";", comma=True), 10**9),
        (table("time [us]\tpublisher [V]\tfirst [V]", "\t"), 1000),
        (table("# from the bench\n# 5 November\ntime [us],publisher,first"), 1000),
        (table("Date,2026-11-21\nTime,10:32:11\nSamples,4\n\ntime [us],publisher,first"), 1000),
        (table("# time[us] publisher first", " "), 1000),
        ("\ufeff" + table("time [µs],publisher,first"), 1000),
        (table("time [µs],publisher,first").encode("latin-1"), 1000),
        ("# Größe: 5 µV\n".encode("latin-1") + table("time [us],publisher,first").encode(), 1000),
        (table("time [us],publisher,first").replace("\n", "\r\n"), 1000),
        (table("time [us],publisher,first").rstrip("\n"), 1000),
    ],
)
def test_columns_are_found_by_their_names(
    tmp_path: Path, text: str | bytes, interval_ns: int
) -> None:
    _, (capture,) = read_written(tmp_path, text)
    assert list(capture.signals) == ["publisher", "first"]
    waveform = wave(capture, "publisher")
    assert (waveform.start_fs, waveform.interval_fs) == (-interval_ns * NS, interval_ns * NS)
    assert np.allclose(waveform.volts(), [0.1, 0.2, 3.0, 3.1], atol=1e-4)
    assert capture.triggered


def test_row_numbers_and_a_second_time_are_no_channels(tmp_path: Path) -> None:
    text = "nr,time,ch1,Time [s],ch2\n0,0,0.5,0,1\n1,2e-05,1.5,2e-05,2\n2,4e-05,2,4e-05,3\n"
    _, (capture,) = read_written(tmp_path, text)
    assert list(capture.signals) == ["ch1", "ch2"]


def test_what_numpy_writes_is_read(tmp_path: Path) -> None:
    times = np.arange(-50, 50) * 4e-9
    path = tmp_path / "saved by numpy.txt"
    np.savetxt(path, np.c_[times, np.sin(times * 1e8), times > 0], header="time publisher first")
    _, (capture,) = read_text(path)
    assert (wave(capture, "publisher").start_fs, wave(capture, "first").interval_fs) == (
        -200 * NS,
        4 * NS,
    )
    assert np.allclose(wave(capture, "publisher").volts(), np.sin(times * 1e8), atol=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        # as PicoScope writes it, in English and in German
        "Time,Channel A,Channel B\n(us),(mV),(V)\n\n-1.0,500,1.0\n0.0,\u221e,2.0\n1.0,700,3.0\n",
        "Zeit;Channel A;Channel B\n(us);(mV);(V)\n\n-1,0;500;1,0\n0,0;\u221e;2,0\n1,0;700;3,0\n",
        # as Digilent's WaveForms does
        "#Digilent WaveForms Oscilloscope Acquisition\n#Device Name: Discovery2\n"
        "#Date Time: 2026-11-21 14:07:22.501\n#Sample rate: 1e6Hz\n\n"
        "Time (us),Channel A (mV),Channel B (V)\n-1,500,1.0\n0,inf,2.0\n1,700,3.0\n",
    ],
)
def test_what_other_programs_write_is_read_too(tmp_path: Path, text: str) -> None:
    _, (capture,) = read_written(tmp_path, text)
    assert wave(capture, "Channel A").start_fs == -1000 * NS
    assert np.allclose(wave(capture, "Channel A").volts(), [0.5, 0.7, 0.7], atol=1e-4)
    assert np.allclose(wave(capture, "Channel B").volts(), [1, 2, 3])


def test_more_rows_than_memory_is_given_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MAX_OCTETS", 600)
    with pytest.raises(CaptureError, match=r"more than 50 rows of 2 numbers.*a shorter record"):
        read_written(tmp_path, "time [us],a\n" + "".join(f"{n},1.5\n" for n in range(60)))


def test_a_row_a_change_of_levels_is_read_as_changes(tmp_path: Path) -> None:
    text = "time [us],publisher,first\n0,0,0\n10.5,1,0\n63.25,1,1\n500,0,1\n900,0,1\n"
    _, (capture,) = read_written(tmp_path, text)
    (up, down) = changes(capture, "publisher").edges()
    assert (up.instant_fs, up.rising) == (10_500 * NS, True)
    assert (down.instant_fs, down.rising) == (500_000 * NS, False)
    assert changes(capture, "first").edges()[0].instant_fs == 63_250 * NS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0,1.5\n1,2.5\n2,3.5\n3,4.5\n", "no names above them.*time \\[s\\],publisher"),
        ("voltage,current\n0,1.5\n1,2.5\n2,3.5\n", "'voltage,current' is called a time"),
        ("time [fortnight],a\n0,1\n1,2\n", "'fortnight', which must be s, ms, us, ns or ps"),
        ("time,a,a\n0,1,1\n1,2,2\n", "two columns are called 'a'"),
        ("time,note\n0,hello\n1,world\n", "no column besides the time"),
        ("time,a\n5,1\n5,2\n5,3\n", "not evenly spaced"),
        ("time,a\n0.0,0.1\n1.0,0.2\n1.7,3.0\n3.0,3.1\n", "not evenly spaced"),
        ("time,a\n" + "".join(f"{n}.0,{n % 7}.5\n" for n in range(99) if n != 50), "not evenly"),
        ("time [us],a\n0,\n1,\n2,\n", "a: no samples"),
        ("time,a\n5,1.5\n", "too few for a time base"),
        ("time,a\n0,1\n1,2\n2,\x00\x00\x00\n", "no format"),
        ("", "no format"),
        ("Dear Sir,\nplease find enclosed the measurement.\n", "no format"),
        ("PK\x03\x04\x14\x00time,a\n", "no format"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(CaptureError, match=says):
        read_written(tmp_path, text)


@pytest.mark.slow
@pytest.mark.parametrize("unused", ["", ","])
def test_many_rows_take_little_more_memory_than_their_numbers(tmp_path: Path, unused: str) -> None:
    row = "%d,%.3e,%.3e,%.3e,%.3e" + unused + "\r\n"
    values = np.arange(50) / 10
    text = "".join(row % (n, *(values[n % 50],) * 4) for n in range(250_000))
    path = tmp_path / "large.csv"
    path.write_text("time [ns],a,b,c,d" + unused.replace(",", ",e") + "\n" + text)
    del text
    tracemalloc.start()
    _, (capture,) = read_text(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(capture.signals) == 4
    assert wave(capture, "d").codes.size == 250_000
    assert peak < 4 * 250_000 * 5 * 8 + 16e6  # and the block that is parsed


def test_octets_that_are_no_text_far_into_the_file_are_refused(tmp_path: Path) -> None:
    rows = b"".join(b"%d,1.5\n" % n for n in range(10_000))
    with pytest.raises(CaptureError, match="not text"):
        read_written(tmp_path, b"time [us],a\n" + rows + b"\x00\x01\x02\n")


def test_a_line_without_an_end_is_refused_without_reading_on(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="a line of more than"):
        read_written(tmp_path, "time [us],a\n0,1.5\n1,1.5\n" + "1" * 200_000)


@pytest.mark.parametrize("mark", ["9.9E+37", "9.91E37", "inf", "\u221e"])
def test_samples_beyond_the_range_stand_at_its_end(tmp_path: Path, mark: str) -> None:
    opened, (capture,) = read_written(
        tmp_path, f"time [us],a\n0,0.0\n1,0.1\n2,{mark}\n3,3.0\n4,3.1\n"
    )
    assert np.allclose(wave(capture, "a").volts(), [0, 0.1, 3.1, 3.0, 3.1], atol=1e-3)
    assert opened.notes[1:] == ["a: 1 sample beyond the range of the instrument, put at its end."]


@pytest.mark.parametrize(
    "short", ["1,,1.5", "1,nan,1.5", "1,---,1.5", "1,n/a,1.5", "1,1_0,1.5", "1"]
)
def test_a_channel_with_holes_is_left_out_and_the_others_stay(tmp_path: Path, short: str) -> None:
    missing = len(short) == 1
    text = f"time [us],a,b\n0,0.5,1.5\n{short},{'' if not missing else 1.5}\n2,0.5,2.5\n"
    opened, (capture,) = read_written(tmp_path, text)
    kept, holed = ("a", "b") if missing else ("b", "a")
    assert list(capture.signals) == [kept]
    said = f"{holed}: 1 sample with no number among the others; it was left out."
    assert opened.notes[1:] == [said]


@pytest.mark.filterwarnings("error")
def test_times_without_end_are_refused_without_a_word_of_numpy(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="too few for a time base"):
        read_written(tmp_path, "time [s],a\n-inf,0\n-inf,3\n1e999,3\n1,3\n")


def test_a_record_out_of_a_text_file_is_not_taken_for_clipped(tmp_path: Path) -> None:
    rows = "".join(f"{n},{3.28 if n > 50 else 0},{n % 97 / 7:.5f}\n" for n in range(300))
    _, (capture,) = read_written(tmp_path, "time [us],a,b\n" + rows)
    assert not any(state_levels(wave(capture, name)).cut_off for name in "ab")


def test_a_constant_channel_is_read(tmp_path: Path) -> None:
    _, (capture,) = read_written(tmp_path, "time [us],a\n0,2.5\n1,2.5\n2,2.5\n")
    assert np.allclose(wave(capture, "a").volts(), 2.5)


def test_rows_across_blocks_are_neither_lost_nor_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_BLOCK", 1000)
    count = 2000
    rows = "".join(f"{n},{n % 50 / 10:.6f}\n" for n in range(count))
    _, (capture,) = read_written(tmp_path, "time [ns],a\n" + rows)
    volts = wave(capture, "a").volts()
    assert np.allclose(volts, np.arange(count) % 50 / 10)


def test_reading_again_gives_the_same_and_does_not_double_notes(tmp_path: Path) -> None:
    opened, first = read_written(tmp_path, "time [us],a,b\n0,1,1.5\n1,,1.5\n2,0,2.5\n")
    second = list(opened.read())
    assert len(opened.notes) == 2
    assert wave(first[0], "b").codes.tolist() == wave(second[0], "b").codes.tolist()


@given(
    interval_ns=st.sampled_from([1, 2, 4, 5, 8, 10, 25, 40, 250, 9240, 10**6]),
    count=st.integers(20, 400),
    start=st.integers(-500, 500),
    digits=st.integers(3, 12),
)
def test_a_rounded_time_column_is_rebuilt_within_what_it_says_of_its_error(
    interval_ns: int, count: int, start: int, digits: int
) -> None:
    exact = (start + np.arange(count)) * interval_ns * 1e-9
    texts = [f"{time:.{digits}e}" for time in exact]
    times = np.array([float(text) for text in texts])
    largest = float(np.abs(exact).max())
    resolution = 10.0 ** (np.floor(np.log10(largest)) - digits)
    even = even_times(times, resolution)
    if even is None:  # so coarse that all times are one
        assert np.unique(times).size < 12 or resolution > interval_ns * 1e-9
        return
    off_ppm = abs(even.interval_fs / (interval_ns * NS) - 1) * 1e6
    assert off_ppm <= even.error_ppm + 1e-3
    assert abs(even.start_fs - start * interval_ns * NS) <= 1.1 * resolution * 1e15 + 10


def test_on_a_regular_grid_rounding_is_not_random_and_the_worst_case_is_stated(
    tmp_path: Path,
) -> None:
    # 600 rows of 10.004 ns in three digits look like rows of 10 ns.
    rows = "".join(f"{n * 1.0004e-8:.2e},{n % 7}\n" for n in range(600))
    opened, (capture,) = read_written(tmp_path, "time [s],a\n" + rows)
    assert wave(capture, "a").interval_fs == 10 * NS
    assert 400 < capture.timebase_ppm == pytest.approx(2 * 5e-9 / 5.99e-6 * 1e6, rel=1e-2)
    assert "known to 1,670 parts per million" in opened.notes[0]


def stretched(rows: int, interval_s: float, head: str = "time [s],a") -> str:
    """Rows whose last one stands at the end of the record, as if there were one interval less."""
    times = np.linspace(0, rows * interval_s, rows)
    return head + "".join(f"\n{at:.9e},{n // 50 % 2}.5" for n, at in enumerate(times)) + "\n"


@pytest.mark.parametrize(
    ("rows", "interval_s"), [(1000, 1e-6), (1024, 4e-9), (4096, 2.5e-5), (1200, 1.25e-8)]
)
def test_times_spread_over_one_interval_less_are_not_believed(
    tmp_path: Path, rows: int, interval_s: float
) -> None:
    opened, (capture,) = read_written(tmp_path, stretched(rows, interval_s))
    assert wave(capture, "a").interval_fs == pytest.approx(interval_s * 1e15, rel=1e-12)
    assert "as if they were spread over" in opened.notes[0]
    # what the file says is within what is stated
    assert capture.timebase_ppm >= 1e6 / rows


@pytest.mark.parametrize(
    "interval_s", [1 / 24e6, 1 / 3e6, 1.0004e-8, 9.24e-6, 1e-6 * 1024 / 1000, 1 / 44_100]
)
def test_an_unusual_interval_is_believed(tmp_path: Path, interval_s: float) -> None:
    for rows in (300, 1000, 1024):
        text = "time [s],a" + "".join(
            f"\n{n * interval_s:.9e},{n // 50 % 2}.5" for n in range(rows)
        )
        opened, (capture,) = read_written(tmp_path, text + "\n")
        assert wave(capture, "a").interval_fs == pytest.approx(interval_s * 1e15, rel=1e-7)
        assert opened.notes == []
        assert capture.timebase_ppm < 1


@pytest.mark.parametrize("rows", ["", "0 1\n", "0 1\n\x0b\n"])
def test_a_last_line_of_white_space_alone_is_no_row(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"Time Channel\n{rows}\x0b")
    notes: list[str] = []
    layout = columns.CsvLayout("", "", 1, (columns.Column("Channel", 1),), delimiter="")
    if rows:
        assert columns.read_rows(path, layout, notes).count == 1
        assert notes == ["The last line of the file is cut off and was left out."]
    else:
        with pytest.raises(CaptureError, match="no row of numbers"):
            columns.read_rows(path, layout, notes)


@pytest.mark.parametrize(
    ("name", "apart", "said"),
    [
        ("time", 1.0, "no unit: s were assumed, so that the samples are 1 s apart."),
        ("time [s]", 1.0, ""),
        ("time", 1e-6, ""),
    ],
)
def test_times_without_a_unit_are_in_seconds_and_a_note_says_so_where_that_is_doubtful(
    tmp_path: Path, name: str, apart: float, said: str
) -> None:
    rows = "\n".join(f"{number * apart:.9g},{number // 50 % 2}.5" for number in range(200))
    opened, (capture,) = read_written(tmp_path, f"{name},a\n{rows}\n")
    assert wave(capture, "a").interval_fs == round(apart * 1e15)
    assert said in " ".join(opened.notes)
    assert any("names no unit" in note for note in opened.notes) == bool(said)


def test_times_of_hours_are_refused_since_they_are_in_another_unit(tmp_path: Path) -> None:
    rows = "\n".join(f"{number * 1000},{number // 50 % 2}.5" for number in range(200))
    with pytest.raises(CaptureError, match=r"199,000 s from first to last.*name the unit"):
        read_written(tmp_path, f"time,a\n{rows}\n")


@pytest.mark.parametrize(
    ("late_us", "delimiter", "comma"), [(0, ",", False), (100, ",", False), (100, ";", True)]
)
def test_a_second_column_of_times_has_to_have_the_same_times(
    tmp_path: Path, late_us: int, delimiter: str, comma: bool
) -> None:
    rows = "\n".join(
        delimiter.join(f"{cell:.6f}" for cell in (t * 1e-6, level, (t + late_us) * 1e-6, level))
        for t, level in ((t, 3.3 * (t // 50 % 2)) for t in range(200))
    )
    names = delimiter.join(("time [s]", "a", "time [s]", "b"))
    text = f"{names}\n{rows.replace('.', ',') if comma else rows}\n"
    if late_us:
        with pytest.raises(CaptureError, match="column 3 has other times than column 1"):
            read_written(tmp_path, text)
    else:
        _, (capture,) = read_written(tmp_path, text)
        assert list(capture.signals) == ["a", "b"]
