"""A look at captures: what is drawn is what a report uses, and the command it proposes works."""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.tests.csv_parts import write_csv
from analysis.tests.look_parts import US, drawn_in, pulses, write_events
from mqtick.analysis import load
from mqtick.analysis.captures.look import look_at
from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.cli import main
from mqtick.analysis.commands import report
from mqtick.analysis.commands.capture_flags import capture_options
from mqtick.analysis.commands.quantities import joined
from mqtick.analysis.measurement import CAPTURED
from mqtick.analysis.overlay import thinned
from mqtick.recording.capture import find_signal
from mqtick.recording.run_folder import create_run, shot_path
from mqtick.recording.shot import Shot, write_shot
from recording.tests.wave_parts import SKEW_LAYOUT, record_of, wave

FILES = Path(__file__).parent / "files"
Say = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def code_of(words: Sequence[str]) -> int:
    """The exit code, whoever found the mistake."""
    try:
        return main(list(words))
    except SystemExit as end:
        return int(str(end.code))


def proposed(said: str) -> list[str]:
    """The command that was printed, without the program's name."""
    (line,) = [line for line in said.splitlines() if line.startswith("  mqtick-report ")]
    return shlex.split(line)[1:]


def marked(page: Path) -> dict[str, list[float]]:
    """The instants in us of each channel's filled marks."""
    found = {}
    for name, lane in drawn_in(page.read_text()).items():
        at = np.frombuffer(base64.b64decode(str(lane["at"])), "<f8")
        used = np.frombuffer(base64.b64decode(str(lane["used"])), "u1")
        found[name] = at[used == 1].tolist()
    return found


def used_by_report(words: list[str]) -> dict[str, list[float]]:
    """The instants in us of the edges that a report of these words uses, by channel."""
    parser = argparse.ArgumentParser()
    report.add(parser.add_subparsers())
    args = parser.parse_args(["report", *joined(words)])
    options = capture_options(args)
    found = load(*args.paths, options=options)
    names = dict(options.channels)
    instants: dict[str, list[float]] = {names[name]: [] for name in found.nodes}
    for shot in found.shots:
        if shot.outcome == CAPTURED:
            for name, edge in shot.edges.items():
                moved_fs = shot.origins_fs[0] + options.cable_delay_fs.get(name, 0)
                instants[names[name]].append((edge.instant_fs + moved_fs) / US)
    return instants


REAL = [
    "bin/sigrok_demo.sr",
    "bin/sigrok_demo.vcd",
    "bin/MSO5000-A.bin",
    "bin/DHO1074_cut.bin",
    "bin/agilent_3_cut.bin",
    "csv/rigol-ds1054z-square.csv",
    "csv/rigol-ds1204b.csv",
    "csv/rohde-schwarz.csv",
]
SAID = [
    [],
    ["--every-event"],
    ["--threshold", "0.2V", "--hysteresis", "10mV", "--minimum-v", "0.1"],
    ["--invert", "all", "--skip", "1", "--from", "-10s", "--to", "10s"],
]


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("flags", SAID, ids=" ".join)
def test_the_filled_marks_are_the_edges_that_the_proposed_report_uses(
    name: str, flags: list[str], tmp_path: Path, capsys: Say
) -> None:
    path = FILES / name
    code = code_of(["look", str(path), *flags])
    said = capsys.readouterr()
    if code:  # no voltages for a threshold
        assert "is digital" in said.err
        return
    marks = marked(tmp_path / f"look-{path.stem}.html")
    if "  mqtick-report " not in said.out:
        assert not any(marks.values())
        return
    words = proposed(said.out)
    used = used_by_report(words)
    for channel, instants in used.items():
        signal = find_signal(dict.fromkeys(marks, pulses([])), channel)
        shown = marks[str(signal)]
        marks[str(signal)] = []
        assert sorted(shown) == pytest.approx(sorted(instants), abs=1e-6)
    assert not any(marks.values())


def test_each_event_of_a_record_is_marked(tmp_path: Path, capsys: Say) -> None:
    late = [100.0 + 3 * number for number in range(20)]
    path = write_events(tmp_path / "deep.npz", [0.0] * 20, late, [each + 50 for each in late])
    assert main(["look", str(path)]) == 0
    said = capsys.readouterr().out
    assert "With --every-event, each of the 20 such edges is an event." in said
    assert {name: len(at) for name, at in marked(tmp_path / "look-deep.html").items()} == {
        "CH1": 1,
        "CH2": 1,
        "CH3": 1,
    }
    main(["look", str(path), "--every-event"])
    said = capsys.readouterr().out
    assert proposed(said)[1:] == ["--channels", "publisher=1,first=2,last=3", "--every-event"]
    second = marked(tmp_path / "look-deep.html")["CH2"]
    true_us = [1000 * number + each for number, each in enumerate(late)]
    assert second == pytest.approx(true_us, abs=0.2)


