"""Logs of chrony and linuxptp, and two columns of text: an error is reference minus local."""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis import load
from mqtick.analysis.clocks import chrony_logs, linuxptp_lines
from mqtick.analysis.clocks.log_files import kind_of
from mqtick.analysis.clocks.offset_text import reader_below
from mqtick.analysis.load import LoadError
from mqtick.analysis.report.figures import pictures_of
from mqtick.analysis.report.statistics_tables import short_tables
from mqtick.analysis.results.analyse import analyse
from mqtick.recording.capture import CaptureError

FILES = Path(__file__).parent / "files/logs"

# The examples of chrony's documentation (chrony.conf, directive `log`), each on one line.
MEASUREMENT = (
    "2016-11-09 05:40:50 203.0.113.15    N  2 111 111 1111  10 10 1.0 "
    "-4.966e-03  2.296e-01  1.577e-05  1.615e-01  7.446e-03 CB00717B 4B D K"
)
STATISTIC = (
    "2016-08-10 05:40:50 203.0.113.15     6.261e-03 -3.247e-03 "
    "2.220e-03  1.874e-06  1.080e-06 7.8e-02  16   0   8  0.00"
)
TRACKING = (
    "2017-08-22 13:22:36 203.0.113.15     2     -3.541      0.075 -8.621e-06 N "
    "2  2.940e-03 -2.084e-04  1.534e-02  3.472e-04  8.304e-03"
)


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def tracking_at(second: int, offset_s: float = 1e-6, leap: str = "N") -> str:
    return (
        f"2026-11-25 21:{second // 60:02}:{second % 60:02} 192.0.2.1 2 -0.387 0.5 "
        f"{-offset_s:.3e} {leap} 1 1.3e-07 0.000e+00 2.0e-05 4.0e-06 1.5e-04"
    )


def test_measurements_log_is_positive_where_the_clock_is_slow() -> None:
    value = chrony_logs.measurement(MEASUREMENT)
    assert value is not None
    assert (value.clock, value.error_ns) == ("203.0.113.15", pytest.approx(-4.966e6))
    assert value.off_ns == pytest.approx((2.296e-1 / 2 + 1.577e-5) * 1e9)


def test_statistics_log_is_positive_where_the_clock_is_fast() -> None:
    value = chrony_logs.statistic(STATISTIC)
    assert value is not None
    assert value.error_ns == pytest.approx(+3.247e6)
    assert math.isnan(value.off_ns)


def test_tracking_log_counts_the_remaining_correction() -> None:
    value = chrony_logs.tracking(TRACKING)
    assert value is not None
    assert value.error_ns == pytest.approx((-2.084e-4 + 8.621e-6) * 1e9)
    assert value.off_ns == pytest.approx((1.534e-2 / 2 + 3.472e-4) * 1e9)


def test_a_real_ptp4l_that_believes_to_be_behind_is_behind() -> None:
    run = load(FILES / "ptp4l-3.1.1.log")
    (clock,) = run.time_errors
    assert clock.error_ns == pytest.approx(np.full(clock.error_ns.size, 5e5), abs=1000)
    # It says so itself: path delay, which the asymmetry that it was told is not part of.
    assert clock.upper_ns is not None
    assert clock.upper_ns - clock.error_ns == pytest.approx(np.full(clock.error_ns.size, 2400), 0.1)
    assert np.diff(clock.seconds) == pytest.approx(np.full(clock.error_ns.size - 1, 2.0), abs=0.01)


