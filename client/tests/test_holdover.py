"""Holdover means that nothing is heard: not that one kind of sample ended and another took over."""

from __future__ import annotations

import sys
from pathlib import Path

from mqtick.client.estimate import State
from mqtick.client.estimator import Estimator
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.sample import Kind

sys.path.insert(0, str(Path(__file__).parent))
from test_estimator import SECOND, broadcast, exchange


def test_where_exchanges_end_broadcasts_take_over_before_holdover() -> None:
    estimator = Estimator(EstimatorSettings())
    states = set()
    for tenth in range(1500):
        at_s = tenth / 10
        if tenth % 160 == 0 and at_s <= 64:
            estimator.add(exchange(at_s, kind=Kind.TWO_WAY))
        if tenth % 10 == 5:
            estimator.add(broadcast(at_s))
        states.add(estimator.at(round(at_s * SECOND)).state)
    assert states == {State.SYNCHRONISED}
