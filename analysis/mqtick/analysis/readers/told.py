"""What the lines above a text file's rows say: pairs of a key and its values, and the time base."""

from __future__ import annotations

import re
from typing import Final

from mqtick.analysis.readers.columns import cells_of, number
from mqtick.analysis.readers.units import unit_of

__all__ = ["first_of", "interval_in", "rows_in", "sane", "told_in"]

_LINE: Final = re.compile(
    r"[\s;#%\"]*(?P<key>[A-Za-z][A-Za-z ._-]*?) *(?:[(\[](?P<unit>[^)\]]*)[)\]])?[\s\"]*"
    r"[:=,;\t](?P<values>.*)"
)
_VALUE: Final = re.compile(
    r"(?<![\w.])([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\d.]) *([A-Za-z\u00b5\u03bc/]*)"
)
_HERTZ: Final = re.compile(r"([kmg]?)(?:hz|sa/s|s/s|sps)")
_POWERS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_RATES: Final = {"samplerate", "samplingrate", "samplefrequency", "samplingfrequency"}
_INTERVALS: Final = {
    *("sampleinterval", "samplinginterval", "sampleperiod", "samplingperiod", "timeinterval"),
    *("hresolution", "xinc", "xincrement", "tinc", "deltat", "sampletime"),
}
_LENGTHS: Final = {"recordlength", "memorylength", "samplecount", "blocksize", "segmentsize"}


def told_in(lines: list[str], delimiter: str = ",") -> dict[str, list[str]]:
    """Return what lines of a key and its values say, and LeCroy's with several keys."""
    told: dict[str, list[str]] = {}
    for line in lines:
        cells = cells_of(line, delimiter) or [""]
        told.setdefault(cells[0].rstrip("= "), cells[1:])
        if cells[0] == "Segments":
            told.update(
                (key, [value]) for key, value in zip(cells[2::2], cells[3::2], strict=False)
            )
    return told


def first_of(told: dict[str, list[str]], *keys: str) -> str:
    """Return the first value of the first of these keys, without the channel in front of it."""
    found = next((told[key] for key in keys if told.get(key)), [""])
    return found[0].rpartition(":")[2].strip()


def sane(value: float, most: float) -> float:
    """Return a number of a head, 0 where it is out of range."""
    return value if 0 < value < most else 0.0


def interval_in(lines: list[str]) -> float:
    """Return the time between two samples in s that a head says, as a rate or as itself.

    0 where it does not, or says several: those are not of the rows.
    """
    for line in lines:
        key, unit, values = _pair(line)
        if key in _RATES:
            found = {_hertz(value, unit) for value in values}
            rate = found.pop() if len(found) == 1 else 0.0
            if rate > 0:
                return sane(1 / rate, 1e3)
        elif key in _INTERVALS:
            apart = {float(n) * (unit_of(of or unit or "s", "s") or 0) for n, of in values}
            if len(apart) == 1 and (interval := sane(apart.pop(), 1e3)):
                return interval
    return 0.0


def rows_in(lines: list[str]) -> int:
    """Return how many rows a head announces, 0 where it does not say it."""
    for line in lines:
        key, _, values = _pair(line)
        if key in _LENGTHS and values and values[0][1].casefold() in ("", "samples", "points"):
            return int(sane(number(values[0][0]), 1e12))
    return 0


def _pair(line: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Return key, unit of the key, and values of a line with their units."""
    found = _LINE.match(line)
    if found is None:
        return "", "", []
    key = re.sub("[ ._-]", "", found["key"]).casefold()
    return key, found["unit"] or "", _VALUE.findall(found["values"])


def _hertz(value: tuple[str, str], unit: str) -> float:
    """Return a rate in Hz, 0 where its unit is none; nobody means millihertz."""
    found = _HERTZ.fullmatch((value[1] or unit or "Hz").casefold())
    return float(value[0]) * _POWERS[found[1]] if found else 0.0
