"""Drivers that others wrote read the simulated Rigols, and find the samples that ours does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from foreign_rig import read_with
from scope_rig import Simulated, setup, simulated

from mqtick.analysis.signals.waveform import Waveform
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.simulator.rigol import RigolFront
from mqtick.lab.scope.simulator.rigol_series import (
    RigolDhoFront,
    RigolDs1000zFront,
    RigolMso5000Front,
)

pytestmark = pytest.mark.slow


@contextmanager
def shot(front: type[RigolFront]) -> Iterator[tuple[Simulated, dict[int, Waveform]]]:
    """A simulated instrument with one shot in it, and what our driver reads of it."""
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        instrument.shot(scope, setup(points=10_000), 123_456)
        ours = scope.read([1, 2])
        scope.close()
        yield instrument, ours


def instants_s(waveform: Waveform) -> npt.NDArray[np.float64]:
    indices = np.arange(waveform.codes.size)
    return np.asarray((waveform.start_fs + indices * waveform.interval_fs) * 1e-15)


def stretched_s(waveform: Waveform) -> npt.NDArray[Any]:
    """The time axis with its end included, which is a fault: it is longer by one interval."""
    times_s = instants_s(waveform)
    end_s = times_s[0] + times_s.size * waveform.interval_fs * 1e-15
    return np.linspace(times_s[0], end_s, times_s.size)


@pytest.mark.parametrize("front", [RigolDs1000zFront, RigolMso5000Front])
def test_qcodes_finds_the_same_volts(front: type[RigolFront]) -> None:
    with shot(front) as (instrument, ours):
        theirs = read_with("rigol_qcodes.py", instrument, [1, 2])
    for channel, waveform in ours.items():
        np.testing.assert_array_equal(theirs[f"v{channel}"], waveform.volts())
        # Its known fault: linspace with the end point.
        np.testing.assert_allclose(theirs[f"t{channel}"], stretched_s(waveform), atol=1e-15)


def test_qcodes_finds_the_same_volts_in_the_dho_but_for_the_sign_of_its_words() -> None:
    with shot(RigolDhoFront) as (instrument, ours):
        theirs = read_with("rigol_qcodes.py", instrument, [1, 2])
    for channel, waveform in ours.items():
        # Its other fault: it takes words for signed ones, so that half of them lie 2**16 lower.
        lower = (waveform.codes >= 1 << 15) * float(1 << 16) * waveform.volts_per_code
        assert lower.any()
        assert not lower.all()
        np.testing.assert_allclose(theirs[f"v{channel}"] + lower, waveform.volts(), atol=1e-9)


@pytest.mark.parametrize("front", [RigolMso5000Front, RigolDhoFront])
def test_pymso5000_and_pydho800_find_the_same_samples(front: type[RigolFront]) -> None:
    with shot(front) as (instrument, ours):
        theirs = read_with("rigol_labdevices.py", instrument, [1, 2])
    for channel, waveform in ours.items():
        # The instrument writes seven digits; they add up the intervals one by one.
        np.testing.assert_allclose(theirs[f"v{channel}"], waveform.volts(), rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(theirs[f"t{channel}"], instants_s(waveform), atol=1e-15)
