"""Drivers that others wrote read the simulated Keysight, and find what our own finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from foreign_rig import read_with
from scope_rig import setup, simulated

from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.simulator.keysight import KeysightFront


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "atol"),
    [
        ("keysight_pymeasure.py", 1e-5),  # it asks for text, which has seven digits
        ("keysight_keyoscacquire.py", 1e-9),  # for signed words
    ],
)
def test_others_read_the_samples_that_we_read(script: str, atol: float) -> None:
    physics = replace(KeysightFront.physics, depths=(10_000,))
    with simulated(KeysightFront, physics) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(), 123_456)
        ours = scope.read([1, 2])
        scope.close()
        theirs = read_with(script, instrument, [1, 2])
    for channel, waveform in ours.items():
        volts, times = theirs[f"v{channel}"], theirs[f"t{channel}"]
        assert volts.size == waveform.codes.size == 10_000
        np.testing.assert_allclose(volts, waveform.volts(), atol=atol)
        start_s, interval_s = waveform.start_fs * 1e-15, waveform.interval_fs * 1e-15
        np.testing.assert_allclose(
            times, start_s + np.arange(volts.size) * interval_s, atol=interval_s * 1e-3
        )
