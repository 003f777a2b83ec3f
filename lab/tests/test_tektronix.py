"""The Tektronix dialects as pairs of command and reply; values from the programmer manuals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scope_rig import converse, first_edges, opened, sent, usual

from mqtick.lab.scope.contributed.tektronix.answers import FIELDS
from mqtick.lab.scope.contributed.tektronix.dialect import Tektronix
from mqtick.lab.scope.contributed.tektronix.front import TektronixFront
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import Identity
from mqtick.lab.scope.settings import ChannelSettings, State, Trigger
from mqtick.recording.waveform import Waveform

# The example of WFMOutpre? in 077-1149 (TBS2000): 100 mV and 4 us a division, 10,000 points.
MANUAL = "1;4;4.0000E-9;0;-20.0000E-6;15.6250E-6;6.4000E+3;0.0000;2;RI;MSB"
MSO = "1;4;3.2000E-9;2;1.2500E-10;2.0E-4;0.0E+0;1.65;2;RI;LSB"


def mso(model: str = "MSO54") -> Tektronix:
    return Tektronix(Identity.parse(f"TEKTRONIX,{model},C012345,CF:91.1CT FV:1.30"))


def select(channel: int, width: int, last: int, reply: str) -> list[tuple[str, str | None]]:
    asked = ";".join([f":SELect:CH{channel}?", *(f":WFMOutpre:{name}?" for name in FIELDS)])
    return [
        ("HEADer 0", None),
        (f"DATa:SOUrce CH{channel}", None),
        ("DATa:ENCdg SRIbinary", None),
        (f"DATa:WIDth {width}", None),
        ("DATa:STARt 1", None),
        (f"DATa:STOP {last}", None),
        (asked, reply),
    ]


def read_mso(reply: str, data: bytes | None, model: str = "MSO54") -> Waveform:
    width = 2 if model.startswith("MSO5") else 1
    pairs = select(2, width, 1_000_000_000, reply)
    if data is not None:
        pairs.append(("CURVe?", data))
    return converse(mso(model).read(2), pairs)


def test_the_example_of_the_manual_is_a_tenth_of_a_volt_a_division() -> None:
    data = np.array([6400, 0, 12800, 6400], ">i2").tobytes()
    pairs = [("HORizontal:RECOrdlength?", "20000")]
    pairs += [*select(2, 1, 20_000, MANUAL), ("CURVe?", data)]
    waveform = converse(mso("TBS1102C").read(2), pairs)
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
        converse(mso("TBS1102C").state(), [("ACQuire:STATE?;:TRIGger:STATE?", reply)])


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


GAINS = {f"CH{number}:PRObe:GAIN?": "0.1" for number in (1, 2)}


def test_the_4000_series_is_set_by_scale_and_record_length() -> None:
    commands = sent(mso("DPO4054").set_up(usual(span_s=1e-3, points=50_000)))
    assert "HORizontal:RECOrdlength 100000" in commands
    assert "HORizontal:SCAle 0.0001" in commands
    assert "HORizontal:POSition 10" in commands
    assert "CH1:PRObe:GAIN 0.1" in commands
    assert "TRIGger:A:LEVel:CH1 1.65" in commands
    assert "SELect:CH3 0" in commands


def test_the_4000_series_rounds_up_to_the_next_scale() -> None:
    assert "HORizontal:SCAle 0.0004" in sent(mso("DPO4054").set_up(usual(span_s=2.1e-3)))


def test_the_5_series_is_set_by_rate_and_record_length_and_the_probes_own_gain_counts() -> None:
    answers = {
        "CH1:PRObe:GAIN?": "100.0000E-3",
        "CH2:PRObe:GAIN?": "1.0000",
        "HORizontal:MODE:SAMPLERate?": "12.5000E+6",
        "HORizontal:MODE:RECOrdlength?": "12500",
    }
    commands = sent(mso().set_up(usual(span_s=1e-3, points=10_000)), answers)
    assert "HORizontal:MODE:SAMPLERate 10000000" in commands
    assert "HORizontal:MODE:RECOrdlength 12500" in commands  # the span stays what was wanted
    assert "CH1:PROBEFunc:EXTAtten 1" in commands
    assert "CH2:PROBEFunc:EXTAtten 10" in commands
    assert "HORizontal:FASTframe:STATE 0" in commands  # as someone may have left it


def test_a_record_that_does_not_fit_the_memory_is_refused() -> None:
    answers = GAINS | {"HORizontal:MODE:RECOrdlength?": "1000"}
    with pytest.raises(InstrumentError, match="records 1000 points at most, but 10000 are needed"):
        sent(mso().set_up(usual(channels=1)), answers)


def test_the_new_tbs_speaks_like_the_larger_ones() -> None:
    commands = sent(mso("TBS1102C").set_up(usual(span_s=1e-3, points=100_000)))
    assert "HORizontal:RECOrdlength 20000" in commands  # all that it has
    assert "HORizontal:POSition 10" in commands
    assert "CH1:PRObe:GAIN 0.1" in commands
    assert "TRIGger:A:LEVel:CH1 1.65" in commands
    assert not any("MAIn" in command or "CH3" in command for command in commands)


@pytest.mark.parametrize("model", ["TBS1102C", "DPO2024B"])
def test_either_edge_is_refused_where_there_is_none(model: str) -> None:
    wanted = replace(usual(), trigger=Trigger(1, slope="either"))
    with pytest.raises(InstrumentError, match="one direction only"):
        sent(mso(model).set_up(wanted))


def test_a_channel_that_is_not_there_is_refused() -> None:
    wanted = replace(usual(), channels=(ChannelSettings(1), ChannelSettings(3)))
    with pytest.raises(InstrumentError, match="has 2 inputs, but channel 3"):
        sent(mso("TBS1102C").set_up(wanted))


def test_an_offset_that_the_tbs_would_clip_is_refused() -> None:
    wanted = replace(usual(), channels=(ChannelSettings(1, volts_per_division=0.2, offset_v=1.65),))
    with pytest.raises(InstrumentError, match=r"by 5 divisions at most, .* needs 8\.25"):
        sent(mso("TBS1102C").set_up(wanted))


def test_either_edge_triggers_the_mso() -> None:
    wanted = replace(usual(span_s=1e-4, points=2000), trigger=Trigger(1, slope="either"))
    with opened(TektronixFront) as (instrument, scope):
        instrument.model.feed.add(1, 0, True)
        scope.set_up(wanted)
        assert scope.arm()
        instrument.edges(rising=False)
        assert scope.wait(2.0)
        (edge,) = first_edges(scope.read([1]))
    assert not edge.rising


def test_what_the_instrument_does_not_know_is_told_in_its_words() -> None:
    with opened(TektronixFront) as (instrument, scope):
        instrument.front.answer("HORizontal:FOO 1")
        refused = scope.play(scope.dialect.errors())
        again = scope.play(scope.dialect.errors())
    assert refused == ["113 Undefined header;HORizontal:FOO 1"]
    assert again == []
