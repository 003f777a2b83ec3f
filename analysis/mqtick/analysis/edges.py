"""Edges of a waveform: state levels, the 50 % crossing between them, sub-sample time.

The terms are those of IEEE 181: low and high *state level*, *reference level* instant of 50 %.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.waveform import Codes, Waveform

__all__ = ["Edge", "EdgeError", "StateLevels", "find_edges", "state_levels"]

_BINS: Final = 64
HYSTERESIS: Final = 0.25
"""Share of the amplitude by which the signal has to pass the middle before the next edge counts."""
_MOST_HYSTERESIS: Final = 0.45
_SIGMAS: Final = 5.0
"""Noise beyond so many standard deviations is not expected in a record."""
_COARSEST_STEP: Final = 256
"""Codes of 8 bits may stand in the upper half of a word."""
_FIT_SAMPLES: Final = 10
"""An edge that takes so many samples within the hysteresis is fitted, not interpolated."""
_FIT_SHARE: Final = 0.2
_FIT_BIAS: Final = 0.01
"""How far a straight line misses the middle of a bent edge, as a share of the edge's length."""

Integers = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


class EdgeError(ValueError):
    """A waveform has no two levels between which an edge could be; the text says why."""


@dataclass(frozen=True, slots=True)
class StateLevels:
    """Low and high level in codes, and how many samples stand at the converter's limits.

    `noise` is the standard deviation around the levels and `step` the distance of neighbouring
    values, both in codes.
    """

    low: float
    high: float
    clipped: int
    noise: float = 0.0
    step: int = 1

    @property
    def middle(self) -> float:
        """The 50 % reference level, in codes."""
        return (self.low + self.high) / 2

    @property
    def amplitude(self) -> float:
        """High minus low level, in codes."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Edge:
    """One crossing of the 50 % level: its instant in fs from the trigger, and its direction.

    `uncertainty_fs` is how far the instant may be from the true one, in fs: what quantisation,
    noise (four standard deviations) and the shape between two samples can do, for a straight,
    Gaussian or exponential edge. Not the instrument's time base, nor its trigger.
    """

    instant_fs: int
    rising: bool
    uncertainty_fs: int = field(default=0, compare=False)


def state_levels(waveform: Waveform, minimum_v: float = 0.0) -> StateLevels:
    """Find low and high level as the modes of the lower and upper half (IEEE 181, 5.2).

    `minimum_v` is the least amplitude in volts that counts as a signal. EdgeError where the
    waveform is empty, flat, or nothing but noise.
    """
    codes, scale = waveform.codes, waveform.volts_per_code
    if codes.size < 2:
        raise EdgeError(f"The waveform has {codes.size} samples, too few for an edge.")
    lowest, highest = int(codes.min()), int(codes.max())
    if _one_bit(waveform, lowest, highest):
        return StateLevels(0.0, 1.0, 0)
    if highest - lowest < 2 or (highest - lowest) * scale < minimum_v:
        raise EdgeError(
            f"The waveform is flat: {(highest - lowest) * scale:.3g} V between its lowest and "
            f"highest sample, and an edge needs {max(minimum_v, 2 * scale):.3g} V; look at "
            "cable, probe factor and volts per division."
        )
    counts = np.bincount(codes.astype(np.int32) - lowest)
    used = np.flatnonzero(counts)
    half = (highest - lowest) // 2
    low, high = _mode(counts[: half + 1]), half + 1 + _mode(counts[half + 1 :])
    noise = max(_spread(counts, low, high - low), _spread(counts, high, high - low))
    step = int(np.gcd.reduce(used))
    step = step if step <= _COARSEST_STEP else 1
    if (high - low) < _SIGMAS * noise or (high - low) * scale < minimum_v:
        raise EdgeError(
            f"The waveform has no two levels: {(high - low) * scale:.3g} V apart with noise of "
            f"{noise * scale:.3g} V, so that no edge can be told; look at cable, probe factor and "
            "volts per division."
        )
    limits = np.iinfo(codes.dtype)
    clipped = int(counts[0]) if lowest - step < limits.min else 0
    clipped += int(counts[-1]) if highest + step > limits.max else 0
    return StateLevels(lowest + low, lowest + high, clipped, noise, step)


def _one_bit(waveform: Waveform, lowest: int, highest: int) -> bool:
    """Whether this is a logic analyser's: 0 V or a logic level, not a converter's last bit."""
    return (lowest, highest, waveform.code_at_zero) == (0, 1, 0.0) and waveform.volts_per_code >= 1


def _mode(counts: Integers) -> float:
    """Return where most samples of a half lie: the fullest bin, refined by what lies around it."""
    width = max(1, counts.size // _BINS)
    starts = np.arange(0, counts.size, width)
    # Three bins at a time, so that noise over several of them does not pick one at random.
    bins = np.convolve(np.add.reduceat(counts, starts), (1, 2, 1))[1:-1]
    fullest = int(bins.argmax()) * width
    first, last = max(fullest - width, 0), min(fullest + 2 * width, counts.size)
    codes = np.arange(first, last)
    return float(np.average(codes, weights=counts[first:last]))


def _spread(counts: Integers, level: float, amplitude: float) -> float:
    """Return the standard deviation around a level, of what is nearer to it than the hysteresis."""
    first = max(int(np.ceil(level - HYSTERESIS * amplitude)), 0)
    last = int(np.floor(level + HYSTERESIS * amplitude)) + 1
    near = counts[first:last]
    away = np.arange(first, first + near.size) - level
    return float(np.sqrt((near * away**2).sum() / max(near.sum(), 1)))


def find_edges(waveform: Waveform, minimum_v: float = 0.5) -> list[Edge]:
    """Return every edge, the earliest first; EdgeError where the waveform is flat.

    An edge counts when the signal went from below the middle by `HYSTERESIS` of the amplitude (more
    where there is much noise) to above it by as much, or back: a runt is none, and neither is one
    that had begun before the record did. Its instant is where the line between the two samples
    around the middle meets it, the last ones before it arrived; of a slow edge, where a line
    fitted to its middle part does.
    """
    levels = state_levels(waveform, minimum_v)
    codes = waveform.codes
    band = levels.amplitude * HYSTERESIS
    band = min(max(band, _SIGMAS * levels.noise), levels.amplitude * _MOST_HYSTERESIS)
    above, below = codes > levels.middle + band, codes < levels.middle - band
    known = np.flatnonzero(above | below)
    changes = np.flatnonzero(above[known][1:] != above[known][:-1])
    before, after = known[changes], known[changes + 1]
    # Where the signal passes the middle: between such a sample and the next one.
    upper = codes >= levels.middle
    flips = np.flatnonzero(upper[1:] != upper[:-1])
    places, errors = _interpolated(codes, levels, flips, before, after)
    _fit(codes, levels, flips, (before, after), (places, errors))
    errors_fs = np.ceil(errors * waveform.interval_fs)
    rising = above[after]
    return [
        Edge(waveform.instant_fs(place), up, int(error_fs))
        for place, up, error_fs in zip(
            places.tolist(), rising.tolist(), errors_fs.tolist(), strict=True
        )
    ]


def _interpolated(
    codes: Codes, levels: StateLevels, flips: Integers, before: Integers, after: Integers
) -> tuple[Floats, Floats]:
    """Return places and uncertainties, in samples, of the straight line between two samples."""
    first = np.searchsorted(flips, before)
    last = np.searchsorted(flips, after) - 1
    at = flips[last]
    start, end = codes[at].astype(np.float64), codes[at + 1].astype(np.float64)
    slope = np.abs(end - start)
    share = (levels.middle - start) / (end - start)
    # Half of what the edge does between the samples covers every shape that was tried.
    errors = 0.5 * np.minimum(slope / levels.amplitude, 1.0)
    errors += (levels.step + 4 * levels.noise) / slope
    # The true crossing lies between the two samples, but for noise; and noise may cross again.
    errors = np.minimum(errors, np.maximum(share, 1 - share) + 4 * levels.noise / slope)
    return at + share, errors + (at - flips[first])


def _fit(
    codes: Codes,
    levels: StateLevels,
    flips: Integers,
    edge: tuple[Integers, Integers],
    found: tuple[Floats, Floats],
) -> None:
    """Put places and uncertainties of slow edges in the place of the interpolated ones.

    The samples are chosen by their time, not by their code: that would bend the line.
    """
    before, after = edge
    for index in np.flatnonzero(after - before >= _FIT_SAMPLES).tolist():
        inner = flips[np.searchsorted(flips, before[index]) : np.searchsorted(flips, after[index])]
        centre = float(inner.mean()) + 0.5
        half = _FIT_SHARE * (after[index] - before[index])
        first = max(int(centre - half), 0)
        samples = codes[first : int(centre + half) + 1].astype(np.float64) - levels.middle
        times = np.arange(samples.size) - (samples.size - 1) / 2
        slope = float((times @ samples) / (times @ times))
        if not slope:
            continue
        middle = first + (samples.size - 1) / 2
        place = middle - float(samples.mean()) / slope
        if not before[index] <= place <= after[index]:
            continue
        slope = abs(slope)
        # How far the line reaches, and how far it is drawn out beyond its samples.
        reach = 1 / samples.size + (place - middle) ** 2 / float(times @ times)
        found[0][index] = place
        found[1][index] = (
            (levels.step + 4 * levels.noise * reach**0.5) + _FIT_BIAS * levels.amplitude
        ) / slope
