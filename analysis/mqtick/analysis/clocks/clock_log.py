"""What a log of a clock says, whoever wrote it: time errors, and what was done to get them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from mqtick.analysis.measurement import TimeErrors
from mqtick.recording.units import NS_PER_S, Floats

_STEPPED_S: Final = 0.5
"""A clock that is further off is stepped: its own stamps say nothing about when a line was made."""
_EPOCH_S: Final = 1e9
"""Stamps from here on (2001) count from 1970; smaller ones from some other instant."""


@dataclass(slots=True)
class ClockLog:
    """What a log says.

    Attributes:
        errors: one for each reference, or each clock, of which the log has values.
        notes: sentences on what was chosen, repaired or assumed.
        damaged: a sentence on lines that could not be read and were left out; empty if all could.
    """

    errors: list[TimeErrors]
    notes: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


class LeftOutError(Exception):
    """A line has no time error, and the reader of the report should know why; the text says it."""


class Value(NamedTuple):
    """What a line says: of which clock, when, reference minus local, and how far it may be off.

    `stamp_s` is by the judged clock; `off_ns` is NaN where nothing bounds the error.
    """

    clock: str
    stamp_s: float
    error_ns: float
    off_ns: float


class Series:
    """The values of one clock, in the order of the lines.

    A value takes 24 octets: logs have millions of lines.
    """

    def __init__(self) -> None:
        self._stamp_s = array("d")
        self._error_ns = array("d")
        self._off_ns = array("d")

    def add(self, value: Value) -> None:
        """Take a value."""
        self._stamp_s.append(value.stamp_s)
        self._error_ns.append(value.error_ns)
        self._off_ns.append(value.off_ns)

    def __len__(self) -> int:
        return len(self._stamp_s)

    def finish(self, name: str, source: str) -> tuple[TimeErrors, list[str]]:
        """Return the time errors on an axis that increases, and sentences on what that took.

        Where the clock was so far off that it was stepped, the reference says when a line was
        made: stamp plus error. Where stamps still go backwards, the rest follows one median
        interval later. Of values with the same stamp the last one counts.
        """
        stamp_s = np.frombuffer(self._stamp_s)
        error_ns = np.frombuffer(self._error_ns)
        off_ns = np.frombuffer(self._off_ns)
        notes = []
        far = np.abs(error_ns) > _STEPPED_S * NS_PER_S
        at_s = np.where(far, stamp_s + error_ns / NS_PER_S, stamp_s)
        if stepped := int(np.count_nonzero(far)):
            notes.append(
                f"{name}: at {stepped} of {error_ns.size} values the clock was more than "
                f"{_STEPPED_S:g} s off; they stand where the reference says that they were made."
            )
        back = np.flatnonzero(np.diff(at_s) < 0)
        if back.size:
            at_s = _forwards(at_s, back)
            notes.append(
                f"{name}: time goes backwards in the log {_times(back.size)} (the clock was "
                "stepped, or a program or host restarted); what follows was put one interval later."
            )
        last = np.concatenate((np.diff(at_s) > 0, [True]))
        if same := int(at_s.size - np.count_nonzero(last)):
            notes.append(
                f"{name}: {same} of {at_s.size} values have the same time stamp as the next one "
                "and were left out."
            )
        at_s, error_ns, off_ns = at_s[last], error_ns[last], off_ns[last]
        known = not np.isnan(off_ns).all()
        begun_s = float(at_s[0]) if at_s[0] > _EPOCH_S else None
        errors = TimeErrors(
            name=name,
            seconds=at_s - at_s[0],
            error_ns=error_ns,
            lower_ns=error_ns - off_ns if known else None,
            upper_ns=error_ns + off_ns if known else None,
            started_ns=None if begun_s is None else round(begun_s * 1e3) * (NS_PER_S // 1000),
            source=source,
        )
        return errors, notes


def _forwards(at_s: Floats, back: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Floats:
    steps = np.diff(at_s)
    usual_s = float(np.median(steps[steps > 0])) if (steps > 0).any() else 1.0
    steps[back] = usual_s
    forwards: Floats = at_s[0] + np.concatenate(([0.0], np.cumsum(steps)))
    return forwards


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
