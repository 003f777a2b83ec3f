"""One call reads whatever was measured: a run folder, captures, a sample log."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mqtick.analysis
from analysis.tests.csv_parts import write_csv
from analysis.tests.sample_lines import sample, written
from mqtick.analysis import CaptureOptions, load, skew_frame
from mqtick.analysis.captures.look import look_at
from mqtick.analysis.load import LoadError
from mqtick.recording.capture import CaptureError
from mqtick.recording.run_folder import RunFolderError, create_run, shot_path
from mqtick.recording.shot import CAPTURED, Shot, write_shot
from recording.tests.wave_parts import SKEW_LAYOUT, record_of, wave


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    create_run(folder, record_of(SKEW_LAYOUT))
    waves = {"pub": wave(0), "near": wave(50), "far": wave(80)}
    write_shot(shot_path(folder, 1), Shot(1, 2, CAPTURED), waves)
    return folder


def test_a_run_folder_is_read(run: Path) -> None:
    assert skew_frame(load(run))["skew_us"].tolist() == [pytest.approx(30, abs=0.5)]
    assert load(str(run)).shots[0].subscribers == 2
    assert mqtick.analysis.load(run / "run.json").kind == "skew"


def test_captures_are_read_with_what_they_do_not_say(tmp_path: Path) -> None:
    paths = [tmp_path / f"my capture {number}.csv" for number in (1, 2, 10)]
    for number, path in enumerate(paths):
        write_csv(path, (0, 300, 400 + number))
    channels = {"publisher": "1", "first": "2", "last": "3"}
    found = load(*reversed(paths), channels=channels, subscribers=[("*", 10)])
    assert skew_frame(found)["skew_us"].tolist() == pytest.approx([100, 101, 102], abs=1)
    assert [each.subscribers for each in found.shots] == [10, 10, 10]
    assert load(*paths, options=CaptureOptions(channels=channels)).kind == "skew"


def test_the_events_of_a_long_record_have_their_place_in_time(tmp_path: Path) -> None:
    path = tmp_path / "analyser.vcd"
    pulses = "".join(
        f"#{at}000000 1a #{at}000100 0a #{at}000300 1b #{at}000340 1c #{at}000400 0b 0c "
        for at in (1, 2, 3)
    )
    names = zip("abc", ("publisher", "first", "last"), strict=True)
    declared = "".join(f"$var wire 1 {code} {name} $end " for code, name in names)
    path.write_text(f"$timescale 1 us $end {declared} $enddefinitions $end #0 0a 0b 0c {pulses}")
    found = load(path)
    frame = skew_frame(found)
    assert frame["skew_us"].tolist() == pytest.approx([40, 40, 40])
    assert frame["started"].diff().dt.total_seconds()[1:].tolist() == [1, 1]
    assert "the file's date" in " ".join(found.notes)


def test_a_folder_of_captures_is_all_of_them(tmp_path: Path) -> None:
    for number in range(3):
        write_csv(tmp_path / f"{number}.csv", (0, 300))
    (tmp_path / ".hidden").write_text("nothing")
    (tmp_path / "readme.txt").write_text("What I measured on Monday.\n")
    found = load(tmp_path, channels={"publisher": "CH1", "first": "CH2"})
    assert len(found.shots) == 3
    assert len(found.damaged) == 1


def test_without_any_configuration_the_next_step_is_said(tmp_path: Path) -> None:
    write_csv(tmp_path / "a b.csv", (0, 300, 400))
    with pytest.raises(CaptureError) as error:
        load(tmp_path / "a b.csv")
    command = f"mqtick-report '{tmp_path}/a b.csv' --channels publisher=1,first=2,last=3"
    assert command in str(error.value)


def test_a_sample_log_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, *(sample(number, 1500) for number in range(50)))
    found = load(path)
    assert found.kind == "clock"
    assert len(found.time_errors) == 1
    assert found.time_errors[0].error_ns == pytest.approx(np.full(50, 1500.0), abs=1)
    write_csv(tmp_path / "a.csv", (0, 300))
    with pytest.raises(CaptureError, match="no log of a clock; a report"):
        load(path, tmp_path / "a.csv")


def test_a_log_without_a_used_sample_is_a_clock_of_which_nothing_is_known(tmp_path: Path) -> None:
    logs = []
    for name in ("pi4", "pi5"):
        (tmp_path / name).mkdir()
        verdict = {"verdict": "refused", "reason": "stale"} if name == "pi5" else {}
        logs.append(written(tmp_path / name, *(sample(n, 9, **verdict) for n in range(20))))
    found = load(*logs)
    assert found.nodes == ("pi4/node 1", "pi5/node 1")
    assert [each.name for each in found.time_errors] == ["pi4/node 1"]
    assert "20 refused (stale)" in found.damaged[0]
    assert found.notes[-1] == "Nothing is known about the clock of pi5/node 1: its log is left out."


def test_what_is_said_of_a_run_counts(run: Path) -> None:
    found = load(run, title="Monday", timebase_ppm=1.0, channel_uncertainty_fs=7)
    assert (found.title, found.timebase_ppm, found.channel_uncertainty_fs) == ("Monday", 1.0, 7)
    assert dict(found.provenance)["Time base"] == "right to within 1 ppm: as was given"
    assumed = load(run)
    assert assumed.title == "µs"
    assert "25 ppm: assumed" in dict(assumed.provenance)["Time base"]


SAID: dict[str, Any] = {
    "channels": {"publisher": "1"},
    "kind": "clock",
    "subscribers": [("*", 9)],
    "cable_delay_fs": {"first": 1},
    "edge": "both",
    "minimum_v": 0.2,
}


@pytest.mark.parametrize("name", [*SAID, "simulated", "timebase_ppm", "channel_uncertainty_fs"])
def test_what_a_run_or_a_log_says_itself_is_refused(run: Path, tmp_path: Path, name: str) -> None:
    said = {name: SAID.get(name, 7)}
    log = written(tmp_path, *(sample(number) for number in range(3)))
    if name in SAID or name == "simulated":
        with pytest.raises(LoadError, match=f"run folder.*leave .*{name[:4]}"):
            load(run, **said)
    if name != "simulated":
        with pytest.raises(LoadError, match=r"sample log.*leave --"):
            load(log, **said)


def test_an_option_that_there_is_not_is_told(run: Path) -> None:
    with pytest.raises(TypeError, match=r"no option 'titel'; there are channels, .*title"):
        load(run, titel="x")


def test_two_runs_are_not_one(run: Path) -> None:
    with pytest.raises(CaptureError, match="compare"):
        load(run, run)


def test_what_is_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="is not a run folder"):
        load(tmp_path)
    with pytest.raises(CaptureError, match=r"gone\.csv cannot be read"):
        load(tmp_path / "gone.csv")
    with pytest.raises(CaptureError, match="No file was named"):
        load()
    (tmp_path / "empty.csv").touch()
    with pytest.raises(CaptureError, match="is empty"):
        load(tmp_path / "empty.csv")
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunFolderError):
        load(tmp_path)


HEADS = (
    b"",
    b"PK\x03\x04",
    b"AG10",
    b"<SALEAE>",
    b"$date",
    b"X,CH1,\n",
    b"Time (s),CH1,CH2\n",
    b"{",
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(HEADS), st.binary(max_size=200) | st.text("0123456789.,-e\n", max_size=200))
def test_whatever_a_file_holds_it_is_read_or_refused(
    tmp_path: Path, head: bytes, rest: bytes | str
) -> None:
    path = tmp_path / "any"
    path.write_bytes(head + (rest.encode() if isinstance(rest, str) else rest))
    with contextlib.suppress(CaptureError):
        load(path, channels={"publisher": "1", "first": "2"})
    with contextlib.suppress(CaptureError):
        assert look_at([path]).text
