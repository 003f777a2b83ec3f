"""Logic analysers' files as captures: changes with their quantisation, in the names of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis.readers.registry import open_capture
from mqtick.analysis.readers.vcd import VcdError
from mqtick.recording.bits import transitions_of_bits
from mqtick.recording.capture import CaptureError
from mqtick.recording.sigrok import SigrokFileError
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import Waveform

BIN = Path(__file__).parent / "files" / "bin"
HEAD = "$timescale 1 ns $end $scope module top $end $var wire 1 ! D0 $end "


def write(path: Path, text: str) -> Path:
    path.write_text(text + "$enddefinitions $end #0 0! #1000 1! #2000 0!")
    return path


def test_changes_lie_in_the_middle_of_two_samples() -> None:
    bits = Waveform(np.array([0, 0, 1, 1, 0], np.uint8), 3.3, 0.0, 1000, -2000)
    found = transitions_of_bits("D0", bits)
    assert (found.initial, found.uncertainty_fs) == (0, 500)
    assert [(e.instant_fs, e.rising) for e in found.edges()] == [(-500, True), (1500, False)]


def test_sessions_and_dumps_of_one_rate_are_as_uncertain_as_their_samples() -> None:
    for name, uncertainty_fs in (("sigrok_demo.sr", 50_000_000), ("sigrok_demo.vcd", 150_000_000)):
        (capture,) = open_capture(BIN / name).read()
        signal = capture.signals["D0"]
        assert isinstance(signal, Transitions)
        # 10 MHz: half of 100 ns; a dump adds the rounding to its timescale, 100 ns
        assert {edge.uncertainty_fs for edge in signal.edges()} == {uncertainty_fs}
        assert {at % 100_000_000 for at in signal.instants_fs()} == {50_000_000}
        assert not capture.triggered


def test_a_dump_that_says_no_rate_is_as_uncertain_as_its_timescale_and_says_so(
    tmp_path: Path,
) -> None:
    file = open_capture(write(tmp_path / "x.vcd", "$version Logic 2 $end " + HEAD))
    (capture,) = file.read()
    signal = capture.signals["D0"]
    assert isinstance(signal, Transitions)
    assert [(e.instant_fs, e.uncertainty_fs) for e in signal.edges()] == [
        (10**9, 10**6),
        (2 * 10**9, 10**6),
    ]
    assert file.instrument == "Logic 2"
    assert "how often" in file.notes[0]


def test_names_that_several_scopes_use_keep_their_path(tmp_path: Path) -> None:
    other = '$upscope $end $scope module low $end $var wire 1 " D0 $end $var wire 1 # D1 $end '
    (capture,) = open_capture(write(tmp_path / "x.vcd", HEAD + other)).read()
    assert list(capture.signals) == ["top.D0", "low.D0", "D1"]


def test_their_errors_are_errors_of_captures(tmp_path: Path) -> None:
    assert issubclass(VcdError, CaptureError)
    assert issubclass(SigrokFileError, CaptureError)
    path = tmp_path / "half.sr"
    path.write_bytes((BIN / "sigrok_demo.sr").read_bytes()[:-40])
    with pytest.raises(CaptureError, match="cut short"):
        list(open_capture(path).read())
