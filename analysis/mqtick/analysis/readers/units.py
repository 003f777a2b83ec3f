"""Units in the names of columns: read where they are plain, refused where they may mean two things.

A unit stands in brackets behind the name (`CH 1 (mV)`, `CH1 [mV]`), behind "in" (`C1 in mV`), in a
row of its own, or at the end of the name (`CH1 mV`, `CH1_mV`, `U1/mV`). What stands elsewhere
(`mV_CH1`), or could be another unit (`MV`), is no guess of ours: numbers that are taken for volts
and are millivolts have edges at the right times, and amplitudes that are wrong by a thousand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from mqtick.recording.capture import CaptureError

_TIMES: Final = {
    *("time", "t", "x", "timestamp", "zeit", "temps", "tiempo", "tempo", "x-axis", "x_value"),
    *("elapsed time", "relative time", "rel. time", "time axis", "elapsed"),
}
_SECONDS: Final = {"second", "seconds", "sec", "s"}
_POWERS: Final = {
    "": 1.0,
    "k": 1e3,
    "m": 1e-3,
    "u": 1e-6,
    "n": 1e-9,
    "p": 1e-12,
    "kilo": 1e3,
    "milli": 1e-3,
    "micro": 1e-6,
    "nano": 1e-9,
    "pico": 1e-12,
}
_UNIT: Final = {
    # Nobody means megaseconds: MS in a head of capitals is ms.
    "s": re.compile(r"(milli|micro|nano|pico|[munp]?) ?(?:s|secs?|seconds?)", re.I),
    "V": re.compile(
        r"(kilo|milli|micro|nano|[kmun]?) ?(?:(?<![kun])v|V|[vV]olts?)(?: ?[ADad][Cc])?"
    ),
}
_BRACKETS: Final = "()[]{}<>"
_SPLIT: Final = re.compile(
    r"(.*?)\s*(?:\(([^()]*)\)|\[([^\[\]]*)\]|\{([^{}]*)\}|<([^<>]*)>|\s+in\s+(\S+))\s*$"
)
_AT_END: Final = re.compile(r"(.*[^\s_/:,.|-])(?:[\s_/:,.|-]+|(?<=\d))([A-Za-z]+)\s*$")
_A_NUMBER: Final = re.compile(r"(.*?)[\s_]*\b\d[\d.]*")
_NUMBERED: Final = re.compile(
    r"(?:.*[\W_])?(?:ch|chan|channel|kanal|voie|canal|ai|ain|adc|in|input|probe|trace|math|ref|"
    r"signal|voltage|volts?)",
    re.I,
)
"""What has a number that is not one of millivolts: CH 2 mV, but not offset 5 mV."""
_DOUBTFUL: Final = (
    re.compile(r"(?<![a-z])[kmung]v(?:olts?)?(?![a-z0-9])", re.I),
    re.compile(r"[A-Za-z]mV(?![a-z])"),
    re.compile(r"[\[({<][\s*x\xd7]*(?:0?\.0*1|10*e[-+]?\d+|10 ?\^ ?-?\d+|10+) ?V\s*[\])}>]"),
    re.compile(r"[*\xd7] ?\d"),
)
"""What may say that a column is not in V: a unit, or a factor, where none is read."""
_OTHER: Final = re.compile(
    r"[mun]?A|[mk]?W|[kM]?Hz|[mk]?Ohm|[mk]?\u03a9|dBm?|%|\xb0?[CF]|K|"
    r"counts?|codes?|adc|raw|lsbs?|div|bits?",
    re.I,
)
"""Units that are not of volts, and of which a report has to say that its volts are none."""
_BARE: Final = re.compile(
    r"(?<![\w.%/])(?<!\d )(?:[munp]s|[kmun]V|(?:milli|micro|nano)\w+)(?![\w/])"
)


def _plain(text: str) -> str:
    return text.replace("µ", "u").replace("μ", "u")


def unit_of(text: str, of: Literal["s", "V"]) -> float | None:
    """Return the factor of a unit to its base ("mV" of "V" is 0.001), None if it is not one."""
    found = _UNIT[of].fullmatch(_plain(text).strip().strip(_BRACKETS).strip())
    return _POWERS[found[1].casefold()] if found else None


def split_unit(cell: str) -> tuple[str, str]:
    """Return name and unit of a column: "CH 1 (mV)", "CH1 [mV]", "C1 in mV"."""
    found = _SPLIT.match(f" {cell}")
    if not found:
        return cell.strip(), ""
    return found[1].strip(), next((each for each in found.groups()[1:] if each), "").strip()


def _at_end(cell: str, of: Literal["s", "V"]) -> tuple[str, str]:
    """Return name and unit of "CH1_mV", of which only the end may be a unit."""
    found = _AT_END.match(_plain(cell))
    if found is None or unit_of(found[2], of) is None:
        return cell, ""
    return found[1], found[2]


def time_unit(cell: str) -> str | None:
    """Return the unit of a time's name ("" where it has none), None where it is not a time."""
    name, unit = split_unit(cell)
    if not unit:
        name, unit = _at_end(name, "s")
    known = name.casefold().replace("_", " ")
    if known in _TIMES or name.casefold() in _TIMES:
        return unit
    if known in _SECONDS or (not name and unit_of(unit, "s") is not None):
        return unit or "s"
    if known.endswith("seconds") and unit_of(known, "s") is not None:  # milliseconds
        return known
    return None