@pytest.mark.parametrize(
    ("line", "clock", "at_s", "error_ns", "off_ns"),
    [
        (
            "ptp4l[3531.123]: master offset     -23947 s0 freq      +0 path delay     11350",
            *("ptp4l", 3531.123, 23947, 11350),
        ),
        (
            "phc2sys[78.432]: CLOCK_REALTIME phc offset    -15 s2 freq  +333 delay    512",
            *("phc2sys CLOCK_REALTIME", 78.432, 15, 256),
        ),
        ("phc2sys[78.432]: phc offset 7 s2 freq -12", "phc2sys", 78.432, -7, None),
        (
            "Nov 25 20:59:39 pi4 ptp4l[812]: [3531.123] [ptp4l.0.conf] master offset 4 s2 freq -1 "
            "path delay 90",
            *("ptp4l", 3531.123, -4, 90),
        ),
        (
            "phc2sys[9.000]: /dev/ptp1 sys offset 8 s2 freq +0 delay -3",
            *("phc2sys /dev/ptp1", 9, -8, None),
        ),
        # What ts2phc.c of linuxptp 4 and 3.1 print, and what it prints of a clock it only watches.
        (
            "ts2phc[681011.839]: ens7f1 offset        -13 s2 freq   +4052",
            *("ts2phc ens7f1", 681011.839, 13, None),
        ),
        (
            "ts2phc[7.250]: [ts2phc.0.config] /dev/ptp0 master offset 21 s2 freq -7",
            *("ts2phc /dev/ptp0", 7.25, -21, None),
        ),
        ("ts2phc[7.250]: /dev/ptp2 offset       -240", "ts2phc /dev/ptp2", 7.25, 240, None),
    ],
)
def test_offsets_of_linuxptp_are_negated(
    line: str, clock: str, at_s: float, error_ns: float, off_ns: float | None
) -> None:
    value = linuxptp_lines.offset(line)
    assert value is not None
    assert value[:3] == (clock, at_s, error_ns)
    assert math.isnan(value.off_ns) if off_ns is None else value.off_ns == off_ns


@pytest.mark.parametrize(
    ("head", "row", "error_ns"),
    [
        ("time [s],offset [ns]", "1.5,-20", -20),
        ("# t_s offset_us", "1.5 2.5e-1", 250),
        ("time (s);local-reference (us)", "1,5;0,25", -250),
        ("seconds\ttime error [ms]", "1,5\t1e-3", 1000),
        ("Zeit [s];Offset [ns]", "1,5;2,5", 2.5),
        ('"Time [s]","Reference minus local [s]"', "1.5,1e-9", 1),
    ],
)
def test_two_columns_say_by_their_names_what_they_are(head: str, row: str, error_ns: float) -> None:
    read = reader_below(head)
    assert read is not None
    value = read(row)
    assert value is not None
    assert (value.stamp_s, value.error_ns) == (1.5, pytest.approx(error_ns))


@pytest.mark.parametrize(
    "head", ["time [s],first [V]", "time [s],offset", "offset [ns],time [s]", "1.5,2", "t", ""]
)
def test_columns_that_do_not_say_so_are_not_taken_for_time_errors(head: str) -> None:
    assert reader_below(head) is None


def test_what_ts2phc_says_of_a_pulse_is_a_log_of_a_clock(tmp_path: Path) -> None:
    lines = [f"ts2phc[{at}.001]: eth0 offset {at % 5 - 2:10} s2 freq   +4052" for at in range(90)]
    lines[3] += " holdover"
    lines[4] = "ts2phc[4.001]: eth0 lost holdover lock (offset        100)"
    run = load(written(tmp_path / "ts2phc.log", "ts2phc[0.001]: config item", *lines))
    assert run.time_errors[0].error_ns.tolist()[:4] == [2, 1, 0, 2]
    assert run.time_errors[0].upper_ns is None
    assert any("1 line was left out: ts2phc was in holdover" in note for note in run.notes)
    assert not run.damaged


def test_a_clock_that_ts2phc_only_watches_is_one_too(tmp_path: Path) -> None:
    lines = [f"ts2phc[{at}.001]: eth0 offset {at % 5 - 2:10}" for at in range(90)]
    run = load(written(tmp_path / "ts2phc.log", *lines))
    assert run.time_errors[0].error_ns.tolist()[:4] == [2, 1, 0, -1]


