"""State levels of a waveform: where it rests, how noisy it is there, whether it was cut off.

The terms are those of IEEE 181: low and high *state level*, found as the modes of the histogram.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.recording.outliers import Counts, is_few, mode, without_outliers
from mqtick.recording.waveform import Codes, Waveform, seen

HYSTERESIS: Final = 0.25
"""Share of the amplitude by which the signal has to pass the middle before the next edge counts."""
SIGMAS: Final = 5.0
"""Noise beyond this many standard deviations is not expected in a record."""

_LEAST_CODES: Final = 8
"""Levels next to outliers are at least this many codes apart: the last bit toggles too."""
_COARSEST_STEP: Final = 256
"""Codes of 8 bits may stand in the upper half of a word."""
_PIECE: Final = 1 << 14
"""Samples counted at a time: the intermediate results stay in the processor's cache."""
_LOOKS: Final = 2048
_TRIMMED: Final = 0.9
_TRIMMED_MEAN: Final = 0.657
"""Mean of the smaller 90 % of the absolute values of a normal distribution, in its sigmas."""
_WANDERS: Final = 2.5
_CLIPPINGS: Final = 5
_MOST_CODES: Final = 0xFFFF
_TELLS_NOISE: Final = 32
_LEAST_CUT: Final = 4
_CUT_SHARE: Final = 0.1
"""A level with this many samples at an outermost code may be cut off there."""
_DITHERED: Final = 0.6


class EdgeError(ValueError):
    """A waveform has no two levels between which an edge could be; the text says why."""


@dataclass(frozen=True, slots=True)
class StateLevels:
    """Low and high level in codes, how noisy they are, and whether one was cut off.

    Attributes:
        low, high: the levels, in codes.
        clipped: samples at the limits of the codes' type.
        noise: standard deviation around the levels, in codes.
        step: distance of neighbouring values, in codes.
        samples: how many samples stand at the level that has fewer.
        jitter: standard deviation of the noise from one sample to the next, in codes; where it is
            far below `noise`, the levels wander: a slow drift, or the droop of an AC input.
        cut_off: whether a level stands where the converter ends, so that the real one lies beyond:
            at the limit of the codes' type, or at an outermost code that has no noise while the
            other level has (an input driven out of its range shows none). Not where fewer than 4
            samples stand there: noise does that too.
        outliers: samples that lie further beyond a level than the other level is away.
        farthest: the one of them that is farthest away, in codes.
        reference: the level whose crossing is an edge, in codes; None: halfway between the two.
    """

    low: float
    high: float
    clipped: int
    noise: float = 0.0
    step: int = 1
    samples: int = 0
    jitter: float = 0.0
    cut_off: bool = False
    outliers: int = 0
    farthest: int = 0
    reference: float | None = None

    @property
    def middle(self) -> float:
        """The reference level, in codes: that of 50 %, unless overridden by the user."""
        return (self.low + self.high) / 2 if self.reference is None else self.reference

    @property
    def nearest(self) -> float:
        """Distance from the reference level to the nearer of the two levels, in codes."""
        return min(self.middle - self.low, self.high - self.middle)

    @property
    def amplitude(self) -> float:
        """High minus low level, in codes."""
        return self.high - self.low

    def volts(self, waveform: Waveform) -> tuple[float, float]:
        """Return low and high level in volts."""
        scale, zero = waveform.volts_per_code, waveform.code_at_zero
        return (self.low - zero) * scale, (self.high - zero) * scale

    @property
    def passed_over(self) -> bool:
        """Whether its outliers are so few that they are not part of the signal."""
        return self.outliers > 0 and is_few(self.outliers, self.samples)

    def is_outlier(self, codes: Codes) -> npt.NDArray[np.bool_]:
        """Say of each code whether it lies as far outside both levels as outliers do."""
        below, above = self._bounds()
        return (codes < below) | (codes > above)

    def _bounds(self) -> tuple[int, int]:
        return int(np.ceil(self.low - self.amplitude)), int(np.floor(self.high + self.amplitude))

    @property
    def wander(self) -> bool:
        """Whether the levels seem to move more than noise does; ringing looks like that too."""
        return self.noise > max(_WANDERS * self.jitter + self.step, 0.02 * self.amplitude)


