"""mqtick-lab scope with a logic analyser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqtick.lab.cli import main
from mqtick.recording.shot import read_shot, read_waveforms

pytestmark = pytest.mark.needs("sigrok-cli")
DEMO = "sigrok:demo:logic_channels=8:pattern=graycode"


def test_identify_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scope", "identify", DEMO]) == 0
    said = capsys.readouterr().out
    assert "Demo device, driver demo, sigrok-cli" in said
    assert "(simulated)" in said
    assert "channels 1 to 8: D0 D1" in said


def test_capture_says_where_the_edges_are_and_keeps_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "shot.npz"
    record = ["--span", "150us", "--points", "150", "--channels", "7,8", "--out", str(out)]
    assert main(["scope", "capture", DEMO, *record, "--trigger", "7", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["simulated"]
    assert said["after_reference_ns"] == {"8": 64_000.0}
    first = said["channels"]["7"]["edges"][0]
    assert (first["at_ns"], first["rising"]) == (0.0, True)
    assert read_shot(out).simulated
    # Of 150 samples 15 are before the trigger, and 64 more before the other pin rises.
    assert read_waveforms(out)["8"].codes.tolist() == [0] * 79 + [1] * 71


def test_what_it_cannot_do_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scope", "screenshot", DEMO, "--out", str(tmp_path / "x.png")]) == 2
    assert "has no screen" in capsys.readouterr().err
    assert main(["scope", "capture", DEMO, "--now"]) == 2
    assert main(["scope", "capture", "sigrok:nothing"]) == 1
    assert "Driver nothing not found" in capsys.readouterr().err