@pytest.mark.parametrize(
    ("rows", "units", "seconds", "error_ns"),
    [
        ("1 5\n2 -7\n3 6\n", "s,ns", [0, 1, 2], [5, -7, 6]),
        ("1 5\n2 -7\n3 6\n", "s,-ns", [0, 1, 2], [-5, 7, -6]),
        ("1000\t.5\n2000\t0.75\n", "ms,us", [0, 1], [500, 750]),
        ("1,5;2,5\n2,5;-2,5e-1\n", "s,us", [0, 1], [2500, -250]),
        ("1,5\n2,-7\n", "s,ps", [0, 1], [0.005, -0.007]),
        ("\ufeff1 5\n2 6\n", "s,ns", [0, 1], [5, 6]),
        ("when phase\n# measured today\n1 5\n2 6\n", "s,ns", [0, 1], [5, 6]),
    ],
)
def test_of_two_columns_without_names_the_user_says_the_units(
    tmp_path: Path, rows: str, units: str, seconds: list[float], error_ns: list[float]
) -> None:
    path = tmp_path / "phase.txt"
    path.write_text(rows)
    run = load(path, units=units)
    assert not run.damaged
    assert run.time_errors[0].seconds.tolist() == pytest.approx(seconds)
    assert run.time_errors[0].error_ns.tolist() == pytest.approx(error_ns)
    assert ("its sign turned" in run.notes[-1]) == ("-" in units)


def test_two_columns_whose_units_nobody_says_are_refused_with_the_flag(tmp_path: Path) -> None:
    for text in ("1 5\n2 -7\n3 6\n", "when,phase\n1,5\n2,-7\n3,6\n"):
        (tmp_path / "phase.txt").write_text(text)
        with pytest.raises(CaptureError, match=r"clock's errors, say their units.*`--units s,ns`"):
            load(tmp_path / "phase.txt")
    written(tmp_path / "a.csv", "time [s],offset", "1,5", "2,6")
    with pytest.raises(CaptureError, match=r"no unit.*`offset \[ns\]`; if it is a channel"):
        load(tmp_path / "a.csv")
    written(tmp_path / "b.csv", "time [s],phase [ns]", "1,5", "2,6")
    with pytest.raises(CaptureError, match=r"'phase \[ns\]' has times.*name it `offset \[ns\]`"):
        load(tmp_path / "b.csv")


@pytest.mark.parametrize("units", ["s", "s,V", "s,ns,", "-s,ns", ",", "ns,--ns", "s;ns"])
def test_units_that_are_none_are_refused(tmp_path: Path, units: str) -> None:
    with pytest.raises(LoadError, match="say the unit of the times and that of the offsets"):
        load(written(tmp_path / "a.txt", "1 5", "2 6"), units=units)


@pytest.mark.parametrize(
    "lines", [["time [s],offset [ns]", "1,5"], [tracking_at(0)], ["1 2 3", "2 3 4", "3 4 5"], ["x"]]
)
def test_units_of_what_says_them_are_refused(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(LoadError, match="leave --units out"):
        load(written(tmp_path / "a.txt", *lines), units="s,ns")


def test_fleets_on_ntp_and_ptp_stand_side_by_side_with_one_on_mqtick(tmp_path: Path) -> None:
    (tmp_path / "pi1").mkdir()
    written(tmp_path / "pi1/tracking.log", *map(tracking_at, range(0, 600, 4)))
    text = [f"{t},{t % 7}" for t in range(100)]
    written(tmp_path / "other.csv", "time [s],offset [us]", *text)
    run = load(tmp_path / "pi1/tracking.log", FILES / "ptp4l-3.1.1.log", tmp_path / "other.csv")
    assert run.nodes == ("tracking", "ptp4l-3.1.1", "other")
    result = analyse(run)
    measures = {clock.errors.name: [d.name for d in clock.deviations] for clock in result.clocks}
    assert measures["tracking"] == measures["other"] == ["MTIE", "TDEV", "ADEV"]
    assert {mask.measure for mask in result.clocks[0].masks} == {"max|TE|", "MTIE", "TDEV"}


def test_each_source_of_chrony_is_a_clock_of_its_own(tmp_path: Path) -> None:
    other = MEASUREMENT.replace("203.0.113.15", "192.0.2.7").replace("-4.966e-03", "1.000e-06")
    run = load(written(tmp_path / "measurements.log", MEASUREMENT, other))
    assert run.nodes == ("measurements, 203.0.113.15", "measurements, 192.0.2.7")


def test_what_logrotate_parted_is_one_log_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "tracking.log.2.gz").write_bytes(
        gzip.compress("".join(f"{tracking_at(t)}\n" for t in range(10)).encode())
    )
    written(tmp_path / "tracking.log.1", *map(tracking_at, range(10, 20)))
    written(tmp_path / "tracking.log", *map(tracking_at, range(20, 30)))
    run = load(tmp_path)
    (clock,) = run.time_errors
    assert clock.name == "tracking"
    assert clock.seconds.tolist() == list(range(30))
    assert not run.damaged


