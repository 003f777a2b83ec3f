"""What a simulated instrument can do, how an input is set, what a record is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["Frame", "Input", "Physics"]


@dataclass(frozen=True, slots=True)
class Physics:
    """The properties of a real instrument that ours simulates.

    Attributes:
        bits: of the converter.
        divisions: vertical divisions that the converter's range covers.
        max_rate_hz: highest sample rate.
        depths: memory depths in points, ascending.
        rise_s: rise time of every edge, 10 to 90 %, of Gaussian shape.
        noise_v: standard deviation of the noise at the probe's tip.
        ppm: time base error; positive: the instrument's clock is fast, so that it finds every
            interval longer than it is.
        skew_s: each channel's delay by cable and probe, by channel number: a signal appears later
            by it (before the deskew that the user sets).
        seed: of everything random.
    """

    bits: int = 8
    divisions: float = 8.0
    max_rate_hz: float = 1e9
    depths: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    rise_s: float = 5e-9
    noise_v: float = 0.01
    ppm: float = 0.0
    skew_s: dict[int, float] = field(default_factory=dict)
    seed: int = 1


@dataclass(slots=True)
class Input:
    """One input as it is set; ValueError where a number is not valid that an instrument takes.

    `coupling` "AC" removes the level that the line had before an edge or a record (it rests
    much longer than the coupling's time constant), "GND" removes the signal.
    """

    on: bool = False
    volts_per_division: float = 1.0
    offset_v: float = 0.0
    """The voltage in the middle of the screen (the opposite of some makers' sign)."""
    probe: float = 1.0
    deskew_s: float = 0.0
    coupling: str = "DC"

    def __setattr__(self, name: str, value: bool | float | str) -> None:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
        if name in ("volts_per_division", "probe") and not 0 < float(value) < 1e9:
            raise ValueError(f"{name} is {value}, not above 0")
        object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Frame:
    """One record: the true instant of its trigger, and the time base it was taken with.

    `start_s` is the first sample's instant relative to the trigger. `rest_ns` is what the trigger
    came after `trigger_ns`, below 1 ns: a float of the whole would hold no fractions.
    """

    number: int
    trigger_ns: int
    interval_s: float
    start_s: float
    points: int
    rest_ns: float = 0.0
