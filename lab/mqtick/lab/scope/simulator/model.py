"""A simulated oscilloscope without its language: inputs, time base, trigger, converter.

Everything runs on CLOCK_MONOTONIC_RAW. The acquisition is computed only when it is queried, from
the edges since then: edges carry their instants, so no code has to run when one occurs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator.feed import EdgeFeed
from mqtick.lab.scope.simulator.physics import Frame, Input, Physics
from mqtick.pins.base import Clock, monotonic_raw_ns
from mqtick.recording.waveform import Codes

__all__ = ["Frame", "Input", "Model", "Physics"]

_ARRIVAL_NS: Final = 10_000_000
"""How long after an edge its record from another process may come."""
_GAUSSIAN: Final = NormalDist()
_SIGMAS_10_90: Final = _GAUSSIAN.inv_cdf(0.9) - _GAUSSIAN.inv_cdf(0.1)
_SIGMAS: Final = np.linspace(-5.0, 5.0, 2001)
_SHARES: Final = np.array([_GAUSSIAN.cdf(sigmas) for sigmas in _SIGMAS])
"""The step response of a Gaussian system: 0 to 1, over +-5 standard deviations."""
_HIGH_V: Final = 3.3
"""The high level of the pins; low is 0."""
_LONGEST_SPAN_S: Final = 1e4
_MOST_SEGMENTS: Final = 65_536


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
        """Length of a record."""
        self.before = 0.5
        """Share of a record before its trigger, limited to 0 to 1."""
        self.depth = self.physics.depths[-1]
        """Memory depth in points."""
        self.segments = 1
        """Records of one acquisition."""
        self.trigger_channel = 1
        self.trigger_level_v = 1.65
        self.trigger_slope = "rising"
        self.single = False
        self.running = False
        self.fails_to_trigger: Callable[[], bool] = lambda: False
        """Called at the start of an acquisition; True is a fault: no trigger comes in this one."""
        self._blind = False
        self.frames: list[Frame] = []
        self._now = now
        self._armed_ns = 0.0
        self._taken = 0

    def __setattr__(self, name: str, value: Any) -> None:
        """Set, or raise ValueError for a setting that no instrument accepts."""
        if name == "span_s" and not 0 < value <= _LONGEST_SPAN_S:
            raise ValueError(f"a span of {value} s")
        if name == "depth" and not 2 <= value <= max(self.physics.depths):
            raise ValueError(f"a memory of {value} points")
        if name == "segments" and not 1 <= value <= _MOST_SEGMENTS:
            raise ValueError(f"{value} segments")
        if name == "before":
            if not math.isfinite(value):
                raise ValueError(f"a share of {value}")
            value = min(max(value, 0.0), 1.0)
        object.__setattr__(self, name, value)

    # -- acquisition -------------------------------------------------------------------------

    @property
    def rate_hz(self) -> float:
        """Sample rate: as memory and span allow, at most the highest; in steps of 1-2-5."""
        wanted = min(self.physics.max_rate_hz, self.depth / self.span_s)
        decade = 10.0 ** math.floor(math.log10(wanted) + 1e-9)
        step = max(step for step in (1, 2, 2.5, 4, 5) if step * decade <= wanted * (1 + 1e-9))
        return float(step * decade)

    @property
    def points(self) -> int:
        """Samples in a record."""
        return min(round(self.span_s * self.rate_hz), self.depth)

    def start(self, *, single: bool) -> None:
        """Begin to record; the previous record is lost."""
        self.single, self.running, self.frames = single, True, []
        self._blind = self.fails_to_trigger()
        self._armed_ns = self._now() + self.before * self.span_s * 1e9

    def stop(self) -> None:
        """End the acquisition."""
        self.poll()
        self.running = False

    def poll(self) -> State:
        """Compute what has happened until now, and return the state."""
        now_ns = self._now()
        while self.running:
            if now_ns < self._armed_ns:
                return State.PREPARING
            found = None if self._blind else self._find_trigger(now_ns)
            if found is None:
                return State.ARMED
            trigger_ns, rest_ns = found
            end_ns = trigger_ns + (1 - self.before) * self.span_s * 1e9
            if now_ns < end_ns + _ARRIVAL_NS:
                return State.TRIGGERED
            self._take(trigger_ns, rest_ns)
            self._armed_ns = end_ns + self.before * self.span_s * 1e9
            if self.single and len(self.frames) >= self.segments:
                self.running = False
        return State.STOPPED

    def _find_trigger(self, now_ns: int) -> tuple[int, float] | None:
        line = self.lines.get(self.trigger_channel)
        one = self.inputs[self.trigger_channel]
        if line is None or not one.on or one.coupling == "GND":
            return None
        delay_ns = self._delay_s(self.trigger_channel) * 1e9
        _, edges = self.feed.between(line, self._armed_ns - delay_ns, now_ns)
        wanted = {"rising": (True,), "falling": (False,)}.get(self.trigger_slope, (True, False))
        for time_ns, level in edges:
            if level not in wanted:
                continue
            rests_at = _HIGH_V if not level else 0.0
            level_v = self.trigger_level_v + (rests_at if one.coupling == "AC" else 0.0)
            share = level_v / _HIGH_V
            if 0 < share < 1:  # else the edge does not cross the trigger's level
                sigmas = _GAUSSIAN.inv_cdf(share if level else 1 - share)
                after_ns = delay_ns + sigmas * self._sigma_ns
                return time_ns + math.floor(after_ns), after_ns % 1.0
        return None

    @property
    def _sigma_ns(self) -> float:
        return self.physics.rise_s * 1e9 / _SIGMAS_10_90

    def _delay_s(self, channel: int) -> float:
        return self.physics.skew_s.get(channel, 0.0) - self.inputs[channel].deskew_s

    def _take(self, trigger_ns: int, rest_ns: float) -> None:
        self._taken += 1
        random = np.random.default_rng((self.physics.seed, self._taken))
        interval_s = 1 / self.rate_hz
        before = math.ceil(self.before * self.points)
        phase = float(random.random())  # of the sample clock, to the trigger
        frame = Frame(
            number=self._taken,
            trigger_ns=trigger_ns,
            interval_s=interval_s,
            start_s=-(before + phase) * interval_s,
            points=self.points,
            rest_ns=rest_ns,
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
        volts = np.full(frame.points, 0.0)
        if self.physics.noise_v:
            volts += self.physics.noise_v * random.standard_normal(frame.points, np.float32)
        line, coupling = self.lines.get(channel), self.inputs[channel].coupling
        if line is None or coupling == "GND":
            return volts
        # An instrument whose clock is fast takes its samples too close together.
        truth = 1 / (1 + self.physics.ppm * 1e-6)
        interval_ns = frame.interval_s * truth * 1e9
        first_ns = frame.rest_ns + frame.start_s * truth * 1e9
        delay_ns = self._delay_s(channel) * 1e9
        sigma = max(self._sigma_ns / interval_ns, 1e-9)  # in samples, as all that follows
        begin_ns = frame.trigger_ns + first_ns - delay_ns
        around_ns = _SIGMAS[-1] * sigma * interval_ns
        before, edges = self.feed.between(
            line, begin_ns - around_ns, begin_ns + frame.points * interval_ns + around_ns
        )
        # Edges add up, as in a linear system: two that are close to one another make a runt.
        steps = np.zeros(frame.points + 1)
        level = before
        for time_ns, after in edges:
            if after == level:  # the record of an edge before it was lost
                continue
            level = after
            height = _HIGH_V if after else -_HIGH_V
            # Relative to the trigger, so that floats keep fractions of a picosecond.
            centre = (time_ns - frame.trigger_ns + delay_ns - first_ns) / interval_ns
            begin, end = (
                min(max(math.ceil(centre + side * sigma), 0), frame.points)
                for side in (_SIGMAS[0], _SIGMAS[-1])
            )
            sigmas = (np.arange(begin, end) - centre) / sigma
            volts[begin:end] += height * np.interp(sigmas, _SIGMAS, _SHARES)
            steps[end] += height
        volts += np.cumsum(steps[:-1])
        if coupling != "AC":
            volts += _HIGH_V if before else 0.0
        return volts

    def truth_s(self, channel: int, frame: Frame) -> list[float]:
        """Return the true instants of the channel's edges, in s from the true trigger, for checks.

        Without the channel's delay, and for a perfect time base.
        """
        line = self.lines.get(channel)
        if line is None:
            return []
        from_ns = frame.trigger_ns + frame.start_s * 1e9
        _, edges = self.feed.between(line, from_ns, from_ns + frame.points * frame.interval_s * 1e9)
        return [(time_ns - frame.trigger_ns - frame.rest_ns) / 1e9 for time_ns, _ in edges]
