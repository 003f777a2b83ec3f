"""The Keysight dialect as pairs of command and reply."""

from __future__ import annotations

import numpy as np
import pytest
from scope_rig import apart_fs, converse, opened, usual

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import Identity
from mqtick.lab.scope.dialects.keysight import Keysight
from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator.keysight import KeysightFront

IDENTITY = Identity.parse("KEYSIGHT TECHNOLOGIES,DSO-X 3034A,MY1,02.50")
SELECT = [
    (":WAVeform:SOURce CHANnel2", None),
    (":WAVeform:POINts:MODE RAW", None),
    (":WAVeform:POINts MAXimum", None),
    (":WAVeform:FORMat WORD", None),
    (":WAVeform:BYTeorder LSBFirst", None),
    (":WAVeform:UNSigned 1", None),
]
PREAMBLE = "+1,+0,+4,+1,+1.00000000E-09,-2.50000000E-09,+0,+2.0E-04,+1.65000000E+00,+32768"


def test_volts_count_from_the_reference_code_to_the_origin_in_volts() -> None:
    data = np.array([32768, 32768, 40768, 24768], "<u2").tobytes()
    waveform = converse(
        Keysight(IDENTITY).read(2),
        [*SELECT, (":WAVeform:PREamble?", PREAMBLE), (":WAVeform:DATA?", data)],
    )
    np.testing.assert_allclose(waveform.volts(), [1.65, 1.65, 3.25, 0.05])
    assert (waveform.interval_fs, waveform.start_fs) == (1_000_000, -2_500_000)


@pytest.mark.parametrize("preamble", ["+0", "", "+1,+0,+4", PREAMBLE.replace("+4", "+5"), "9.9E37"])
def test_a_preamble_that_does_not_fit_the_data_is_refused(preamble: str) -> None:
    pairs = [*SELECT, (":WAVeform:PREamble?", preamble)]
    if preamble.count(",") > 8:
        pairs.append((":WAVeform:DATA?", bytes(8)))
    with pytest.raises(InstrumentError):
        converse(Keysight(IDENTITY).read(2), pairs)


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ("+0", State.STOPPED),
        ("+40", State.ARMED),
        ("+8", State.PREPARING),
        ("+4128", State.STOPPED),
    ],
)
def test_the_run_bit_of_the_condition_register_says_when_it_is_done(
    condition: str, state: State
) -> None:
    pairs = [(":OPERegister:CONDition?", condition)]
    assert converse(Keysight(IDENTITY).state(), pairs) is state


def test_no_more_points_are_read_than_were_asked_for() -> None:
    with opened(KeysightFront) as (instrument, scope):
        instrument.shot(scope, usual(points=15_000), 123_456)
        found = scope.read([1, 2])
    assert [waveform.codes.size for waveform in found.values()] == [20_000, 20_000]
    assert apart_fs(found) == pytest.approx(123_456e6, abs=50e6)
