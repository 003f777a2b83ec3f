"""The Rigol dialects against the simulated instruments, and what these do as real ones do."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scope_rig import Simulated, setup, simulated

from mqtick.analysis.edges import find_edges
from mqtick.lab.conversation import InstrumentError
from mqtick.lab.dialects import rigol, rigol_record
from mqtick.lab.oscilloscope import Oscilloscope
from mqtick.lab.setup import Channel, State, Trigger
from mqtick.lab.simulator import EdgeFeed, Faults, Model
from mqtick.lab.simulator.rigol import RigolFront
from mqtick.lab.simulator.rigol_series import (
    RigolDhoFront,
    RigolDs1000zFront,
    RigolMso5000Front,
)
from mqtick.pins.base import monotonic_raw_ns


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one needs a moment to begin to run."""
    monkeypatch.setattr(rigol, "_RUN_S", 0.0)


FRONTS = [RigolDs1000zFront, RigolMso5000Front, RigolDhoFront]
all_fronts = pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.name)


def ask(instrument: Simulated, line: str) -> str:
    return instrument.front.answer(line).decode("latin-1").strip()


def blocks_points(instrument: Simulated, octets: int = 1) -> int:
    """Ask for data, and return how many points the block announces."""
    return int(instrument.front.answer(":WAV:DATA?")[2:11]) // octets


@all_fronts
def test_a_shot_has_its_edges_where_they_were(front: type[RigolFront]) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        assert scope.dialect.name == front.name
        assert scope.simulated
        instrument.shot(scope, setup(points=100_000), 123_456)
        found = scope.read([1, 2])
        scope.close()
    first, second = (find_edges(found[channel])[0] for channel in (1, 2))
    assert first.rising
    assert second.rising
    assert abs(first.instant_fs) < 20e6
    assert second.instant_fs - first.instant_fs == pytest.approx(123_456e6, abs=20e6)
    assert scope.read_again == 0


@all_fronts
def test_the_record_holds_the_span_and_its_share_before_the_trigger(
    front: type[RigolFront],
) -> None:
    wanted = replace(setup(span_s=3e-4, points=5000), before=0.2)
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, wanted)
        waveform = scope.read([1])[1]
        scope.close()
    assert waveform.start_fs <= -0.2 * 3e11
    assert waveform.instant_fs(waveform.codes.size - 1) >= 0.8 * 3e11
    inside = 3e11 / waveform.interval_fs
    assert inside >= 5000


@all_fronts
def test_offset_scale_and_probe_leave_the_volts_as_they_are(front: type[RigolFront]) -> None:
    wanted = replace(
        setup(points=1000),
        channels=(
            Channel(1, volts_per_division=0.7, offset_v=1.3, probe=10),
            Channel(2, volts_per_division=2.0, offset_v=-1.0, probe=1),
        ),
    )
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, wanted, 0)
        found = scope.read([1, 2])
        scope.close()
        assert instrument.model.inputs[1].offset_v == pytest.approx(1.3, abs=0.02)
    for waveform in found.values():
        volts = waveform.volts()
        assert np.median(volts[volts < 1.65]) == pytest.approx(0.0, abs=0.1)
        assert np.median(volts[volts > 1.65]) == pytest.approx(3.3, abs=0.1)


@all_fronts
def test_a_deskew_far_beyond_the_instruments_own_is_taken_off(front: type[RigolFront]) -> None:
    wanted = replace(setup(points=100_000), channels=(Channel(1), Channel(2, deskew_s=750.25e-9)))
    physics = replace(front.physics, skew_s={2: 750.25e-9}, noise_v=0.001)
    with simulated(front, physics) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, wanted, 10_000)
        found = scope.read([1, 2])
        scope.close()
    first, second = (find_edges(found[channel])[0].instant_fs for channel in (1, 2))
    assert second - first == pytest.approx(10e9, abs=20e6)


@all_fronts
def test_what_was_left_on_the_front_panel_as_deskew_is_undone(front: type[RigolFront]) -> None:
    with simulated(front) as instrument:
        assert ask(instrument, ":TIM:SCAL 1E-6;:CHAN1:TCAL 5E-8;:SYST:ERR?") == '0,"No error"'
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(setup())
        scope.close()
        assert instrument.model.inputs[1].deskew_s == 0


@all_fronts
def test_the_states_follow_one_another(front: type[RigolFront]) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(replace(setup(span_s=0.1), before=0.5))
        assert scope.play(scope.dialect.state()) is State.STOPPED
        scope.play(scope.dialect.arm())
        assert scope.play(scope.dialect.state()) is State.PREPARING
        assert scope.arm()
        instrument.edges(ahead_ns=0)
        assert scope.play(scope.dialect.state()) is State.TRIGGERED
        assert scope.wait(1.0)
        scope.close()


