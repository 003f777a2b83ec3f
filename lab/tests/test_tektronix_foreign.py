"""Drivers that others wrote read the simulated Tektronix, and find what our own find."""

from __future__ import annotations

import numpy as np
import pytest
from foreign_rig import read_with
from scope_rig import setup, simulated

from mqtick.analysis.signals.waveform import Waveform
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.simulator import Front
from mqtick.lab.scope.simulator.tektronix import TektronixMsoFront
from mqtick.lab.scope.simulator.tektronix_dpo import TektronixDpoFront
from mqtick.lab.scope.simulator.tektronix_tds import TektronixTdsFront

pytestmark = pytest.mark.slow


def times_s(waveform: Waveform) -> np.ndarray:
    return (waveform.start_fs + np.arange(waveform.codes.size) * waveform.interval_fs) * 1e-15


def both(front: type[Front], script: str) -> tuple[dict[int, Waveform], dict[str, np.ndarray]]:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(), 123_456)
        ours = scope.read([1, 2])
        scope.close()
        return ours, read_with(script, instrument, [1, 2])


def test_tm_devices_reads_the_samples_and_instants_that_we_read() -> None:
    ours, theirs = both(TektronixMsoFront, "tektronix_tm_devices.py")
    for channel, waveform in ours.items():
        np.testing.assert_allclose(theirs[f"v{channel}"], waveform.volts(), atol=1e-9)
        np.testing.assert_allclose(theirs[f"t{channel}"], times_s(waveform), atol=1e-13)


def test_qcodes_dpo_reads_the_samples_that_we_read() -> None:
    ours, theirs = both(TektronixDpoFront, "tektronix_qcodes_dpo.py")
    for channel, waveform in ours.items():
        np.testing.assert_allclose(theirs[f"v{channel}"], waveform.volts(), atol=1e-9)
        # It counts from the first point instead of the trigger, and takes the end for a point.
        count = waveform.codes.size
        from_first_s = times_s(waveform) - waveform.start_fs * 1e-15
        np.testing.assert_allclose(theirs[f"t{channel}"] * (count - 1) / count, from_first_s)


def test_qcodes_tps2012_reads_the_samples_that_we_read() -> None:
    ours, theirs = both(TektronixTdsFront, "tektronix_qcodes_tps2012.py")
    for channel, waveform in ours.items():
        np.testing.assert_allclose(theirs[f"v{channel}"], waveform.volts(), atol=1e-6)
        # It takes the end of the record for a point of it, so that its times are stretched.
        count, start_s = waveform.codes.size, waveform.start_fs * 1e-15
        right_s = start_s + (theirs[f"t{channel}"] - start_s) * (count - 1) / count
        np.testing.assert_allclose(right_s, times_s(waveform), atol=1e-12)


def test_tm_devices_finds_the_same_frames() -> None:
    with simulated(TektronixMsoFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(span_s=1e-4, points=1000, segments=3), 20_000)
        ours = scope.read_segments([1, 2])
        scope.close()
        theirs = read_with("tektronix_tm_devices.py", instrument, [1, 2])
    for channel in (1, 2):
        volts = np.concatenate([segment.waveforms[channel].volts() for segment in ours])
        np.testing.assert_allclose(theirs[f"v{channel}"], volts, atol=1e-9)
