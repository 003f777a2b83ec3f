"""The base class of dialects: all that a new family of oscilloscopes has to define."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mqtick.lab.scope.conversation import Conversation, InstrumentError, query
from mqtick.lab.scope.settings import ScopeSettings, State
from mqtick.recording.waveform import Waveform, femtoseconds

INVALID = 9e37
"""From this value on, it means "not a number" (IEEE 488.2 instruments answer 9.9E37 or 9.91E37)."""


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

    `time_s` counts from the first segment's trigger; None: the instrument does not state it.
    `resolution_s` is the resolution of the stated time.
    """

    waveforms: dict[int, Waveform]
    time_s: float | None
    resolution_s: float | None


class Dialect(ABC):
    """A family of oscilloscopes: conversations, and no I/O. One object for one instrument.

    A dialect never waits for an event by itself (`Pause` is for the milliseconds that a command
    takes); `Oscilloscope` polls `state`, with a bound.
    """

    name: ClassVar[str]
    """The value for --dialect."""
    title: ClassVar[str]
    """The supported series, in words."""
    pattern: ClassVar[re.Pattern[str]]
    """Matches "MANUFACTURER MODEL" of its instruments, from the first letter on."""
    port: ClassVar[int]
    """TCP port of the raw socket."""
    untried: ClassVar[bool] = True
    """Whether the dialect was tested only with the simulated instrument of the family."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.deskew_fs: dict[int, int] = {}
        """By channel, the deskew that `read` subtracts, if the instrument itself does not.

        The deskew of many instruments is coarse, short, refused, or of an unknown sign.
        """

    @property
    def inputs(self) -> int:
        """Number of analogue inputs: the last digit of the model's number (3034A has four)."""
        digits = re.search(r"\d+", self.identity.model)
        last = int(digits[0][-1]) if digits else 4
        return last if last in (2, 4, 6, 8) else 4

    def keep_deskew(self, settings: ScopeSettings) -> None:
        """Keep the deskew that `read` has to subtract."""
        self.deskew_fs = {each.number: femtoseconds(each.deskew_s) for each in settings.channels}

    def refuse_beyond(self, settings: ScopeSettings) -> None:
        """Refuse channels that the instrument does not have, before anything is set."""
        beyond = [each.number for each in settings.channels if each.number > self.inputs]
        if beyond:
            raise InstrumentError(
                f"{self.identity.model} has {self.inputs} inputs, but channel {beyond[0]} is asked "
                "for; correct the channel numbers in the experiment."
            )

    def refuse_segments(self, settings: ScopeSettings) -> None:
        """Refuse segments, before anything is set, if `read_segments` is not defined."""
        if settings.segments > 1:
            raise InstrumentError(
                f"Segmented memory of {self.identity.model} is not supported; set segments = 1 and "
                "take more shots."
            )

    @abstractmethod
    def set_up(self, settings: ScopeSettings) -> Conversation[None]:
        """Set channels, time base, memory, trigger and segments; leaves the acquisition stopped."""

    @abstractmethod
    def arm(self) -> Conversation[None]:
        """Begin one single acquisition (never an automatic one), events cleared before."""

    @abstractmethod
    def state(self) -> Conversation[State]:
        """Ask for the state of the acquisition; STOPPED once it is complete (all segments)."""

    @abstractmethod
    def stop(self) -> Conversation[None]:
        """End an acquisition that waits."""

    @abstractmethod
    def read(self, channel: int) -> Conversation[Waveform]:
        """Read one channel of the finished acquisition, all points, raw codes."""

    def read_segments(self, channels: Sequence[int]) -> Conversation[list[Segment]]:
        """Read all segments; InstrumentError if the family (or this dialect) has none."""
        raise InstrumentError(
            f"Segmented memory of {self.identity.model} is not supported; set segments = 1."
        )
        yield  # makes this a generator, as the signature says

    @abstractmethod
    def screenshot(self) -> Conversation[bytes]:
        """Return the screen as PNG (or BMP, if the family has nothing else)."""

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


def step_up(value: float, steps: Sequence[float] = (1, 2, 5)) -> float:
    """Return the next value of a sequence, such as 1-2-5 in every decade, that is not below."""
    decade = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return next(step * decade for step in (*steps, 10) if step * decade >= value * (1 - 1e-9))