def test_a_report_without_names_is_a_listing_that_writes_nothing(
    tmp_path: Path, capsys: Say
) -> None:
    path = write_csv(tmp_path / "my scope.csv", (0, 100, 130))
    assert main([str(path)]) == 0
    said = capsys.readouterr().out
    assert "CH2  1 edge" in said
    assert f"mqtick-report look '{path}'" in said
    assert list(tmp_path.iterdir()) == [path]
    main(["look", str(path)])
    assert (tmp_path / "look-my-scope.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    main([str(path), "--json"])
    assert "--channels publisher=" in capsys.readouterr().err


def test_what_was_said_is_said_again_in_the_command(tmp_path: Path, capsys: Say) -> None:
    path = write_events(tmp_path / "a.npz", [0.0] * 5, [90.0] * 5)
    said = ["--threshold", "2=1.2V", "--hysteresis", "300mV", "--skip", "2", "--from", "-200us"]
    said += ["--to", "3.5ms", "--every-event", "--within", "400us", "--cable-delay", "first=5.1"]
    assert main(["look", str(path), *said]) == 0
    words = proposed(capsys.readouterr().out)
    options = {
        "--threshold",
        "--hysteresis",
        "--skip",
        "--from",
        "--to",
        "--within",
        "--cable-delay",
    }
    assert options <= set(words)
    assert used_by_report(words)["2"] == pytest.approx([1090, 2090, 3090], abs=1)


def test_the_channels_that_are_named_are_those_that_are_marked(tmp_path: Path) -> None:
    path = write_events(tmp_path / "a.npz", [0.0] * 3, [90.0] * 3, [50.0] * 3)
    found = look_at([path], CaptureOptions(channels={"publisher": "3", "first": "2"}))
    assert {lane.name: lane.part for lane in found.lanes} == {
        "CH1": "",
        "CH2": "first",
        "CH3": "publisher",
    }
    assert not found.assumed
    assert "The command for a report is:" in found.text
    assert [int(lane.used.sum()) for lane in found.lanes] == [0, 1, 1]


def test_which_capture_is_drawn_can_be_said(tmp_path: Path, capsys: Say) -> None:
    paths = [str(write_csv(tmp_path / f"{n}.csv", (0, 100 + n))) for n in range(3)]
    assert main(["look", *paths, "--capture", "3"]) == 0
    said = capsys.readouterr().out
    assert "look-2.png" in said
    assert "draws the next" not in said
    assert main(["look", *paths, "--capture", "2"]) == 0
    assert "This is capture 2; --capture 3 draws the next." in capsys.readouterr().out
    assert code_of(["look", *paths, "--capture", "4"]) == 1
    assert "no capture number 4: these files hold 3" in capsys.readouterr().err
    for wrong in ("0", "-1", "x", "1.5"):
        assert code_of(["look", *paths, "--capture", wrong]) == 2


def test_the_simulated_is_called_so(tmp_path: Path) -> None:
    main(["look", str(write_events(tmp_path / "a.npz", [0.0] * 3, [90.0] * 3))])
    assert "SIMULATED:" in (tmp_path / "look-a.html").read_text()


# ---- a run folder


def run_of(folder: Path) -> Path:
    create_run(folder, record_of(SKEW_LAYOUT))
    for number in (1, 2):
        waves = {"pub": wave(0, 300), "near": wave(90, 300), "far": wave(120 + number, 300)}
        write_shot(shot_path(folder, number), Shot(number, 2, started_ns=number), waves)
    return folder


def test_a_shot_of_a_run_is_drawn_with_the_edges_of_its_report(tmp_path: Path, capsys: Say) -> None:
    run = run_of(tmp_path / "run")
    assert main(["look", str(run), "--capture", "2"]) == 0
    assert proposed(capsys.readouterr().out) == [str(run)]
    shot = load(run).shots[1]
    (moved_fs,) = shot.origins_fs
    assert marked(tmp_path / "look-000002.html") == {
        name: [pytest.approx((edge.instant_fs + moved_fs) / US, abs=1e-6)]
        for name, edge in shot.edges.items()
    }
    assert code_of(["look", str(run), "--capture", "3"]) == 1
    assert code_of(["look", str(run), "--every-event"]) == 2
    assert code_of(["look", str(run), "--threshold", "nobody=1V"]) == 2


# ---- the page and the picture


def test_the_page_needs_nothing_but_itself_and_runs_no_script_but_its_own(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script><img src=http://x>"
    waves: dict[str, Any] = {hostile: pulses([0.0] * 3), "b": pulses([90.0] * 3)}
    write_shot(tmp_path / "a.npz", Shot(), {name.replace("/", "|"): w for name, w in waves.items()})
    assert main(["look", "a.npz"]) == 0
    page = (tmp_path / "look-a.html").read_text()
    assert page.count("<script") == 2
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in page
    assert "default-src 'none'" in page
    assert not re.findall(r"""<\w[^<>]*?(?:src|href)=(?!["']?data:)""", page)
    assert "<img src=http" not in page


def test_a_deep_record_is_drawn_by_its_envelope_and_every_sample_near_its_edges() -> None:
    points = 2_000_000
    codes = np.zeros(points, np.uint8)
    codes[1_234_567:] = 200
    codes[777_777] = 30  # a glitch
    signal = pulses([])
    deep = type(signal)(codes, 0.02, 0.0, US, 0)
    us, volts = thinned(deep, [1_234_567 * US], 0, 16_000)
    assert us.size <= 16_000
    assert volts.max() == pytest.approx(4.0)
    assert 777_777.0 in us.tolist()
    near = us[np.abs(us - 1_234_567) < 50]
    assert np.diff(near).tolist() == [1.0] * (near.size - 1)


def test_a_folder_that_cannot_be_written_is_said_and_the_listing_comes_all_the_same(
    tmp_path: Path, capsys: Say
) -> None:
    path = write_csv(tmp_path / "a.csv", (0, 100))
    (tmp_path / "taken").write_text("")
    assert main(["look", str(path), "--out", "taken/x"]) == 1
    said = capsys.readouterr()
    assert "--channels publisher=1,first=2" in said.out
    assert "name another folder with --out FOLDER" in said.err


# ---- hostile files and words

CASES = {
    "empty": b"",
    "nonsense": bytes(range(256)) * 40,
    "cut off": b"time [s],CH1,CH2\n0,0,0\n1e-6,",
    "flat": b"time [s],CH1,CH2\n" + b"".join(b"%de-6,1.0,2.0\n" % n for n in range(100)),
    "no number": b"time [s],CH1,CH2\n" + b"".join(b"%de-6,nan,inf\n" % n for n in range(100)),
    "huge": b"time [s],CH1,CH2\n"
    + b"".join(b"%de-6,%d,-1e300\n" % (n, n % 2 * 10**300) for n in range(100)),
    "one": b"time [s],CH1\n" + b"".join(b"%de-6,%d\n" % (n, n // 50 * 3) for n in range(100)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("flags", SAID, ids=" ".join)
def test_whatever_the_file_is_there_is_a_sentence(
    name: str, flags: list[str], tmp_path: Path, capsys: Say
) -> None:
    path = tmp_path / "scope.csv"
    path.write_bytes(CASES[name])
    code = code_of(["look", str(path), *flags])
    said = capsys.readouterr()
    assert code in (0, 1, 2)
    assert (said.err.count("error: ") == 1) == (code > 0)
    words = ("no edge", "holds one", "1 edge, ")
    assert code or any(each in said.out for each in words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--threshold", "1.65s"], "'1.65s' is not in volts: 1.65V, 900mV"),
        (["--threshold", "high"], "'high' is not a voltage"),
        (["--threshold", "first="], "'' is not a voltage"),
        (["--threshold", "=1V"], "has no name before a ="),
        (["--threshold", "1V,2V"], "says two things of one channel"),
        (["--threshold", "1e99V"], "no voltage of a signal"),
        (["--threshold", "nanV"], "is not a voltage"),
        (["--threshold", "CH9=1V"], "edges of 'CH9', which is not a channel; there are: "),
        (["--threshold", "1=1V,CH1=2V"], "said twice of the edges of"),
        (["--hysteresis", "-1V"], "is below 0; a hysteresis is a width"),
        (["--skip", "-1"], "is not a number of edges"),
        (["--skip", "99999999999"], "is not a number of edges"),
        (["--invert", "CH1,,CH2"], "is not NAME,NAME, or all"),
        (["--from", "5"], "'5' has no unit of time; there are s, ms, us, ns, ps: 500us, -2ms"),
        (["--from", "5V"], "has no unit of time"),
        (["--from", "1e30s"], "longer than any record"),
        (["--from", "2ms", "--to", "1ms"], "--from is not before --to"),
        (["--within", "1ms"], "give --every-event too"),
        (["--every-event", "--within", "0s"], "is not a time above 0"),
        (["--every-event", "--within", "-1ms"], "is not a time above 0"),
        (["--channels", "publisher=7,first=1"], "There is no channel '7' (wanted for publisher)"),
        (["--channels", "publisher=1"], "Only one channel is named"),
        (["nothing.csv"], "cannot be read (No such file or directory)"),
    ],
)
def test_wrong_words_are_refused_in_a_sentence(
    words: list[str], says: str, tmp_path: Path, capsys: Say
) -> None:
    path = write_csv(tmp_path / "a.csv", (0, 100))
    files = [] if words[0].endswith(".csv") else [str(path)]
    assert code_of(["look", *files, *words]) == (1 if not files else 2)
    said = capsys.readouterr()
    assert says in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--threshold", "9V"], "The threshold of 9 V lies outside its 1,000 samples"),
        (["--from", "1s"], "is outside its record, which is from -100 to 900 us"),
        (["--skip", "5"], "All of its edges (1) were to be skipped"),
        (["--hysteresis", "9V"], "The hysteresis of 9 V reaches beyond"),
    ],
)
def test_what_leaves_no_edge_is_said_by_look_and_by_the_report(
    flags: list[str], says: str, tmp_path: Path, capsys: Say
) -> None:
    path = str(write_csv(tmp_path / "a.csv", (0, 100)))
    assert main(["look", path, *flags]) == 0
    assert says in capsys.readouterr().out
    names = ["--channels", "publisher=1,first=2"]
    assert main([path, *names, *flags]) == 4
    assert says in " ".join(capsys.readouterr().out.split())
