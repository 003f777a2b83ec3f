"""One stability measure over observation intervals."""

from __future__ import annotations

from dataclasses import dataclass

from mqtick.recording.units import Floats

__all__ = ["Deviation"]


@dataclass(frozen=True, slots=True, eq=False)
class Deviation:
    """One stability measure over observation intervals.

    Attributes:
        name: "MTIE", "TDEV" or "ADEV".
        tau_s: observation intervals in s.
        value: MTIE and TDEV in ns, ADEV without unit.
        low, high: confidence interval, None for MTIE (a maximum, it has none).
    """

    name: str
    tau_s: Floats
    value: Floats
    low: Floats | None = None
    high: Floats | None = None
