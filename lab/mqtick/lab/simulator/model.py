"""A simulated oscilloscope without its language: inputs, time base, trigger, converter.

Everything happens on CLOCK_MONOTONIC_RAW. The acquisition is looked at only when somebody asks, and
works out then what must have happened meanwhile: edges carry their instants, so nothing has to be
awake when one occurs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.waveform import Codes
from mqtick.lab.setup import State
from mqtick.lab.simulator.feed import EdgeFeed
from mqtick.pins.base import Clock, monotonic_raw_ns

__all__ = ["Frame", "Input", "Model", "Physics"]

_ARRIVAL_NS: Final = 10_000_000
"""How long after an instant its records may still be on their way from another process."""
_RAMP: Final = 1.25
"""A straight ramp takes 1.25 times its 10-90 % rise time."""


@dataclass(frozen=True, slots=True)
class Physics:
    """What a real instrument has and ours pretends to have.

    Attributes:
        bits: of the converter.
        divisions: vertical divisions that the converter's range covers.
        max_rate_hz: highest sample rate.
        depths: memory depths in points, ascending.
        rise_s: rise time of every edge, 10 to 90 %.
        noise_v: standard deviation of the noise at the probe's tip.
        low_v, high_v: levels of the pins.
        ppm: time base error; positive: the instrument's clock is fast, so that it finds every
            interval longer than it is.
        skew_s: each channel's delay by cable and probe, by channel number: a signal appears later
            by it (before the deskew that the user sets).
        trigger_jitter_s: standard deviation of what the instrument gets wrong about the instant
            of its trigger.
        asynchronous: the sample clock stands at a random phase to the trigger, as in life.
        seed: of all that is random.
    """

    bits: int = 8
    divisions: float = 8.0
    max_rate_hz: float = 1e9
    depths: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    rise_s: float = 5e-9
    noise_v: float = 0.01
    low_v: float = 0.0
    high_v: float = 3.3
    ppm: float = 0.0
    skew_s: dict[int, float] = field(default_factory=dict)
    trigger_jitter_s: float = 0.0
    asynchronous: bool = True
    seed: int = 1


@dataclass(slots=True)
class Input:
    """One input as it is set."""

    on: bool = False
    volts_per_division: float = 1.0
    offset_v: float = 0.0
    """The voltage in the middle of the screen (the opposite of some makers' sign)."""
    probe: float = 1.0
    deskew_s: float = 0.0
    coupling: str = "DC"


@dataclass(frozen=True, slots=True)
class Frame:
    """One record: the true instant of its trigger, and the time base it was taken with.

    `start_s` is the first sample's instant as the instrument states it, relative to the trigger;
    `phase_s` what the trigger's true place differs from the stated one.
    """

    number: int
    trigger_ns: float
    interval_s: float
    start_s: float
    points: int
    phase_s: float


class Model:
    """The instrument. `lines` maps channel to pin line; the truth stays readable in `frames`."""

    def __init__(
        self,
        feed: EdgeFeed,
        lines: dict[int, int],
        physics: Physics | None = None,
        now: Clock = monotonic_raw_ns,
        channels: int = 4,
    ) -> None:
        self.feed, self.lines = feed, lines
        self.physics = physics or Physics()
        self.inputs = {number: Input() for number in range(1, channels + 1)}
        self.span_s = 1e-3
        self.before = 0.5
        self.depth = self.physics.depths[-1]
        self.trigger_channel = 1
        self.trigger_level_v = 1.65
        self.trigger_slope = "rising"
        self.segments = 1
        self.single = False
        self.running = False
        self.never_triggers = False
        """A fault: the trigger never comes."""
        self.frames: list[Frame] = []
        self._now = now
        self._armed_ns = 0.0
        self._taken = 0

    # -- acquisition -------------------------------------------------------------------------

    @property
    def rate_hz(self) -> float:
        """Sample rate: what the memory allows over the span, at most the highest; from 1-2-5."""
        wanted = min(self.physics.max_rate_hz, self.depth / self.span_s)
        decade = 10.0 ** math.floor(math.log10(wanted) + 1e-9)
        step = max(step for step in (1, 2, 2.5, 4, 5) if step * decade <= wanted * (1 + 1e-9))
        return float(step * decade)

    @property
    def points(self) -> int:
        """Samples in a record."""
        return min(round(self.span_s * self.rate_hz), self.depth)

    def start(self, *, single: bool) -> None:
        """Begin to record; what was recorded before is gone."""
        self.single, self.running, self.frames = single, True, []
        self._armed_ns = self._now() + self.before * self.span_s * 1e9

    def stop(self) -> None:
        """End."""
        self.poll()
        self.running = False

    def poll(self) -> State:
        """Work out what has happened until now."""
        now_ns = self._now()
        self.feed.receive()
        while self.running:
            if now_ns < self._armed_ns:
                return State.PREPARING
            trigger_ns = None if self.never_triggers else self._find_trigger(now_ns)
            if trigger_ns is None:
                return State.ARMED
            end_ns = trigger_ns + (1 - self.before) * self.span_s * 1e9
            if now_ns < end_ns + _ARRIVAL_NS:
                return State.TRIGGERED
            self._take(trigger_ns)
            self._armed_ns = end_ns + self.before * self.span_s * 1e9
            if self.single and len(self.frames) >= self.segments:
                self.running = False
        return State.STOPPED

    def force(self) -> None:
        """Trigger now, whatever the signal does."""
        if self.running:
            self._take(float(self._now()))
            self.running = False

    def _find_trigger(self, now_ns: int) -> float | None:
        line = self.lines.get(self.trigger_channel)
        source = self.inputs[self.trigger_channel]
        low, high = sorted((self.physics.low_v, self.physics.high_v))
        if line is None or not source.on or not low < self.trigger_level_v < high:
            return None
        delay_ns = self._delay_s(self.trigger_channel) * 1e9
        _, edges = self.feed.between(line, self._armed_ns - delay_ns, now_ns)
        wanted = {"rising": (True,), "falling": (False,)}.get(self.trigger_slope, (True, False))
        for time_ns, level in edges:
            if level in wanted:
                share = (self.trigger_level_v - low) / (high - low) - 0.5
                ramp_ns = self.physics.rise_s * _RAMP * 1e9
                return time_ns + delay_ns + (share if level else -share) * ramp_ns
        return None

    def _delay_s(self, channel: int) -> float:
        return self.physics.skew_s.get(channel, 0.0) - self.inputs[channel].deskew_s

    def _take(self, trigger_ns: float) -> None:
        self._taken += 1
        random = np.random.default_rng((self.physics.seed, self._taken))
        interval_s = 1 / self.rate_hz
        before = math.ceil(self.before * self.points)
        phase = float(random.random()) if self.physics.asynchronous else 0.0
        jitter_s = float(random.normal(0, self.physics.trigger_jitter_s))
        frame = Frame(
            number=self._taken,
            trigger_ns=trigger_ns,
            interval_s=interval_s,
            start_s=-(before + phase) * interval_s,
            points=self.points,
            phase_s=jitter_s,
        )
        self.frames.append(frame)

    # -- converter ---------------------------------------------------------------------------

    def volts_per_code(self, channel: int) -> float:
        """Return volts at the probe's tip between two codes of the converter."""
        scale = self.inputs[channel].volts_per_division * self.physics.divisions
        return scale / float(1 << self.physics.bits)

    @property
    def middle_code(self) -> int:
        """The code that stands for the input's `offset_v`."""
        return 1 << (self.physics.bits - 1)

    def codes(self, channel: int, frame: Frame) -> Codes:
        """Return the record of a channel, 0 to 2**bits - 1; the same at each call."""
        volts = self._volts(channel, frame)
        scaled = (volts - self.inputs[channel].offset_v) / self.volts_per_code(channel)
        top = (1 << self.physics.bits) - 1
        codes = np.clip(np.rint(scaled + self.middle_code), 0, top)
        return codes.astype(np.uint16)

    def _volts(self, channel: int, frame: Frame) -> npt.NDArray[np.float64]:
        random = np.random.default_rng((self.physics.seed, frame.number, channel))
        noise = random.normal(0.0, self.physics.noise_v, frame.points)
        line = self.lines.get(channel)
        if line is None:
            return np.asarray(noise, dtype=np.float64)
        # An instrument whose clock is fast takes its samples too close together.
        truth = 1 / (1 + self.physics.ppm * 1e-6)
        interval_ns = frame.interval_s * truth * 1e9
        first_ns = (frame.start_s * truth - frame.phase_s) * 1e9
        delay_ns = self._delay_s(channel) * 1e9
        ramp_ns = max(self.physics.rise_s * _RAMP * 1e9, 1e-3)
        begin_ns = frame.trigger_ns + first_ns - delay_ns
        level, edges = self.feed.between(
            line, begin_ns - ramp_ns, begin_ns + frame.points * interval_ns + ramp_ns
        )
        low, high = self.physics.low_v, self.physics.high_v
        volts = np.full(frame.points, high if level else low, np.float64)
        for time_ns, after in edges:
            # Relative to the first sample, so that floats keep fractions of a picosecond.
            centre = (time_ns - frame.trigger_ns + delay_ns - first_ns) / interval_ns
            half = ramp_ns / interval_ns / 2
            begin = min(max(math.ceil(centre - half), 0), frame.points)
            end = min(max(math.ceil(centre + half), 0), frame.points)
            share = (np.arange(begin, end) - (centre - half)) / (2 * half)
            volts[begin:end] = low + (high - low) * (share if after else 1 - share)
            volts[end:] = high if after else low
        return volts + noise

    def truth_s(self, channel: int, frame: Frame) -> list[float]:
        """Return when the channel's edges really were, in s from the true trigger, for checks."""
        line = self.lines.get(channel)
        if line is None:
            return []
        from_ns = frame.trigger_ns + frame.start_s * 1e9
        _, edges = self.feed.between(line, from_ns, from_ns + frame.points * frame.interval_s * 1e9)
        return [(time_ns - frame.trigger_ns) / 1e9 for time_ns, _ in edges]
