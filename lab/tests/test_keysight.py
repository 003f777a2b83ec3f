"""The Keysight dialect: pairs of command and reply, and the simulated instrument."""

from __future__ import annotations

import numpy as np
import pytest
from scope_rig import converse, setup, simulated

from mqtick.analysis.signals.edges import find_edges
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import Identity
from mqtick.lab.scope.dialects.keysight import Keysight
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.setup import State
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
    assert waveform.trigger_phase_fs == 500_000


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


@pytest.mark.parametrize(
    ("model", "channels"),
    [("DSO-X 3034A", 4), ("DSOX1102G", 2), ("EDUX1052A", 2), ("MSO-X 6004A", 4), ("DSO9", 4)],
)
def test_only_channels_that_the_model_has_are_switched_off(model: str, channels: int) -> None:
    dialect = Keysight(Identity("KEYSIGHT TECHNOLOGIES", model, "", ""))
    steps = [getattr(step, "command", "") for step in dialect.set_up(setup(channels=1))]
    off = [f":CHANnel{channel}:DISPlay 0" for channel in range(2, channels + 1)]
    assert [step for step in steps if step.endswith("DISPlay 0")] == off


def test_a_shot_of_the_simulated_instrument_has_its_edges_where_they_were() -> None:
    with simulated(KeysightFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        assert scope.dialect.name == "keysight"
        instrument.shot(scope, setup(), 123_456)
        found = scope.read([1, 2])
        scope.close()
    first, second = (find_edges(found[channel])[0] for channel in (1, 2))
    assert first.rising
    assert second.rising
    assert abs(first.instant_fs) < 20e6
    assert second.instant_fs - first.instant_fs == pytest.approx(123_456e6, abs=20e6)


def test_no_more_points_are_read_than_were_asked_for() -> None:
    with simulated(KeysightFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(points=15_000), 123_456)
        found = scope.read([1, 2])
        scope.close()
    assert [waveform.codes.size for waveform in found.values()] == [20_000, 20_000]
    first, second = (find_edges(found[channel])[0] for channel in (1, 2))
    assert second.instant_fs - first.instant_fs == pytest.approx(123_456e6, abs=50e6)


def test_segments_carry_their_instants() -> None:
    with simulated(KeysightFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(segments=3), 50_000)
        segments = scope.read_segments([1, 2])
        frames = instrument.model.frames
        scope.close()
    assert len(segments) == 3
    for segment, frame in zip(segments, frames, strict=True):
        truth_s = (frame.trigger_ns - frames[0].trigger_ns) / 1e9
        assert segment.time_s == pytest.approx(truth_s, abs=1e-9)
        edges = [find_edges(segment.waveforms[channel])[0] for channel in (1, 2)]
        assert edges[1].instant_fs - edges[0].instant_fs == pytest.approx(50e9, abs=20e6)


def test_the_screen_is_a_picture() -> None:
    with simulated(KeysightFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        assert scope.screenshot().startswith(b"\x89PNG")
        scope.close()
