"""What was found in a run's shots is kept: the next report is the same, and takes less time."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from analysis.tests.test_from_run import Folder, three
from mqtick.analysis.measurement import Measurement
from mqtick.analysis.runs import from_run
from recording.tests.wave_parts import SKEW_LAYOUT


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "run", SKEW_LAYOUT)
    for last_us in (80, 90, 100):
        made.add(three(last_us))
    made.add({}, keep=False, outcome="refused", reason="nobody subscribed", edges={})
    return made


def judged(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> tuple[Measurement, int]:
    """Read the run; returns how many shots' waveforms were looked at as well."""
    looked: list[Path] = []
    read = from_run.read_whole_shot
    with monkeypatch.context() as patched:
        patched.setattr(from_run, "read_whole_shot", lambda path: looked.append(path) or read(path))
        return folder.read(), len(looked)


def test_the_second_reading_is_the_first_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, looked = judged(folder, monkeypatch)
    assert looked == 4
    second, looked = judged(folder, monkeypatch)
    assert looked == 0
    assert second.shots == first.shots
    for one, other in zip(first.shots, second.shots, strict=True):
        # An edge's equality is that of its instant: the rest counts here, too.
        assert repr(one) == repr(other)
    assert second.notes == first.notes
    assert second.example is not None


def test_a_shot_that_has_changed_is_looked_at_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.read()
    path = folder.path / "shots/000002.npz"
    changed = path.stat().st_mtime_ns + 1
    os.utime(path, ns=(changed, changed))
    folder.add(three(120))
    run, looked = judged(folder, monkeypatch)
    assert looked == 2
    assert [shot.number for shot in run.shots] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "change",
    [
        lambda octets: b"",
        lambda octets: octets[:-20],
        lambda octets: octets.replace(b"captured", b"CAPTURED", 1),
        lambda octets: b"[" * 100_000,
        lambda octets: octets.replace(octets[:64], b"0" * 64, 1),
    ],
)
def test_a_damaged_file_is_not_used(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, change: object
) -> None:
    first = folder.read()
    kept = folder.path / "reduced.json"
    assert callable(change)
    kept.write_bytes(change(kept.read_bytes()))
    again, looked = judged(folder, monkeypatch)
    assert looked == 4
    assert repr(again.shots) == repr(first.shots)


def test_another_wiring_is_judged_anew(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.read()
    record = json.loads((folder.path / "run.json").read_text())
    record["channels"]["far"]["cable_delay_fs"] = 5_000_000
    (folder.path / "run.json").write_text(json.dumps(record))
    run, looked = judged(folder, monkeypatch)
    assert looked == 4
    assert run.shots[0].edges["far"].instant_fs != 80 * 10**9


def test_another_version_judges_anew(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.read()
    monkeypatch.setattr("mqtick.analysis.runs.reduced._code", lambda: "another")
    assert judged(folder, monkeypatch)[1] == 4


def test_where_nothing_may_be_written_the_run_is_read_all_the_same(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mqtick.analysis.runs.reduced.replace_file", refuse)
    assert len(folder.read().shots) == 4
    assert not (folder.path / "reduced.json").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b",true,", b',"true",'),
        (b'"captured"', b"7"),
        (b'"far":[', b'"far":[7,'),
    ],
)
def test_what_somebody_forged_is_not_used_where_it_does_not_fit(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, old: bytes, new: bytes
) -> None:
    first = folder.read()
    kept = folder.path / "reduced.json"
    body = kept.read_bytes().splitlines()[1]
    assert old in body
    body = body.replace(old, new)
    kept.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body + b"\n")
    again, looked = judged(folder, monkeypatch)
    assert repr(again.shots) == repr(first.shots)
    assert looked > 0
