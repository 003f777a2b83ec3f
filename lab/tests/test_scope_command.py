"""mqtick-lab scope: what a person at a bench sees."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from scope_rig import Simulated, simulated

from mqtick.lab.cli import main
from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator.keysight import KeysightFront
from mqtick.recording.edges import find_edges
from mqtick.recording.shot import read_shot, read_waveforms

APART_NS = 123_456


@contextlib.contextmanager
def living() -> Iterator[Simulated]:
    """An instrument whose inputs 1 and 2 see edges whenever it said that it waits for them."""
    end, said_so = threading.Event(), threading.Event()
    physics = replace(KeysightFront.physics, depths=(1_000, 20_000))
    with simulated(KeysightFront, physics) as instrument:
        state_now = instrument.model.poll

        def poll() -> State:
            state = state_now()
            if state is State.ARMED:
                said_so.set()
            return state

        instrument.model.poll = poll  # type: ignore[method-assign]

        def beat() -> None:
            while not end.is_set():
                if not said_so.wait(0.05):
                    continue
                said_so.clear()
                began_ns = instrument.edges(APART_NS, ahead_ns=5_000_000)
                for line, delay_ns in ((1, 0), (2, APART_NS)):
                    instrument.model.feed.add(line, began_ns + delay_ns + 400_000, False)

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield instrument
        finally:
            end.set()
            thread.join()


def test_identify_says_who_it_is_which_dialect_fits_and_that_it_is_simulated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with simulated(KeysightFront) as instrument:
        assert main(["scope", "identify", instrument.resource]) == 0
        said = capsys.readouterr().out
        assert "DSO-X 3034A" in said
        assert "(simulated)" in said
        assert "dialect  keysight" in said
        assert main(["scope", "identify", instrument.resource, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["dialect"], found["simulated"]) == ("keysight", True)


def test_capture_prints_levels_edges_and_times_between_channels(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with living() as instrument:
        code = main(
            ["scope", "capture", instrument.resource, "--channels", "2,1", "--trigger", "1"]
        )
        said, wrong = capsys.readouterr()
    assert (code, wrong) == (0, "")
    assert re.search(r"low -?0\.0\d\d V, high 3\.(29|30)\d V", said)
    (line,) = (line for line in said.splitlines() if line.startswith("channel 2 after channel 1"))
    assert float(line.split()[5]) == pytest.approx(APART_NS, abs=60)
    assert "(simulated)" in said


def test_capture_writes_raw_codes_and_volts_and_reads_what_is_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    raw, table = tmp_path / "shot.npz", tmp_path / "shot.csv"
    with living() as instrument:
        common = ["scope", "capture", instrument.resource, "--channels", "1,2"]
        assert main([*common, "--span", "500us", "--out", str(raw), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        # Nothing is set or armed again: the same record, as a table.
        assert main([*common, "--now", "--out", str(table)]) == 0
    assert said["simulated"] is True
    assert said["after_reference_ns"]["2"] == pytest.approx(APART_NS, abs=60)
    waveforms = read_waveforms(raw)
    assert read_shot(raw).simulated
    edges = {name: find_edges(waveform)[0] for name, waveform in waveforms.items()}
    assert (edges["2"].instant_fs - edges["1"].instant_fs) / 1e6 == pytest.approx(APART_NS, abs=60)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["time_s", "channel_1_v", "channel_2_v"]
    assert len(rows) == waveforms["1"].codes.size
    assert round(float(rows[0]["time_s"]) * 1e15) == pytest.approx(waveforms["1"].start_fs, abs=1)
    step_fs = round(float(rows[1]["time_s"]) * 1e15) - round(float(rows[0]["time_s"]) * 1e15)
    assert step_fs == pytest.approx(waveforms["1"].interval_fs, abs=1)
    assert float(rows[7]["channel_1_v"]) == pytest.approx(waveforms["1"].volts()[7], abs=1e-5)


def test_capture_takes_several_records_into_segmented_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with living() as instrument:
        words = ["scope", "capture", instrument.resource, "--channels", "1,2", "--segments", "3"]
        assert main([*words, "--json", "--out", str(tmp_path / "s.npz")]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main(words) == 0
        said = capsys.readouterr().out
    times_s = [segment["time_s"] for segment in found["segments"]]
    assert times_s[0] == 0
    assert times_s == sorted(times_s)
    assert len(times_s) == said.count("after channel 1: channel 2") == 3
    for number, segment in enumerate(found["segments"], 1):
        assert segment["after_trigger_ns"]["2"] == pytest.approx(APART_NS, abs=60)
        assert set(read_waveforms(tmp_path / f"s-{number:04d}.npz")) == {"1", "2"}


@pytest.mark.parametrize("there", ["mine.npz", "mine.csv", "mine-0001.npz", "mine.png"])
def test_a_file_that_is_there_is_never_overwritten(
    there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / there).write_text("precious")
    what = ["screenshot"] if there.endswith("png") else ["capture"]
    more = ["--segments", "3"] if "-" in there else []
    out = ["--out", str(tmp_path / there.replace("-0001", ""))]
    with simulated(KeysightFront) as instrument:
        assert main(["scope", *what, instrument.resource, *more, *out]) == 2
    assert f"{there} already exists and is kept" in capsys.readouterr().err
    assert [file.read_text() for file in tmp_path.iterdir()] == ["precious"]


def test_screenshot_writes_a_picture(tmp_path: Path) -> None:
    with simulated(KeysightFront) as instrument:
        file = tmp_path / "screen.png"
        assert main(["scope", "screenshot", instrument.resource, "--out", str(file)]) == 0
        assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--wait", "50ms"], 1, "No trigger within 0.05 s: channel 1 did not pass 1.65 V rising"),
        (["--channels", "2", "--trigger", "1"], 2, "Channel 1 is the trigger"),
        (["--channels", "1,9"], 1, "refused a setting"),
        (["--now"], 1, "Is the channel on, and has there been a trigger?"),
        (["--span", "0us"], 1, "--span is 0, but has to be above 0"),
        (["--volts-per-division", "-1"], 1, "--volts-per-division is -1.0, but has to be above 0"),
        (["--before", "1.5"], 1, "--before is 1.5, but it is the share of the record"),
        (["--out", "shot.docx"], 2, "neither .npz nor .csv"),
        (["--dialect", "keysigth"], 1, "did you mean keysight"),
    ],
)
def test_what_cannot_be_captured_is_a_sentence(
    arguments: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulated(KeysightFront) as instrument:
        assert main(["scope", "capture", instrument.resource, *arguments]) == code
        assert sentence in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with simulated(KeysightFront) as instrument:
        file = tmp_path / "no" / "folder" / "screen.png"
        assert main(["scope", "screenshot", instrument.resource, "--out", str(file)]) == 1
        assert "cannot be written (No such file or directory)" in capsys.readouterr().err


def test_an_instrument_that_is_not_there_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    began_s = time.monotonic()
    assert main(["scope", "identify", "TCPIP::127.0.0.1::1::SOCKET"]) == 1
    assert "cannot be opened" in capsys.readouterr().err
    assert time.monotonic() - began_s < 1.0