def state_levels(
    waveform: Waveform, minimum_v: float = 0.0, threshold_v: float | None = None
) -> StateLevels:
    """Find low and high level as the modes of the lower and upper half (IEEE 181, 5.2).

    A few samples beyond the range of two levels count as outliers and have no part in that (see
    `without_outliers`). `minimum_v` is the least amplitude in volts that counts as a signal.
    EdgeError where the waveform is empty, flat, or nothing but noise.

    With a `threshold_v` in volts, the levels are those of the parts below and above it, whatever
    their amplitude and noise are; EdgeError where all samples lie on one side of it.
    """
    codes, scale = waveform.codes, waveform.volts_per_code
    if codes.size < 2:
        raise EdgeError(f"The waveform has {codes.size} samples, too few for an edge.")
    lowest, highest = int(codes.min()), int(codes.max())
    reference = None
    if threshold_v is not None:
        reference = threshold_v / scale + waveform.code_at_zero
        if not lowest < reference < highest:
            raise EdgeError(
                f"The threshold of {threshold_v:g} V lies outside its {seen(waveform)}: nothing "
                "can pass it; give a threshold between these two, or none."
            )
    if (lowest, highest, waveform.code_at_zero) == (0, 1, 0.0) and scale >= 1:
        # A logic analyser's 0 V or logic level, not a converter's last bit.
        return StateLevels(0.0, 1.0, 0, reference=reference)
    if reference is None and (highest - lowest < 2 or (highest - lowest) * scale < minimum_v):
        raise EdgeError(
            f"The waveform is flat: {(highest - lowest) * scale:.3g} V between the lowest and the "
            f"highest of {seen(waveform)}, and an edge needs {max(minimum_v, 2 * scale):.3g} V; "
            "check cable, probe factor and volts per division."
        )
    if highest - lowest > _MOST_CODES:
        raise EdgeError(
            f"The waveform's codes reach from {lowest} to {highest}, more than 16 bits; no "
            "supported instrument has such a converter."
        )
    every = _counted(codes, lowest, highest)
    least = max(_LEAST_CODES * _step(every), minimum_v / scale)
    first, last = without_outliers(every, least) or (0, every.size - 1)
    if reference is not None and not lowest + first < reference < lowest + last:
        first, last = 0, every.size - 1
    counts, begin, end = every[first : last + 1], lowest + first, lowest + last
    half = (end - begin) // 2 if reference is None else math.ceil(reference) - 1 - begin
    low, high = mode(counts[: half + 1]), half + 1 + mode(counts[half + 1 :])
    (low_noise, at_low), (high_noise, at_high) = (
        _spread(counts, level, high - low) for level in (low, high)
    )
    # A level of a few samples, as short pulses have, shows their shape rather than its noise.
    enough = max(_TELLS_NOISE, (at_low + at_high) // 10)
    told = [n for n, at in ((low_noise, at_low), (high_noise, at_high)) if at >= enough]
    noise = max(told or (low_noise, high_noise))
    unclear = (high - low) < SIGMAS * noise or (high - low) * scale < minimum_v
    if reference is None and unclear:
        low_v, high_v = ((begin + at - waveform.code_at_zero) * scale for at in (low, high))
        raise EdgeError(
            f"The waveform has no two levels: of {seen(waveform)} most are near {low_v:.3g} and "
            f"{high_v:.3g} V, {(high - low) * scale:.3g} V apart with noise of "
            f"{noise * scale:.3g} V, so no edge can be found; check cable, probe factor and "
            "volts per division."
        )
    step = _step(counts)
    limits = np.iinfo(codes.dtype)
    bottom = _End(int(counts[0]), low, low_noise, at_low, high_noise)
    top = _End(int(counts[-1]), end - begin - high, high_noise, at_high, low_noise)
    at_bottom, at_top = begin - step < limits.min, end + step > limits.max
    # Codes made of a text file's volts begin at 0 wherever the converter's did.
    made = limits.min == 0 and codes.dtype.itemsize > 1 and step == 1
    found = StateLevels(
        low=begin + low,
        high=begin + high,
        clipped=at_bottom * bottom.held + at_top * top.held,
        noise=noise,
        step=step,
        samples=min(at_low, at_high),
        jitter=min(_jitter(codes), noise),
        cut_off=bottom.cut(step, at_limit=at_bottom and not made) or top.cut(step, at_limit=at_top),
        reference=reference,
    )
    used = lowest + np.flatnonzero(every)
    outside = used[found.is_outlier(used)]
    if not outside.size:
        return found
    farthest = int(outside[np.abs(outside - found.middle).argmax()])
    return replace(found, outliers=int(every[outside - lowest].sum()), farthest=farthest)


def _step(counts: Counts) -> int:
    """Return the distance of neighbouring values."""
    apart = np.diff(np.flatnonzero(counts))
    # The common divisor takes long to find where there are many codes; then it is 1.
    step = 1 if apart.min() == 1 else int(np.gcd.reduce(apart))
    return step if step <= _COARSEST_STEP else 1


@dataclass(frozen=True, slots=True)
class _End:
    """The lowest or the highest code, and the level next to it; all in codes.

    Attributes:
        held: samples that have just this code.
        away: from this code to the level.
        noise: standard deviation around the level.
        samples: how many stand at the level.
        other_noise: standard deviation around the other level.
    """

    held: int
    away: float
    noise: float
    samples: int
    other_noise: float

    def cut(self, step: int, *, at_limit: bool) -> bool:
        """Whether the level was cut off here; `at_limit`: the codes' type ends here."""
        silent = self.other_noise > _DITHERED * step and self.noise < self.other_noise / 4
        return (
            (at_limit or (silent and abs(self.away) < step))
            and self.held >= _LEAST_CUT
            and self.held > _CUT_SHARE * self.samples
        )


def _counted(codes: Codes, lowest: int, highest: int) -> Counts:
    """Count the codes, a piece at a time: no second array as long as the record is needed."""
    size = highest - lowest + 1
    piece = max(_PIECE, 4 * size)
    counts = np.zeros(size, np.intp)
    for begin in range(0, codes.size, piece):
        places = np.subtract(codes[begin : begin + piece], lowest, dtype=np.intp)
        counts += np.bincount(places, minlength=size)
    return counts


def _spread(counts: Counts, level: float, amplitude: float) -> tuple[float, int]:
    """Return standard deviation around a level and number of the samples that stand at it.

    They are those that are nearer to it than the hysteresis.
    """
    reach, samples, spread = HYSTERESIS * amplitude, 0, 0.0
    for _ in range(_CLIPPINGS):
        first = max(int(np.ceil(level - reach)), 0)
        near = counts[first : int(np.floor(level + reach)) + 1]
        away = np.arange(first, first + near.size) - level
        samples = samples or int(near.sum())
        # Not `near @ away**2`: threads of a linear algebra library would wait for one another.
        spread = float(np.sqrt((near * away**2).sum() / max(int(near.sum()), 1)))
        # What an edge or its ringing leaves on the way to the level is not noise.
        if reach <= 3 * spread + 1:
            break
        reach = 3 * spread + 1
    return spread, samples


def _jitter(codes: npt.NDArray[np.integer[Any]]) -> float:
    """Return the standard deviation of the noise between neighbours, which no drift changes."""
    every = max(codes.size // _LOOKS, 1)
    first = codes[:-1:every].astype(np.int32)
    away = np.sort(np.abs(codes[1::every][: first.size] - first))
    # An edge makes a few differences large, and must not count as noise.
    return float(away[: max(int(_TRIMMED * away.size), 1)].mean()) / _TRIMMED_MEAN / 2**0.5
