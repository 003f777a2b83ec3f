"""Decides whether chronyd's clock is synchronised; its status "Normal" alone is not enough.

After its very first update chronyd says `Normal` with a skew of 1,000,000 ppm and a root
dispersion above a second (measured, chrony 4.3). So stratum, leap, skew and root distance are
all checked.
"""

from __future__ import annotations

from mqtick.service.chronyd_csv import Leap, Tracking

_NO_SOURCE = "00000000"
_LOCAL_MODE = "7F7F0101"
# A value equal to its limit is still accepted.
_MAXIMUM_STRATUM = 15
_MAXIMUM_SKEW_PPM = 100.0
_MAXIMUM_ROOT_DISTANCE_NS = 100_000_000


def why_not_synchronised(tracking: Tracking) -> str | None:
    """Return None if the clock is synchronised, else a sentence with value and limit."""
    if tracking.leap is Leap.UNSYNCHRONISED or tracking.refid == _NO_SOURCE:
        return "chronyd is not synchronised: it has selected no source yet; see: chronyc sources"
    if tracking.refid == _LOCAL_MODE:
        return (
            "chronyd is in local mode: the clock follows no source, it only claims to; "
            "wait for a source"
        )
    if not 1 <= tracking.stratum <= _MAXIMUM_STRATUM:
        return (
            f"the stratum is {tracking.stratum}, but must be from 1 to {_MAXIMUM_STRATUM}; "
            "see: chronyc sources"
        )
    if tracking.skew_ppm > _MAXIMUM_SKEW_PPM:
        return (
            f"the frequency is uncertain by {tracking.skew_ppm:g} ppm, but at most "
            f"{_MAXIMUM_SKEW_PPM:g} ppm are allowed; it falls with the first few updates"
        )
    if tracking.root_distance_ns > _MAXIMUM_ROOT_DISTANCE_NS:
        return (
            f"the clock's error may be {tracking.root_distance_ns / 1e9:g} s (root distance), but "
            f"at most {_MAXIMUM_ROOT_DISTANCE_NS / 1e9:g} s are allowed; "
            "wait for more updates, or check the path to the source"
        )
    return None
