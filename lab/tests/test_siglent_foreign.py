"""Drivers that others wrote read the simulated Siglents, and get what ours gets.

Where such a driver has a known fault, the test shows it, or says why its data are as they are.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from foreign_rig import read_with
from scope_rig import setup, simulated

from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.setup import Channel, Setup, Trigger
from mqtick.lab.scope.simulator.siglent import SiglentFront
from mqtick.lab.scope.simulator.siglent_wf import SiglentWfFront


@pytest.mark.slow
def test_pymeasures_driver_reads_the_same_volts() -> None:
    with simulated(SiglentFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(), 100_000)
        ours = scope.read([1, 2])
        theirs = read_with("siglent_pymeasure.py", instrument, [1, 2])
        scope.close()
    for channel, waveform in ours.items():
        np.testing.assert_allclose(theirs[f"v{channel}"], waveform.volts(), atol=1e-12)
        times = theirs[f"t{channel}"]
        steps_fs = np.diff(times) * 1e15
        np.testing.assert_allclose(steps_fs, waveform.interval_fs, rtol=1e-6)
        # Its table of time bases is another model's and takes 100 us a division for 50 us: it
        # places the record by half of ten divisions of that.
        assert times[0] == pytest.approx(waveform.start_fs / 1e15 + 5 * 50e-6)


@pytest.mark.slow
def test_pymeasures_driver_loses_a_last_sample_that_is_a_blank() -> None:
    quiet = dataclasses.replace(SiglentFront.physics, noise_v=0.0)
    # 3.3 V are 0x2080 then: octets 80 20, and the driver strips white space from the end.
    channels = (Channel(1, 1.0, 3.3 - 0x2080 / 7680),)
    with simulated(SiglentFront, quiet) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, Setup(channels, Trigger(1), 1e-3, points=10_000))
        ours = scope.read([1])[1]
        theirs = read_with("siglent_pymeasure.py", instrument, [1])
        scope.close()
    assert ours.codes[-1] == 0x2080
    assert theirs["v1"].size == ours.codes.size - 1
    np.testing.assert_allclose(theirs["v1"], ours.volts()[:-1], atol=1e-12)


@pytest.mark.slow
def test_pymeasures_driver_for_the_older_models_reads_the_same() -> None:
    class OneEnd(SiglentWfFront):
        """On a socket that driver takes the second line end for the next answer."""

        block_end = b"\n"

    # Nor can it have a line feed in the descriptor, as 1 V a division has (0.04 is 0A D7 23 3D).
    channels = (Channel(1, 5.0), Channel(2, 5.0))
    with simulated(OneEnd) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, Setup(channels, Trigger(1), 1e-3, points=7_000), 100_000)
        ours = scope.read([1, 2])
        theirs = read_with("siglent_wf_pymeasure.py", instrument, [1, 2])
        scope.close()
    for channel, waveform in ours.items():
        np.testing.assert_allclose(theirs[f"v{channel}"], waveform.volts(), atol=1e-6)
        times = [waveform.instant_fs(index) / 1e15 for index in range(waveform.codes.size)]
        np.testing.assert_allclose(theirs[f"t{channel}"], times, atol=1e-10)


@pytest.mark.slow
def test_pymeasures_driver_for_the_same_instrument_of_lecroy_reads_the_same() -> None:
    with simulated(SiglentWfFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(points=7_000), 100_000)
        ours = scope.read([1, 2])
        theirs = read_with("siglent_wf_lecroy.py", instrument, [1, 2])
        scope.close()
    delay_s = 0.4 * 14 * 100e-6  # which that driver leaves out of its times
    for channel, waveform in ours.items():
        np.testing.assert_allclose(theirs[f"v{channel}"], waveform.volts(), atol=1e-9)
        times = [waveform.instant_fs(index) / 1e15 for index in range(waveform.codes.size)]
        np.testing.assert_allclose(theirs[f"t{channel}"] + delay_s, times, atol=1e-12)
