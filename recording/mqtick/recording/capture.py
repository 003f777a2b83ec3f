"""A capture: what the channels of one file saw of one acquisition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import Waveform

Signal = Waveform | Transitions


class CaptureError(ValueError):
    """The file is not a capture that can be read; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """One acquisition: what each channel saw, by the name that the file gives it.

    Attributes:
        signals: the channels in the file's order; their instants have one origin.
        triggered: whether that origin is the trigger; False if it is only the start of the record.
        started_ns: when it was taken, in ns of the Unix epoch; None where the file does not say.
        timebase_ppm: how far the interval between samples may be off because the file rounds its
            times, in parts per million; 0 where the file has it exactly.
    """

    signals: Mapping[str, Signal]
    triggered: bool = True
    started_ns: int | None = None
    timebase_ppm: float = 0.0


@dataclass(frozen=True, slots=True)
class CaptureFile:
    """A file whose format was recognised.

    Attributes:
        path: where it is.
        format: what it is: "Rigol CSV".
        instrument: maker, model and whatever else the file says of what recorded it, or "".
        read: yields its captures, one a segment, one at a time; CaptureError.
        notes: sentences on what had to be repaired or left out, complete once it was read.
        simulated: whether the file says that what was recorded was simulated.
    """

    path: Path
    format: str
    instrument: str
    read: Callable[[], Iterator[Capture]]
    notes: list[str] = field(default_factory=list)
    simulated: bool = False


_INPUT = re.compile(r"(?:ch|chan|channel|c|in|input|analog|d|dio|digital)[ _.-]*(\d+)$")


def find_signal(signals: Mapping[str, Signal], wanted: str) -> str | None:
    """Return the name of the channel that a user means, None if there is none.

    The name itself counts first, then the name without regard to case and spaces, then a number:
    `1` means `CH1`, `Channel 1` or `D1`, if just one of them is there.
    """
    if wanted in signals:
        return wanted
    folded = [name for name in signals if _folded(name) == _folded(wanted)]
    if len(folded) == 1:
        return folded[0]
    number = _number(wanted)
    alike = [name for name in signals if number is not None and _number(name) == number]
    return alike[0] if len(alike) == 1 else None


def _folded(name: str) -> str:
    return re.sub(r"\s+", "", name).casefold()


def _number(name: str) -> int | None:
    folded = _folded(name)
    if folded.isdecimal():
        return int(folded)
    found = _INPUT.match(folded)
    return int(found[1]) if found else None