@dataclass(frozen=True, slots=True)
class Named:
    """What the name of a column says of it.

    Attributes:
        name: without its unit if that stood apart.
        to_volts: the factor, None where the column is a time.
        note: what the reader of a report has to know, "" for nothing.
    """

    name: str
    to_volts: float | None
    note: str = ""


def named(path: Path, cell: str, elsewhere: str = "") -> Named:
    """Return what a column's name says; `elsewhere` is the unit that another line has.

    CaptureError where it may be in V or in another unit, with what to write instead.
    """
    name, unit = split_unit(cell)
    at_end = unit_of(_at_end(cell, "V")[1] or cell, "V")
    factor = unit_of(unit or elsewhere, "V")
    if factor is not None:
        if not unit and at_end not in (None, factor):
            raise _doubtful(path, cell, f"its name says another one than {elsewhere!r} beside it")
        return Named(name, factor)
    if unit_of(unit or elsewhere, "s") is not None:
        return Named(cell, None, f"{cell!r} has times and no volts; it was left out.")
    counted = _A_NUMBER.fullmatch(_at_end(cell, "V")[0]) if at_end not in (None, 1.0) else None
    is_number = counted is not None and not _NUMBERED.fullmatch(counted[1])
    if at_end is not None and not unit and not is_number:
        return Named(cell, at_end)
    if is_number or any(doubt.search(_plain(f"{cell} {elsewhere}")) for doubt in _DOUBTFUL):
        raise _doubtful(path, f"{cell} {elsewhere}".strip(), "it may be V, mV or another one")
    # A unit that is not of volts belongs to the name: `gate (open)`.
    note = ""
    if _OTHER.fullmatch(unit or elsewhere):
        note = f"{cell!r} is in {unit or elsewhere} and not in V: its numbers were taken as volts."
    return Named(cell if unit else name, 1.0, note)


def has_unit(cell: str) -> bool:
    """Whether the name of a channel has a unit."""
    return bool(split_unit(cell)[1]) or unit_of(_at_end(cell, "V")[1] or cell, "V") is not None


def _doubtful(path: Path, cell: str, why: str) -> CaptureError:
    return CaptureError(
        f"{path}: the unit of column {cell!r} is not certain: {why}. Write it in brackets behind "
        "the name, as in `CH1 [mV]` or `CH1 [V]`."
    )


def has_bare_unit(line: str, of: Literal["s", "V"]) -> bool:
    """Whether a line above the names has a unit, other than behind a number (500 mV)."""
    found = _BARE.findall(_plain(line))
    return any(unit_of(each, of) not in (None, 1.0) for each in found)
