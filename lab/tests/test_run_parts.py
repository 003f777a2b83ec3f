"""The parts of a run by themselves: shares of a crowd, locks, statistics, progress, command."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_rig import wired

from mqtick.lab.cli import main
from mqtick.lab.runner.bring_up import share
from mqtick.lab.runner.experiment import CrowdKeys, example
from mqtick.lab.runner.local_crowd import CrowdStartError, crowd_command, local_crowd
from mqtick.lab.runner.lock import BusyError, lock, lock_of
from mqtick.lab.runner.progress import Watch
from mqtick.lab.runner.subscribers import pauses_s
from mqtick.recording.run_folder import create_run
from mqtick.recording.shot import CAPTURED, MISSED, Shot


@given(st.integers(0, 1000), st.integers(1, 12))
def test_a_crowd_is_shared_evenly_and_whole(count: int, processes: int) -> None:
    shares = share(count, [f"crowd:{n}" for n in range(processes)])
    assert sum(shares.values()) == count
    assert len(shares) == processes
    assert max(shares.values()) - min(shares.values()) <= 1


def test_pauses_grow_and_come_to_an_end() -> None:
    pauses = list(pauses_s(0.0))
    assert pauses == [0.0]
    first, second, *_ = (pause for pause, _ in zip(pauses_s(60.0), range(3), strict=False))
    assert second == 2 * first


# -- locks -------------------------------------------------------------------------------------


def test_a_lock_names_who_holds_it_and_is_free_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        lock(path, "The scope"),
        pytest.raises(BusyError, match=rf"The scope is in use .* \(process {os.getpid()}\)"),
        lock(path, "The scope"),
    ):
        pytest.fail("it was locked twice")
    with lock(path, "The scope"):
        assert path.exists()


def test_a_process_that_dies_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = (
        "import os, sys, pathlib\n"
        "from mqtick.lab.runner.lock import lock\n"
        "with lock(pathlib.Path(sys.argv[1]), 'it'):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    with lock(path, "it"):
        pass


def test_a_link_in_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BusyError, match="cannot be locked"), lock(tmp_path / "lock", "it"):
        pytest.fail("it was followed")
    assert not (tmp_path / "elsewhere").exists()


def test_one_instrument_has_one_lock_however_it_is_written() -> None:
    assert lock_of("TCPIP::h::5025::SOCKET") == lock_of(" tcpip::H::5025::socket")
    assert lock_of("TCPIP::h::5025::SOCKET") != lock_of("TCPIP::i::INSTR")


# -- crowd -------------------------------------------------------------------------------------


def test_a_crowd_speaks_to_the_experiments_broker() -> None:
    experiment = wired({"scope": "A"}, broker="mqtts://b", ca_file="/ca.pem", subscribers=(100,))
    words = crowd_command(experiment, "crowd:local1")
    text = " ".join(words)
    assert "crowd --name local1 --prefix mqtick --broker mqtts://b --ca-file /ca.pem" in text
    assert text.endswith("--most-members 100")


@pytest.mark.slow
def test_a_crowd_that_cannot_start_says_why_and_leaves_nothing() -> None:
    experiment = wired({"scope": "A"}, broker="nonsense://x", crowd=CrowdKeys(processes=1))
    with local_crowd(experiment) as refuse_ended:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        with pytest.raises(CrowdStartError, match="nonsense"):
            refuse_ended()


def test_too_few_files_are_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    experiment = wired({"scope": "A"}, subscribers=(600,), crowd=CrowdKeys(processes=2))
    with pytest.raises(CrowdStartError, match=r"`ulimit -Hn` allows 256.*processes to 4"):
        local_crowd(experiment).__enter__()
    enough = replace(experiment, subscribers=(300,))
    with local_crowd(enough):
        pass


# -- progress ----------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shot(number: int, value_us: int | None, subscribers: int = 50) -> Shot:
    if value_us is None:
        return Shot(number, subscribers, MISSED, "No trigger.")
    return Shot(number, subscribers, CAPTURED, skew_fs=value_us * 10**9)


def test_a_terminal_has_one_line_that_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    watch = Watch("skew", stream)
    watch.begin(4)
    for number, value in enumerate((10, 20, None), start=1):
        watch.shot(shot(number, value))
    last = stream.getvalue().rpartition("\r\033[K")[2]
    assert "N = 50  shot 3/4  skew 15.0 +- 7.1 us (n = 2)  1 missed" in last
    assert "\033[32m" in last
    assert "\n" not in stream.getvalue()
    watch.note("Trying again.")
    assert "\r\033[KTrying again.\n" in stream.getvalue()
    watch.end()
    assert stream.getvalue().endswith("\n")


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    watch = Watch("skew", stream)
    watch.begin(1)
    watch.shot(shot(1, 10))
    assert "\033[32m" not in stream.getvalue()


def test_elsewhere_there_are_few_plain_lines() -> None:
    stream = io.StringIO()
    watch = Watch("skew", stream)
    watch.begin(100)
    for number in range(1, 101):
        watch.shot(shot(number, number))
    watch.end()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[-1].startswith("N = 50  shot 100/100  skew 50.5")
    assert "\033" not in stream.getvalue()


def test_progress_that_nobody_reads_ends_no_run() -> None:
    stream = io.StringIO()
    stream.close()
    watch = object.__new__(Watch)
    Watch.__init__(watch, "skew", Terminal())
    watch._stream = stream
    watch.begin(1)
    watch.shot(shot(1, 1))
    watch.note("Something.")
    watch.end()


# -- command -----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.toml"
    path.write_text(example())
    return path


def test_the_example_that_is_printed_can_be_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--example-config"]) == 0
    (tmp_path / "mine.toml").write_text(capsys.readouterr().out)
    assert main(["run", str(tmp_path / "mine.toml"), "--check-config"]) == 0
    assert main(["run", str(tmp_path / "mine.toml"), "--print-config"]) == 0
    assert capsys.readouterr().out.endswith(example())


def test_a_dry_run_says_what_would_be_done(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(file), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "80 shots" in said
    assert "client:pi1 - the others from 2 crowd processes - client:pi2" in said
    assert said.count("round 1: N = ") == 4
    assert main(["run", str(file), "--dry-run", "--json", "--shots", "4"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert sum(block["shots"] for block in plan) == 16


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no experiment file is named"),
        (["FILE"], "--out FOLDER is missing"),
        (["FILE", "--rounds", "30", "--dry-run"], "more than the 20 shots"),
        (["FILE", "--out", "RUN"], "holds a run already"),
        (["FILE", "--out", "RUN", "--resume"], "was begun with a different experiment"),
        (["FILE", "--out", "NONE", "--resume"], "is not a run folder"),
    ],
)
def test_wrong_use_is_code_2_and_a_sentence(
    file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    run = tmp_path / "run"
    create_run(run, {"kind": "skew", "settings": {}})
    places = {"FILE": str(file), "RUN": str(run), "NONE": str(tmp_path / "none")}
    assert main(["run", *(places.get(word, word) for word in arguments)]) == 2
    assert said in capsys.readouterr().err


def test_a_broker_that_is_not_there_is_code_1_and_leaves_no_folder(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(example().replace("broker_s = 5.0", "broker_s = 0.2"))
    out = tmp_path / "run"
    arguments = ["run", str(file), "--out", str(out), "--broker", "mqtt://127.0.0.1:1"]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "The nodes cannot be asked" in said
    assert "Continue with" not in said
    assert not out.exists()
