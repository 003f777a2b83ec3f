"""A clock's time errors by size: the constant part and the spread."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.figure import Figure

from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.report.figures.clock_time import after_convergence
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.figures.scales import apply, label_width, scale_of
from mqtick.analysis.report.style import (
    BLUE,
    INK,
    LINE,
    drawing,
    figure_of,
    header,
    is_wide,
    number,
    paper_axes,
    place,
    text_inches,
    unit_of,
)
from mqtick.analysis.results.result import Result

__all__ = ["clock_spread_picture"]

_LEAST: Final = 8
"""Of fewer samples a histogram says nothing."""


def clock_spread_picture(result: Result, clock: ClockSummary) -> Picture | None:
    """Return the histogram after convergence, None of fewer than eight samples."""
    values = after_convergence(clock)
    if len(values) < _LEAST:
        return None
    name = clock.errors.name
    when = "after convergence" if clock.converged_after_s is not None else "in all"
    return Picture(
        f"clock-spread-{name}",
        f"Constant part and spread of {name}",
        f"Time errors {when}, {len(values):,} of them. The line is the constant part (their mean), "
        "the bar one standard deviation either way: averaging takes away the second, never the "
        "first.",
        f"Histogram of {name}'s time error: constant part {number(clock.constant_us.value)} µs, "
        f"spread {number(clock.spread_us.value)} µs.",
        lambda width: _draw(width, clock, simulated=result.measurement.simulated),
    )


def _draw(width: float, clock: ClockSummary, *, simulated: bool) -> Figure:
    with drawing():
        values = after_convergence(clock)
        unit, factor = unit_of(values)
        values = values * factor
        figure = figure_of(width, 3.1)
        top = header(figure, f"Samples of {clock.errors.name} by time error", simulated=simulated)
        top += LINE + 0.15
        low, high = np.percentile(values, [0.2, 99.8])
        spare = 0.15 * (high - low)
        middle = clock.constant_us.value * factor
        spread = clock.spread_us.value * factor
        near = [0.0] if low - (high - low) < 0 < high + (high - low) else []
        x = scale_of(
            [low - spare, high + spare, middle - spread, middle + spread, *near],
            log_ratio=np.inf,
            room=0.02,
        )
        bins = int(np.clip(np.sqrt(len(values)), 10, 60 if is_wide(width) else 40))
        counts, edges = np.histogram(values, bins, range=(x.low, x.high))
        beyond = len(values) - int(counts.sum())
        axes = paper_axes(figure)
        height = 3.1 - top - 0.5
        apply(axes, "y", scale_of([0.0, counts.max() * 1.08], from_zero=True, room=0), height)
        left = label_width(axes)
        place(figure, axes, left, 0.2, top, 0.5)
        apply(axes, "x", x, width - left - 0.2)
        axes.stairs(counts, edges, fill=True, color=BLUE.light, alpha=0.35)
        axes.stairs(counts, edges, color=BLUE.light, linewidth=1.0)
        left_out = f" ({beyond:,} beyond)" if beyond else ""
        axes.set_xlabel(f"time error in {unit}{left_out}")
        axes.grid(axis="x", visible=False)
        if near:
            axes.axvline(0.0, color=INK.light, linewidth=0.8)
        axes.axvline(middle, color=INK.light, linewidth=1.4, linestyle=(0, (5, 2)))
        axes.plot(
            [middle - spread, middle + spread],
            [1.02, 1.02],
            color=INK.light,
            linewidth=2.5,
            solid_capstyle="butt",
            transform=axes.get_xaxis_transform(),
            clip_on=False,
        )
        text = f"{number(middle)} ± {number(spread)} {unit}"
        size = text_inches(text)
        box = axes.get_position()
        at = (box.x0 + box.width * (middle - x.low) / (x.high - x.low)) * width
        at = min(max(at, size / 2 + 0.05), width - size / 2 - 0.05)
        figure.text(
            at / width, 1 - (top - 0.1) / 3.1, text, ha="center", va="bottom", color=INK.light
        )
        return figure
