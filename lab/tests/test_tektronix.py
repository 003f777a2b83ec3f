"""The Tektronix dialects as pairs of command and reply; values from the programmer manuals."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scope_rig import converse, setup
from tektronix_rig import FIELDS, MANUAL, MSO, dialect, mso, select, tds

from mqtick.analysis.signals.waveform import Waveform
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import Dialect
from mqtick.lab.scope.dialects.tektronix import Tektronix
from mqtick.lab.scope.dialects.tektronix_tds import TektronixTds
from mqtick.lab.scope.setup import Channel, State, Trigger


def read_mso(reply: str, data: bytes | None, model: str = "MSO54") -> Waveform:
    width = 2 if model.startswith("MSO5") else 1
    pairs = select(2, width, 1_000_000_000, "WFMOutpre", reply)
    if data is not None:
        pairs.append(("CURVe?", data))
    return converse(mso(model).read(2), pairs)


@pytest.mark.parametrize(
    ("model", "name", "inputs"),
    [
        ("MSO54", "tektronix", 4),
        ("MSO58LP", "tektronix", 8),
        ("MSO24", "tektronix", 4),
        ("MSO64B", "tektronix", 4),
        ("DPO4054", "tektronix", 4),
        ("MDO3012", "tektronix", 2),
        ("DPO7054C", "tektronix", 4),
        ("DPO70804C", "tektronix", 4),
        ("TBS1102C", "tektronix-tds", 2),
        ("TBS2104B", "tektronix-tds", 4),
        ("TDS 2014C", "tektronix-tds", 4),
        ("TDS 210", "tektronix-tds", 2),
    ],
)
def test_the_model_says_which_dialect_and_how_many_inputs(
    model: str, name: str, inputs: int
) -> None:
    found = dialect(f"TEKTRONIX,{model},0,CF:91.1CT FV:v1")
    assert found.name == name
    assert isinstance(found, Tektronix | TektronixTds)
    assert found.inputs == inputs


def test_the_example_of_the_manual_is_a_tenth_of_a_volt_a_division() -> None:
    data = np.array([6400, 0, 12800, 6400], ">i2").tobytes()
    pairs = [("HORizontal:RECOrdlength?", "20000")]
    pairs += [*select(2, 1, 20_000, "WFMPre", MANUAL), ("CURVe?", data)]
    waveform = converse(tds().read(2), pairs)
    np.testing.assert_allclose(waveform.volts(), [0, -0.1, 0.1, 0], atol=1e-12)
    assert (waveform.interval_fs, waveform.start_fs) == (4_000_000, -20_000_000_000)


def test_the_trigger_lies_between_the_points_where_xzero_says() -> None:
    waveform = read_mso(MSO, np.array([0, 8000, -8250, 1], "<i2").tobytes())
    np.testing.assert_allclose(waveform.volts(), [1.65, 3.25, 0.0, 1.6502])
    # The third point is the first one after the trigger, by 125 ps.
    assert waveform.start_fs + 2 * waveform.interval_fs == 125_000


def test_octets_are_read_as_the_instrument_says_not_as_it_was_asked() -> None:
    reply = MSO.replace("2;RI;LSB", "1;RP;MSB").replace("0.0E+0", "128")
    waveform = read_mso(reply, bytes([128, 255, 0, 129]), "DPO4054")
    np.testing.assert_allclose(waveform.volts(), 1.65 + np.array([0, 127, -128, 1]) * 2e-4)


def test_a_header_that_was_left_on_does_no_harm() -> None:
    names = [":SELECT:CH2", *(f":WFMOUTPRE:{name.upper()}" for name in FIELDS)]
    reply = ";".join(f"{name} {value}" for name, value in zip(names, MSO.split(";"), strict=True))
    assert read_mso(reply, bytes(8)).interval_fs == 3_200_000


@pytest.mark.parametrize(
    ("reply", "data", "words"),
    [
        ("0", None, "switched off"),
        ("0;" + MSO[2:], None, "switched off"),
        ("1", None, "0 of 10 fields"),
        ("", None, "switched off"),
        (MSO.replace("2.0E-4", "9.91E37"), None, "9.91E37"),
        (MSO.replace("2.0E-4", "-2.0E-4"), None, "not a valid waveform"),
        (MSO.replace("1;4;", "1;0;"), None, "not a valid waveform"),
        (MSO.replace("1;4;", "1;-4;"), None, "not a valid waveform"),
        (MSO.replace("3.2000E-9", "0"), None, "not a valid waveform"),
        (MSO.replace("2;RI", "4;FP"), None, "not a valid waveform"),
        (MSO.replace("RI", "XX"), None, "not a valid waveform"),
        (MSO.replace("RI", ""), None, "not a valid waveform"),
        (MSO, bytes(7), "sent 7 octets"),
        (MSO, b"", "sent 0 octets"),
    ],
)
def test_what_is_no_waveform_is_refused_with_a_sentence(
    reply: str, data: bytes | None, words: str
) -> None:
    with pytest.raises(InstrumentError, match=words):
        read_mso(reply, data)


PART = st.one_of(
    st.sampled_from(("0", "1", "2", "4", "RI", "RP", "LSB", "MSB", "1E-9", "inf", "nan", '"', "")),
    st.floats().map(str),
    st.text(alphabet="0123456789.E+-# ", max_size=6),
)


@given(st.lists(PART, min_size=9, max_size=11), st.binary(max_size=16))
def test_no_answer_makes_anything_else_than_a_waveform_or_a_sentence(
    parts: list[str], data: bytes
) -> None:
    with contextlib.suppress(InstrumentError):
        waveform = read_mso(";".join(["1", *parts]), data)
        assert waveform.codes.size * waveform.codes.itemsize == len(data)
        assert waveform.interval_fs > 0


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        ("0;SAVE", State.STOPPED),
        ("1;READY", State.ARMED),
        ("1;REA", State.ARMED),
        ("1;ARMED", State.PREPARING),
        ("1;TRIGGER", State.TRIGGERED),
        ("1;SAVE", State.TRIGGERED),
        ("1;AUTO", State.PREPARING),
        (":ACQUIRE:STATE 1;:TRIGGER:STATE READY", State.ARMED),
    ],
)
def test_armed_means_that_the_part_before_the_trigger_is_not_there_yet(
    reply: str, state: State
) -> None:
    assert converse(mso().state(), [("ACQuire:STATE?;:TRIGger:STATE?", reply)]) is state


@pytest.mark.parametrize("reply", ["", "1", "READY", "2;READY", "1;2;3"])
def test_a_state_that_is_none_is_refused(reply: str) -> None:
    with pytest.raises(InstrumentError, match="state of the acquisition"):
        converse(tds().state(), [("ACQuire:STATE?;:TRIGger:STATE?", reply)])


@pytest.mark.parametrize(
    ("reply", "refused"),
    [
        ('0,"No events to report - queue empty"', []),
        ('1,"No events to report - new events pending *ESR?"', []),
        (
            '113,"Undefined header; unrecognized command - HORI:FOO",528,"Parameter out of range"',
            ["113 Undefined header; unrecognized command - HORI:FOO"],
        ),
        (
            '2244,"Source waveform is not active",402,"Operation complete"',
            ["2244 Source waveform is not active"],
        ),
        ("", []),
    ],
)
def test_events_are_refusals_but_for_warnings_and_what_is_usual(
    reply: str, refused: list[str]
) -> None:
    assert converse(mso().errors(), [("*ESR?", "32"), ("ALLEv?", reply)]) == refused


TIME = {"HORizontal:MODE:SAMPLERate?": "1E7", "HORizontal:MODE:RECOrdlength?": "10000"}


def sent(found: Dialect, wanted: object, answers: dict[str, str]) -> list[str]:
    """Return the commands of a set-up; queries are answered from a table."""
    commands: list[str] = []
    conversation = found.set_up(wanted)  # type: ignore[arg-type]
    reply: str | None = None
    try:
        while True:
            step = conversation.send(reply)
            command: str = getattr(step, "command", "")
            commands.append(command)
            reply = answers[command] if command.endswith("?") else None
    except StopIteration:
        return commands


def test_the_4000_series_is_set_by_scale_and_record_length() -> None:
    commands = sent(mso("DPO4054"), setup(span_s=1e-3, points=50_000), {})
    assert "HORizontal:RECOrdlength 100000" in commands
    assert "HORizontal:SCAle 0.0001" in commands
    assert "HORizontal:POSition 10" in commands
    assert "CH1:PRObe:GAIN 0.1" in commands
    assert "TRIGger:A:LEVel:CH1 1.65" in commands
    assert "SELect:CH3 0" in commands


def test_the_4000_series_rounds_up_to_the_next_scale() -> None:
    assert "HORizontal:SCAle 0.0004" in sent(mso("DPO4054"), setup(span_s=2.1e-3), {})


def test_the_5_series_is_set_by_rate_and_record_length_and_the_probes_own_gain_counts() -> None:
    answers = {
        "CH1:PRObe:GAIN?": "100.0000E-3",
        "CH2:PRObe:GAIN?": "1.0000",
        "HORizontal:MODE:SAMPLERate?": "12.5000E+6",
        "HORizontal:MODE:RECOrdlength?": "12500",
    }
    commands = sent(mso(), setup(span_s=1e-3, points=10_000), answers)
    assert "HORizontal:MODE:SAMPLERate 10000000" in commands
    assert "HORizontal:MODE:RECOrdlength 12500" in commands  # the span stays what was wanted
    assert "CH1:PROBEFunc:EXTAtten 1" in commands
    assert "CH2:PROBEFunc:EXTAtten 10" in commands
    assert "HORizontal:FASTframe:STATE 0" in commands


def test_a_record_that_does_not_fit_the_memory_is_refused() -> None:
    answers = TIME | {"CH1:PRObe:GAIN?": "0.1", "HORizontal:MODE:RECOrdlength?": "1000"}
    with pytest.raises(InstrumentError, match="records 1000 points at most, but 10000 are needed"):
        sent(mso(), setup(channels=1), answers)


def test_the_7000_series_has_one_trigger_level_and_another_delay() -> None:
    gains = {f"CH{number}:PRObe:GAIN?": "0.1" for number in (1, 2)}
    commands = sent(mso("DPO7054C"), setup(), gains | TIME)
    assert "TRIGger:A:LEVel 1.65" in commands
    assert "HORizontal:MAIn:DELay:MODe 0" in commands


def test_the_old_tds_places_the_middle_of_the_screen_in_seconds() -> None:
    commands = sent(tds("TDS 2014C"), setup(span_s=1e-3), {})
    assert "HORizontal:MAIn:SCAle 0.0001" in commands
    assert "HORizontal:MAIn:POSition 0.0004" in commands  # a tenth before the trigger
    assert "CH1:PRObe 10" in commands
    assert "CH1:POSition -1.65" in commands
    assert "TRIGger:MAIn:LEVel 1.65" in commands
    assert not any("RECOrdlength" in command for command in commands)


def test_the_new_tbs_speaks_like_the_larger_ones() -> None:
    commands = sent(tds("TBS1102C"), setup(span_s=1e-3, points=100_000), {})
    assert "HORizontal:RECOrdlength 20000" in commands  # all that it has
    assert "HORizontal:POSition 10" in commands
    assert "CH1:PRObe:GAIN 0.1" in commands
    assert "TRIGger:A:LEVel:CH1 1.65" in commands
    assert not any("MAIn" in command or "CH3" in command for command in commands)


@pytest.mark.parametrize("model", ["TBS1102C", "TDS 2014C", "DPO2024B"])
def test_either_edge_is_refused_where_there_is_none(model: str) -> None:
    wanted = replace(setup(), trigger=Trigger(1, slope="either"))
    with pytest.raises(InstrumentError, match="one direction only"):
        sent(dialect(f"TEKTRONIX,{model},0,1"), wanted, {})


@pytest.mark.parametrize("model", ["TBS1102C", "TDS 2014C", "DPO4054", "MSO24"])
def test_segments_are_refused_where_there_are_none(model: str) -> None:
    with pytest.raises(InstrumentError, match="set segments = 1"):
        sent(dialect(f"TEKTRONIX,{model},0,1"), setup(segments=5), {})


def test_a_channel_that_is_not_there_is_refused() -> None:
    wanted = replace(setup(), channels=(Channel(1), Channel(3)))
    with pytest.raises(InstrumentError, match="has 2 inputs, but channel 3"):
        sent(tds("TBS1102C"), wanted, {})


def test_an_offset_that_the_tbs_would_clip_is_refused() -> None:
    wanted = replace(setup(), channels=(Channel(1, volts_per_division=0.2, offset_v=1.65),))
    with pytest.raises(InstrumentError, match=r"by 5 divisions at most, .* needs 8\.25"):
        sent(tds("TBS1102C"), wanted, {})


def test_more_frames_than_fit_are_refused() -> None:
    answers = {f"CH{number}:PRObe:GAIN?": "0.1" for number in (1, 2)}
    answers |= TIME | {"HORizontal:FASTframe:COUNt?": "125"}
    with pytest.raises(InstrumentError, match="takes 125 frames"):
        sent(mso(), setup(segments=1000), answers)
