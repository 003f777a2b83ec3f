"""From volts in floats, as files have them, back to the codes of the converter."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.recording.outliers import range_without_outliers
from mqtick.recording.waveform import Waveform

_MOST_CODES: Final = 65_000
_MARGIN: Final = 256
"""Codes left free below and above: a record that reaches the type's limits is taken as clipped."""
_FEWEST_CODES: Final = 128
"""A step is divided where there are fewer, so that no signal is one code high."""
_EXACT: Final = 0.02
"""How far a value may lie from a multiple of the step, as a share of the step."""
_ROUNDED: Final = 0.125
"""The same where too many values agree for chance: files round what they print."""
_MANY_VALUES: Final = 12
_SAME: Final = 1.5
"""Distances up to this multiple of the least one are one step, rounded a little differently."""
_PARTS: Final = 4
"""The least distance is divided into this many parts if not all others are its multiples."""
_LOOKED_AT: Final = 1 << 16
_PIECE: Final = 1 << 15
_LARGEST_V: Final = 1e30
"""Instruments write 9.9E+37 for what they did not measure."""
_FINEST: Final = 2.0**-44
"""Least step, as a share of the largest value: finer ones are rounding of the floats themselves."""
_FLOAT32: Final = 2.0**-22
_LEAST_V: Final = 0.05
"""Least amplitude of a signal that outliers may not hide, in volts."""
_BESIDE_OUTLIERS: Final = 256
"""The least number of codes for the signal, if outliers would leave fewer."""

Samples = npt.NDArray[np.floating]
_Codes = tuple[npt.NDArray[np.uint16], float, float]
"""Codes, the step in volts, and the volts of code `_MARGIN`."""


def waveform_of_volts(volts: npt.ArrayLike, interval_fs: int, start_fs: int) -> Waveform:
    """Return a waveform of volts; ValueError where a value is not finite, or there is none.

    The least distance of two values is taken as the converter's step where every value is a
    multiple of it; else the range is divided into 65,000 codes, finer than any converter of these
    instruments. No value is moved by more than an eighth of a step. Of a record with few different
    values (a step without noise) a step is divided into several codes: `find_edges` then says that
    the edge lies between two samples, and not where.
    Outliers (see `without_outliers`) do not affect that; if they are too far away for that many
    codes, they become the lowest or the highest code of the type.
    """
    values = np.asarray(volts)
    if values.dtype != np.float32:
        values = values.astype(np.float64, copy=False)
    if values.ndim != 1 or not values.size:
        raise ValueError("there are no samples")
    lowest, highest = float(values.min()), float(values.max())
    if not max(abs(lowest), abs(highest)) <= _LARGEST_V:
        wrong = int(np.flatnonzero(~(np.abs(values) <= _LARGEST_V))[0])
        raise ValueError(f"sample {wrong} is {float(values[wrong])!r}, which is not a voltage")
    found = _at_once(values, lowest, highest) or _by_range(values, lowest, highest)
    codes, step, lowest = found
    return Waveform(codes, step, _MARGIN - lowest / step, interval_fs, start_fs)


