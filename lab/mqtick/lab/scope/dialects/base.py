"""What a family of oscilloscopes has to define: all that a new dialect needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mqtick.analysis.signals.waveform import Waveform
from mqtick.lab.scope.conversation import Conversation, InstrumentError, query
from mqtick.lab.scope.setup import Setup, State

__all__ = ["INVALID", "Dialect", "Identity", "Segment", "number", "numbers"]

INVALID = 9e37
"""From here on a number means "not a number" (IEEE 488.2 instruments answer 9.9E37 or 9.91E37)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The four fields of *IDN? (IEEE 488.2, 10.14)."""

    manufacturer: str
    model: str
    serial: str
    firmware: str

    @classmethod
    def parse(cls, reply: str) -> Identity:
        """Read the answer to *IDN?; InstrumentError if it is not one."""
        fields = [field.strip() for field in reply.split(",", 3)]
        if len(fields) < 2 or not fields[0] or not reply.isprintable():
            raise InstrumentError(
                f"The instrument answered {reply[:80]!r} to *IDN?, which names no manufacturer "
                "and model; is this the port of the oscilloscope's SCPI socket?"
            )
        return cls(*[*fields, "", ""][:4])

    def __str__(self) -> str:
        return f"{self.manufacturer} {self.model} (serial {self.serial}, firmware {self.firmware})"


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """One record of segmented memory: the waveforms by channel and the instant of its trigger.

    `time_s` counts from the first segment's trigger, None where the instrument does not say;
    `resolution_s` is how finely it says it.
    """

    waveforms: dict[int, Waveform]
    time_s: float | None
    resolution_s: float | None


class Dialect:
    """A family of oscilloscopes: conversations, and no I/O. One object for one instrument.

    A dialect never waits for an event by itself (`Pause` is for the milliseconds that a command
    takes); `Oscilloscope` polls `state`, with a bound.
    """

    name: ClassVar[str]
    """What --dialect takes."""
    title: ClassVar[str]
    """The series it is for, in words."""
    pattern: ClassVar[re.Pattern[str]]
    """Matches "MANUFACTURER MODEL" of its instruments, from the first letter on."""
    port: ClassVar[int]
    """TCP port of the raw socket."""
    untried: ClassVar[bool] = True
    """Whether only the simulated instrument of the family was ever tried."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    def set_up(self, setup: Setup) -> Conversation[None]:
        """Set channels, time base, memory, trigger and segments; leaves the acquisition stopped."""
        raise NotImplementedError

    def arm(self) -> Conversation[None]:
        """Begin one single acquisition (never an automatic one), events cleared before."""
        raise NotImplementedError

    def state(self) -> Conversation[State]:
        """Ask what the acquisition does; STOPPED once it is complete (all segments)."""
        raise NotImplementedError

    def stop(self) -> Conversation[None]:
        """End an acquisition that waits."""
        raise NotImplementedError

    def read(self, channel: int) -> Conversation[Waveform]:
        """Read one channel of the finished acquisition, all points, raw codes."""
        raise NotImplementedError

    def read_segments(self, channels: Sequence[int]) -> Conversation[list[Segment]]:
        """Read all segments; InstrumentError where the family (or this dialect) has none."""
        raise InstrumentError(
            f"Segmented memory of {self.identity.model} is not supported; set segments = 1."
        )
        yield  # the signature's generator

    def screenshot(self) -> Conversation[bytes]:
        """Return the screen as PNG (or BMP, where the family has no other)."""
        raise NotImplementedError

    def errors(self) -> Conversation[list[str]]:
        """Empty the error queue (SYSTem:ERRor?, SCPI-99 21.8) and return it, at most 32."""
        found: list[str] = []
        while len(found) < 32:
            error = yield from query(":SYSTem:ERRor?")
            if error.lstrip("+").startswith("0"):
                break
            found.append(error)
        return found


def number(text: str, what: str) -> float:
    """Read a number of an answer; InstrumentError if it is not one or means "not a number"."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < INVALID:
        raise InstrumentError(
            f"The instrument answered {text[:40]!r} where {what} was asked for; the capture is "
            "refused. Is the channel on, and has there been a trigger?"
        )
    return value


def numbers(text: str, count: int, what: str, separator: str = ",") -> list[float]:
    """Read that many numbers of an answer, more are ignored; InstrumentError otherwise."""
    fields = text.split(separator)
    if len(fields) < count:
        raise InstrumentError(
            f"The instrument answered {text[:60]!r} where {what} ({count} numbers) was asked for; "
            "the capture is refused. Is the channel on, and has there been a trigger?"
        )
    return [number(field, what) for field in fields[:count]]
