"""mqtick-report as a user has it: from files to exit codes and sentences."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.tests.csv_parts import levels, write_csv
from mqtick.analysis.cli import main
from mqtick.analysis.results.result import Result
from mqtick.recording.layout import Layout, Trigger
from mqtick.recording.run_folder import create_run, shot_path
from mqtick.recording.shot import CAPTURED, MISSED, Shot, write_shot
from recording.tests.wave_parts import channel, record_of

US = 10**9
Say = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn goes to the working folder."""
    monkeypatch.chdir(tmp_path)


def code_of(words: list[str]) -> int:
    """The exit code, whoever found the mistake."""
    try:
        return main(words)
    except SystemExit as end:
        return int(str(end.code))


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """What a report would have been written of; its figures take their time elsewhere."""
    seen: list[Result] = []

    def keep(
        results: Sequence[Result], out: Path, command: str = "", *, pdf: bool = True
    ) -> SimpleNamespace:
        seen.extend(results)
        return SimpleNamespace(html=out / "report.html", without="no report.pdf: a reason")

    monkeypatch.setattr("mqtick.analysis.commands.outputs.write_report", keep)
    return seen


@pytest.fixture
def captures(tmp_path: Path) -> Callable[..., list[str]]:
    """Eight captures: latency 100 to 107 us, skew 20 to 34 us."""

    def make(**more: int) -> list[str]:
        return [
            str(write_csv(tmp_path / f"shot {n}.csv", (0, 100 + n, 120 + 3 * n), **more))
            for n in range(8)
        ]

    return make


LAYOUT = Layout(
    "skew",
    {
        "publisher": channel(1, "server:0", "time"),
        "first": channel(2, "client:first"),
        "last": channel(3, "client:last"),
    },
    {"scope": Trigger("publisher", "rising")},
    *("publisher", "first", "last"),
)
ORDER = ("--channels", "publisher=1,first=2,last=3")


# ---- no configuration at all --------------------------------------------------------------------


def test_without_channels_it_says_what_is_there_and_which_command_to_give(
    tmp_path: Path, capsys: Say
) -> None:
    path = write_csv(tmp_path / "my scope.csv", (0, 100, 130))
    assert main([str(path)]) == 0
    said = capsys.readouterr()
    assert (said.err, "error" in said.out) == ("", False)
    for word in ("CH1", "CH2", "CH3", "--channels publisher=", f"'{path}'"):
        assert word in said.out


@pytest.mark.parametrize("asked", [["--limit", "latency.p95<1s"], ["--json"], ["--out", "x"]])
def test_a_listing_is_no_report_for_whoever_asked_for_one(
    tmp_path: Path, capsys: Say, asked: list[str]
) -> None:
    path = write_csv(tmp_path / "a.csv", (0, 100, 130))
    assert main([str(path), *asked]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert "--channels publisher=1" in said.err


def test_the_proposed_command_works(tmp_path: Path, capsys: Say, results: list[Result]) -> None:
    write_csv(tmp_path / "scope.csv", (0, 100, 130))
    main([str(tmp_path / "scope.csv")])
    said = capsys.readouterr().out
    words = said[said.index("--channels") :].split()[1].strip("'`.,")
    main([str(tmp_path / "scope.csv"), "--channels", words])
    assert results[0].measurement.shots[0].latency_fs == pytest.approx(100 * US, abs=US)
    assert results[0].measurement.shots[0].skew_fs == pytest.approx(30 * US, abs=US)


def test_captures_become_latency_and_skew(
    captures: Callable[..., list[str]], results: list[Result]
) -> None:
    main([*captures(), *ORDER, "--subscribers", "3", "--cable-delay", "first=1000"])
    (result,) = results
    skew, latency = result.quantities
    assert (skew.quantity, latency.quantity) == ("skew", "latency")
    assert [row.subscribers for row in skew.rows] == [3]
    # 1 us of cable makes the first one's edge seem late
    assert sorted(skew.values_us) == pytest.approx([*range(21, 37, 2)], abs=0.1)
    assert sorted(latency.values_us) == pytest.approx([*range(99, 107)], abs=0.1)


# ---- exit codes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (["--limit", "skew.mean<100us"], 0),
        (["--limit", "skew.mean<10us"], 4),
        (["--limit", "skew.mean<100us", "--limit", "latency.mean<100us"], 4),
        (["--limit", "skew.p99<100us"], 4),  # not proven by eight shots
        (["--limit", "clock.max<1s"], 4),  # was not measured
        (["--no-limits"], 0),
    ],
)
def test_the_exit_code_says_whether_the_limits_are_shown_to_hold(
    captures: Callable[..., list[str]], results: list[Result], limits: list[str], code: int
) -> None:
    assert main([*captures(), *ORDER, "--quiet", *limits]) == code
    assert len(results) == 1


