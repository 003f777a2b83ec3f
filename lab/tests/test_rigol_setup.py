"""The Rigol dialects as pairs of command and reply: set up, and segments."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rigol_rig import DEPTH, DHO, DS1000Z, MSO5000, identity
from scope_rig import converse, sent, usual

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import dialect_for
from mqtick.lab.scope.dialects.rigol import Rigol
from mqtick.lab.scope.dialects.rigol_record import frame_time_s
from mqtick.lab.scope.dialects.rigol_series import RigolDho, RigolDs1000z, RigolMso5000
from mqtick.lab.scope.settings import ChannelSettings, State

# -- setting up ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "channels", "points", "depth"),
    [
        (DS1000Z, 1, 10_000, "12000"),
        (DS1000Z, 1, 12_000, "120000"),  # of which 120 000 / 1.2 lie within the span
        (DS1000Z, 2, 10_000, "60000"),
        (DS1000Z, 3, 10_000, "30000"),
        (DS1000Z, 4, 10**9, "3000000"),
        (MSO5000, 1, 10_000, "10k"),
        (MSO5000, 1, 10_001, "100k"),
        (MSO5000, 4, 10**9, "25M"),
        (DHO, 2, 1_000_001, "5M"),
        (DHO, 2, 10**9, "25M"),
        (DHO, 4, 10**9, "10M"),
        (RigolDho(identity("DHO804")), 4, 10**9, "5M"),
    ],
)
def test_the_depth_is_the_next_one_that_holds_the_points(
    dialect: Rigol, channels: int, points: int, depth: str
) -> None:
    steps = sent(dialect.set_up(usual(points=points, channels=channels)))
    assert [command for command in steps if "MDEPth " in command] == [f":ACQuire:MDEPth {depth}"]


@pytest.mark.parametrize("answer", ["AUTO", "12000", "6.0000E+03"])
def test_a_depth_that_is_not_taken_is_refused_since_not_every_instrument_says_so(
    answer: str,
) -> None:
    with pytest.raises(InstrumentError, match="did not accept a memory of 120000 points"):
        sent(DS1000Z.set_up(usual(points=50_000, channels=1)), {DEPTH: answer})


@pytest.mark.parametrize(
    ("dialect", "scale", "offset"),
    [(DS1000Z, "0.0001", "0.00048"), (MSO5000, "0.0001", "0.0004"), (DHO, "0.0001", "0.0004")],
)
def test_the_offset_of_the_time_base_is_the_instant_in_the_middle_of_the_screen(
    dialect: Rigol, scale: str, offset: str
) -> None:
    steps = sent(dialect.set_up(usual(span_s=1e-3)))
    assert [command for command in steps if ":MAIN:" in command] == [
        ":TIMebase:MAIN:SCALe 1E-6",
        f":TIMebase:MAIN:SCALe {scale}",
        f":TIMebase:MAIN:OFFSet {offset}",
    ]


def test_what_is_only_taken_while_running_comes_while_it_runs_and_scale_before_depth() -> None:
    steps = sent(DHO.set_up(usual()))
    order = [":RUN", ":TIMebase:MAIN:SCALe 0.0001", ":ACQuire:MDEPth 10k", ":STOP"]
    assert sorted(order, key=steps.index) == order
    assert steps[-1] == ":STOP"


def test_an_offset_moves_the_trace_up_so_it_is_the_opposite_of_the_voltage_in_the_middle() -> None:
    wanted = replace(
        usual(), channels=(ChannelSettings(1, offset_v=1.65, probe=10, deskew_s=5e-9),)
    )
    steps = sent(RigolDs1000z(identity("DS1054Z")).set_up(wanted))
    order = [":CHANnel1:PROBe 10", ":CHANnel1:SCALe 1", ":CHANnel1:OFFSet -1.65"]
    assert sorted(order, key=steps.index) == order
    assert [f":CHANnel{channel}:DISPlay 0" in steps for channel in (1, 2, 3, 4)] == [False] + [
        True
    ] * 3


def test_a_model_with_two_inputs_is_not_told_of_four() -> None:
    dialect = RigolMso5000(identity("MSO5072"))
    assert not [command for command in sent(dialect.set_up(usual())) if "CHANnel3" in command]
    with pytest.raises(InstrumentError, match="has 2 inputs, but channel 3"):
        sent(dialect.set_up(usual(channels=3)))


@pytest.mark.parametrize(
    ("slope", "word"), [("rising", "POSitive"), ("falling", "NEGative"), ("either", "RFALl")]
)
def test_the_slopes(slope: str, word: str) -> None:
    wanted = usual()
    wanted = replace(wanted, trigger=replace(wanted.trigger, slope=slope))
    assert f":TRIGger:EDGE:SLOPe {word}" in sent(MSO5000.set_up(wanted))


def test_errors_are_read_until_there_is_none() -> None:
    error = '-113,"Undefined header; command error"'
    pairs = [(":SYSTem:ERRor?", error), (":SYSTem:ERRor?", '0,"No error"')]
    assert converse(DHO.errors(), pairs) == [error]


# -- segments -----------------------------------------------------------------------------------


def recording(model: str, frames: str = "5") -> Rigol:
    dialect = dialect_for(identity(model))
    assert isinstance(dialect, Rigol)
    replies: dict[str, str | bytes] = {f"{dialect.record}:WRECord:{dialect.frames}?": frames}
    sent(dialect.set_up(usual(segments=5)), replies)
    return dialect


def test_more_segments_than_fit_are_refused() -> None:
    with pytest.raises(InstrumentError, match="room for 3 segments"):
        recording("DHO924S", frames="3")


def test_while_it_records_single_is_not_said() -> None:
    dialect = recording("DHO924S")
    replies: dict[str, str | bytes] = {":TRIGger:STATus?": "RUN"}
    assert sent(dialect.arm(), replies)[0] == ":RECord:WRECord:OPERate RUN"
    assert sent(dialect.stop()) == [":RECord:WRECord:OPERate STOP"]
    steps = sent(recording("DS1054Z").arm(), replies)
    assert steps[0] == ":FUNCtion:WRECord:OPERate RUN"
    assert ":SINGle" not in steps


@pytest.mark.parametrize(("current", "state"), [("0", State.PREPARING), ("1", State.ARMED)])
def test_the_recorder_is_ready_after_the_trigger_is(current: str, state: State) -> None:
    pairs = [
        (":RECord:WRECord:OPERate?", "RUN"),
        (":TRIGger:STATus?", "WAIT"),
        (":RECord:WREPlay:FCURrent?", current),
    ]
    assert converse(recording("DHO924S").state(), pairs) is state


def test_a_recording_is_over_when_the_recorder_stops() -> None:
    pairs = [(":FUNCtion:WRECord:OPERate?", "STOP")]
    assert converse(recording("DS1054Z").state(), pairs) is State.STOPPED


def test_a_frame_that_is_not_shown_is_not_read() -> None:
    pairs = [
        (":RECord:WREPlay:FMAX?", "5"),
        (":RECord:WREPlay:OPERate STOP", None),
        (":RECord:WREPlay:FCURrent 1", None),
        (":RECord:WREPlay:FCURrent?", "4"),
    ]
    with pytest.raises(InstrumentError, match="frame 4 where 1"):
        converse(recording("DHO924S").read_segments([1]), pairs)


@pytest.mark.parametrize(
    ("text", "seconds", "resolution"),
    [
        ("1.28217ks", 1282.17, 0.01),  # a DHO800
        ("500.000ms", 0.5, 1e-6),
        ("72.9927us", 72.9927e-6, 1e-10),
        ("2.5000E-03", 2.5e-3, 1e-7),
        ("0.00000s", 0.0, 0.0),
    ],
)
def test_the_time_of_a_frame_is_as_good_as_its_last_digit(
    text: str, seconds: float, resolution: float
) -> None:
    assert frame_time_s(text) == pytest.approx((seconds, resolution))


@pytest.mark.parametrize("text", ["", "FRAME_TIME_1", "1.2.3s", "1.5 h", "--", "#9000000000"])
def test_no_time_of_a_frame_is_an_error(text: str) -> None:
    with pytest.raises(InstrumentError, match="segments = 1"):
        frame_time_s(text)
