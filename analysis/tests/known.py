"""What tests take for known, told to the type checker too."""

from __future__ import annotations

from typing import TypeVar

from mqtick.analysis.statistics.estimate import Estimate

T = TypeVar("T")


def known(value: T | None) -> T:
    assert value is not None
    return value


def ends(estimate: Estimate | None) -> tuple[float, float]:
    found = known(estimate)
    return known(found.low), known(found.high)
