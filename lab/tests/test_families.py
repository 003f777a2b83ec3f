"""Every simulated family, whatever its dialect: what is measured, faults, hostile clients."""

from __future__ import annotations

import contextlib
import random
import re
import socket
from dataclasses import replace

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scope_rig import Answering, apart_fs, first_edges, opened, sent, simulated, usual

from mqtick.lab.scope.conversation import Block, InstrumentError, Query, Reply, Step
from mqtick.lab.scope.dialects import DIALECTS, Identity, dialect_for
from mqtick.lab.scope.dialects.base import step_up
from mqtick.lab.scope.oscilloscope import Oscilloscope, play
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, State, Trigger
from mqtick.lab.scope.simulator import FRONTS, KINDS, EdgeFeed, Faults, Front, Model

APART_NS = 123_456
QUICK_S = 0.15
FINE = usual(points=100_000)

all_fronts = pytest.mark.parametrize("front", [FRONTS[name] for name in FRONTS], ids=list(FRONTS))


@all_fronts
def test_a_shot_has_its_edges_where_they_were(front: type[Front]) -> None:
    with opened(front) as (instrument, scope):
        assert scope.dialect.name == front.name
        assert scope.simulated
        instrument.shot(scope, FINE, APART_NS)
        found = scope.read([1, 2])
    first, second = first_edges(found)
    assert first.rising
    assert second.rising
    assert abs(first.instant_fs) < 20e6
    assert apart_fs(found) == pytest.approx(APART_NS * 1e6, abs=20e6)
    np.testing.assert_allclose(found[1].volts()[[0, -1]], [0, 3.3], atol=0.1)
    assert scope.read_again == 0


@all_fronts
def test_the_record_holds_the_span_and_its_share_before_the_trigger(front: type[Front]) -> None:
    with opened(front) as (instrument, scope):
        instrument.shot(scope, replace(usual(span_s=3e-4, points=5000), before=0.2))
        waveform = scope.read([1])[1]
    late_fs = 2 * waveform.interval_fs
    assert waveform.start_fs <= -0.2 * 3e11 + late_fs
    assert waveform.instant_fs(waveform.codes.size - 1) >= 0.8 * 3e11 - late_fs
    # Some take the nearest memory that they have, some the next one.
    assert 3e11 / waveform.interval_fs >= 2500


@all_fronts
@given(span_s=st.floats(1e-6, 10.0), points=st.integers(500, 1_000_000), before=st.floats(0.0, 0.9))
@hypothesis.settings(max_examples=20)
def test_the_record_is_never_shorter_than_is_wanted(
    front: type[Front], span_s: float, points: int, before: float
) -> None:
    instrument = front(Model(EdgeFeed(), {1: 1}, front.physics))
    wanted = ScopeSettings((ChannelSettings(1),), Trigger(1), span_s, before, points)
    conversation = dialect_for(Identity.parse(instrument.identity)).set_up(wanted)
    reply: str | None = None
    with contextlib.suppress(StopIteration):
        while True:
            reply = instrument.answer(getattr(conversation.send(reply), "command", "")).decode()
            reply = reply.strip() or None
    assert instrument.model.points / instrument.model.rate_hz >= span_s * 0.99
    assert not instrument.scpi.errors


@all_fronts
@pytest.mark.parametrize("bits", [None, 10])
def test_offset_scale_probe_and_bits_leave_the_volts_as_they_are(
    front: type[Front], bits: int | None
) -> None:
    channels = (ChannelSettings(1, 0.7, 1.3, probe=10), ChannelSettings(2, 2.0, -1.0, probe=1))
    physics = replace(front.physics, bits=bits or front.physics.bits)
    with opened(front, physics) as (instrument, scope):
        instrument.shot(scope, replace(usual(), channels=channels), 0)
        found = scope.read([1, 2])
        assert instrument.model.inputs[1].offset_v == pytest.approx(1.3, abs=0.02)
        assert [instrument.model.inputs[number].probe for number in (1, 2)] == [10, 1]
    for waveform in found.values():
        volts = waveform.volts()
        assert np.median(volts[volts < 1.65]) == pytest.approx(0.0, abs=0.1)
        assert np.median(volts[volts > 1.65]) == pytest.approx(3.3, abs=0.1)


