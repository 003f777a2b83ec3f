"""chronyc's CSV lines as dataclasses.

Signs. Here every offset is *reference minus local* (positive: the local clock is behind), and the
names say so. chronyc mixes two signs in one line, so they are made equal when parsing:

- tracking, field 5, system time: positive = the system clock is SLOW. Taken as it is.
- tracking, field 6, last offset: positive = the local clock was AHEAD. Negated.
- tracking, field 8, frequency: positive = the clock runs FAST without correction. Negated.
- sources, fields 8 and 9, last sample: positive = the local clock is AHEAD. Negated.

Source: chronyc(1) of chrony 4.3, sections tracking and sources; client.c, print_report().
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

from mqtick.service.units import seconds_to_ns

Number = TypeVar("Number", int, float)

_NEVER = 4294967295  # LastRx of a source that gave no sample yet


class ChronydError(RuntimeError):
    """chronyd's state is not available; the message is a sentence, `reason` a short word for it.

    Reasons: not-installed, not-running, permission, time-out, failed, not-understood.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class ChronyVersion(NamedTuple):
    """A version of chrony; compares as a tuple: `version() < (4, 7)`."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        """Return it as chrony writes it."""
        return f"{self.major}.{self.minor}" + (f".{self.patch}" if self.patch else "")


class Leap(IntEnum):
    """Leap status, with the numbers of NTP (RFC 5905, figure 9)."""

    NORMAL = 0
    INSERT = 1
    DELETE = 2
    UNSYNCHRONISED = 3


_LEAPS = {
    "Normal": Leap.NORMAL,
    "Insert second": Leap.INSERT,
    "Delete second": Leap.DELETE,
    "Not synchronised": Leap.UNSYNCHRONISED,
}


@dataclass(frozen=True, slots=True)
class Tracking:
    """`chronyc tracking`: the state of the system clock according to chronyd."""

    refid: str  # 8 hexadecimal digits; 00000000 = no source, 7F7F0101 = local mode
    name: str  # of the source: address, or refid of a reference clock; empty without a source
    stratum: int
    reference_time_ns: int | None  # of the last measurement, Unix epoch; None: none yet
    offset_reference_minus_local_ns: int  # what is still to be slewed away
    last_offset_reference_minus_local_ns: int
    rms_offset_ns: int
    frequency_reference_minus_local_ppm: float  # rate that chronyd adds to the local clock
    residual_frequency_ppm: float  # sign as chronyc prints it
    skew_ppm: float  # error bound of the frequency
    root_delay_ns: int
    root_dispersion_ns: int
    update_interval_s: float
    leap: Leap
    """INSERT and DELETE appear on the last day of June and December only (reference.c)."""

    @property
    def root_distance_ns(self) -> int:
        """Bound of the clock's error: |system offset| + root dispersion + root delay / 2.

        Source: chronyc(1), "Root dispersion".  Rounded up.
        """
        half_delay_ns = (self.root_delay_ns + 1) // 2
        return abs(self.offset_reference_minus_local_ns) + self.root_dispersion_ns + half_delay_ns


@dataclass(frozen=True, slots=True)
class Source:
    """One line of `chronyc sources`."""

    mode: str  # ^ server, = peer, # reference clock
    state: str  # one of * + - ? x ~
    name: str  # address, or refid of a reference clock
    stratum: int
    poll: int  # log2 of seconds; may be negative
    reach: int  # 8 bits, the last poll lowest: 0o377 = all of the last eight
    last_rx_s: int | None  # age of the last good sample; None: never one
    adjusted_offset_reference_minus_local_ns: int
    measured_offset_reference_minus_local_ns: int
    error_ns: int

    @property
    def state_meaning(self) -> str:
        """The meaning of the state letter, in words."""
        return _STATES[self.state]


_STATES = {
    "*": "selected: the clock follows it",
    "+": "combined with the selected source",
    "-": "good, but not combined",
    "?": "not selectable: unreachable, not synchronised, or too few samples",
    "x": "a falseticker: it disagrees with the majority",
    "~": "too variable",
}


def parse_version(text: str) -> ChronyVersion:
    """Read `chronyd (chrony) version 4.6.1 (+CMDMON ...)`; raises ChronydError."""
    found = re.search(r"version (\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", text, re.ASCII)
    if not found:
        raise ChronydError("not-understood", f"{text[:80]!r} does not name a version of chrony")
    return ChronyVersion(*(int(part or 0) for part in found.groups()))


def parse_tracking(text: str) -> Tracking:
    """Read the CSV line of `chronyc -c tracking`; raises ChronydError."""
    field = text.strip().split(",")
    try:
        _require(len(field) >= 14, "14 fields")
        _require(re.fullmatch(r"[0-9A-F]{8}", field[0]) is not None, "a reference ID")
        reference_time_ns = seconds_to_ns(field[3])
        return Tracking(
            refid=field[0],
            name=field[1],
            stratum=_integer(field[2], 0, 16),
            reference_time_ns=reference_time_ns or None,
            offset_reference_minus_local_ns=seconds_to_ns(field[4]),
            last_offset_reference_minus_local_ns=-seconds_to_ns(field[5]),
            rms_offset_ns=_not_negative(seconds_to_ns(field[6])),
            frequency_reference_minus_local_ppm=0.0 - _finite(field[7]),
            residual_frequency_ppm=_finite(field[8]),
            skew_ppm=_not_negative(_finite(field[9])),
            root_delay_ns=_not_negative(seconds_to_ns(field[10])),
            root_dispersion_ns=_not_negative(seconds_to_ns(field[11])),
            update_interval_s=_finite(field[12]),
            leap=_LEAPS[field[13]],
        )
    except (ValueError, KeyError) as error:
        raise _not_understood("tracking", text, error) from error


def parse_sources(text: str) -> tuple[Source, ...]:
    """Read the CSV lines of `chronyc -c sources`; raises ChronydError."""
    try:
        return tuple(_source(line.split(",")) for line in text.strip().splitlines())
    except (ValueError, KeyError) as error:
        raise _not_understood("sources", text, error) from error


def _source(field: list[str]) -> Source:
    _require(len(field) >= 10 and field[0] in {"^", "=", "#"} and field[1] in _STATES, "10 fields")
    last_rx_s = _integer(field[6], 0, _NEVER)
    return Source(
        mode=field[0],
        state=field[1],
        name=field[2],
        stratum=_integer(field[3], 0, 16),
        poll=_integer(field[4], -32, 32),
        reach=_integer(field[5], 0, 0o377, base=8),
        last_rx_s=None if last_rx_s == _NEVER else last_rx_s,
        adjusted_offset_reference_minus_local_ns=-seconds_to_ns(field[7]),
        measured_offset_reference_minus_local_ns=-seconds_to_ns(field[8]),
        error_ns=_not_negative(seconds_to_ns(field[9])),
    )


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"{what} expected")


def _integer(text: str, minimum: int, maximum: int, base: int = 10) -> int:
    _require(len(text) <= 12, "a short number")
    value = int(text, base)
    _require(minimum <= value <= maximum, f"{minimum} to {maximum}")
    return value


def _finite(text: str) -> float:
    value = float(text)
    _require(math.isfinite(value), "a finite number")
    return value


def _not_negative(value: Number) -> Number:
    _require(value >= 0, "a number from 0")
    return value


def _not_understood(command: str, text: str, error: Exception) -> ChronydError:
    return ChronydError(
        "not-understood",
        f"the answer of chronyc -c {command} was not understood ({error}): {text[:120]!r}; "
        "is this chrony 4.0 or later?",
    )
