"""The Rigol dialects as pairs of command and reply: values of the guides and of other drivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest
from scope_rig import converse, setup

from mqtick.lab.conversation import Conversation, InstrumentError, Reply
from mqtick.lab.dialects import Identity, dialect_for
from mqtick.lab.dialects.rigol import Rigol
from mqtick.lab.dialects.rigol_record import frame_time_s
from mqtick.lab.dialects.rigol_series import RigolDho, RigolDs1000z, RigolMso5000
from mqtick.lab.setup import Channel, State

T = TypeVar("T")


def identity(model: str) -> Identity:
    return Identity.parse(f"RIGOL TECHNOLOGIES,{model},X1,00.01")


DS1000Z, MSO5000, DHO = (
    RigolDs1000z(identity("DS1054Z")),
    RigolMso5000(identity("MSO5074")),
    RigolDho(identity("DHO924S")),
)
ALL: list[Rigol] = [DS1000Z, MSO5000, DHO]
SELECT = [
    (":WAVeform:SOURce CHANnel2", None),
    (":WAVeform:MODE RAW", None),
    (":WAVeform:FORMat BYTE", None),
    (":WAVeform:STARt 1", None),
]
SELECT_DHO = [
    (":WAVeform:MODE NORMal", None),
    (":WAVeform:SOURce CHANnel2", None),
    (":WAVeform:MODE RAW", None),
    (":WAVeform:FORMat WORD", None),
    (":WAVeform:STARt 1", None),
]
DEPTH = ":ACQuire:MDEPth?"


def page(first: int, last: int, data: bytes) -> list[tuple[str, str | bytes | None]]:
    return [
        (f":WAVeform:STARt {first}", None),
        (f":WAVeform:STOP {last}", None),
        (":WAVeform:DATA?", data),
    ]


def commands(
    conversation: Conversation[T], replies: Mapping[str, str | bytes] | None = None
) -> list[str]:
    """Play a conversation to its end, and return what was sent; the depth is what was set."""
    sent: list[str] = []
    depth = "AUTO"
    reply: Reply = None
    try:
        while True:
            command = getattr(conversation.send(reply), "command", "")
            sent += [command] if command else []
            if command.startswith(":ACQuire:MDEPth "):
                depth = command.split()[1]
            reply = {DEPTH: depth, **(replies or {})}.get(command, "1" if "?" in command else None)
    except StopIteration:
        return sent


@pytest.mark.parametrize(
    ("model", "dialect", "inputs"),
    [
        ("DS1054Z", "rigol-ds1000z", 4),
        ("MSO1104Z-S", "rigol-ds1000z", 4),
        ("DS1202Z-E", "rigol-ds1000z", 2),
        ("MSO5072", "rigol-mso5000", 2),
        ("MSO5354", "rigol-mso5000", 4),
        ("DS7014", "rigol-mso5000", 4),
        ("DHO802", "rigol-dho", 2),
        ("DHO924S", "rigol-dho", 4),
    ],
)
def test_models_are_recognised(model: str, dialect: str, inputs: int) -> None:
    found = dialect_for(identity(model))
    assert isinstance(found, Rigol)
    assert (found.name, found.inputs) == (dialect, inputs)


@pytest.mark.parametrize("model", ["DS1102E", "DG4162", "DP832"])
def test_other_rigols_are_not_taken_for_these(model: str) -> None:
    with pytest.raises(InstrumentError, match="adding-an-oscilloscope"):
        dialect_for(identity(model))


# -- reading ------------------------------------------------------------------------------------


def test_volts_count_from_origin_and_reference_in_codes() -> None:
    # The preamble of the MSO1000Z/DS1000Z guide's example, with another offset.
    preamble = "0,2,4,1,1.000000e-09,-3.000000e-03,0,4.132813e-01,-4,122"
    data = bytes([118, 122, 128, 0x0A])
    pairs = [*SELECT, (":WAVeform:PREamble?", preamble), *page(1, 4, data)]
    waveform = converse(RigolDs1000z(identity("DS1054Z")).read(2), pairs)
    np.testing.assert_allclose(waveform.volts(), np.array([0, 4, 10, -108]) * 0.4132813)
    assert (waveform.interval_fs, waveform.start_fs) == (1_000_000, -3_000_000_000_000)


def test_pages_count_from_one_and_hold_their_last_point() -> None:
    data = np.arange(600_000).astype(np.uint8)
    preamble = "0,2,600000,1,1.000000e-09,0.000000e+00,0,4.000000e-02,0,127"
    pairs = [
        *SELECT,
        (":WAVeform:PREamble?", preamble),
        *page(1, 250_000, data[:250_000].tobytes()),
        *page(250_001, 500_000, data[250_000:500_000].tobytes()),
        *page(500_001, 600_000, data[500_000:].tobytes()),
    ]
    np.testing.assert_array_equal(converse(DS1000Z.read(2), pairs).codes, data)


def test_the_dho_is_asked_for_its_depth_since_its_preamble_tells_of_a_page() -> None:
    data = np.array([32768, 36768, 28768, 0x0A0A], "<u2")
    preamble = "1,2,2,1,1.000000E-08,-2.500000E-08,0,1.333333E-04,-12375,32768"
    pairs = [
        *SELECT_DHO,
        (":WAVeform:PREamble?", preamble),
        (DEPTH, "4.0000E+00"),
        *page(1, 4, data.tobytes()),
    ]
    waveform = converse(DHO.read(2), pairs)
    expected = (data.astype(float) + 12375 - 32768) * 1.333333e-4
    np.testing.assert_allclose(waveform.volts(), expected)
    assert waveform.volts()[0] == pytest.approx(1.65, abs=1e-4)
    assert waveform.trigger_phase_fs == 5_000_000


@pytest.mark.parametrize(("answer", "points"), [("4", 4), ("4.000E+0", 4), ("1k", 1000)])
def test_a_depth_may_be_a_number_or_have_a_multiple(answer: str, points: int) -> None:
    preamble = "0,2,7,1,1.0e-09,0.0,0,0.04,0,128"
    pairs = [
        *SELECT,
        (":WAVeform:PREamble?", preamble),
        ("*WAI", None),
        (DEPTH, answer),
        *page(1, points, bytes(points)),
    ]
    assert converse(MSO5000.read(2), pairs).codes.size == points


def test_with_an_automatic_depth_the_preamble_counts() -> None:
    preamble = "0,2,7,1,1.0e-09,0.0,0,0.04,0,128"
    pairs = [*SELECT, (":WAVeform:PREamble?", preamble), ("*WAI", None), (DEPTH, "AUTO")]
    assert converse(MSO5000.read(2), [*pairs, *page(1, 7, bytes(7))]).codes.size == 7


def test_the_mso5000_that_was_asked_too_early_is_refused_so_that_it_is_read_again() -> None:
    preamble = "0,2,4,1,1.0e-09,0.0,0,0.04,0,128"
    pairs = [*SELECT, (":WAVeform:PREamble?", preamble), ("*WAI", None), (DEPTH, "4")]
    with pytest.raises(InstrumentError, match="sent 0 octets for points 1 to 4"):
        converse(MSO5000.read(2), [*pairs, *page(1, 4, b"")])


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    "preamble",
    [
        "",
        "+0",
        "0,2,4,1",
        "command error",
        "0,2,4,1,0.000000e+00,0.0,0,0.04,0,128",  # seen on DHO by scopehal
        "0,2,4,1,1.0e-09,0.0,0,0.000000e+00,0,128",
        "0,2,4,1,9.9E37,0.0,0,0.04,0,128",
        "0,2,0,1,1.0e-09,0.0,0,0.04,0,128",
        "0,2,-4,1,1.0e-09,0.0,0,0.04,0,128",
    ],
)
def test_a_preamble_without_sense_is_refused(dialect: Rigol, preamble: str) -> None:
    replies: dict[str, str | bytes] = {":WAVeform:PREamble?": preamble, DEPTH: "AUTO"}
    with pytest.raises(InstrumentError):
        commands(dialect.read(1), replies)


# -- state --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("TD", State.TRIGGERED),
        ("T'D", State.TRIGGERED),
        ("WAIT", State.ARMED),
        ("RUN", State.PREPARING),
        ("AUTO", State.PREPARING),
        ("STOP", State.STOPPED),
    ],
)
def test_the_trigger_states(dialect: Rigol, answer: str, state: State) -> None:
    assert converse(dialect.state(), [(":TRIGger:STATus?", answer)]) is state


def test_no_trigger_state_is_an_error() -> None:
    with pytest.raises(InstrumentError, match="trigger's state"):
        converse(DHO.state(), [(":TRIGger:STATus?", "1.0000E+06")])


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_stop_after_single_is_not_yet_the_end(dialect: Rigol) -> None:
    status = ":TRIGger:STATus?"
    pairs = [(":SINGle", None), (status, "STOP"), (status, "STOP"), (status, "RUN")]
    converse(dialect.arm(), pairs)


def test_an_instrument_that_stays_stopped_is_asked_only_so_often() -> None:
    sent = commands(DHO.arm(), {":TRIGger:STATus?": "STOP"})
    assert 1 < len(sent) < 100


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
    sent = commands(dialect.set_up(setup(points=points, channels=channels)))
    assert [command for command in sent if "MDEPth " in command] == [f":ACQuire:MDEPth {depth}"]


@pytest.mark.parametrize("answer", ["AUTO", "12000", "6.0000E+03"])
def test_a_depth_that_is_not_taken_is_refused_since_not_every_instrument_says_so(
    answer: str,
) -> None:
    with pytest.raises(InstrumentError, match="did not take a memory of 120000 points"):
        commands(DS1000Z.set_up(setup(points=50_000, channels=1)), {DEPTH: answer})


@pytest.mark.parametrize(
    ("dialect", "scale", "offset"),
    [(DS1000Z, "0.0001", "0.00048"), (MSO5000, "0.0001", "0.0004"), (DHO, "0.0001", "0.0004")],
)
def test_the_offset_of_the_time_base_is_the_instant_in_the_middle_of_the_screen(
    dialect: Rigol, scale: str, offset: str
) -> None:
    sent = commands(dialect.set_up(setup(span_s=1e-3)))
    assert [command for command in sent if ":MAIN:" in command] == [
        ":TIMebase:MAIN:SCALe 1E-6",
        f":TIMebase:MAIN:SCALe {scale}",
        f":TIMebase:MAIN:OFFSet {offset}",
    ]


def test_what_is_only_taken_while_running_comes_while_it_runs_and_scale_before_depth() -> None:
    sent = commands(DHO.set_up(setup()))
    order = [":RUN", ":TIMebase:MAIN:SCALe 0.0001", ":ACQuire:MDEPth 10k", ":STOP"]
    assert sorted(order, key=sent.index) == order
    assert sent[-1] == ":STOP"


def test_an_offset_moves_the_trace_up_so_it_is_the_opposite_of_the_voltage_in_the_middle() -> None:
    wanted = replace(setup(), channels=(Channel(1, offset_v=1.65, probe=10, deskew_s=5e-9),))
    sent = commands(RigolDs1000z(identity("DS1054Z")).set_up(wanted))
    order = [":CHANnel1:PROBe 10", ":CHANnel1:SCALe 1", ":CHANnel1:OFFSet -1.65"]
    assert sorted(order, key=sent.index) == order
    assert [f":CHANnel{channel}:DISPlay 0" in sent for channel in (1, 2, 3, 4)] == [False] + [
        True
    ] * 3


def test_a_model_with_two_inputs_is_not_told_of_four() -> None:
    dialect = RigolMso5000(identity("MSO5072"))
    assert not [command for command in commands(dialect.set_up(setup())) if "CHANnel3" in command]
    with pytest.raises(InstrumentError, match="has 2 inputs, and channel 3"):
        commands(dialect.set_up(setup(channels=3)))


@pytest.mark.parametrize(
    ("slope", "word"), [("rising", "POSitive"), ("falling", "NEGative"), ("either", "RFALl")]
)
def test_the_slopes(slope: str, word: str) -> None:
    wanted = setup()
    wanted = replace(wanted, trigger=replace(wanted.trigger, slope=slope))
    assert f":TRIGger:EDGE:SLOPe {word}" in commands(MSO5000.set_up(wanted))


def test_errors_are_read_until_there_is_none() -> None:
    error = '-113,"Undefined header; command error"'
    pairs = [(":SYSTem:ERRor?", error), (":SYSTem:ERRor?", '0,"No error"')]
    assert converse(DHO.errors(), pairs) == [error]


# -- segments -----------------------------------------------------------------------------------


def recording(model: str, frames: str = "5") -> Rigol:
    dialect = dialect_for(identity(model))
    assert isinstance(dialect, Rigol)
    replies: dict[str, str | bytes] = {f"{dialect.record}:WRECord:{dialect.frames}?": frames}
    commands(dialect.set_up(setup(segments=5)), replies)
    return dialect


def test_more_segments_than_fit_are_refused() -> None:
    with pytest.raises(InstrumentError, match="room for 3 segments"):
        recording("DHO924S", frames="3")


def test_while_it_records_single_is_not_said() -> None:
    dialect = recording("DHO924S")
    replies: dict[str, str | bytes] = {":TRIGger:STATus?": "RUN"}
    assert commands(dialect.arm(), replies)[0] == ":RECord:WRECord:OPERate RUN"
    assert commands(dialect.stop()) == [":RECord:WRECord:OPERate STOP"]
    sent = commands(recording("DS1054Z").arm(), replies)
    assert sent[0] == ":FUNCtion:WRECord:OPERate RUN"
    assert ":SINGle" not in sent


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