@all_fronts
def test_a_deskew_far_beyond_the_instruments_own_is_taken_off(front: type[Front]) -> None:
    late_s = 750.25e-9
    with opened(front, replace(front.physics, skew_s={2: late_s})) as (instrument, scope):
        for deskew_s, late_fs in ((0.0, late_s * 1e15), (late_s, 0.0)):
            channels = (ChannelSettings(1), ChannelSettings(2, deskew_s=deskew_s))
            instrument.shot(scope, replace(FINE, channels=channels), 10_000)
            found = scope.read([1, 2])
            assert apart_fs(found) == pytest.approx(10e9 + late_fs, abs=20e6)


@all_fronts
def test_the_states_follow_one_another(front: type[Front]) -> None:
    with opened(front) as (instrument, scope):

        def state() -> State:
            return scope.play(scope.dialect.state())

        scope.set_up(replace(usual(span_s=0.1), before=0.5))
        assert state() is State.STOPPED
        later = instrument.clock_by_hand()
        scope.play(scope.dialect.arm())
        assert state() is State.PREPARING
        later(instrument.model.span_s)
        assert state() is State.ARMED
        instrument.model.feed.add(1, instrument.now_ns, True)
        later(0.001)
        # Keysight's register does not tell the part after the trigger from the one before.
        assert state() in (State.TRIGGERED, State.PREPARING)
        later(instrument.model.span_s)
        assert state() is State.STOPPED


@all_fronts
def test_a_trigger_that_never_comes_is_a_miss_and_the_next_shot_goes_well(
    front: type[Front],
) -> None:
    with opened(front) as (instrument, scope):
        scope.set_up(replace(usual(), trigger=Trigger(3)))
        assert scope.arm()
        instrument.edges(0)
        assert not scope.wait(0.05)
        assert scope.play(scope.dialect.state()) is State.STOPPED
        instrument.edges(0, rising=False)
        instrument.shot(scope, usual(), 0)
        assert first_edges(scope.read([1]))


@all_fronts
def test_nothing_is_read_of_a_channel_that_is_off_or_without_a_trigger(front: type[Front]) -> None:
    with opened(front) as (instrument, scope):
        instrument.shot(scope, usual(), 0)
        with pytest.raises(InstrumentError, match=r"channel on|switched off"):
            scope.play(scope.dialect.read(4))
        assert scope.arm()
        with pytest.raises(InstrumentError, match=r"trigger|apart|not acquired a signal"):
            scope.play(scope.dialect.read(1))


@all_fronts
def test_segments_carry_their_instants(front: type[Front]) -> None:
    wanted = usual(segments=3, points=100_000)
    with opened(front) as (instrument, scope):
        if not front.name.startswith(("keysight", "rigol")):
            with pytest.raises(InstrumentError, match="segments = 1"):
                scope.set_up(wanted)
            return
        if front.name.startswith("rigol"):
            vars(instrument.front)["recorder"].refresh_s = 0.01
            vars(scope.dialect)["tag_settle_s"] = 0.02
        instrument.shot(scope, wanted, 50_000)
        segments = scope.read_segments([1, 2])
        frames = instrument.model.frames
    assert scope.read_again == 0
    assert len(segments) == 3
    for segment, frame in zip(segments, frames, strict=True):
        assert apart_fs(segment.waveforms) == pytest.approx(50e9, abs=20e6)
        if front.name == "rigol-ds1000z":
            assert (segment.time_s, segment.resolution_s) == (None, None)
            continue
        truth_s = (frame.trigger_ns - frames[0].trigger_ns) / 1e9
        assert segment.resolution_s is not None
        assert segment.time_s == pytest.approx(truth_s, abs=segment.resolution_s * 1.1 + 1e-9)
    assert [segment.time_s for segment in segments[1:]] != [0, 0]


@all_fronts
def test_the_screen_is_a_picture_and_leaves_nothing_behind(front: type[Front]) -> None:
    with opened(front) as (instrument, scope):
        picture = scope.screenshot()
        assert scope.play(scope.dialect.errors()) == []
        scope.set_up(usual())  # what follows is not disturbed
        assert not getattr(instrument.front, "files", None)
    if picture.startswith(b"BM"):
        assert int.from_bytes(picture[2:6], "little") == len(picture)
    else:
        assert picture.startswith(b"\x89PNG")
        assert picture.endswith(b"IEND\xaeB`\x82")


@all_fronts
@pytest.mark.parametrize("kind", ["empty-block", "double-newline", "drop"])
def test_a_fault_costs_another_read_at_most(front: type[Front], kind: str) -> None:
    faults = Faults()
    with opened(front, faults=faults) as (instrument, scope):
        instrument.shot(scope, usual(), 100_000)
        faults.once.add(kind)
        found = scope.read([1, 2])
        assert faults.done == {kind: 1}
        assert scope.read_again == (0 if kind == "double-newline" else 1)
    assert apart_fs(found) == pytest.approx(100e9, abs=500e6)


