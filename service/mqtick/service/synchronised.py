"""When chronyd's word "Normal" may be believed.

After its very first update chronyd says ``Normal`` with a skew of 1,000,000 ppm and a root
dispersion above a second (measured, chrony 4.3).  So stratum, leap, skew and root distance are
all checked.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqtick.service.chronyd_csv import Leap, Tracking

_NO_SOURCE = "00000000"
_LOCAL_MODE = "7F7F0101"


@dataclass(frozen=True, slots=True)
class SyncLimits:
    """What is good enough to be called synchronised; each limit itself still is."""

    maximum_stratum: int = 15
    maximum_skew_ppm: float = 100.0
    maximum_root_distance_ns: int = 100_000_000
    is_local_allowed: bool = False
    """Whether chronyd's local mode counts: the clock then follows nothing, but says its time."""


def why_not_synchronised(tracking: Tracking, limits: SyncLimits | None = None) -> str | None:
    """Return None if the clock is synchronised, else a sentence with value and limit."""
    limits = limits or SyncLimits()
    if tracking.leap is Leap.UNSYNCHRONISED or tracking.refid == _NO_SOURCE:
        return "chronyd is not synchronised: it has selected no source yet; see: chronyc sources"
    if tracking.refid == _LOCAL_MODE and not limits.is_local_allowed:
        return (
            "chronyd is in local mode: the clock follows no source, it only claims to; "
            "wait for a source, or allow local mode if the fleet needs no outside time"
        )
    if not 1 <= tracking.stratum <= limits.maximum_stratum:
        return (
            f"the stratum is {tracking.stratum}, but must be from 1 to {limits.maximum_stratum}; "
            "see: chronyc sources"
        )
    if tracking.skew_ppm > limits.maximum_skew_ppm:
        return (
            f"the frequency is uncertain by {tracking.skew_ppm:g} ppm, but at most "
            f"{limits.maximum_skew_ppm:g} ppm are allowed; it falls with the first few updates"
        )
    if tracking.root_distance_ns > limits.maximum_root_distance_ns:
        return (
            f"the clock's error may be {tracking.root_distance_ns / 1e9:g} s (root distance), but "
            f"at most {limits.maximum_root_distance_ns / 1e9:g} s are allowed; "
            "wait for more updates, or check the path to the source"
        )
    return None


def is_synchronised(tracking: Tracking, limits: SyncLimits | None = None) -> bool:
    """Whether the clock is synchronised by all of stratum, leap, skew and root distance."""
    return why_not_synchronised(tracking, limits) is None
