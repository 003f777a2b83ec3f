"""Siglent's older command set: pairs of command and reply, and the simulated SDS1104X-E.

Values from the programming guide PG01-E02 (p. 142 f.) and from what an SDS1072CML answered
(pymeasure, tests of SDS1072CML).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from scope_rig import converse, each_fault, setup, simulated

from mqtick.analysis.signals.edges import find_edges
from mqtick.lab.scope.block import read_block
from mqtick.lab.scope.conversation import Block, InstrumentError, Step
from mqtick.lab.scope.dialects import Identity
from mqtick.lab.scope.dialects.siglent_wf import SiglentWf
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.setup import Channel, Setup, State, Trigger
from mqtick.lab.scope.simulator import Faults
from mqtick.lab.scope.simulator.siglent_wf import SiglentWfFront

IDENTITY = Identity.parse("Siglent Technologies,SDS1104X-E,SDS1,8.2.6.1.37R9")
Pairs = list[tuple[str, str | bytes | None]]


def reading(vdiv: str, ofst: str, sara: str, trdl: str, data: bytes) -> Pairs:
    return [
        ("CHDR OFF", None),
        ("WFSU SP,0,NP,0,FP,0", None),
        ("C1:VDIV?", vdiv),
        ("C1:OFST?", ofst),
        ("SARA?", sara),
        ("TRDL?", trdl),
        ("C1:WF? DAT2", data),
    ]


def test_codes_are_signed_25_a_division() -> None:
    data = bytes.fromhex("12181d222628292a2827241f1a140f0802fdf8f4")  # of an SDS1072CML
    waveform = converse(
        SiglentWf(IDENTITY).read(1),
        reading("C1:VDIV 2.00E+00V", "8.00E-01V", "SARA 2.50MSa/s", "TRDL 0.00E+00S", data),
    )
    expected = "0.64 1.12 1.52 1.92 2.24 2.4 2.48 2.56 2.4 2.32 2.08 1.68 1.28 0.8 0.4 "
    expected += "-0.16 -0.64 -1.04 -1.44 -1.76"
    np.testing.assert_allclose(waveform.volts(), np.array(expected.split(), float), atol=1e-9)
    assert waveform.interval_fs == 400_000_000


def test_the_middle_of_the_record_lies_at_the_delay() -> None:
    # The guide's example: 5 ns a division, a grid of 14, -5 ns: the first point is at -40 ns.
    pairs = reading("1.00V", "0.00V", "1.00GSa/s", "-5.000000ns", bytes(70))
    waveform = converse(SiglentWf(IDENTITY).read(1), pairs)
    assert [waveform.instant_fs(index) for index in (0, 1)] == [-40_000_000, -39_000_000]


def test_samples_that_are_white_space_are_samples() -> None:
    data = b" \t\n\r\x0b\x0c# \n\n"
    pairs = reading("1.00V", "0.00V", "1.00GSa/s", "0", data)
    assert converse(SiglentWf(IDENTITY).read(1), pairs).codes.tobytes() == data


@pytest.mark.parametrize(
    ("vdiv", "ofst", "sara", "trdl", "data"),
    [
        ("", "0V", "1GSa/s", "0S", bytes(4)),
        ("1V", "Undefined header", "1GSa/s", "0S", bytes(4)),
        ("1V", "0V", "0Sa/s", "0S", bytes(4)),
        ("0V", "0V", "1GSa/s", "0S", bytes(4)),
        ("1V", "0V", "1GSa/s", "****", bytes(4)),
        ("1V", "0V", "1GSa/s", "0S", b""),
    ],
)
def test_what_makes_no_scale_or_no_record_is_refused(
    vdiv: str, ofst: str, sara: str, trdl: str, data: bytes
) -> None:
    replies = dict(reading(vdiv, ofst, sara, trdl, data))
    with pytest.raises(InstrumentError):
        list(steps(SiglentWf(IDENTITY), replies))


def steps(dialect: SiglentWf, replies: dict[str, str | bytes | None]) -> Iterator[Step]:
    """Read channel 1 and yield what is sent, until the end."""
    conversation, reply = dialect.read(1), None
    with contextlib.suppress(StopIteration):
        while True:
            step = conversation.send(reply)
            yield step
            reply = replies[getattr(step, "command", "")]


@pytest.mark.parametrize(
    "head", [b"C1:WF DAT2,", b"DAT2,", b"C1:WF ALL,", b"", b"\nDAT2,", b"\n\nC1:WF DAT2,"]
)
def test_the_header_before_a_block_depends_on_model_and_settings(head: bytes) -> None:
    answer = iter(head + b"#9000000004 \n#\x7f\n\n")
    found = read_block(
        lambda count: bytes(next(answer) for _ in range(count)), prefix=b"C1:WF DAT2,"
    )
    assert found == b" \n#\x7f"


def test_a_block_is_asked_for_with_the_longest_header() -> None:
    replies = dict(reading("1V", "0V", "1GSa/s", "0S", bytes(4)))
    *_, last = steps(SiglentWf(IDENTITY), replies)
    assert last == Block("C1:WF? DAT2", b"C1:WF DAT2,")


def test_what_was_acquired_before_it_was_armed_is_not_read() -> None:
    dialect = SiglentWf(IDENTITY)
    # Bit 13, trigger ready, is not the new signal of bit 0; being read clears both.
    armed: Pairs = [("CHDR OFF", None), ("INR?", "INR 8193"), ("TRMD SINGLE", None)]
    converse(dialect.arm(), [*armed, ("TRMD?", "SINGLE")])
    with pytest.raises(InstrumentError, match="older"):
        converse(dialect.read(1), [("CHDR OFF", None), ("INR?", "8192")])
    first, *others = reading("1V", "0V", "1GSa/s", "0S", bytes(4))
    converse(dialect.read(1), [first, ("INR?", "8193"), *others])
    converse(dialect.read(1), [first, *others])  # the next channel does not ask again


def test_an_answer_that_is_lost_does_not_take_the_shot_with_it() -> None:
    faults = Faults()
    with simulated(SiglentWfFront, faults=faults) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(), 100_000)
        faults.once.add("drop")  # the first answer of the reading is the one to INR?
        assert set(scope.read([1, 2])) == {1, 2}
        assert faults.done["drop"] == 1
        scope.close()


def test_a_shot_has_its_edges_where_they_were() -> None:
    with simulated(SiglentWfFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        assert scope.dialect.name == "siglent-wf"
        instrument.shot(scope, setup(points=500_000), 123_456)
        found = scope.read([1, 2])
        assert instrument.model.depth == 700_000  # what two channels of a pair have
        scope.close()
    first, second = (find_edges(found[channel])[0] for channel in (1, 2))
    assert first.rising
    assert abs(first.instant_fs) <= found[1].interval_fs
    assert second.instant_fs - first.instant_fs == pytest.approx(123_456e6, abs=2e6)
    np.testing.assert_allclose([found[1].volts()[0], found[1].volts()[-1]], [0, 3.3], atol=0.07)


def test_volts_are_right_whatever_offset_and_probe_are() -> None:
    channels = (Channel(1, 0.5, 2.0, probe=1.0), Channel(2, 2.0, -1.0, probe=100.0))
    with simulated(SiglentWfFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, Setup(channels, Trigger(1), 1e-3, points=7_000), 50_000)
        found = scope.read([1, 2])
        scope.close()
    for waveform in found.values():
        assert np.median(waveform.volts()[:300]) == pytest.approx(0, abs=0.05)
        assert np.median(waveform.volts()[-300:]) == pytest.approx(3.3, abs=0.05)


@pytest.mark.parametrize("cable_s", [80e-9, 5e-6])
def test_a_deskew_takes_a_cable_out(cable_s: float) -> None:
    physics = dataclasses.replace(SiglentWfFront.physics, skew_s={2: cable_s})
    with simulated(SiglentWfFront, physics) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        for deskew_s, late_fs in ((0.0, cable_s * 1e15), (cable_s, 0.0)):
            channels = (Channel(1), Channel(2, deskew_s=deskew_s))
            instrument.shot(scope, Setup(channels, Trigger(1), 1e-3, points=500_000), 0)
            edges = [find_edges(wave)[0].instant_fs for wave in scope.read([1, 2]).values()]
            assert edges[1] - edges[0] == pytest.approx(late_fs, abs=2e6)
        scope.close()


def test_commands_that_are_dropped_are_sent_again() -> None:
    with simulated(SiglentWfFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        lost = ["CHDR", "C1:VDIV", "C2:TRA", "TRDL", "MSIZ", "TRSE", "C1:TRLV", "TRMD SINGLE"]
        instrument.front.lost += lost
        instrument.shot(scope, setup(), 100_000)
        edges = [find_edges(wave)[0].instant_fs for wave in scope.read([1, 2]).values()]
        assert not instrument.front.lost
        scope.close()
    assert edges[1] - edges[0] == pytest.approx(100e9, abs=20e6)


def test_a_setting_that_does_not_arrive_twice_is_named() -> None:
    with simulated(SiglentWfFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.front.lost += ["C1:OFST", "C1:OFST"]
        with pytest.raises(InstrumentError, match=r"refused a setting: C1:OFST -1\.65"):
            scope.set_up(setup())
        scope.set_up(setup())
        scope.close()


def test_a_trigger_level_that_is_multiplied_by_the_probe_is_found_out() -> None:
    class Multiplies(SiglentWfFront):
        level_times_probe = True

    with simulated(Multiplies) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(setup())
        assert instrument.model.trigger_level_v == pytest.approx(1.65)
        scope.close()


def test_an_older_model_has_two_channels_and_no_memory_size() -> None:
    sent: list[str] = []

    class Older(SiglentWfFront):
        identity = "SIGLENT,SDS1072CML,SIMULATED,5.01.01.32"

        def answer(self, line: str) -> bytes:
            sent.append(line)
            return super().answer(line)

    with simulated(Older) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        scope.set_up(setup(channels=1))
        scope.close()
    assert "C2:TRA OFF" in sent
    assert not [line for line in sent if line.startswith(("MSIZ", "C3:"))]
    assert "TDIV 1.000000E-04S" in sent  # 18 divisions are at least the span


def test_a_stop_by_hand_and_a_channel_that_is_off_are_sentences() -> None:
    with simulated(SiglentWfFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(), 100_000)
        with pytest.raises(InstrumentError, match="Is the channel on"):
            scope.play(scope.dialect.read(3))
        assert scope.arm()
        instrument.front.answer("STOP")
        assert scope.wait(1.0)
        with pytest.raises(InstrumentError, match="not acquired a signal"):
            scope.play(scope.dialect.read(1))
        assert scope.arm()
        assert not scope.wait(0.02)
        assert scope.play(scope.dialect.state()) is State.STOPPED
        scope.close()


def test_segments_are_refused_before_anything_is_set() -> None:
    with simulated(SiglentWfFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        with pytest.raises(InstrumentError, match="segments = 1"):
            scope.set_up(setup(segments=2))
        scope.close()


@each_fault("short-block", "empty-block", "double-newline", "late")
def test_a_fault_costs_another_read_at_most(kind: str, timeout_s: float) -> None:
    faults = Faults()
    with simulated(SiglentWfFront, faults=faults) as instrument:
        scope = Oscilloscope.open(instrument.resource, timeout_s=timeout_s)
        instrument.shot(scope, setup(), 100_000)
        faults.once.add(kind)
        found = scope.read([1, 2])
        assert faults.done[kind] == 1
        assert scope.read_again <= 1
        scope.close()
    edges = [find_edges(found[channel])[0].instant_fs for channel in (1, 2)]
    assert edges[1] - edges[0] == pytest.approx(100e9, abs=20e6)


def test_the_screen_is_a_bitmap() -> None:
    with simulated(SiglentWfFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        picture = scope.screenshot()
        scope.set_up(setup())  # what follows is not disturbed
        scope.close()
    assert picture.startswith(b"BM")
    assert int.from_bytes(picture[2:6], "little") == len(picture)