def _at_once(values: Samples, lowest: float, highest: float) -> _Codes | None:
    """Return the codes in one pass, None unless every value is a multiple of one step.

    The step is looked for in a part of a long record.
    """
    part = values[:: -(-values.size // _LOOKED_AT)]
    low, high = _ends(part, *range_without_outliers(part, _LEAST_V))
    blur = _blur(values, max(abs(lowest), abs(highest)))
    used = np.unique(np.append(part.astype(np.float64), (lowest, highest)))
    step, tolerance = _step_of(used, blur)
    if not step or high - low <= blur:
        return None
    parts = _parts(step, high - low)
    if (highest - lowest) / step * parts > _MOST_CODES:
        return None
    codes = np.empty(values.size, np.uint16)
    for at in range(0, values.size, _PIECE):
        placed = values[at : at + _PIECE] - lowest  # 32 bits stay 32: `blur` covers that
        placed *= 1 / step
        whole = np.rint(placed)
        if np.abs(placed - whole).max() > tolerance:
            return None
        whole = whole if parts == 1 else np.rint(placed * parts)
        whole += _MARGIN
        codes[at : at + _PIECE] = whole
    return codes, step / parts, lowest


def _by_range(values: Samples, lowest: float, highest: float) -> _Codes:
    """Return codes for any values; those far outside the two levels do not settle the step."""
    low, high = range_without_outliers(values, _LEAST_V)
    span, largest = high - low, max(abs(low), abs(high))
    finest = max(largest * _FINEST, 1e-30)
    step = 0.0
    if span > finest:
        whole_range = (low, high) == (lowest, highest)
        if not whole_range:
            # The ends of a range without outliers are those of bins: none of the values.
            low, high = _ends(values, low, high)
            span = high - low
        step = _step(values, (low, high), _blur(values, largest), all_within=whole_range)
        if step:
            step /= _parts(step, span)
    whole = max(highest - lowest, finest, 0.0 if span > finest else largest) / _MOST_CODES
    step = max(float(step) or min(whole, max(span, finest) / _BESIDE_OUTLIERS), finest)
    if (highest - lowest) / step > _MOST_CODES + 1:
        lowest = max(lowest, low - (_MOST_CODES - span / step) / 2 * step)
    codes = np.empty(values.size, np.uint16)
    for at in range(0, values.size, _PIECE):
        placed = values[at : at + _PIECE].astype(np.float64)
        placed -= lowest
        placed /= step
        np.rint(placed, out=placed)
        placed += _MARGIN
        codes[at : at + _PIECE] = np.clip(placed, 0, np.iinfo(np.uint16).max, out=placed)
    return codes, step, lowest


def _blur(values: Samples, largest: float) -> float:
    """Return how far the rounding of floats may move a value, in volts."""
    return largest * (_FLOAT32 if values.dtype == np.float32 else _FINEST)


def _parts(step: float, span: float) -> int:
    """Return into how many codes a step is divided where a range has too few of them."""
    return max(math.ceil(_FEWEST_CODES * step / span), 1) if span / step < _FEWEST_CODES else 1


def _ends(values: Samples, low: float, high: float) -> tuple[float, float]:
    """Return the least and the greatest value within a range."""
    inside = [
        piece[(piece >= low) & (piece <= high)]
        for piece in (values[at : at + _PIECE] for at in range(0, values.size, _PIECE))
    ]
    found = [(float(each.min()), float(each.max())) for each in inside if each.size]
    return min(one for one, _ in found), max(other for _, other in found)


def _step(values: Samples, within: tuple[float, float], blur: float, *, all_within: bool) -> float:
    """Return the step of which all values are multiples (above the lowest), 0.0 for none.

    `all_within`: whether none of them lies outside. Looked for in a part of a long record; values
    that contradict it are looked at too.
    """
    looked_at = values[:: -(-values.size // _LOOKED_AT)]
    looked_at = looked_at[(looked_at >= within[0]) & (looked_at <= within[1])]
    looked_at = np.append(looked_at, within)
    for _ in range(4):
        step, tolerance = _step_of(np.unique(looked_at.astype(np.float64)), blur)
        if not step:
            return 0.0
        strangers = _strangers(values, within, step, tolerance, all_within=all_within)
        if not strangers.size:
            return step
        looked_at = np.concatenate((looked_at, strangers))
    return 0.0


def _step_of(used: npt.NDArray[np.float64], blur: float) -> tuple[float, float]:
    """Return the step of increasing values and how far one may lie from its multiples, in steps."""
    within = float(used[0]), float(used[-1])
    span = within[1] - within[0]
    distances = np.diff(used)
    # Volts are rounded in the file, so that equal distances come out a little unequal.
    distances = distances[distances > max(4 * blur, span / (2 * _MOST_CODES))]
    if not distances.size:
        return 0.0, 0.0
    least = float(distances.min())
    guess = float(distances[distances < _SAME * least].mean())
    share = _ROUNDED if used.size >= _MANY_VALUES else _EXACT
    for parts in range(1, _PARTS + 1):
        # Distances are short, so that their counts are sure though the guess is not exact.
        step = span / max(float(np.rint(np.diff(used) / (guess / parts)).sum()), 1.0)
        if span / step > _MOST_CODES:
            break
        tolerance = share + blur / step
        if not _strangers(used, within, step, tolerance).size:
            return step, tolerance
    return 0.0, 0.0


def _strangers(
    values: Samples,
    within: tuple[float, float],
    step: float,
    tolerance: float,
    *,
    all_within: bool = False,
) -> npt.NDArray[np.float64]:
    """Return some of the values within a range that are not whole steps above its start."""
    for at in range(0, values.size, _PIECE):
        piece = values[at : at + _PIECE].astype(np.float64)
        if not all_within:
            piece = piece[(piece >= within[0]) & (piece <= within[1])]
        away = (piece - within[0]) / step
        away -= np.rint(away)
        wrong = np.flatnonzero(np.abs(away, out=away) > tolerance)
        if wrong.size:
            return piece[wrong[: _LOOKED_AT // 4]]
    return np.empty(0)