def test_a_chronyd_that_is_not_synchronised_is_not_right(tmp_path: Path) -> None:
    lines = [tracking_at(0, 0.0, "?"), tracking_at(1), tracking_at(2)]
    run = load(written(tmp_path / "tracking.log", *lines))
    assert run.time_errors[0].error_ns == pytest.approx([1000, 1000])
    assert any("1 line was left out: chronyd was not synchronised" in note for note in run.notes)


def test_headings_in_between_are_no_damage(tmp_path: Path) -> None:
    heading = ["=" * 40, "   Date (UTC) Time     IP Address   St   Freq ppm ...", "=" * 40]
    path = written(tmp_path / "t", *heading, tracking_at(0), *heading, tracking_at(1))
    run = load(path)
    assert run.time_errors[0].seconds.tolist() == [0, 1]
    assert not run.damaged


def test_a_step_of_the_clock_is_placed_by_the_reference(tmp_path: Path) -> None:
    # An hour ahead, so an hour has to be taken off its stamps; then stepped.
    lines = [tracking_at(3540, -3600.0), *map(tracking_at, range(1, 4))]
    lines[0] = lines[0].replace("21:59:00", "22:00:00")
    run = load(written(tmp_path / "tracking.log", *lines))
    assert run.time_errors[0].seconds.tolist() == [0, 1, 2, 3]
    assert any("more than 0.5 s off" in note for note in run.notes)


def test_time_that_goes_backwards_is_said(tmp_path: Path) -> None:
    rows = [f"{t},1" for t in (100, 102, 104, 0, 2)]
    run = load(written(tmp_path / "a.txt", "time [s],offset [us]", *rows))
    assert run.time_errors[0].seconds.tolist() == [0, 2, 4, 6, 8]
    assert any("goes backwards in the log once" in note for note in run.notes)


def test_of_a_repeated_stamp_the_last_value_counts(tmp_path: Path) -> None:
    run = load(written(tmp_path / "a.txt", "time [s],offset [us]", "1,1", "1,2", "2,3"))
    assert run.time_errors[0].error_ns == pytest.approx([2000, 3000])
    assert any("1 of 3 values have the same time stamp" in note for note in run.notes)


def test_a_log_that_was_compressed_counts(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f"{tracking_at(t)}\n" for t in range(600)).encode())
    path = tmp_path / "tracking.log.1.gz"
    path.write_bytes(whole)
    assert load(path).time_errors[0].seconds.size == 600


def test_kind_of_never_raises(tmp_path: Path) -> None:
    for number, octets in enumerate([b"", b"\x1f\x8b", b"\x1f\x8b\x08\0\0", b"\0" * 99, b"\xff\n"]):
        path = tmp_path / str(number)
        path.write_bytes(octets)
        assert kind_of(path) is None
    assert kind_of(tmp_path) is None
    assert kind_of(tmp_path / "missing") is None


