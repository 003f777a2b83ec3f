"""The Rigol dialects against the simulated instruments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scope_rig import Simulated, each_fault, setup, simulated

from mqtick.analysis.signals.edges import find_edges
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import rigol, rigol_record
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.setup import Channel, State, Trigger
from mqtick.lab.scope.simulator import Faults
from mqtick.lab.scope.simulator.rigol import RigolFront
from mqtick.lab.scope.simulator.rigol_series import (
    RigolDhoFront,
    RigolDs1000zFront,
    RigolMso5000Front,
)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one needs a moment to begin to run."""
    monkeypatch.setattr(rigol, "_RUN_S", 0.0)


FRONTS = [RigolDs1000zFront, RigolMso5000Front, RigolDhoFront]
all_fronts = pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.name)


def ask(instrument: Simulated, line: str) -> str:
    return instrument.front.answer(line).decode("latin-1").strip()


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
        later = instrument.clock_by_hand()
        scope.play(scope.dialect.arm())
        assert scope.play(scope.dialect.state()) is State.PREPARING
        later(instrument.model.span_s)
        assert scope.play(scope.dialect.state()) is State.ARMED
        instrument.model.feed.add(1, instrument.now_ns, True)
        later(0.001)
        assert scope.play(scope.dialect.state()) is State.TRIGGERED
        later(instrument.model.span_s)
        assert scope.play(scope.dialect.state()) is State.STOPPED
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


@each_fault("empty-block", "short-block", "double-newline", "plus-zero")
def test_a_channel_with_a_fault_is_read_again(kind: str, timeout_s: float) -> None:
    front = {
        "empty-block": RigolMso5000Front,  # as when asked too soon
        "short-block": RigolDs1000zFront,
    }.get(kind, RigolDhoFront)
    faults = Faults()
    with simulated(front, faults=faults) as instrument:
        scope = Oscilloscope.open(instrument.resource, timeout_s=timeout_s)
        instrument.shot(scope, setup(points=1000), 0)
        faults.once.add(kind)
        assert len(scope.read([1, 2])) == 2
        scope.close()
    assert faults.done[kind] == 1
    assert scope.read_again == (0 if kind == "double-newline" else 1)


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
