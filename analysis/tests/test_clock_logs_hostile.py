"""Damaged logs of other programs: what is complete counts, and a sentence says the rest."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from analysis.tests.test_clock_logs import MEASUREMENT, STATISTIC, TRACKING, tracking_at, written
from mqtick.analysis import load
from mqtick.recording.capture import CaptureError

PTP = "ptp4l[3531.123]: master offset     -23947 s0 freq      +0 path delay     11350"
TEXT = "time [s],offset [ns]"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("2017-08-22 13:22:36 203.0.113.15     2     -3.541", "it has 5 columns, fewer than 13"),
        (TRACKING.replace("-8.621e-06", "nan"), "nan is not a number of seconds"),
        (TRACKING.replace("-8.621e-06", "-8,621e-06"), "a cell that is not a number"),
        (TRACKING.replace("13:22:36", "25:22:36"), "2017-08-22 25:22:36 is not a date and time"),
        (MEASUREMENT, "its columns are not those of tracking.log"),
        ("\0\1\2 binary", "it does not begin with a date"),
        ("2017 " + "9" * 5000, "it does not begin with a date"),
    ],
)
def test_a_bad_line_is_left_out_and_said(tmp_path: Path, line: str, why: str) -> None:
    run = load(written(tmp_path / "tracking.log", tracking_at(0), line, tracking_at(2)))
    assert run.time_errors[0].seconds.tolist() == [0, 2]
    (said,) = run.damaged
    assert "1 of 3 lines could not be read" in said
    assert "line 2" in said
    assert why in said


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["TIM 1", "1e-9", "TAU 1.0", "VAL", "1e-9"], "no TAU above 0 stands before it"),
        (["TIM 1", "TAU 0.0", "1e-9", "TAU 1.0", "1e-9"], "no TAU above 0 stands before it"),
        (["TIM 1", "TAU 1.0", "1e999", "1e-9"], "is not a number, or is too large"),
        (["TIM 1", "TAU 1.0", "1e300", "1e-9"], "is not a number, or is too large"),
        ([PTP.replace("23947", "9" * 400), PTP], "is not a number, or is too large"),
        ([PTP.replace("11350", "9" * 400), PTP], "is not a number, or is too large"),
    ],
)
def test_a_value_that_no_clock_has_is_left_out_and_said(
    tmp_path: Path, lines: list[str], why: str
) -> None:
    run = load(written(tmp_path / "x.log", *lines))
    assert run.time_errors[0].seconds.tolist() == [0]
    (said,) = run.damaged
    assert f"1 of {len(lines)} lines could not be read" in said
    assert why in said


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (["1,2,3"], "3 columns instead of 2"),
        (["1,inf"], "a value that is not a number"),
        (["1,1e999"], "a value that is not a number"),
        (["1,", ""], "a cell that is not a number"),
    ],
)
def test_a_table_without_a_whole_row_is_refused(tmp_path: Path, rows: list[str], why: str) -> None:
    with pytest.raises(CaptureError, match=f"no line has a time error.*{why}"):
        load(written(tmp_path / "a.csv", TEXT, *rows))


def test_summaries_have_no_sign(tmp_path: Path) -> None:
    lines = ["ptp4l[1.000]: rms   16 max   33 freq   -993 +/-  21 delay   510 +/-   0"] * 3
    with pytest.raises(CaptureError, match="3 lines were left out: rms and max have no sign"):
        load(written(tmp_path / "ptp.log", *lines))


def test_offsets_without_a_time_are_refused(tmp_path: Path) -> None:
    line = "master offset -23947 s0 freq +0 path delay 11350"
    with pytest.raises(CaptureError, match="it does not say when"):
        load(written(tmp_path / "ptp.log", line))


def test_a_log_with_nothing_but_its_heading_is_refused(tmp_path: Path) -> None:
    heading = ["=" * 40, "   Date (UTC) Time     IP Address   St   Freq ppm", "=" * 40]
    with pytest.raises(CaptureError, match=r"chrony's tracking\.log, but no line has a time error"):
        load(written(tmp_path / "tracking.log", *heading))


def test_a_compressed_log_that_is_cut_off_is_read_to_its_end(tmp_path: Path) -> None:
    rows = "".join(f"{tracking_at(t, 1e-6 * t)}\n" for t in range(3000))
    path = tmp_path / "tracking.log.2.gz"
    path.write_bytes(gzip.compress(rows.encode())[:-2000])
    run = load(path)
    assert run.time_errors[0].seconds.size > 100
    assert any("the compressed file is cut off" in each for each in run.damaged)


def test_more_clocks_than_any_host_has_are_refused(tmp_path: Path) -> None:
    lines = [STATISTIC.replace("203.0.113.15", f"10.0.{n // 256}.{n % 256}") for n in range(300)]
    with pytest.raises(CaptureError, match="more than 200 clocks"):
        load(written(tmp_path / "statistics.log", *lines))


@pytest.mark.parametrize("good", [TRACKING, MEASUREMENT, STATISTIC, PTP, f"{TEXT}\n1,2"])
def test_whatever_is_changed_in_a_line_no_traceback_follows(tmp_path: Path, good: str) -> None:
    rng = random.Random(good)
    path = tmp_path / "a.log"
    for _ in range(150):
        octets = bytearray(f"{good}\n".encode() * 3)
        for _ in range(rng.randrange(1, 8)):
            octets[rng.randrange(len(octets))] = rng.randrange(256)
        path.write_bytes(octets[: rng.randrange(len(octets))])
        try:
            run = load(path)
        except CaptureError:
            continue
        assert all(abs(clock.error_ns).max() < float("inf") for clock in run.time_errors)