def test_a_machine_gets_json_and_nothing_else(
    captures: Callable[..., list[str]], results: list[Result], capsys: Say, tmp_path: Path
) -> None:
    main([*captures(), *ORDER, "--json", "--no-limits", "--out", str(tmp_path / "out")])
    said = capsys.readouterr()
    assert json.loads(said.out)["report"] == str(tmp_path / "out" / "report.html")
    assert said.err == ""


def test_compare_says_by_how_much_and_is_a_gate(run: Path, tmp_path: Path, capsys: Say) -> None:
    again = shutil.copytree(run, run.with_name("again"))
    words = ["compare", str(run), str(again), "--tables-only", "--out", str(tmp_path / "out")]
    assert main([*words, "--limit", "latency.mean<1.5x"]) == 0
    said = capsys.readouterr().out
    assert "latency, N = 2, mean: " in said
    assert "ratio 1.000 (" in said
    assert "latency.mean<1.5x: HOLDS" in said
    rows = list(csv.DictReader((tmp_path / "out/tables/comparison.csv").open()))
    assert {"difference_us", "difference_low_us", "ratio", "ratio_high"} <= rows[0].keys()
    assert main([*words, "--limit", "latency.mean<0.5x", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["holds"] is False
    junit = tmp_path / "j.xml"
    assert main([*words, "--limit", "latency.mean<0.5x", "--junit", str(junit)]) == 4
    assert 'name="latency.mean&lt;0.5x against ' in junit.read_text()
    assert "limit not met" in junit.read_text()
    capsys.readouterr()
    assert main([*words, "--paired", "--no-limits"]) in (0, 2)
    assert main([*words, "--limit", "latency.growth<1.5x", "--limit", "clock.max<1x"]) == 2
    capsys.readouterr()
    assert main([str(run), "--limit", "latency.mean<0.5x"]) == 2
    assert "mqtick-report compare" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--limit", "skew.p98<1us"], "p99"),
        (["--limit", "c37.118-6"], "c37.118-60"),
        (["--limit", "skew.mean<1us", "--no-limits"], "--no-limits"),
        (["--channels", "publisher"], "publisher=1"),
        (["--channels", "a=1,a=2"], "twice"),
        (["--confidence", "95"], "0.95"),
        (["--subscribers", "many"], "PATTERN=N"),
        (["--cable-delay", "first=long"], "NANOSECONDS"),
        (["--minimum-v", "nan"], "above 0"),
        (["--edge", "up"], "rising"),
        (["--deskew-uncertainty", "-1"], "from 0"),
        (["--channels", "publisher=1"], "second one"),
        (["--channels", "first=1,last=2", "--kind", "latency"], "publisher"),
    ],
)
def test_a_wrong_flag_is_told_with_what_would_be_right(
    tmp_path: Path, capsys: Say, flags: list[str], names: str
) -> None:
    path = write_csv(tmp_path / "a.csv", (0, 100, 130))
    assert code_of([str(path), *flags]) == 2
    assert names in capsys.readouterr().err


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("octets", "names"),
    [
        (b"", "is empty: 0 octets"),
        (b"\0" * 5000, "no known format"),
        (b"hello\n", "hello"),
        (b"%PDF-1.4\n" + b"x" * 100, "a PDF document"),
        ("Gerät;µs\n".encode("latin-1") * 3, "no known format"),
    ],
)
def test_what_is_no_capture_is_refused_with_a_sentence(
    tmp_path: Path, capsys: Say, octets: bytes, names: str
) -> None:
    path = tmp_path / "capture one.csv"
    path.write_bytes(octets)
    assert main([str(path), *ORDER]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "capture one.csv" in said
    assert names in said
    assert "Traceback" not in said


def test_what_is_not_there_is_named(tmp_path: Path, capsys: Say) -> None:
    assert main([str(tmp_path / "gone.csv")]) == 1
    assert "gone.csv" in capsys.readouterr().err


def test_half_a_file_counts_as_far_as_it_goes(
    captures: Callable[..., list[str]], results: list[Result]
) -> None:
    main([*captures(cut=2000), *ORDER, "--no-limits", "--quiet"])
    assert len(results[0].quantities[0].values_us) == 8
    assert results[0].measurement.notes


def test_a_damaged_file_is_left_out_and_reported(
    captures: Callable[..., list[str]], results: list[Result], capsys: Say, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_bytes(b"")
    main([*captures(), str(bad), *ORDER, "--no-limits"])
    assert len(results[0].quantities[0].values_us) == 8
    assert "bad.csv" in results[0].measurement.damaged[0]
    assert "bad.csv" in capsys.readouterr().out


def test_a_constant_channel_and_an_edge_before_the_record_are_missed_edges(
    tmp_path: Path, results: list[Result], capsys: Say
) -> None:
    files = [
        write_csv(tmp_path / "good.csv", (0, 100, 130)),
        write_csv(tmp_path / "before.csv", (0, 100, -150)),  # high from the beginning
        write_csv(tmp_path / "never.csv", (0, 100, 5000)),
    ]
    main([*map(str, files), *ORDER, "--no-limits"])
    assert list(results[0].quantities[0].values_us) == pytest.approx([30], abs=0.1)
    assert results[0].counts.missing_edges == 2
    assert "edges: 2 missing" in capsys.readouterr().out


def test_captures_of_different_lengths_and_with_more_channels_than_named_are_fine(
    tmp_path: Path, results: list[Result]
) -> None:
    files = [
        write_csv(tmp_path / "a.csv", (0, 100, 130, 140)),
        write_csv(tmp_path / "b.csv", (0, 100, 130), points=500),
    ]
    main([*map(str, files), *ORDER, "--no-limits", "--quiet"])
    assert list(results[0].quantities[0].values_us) == pytest.approx([30, 30], abs=0.5)
    assert any("CH4" in note for note in results[0].measurement.notes)


def test_a_channel_that_is_not_there_is_told_with_those_that_are(
    tmp_path: Path, capsys: Say
) -> None:
    path = write_csv(tmp_path / "a.csv", (0, 100))
    assert main([str(path), *ORDER]) == 2
    said = capsys.readouterr().err
    assert "last" in said
    assert "CH2" in said


# ---- run folders --------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Twenty shots at N = 2 and at N = 100, one of them missed, one damaged."""
    chance = np.random.default_rng(1)
    folder = tmp_path / "runs" / "to day"
    create_run(folder, record_of(LAYOUT, title="a run", simulated=True))
    for number in range(1, 41):
        many = 2 if number <= 20 else 100
        first = 200 + 10 * chance.random()
        edges = {"publisher": 0.0, "first": first, "last": first + 10 + many * 0.1}
        meta = Shot(
            number,
            many,
            MISSED if number == 7 else CAPTURED,
            reason="nothing came" if number == 7 else "",
            started_ns=1_700_000_000 * 10**9 + number * 10**9,
            simulated=True,
        )
        waves = {} if number == 7 else {name: levels(edge) for name, edge in edges.items()}
        write_shot(shot_path(folder, number), meta, waves)
    shot_path(folder, 30).write_bytes(b"PK\x03\x04 damaged")
    return folder


def test_a_run_becomes_numbers_with_nothing_left_out_silently(
    run: Path, results: list[Result], capsys: Say
) -> None:
    assert main([str(run), "--no-limits"]) == 0
    (result,) = results
    skew = result.quantities[0]
    assert [(row.subscribers, row.signed.n if row.signed else 0) for row in skew.rows] == [
        (2, 19),
        (100, 19),
    ]
    assert skew.growth is not None
    assert skew.growth.b.value == pytest.approx(0.1, abs=0.01)
    assert result.counts.missed == 1
    said = capsys.readouterr().out
    for words in (
        "SIMULATED",
        "nothing came",
        "000030.npz",
        f"{run}/report/report.html",
        "no report.pdf: a",
    ):
        assert words in said


def test_a_folder_that_is_no_run_is_told(tmp_path: Path, capsys: Say) -> None:
    assert main([str(tmp_path)]) == 1
    assert "run.json" in capsys.readouterr().err


def test_two_runs_are_compared_under_the_names_of_their_folders(
    run: Path, results: list[Result]
) -> None:
    software = run.rename(run.with_name("software"))
    hardware = Path(shutil.copytree(software, run.with_name("hardware")))
    # a run that is named twice is fine
    main(["compare", *map(str, (software, hardware, hardware)), "--quiet", "--no-limits"])
    titles = [result.measurement.title for result in results]
    assert titles == ["software", "hardware", "hardware"]


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--limit", "skew.p98<1us"], "p99"),
        (["--limit", "skew.mean<1us", "--no-limits"], "--no-limits"),
        (["--confidence", "95"], "0.95"),
        (["--title", "x"], "--title"),
    ],
)
def test_a_wrong_flag_of_compare_is_told(
    tmp_path: Path, capsys: Say, flags: list[str], names: str
) -> None:
    assert code_of(["compare", str(tmp_path), str(tmp_path), *flags]) == 2
    assert names in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (["--channels", "publisher=1,first=2"], "--channels"),
        (["--kind", "clock"], "--kind"),
        (["--subscribers", "5"], "--subscribers"),
        (["--cable-delay", "first=5"], "--cable-delay"),
        (["--edge", "both"], "--edge"),
        (["--minimum-v", "1"], "--minimum-v"),
    ],
)
def test_what_a_run_says_itself_is_wrong_use(
    run: Path, capsys: Say, flags: list[str], flag: str
) -> None:
    assert main([str(run), *flags]) == 2
    assert f"leave {flag} out" in capsys.readouterr().err


