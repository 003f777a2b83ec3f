"""Lines of ntpd's loopstats and peerstats, and of ppstest, from what they document.

- loopstats: day (MJD), seconds, offset in s, frequency, jitter, wander, poll. The offset is the
  server's time minus the local one, as here, after ntpd's filters; nothing bounds it.
- peerstats: day, seconds, address, status, offset, delay, dispersion, jitter. The same, for each
  peer; it may be off by half the delay and the dispersion.
- ppstest: the local time of each pulse of a reference, which is at a whole second. The error is
  that second minus the local time. Which second it was is not known, so it is within half of one.
"""

from __future__ import annotations

import math
import re
from typing import Final

from mqtick.analysis.clocks.clock_log import Value

_MJD_1970: Final = 40_587
_STAMP: Final = r"([45678]\d{4}) +(\d{1,5}(?:\.\d+)?)"
_NUMBER: Final = r"([-+]?\d+\.\d+(?:[eE][-+]?\d+)?)"
_LOOP: Final = re.compile(rf"{_STAMP} +{_NUMBER}(?: +{_NUMBER}){{3}} +\d\d?\s*")
_PEER: Final = re.compile(
    rf"{_STAMP} +(\S*[.:(]\S*) +[0-9a-f]{{3,5}} +{_NUMBER} +{_NUMBER} +{_NUMBER}(?: +{_NUMBER})?\s*"
)
_PULSE: Final = re.compile(r"source (\d+) - assert (\d{9,10})\.(\d{9}), sequence: \d+.*")


def _stamp_s(day: str, seconds: str) -> float:
    return (int(day) - _MJD_1970) * 86_400 + float(seconds)


def loop(line: str) -> Value | None:
    """Return what a line of loopstats says, None for any other."""
    found = _LOOP.fullmatch(line)
    if found is None:
        return None
    return Value("", _stamp_s(found[1], found[2]), float(found[3]) * 1e9, math.nan)


def peer(line: str) -> Value | None:
    """Return what a line of peerstats says, None for any other."""
    found = _PEER.fullmatch(line)
    if found is None:
        return None
    offset_s, delay_s, third_s = (float(found[place]) for place in (4, 5, 6))
    # Before version 4 the third one was the jitter, which bounds nothing.
    off_ns = math.nan if found[7] is None else (delay_s / 2 + third_s) * 1e9
    return Value(found[3], _stamp_s(found[1], found[2]), offset_s * 1e9, off_ns)


def pulse(line: str) -> Value | None:
    """Return what a line of ppstest says, None for any other."""
    found = _PULSE.fullmatch(line.strip())
    if found is None:
        return None
    after_ns = int(found[3])
    error_ns = -after_ns if after_ns < 500_000_000 else 10**9 - after_ns
    return Value(f"source {found[1]}", int(found[2]) + after_ns * 1e-9, error_ns, math.nan)