PART = st.one_of(
    st.sampled_from(
        ("0", "1", "2", "4", "RI", "RP", "LSB", "1E-9", "1V", "inf", "nan", "8E37", "")
    ),
    st.floats().map(str),
    st.text(max_size=6),
)
LINE = st.one_of(
    PART,
    st.lists(PART, min_size=9, max_size=11).map(lambda parts: ";".join(["1", *parts])),
    st.lists(PART, min_size=10, max_size=10).map(",".join),
)
DATA = st.one_of(
    st.binary(max_size=16),
    st.binary(min_size=338, max_size=338).map(lambda tail: b"WAVEDESC" + tail),
)


@pytest.mark.parametrize("name", list(DIALECTS))
@given(st.lists(LINE, min_size=12, max_size=12), st.lists(DATA, min_size=12, max_size=12))
def test_whatever_is_answered_it_is_a_waveform_or_refused(
    name: str, lines: list[str], data: list[bytes]
) -> None:
    def answer(step: Step) -> Reply:
        match step:
            case Query() if lines:
                return lines.pop()
            case Block() if data:
                return data.pop()
            case Query() | Block():
                raise InstrumentError("all answers are used up")
        return None

    with contextlib.suppress(InstrumentError):
        waveform = play(Answering(answer), DIALECTS[name](Identity("A", "B4", "", "")).read(1))
        assert waveform.interval_fs > 0


@pytest.mark.slow
@pytest.mark.alone
@all_fronts
def test_each_fault_while_reading_is_got_over(front: type[Front]) -> None:
    # Keysight's always fills its whole memory: with this one, an answer takes no time.
    physics = replace(front.physics, depths=(10_000,)) if front.name == "keysight" else None
    with opened(front, physics, timeout_s=1.0) as (instrument, scope):
        instrument.shot(scope, usual(), APART_NS)
        vars(scope.transport)["_timeout_ms"] = int(QUICK_S * 1000)
        scope.transport.reopen()
        faults = instrument.server.faults
        truth_fs = apart_fs(scope.read([1, 2]))
        assert truth_fs == pytest.approx(APART_NS * 1e6, abs=500e6)
        for kind in sorted(set(KINDS) - {"no-trigger"}):
            faults.once.add(kind)
            assert apart_fs(scope.read([1, 2])) == truth_fs, kind
            faults.once.discard(kind)  # not every family has a preamble
        assert faults.done.total() >= 5


@pytest.mark.slow
@all_fronts
def test_whatever_a_client_sends_the_instrument_goes_on(
    front: type[Front], caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(1)
    with simulated(front) as instrument:
        table = [pattern.pattern for pattern, _ in instrument.front.scpi._table]
        words = ["", "0", "-1", "nan", "inf", "1e99", "CHAN9", "CH1", "C9", "ON", "x,y", "99999999"]
        lines = []
        for pattern in table:
            header = re.sub(r"\(\?:([A-Za-z]+)\|[A-Za-z]+\)", r"\1", pattern)  # the short form
            header = re.sub(r"\(\?:[^)]*\)\?", "", header)  # what may be left out
            header = header.replace("([0-9]{1,9})", chance.choice("123490")).replace("\\", "")
            lines += [f"{header.removeprefix(':?')} {word}" for word in words]
        # What empties the error queue would hide that anything was refused.
        lines = [line for line in lines if not re.search("ERR|CLS|RST|EV|ESR", line.upper())]
        chance.shuffle(lines)
        with (
            contextlib.suppress(ConnectionError, TimeoutError),
            socket.create_connection(("127.0.0.1", instrument.server.port)) as hostile,
        ):
            hostile.settimeout(0.2)
            hostile.sendall("\n".join(lines).encode() + b"\n")
            while hostile.recv(1 << 16):
                pass
        assert any(error.startswith("-224") for error in instrument.front.scpi.errors)
        assert not caplog.records, "a command upset the program"
        scope = Oscilloscope.open(instrument.resource, timeout_s=2.0)
        instrument.shot(scope, usual(), APART_NS)
        assert apart_fs(scope.read([1, 2])) == pytest.approx(APART_NS * 1e6, abs=500e6)
        scope.close()


@pytest.mark.slow
@all_fronts
def test_no_dialect_takes_another_familys_instrument_for_its_own(front: type[Front]) -> None:
    other = "siglent-wf" if front.name == "keysight" else "keysight"
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource, other, timeout_s=QUICK_S)
        with pytest.raises(InstrumentError, match=r"--dialect|refused"):
            scope.set_up(usual())
        scope.close()


