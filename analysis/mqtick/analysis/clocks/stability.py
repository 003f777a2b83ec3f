"""MTIE, TDEV and ADEV of a time error that is sampled evenly.

Definitions: ITU-T G.810 (08/96), appendix II (MTIE and TDEV by standard estimator formulas), and
NIST Special Publication 1065, section 5.2 (overlapping Allan deviation, time deviation). All take
the time error in ns; they do not depend on a constant offset, and ADEV and TDEV not on a constant
frequency offset either.

A time error with gaps is given as the parts between them: nothing is ever computed across a gap.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.clocks.chi_square import chi_square_quantile
from mqtick.analysis.clocks.deviation import Deviation
from mqtick.analysis.clocks.dot import product
from mqtick.analysis.clocks.noise import ALPHAS, degrees_of_freedom, noise_exponents

__all__ = ["adev", "default_factors", "mtie", "tdev"]

Floats = npt.NDArray[np.float64]
Samples = npt.ArrayLike | Sequence[Floats]

_A_DECADE: Final = 10
_LARGEST_SHARE: Final = 4
"""A variance over tau above a quarter of the record is hardly more than one value."""
_LARGEST_SHARE_MTIE: Final = 2
_STRETCH: Final = 1 << 15


def default_factors(most: int) -> list[int]:
    """Return whole averaging factors from 1 to `most`, ten to a decade where there are so many."""
    if most < 1:
        return []
    count = math.floor(math.log10(most) * _A_DECADE) + 1
    factors = {round(10 ** (step / _A_DECADE)) for step in range(count)}
    return sorted(factor for factor in factors if factor <= most)


def mtie(x_ns: Samples, tau0_s: float, taus: npt.ArrayLike | None = None) -> Deviation:
    """Return the largest peak-to-peak time error within any window of length tau, exactly.

    Args:
        x_ns: time error in ns, one value each `tau0_s`; or a list of the parts between gaps.
        tau0_s: the distance of two values, in s.
        taus: observation intervals in s, rounded to multiples of `tau0_s`; those that do not fit
            the longest part are left out. By default ten to a decade, up to half of it.

    Raises:
        ValueError: values that are not numbers, no tau that fits.
    """
    parts = _parts(x_ns, tau0_s, fewest=2)
    longest = max(part.size for part in parts)
    factors = _factors(taus, tau0_s, longest - 1, longest // _LARGEST_SHARE_MTIE)
    found = np.zeros(len(factors))
    for part in parts:
        np.maximum(found, _ranges(part, factors), out=found)
    return Deviation("MTIE", np.array(factors) * tau0_s, found)


def _ranges(part: Floats, factors: list[int]) -> Floats:
    """Return the largest range of `factor + 1` neighbours, for each factor (ascending).

    Short windows are searched stretch by stretch, each of which fits the processor's cache.
    """
    short = bisect.bisect_right(factors, _STRETCH // 4)
    found = _windows(part, factors[short:])
    if not short:
        return found
    reach = factors[short - 1]
    stretches = [
        _windows(part[begin : begin + _STRETCH + reach], factors[:short])
        for begin in range(0, part.size - 1, _STRETCH)
    ]
    return np.concatenate((np.max(stretches, axis=0), found))


def _windows(part: Floats, factors: list[int]) -> Floats:
    """Do the same at once.

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
    x_ns: Samples,
    tau0_s: float,
    taus: npt.ArrayLike | None = None,
    confidence: float = 0.95,
) -> Deviation:
    """Return the overlapping Allan deviation, without unit, with its confidence interval.

    The interval is that of chi-square with equivalent degrees of freedom for the noise that each
    tau shows (see `noise`).

    Args:
        x_ns, tau0_s: as for `mtie`.
        taus: as for `mtie`; by default up to a quarter of the longest part.
        confidence: of the interval, 0 to 1.

    Raises:
        ValueError: values that are not numbers, no tau that fits, fewer than three values.
    """
    return _deviation("ADEV", x_ns, tau0_s, taus, confidence, modified=False)


def tdev(
    x_ns: Samples,
    tau0_s: float,
    taus: npt.ArrayLike | None = None,
    confidence: float = 0.95,
) -> Deviation:
    """Return the time deviation in ns; everything else as `adev`."""
    return _deviation("TDEV", x_ns, tau0_s, taus, confidence, modified=True)


