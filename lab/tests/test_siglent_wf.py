"""Siglent's older command set: pairs of command and reply, and the simulated SDS1104X-E.

Values from the programming guide PG01-E02 (p. 142 f.) and from what an SDS1072CML answered
(pymeasure, tests of SDS1072CML).
"""

from __future__ import annotations

import numpy as np
import pytest
from scope_rig import apart_fs, converse, opened, sent, usual

from mqtick.lab.scope.block import read_block
from mqtick.lab.scope.contributed.siglent.wf import SiglentWf
from mqtick.lab.scope.contributed.siglent.wf_front import SiglentWfFront
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import Identity
from mqtick.lab.scope.simulator import Faults

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
    pairs = reading(vdiv, ofst, sara, trdl, data)
    with pytest.raises(InstrumentError):
        sent(SiglentWf(IDENTITY).read(1), {key: value for key, value in pairs if value is not None})


@pytest.mark.parametrize(
    "head", [b"C1:WF DAT2,", b"DAT2,", b"C1:WF ALL,", b"", b"\nDAT2,", b"\n\nC1:WF DAT2,"]
)
def test_the_header_before_a_block_depends_on_model_and_settings(head: bytes) -> None:
    answer = iter(head + b"#9000000004 \n#\x7f\n\n")
    found = read_block(
        lambda count: bytes(next(answer) for _ in range(count)), prefix=b"C1:WF DAT2,"
    )
    assert found == b" \n#\x7f"


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
    with opened(SiglentWfFront, faults=faults) as (instrument, scope):
        instrument.shot(scope, usual(), 100_000)
        faults.once.add("drop")  # the first answer of the reading is the one to INR?
        assert set(scope.read([1, 2])) == {1, 2}
        assert faults.done["drop"] == 1


def test_commands_that_are_dropped_are_sent_again() -> None:
    with opened(SiglentWfFront) as (instrument, scope):
        lost = ["CHDR", "C1:VDIV", "C2:TRA", "TRDL", "MSIZ", "TRSE", "C1:TRLV", "TRMD SINGLE"]
        vars(instrument.front)["lost"] += lost
        instrument.shot(scope, usual(), 100_000)
        assert apart_fs(scope.read([1, 2])) == pytest.approx(100e9, abs=200e6)
        assert not vars(instrument.front)["lost"]


def test_a_setting_that_does_not_arrive_twice_is_named() -> None:
    with opened(SiglentWfFront) as (instrument, scope):
        vars(instrument.front)["lost"] += ["C1:OFST", "C1:OFST"]
        with pytest.raises(InstrumentError, match=r"refused a setting: C1:OFST -1\.65"):
            scope.set_up(usual())
        scope.set_up(usual())


def test_a_trigger_level_that_is_multiplied_by_the_probe_is_found_out() -> None:
    class Multiplies(SiglentWfFront):
        level_times_probe = True

    with opened(Multiplies) as (instrument, scope):
        scope.set_up(usual())
        assert instrument.model.trigger_level_v == pytest.approx(1.65)


def test_a_stop_by_hand_is_a_sentence() -> None:
    with opened(SiglentWfFront) as (instrument, scope):
        instrument.shot(scope, usual(), 100_000)
        assert scope.arm()
        instrument.front.answer("STOP")
        assert scope.wait(1.0)
        with pytest.raises(InstrumentError, match="not acquired a signal"):
            scope.play(scope.dialect.read(1))