def test_what_a_run_does_not_say_may_be_said(run: Path, results: list[Result]) -> None:
    said = ["--title", "Monday", "--timebase-ppm", "2", "--deskew-uncertainty", "3"]
    main([str(run), *said, "--quiet"])
    measurement = results[0].measurement
    assert (measurement.title, measurement.timebase_ppm) == ("Monday", 2.0)
    assert measurement.channel_uncertainty_fs == 3 * 10**6


def test_one_run_cannot_be_compared(run: Path, capsys: Say) -> None:
    assert main(["compare", str(run)]) == 2
    assert "second" in capsys.readouterr().err


@pytest.mark.slow
def test_the_report_of_a_run_lies_in_its_folder(run: Path) -> None:
    command = [sys.executable, "-m", "mqtick.analysis.cli", str(run), "--limit", "skew.mean<5us"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, "")
    page = (run / "report" / "report.html").read_text()
    assert "SIMULATED" in page
    assert "skew.mean&lt;5us" in page
    assert (run / "report" / "report.pdf").exists() is ("no report.pdf: " not in done.stdout)


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_told(run: Path) -> None:
    (run / "report").write_text("in the way")
    command = [sys.executable, "-m", "mqtick.analysis.cli", str(run), "--no-limits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--out" in done.stderr
    assert "Traceback" not in done.stderr


READER = """
import sys
import mqtick.analysis.runs.from_run as from_run
from mqtick.analysis.cli import main
from mqtick.analysis.commands import report
report.PROCESSES = 2
read = from_run.read_whole_shot
def slow(path):
    import time
    print(path, flush=True)
    time.sleep(0.2)
    return read(path)
from_run.read_whole_shot = slow
sys.exit(main([sys.argv[1], "--quiet"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "wait_s", "code"),
    [
        (signal.SIGINT, 0.0, 130),
        (signal.SIGINT, 1.0, 130),
        (signal.SIGTERM, 0.5, -signal.SIGTERM),
        (signal.SIGKILL, 0.5, -signal.SIGKILL),
    ],
)
def test_a_run_that_is_not_read_to_its_end_leaves_no_process_and_no_traceback(
    run: Path, number: signal.Signals, wait_s: float, code: int
) -> None:
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert reader.stdout is not None
    reader.stdout.readline()  # the first shot is read
    time.sleep(wait_s)
    # a terminal's Ctrl-C goes to the whole group, other signals to the one that was named
    (os.killpg if number == signal.SIGINT else os.kill)(reader.pid, number)
    # its output ends only when the last of them has ended
    _, said = reader.communicate(timeout=60)
    assert (reader.returncode, said) == (code, "")
