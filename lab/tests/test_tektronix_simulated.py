"""The Tektronix dialects against simulated instruments."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scope_rig import Simulated, each_fault, setup, simulated

from mqtick.analysis.signals.edges import find_edges
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import Identity, dialect_for
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.setup import Channel, Setup, State, Trigger
from mqtick.lab.scope.simulator import EdgeFeed, Faults, Front, Model
from mqtick.lab.scope.simulator.tektronix import TektronixMsoFront
from mqtick.lab.scope.simulator.tektronix_dpo import TektronixDpoFront
from mqtick.lab.scope.simulator.tektronix_tds import TektronixTbsFront, TektronixTdsFront

FRONTS = [TektronixMsoFront, TektronixDpoFront, TektronixTdsFront, TektronixTbsFront]
all_fronts = pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.name)
# 2500 points at most: a span of 100 us has samples of 40 ns everywhere.
SHORT = setup(span_s=1e-4, points=2000)
SAMPLE_FS = 50e6


def first_edges(instrument: Simulated, wanted: Setup, delay_ns: int) -> tuple[int, int]:
    """Take a shot and return the first edges of channels 1 and 2, in fs from the trigger."""
    scope = Oscilloscope.open(instrument.resource)
    instrument.shot(scope, wanted, delay_ns)
    found = scope.read([1, 2])
    scope.close()
    one, two = (find_edges(found[channel])[0].instant_fs for channel in (1, 2))
    return one, two


@all_fronts
def test_a_shot_has_its_edges_where_they_were(front: type[Front]) -> None:
    with simulated(front) as instrument:
        one, two = first_edges(instrument, SHORT, 23_456)
    assert abs(one) < SAMPLE_FS
    assert two - one == pytest.approx(23_456e6, abs=SAMPLE_FS)


@all_fronts
def test_the_record_begins_as_long_before_the_trigger_as_is_wanted(front: type[Front]) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, replace(SHORT, before=0.25))
        waveform = scope.read([1])[1]
        scope.close()
    assert waveform.start_fs == pytest.approx(-25e9, abs=SAMPLE_FS)
    assert waveform.codes.size * waveform.interval_fs == pytest.approx(100e9, abs=SAMPLE_FS)


@all_fronts
@given(
    span_s=st.floats(1e-6, 10.0),
    points=st.integers(500, 1_000_000),
    before=st.floats(0.0, 0.9),
)
@hypothesis.settings(max_examples=40)
def test_the_record_is_never_shorter_than_is_wanted(
    front: type[Front], span_s: float, points: int, before: float
) -> None:
    instrument = front(Model(EdgeFeed(), {1: 1}, front.physics))
    dialect = dialect_for(Identity.parse(instrument.identity))
    wanted = Setup((Channel(1),), Trigger(1), span_s, before, points)
    reply: str | None = None
    conversation = dialect.set_up(wanted)
    with contextlib.suppress(StopIteration):
        while True:
            reply = instrument.answer(getattr(conversation.send(reply), "command", "")).decode()
            reply = reply.strip() or None
    model = instrument.model
    assert model.points / model.rate_hz >= span_s * 0.99
    assert model.before == pytest.approx(before, abs=1e-5)
    assert not instrument.scpi.errors


@all_fronts
def test_volts_are_those_at_the_tip_of_the_probe(front: type[Front]) -> None:
    channels = (Channel(1, probe=10, offset_v=1.65), Channel(2, 0.5, offset_v=1.2, probe=1))
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, replace(SHORT, channels=channels), 10_000)
        found = scope.read([1, 2])
        scope.close()
        assert [instrument.model.inputs[number].probe for number in (1, 2)] == [10, 1]
    for waveform, tolerance in ((found[1], 0.06), (found[2], 0.05)):
        volts = waveform.volts()
        assert volts[:100].mean() == pytest.approx(0.0, abs=tolerance)
    assert found[1].volts()[-100:].mean() == pytest.approx(3.3, abs=0.06)


@all_fronts
def test_another_converter_gives_the_same_volts(front: type[Front]) -> None:
    with simulated(front, replace(front.physics, bits=10)) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, SHORT, 10_000)
        volts = scope.read([1])[1].volts()
        scope.close()
    assert volts[:100].mean() == pytest.approx(0.0, abs=0.06)
    assert volts[-100:].mean() == pytest.approx(3.3, abs=0.06)


@all_fronts
def test_a_deskewed_channel_is_shown_earlier(front: type[Front]) -> None:
    channels = (Channel(1), Channel(2, deskew_s=2e-6))
    with simulated(front) as instrument:
        one, two = first_edges(instrument, replace(SHORT, channels=channels), 10_000)
    assert two - one == pytest.approx(8_000e6, abs=SAMPLE_FS)


@pytest.mark.parametrize("front", [TektronixMsoFront, TektronixDpoFront])
def test_frames_carry_their_instants(front: type[Front]) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, replace(SHORT, segments=3), 20_000)
        segments = scope.read_segments([1, 2])
        frames = instrument.model.frames
        scope.close()
    assert len(segments) == 3
    for segment, frame in zip(segments, frames, strict=True):
        truth_s = (frame.trigger_ns - frames[0].trigger_ns) / 1e9
        assert segment.time_s == pytest.approx(truth_s, abs=1e-9)
        one, two = (find_edges(segment.waveforms[number])[0].instant_fs for number in (1, 2))
        assert abs(one) < SAMPLE_FS
        assert two - one == pytest.approx(20_000e6, abs=SAMPLE_FS)


def test_frames_differ_in_where_the_trigger_lies_between_two_points() -> None:
    with simulated(TektronixMsoFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, replace(SHORT, segments=3), 20_000)
        segments = scope.read_segments([1])
        truth = [frame.start_s for frame in instrument.model.frames]
        scope.close()
    starts = [segment.waveforms[1].start_fs * 1e-15 for segment in segments]
    assert starts == pytest.approx(truth, abs=1e-12)
    assert len(set(starts)) == 3


@all_fronts
def test_it_waits_for_the_trigger_and_can_be_ended(front: type[Front]) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(SHORT)
        assert scope.arm()
        assert scope.play(scope.dialect.state()) is State.ARMED
        assert not scope.wait(0.02)
        assert scope.play(scope.dialect.state()) is State.STOPPED
        scope.close()


@all_fronts
def test_a_channel_that_is_off_or_has_no_record_yet_is_a_sentence(front: type[Front]) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(SHORT)
        with pytest.raises(InstrumentError, match="trigger"):
            scope.play(scope.dialect.read(1))
        with pytest.raises(InstrumentError, match=r"Channel 3 .* switched off"):
            scope.play(scope.dialect.read(3))
        scope.close()


def test_either_edge_triggers_the_mso() -> None:
    wanted = replace(SHORT, trigger=Trigger(1, slope="either"))
    with simulated(TektronixMsoFront) as instrument:
        instrument.model.feed.add(1, 0, True)
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(wanted)
        assert scope.arm()
        instrument.edges(rising=False)
        assert scope.wait(2.0)
        edge = find_edges(scope.read([1])[1])[0]
        scope.close()
    assert not edge.rising


@all_fronts
def test_what_the_instrument_does_not_know_is_told_in_its_words(front: type[Front]) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.front.answer("HORizontal:FOO 1")
        refused = scope.play(scope.dialect.errors())
        again = scope.play(scope.dialect.errors())
        scope.close()
    assert refused == ["113 Undefined header;HORizontal:FOO 1"]
    assert again == []


@each_fault("short-block", "empty-block", "double-newline", "drop")
def test_a_channel_is_read_again_after_a_fault(kind: str, timeout_s: float) -> None:
    faults = Faults()
    with simulated(TektronixMsoFront, faults=faults) as instrument:
        scope = Oscilloscope.open(instrument.resource, timeout_s=timeout_s)
        instrument.shot(scope, SHORT, 10_000)
        clean = scope.read([1])[1]
        faults.once.add(kind)
        found = scope.read([1])[1]
        scope.close()
    assert faults.done[kind] == 1
    assert (found.codes == clean.codes).all()


@all_fronts
def test_the_screen_is_a_picture_and_leaves_no_file_behind(front: type[Front]) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        assert scope.screenshot().startswith(b"\x89PNG")
        assert scope.play(scope.dialect.errors()) == []
        scope.close()
        assert isinstance(instrument.front, TektronixMsoFront | TektronixTdsFront)
        assert not instrument.front.files