def test_clocks_of_two_folders_are_compared_by_the_folders_names(tmp_path: Path) -> None:
    for folder, offset_s in (("ntp", 3e-6), ("mqtick", 1e-6)):
        (tmp_path / folder).mkdir()
        lines = (tracking_at(t, offset_s * (1 + t % 3)) for t in range(0, 600, 4))
        written(tmp_path / folder / "tracking.log", *lines)
    results = [analyse(load(tmp_path / folder)) for folder in ("ntp", "mqtick")]
    assert [result.measurement.title for result in results] == ["ntp", "mqtick"]
    (_, clocks) = short_tables(results).values()
    assert [row[0].text for row in clocks.rows] == ["ntp: tracking", "mqtick: tracking"]
    stability = {picture.name: picture for picture in pictures_of(results)}["compare-stability"]
    figure = stability.draw(7.0)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["", "TDEV in ns"]
    lines = [line.get_label() for line in figure.axes[0].get_lines()]
    assert lines[:2] == ["ntp", "mqtick"]


PHASES_NS = [-38.446, -64.071, 9.77, 23.647, 58.018] * 20
"""Errors of our own making, one a second."""


@pytest.mark.parametrize(
    ("form", "kind", "units"),
    [
        (lambda n, e: f"60310 {n + 0.123} {e * 1e-9:.12f} -12.345 0.000001234 0.001 4", "loop", ""),
        (
            lambda n, e: f"60310 {n + 0.123} 192.0.2.1 9614 {e * 1e-9:.12f} 0.0002 0.0001 0.0003",
            "peer",
            "",
        ),
        (
            lambda n, e: (
                f"2024-01-01 00:{n // 60:02}:{n % 60:02}.000000 PPS0 {n % 16:3} N 1 "
                f"{e * 1e-9:.6e} {e * 1e-9:.6e}  1.000e-07"
            ),
            "refclocks",
            "",
        ),
        (
            lambda n, e: (
                f"source 0 - assert {(1_700_000_000 + n) * 10**9 - round(e)}, sequence: {n} - "
                "clear  0.000000000, sequence: 0"
            ),
            "ppstest",
            "",
        ),
        (lambda n, e: f"{n + 1}.500000000000 chA\n{n + 1.5 + e * 1e-9:.12f} chB", "TICC", ""),
        (
            lambda n, e: (
                ("TIM 1.07\nDAT PHASE\nTAU 1.0\nSCL 1e-9\nVAL\n" if not n else "") + str(e)
            ),
            "TimeLab",
            "",
        ),
        (lambda n, e: f"{e * 1e-9:.12e}", "a column", "1s:s"),
        (lambda n, e: f"{e}", "a column", "1s:ns"),
        (lambda n, e: f"{-e}", "a column", "1s:-ns"),
        (
            lambda n, e: (
                ("timestamp,offset_ns\n" if not n else "")
                + f"2024-01-01T00:{n // 60:02}:{n % 60:02}Z,{e}"
            ),
            "two columns",
            "",
        ),
    ],
    ids=[
        "loopstats",
        "peerstats",
        "refclocks",
        "ppstest",
        "ticc",
        "timelab",
        "column",
        "column-ns",
        "minus",
        "iso",
    ],
)
def test_logs_of_other_programs_say_the_same_errors(
    form: Callable[[int, float], str], kind: str, units: str, tmp_path: Path
) -> None:
    lines = [form(n, error) for n, error in enumerate(PHASES_NS)]
    if kind == "ppstest":  # stamps have a point before their nanoseconds
        lines = [re.sub(r"(assert \d{10})", r"\1.", line) for line in lines]
    run = load(written(tmp_path / "x.log", *lines), units=units)
    (clock,) = run.time_errors
    assert clock.error_ns == pytest.approx(PHASES_NS, abs=1 if kind == "ppstest" else 0.01)
    assert np.diff(clock.seconds) == pytest.approx(1, abs=1e-6)
    assert kind in run.notes[-1]


def test_one_column_needs_to_be_told_its_interval(tmp_path: Path) -> None:
    path = written(tmp_path / "x.dat", *map(str, PHASES_NS))
    with pytest.raises(CaptureError, match="how far apart they are instead: `--tau 1s`"):
        load(path)
    with pytest.raises(LoadError, match="the time from row to row"):
        load(path, units="0s:ns")
