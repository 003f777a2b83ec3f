"""A clock's time error around the gaps without measurements."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.figure import Figure

from mqtick.analysis.clocks.summary import ClockSummary, Holdover
from mqtick.analysis.report import style
from mqtick.analysis.report.figures.clock_time import columns
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.figures.scales import apply, axis_scale, time_unit
from mqtick.analysis.report.numbers import in_words, short, unit_for_clocks
from mqtick.analysis.results.result import Result

_GAPS: Final = 3
"""The longest ones are drawn."""


def holdover_picture(result: Result, clock: ClockSummary) -> Picture | None:
    """Return the error around the longest gaps, None if there is none."""
    seen = clock.errors.seconds
    gaps = tuple(
        gap
        for gap in clock.holdovers
        if len(seen) and seen[0] <= gap.begin_s < gap.end_s <= seen[-1]
    )[:_GAPS]
    if not gaps:
        return None
    longest = gaps[0]
    seconds = longest.end_s - longest.begin_s
    return Picture(
        f"holdover-{clock.errors.name}",
        f"Holdover of {clock.errors.name}",
        "Time error around the longest gaps without measurements: how far the clock had "
        "drifted when they resumed, and how it recovered."
        + (f" {len(gaps)} of {len(clock.holdovers)} gaps." if len(clock.holdovers) > 1 else ""),
        f"Time error of {clock.errors.name} changed by {in_words(longest.change_ns / 1000)} over "
        f"a gap of {short(seconds)} s.",
        lambda width: _draw_gaps(width, clock, gaps, simulated=result.measurement.simulated),
    )


def _draw_gaps(
    width: float, clock: ClockSummary, gaps: tuple[Holdover, ...], *, simulated: bool
) -> Figure:
    with style.drawing():
        errors = clock.errors
        unit, factor = unit_for_clocks([clock])
        figure = style.figure_of(
            width,
            0.4 + 2.3 * len(gaps),
            f"Error of {errors.name} at gaps, in {unit}",
            simulated=simulated,
        )
        panels = figure.subplots(len(gaps), squeeze=False)[:, 0]
        for axes, gap in zip(panels, gaps, strict=True):
            gap_s = gap.end_s - gap.begin_s
            length = max(gap_s, clock.interval_s)
            chosen = (errors.seconds >= gap.begin_s - 0.6 * length) & (
                errors.seconds <= gap.end_s + length
            )
            values = errors.error_ns[chosen] / 1000.0 * factor
            name, size = time_unit(float(np.ptp(errors.seconds[chosen])))
            seconds = (errors.seconds[chosen] - gap.begin_s) / size
            apply(axes, "y", axis_scale(values, log_ratio=np.inf, from_zero=True), most=5)
            apply(axes, "x", axis_scale(seconds, log_ratio=np.inf, room=0.02))
            axes.axvspan(0, gap_s / size, color=style.MUTED.light, alpha=0.15, lw=0)
            before = seconds <= 0
            for part in (before, ~before):
                at, low, high = columns(seconds[part], values[part], values[part])
                if len(at) < part.sum():
                    axes.fill_between(at, low, high, color=style.BLUE.light, linewidth=0.6)
                else:
                    axes.plot(
                        at, low, color=style.BLUE.light, linewidth=1.0, marker=".", markersize=3
                    )
            axes.set_xlabel(f"time since the start of the gap in {name}")
            change = short(gap.change_ns / 1000 * factor)
            axes.set_title(f"{change} {unit} after {short(gap_s / size)} {name} without")
        return figure