@all_fronts
def test_a_trigger_that_never_comes_is_a_miss_and_the_next_shot_goes_well(
    front: type[RigolFront],
) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(replace(setup(), trigger=Trigger(3)))
        assert scope.arm()
        instrument.edges(0)
        assert not scope.wait(0.05)
        assert scope.play(scope.dialect.state()) is State.STOPPED
        instrument.edges(0, rising=False)
        instrument.shot(scope, setup(), 0)
        assert find_edges(scope.read([1])[1])
        scope.close()


@all_fronts
def test_memory_is_not_read_while_it_runs_nor_of_a_channel_that_is_off(
    front: type[RigolFront],
) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(), 0)
        with pytest.raises(InstrumentError, match="0 s and 0 V apart"):
            scope.play(scope.dialect.read(4))
        assert scope.arm()
        with pytest.raises(InstrumentError, match="0 s and 0 V apart"):
            scope.play(scope.dialect.read(1))
        scope.close()


@pytest.mark.parametrize(
    ("front", "fault"),
    [
        (RigolMso5000Front, "empty-block"),  # as when asked too soon
        (RigolDs1000zFront, "short-block"),
        (RigolDhoFront, "double-newline"),
        (RigolDhoFront, "plus-zero"),
    ],
)
def test_a_channel_with_a_fault_is_read_again(front: type[RigolFront], fault: str) -> None:
    faults = Faults()
    with simulated(front, faults=faults) as instrument:
        scope = Oscilloscope.open(instrument.resource, timeout_s=0.3)
        instrument.shot(scope, setup(points=1000), 0)
        faults.once.add(fault)
        assert len(scope.read([1, 2])) == 2
        scope.close()
    assert faults.done[fault] == 1
    assert scope.read_again == (0 if fault == "double-newline" else 1)


@all_fronts
def test_segments_are_read_one_by_one(front: type[RigolFront]) -> None:
    with simulated(front) as instrument:
        assert isinstance(instrument.front, RigolFront)
        instrument.front.recorder.refresh_s = 0.01
        scope = Oscilloscope.open(instrument.resource)
        scope.dialect.tag_settle_s = 0.02  # type: ignore[attr-defined]
        instrument.shot(scope, setup(segments=3, points=100_000), 50_000)
        segments = scope.read_segments([1, 2])
        frames = instrument.model.frames
        scope.close()
    assert len(segments) == 3
    for segment, frame in zip(segments, frames, strict=True):
        edges = [find_edges(segment.waveforms[channel])[0] for channel in (1, 2)]
        assert edges[1].instant_fs - edges[0].instant_fs == pytest.approx(50e9, abs=20e6)
        if front is RigolDs1000zFront:
            assert segment.time_s is None
            assert segment.resolution_s is None
        else:
            truth_s = (frame.trigger_ns - frames[0].trigger_ns) / 1e9
            assert segment.resolution_s is not None
            assert segment.time_s == pytest.approx(truth_s, abs=segment.resolution_s)
    assert [segment.time_s for segment in segments[1:]] != [0, 0]


