"""MTIE, TDEV and ADEV of a time error that is sampled evenly.

Definitions: ITU-T G.810 (08/96), appendix II (MTIE and TDEV by standard estimator formulas), and
NIST Special Publication 1065, section 5.2 (overlapping Allan deviation, time deviation). All take
the time error in ns; they do not depend on a constant offset, and ADEV and TDEV not on a constant
frequency offset either.

A time error is given as its parts between gaps: nothing is ever computed across a gap. Each part
has one finite value every `tau0_s`; the longest has at least four of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from mqtick.analysis.clocks.noise import ALPHAS, degrees_of_freedom, noise_exponents
from mqtick.analysis.statistics.lines import product, without_line
from mqtick.recording.units import Floats

_A_DECADE: Final = 10
_LARGEST_SHARE: Final = 4
"""A variance over tau above a quarter of the record is hardly more than one value."""
_LARGEST_SHARE_MTIE: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class Deviation:
    """One stability measure over observation intervals.

    Attributes:
        name: "MTIE", "TDEV" or "ADEV".
        tau_s: observation intervals in s.
        value: MTIE and TDEV in ns, ADEV without unit.
        low, high: confidence interval, None for MTIE (a maximum, it has none).
    """

    name: str
    tau_s: Floats
    value: Floats
    low: Floats | None = None
    high: Floats | None = None


def default_factors(most: int) -> list[int]:
    """Return whole averaging factors from 1 to `most`, ten to a decade where there are so many."""
    if most < 1:
        return []
    count = math.floor(math.log10(most) * _A_DECADE) + 1
    factors = {round(10 ** (step / _A_DECADE)) for step in range(count)}
    return sorted(factor for factor in factors if factor <= most)


def mtie(parts: Sequence[Floats], tau0_s: float, factors: Sequence[int] | None = None) -> Deviation:
    """Return the largest peak-to-peak time error within any window of length tau, exactly.

    Args:
        parts: time error in ns, one array between two gaps each.
        tau0_s: the distance of two values, in s.
        factors: observation intervals as multiples of `tau0_s`, ascending, the largest within the
            longest part. By default ten to a decade, up to half of it.
    """
    longest = max(part.size for part in parts)
    factors = factors or default_factors(longest // _LARGEST_SHARE_MTIE)
    found = np.max([_ranges(part, factors) for part in parts], axis=0)
    return Deviation("MTIE", np.array(factors) * tau0_s, found)


def _ranges(part: Floats, factors: Sequence[int]) -> Floats:
    """Return the largest range of `factor + 1` neighbours, for each factor (ascending).

    The extremes of windows twice as long come from two shorter ones side by side; those of any
    length between from two that overlap. So each factor costs a few passes, however large it is.
    """
    found = np.zeros(len(factors))
    high, low, width = part, part, 1
    for index, factor in enumerate(factors):
        window = factor + 1
        if window > part.size:
            break
        while 2 * width <= window:
            high = np.maximum(high[:-width], high[width:])
            low = np.minimum(low[:-width], low[width:])
            width *= 2
        shift = window - width
        if shift:
            ranges = np.maximum(high[:-shift], high[shift:])
            ranges -= np.minimum(low[:-shift], low[shift:])
        else:
            ranges = high - low
        found[index] = ranges.max()
    return found


def adev(
    parts: Sequence[Floats],
    tau0_s: float,
    factors: Sequence[int] | None = None,
    confidence: float = 0.95,
) -> Deviation:
    """Return the overlapping Allan deviation, without unit, with its confidence interval.

    The interval is that of chi-square with equivalent degrees of freedom for the noise that each
    tau shows (see `noise`).

    Args:
        parts, tau0_s: as for `mtie`.
        factors: as for `mtie`; by default up to a quarter of the longest part.
        confidence: of the interval, 0 to 1.
    """
    return _deviation("ADEV", parts, tau0_s, factors, confidence, modified=False)


def tdev(
    parts: Sequence[Floats],
    tau0_s: float,
    factors: Sequence[int] | None = None,
    confidence: float = 0.95,
) -> Deviation:
    """Return the time deviation in ns; everything else as `adev`."""
    return _deviation("TDEV", parts, tau0_s, factors, confidence, modified=True)


def _deviation(
    name: str,
    parts: Sequence[Floats],
    tau0_s: float,
    factors: Sequence[int] | None,
    confidence: float,
    *,
    modified: bool,
) -> Deviation:
    reach = 3 if modified else 2
    # Offset and frequency do not matter, and without them sums lose no digits.
    straight = [without_line(part) for part in parts]
    longest = max(straight, key=len)
    factors = factors or default_factors(longest.size // _LARGEST_SHARE)
    square: Callable[[Floats, int], tuple[float, int]] = _squares
    if modified:
        straight = [np.concatenate(([0.0], np.cumsum(part))) for part in straight]
        square = _averaged_squares
    # Where there are too few values to tell, the noise is that of the factor before; any, if
    # there was none.
    alphas: tuple[int, ...] = ALPHAS
    values, degrees = np.zeros(len(factors)), np.zeros(len(factors))
    for index, factor in enumerate(factors):
        sums = [square(part, factor) for part in straight if part.size > reach * factor]
        terms = sum(count for _, count in sums)
        values[index] = math.sqrt(sum(total for total, _ in sums) / terms / 2)
        alphas = noise_exponents(longest, factor) or alphas
        degrees[index] = min(
            degrees_of_freedom(alpha, factor, terms, modified=modified) for alpha in alphas
        )
    tau_s = np.array(factors) * tau0_s
    values *= 1 / math.sqrt(3) if modified else 1e-9 / tau_s
    low, high = (
        values * np.sqrt(degrees / (2 * scipy.special.gammaincinv(degrees / 2, share)))
        for share in ((1 + confidence) / 2, (1 - confidence) / 2)
    )
    return Deviation(name, tau_s, values, low, high)


def _squares(x: Floats, factor: int) -> tuple[float, int]:
    """Return the sum of squared second differences of phase, and their number."""
    ends = x[2 * factor :] + x[: -2 * factor]
    ends -= 2 * x[factor:-factor]
    return product(ends, ends), ends.size


def _averaged_squares(sums: Floats, factor: int) -> tuple[float, int]:
    """Return the same of phase averaged over `factor` values, from cumulative sums."""
    third = sums[3 * factor :] - sums[: -3 * factor]
    third -= 3 * (sums[2 * factor : -factor] - sums[factor : -2 * factor])
    return product(third, third) / factor**2, third.size
