"""Words of a command line that are voltages, times and names: with units, each in its bounds."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Final, TypeVar

from mqtick.recording.edge_overrides import EVERY

Value = TypeVar("Value")
_QUANTITY: Final = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµμ]*)\s*")
_VOLTS: Final = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "kV": 1e3, "": 1.0}
_TIMES_FS: Final = {"s": 10**15, "ms": 10**12, "us": 10**9, "ns": 10**6, "ps": 10**3}
_MOST_V: Final = 1e6
_MOST_FS: Final = 10**21
_MOST_SKIPPED: Final = 1_000_000
_ALL: Final = "all"
_VALUE: Final = re.compile(r"-[\d.]")


def joined(words: list[str]) -> list[str]:
    """Join a flag with a value that begins with a minus: `--from -2ms`, which is no flag."""
    found: list[str] = []
    for word in words:
        if found and _VALUE.match(word) and re.fullmatch(r"--[a-z-]+", found[-1]):
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def duration_fs(text: str) -> int:
    """Return a time above 0 in fs; ArgumentTypeError."""
    value = instant_fs(text)
    if not 0 < value <= 10**18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0, up to 1000s")
    return value


def instant_fs(text: str) -> int:
    """Return a time of either sign in fs; ArgumentTypeError."""
    number, unit = _quantity(text, "a time, such as 500us, -2ms or 1.5s")
    if unit not in _TIMES_FS and not (unit == "" and number == 0):
        raise argparse.ArgumentTypeError(
            f"{text!r} has no unit of time; there are {', '.join(_TIMES_FS)}: 500us, -2ms"
        )
    value = number * _TIMES_FS.get(unit, 1)
    if not abs(value) < _MOST_FS:
        raise argparse.ArgumentTypeError(f"{text!r} is longer than any record: 1000000s at most")
    return round(value)


def threshold_v(text: str) -> float:
    """Return a voltage; ArgumentTypeError."""
    number, unit = _quantity(text, "a voltage, such as 1.65V or 900mV")
    if unit not in _VOLTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not in volts: 1.65V, 900mV")
    if not abs(number) < _MOST_V:
        raise argparse.ArgumentTypeError(f"{text!r} is no voltage of a signal")
    return number * _VOLTS[unit]


def hysteresis_v(text: str) -> float:
    """Return a voltage of 0 or more; ArgumentTypeError."""
    volts = threshold_v(text)
    if volts < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is below 0; a hysteresis is a width: 200mV")
    return volts


def count(text: str) -> int:
    """Return a number of edges; ArgumentTypeError."""
    if not text.isdecimal() or int(text) > _MOST_SKIPPED:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of edges, such as 2")
    return int(text)


def _quantity(text: str, what: str) -> tuple[float, str]:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return float(found[1]), found[2].replace("µ", "u").replace("μ", "u")


def table_of(value: Callable[[str], Value]) -> Callable[[str], dict[str, Value]]:
    """Return what reads `VALUE` (of all channels) and `NAME=VALUE,NAME=VALUE`."""

    def read(text: str) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for word in text.split(","):
            name, _, said = word.rpartition("=")
            name = name.strip()
            if "=" in word and not name:
                raise argparse.ArgumentTypeError(f"{text!r} has no name before a =")
            name = EVERY if name == _ALL else name
            if name in found:
                raise argparse.ArgumentTypeError(f"{text!r} says two things of one channel")
            found[name] = value(said)
        return found

    return read


def names(text: str) -> tuple[str, ...]:
    """Return the names of channels, `EVERY` for all; ArgumentTypeError."""
    found = [word.strip() for word in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME,NAME, or all")
    return tuple(EVERY if name == _ALL else name for name in found)
