"""Drivers that others wrote read the simulated instruments, and find what ours finds.

Where such a driver has a known fault, the test shows it, or says why its data are as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from foreign_rig import read_with
from scope_rig import opened, usual

from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings
from mqtick.lab.scope.simulator import FRONTS, Physics
from mqtick.recording.waveform import Waveform

pytestmark = pytest.mark.slow
Times = npt.NDArray[np.float64]


def both(
    family: str, script: str, wanted: ScopeSettings, physics: Physics | None = None
) -> tuple[dict[int, Waveform], dict[str, npt.NDArray[Any]]]:
    """Take a shot, and return what our driver and the other one read of it."""
    with opened(FRONTS[family], physics) as (instrument, scope):
        instrument.shot(scope, wanted, 123_456)
        ours = scope.read([each.number for each in wanted.channels])
        return ours, read_with(script, instrument, list(ours))


def right_s(waveform: Waveform) -> Times:
    indices = np.arange(waveform.codes.size)
    return np.asarray((waveform.start_fs + indices * waveform.interval_fs) * 1e-15)


def stretched_s(waveform: Waveform) -> Times:
    """The time axis with its end included, which is a fault: it is longer by one interval."""
    times_s = right_s(waveform)
    end_s = times_s[0] + times_s.size * waveform.interval_fs * 1e-15
    return np.linspace(times_s[0], end_s, times_s.size)


def half_a_screen_late_s(waveform: Waveform) -> Times:
    """Its table of time bases is another model's and takes 100 us a division for 50 us."""
    return right_s(waveform) + 5 * 50e-6


def without_the_delay_s(waveform: Waveform) -> Times:
    """It leaves the trigger delay out of its times."""
    return right_s(waveform) - 0.4 * 14 * 100e-6


@dataclass(frozen=True)
class Case:
    """How exactly a driver's volts and times are those that it is to find."""

    family: str
    script: str
    volts: float = 1e-9
    times: float = 1e-12
    expected_s: Callable[[Waveform], Times] = right_s
    relative: float = 0.0


@pytest.mark.parametrize(
    "case",
    [
        Case("keysight", "keysight_pymeasure.py", volts=1e-5),  # as text, which has seven digits
        Case("keysight", "keysight_keyoscacquire.py"),  # as signed words
        Case("rigol-ds1000z", "rigol_qcodes.py", expected_s=stretched_s),
        Case("rigol-mso5000", "rigol_qcodes.py", expected_s=stretched_s),
        # The instrument writes seven digits; they add up the intervals one by one.
        Case("rigol-mso5000", "rigol_labdevices.py", relative=1e-6),
        Case("rigol-dho", "rigol_labdevices.py", relative=1e-6),
        Case("siglent", "siglent_pymeasure.py", times=1e-9, expected_s=half_a_screen_late_s),
        Case("siglent-wf", "siglent_wf_lecroy.py", expected_s=without_the_delay_s),
        Case("tektronix", "tektronix_tm_devices.py"),
    ],
    ids=lambda case: f"{case.family}-{case.script}",
)
def test_others_read_the_samples_and_instants_that_we_read(case: Case) -> None:
    # With as many samples as were asked for: some drivers read all that there are.
    physics = replace(FRONTS["keysight"].physics, depths=(10_000,))
    ours, theirs = both(
        case.family, case.script, usual(), physics if case.family == "keysight" else None
    )
    for channel, waveform in ours.items():
        np.testing.assert_allclose(
            theirs[f"v{channel}"], waveform.volts(), rtol=case.relative, atol=case.volts
        )
        expected_s = case.expected_s(waveform)
        np.testing.assert_allclose(theirs[f"t{channel}"], expected_s, rtol=1e-7, atol=case.times)


def test_qcodes_finds_the_same_volts_in_the_dho_but_for_the_sign_of_its_words() -> None:
    ours, theirs = both("rigol-dho", "rigol_qcodes.py", usual())
    for channel, waveform in ours.items():
        # It takes words for signed ones, so that half of them lie 2**16 lower.
        lower = (waveform.codes >= 1 << 15) * float(1 << 16) * waveform.volts_per_code
        assert lower.any()
        assert not lower.all()
        np.testing.assert_allclose(theirs[f"v{channel}"] + lower, waveform.volts(), atol=1e-9)


def test_pymeasures_driver_loses_a_last_sample_that_is_a_blank() -> None:
    quiet = replace(FRONTS["siglent"].physics, noise_v=0.0)
    # 3.3 V are 0x2080 then: octets 80 20, and the driver strips white space from the end.
    wanted = replace(usual(), channels=(ChannelSettings(1, 1.0, 3.3 - 0x2080 / 7680),))
    ours, theirs = both("siglent", "siglent_pymeasure.py", wanted, quiet)
    assert ours[1].codes[-1] == 0x2080
    assert theirs["v1"].size == ours[1].codes.size - 1
    np.testing.assert_allclose(theirs["v1"], ours[1].volts()[:-1], atol=1e-12)
