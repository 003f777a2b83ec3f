"""Siglent's :WAVeform set: what is set, and what a simulated SDS824X HD makes of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scope_rig import each_fault, setup, simulated

from mqtick.analysis.signals.edges import find_edges
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import Identity
from mqtick.lab.scope.dialects.siglent import Siglent
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.setup import Channel, Setup, State, Trigger
from mqtick.lab.scope.simulator import Faults
from mqtick.lab.scope.simulator.siglent import SiglentFront

IDENTITY = Identity.parse("Siglent Technologies,SDS814X HD,SDS1,4.8.12.1.1.6.5")


@pytest.mark.parametrize(
    ("model", "channels", "points", "depth"),
    [
        ("SDS824X HD", 2, 20_000, "10k"),
        ("SDS2104X Plus", 2, 50_000, "100k"),
        ("SDS2104X Plus", 1, 50_000, "20k"),
        ("SDS5034X", 2, 100_000, "125k"),
        ("SDS5034X", 1, 200_000, "250k"),
        ("SDS6104A", 4, 200_000, "250k"),
    ],
)
def test_memory_depth_is_one_that_the_model_has_and_set_while_it_runs(
    model: str, channels: int, points: int, depth: str
) -> None:
    wanted = sent(Siglent(Identity("Siglent Technologies", model, "", "")), points, channels)
    place = wanted.index(f":ACQuire:MDEPth {depth}")
    assert wanted.index(":TRIGger:MODE AUTO") < place < wanted.index(":TRIGger:STOP")


def sent(dialect: Siglent, points: int, channels: int) -> list[str]:
    wanted: Setup = setup(points=points, channels=channels)
    return [getattr(step, "command", "") for step in dialect.set_up(wanted)]


def test_a_set_up_says_volts_at_the_tip_and_the_middle_of_the_screen_as_its_negative() -> None:
    commands = sent(Siglent(IDENTITY), 10_000, 2)
    probe, scale = commands.index(":CHANnel1:PROBe VALue,10"), commands.index(":CHANnel1:SCALe 1")
    assert probe < scale < commands.index(":CHANnel1:OFFSet -1.65")
    assert ":CHANnel3:SWITch OFF" in commands
    assert ":TIMebase:DELay 0.0004" in commands
    assert ":TRIGger:EDGE:SLOPe RISing" in commands
    assert commands[-1] == ":TRIGger:STOP"


def test_a_shot_has_its_edges_where_they_were() -> None:
    with simulated(SiglentFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        assert scope.dialect.name == "siglent"
        assert scope.simulated
        instrument.shot(scope, setup(points=100_000), 123_456)
        found = scope.read([1, 2])
        frame = instrument.model.frames[0]
        scope.close()
    first, second = (find_edges(found[channel])[0] for channel in (1, 2))
    assert first.rising
    # It says where the record begins by its settings only, so a sample is how well it knows.
    assert abs(first.instant_fs) <= found[1].interval_fs
    assert found[1].start_fs - frame.start_s * 1e15 == pytest.approx(0, abs=10e6 + 1)
    assert second.instant_fs - first.instant_fs == pytest.approx(123_456e6, abs=5e6)
    np.testing.assert_allclose([found[1].volts()[0], found[1].volts()[-1]], [0, 3.3], atol=0.05)


def test_volts_are_right_whatever_offset_and_probe_are() -> None:
    channels = (Channel(1, 0.5, 2.0, probe=1.0), Channel(2, 2.0, -1.0, probe=100.0))
    with simulated(SiglentFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, Setup(channels, Trigger(1), 1e-3, points=10_000), 50_000)
        found = scope.read([1, 2])
        scope.close()
    for waveform in found.values():
        assert np.median(waveform.volts()[:500]) == pytest.approx(0, abs=0.02)
        assert np.median(waveform.volts()[-500:]) == pytest.approx(3.3, abs=0.02)


def test_a_deskew_takes_a_cable_out() -> None:
    physics = dataclasses.replace(SiglentFront.physics, skew_s={2: 80e-9})
    with simulated(SiglentFront, physics) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        for deskew_s, late_fs in ((0.0, 80e6), (80e-9, 0.0)):
            channels = (Channel(1), Channel(2, deskew_s=deskew_s))
            instrument.shot(scope, Setup(channels, Trigger(1), 1e-3, points=100_000), 0)
            found = scope.read([1, 2])
            edges = [find_edges(found[channel])[0].instant_fs for channel in (1, 2)]
            assert edges[1] - edges[0] == pytest.approx(late_fs, abs=5e6)
        scope.close()


def test_a_deskew_may_be_longer_than_the_instruments_own() -> None:
    physics = dataclasses.replace(SiglentFront.physics, skew_s={2: 5e-6})
    with simulated(SiglentFront, physics) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        channels = (Channel(1), Channel(2, deskew_s=5e-6))
        instrument.shot(scope, Setup(channels, Trigger(1), 1e-3, points=100_000), 0)
        edges = [find_edges(wave)[0].instant_fs for wave in scope.read([1, 2]).values()]
        scope.close()
    assert edges[1] - edges[0] == pytest.approx(0, abs=5e6)


def test_what_it_refuses_is_said_in_its_words() -> None:
    with simulated(SiglentFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        with pytest.raises(InstrumentError, match=r"refused a setting.*-224"):
            scope.set_up(setup(segments=10**6))
        scope.close()


def test_memory_depth_cannot_be_set_while_it_is_stopped() -> None:
    with simulated(SiglentFront) as instrument:
        instrument.front.answer(":TRIGger:STOP;:ACQuire:MDEPth 100k")
        assert "-224" in instrument.front.scpi.next_error()


def test_a_record_comes_in_pages() -> None:
    class SmallPages(SiglentFront):
        page = 3000

    with simulated(SmallPages) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(), 100_000)
        waveform = scope.read([2])[2]
        codes = instrument.model.codes(2, instrument.model.frames[0])
        scope.close()
    np.testing.assert_array_equal(waveform.codes.astype(np.int32) // 16 + 2048, codes)


def test_firmware_that_counts_samples_is_still_read() -> None:
    class Counts(SiglentFront):
        identity = "Siglent Technologies,SDS2104X Plus,SIMULATED,1.3.9R6"
        bits, codes_per_division, digits, counts_samples = 10, 30.0, 9, True

    with simulated(Counts) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(), 100_000)
        waveform = scope.read([1])[1]
        assert scope.read_again == 1
        scope.close()
    assert waveform.codes.dtype == np.int8
    assert np.median(waveform.volts()[-500:]) == pytest.approx(3.3, abs=0.05)


def test_segments_carry_their_instants() -> None:
    with simulated(SiglentFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(segments=3), 50_000)
        segments = scope.read_segments([1, 2])
        frames = instrument.model.frames
        assert scope.read_again == 0
        scope.close()
    assert len(segments) == 3
    for segment, frame in zip(segments, frames, strict=True):
        truth_s = (frame.trigger_ns - frames[0].trigger_ns) / 1e9
        assert segment.time_s == pytest.approx(truth_s, abs=1.1e-6)
        edges = [find_edges(segment.waveforms[channel])[0] for channel in (1, 2)]
        assert edges[1].instant_fs - edges[0].instant_fs == pytest.approx(50e9, abs=100e6)


def test_what_another_user_left_set_does_not_matter() -> None:
    with simulated(SiglentFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(), 100_000)
        expected = scope.read([1])[1]
        instrument.front.answer(":WAV:STAR 100;:WAV:POIN 10;:WAV:INT 7;:WAV:WIDT BYTE;:WAV:SOUR C3")
        found = scope.read([1])[1]
        scope.close()
    np.testing.assert_array_equal(found.codes, expected.codes)


def test_a_channel_that_is_off_and_a_trigger_that_never_came_are_sentences() -> None:
    with simulated(SiglentFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(), 100_000)
        with pytest.raises(InstrumentError, match="Is the channel on"):
            scope.play(scope.dialect.read(3))
        assert scope.arm()
        assert not scope.wait(0.02)
        assert scope.play(scope.dialect.state()) is State.STOPPED
        with pytest.raises(InstrumentError, match="has there been a trigger"):
            scope.play(scope.dialect.read(1))
        scope.close()


def test_it_is_armed_only_when_what_lies_before_the_trigger_is_there() -> None:
    with simulated(SiglentFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(Setup((Channel(1),), Trigger(1), 0.2, before=0.5, points=10_000))
        later = instrument.clock_by_hand()
        scope.play(scope.dialect.arm())
        assert scope.play(scope.dialect.state()) is State.PREPARING
        later(0.11)
        assert scope.play(scope.dialect.state()) is State.ARMED
        scope.close()


@each_fault("short-block", "empty-block", "double-newline", "late")
def test_a_fault_costs_another_read_at_most(kind: str, timeout_s: float) -> None:
    faults = Faults()
    with simulated(SiglentFront, faults=faults) as instrument:
        scope = Oscilloscope.open(instrument.resource, timeout_s=timeout_s)
        instrument.shot(scope, setup(), 100_000)
        faults.once.add(kind)
        found = scope.read([1, 2])
        assert faults.done[kind] == 1
        assert scope.read_again <= 1
        scope.close()
    edges = [find_edges(found[channel])[0].instant_fs for channel in (1, 2)]
    assert edges[1] - edges[0] == pytest.approx(100e9, abs=100e6)


def test_the_screen_is_a_picture() -> None:
    with simulated(SiglentFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        assert scope.screenshot().startswith(b"\x89PNG")
        assert scope.screenshot().endswith(b"IEND\xaeB`\x82")
        scope.close()
