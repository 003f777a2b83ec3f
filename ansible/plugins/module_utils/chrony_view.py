"""What chronyd itself says of a host's clock, from `chronyc -c`.

Signs: field 5 of tracking, the system time, is positive when the clock is slow, so it is *reference
minus local* as everywhere here. The fields of `sources` that count the other way are not used.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.mqtick.fleet.plugins.module_utils.hostile import dict_of, text_of

_STATES = {
    "*": "follows {}",
    "+": "combines {}",
    "-": "does not use {}",
    "?": "cannot select {}",
    "x": "says that {} disagrees with the majority",
    "~": "says that {} varies too much",
}
_LEAPS = ("Normal", "Insert second", "Delete second", "Not synchronised")
MAXIMUM_SKEW_PPM = 100.0
"""After its very first update chronyd says "Normal" with a skew of 1,000,000 ppm."""
LOCAL_MODE = "7F7F0101"


@dataclass(frozen=True)
class ChronyView:
    """What chronyd says; `trouble` is a sentence, empty when nothing is wrong."""

    text: str
    trouble: str = ""
    source: str = ""
    source_state: str = ""
    stratum: int | None = None
    leap: str = ""
    skew_ppm: float | None = None
    system_offset_ns: int | None = None
    """Reference minus local: what chronyd still has to slew away, ns."""
    root_distance_ns: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return asdict(self)


def chrony_view(tracking: object, sources: object, expected: str = "") -> ChronyView:
    """Judge both answers of chronyc; `expected` is the source that should be followed (MQT0)."""
    found = _tracking(dict_of(tracking).get("out"))
    if found is None:
        said = text_of(dict_of(tracking).get("out")) or text_of(dict_of(tracking).get("err"))
        if "No such file" in said:
            return ChronyView("not installed", "chrony is not installed" if expected else "")
        return ChronyView("no answer", f"chronyd does not answer: {said or 'it says nothing'}")
    refid, name, stratum, system_offset_s, skew_ppm, root_distance_s, leap = found
    states = _sources(dict_of(sources).get("out"))
    source = expected or name
    state = states.get(source, "")
    trouble = _trouble(refid, leap, skew_ppm, expected, state)
    what = _STATES.get(state, "does not know {}").format(source)
    if refid == LOCAL_MODE:
        what = "is in local mode"
    elif not source or (leap == "Not synchronised" and state in "*"):
        what = "follows nothing"
    elif name and state != "*" and name != source:
        what += f", follows {name}"
    if skew_ppm > MAXIMUM_SKEW_PPM:
        what += ", has just begun"
    return ChronyView(
        what,
        trouble,
        source=source,
        source_state=state,
        stratum=stratum,
        leap=leap,
        skew_ppm=skew_ppm,
        system_offset_ns=round(system_offset_s * 1e9),
        root_distance_ns=round(root_distance_s * 1e9),
    )


def _trouble(refid: str, leap: str, skew_ppm: float, expected: str, state: str) -> str:
    if refid == LOCAL_MODE:
        return "chronyd is in local mode: it follows nothing and only claims to know the time"
    if leap == "Not synchronised" or refid == "00000000":
        return f"chronyd follows nothing{_why(expected, state)}"
    if expected and not state:
        return f"chronyd does not know the source {expected}: it was not told, or not restarted"
    if expected and state not in "*+":
        return f"chronyd {_STATES[state].format(expected)}"
    if skew_ppm > MAXIMUM_SKEW_PPM:
        return (
            f"chronyd has just begun: its frequency is uncertain by {skew_ppm:g} ppm, "
            f"at most {MAXIMUM_SKEW_PPM:g} ppm is good"
        )
    return ""


def _why(expected: str, state: str) -> str:
    if not expected:
        return ""
    return f" and {_STATES[state].format(expected)}" if state else f" and does not know {expected}"


def _tracking(text: object) -> tuple[str, str, int, float, float, float, str] | None:
    field = text.strip().split(",") if isinstance(text, str) else []
    if len(field) < 14 or not re.fullmatch("[0-9A-F]{8}", field[0]) or field[13] not in _LEAPS:
        return None
    try:
        stratum = int(field[2])
        system_offset_s, skew_ppm, delay_s, dispersion_s = (
            float(field[place]) for place in (4, 9, 10, 11)
        )
    except ValueError:
        return None
    numbers = (system_offset_s, skew_ppm, delay_s, dispersion_s)
    if not 0 <= stratum <= 16 or not all(math.isfinite(n) and abs(n) < 1e9 for n in numbers):
        return None
    distance_s = abs(system_offset_s) + dispersion_s + delay_s / 2
    return (
        field[0],
        text_of(field[1], 60),
        stratum,
        system_offset_s,
        skew_ppm,
        distance_s,
        field[13],
    )


def _sources(text: object) -> dict[str, str]:
    lines = text.splitlines()[:1000] if isinstance(text, str) else []
    fields = [line.split(",") for line in lines]
    return {
        text_of(field[2], 60): field[1]
        for field in fields
        if len(field) >= 10 and field[1] in _STATES
    }