def _deviation(
    name: str,
    x_ns: Samples,
    tau0_s: float,
    taus: npt.ArrayLike | None,
    confidence: float,
    *,
    modified: bool,
) -> Deviation:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence}: it lies between 0 and 1.")
    parts = _parts(x_ns, tau0_s, fewest=3)
    longest = max(parts, key=len)
    reach = 3 if modified else 2
    most = (longest.size - (0 if modified else 1)) // reach
    factors = _factors(taus, tau0_s, most, longest.size // _LARGEST_SHARE)
    # Offset and frequency do not matter, and without them sums lose no digits.
    straight = [_without_line(part) for part in parts]
    noise_of = _NoiseOf(max(straight, key=len))
    square: Callable[[Floats, int], tuple[float, int]] = _squares
    if modified:
        straight = [np.concatenate(([0.0], np.cumsum(part))) for part in straight]
        square = _averaged_squares
    rows = []
    for factor in factors:
        sums = [square(part, factor) for part in straight if part.size > reach * factor]
        terms = sum(count for _, count in sums)
        value = math.sqrt(sum(total for total, _ in sums) / terms / 2)
        degrees = noise_of.degrees(factor, terms, modified=modified)
        tail = (1 - confidence) / 2
        rows.append(
            (
                value,
                value * math.sqrt(degrees / chi_square_quantile(1 - tail, degrees)),
                value * math.sqrt(degrees / chi_square_quantile(tail, degrees)),
            )
        )
    tau_s = np.array(factors) * tau0_s
    scale = 1 / math.sqrt(3) if name == "TDEV" else 1e-9 / tau_s
    values, low, high = (np.array(column) * scale for column in zip(*rows, strict=True))
    return Deviation(name, tau_s, values, low, high)


class _NoiseOf:
    """Which noise a time error may have at one factor after the other, ascending."""

    def __init__(self, x: Floats) -> None:
        self._x = x
        self._alphas: tuple[int, ...] = ALPHAS

    def degrees(self, factor: int, terms: int, *, modified: bool) -> float:
        """Return the least equivalent degrees of freedom of any noise that it may be.

        Where there are too few values to tell, that is the noise of the factor before; any, if
        there was none.
        """
        self._alphas = noise_exponents(self._x, factor) or self._alphas
        return min(
            degrees_of_freedom(alpha, factor, terms, modified=modified) for alpha in self._alphas
        )


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


def _without_line(x: Floats) -> Floats:
    t = np.linspace(-1, 1, x.size)
    left: Floats = x - x.mean()
    left -= t * (product(t, left) / product(t, t)) if x.size > 1 else 0.0
    return left


def _parts(x_ns: Samples, tau0_s: float, fewest: int) -> list[Floats]:
    if not (tau0_s > 0 and math.isfinite(tau0_s)):
        raise ValueError(f"tau0 of {tau0_s} s: the distance of two values is above 0.")
    whole = not isinstance(x_ns, (list, tuple)) or not any(np.ndim(part) for part in x_ns)
    parts = [np.asarray(part, np.float64) for part in ([x_ns] if whole else x_ns)]  # type: ignore[union-attr]
    for part in parts:
        if part.ndim != 1:
            raise ValueError(f"the time error has {part.ndim} dimensions instead of one.")
        if not np.isfinite(part).all():
            raise ValueError(
                f"{np.count_nonzero(~np.isfinite(part))} of {part.size} values are not numbers; "
                "leave them out and give the parts between the gaps."
            )
    parts = [part for part in parts if part.size >= fewest]
    if not parts:
        raise ValueError(f"no part of the time error has at least {fewest} values.")
    return parts


def _factors(taus: npt.ArrayLike | None, tau0_s: float, most: int, usual: int) -> list[int]:
    if taus is None:
        return default_factors(max(1, min(most, usual)))
    asked = np.atleast_1d(np.asarray(taus, np.float64)) / tau0_s
    if not np.isfinite(asked).all():
        raise ValueError("an observation interval is not a number.")
    factors = sorted({int(factor) for factor in np.rint(asked) if 1 <= factor <= most})
    if not factors:
        raise ValueError(
            f"no observation interval lies between {tau0_s:g} s and {most * tau0_s:g} s, which is "
            "what these values allow."
        )
    return factors
