"""Axes whose numbers can be read: linear, logarithmic, or both around zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from mqtick.analysis.report import style
from mqtick.analysis.report.numbers import short

__all__ = ["Scale", "apply", "apply_numbers", "axis_scale", "label_width", "time_unit"]

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


def _linear_ticks(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    found = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    ticks = [float(tick) for tick in found if low - 1e-12 <= tick <= high + 1e-12]
    step = float(found[1] - found[0])
    largest = max(abs(low), abs(high))
    if not 1e-4 <= largest < 1e6:
        return ticks, [short(tick, 3) for tick in ticks]
    # A step of 2.5 takes one place more than one of 2.
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if decimals < 8 and abs(round(step, decimals) - step) > 1e-3 * step:
        decimals += 1
    return ticks, [
        f"{tick + 0.0:,.{decimals}f}".replace("-", "−") if tick else "0" for tick in ticks
    ]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for leads in ((1, 2, 5), (1, 3), (1,)):
        ticks = [
            lead * 10.0**power
            for power in range(first, last + 1)
            for lead in leads
            if low <= lead * 10.0**power <= high * (1 + 1e-9)
        ]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]


def _symmetric_ticks(scale: Scale, most: int) -> list[float]:
    first = math.ceil(math.log10(scale.linear_to))
    last = math.floor(math.log10(max(abs(scale.low), abs(scale.high))))
    sides = (scale.low < 0) + (scale.high > 0)
    step = max(1, math.ceil((last - first + 1) * sides / most))
    sizes = [10.0**power for power in range(first, last + 1, step)]
    ticks = sorted([0.0, *sizes, *(-size for size in sizes)])
    return [tick for tick in ticks if scale.low <= tick <= scale.high]


def apply(axes: Axes, which: Literal["x", "y"], scale: Scale, length: float) -> None:
    """Give an axis of `length` inches this scale, with as many numbers as fit."""
    most = max(2, int(length / (style.LINE * 2.0 if which == "y" else 0.75)))
    most = min(most, 7)
    if scale.kind == "log":
        ticks = _log_ticks(scale.low, scale.high, most)
        labels = [short(tick, 3) for tick in ticks]
    elif scale.kind == "symlog":
        ticks = _symmetric_ticks(scale, most)
        labels = [short(tick, 3) for tick in ticks]
    else:
        ticks, labels = _linear_ticks(scale.low, scale.high, most)
    options: dict[str, Any] = {"linthresh": scale.linear_to} if scale.kind == "symlog" else {}
    _set(axes, which, scale, options)
    _ticks(axes, which, ticks, labels, length)


def apply_numbers(axes: Axes, scale: Scale, numbers: Sequence[int], length: float) -> None:
    """Give the x axis this scale with whole numbers on it: those given, as far as they fit."""
    _set(axes, "x", scale, {})
    _ticks(axes, "x", [float(n) for n in numbers], [f"{n:,}" for n in numbers], length)


def _set(axes: Axes, which: str, scale: Scale, options: dict[str, Any]) -> None:
    if which == "x":
        axes.set_xscale(scale.kind, **options)
        axes.set_xlim(scale.low, scale.high)
    else:
        axes.set_yscale(scale.kind, **options)
        axes.set_ylim(scale.low, scale.high)


def _ticks(
    axes: Axes, which: str, ticks: Sequence[float], labels: Sequence[str], length: float
) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    if which == "x":
        ticks, labels = _apart(axes, ticks, labels, length)
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter(FixedFormatter(list(labels)))
    axis.set_minor_locator(NullLocator())


def _apart(
    axes: Axes, ticks: Sequence[float], labels: Sequence[str], length: float
) -> tuple[list[float], list[str]]:
    """Keep the first, the last, and what has room between."""
    if not len(ticks):
        return [], []
    transform = axes.transScale.transform
    low, high = (float(transform((value, 1.0))[0]) for value in axes.get_xlim())
    places = [
        (float(transform((tick, 1.0))[0]) - low) / ((high - low) or 1.0) * length for tick in ticks
    ]
    halves = [style.text_inches(label) / 2 + 0.05 for label in labels]
    kept = [0]
    last = len(ticks) - 1
    for index in range(1, len(ticks)):
        before = kept[-1]
        clear = places[index] - halves[index] >= places[before] + halves[before]
        ends = index == last or places[index] + halves[index] <= places[last] - halves[last]
        if clear and ends:
            kept.append(index)
    return [ticks[index] for index in kept], [labels[index] for index in kept]


def label_width(axes: Axes) -> float:
    """Return how wide the numbers of the y axis are, with their distance from it, in inches."""
    formatter = axes.yaxis.get_major_formatter()
    labels = formatter.seq if isinstance(formatter, FixedFormatter) else []
    return max((style.text_inches(label) for label in labels), default=0.0) + 0.16


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit in which a duration reads best, and how many seconds it has."""
    for name, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 3 * size:
            return name, size
    return "s", 1.0
