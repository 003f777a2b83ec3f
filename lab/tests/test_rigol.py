"""The Rigol dialects: pairs of command and reply, and the simulated instruments."""

from __future__ import annotations

import pytest
from scope_rig import setup, simulated

from mqtick.analysis.edges import find_edges
from mqtick.lab.oscilloscope import Oscilloscope
from mqtick.lab.simulator import Front
from mqtick.lab.simulator.rigol_series import (
    RigolDhoFront,
    RigolDs1000zFront,
    RigolMso5000Front,
)

FRONTS = [RigolDs1000zFront, RigolMso5000Front, RigolDhoFront]


@pytest.mark.parametrize("front", FRONTS)
def test_a_shot_has_its_edges_where_they_were(front: type[Front]) -> None:
    with simulated(front) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        assert scope.dialect.name == front.name
        instrument.shot(scope, setup(points=100_000), 123_456)
        found = scope.read([1, 2])
        scope.close()
    first, second = (find_edges(found[channel])[0] for channel in (1, 2))
    assert first.rising
    assert second.rising
    assert abs(first.instant_fs) < 20e6
    assert second.instant_fs - first.instant_fs == pytest.approx(123_456e6, abs=20e6)
