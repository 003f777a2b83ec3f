"""The simulated Rigols are as awkward as real ones."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scope_rig import Simulated, opened, simulated, usual

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import rigol_record
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.simulator.rigol import RigolFront
from mqtick.lab.scope.simulator.rigol_series import (
    RigolDhoFront,
    RigolDs1000zFront,
    RigolMso5000Front,
)
from mqtick.recording.edges import find_edges

FRONTS = [RigolDs1000zFront, RigolMso5000Front, RigolDhoFront]
all_fronts = pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.name)


def ask(instrument: Simulated, line: str) -> str:
    return instrument.front.answer(line).decode("latin-1").strip()


def blocks_points(instrument: Simulated, octets: int = 1) -> int:
    """Ask for data, and return how many points the block announces."""
    return int(instrument.front.answer(":WAV:DATA?")[2:11]) // octets


@all_fronts
def test_the_depth_is_only_taken_while_running_and_only_one_that_there_is(
    front: type[RigolFront],
) -> None:
    with simulated(front) as instrument:
        first, depth = front.depths[0][:2]
        ask(instrument, f":CHAN1:DISP 1;:STOP;:ACQ:MDEP {depth}")
        assert float(ask(instrument, ":ACQ:MDEP?")) == first
        ask(instrument, f":RUN;:ACQ:MDEP {depth}")
        ask(instrument, f":ACQ:MDEP {depth + 1}")
        assert float(ask(instrument, ":ACQ:MDEP?")) == depth
        # A DS1000Z says nothing of it.
        errors = int("-224" in ask(instrument, ":SYST:ERR?"))
        assert errors == (front is not RigolDs1000zFront)


def test_with_two_channels_the_ds1000z_has_half_the_depths() -> None:
    with simulated(RigolDs1000zFront) as instrument:
        ask(instrument, ":CHAN1:DISP 1;:CHAN2:DISP ON;:RUN;:ACQ:MDEP 120000")
        assert ask(instrument, ":ACQ:MDEP?") == "12000"
        ask(instrument, ":ACQ:MDEP 60000")
        assert ask(instrument, ":ACQ:MDEP?") == "60000"


@all_fronts
def test_a_deskew_is_refused_with_a_slow_time_base(front: type[RigolFront]) -> None:
    with simulated(front) as instrument:
        ask(instrument, ":TIM:MAIN:SCAL 2E-5;:CHAN1:TCAL 0")
        assert "-224" in ask(instrument, ":SYST:ERR?")


def test_one_read_of_the_ds1000z_gives_no_more_than_a_page() -> None:
    with opened(RigolDs1000zFront) as (instrument, scope):
        instrument.shot(scope, usual(points=500_000, channels=1))
        assert scope.read([1])[1].codes.size == 1_200_000
        ask(instrument, ":WAV:STAR 1;:WAV:STOP 600000")
        assert blocks_points(instrument) == 250_000
        ask(instrument, ":WAV:FORM WORD")
        assert blocks_points(instrument, 2) == 125_000


def test_the_dho_goes_on_with_the_old_depth_until_the_mode_was_another_one() -> None:
    with opened(RigolDhoFront) as (instrument, scope):
        instrument.shot(scope, usual(points=1000), 0)
        assert scope.read([1])[1].codes.size == 1000
        instrument.shot(scope, usual(points=10_000), 0)
        ask(instrument, ":WAV:STAR 1;:WAV:STOP 10000")
        assert blocks_points(instrument, 2) == 1000
        assert scope.read([1])[1].codes.size == 10_000


def test_the_preamble_of_the_dho_tells_of_the_page() -> None:
    with opened(RigolDhoFront) as (instrument, scope):
        instrument.shot(scope, usual(points=10_000), 0)
        scope.read([1])
        ask(instrument, ":WAV:STAR 1;:WAV:STOP 300")
        assert ask(instrument, ":WAV:PRE?").split(",")[2] == "300"


def test_words_of_the_dho_have_their_low_octet_first_and_twelve_bits() -> None:
    with opened(RigolDhoFront) as (instrument, scope):
        instrument.shot(scope, usual(points=1000), 0)
        codes = scope.read([1])[1].codes
    assert codes.dtype == np.uint16
    assert not np.any(codes & 0xF)
    assert np.any(codes & 0xF0)


def test_the_time_of_a_frame_comes_later_than_the_frame() -> None:
    with opened(RigolDhoFront) as (instrument, scope):
        instrument.shot(scope, usual(segments=2, points=1000), 0)
        assert isinstance(instrument.front, RigolFront)
        instrument.front.recorder.refresh_s = 0.05
        ask(instrument, ":REC:WREP:FCUR 2")
        assert ask(instrument, ":REC:WREP:FCUR:TIME?") == "0.00000s"
        time.sleep(0.06)
        assert ask(instrument, ":REC:WREP:FCUR:TIME?") != "0.00000s"


def test_a_scale_that_is_turned_afterwards_leaves_the_volts() -> None:
    with opened(RigolDhoFront) as (instrument, scope):
        instrument.shot(scope, usual(points=1000), 0)
        before = scope.read([1])[1].volts()
        ask(instrument, ":CHAN1:SCAL 2")
        after = scope.read([1])[1].volts()
    np.testing.assert_allclose(after, before, atol=0.01)


def test_single_is_refused_while_the_recorder_is_on() -> None:
    with simulated(RigolDhoFront) as instrument:
        ask(instrument, ":REC:WREC:ENAB 1;:SING")
        assert "-224" in ask(instrument, ":SYST:ERR?")


def test_the_screen_and_the_memory_agree() -> None:
    with opened(RigolDs1000zFront) as (instrument, scope):
        instrument.shot(scope, usual(points=10_000, channels=1))
        memory = scope.read([1])[1]
        ask(instrument, ":WAV:MODE NORM;:WAV:FORM BYTE")
        fields = [float(field) for field in ask(instrument, ":WAV:PRE?").split(",")]
        data = np.frombuffer(instrument.front.answer(":WAV:DATA?")[11:-1], np.uint8)
    assert data.size == fields[2] == 1200
    assert fields[4] == pytest.approx(1e-6)  # a hundredth of a division
    rising = fields[5] + fields[4] * int(np.flatnonzero(data > data.mean())[0])
    assert rising == pytest.approx(find_edges(memory)[0].instant_fs * 1e-15, abs=1.1e-6)


@all_fronts
def test_what_was_left_on_the_front_panel_as_deskew_is_undone(front: type[RigolFront]) -> None:
    with simulated(front) as instrument:
        assert ask(instrument, ":TIM:SCAL 1E-6;:CHAN1:TCAL 5E-8;:SYST:ERR?") == '0,"No error"'
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(usual())
        scope.close()
        assert instrument.model.inputs[1].deskew_s == 0


def test_how_many_segments_fit_is_not_believed_of_the_memory_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rigol_record, "_WORKS_OUT_S", 0.0)
    with opened(RigolDhoFront) as (_, scope):
        scope.set_up(usual(points=1_000_000, segments=50))
        with pytest.raises(InstrumentError, match="room for 50 segments"):
            scope.play(scope.dialect.set_up(usual(points=1_000_000, segments=51)))
        scope.set_up(usual(points=1000, segments=51))


def test_after_segments_a_single_shot_is_one_again() -> None:
    with opened(RigolDhoFront) as (instrument, scope):
        instrument.shot(scope, usual(segments=2), 0)
        instrument.shot(scope, usual(), 0)
        assert len(instrument.model.frames) == 1
        assert find_edges(scope.read([1])[1])
