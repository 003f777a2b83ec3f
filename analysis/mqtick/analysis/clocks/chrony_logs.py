"""Lines of chrony's own logs: tracking.log, measurements.log, statistics.log, refclocks.log.

Columns, units and signs are those of chrony's documentation (chrony.conf, directive `log`). The
logs do not agree about the sign. Here, as everywhere, an error is reference minus local:

- measurements.log, column 12: positive where the local clock is slow. It is taken as it is, and
  may be off by half the delay (13) and the dispersion (14) of the path to that source.
- statistics.log, column 5: positive where the local clock is fast. It is negated. Its standard
  deviation is no bound.
- tracking.log, column 7: positive where chronyd's estimate of the time is fast. The system clock
  lags behind that estimate by the correction that remains from the update before (column 11,
  positive where the system clock is slow), so that the system clock's error is column 11 minus
  column 7. It may be off by half the root delay (12) and the root dispersion (13).
- refclocks.log, column 8: the error of each raw sample with corrections applied, the reference
  clock's time minus the local one. It is taken as it is; it may be off by its dispersion (9).
  Filtered samples (a dash in column 4) are made of these, and left out.

Date and time are UTC, in whole seconds. Offsets are in s.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Final

from mqtick.analysis.clocks.clock_log import LeftOutError, Value

_NS: Final = 1e9
_LEAP: Final = frozenset("N+-?")
_TESTS: Final = re.compile(r"[01]{3,4}$")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d$")

BANNERS: Final = {
    "tracking": b"Freq ppm",
    "measurements": b"LP RP Score",
    "statistics": b"Std dev'n",
    "refclocks": b"Cooked offset",
}
"""What stands in the heading of each log and of no other."""


def _cells(line: str, least: int) -> list[str] | None:
    """Return a row's cells; None for headings and empty lines. ValueError says what is wrong."""
    cells = line.split()
    if not cells or line.startswith(("=", " ")):
        return None
    if not _DATE.match(cells[0]):
        raise ValueError("it does not begin with a date")
    if len(cells) < least:
        raise ValueError(f"it has {len(cells)} columns, fewer than {least}")
    return cells


def _stamp_s(cells: list[str]) -> float:
    try:
        return datetime.fromisoformat(f"{cells[0]} {cells[1]}+00:00").timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{cells[0]} {cells[1][:12]} is not a date and time") from None


def _ns(cell: str) -> float:
    value = float(cell) * _NS
    if not math.isfinite(value):
        raise ValueError(f"{cell[:20]} is not a number of seconds")
    return value


def tracking(line: str) -> Value | None:
    """Return what a line of tracking.log says: the error of the system clock."""
    cells = _cells(line, 13)
    if cells is None:
        return None
    if cells[7] not in _LEAP or not cells[3].isdecimal():
        raise ValueError("its columns are not those of tracking.log")
    if cells[7] == "?":  # the offset is then 0, which nobody measured
        raise LeftOutError("chronyd was not synchronised")
    error_ns = _ns(cells[10]) - _ns(cells[6])
    return Value("", _stamp_s(cells), error_ns, _ns(cells[11]) / 2 + _ns(cells[12]))


def measurement(line: str) -> Value | None:
    """Return what a line of measurements.log says: the error against one source."""
    cells = _cells(line, 16)
    if cells is None:
        return None
    if cells[3] not in _LEAP or not all(map(_TESTS.match, cells[5:8])):
        raise ValueError("its columns are not those of measurements.log")
    off_ns = _ns(cells[12]) / 2 + _ns(cells[13])
    return Value(cells[2], _stamp_s(cells), _ns(cells[11]), off_ns)


def statistic(line: str) -> Value | None:
    """Return what a line of statistics.log says: the estimated error against one source."""
    cells = _cells(line, 12)
    if cells is None:
        return None
    if not all(cell.isdecimal() for cell in cells[9:12]):
        raise ValueError("its columns are not those of statistics.log")
    return Value(cells[2], _stamp_s(cells), -_ns(cells[4]), math.nan)


def refclock(line: str) -> Value | None:
    """Return what a line of refclocks.log says: the error against one reference clock."""
    cells = _cells(line, 9)
    if cells is None:
        return None
    if cells[4] not in _LEAP or cells[5] not in ("0", "1", "-") or "." not in cells[1]:
        raise ValueError("its columns are not those of refclocks.log")
    if cells[3] == "-":
        return None
    return Value(cells[2], _stamp_s(cells), _ns(cells[7]), _ns(cells[8]))
