"""A clock's time errors by size: the constant part and the spread."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.figure import Figure

from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.report import style
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.figures.scales import apply, axis_scale
from mqtick.analysis.report.numbers import short, told, unit_for_clocks
from mqtick.analysis.results.result import Result

_LEAST: Final = 8
"""Of fewer samples a histogram says nothing."""


def clock_spread_picture(result: Result, clock: ClockSummary) -> Picture | None:
    """Return the histogram after convergence, None of fewer than eight samples."""
    values = clock.after.error_ns
    if len(values) < _LEAST:
        return None
    name = clock.errors.name
    when = "after convergence" if clock.converged_after_s is not None else "in all"
    return Picture(
        f"clock-spread-{name}",
        f"Constant part and spread of {name}",
        f"Time errors {when}, {len(values):,} of them. The line is the constant part (their mean), "
        "the bar one standard deviation either way: averaging reduces the second, never the "
        "first.",
        f"Histogram of {name}'s time error: constant part {told(clock.constant_us)}, "
        f"spread {told(clock.spread_us)}.",
        lambda width: _draw(width, clock, simulated=result.measurement.simulated),
    )


def _draw(width: float, clock: ClockSummary, *, simulated: bool) -> Figure:
    with style.drawing():
        unit, factor = unit_for_clocks([clock])
        values = clock.after.error_ns / 1000.0 * factor
        figure = style.figure_of(
            width, 3.1, f"Samples of {clock.errors.name} by time error", simulated=simulated
        )
        low, high = np.percentile(values, [0.2, 99.8])
        spare = 0.15 * (high - low)
        middle = clock.constant_us.value * factor
        spread = clock.spread_us.value * factor
        near = [0.0] if low - (high - low) < 0 < high + (high - low) else []
        x = axis_scale(
            [low - spare, high + spare, middle - spread, middle + spread, *near],
            log_ratio=np.inf,
            room=0.02,
        )
        bins = int(np.clip(np.sqrt(len(values)), 10, 60 if style.is_wide(width) else 40))
        counts, edges = np.histogram(values, bins, range=(x.low, x.high))
        beyond = len(values) - int(counts.sum())
        axes = figure.subplots()
        apply(axes, "y", axis_scale([0.0, counts.max() * 1.08], from_zero=True, room=0), whole=True)
        apply(axes, "x", x)
        axes.stairs(counts, edges, fill=True, color=style.BLUE.light, alpha=0.35)
        axes.stairs(counts, edges, color=style.BLUE.light, linewidth=1.0)
        left_out = f" ({beyond:,} beyond)" if beyond else ""
        axes.set_xlabel(f"time error in {unit}{left_out}")
        axes.grid(axis="x", visible=False)
        if near:
            axes.axvline(0.0, color=style.INK.light, linewidth=0.8)
        axes.axvline(middle, color=style.INK.light, linewidth=1.4, linestyle=(0, (5, 2)))
        axes.plot(
            [middle - spread, middle + spread],
            [1.02, 1.02],
            color=style.INK.light,
            linewidth=2.5,
            solid_capstyle="butt",
            transform=axes.get_xaxis_transform(),
            clip_on=False,
        )
        begin, end = axes.get_xlim()
        above = min(max((middle - begin) / (end - begin), 0.2), 0.8)
        axes.set_title(f"{short(middle)} ± {short(spread)} {unit}", loc="center", x=above)
        return figure
