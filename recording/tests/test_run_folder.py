"""A run's folder: begun once, read by this version and later ones, damage said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mqtick.lab.runner.summary import summarise
from mqtick.recording.run_folder import (
    FORMAT_VERSION,
    RunFolderError,
    create_run,
    load_run,
    shot_path,
    write_record,
)
from mqtick.recording.shot import CAPTURED, Shot, write_shot

DOCUMENT = Path(__file__).parents[2] / "docs" / "run-folder.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "today"
    create_run(path, {"title": "µs", "kind": "skew", "simulated": False, "software": "mqtick 9"})
    for number in (1, 2, 3):
        meta = Shot(number, 2, CAPTURED, skew_fs=number * 10**9)
        write_shot(shot_path(path, number), meta, {})
    return path


def test_what_was_written_is_read(folder: Path) -> None:
    run = load_run(folder)
    assert (run.kind, run.simulated, run.record["title"]) == ("skew", False, "µs")
    assert [shot.number for shot in run.shots()] == [1, 2, 3]


def test_a_damaged_shot_is_said_and_the_others_are_read(folder: Path) -> None:
    shot_path(folder, 2).write_bytes(b"PK\x03\x04")
    run = load_run(folder)
    assert [shot.number for shot in run.shots()] == [1, 3]
    assert len(run.damaged) == 1
    assert "000002.npz" in run.damaged[0]
    assert "000002.npz" in summarise(run).as_text()


def test_a_shot_under_anothers_name_is_left_out(folder: Path) -> None:
    shot_path(folder, 2).write_bytes(shot_path(folder, 1).read_bytes())
    run = load_run(folder)
    assert [shot.number for shot in run.shots()] == [1, 3]
    assert "says that it is shot 1" in run.damaged[0]


def test_what_was_never_finished_is_no_shot(folder: Path) -> None:
    (folder / "shots" / ".000004.npz.part").write_bytes(b"")
    assert len(list(load_run(folder).shots())) == 3


def test_a_run_that_does_not_say_so_counts_as_simulated(folder: Path) -> None:
    write_record(folder, {"kind": "skew"})
    assert load_run(folder).simulated


def test_a_kind_that_there_is_not_is_refused(folder: Path) -> None:
    write_record(folder, {"kind": "banana"})
    with pytest.raises(
        RunFolderError, match="of the kind 'banana', but there are only latency, skew"
    ):
        load_run(folder)


def test_a_newer_version_is_refused_with_its_name(folder: Path) -> None:
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"version": FORMAT_VERSION + 1}))
    with pytest.raises(RunFolderError, match=r"written by a newer mqtick \(mqtick 9, format 2"):
        load_run(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is damaged"),
        ("[]", "was not written by mqtick-lab"),
        ('{"format": "other"}', "was not written by mqtick-lab"),
        ('{"format": "mqtick-run"}', "has the version None"),
        ('{"format": "mqtick-run", "version": true}', "has the version True"),
        ("[" * 100_000, "is damaged"),
    ],
)
def test_a_damaged_record_is_a_sentence(folder: Path, text: str, said: str) -> None:
    (folder / "run.json").write_text(text)
    with pytest.raises(RunFolderError, match=said):
        load_run(folder)


def test_a_folder_that_is_used_is_not_begun(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="holds a run already: continue it with --resume"):
        create_run(folder, {})
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to_her").touch()
    with pytest.raises(RunFolderError, match="is not empty but holds no run"):
        create_run(tmp_path / "letters", {})
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match="cannot be"):
        create_run(tmp_path / "file", {})


def test_no_run_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not a run folder"):
        load_run(tmp_path)


def test_the_documents_example_runs(folder: Path) -> None:
    text = DOCUMENT.read_text()
    program = text.split("python -c '\n", 1)[1].split("\n' runs/today", 1)[0]
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert "2 captured 2.0" in done.stdout
