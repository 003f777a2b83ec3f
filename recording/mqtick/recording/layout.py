"""What was wired to what: the inputs of the instruments, their triggers, who plays which part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mqtick.recording.edge_overrides import NO_OVERRIDES, EdgeOverrides
from mqtick.recording.waveform import femtoseconds

LATENCY: Final = "latency"
"""First subscriber's edge minus the publisher's."""
SKEW: Final = "skew"
"""Last subscriber's edge minus the first one's."""
CLOCK: Final = "clock"
"""A clock's time error: its pps edge minus the reference's; positive: late, the clock is behind."""

_PARTS: Final = ("publisher", "first", "last")
_MOST_DELAY_FS: Final = 10**15
"""A second: no cable takes that long."""


class LayoutError(ValueError):
    """A record does not say what is wired to what; the text says what it lacks."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One input of an instrument, what it is wired to, and its scale in volts.

    `cable_delay_fs` is what cable and probe add, and what is subtracted from its edges.
    `volts_per_division` is 0 where it is not known: then nobody can say what the screen cuts off.
    """

    instrument: str
    input: int
    node: str
    pin: str
    cable_delay_fs: int = 0
    volts_per_division: float = 0.0
    offset_v: float = 0.0


@dataclass(frozen=True, slots=True)
class Trigger:
    """The channel that triggers an instrument, and its slope: rising, falling or either."""

    channel: str
    slope: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, in the words of whoever decided how it was recorded.

    `longer`: so that an edge is inside the record; `either`: where either direction counts.
    """

    longer: str = "lengthen span_us or raise before"
    either: str = 'where trigger_slope is "either"'


@dataclass(frozen=True, slots=True)
class Layout:
    """What is wired to what: channels and triggers by name, and who plays which part.

    For kind clock `publisher` is the reference. `first` and `last` are "" if there is none.
    `interval_fs` is the time between two events, 0 where it is not known. A smaller amplitude than
    `minimum_v` is no edge. `edge_overrides` is what the user overrides in finding the edges.
    `within_fs` is the longest time from an event to an answer where a record has many, 0: up to the
    next event.
    """

    kind: str
    channels: Mapping[str, Channel]
    triggers: Mapping[str, Trigger]
    publisher: str = ""
    first: str = ""
    last: str = ""
    interval_fs: int = 0
    minimum_v: float = 0.5
    advice: Advice = Advice()
    edge_overrides: EdgeOverrides = NO_OVERRIDES
    within_fs: int = 0

    @property
    def symmetric(self) -> bool:
        """Whether a node may be before the event as well as after it."""
        return self.kind == CLOCK or not self.publisher

    def needed(self) -> set[str]:
        """Return the channels without whose edges a shot cannot be used."""
        if self.kind == CLOCK:
            return set(self.channels)
        parts = {name for name in (self.publisher, self.first, self.last) if name}
        return parts | {trigger.channel for trigger in self.triggers.values()}

    def shown(self, name: str) -> str:
        """Name a channel for a reader."""
        channel = self.channels[name]
        if not channel.pin:
            return name
        return f"{name} (input {channel.input}, pin {channel.pin} of {channel.node})"


def layout_of(record: Mapping[str, Any]) -> Layout:
    """Return the layout that run.json describes; LayoutError."""
    try:
        settings, order = record["settings"], record["order"]
        channels = {
            str(name): Channel(
                instrument=str(each["instrument"]),
                input=int(each["input"]),
                node=str(each["node"]),
                pin=str(each["pin"]),
                cable_delay_fs=int(each["cable_delay_fs"]),
                volts_per_division=float(each["volts_per_division"]),
                offset_v=float(each["offset_v"]),
            )
            for name, each in record["channels"].items()
        }
        triggers = {
            name: Trigger(
                str(settings[f"instrument.{name}.trigger"]),
                str(settings[f"instrument.{name}.trigger_slope"]),
            )
            for name in dict.fromkeys(channel.instrument for channel in channels.values())
        }
        publisher, first, last = (str(order.get(part, "")) for part in _PARTS)
        interval_fs = femtoseconds(float(settings.get("interval_s", 0)))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise LayoutError(f"{type(error).__name__} {error}") from error
    layout = Layout(
        str(record.get("kind", "")), channels, triggers, publisher, first, last, interval_fs
    )
    if unknown := layout.needed() - set(channels):
        raise LayoutError(f"no channel is called {sorted(unknown)[0]!r}")
    if not channels or any(not each.volts_per_division > 0 for each in channels.values()):
        raise LayoutError("a channel has no scale")
    if any(abs(each.cable_delay_fs) > _MOST_DELAY_FS for each in channels.values()):
        raise LayoutError("a cable is longer than any cable")
    if not (layout.publisher if layout.kind == CLOCK else layout.first):
        raise LayoutError("no channel is the one that others are compared with")
    return layout
