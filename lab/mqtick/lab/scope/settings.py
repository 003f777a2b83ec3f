"""The settings of an oscilloscope, in terms that every family has, and its states."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """One analogue input.

    Attributes:
        number: as on the front panel, from 1.
        volts_per_division: vertical scale at the probe's tip, in V.
        offset_v: the voltage at the probe's tip that shall be in the middle of the screen.
        probe: attenuation of the probe: 10 for a 10:1 probe.
        deskew_s: this channel's delay beyond that of the others (cable, probe), in s: the
            instrument shows the channel earlier by it. Positive for a longer cable.
        coupling: "DC" or "AC".
    """

    number: int
    volts_per_division: float = 1.0
    offset_v: float = 1.65
    probe: float = 10.0
    deskew_s: float = 0.0
    coupling: str = "DC"


@dataclass(frozen=True, slots=True)
class Trigger:
    """An edge trigger: the channel, the level in V at the probe's tip, the direction."""

    channel: int
    level_v: float = 1.65
    slope: str = "rising"
    """"rising", "falling" or "either"."""


@dataclass(frozen=True, slots=True)
class ScopeSettings:
    """One configuration of an oscilloscope; instruments round to what they offer.

    Attributes:
        channels: the inputs that are switched on; all others are switched off.
        trigger: what a record is centred on.
        span_s: time from the first to the last sample, in s (the screen is ten divisions, some
            instruments have twelve or fourteen).
        before: share of the record that lies before the trigger, 0 to 1.
        points: samples of one channel that are wanted; the instrument takes the nearest memory
            depth that it has.
        segments: records taken one after another before any is read; 1 for a single record.
    """

    channels: tuple[ChannelSettings, ...]
    trigger: Trigger
    span_s: float
    before: float = 0.1
    points: int = 100_000
    segments: int = 1


class State(Enum):
    """The state of the acquisition."""

    PREPARING = auto()
    """Started, but not ready for a trigger (fills the part before it), or not known."""
    ARMED = auto()
    """Waits for the trigger."""
    TRIGGERED = auto()
    """Has been triggered, and takes the part after it (or further segments)."""
    STOPPED = auto()
    """Not recording: done, or never started."""
