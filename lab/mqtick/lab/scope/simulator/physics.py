"""The properties of a simulated instrument, the settings of an input, and a record."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Physics:
    """The simulated properties of an instrument.

    Attributes:
        bits: of the converter.
        divisions: vertical divisions that the converter's range covers.
        max_rate_hz: highest sample rate.
        depths: memory depths in points, ascending.
        rise_s: rise time of every edge, 10 to 90 %, of Gaussian shape.
        noise_v: standard deviation of the noise at the probe's tip.
        ppm: time base error; positive: the instrument's clock is fast, so that it measures
            intervals too long.
        skew_s: each channel's delay by cable and probe, by channel number: a signal appears this
            much later (before the deskew that the user sets).
        seed: of all random numbers.
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
    """The settings of one input; ValueError for a value that no instrument accepts.

    `coupling` "AC" removes the level that the line had before an edge or a record (lines are idle
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
    """One record: the true instant of its trigger, and its time base.

    `start_s` is the first sample's instant relative to the trigger. `rest_ns` is how much later
    than `trigger_ns` the trigger came, below 1 ns: a float of the whole would hold no fractions.
    """

    number: int
    trigger_ns: int
    interval_s: float
    start_s: float
    points: int
    rest_ns: float = 0.0
