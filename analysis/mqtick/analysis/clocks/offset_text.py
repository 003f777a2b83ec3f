"""Two columns of text: when, and a clock's time error.

A line of names has to say what they are, with their units: `time [s],offset [ns]`, `# t_s
offset_us`, `seconds;local-reference [us]`. An offset is reference minus local, as everywhere;
`local-reference` says that it is the other way round. Where there is no such line, the user says
the units. Between the columns stands a comma, a semicolon, a tab, or spaces; where it is not a
comma, 1,5 is one and a half. Lines that begin with # are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from mqtick.analysis.clocks.clock_log import Value
from mqtick.analysis.instants import since_1970

_UNITS: Final = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12}
_UNIT: Final = r"(?:[ _]?[\[(]?(?P<{}>ms|[uµ]s|ns|ps|s)[\])]?)"
_TAU: Final = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?) ?(s|ms|us|ns|)")
_NUMBER: Final = re.compile(r"[-+]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][-+]?\d+)?")
_HEADING: Final = re.compile(
    r"[#%\s\"]*"
    rf"(?:(?:time|timestamp|elapsed|zeit|t){_UNIT.format('time')}|seconds|epoch"
    r"|(?P<bare>time|timestamp|date))"
    r"\"?(?P<between>\s*[,;\t]\s*|\s+)\"?"
    r"(?:(?P<local>local(?: minus |-)ref(?:erence)?)"
    r"|offset|time[ _]error|error|te|ref(?:erence)?(?: minus |-)local)"
    rf"{_UNIT.format('offset')}[\s\"]*"
)


def reader_below(line: str, row: str = "") -> Callable[[str], Value | None] | None:
    """Return what reads the rows below a line of names; `row` is the first one.

    None where the line does not name a time and an offset, each with a unit of time; dates need
    none.
    """
    found = _HEADING.fullmatch(line.lower().lstrip("\ufeff").replace("μ", "µ"))
    if found is None:
        return None
    date = row.split(found["between"].strip(" ") or None, maxsplit=1)[0] if row.strip() else ""
    if found["bare"] and since_1970(date) == date:
        return None
    units = ColumnUnits(
        _UNITS[found["time"] or ""], _UNITS[found["offset"]] * (-1e9 if found["local"] else 1e9)
    )
    return reader_in(units, found["between"].strip(" "), line.strip())


class ColumnUnits(NamedTuple):
    """What 1 in each of two columns is: a time in s, and an error in ns.

    `to_ns` is below 0 where offsets are local minus reference. Of one column, which has the errors,
    `tau_s` is the time from row to row in s.
    """

    to_s: float
    to_ns: float
    tau_s: float = 0.0


def units_of(text: str) -> ColumnUnits:
    """Return the units that a user says, `s,ns` or `s,-ns` (local minus reference); ValueError."""
    tau, _, alone = text.replace("µ", "u").rpartition(":")
    if tau:
        number = _TAU.fullmatch(tau.strip())
        interval_s = float(number[1]) * _UNITS[number[2]] if number else 0.0
        if not (0 < interval_s <= 1e6 and alone.strip().removeprefix("-") in _UNITS):
            raise ValueError(
                f"{text!r}: of one column, say the time from row to row and the unit of the "
                "offsets, as in 1s:ns"
            )
        return ColumnUnits(1.0, units_of(f"s,{alone or 's'}").to_ns, interval_s)
    time, _, offset = (word.strip() for word in text.replace("µ", "u").partition(","))
    unit = offset.removeprefix("-")
    if not (time and unit and {time, unit} <= _UNITS.keys()):
        raise ValueError(
            f"{text!r}: say the unit of the times and that of the offsets, each s, ms, us, ns or "
            "ps, as in s,ns (or s,-ns where offsets are local minus reference)"
        )
    return ColumnUnits(_UNITS[time], _UNITS[unit] * (-1e9 if offset.startswith("-") else 1e9))


def delimiter_of(line: str) -> str | None:
    """Return what stands between the two numbers of a line, None where it has not two."""
    for delimiter in ("\t", ";", ",", ""):
        cells = line.lstrip("\ufeff").split(delimiter or None)
        if len(cells) == 2 and all(_NUMBER.fullmatch(cell.strip()) for cell in cells):
            return delimiter
    return None


def reader_in(
    units: ColumnUnits, delimiter: str, heading: str = ""
) -> Callable[[str], Value | None]:
    """Return what reads rows of two numbers in these units."""

    def row(text: str) -> Value | None:
        text = text.lstrip("\ufeff").strip()
        if not text or text.startswith(("#", "%")) or text == heading:
            return None
        cells = text.split(delimiter or None)
        if len(cells) != 2:
            raise ValueError(f"it has {len(cells)} columns instead of 2")
        if delimiter != ",":
            cells = [cell.replace(",", ".") for cell in cells]
        stamp_s, error_ns = (
            float(since_1970(cells[0].strip())) * units.to_s,
            float(cells[1]) * units.to_ns,
        )
        return Value("", stamp_s, error_ns, math.nan)

    return row
