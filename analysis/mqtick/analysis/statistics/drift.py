"""Whether a quantity drifted within the run."""

from __future__ import annotations

from dataclasses import dataclass

from mqtick.analysis.statistics.estimate import Estimate

__all__ = ["Drift"]


@dataclass(frozen=True, slots=True)
class Drift:
    """A line over time.

    Attributes:
        us_per_hour: its slope.
        total_us: what it makes over the whole run.
        significant: whether its interval leaves 0 out.
    """

    us_per_hour: Estimate
    total_us: float
    significant: bool