@pytest.mark.parametrize(
    ("model", "name", "inputs"),
    [
        ("KEYSIGHT TECHNOLOGIES,DSO-X 3034A", "keysight", 4),
        ("KEYSIGHT TECHNOLOGIES,DSOX1102G", "keysight", 2),
        ("KEYSIGHT TECHNOLOGIES,EDUX1052A", "keysight", 2),
        ("KEYSIGHT TECHNOLOGIES,MSO-X 6004A", "keysight", 4),
        ("AGILENT TECHNOLOGIES,DSO9", "keysight", 4),
        ("RIGOL TECHNOLOGIES,DS1054Z", "rigol-ds1000z", 4),
        ("RIGOL TECHNOLOGIES,MSO1104Z-S", "rigol-ds1000z", 4),
        ("RIGOL TECHNOLOGIES,DS1202Z-E", "rigol-ds1000z", 2),
        ("RIGOL TECHNOLOGIES,MSO5072", "rigol-mso5000", 2),
        ("RIGOL TECHNOLOGIES,DS7014", "rigol-mso5000", 4),
        ("RIGOL TECHNOLOGIES,DHO802", "rigol-dho", 2),
        ("RIGOL TECHNOLOGIES,DHO924S", "rigol-dho", 4),
        ("Siglent Technologies,SDS824X HD", "siglent", 4),
        ("SIGLENT TECHNOLOGIES,SDS1202X HD", "siglent", 2),
        ("Siglent Technologies,SDS2104X Plus", "siglent", 4),
        ("Siglent Technologies,SDS5034X", "siglent", 4),
        ("Siglent Technologies,SDS6104A", "siglent", 4),
        ("Siglent Technologies,SDS1104X-E", "siglent-wf", 4),
        ("Siglent Technologies,SDS1202X-E", "siglent-wf", 2),
        ("*IDN SIGLENT,SDS2304X", "siglent-wf", 4),
        ("TEKTRONIX,MSO54", "tektronix", 4),
        ("TEKTRONIX,MSO58LP", "tektronix", 8),
        ("TEKTRONIX,MSO24", "tektronix", 4),
        ("TEKTRONIX,MSO64B", "tektronix", 4),
        ("TEKTRONIX,DPO4054", "tektronix", 4),
        ("TEKTRONIX,MDO3012", "tektronix", 2),
        ("TEKTRONIX,MDO34", "tektronix", 4),
        ("TEKTRONIX,TBS1102C", "tektronix", 2),
        ("TEKTRONIX,TBS2104B", "tektronix", 4),
    ],
)
def test_the_model_says_which_dialect_and_how_many_inputs(
    model: str, name: str, inputs: int
) -> None:
    dialect = dialect_for(Identity.parse(f"{model},X1,1.0"))
    assert (dialect.name, dialect.inputs) == (name, inputs)
    commands = sent(dialect.set_up(usual(channels=1)), {"CH1:PRObe:GAIN?": "0.1"})
    named = {
        found[1] for command in commands if (found := re.search(r"\bC(?:HANnel|H)?(\d)", command))
    }
    assert named == {str(number) for number in range(1, inputs + 1)}  # and no others


@pytest.mark.parametrize(
    "model",
    [
        "RIGOL TECHNOLOGIES,DS1102E",
        "RIGOL TECHNOLOGIES,DG4162",
        "RIGOL TECHNOLOGIES,DP832",
        "SIGLENT,SDS1072CML",
        "TEKTRONIX,TDS 2014C",
        "TEKTRONIX,TBS1052B",
        "TEKTRONIX,DPO7054C",
    ],
)
def test_others_are_not_taken_for_these(model: str) -> None:
    with pytest.raises(InstrumentError, match="adding-an-oscilloscope"):
        dialect_for(Identity.parse(f"{model},X1,1.0"))


def test_a_time_base_is_never_shorter_than_wanted() -> None:
    assert step_up(1e-4) == 1e-4
    assert step_up(1e-3 / 14) == pytest.approx(1e-4)
    assert step_up(1.01e-4) == pytest.approx(2e-4)
    assert step_up(2.1e-4, (1, 2, 4)) == pytest.approx(4e-4)