def test_how_many_segments_fit_is_not_believed_of_the_memory_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rigol_record, "_WORKS_OUT_S", 0.0)
    with simulated(RigolDhoFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(setup(points=1_000_000, segments=50))
        with pytest.raises(InstrumentError, match="room for 50 segments"):
            scope.play(scope.dialect.set_up(setup(points=1_000_000, segments=51)))
        scope.set_up(setup(points=1000, segments=51))
        scope.close()


def test_after_segments_a_single_shot_is_one_again() -> None:
    with simulated(RigolDhoFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(segments=2), 0)
        instrument.shot(scope, setup(), 0)
        assert len(instrument.model.frames) == 1
        assert find_edges(scope.read([1])[1])
        scope.close()


@all_fronts
def test_the_screen_is_a_picture(front: type[RigolFront]) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        assert scope.screenshot().startswith(b"\x89PNG")
        scope.close()


# -- the simulated instruments are as awkward as real ones ----------------------------------------


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
    with simulated(RigolDs1000zFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(points=500_000, channels=1))
        assert scope.read([1])[1].codes.size == 1_200_000
        scope.close()
        ask(instrument, ":WAV:STAR 1;:WAV:STOP 600000")
        assert blocks_points(instrument) == 250_000
        ask(instrument, ":WAV:FORM WORD")
        assert blocks_points(instrument, 2) == 125_000


def test_the_dho_goes_on_with_the_old_depth_until_the_mode_was_another_one() -> None:
    with simulated(RigolDhoFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(points=1000), 0)
        assert scope.read([1])[1].codes.size == 1000
        instrument.shot(scope, setup(points=10_000), 0)
        ask(instrument, ":WAV:STAR 1;:WAV:STOP 10000")
        assert blocks_points(instrument, 2) == 1000
        assert scope.read([1])[1].codes.size == 10_000
        scope.close()


def test_the_preamble_of_the_dho_tells_of_the_page() -> None:
    with simulated(RigolDhoFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(points=10_000), 0)
        scope.read([1])
        scope.close()
        ask(instrument, ":WAV:STAR 1;:WAV:STOP 300")
        assert ask(instrument, ":WAV:PRE?").split(",")[2] == "300"


def test_words_of_the_dho_have_their_low_octet_first_and_twelve_bits() -> None:
    with simulated(RigolDhoFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(points=1000), 0)
        codes = scope.read([1])[1].codes
        scope.close()
    assert codes.dtype == np.uint16
    assert not np.any(codes & 0xF)
    assert np.any(codes & 0xF0)


def test_the_time_of_a_frame_comes_later_than_the_frame() -> None:
    with simulated(RigolDhoFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(segments=2, points=1000), 0)
        scope.close()
        assert isinstance(instrument.front, RigolFront)
        instrument.front.recorder.refresh_s = 0.05
        ask(instrument, ":REC:WREP:FCUR 2")
        assert ask(instrument, ":REC:WREP:FCUR:TIME?") == "0.00000s"
        time.sleep(0.06)
        assert ask(instrument, ":REC:WREP:FCUR:TIME?") != "0.00000s"


def test_a_scale_that_is_turned_afterwards_leaves_the_volts() -> None:
    with simulated(RigolDhoFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(points=1000), 0)
        before = scope.read([1])[1].volts()
        ask(instrument, ":CHAN1:SCAL 2")
        after = scope.read([1])[1].volts()
        scope.close()
    np.testing.assert_allclose(after, before, atol=0.01)


def test_single_is_refused_while_the_recorder_is_on() -> None:
    with simulated(RigolDhoFront) as instrument:
        ask(instrument, ":REC:WREC:ENAB 1;:SING")
        assert "-224" in ask(instrument, ":SYST:ERR?")


def test_the_screen_and_the_memory_agree() -> None:
    with simulated(RigolDs1000zFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(points=10_000, channels=1))
        memory = scope.read([1])[1]
        scope.close()
        ask(instrument, ":WAV:MODE NORM;:WAV:FORM BYTE")
        fields = [float(field) for field in ask(instrument, ":WAV:PRE?").split(",")]
        data = np.frombuffer(instrument.front.answer(":WAV:DATA?")[11:-1], np.uint8)
    assert data.size == fields[2] == 1200
    assert fields[4] == pytest.approx(1e-6)  # a hundredth of a division
    rising = fields[5] + fields[4] * int(np.flatnonzero(data > data.mean())[0])
    assert rising == pytest.approx(find_edges(memory)[0].instant_fs * 1e-15, abs=1.1e-6)


HEADERS = [
    ":SING",
    ":RUN",
    ":STOP",
    ":TFOR",
    ":TRIG:STAT?",
    ":TRIG:EDGE:SOUR",
    ":TRIG:EDGE:SLOP",
    ":TRIG:EDGE:LEV",
    ":ACQ:MDEP",
    ":TIM:SCAL",
    ":TIM:OFFS",
    ":CHAN1:DISP",
    ":CHAN9:DISP",
    ":CHAN1:SCAL",
    ":CHAN1:OFFS",
    ":CHAN1:TCAL",
    ":CHAN2:COUP",
    ":WAV:SOUR",
    ":WAV:MODE",
    ":WAV:FORM",
    ":WAV:STAR",
    ":WAV:STOP",
    ":WAV:PRE?",
    ":WAV:DATA?",
    ":REC:WREC:ENAB",
    ":REC:WREC:FRAM",
    ":REC:WREC:OPER",
    ":REC:WREP:FCUR",
    ":REC:WREP:FCUR?",
    ":REC:WREP:FCUR:TIME?",
]
ARGUMENTS = ["", "0", "1", "2", "-1", "1e-6", "5E-9", "1000", "10k", "nan", "inf", "-1e300"]
ARGUMENTS += ["9" * 400, "ON", "CHAN2", "RAW", "NORM", "WORD", "ASC", "RUN", "POS", "AC", "\xff;"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(HEADERS), st.sampled_from(ARGUMENTS)), max_size=30))
def test_nothing_that_is_sent_breaks_it(lines: list[tuple[str, str]]) -> None:
    model = Model(EdgeFeed(), {1: 1}, RigolDhoFront.physics)
    front = RigolDhoFront(model)
    model.feed.add(1, monotonic_raw_ns() + 1_000_000, True)
    for header, argument in lines:
        front.answer(f"{header} {argument}")
    assert front.answer("*IDN?").startswith(b"RIGOL")
    assert front.answer(":TRIG:STAT?").strip() in {b"TD", b"WAIT", b"RUN", b"STOP"}
