"""Axes whose numbers can be read: linear, logarithmic, or both around zero."""

from __future__ import annotations

import math
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    SymmetricalLogLocator,
)

from mqtick.analysis.report.numbers import short

_LEAST_SPAN: Final = 1e-3
"""Of an axis, as a share of its values: below it, the numbers on it would all read the same."""

_NOTHING: Final = 1e-13
"""Of the largest value."""


class Scale(NamedTuple):
    """How an axis runs; `linear_to` is where a symmetric logarithm begins to be one."""

    kind: Literal["linear", "log", "symlog"]
    low: float
    high: float
    linear_to: float = 1.0


def axis_scale(
    values: npt.ArrayLike, *, log_ratio: float = 30.0, from_zero: bool = False, room: float = 0.06
) -> Scale:
    """Choose a scale on which all finite `values` can be seen.

    Logarithmic from a ratio of `log_ratio` of the largest to the smallest; symmetric where they
    have both signs and the largest is far beyond most of them; linear otherwise, with 0 on it
    where `from_zero` and the values are near it.
    """
    array = np.asarray(values, np.float64).ravel()
    array = array[np.isfinite(array)]
    if not len(array):
        return Scale("linear", 0.0, 1.0)
    # What is negligible next to the largest, or in any unit, must not reach the logarithms.
    array = np.where(np.abs(array) < max(_NOTHING * np.abs(array).max(), 1e-30), 0.0, array)
    low, high = float(array.min()), float(array.max())
    if low > 0 and high / low >= log_ratio:
        factor = (high / low) ** room
        return Scale("log", low / factor, high * factor)
    sizes = np.abs(array[array != 0])
    if len(sizes):
        usual = float(np.percentile(sizes, 50))
        if float(sizes.max()) > 300 * usual:
            edge = usual / 3
            return Scale("symlog", _beyond(low, edge, -1), _beyond(high, edge, 1), edge)
    if from_zero and low >= 0 and low < 0.6 * high:
        return Scale("linear", 0.0, high * (1 + room))
    if from_zero and high <= 0 and high > 0.6 * low:
        return Scale("linear", low * (1 + room), 0.0)
    span = max(high - low, _LEAST_SPAN * max(abs(low), abs(high)))
    if span == 0:
        span = 1.0
    middle = (low + high) / 2
    half = span * (0.5 + room)
    return Scale("linear", middle - half, middle + half)


def _beyond(value: float, edge: float, direction: int) -> float:
    if value * direction <= 0:
        return direction * edge
    return value * 1.8 + direction * edge


def apply(
    axes: Axes, which: Literal["x", "y"], scale: Scale, *, most: int = 0, whole: bool = False
) -> None:
    """Give an axis this scale, and numbers on it: `most` of them, only `whole` ones."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    options: dict[str, Any] = {"linthresh": scale.linear_to} if scale.kind == "symlog" else {}
    (axes.set_xscale if which == "x" else axes.set_yscale)(scale.kind, **options)
    axes.set(**{f"{which}lim": (scale.low, scale.high)})
    if not most:
        most = int(axes.figure.bbox.width / axes.figure.dpi) + 1 if which == "x" else 6
    if scale.kind == "linear":
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=whole))
    elif scale.kind == "log":
        decades = math.log10(scale.high / scale.low)
        subs = (1, 2, 3, 5, 7) if decades < 1 else (1, 2, 5) if decades < 2 + whole else (1, 3)
        axis.set_major_locator(LogLocator(subs=subs if decades < 3 else (1,), numticks=most))
    else:
        locator = SymmetricalLogLocator(base=10, linthresh=scale.linear_to)
        locator.set_params(numticks=most)
        axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value, 6)))
    axis.set_minor_locator(NullLocator())


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit in which a duration reads best, and how many seconds it has."""
    for name, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 3 * size:
            return name, size
    return "s", 1.0
