"""The Rigol dialects as pairs of command and reply: read, asked for their state."""

from __future__ import annotations

import numpy as np
import pytest
from rigol_rig import ALL, DEPTH, DHO, DS1000Z, MSO5000, identity
from scope_rig import converse, sent

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects.rigol import Rigol
from mqtick.lab.scope.dialects.rigol_series import RigolDs1000z
from mqtick.lab.scope.settings import State

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


def page(first: int, last: int, data: bytes) -> list[tuple[str, str | bytes | None]]:
    return [
        (f":WAVeform:STARt {first}", None),
        (f":WAVeform:STOP {last}", None),
        (":WAVeform:DATA?", data),
    ]


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
    assert -waveform.start_fs % waveform.interval_fs == 5_000_000


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
        sent(dialect.read(1), replies)


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
    steps = sent(DHO.arm(), {":TRIGger:STATus?": "STOP"})
    assert 1 < len(steps) < 100
