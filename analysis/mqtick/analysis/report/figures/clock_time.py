"""A clock's time error over time."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.report import style
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.figures.scales import Scale, apply, axis_scale, time_unit
from mqtick.analysis.report.numbers import in_words, short, told, unit_for_clocks
from mqtick.analysis.results.result import Result

Array = npt.NDArray[np.float64]
_COLUMNS: Final = 700
"""Of a line: of more samples, each column shows the least and the largest of its own."""


def clock_time_picture(result: Result, clock: ClockSummary) -> Picture | None:
    """Return time error over time, None for fewer than two samples."""
    if len(clock.errors.seconds) < 2:
        return None
    caption = "Time error, reference minus local: positive is late, the clock is behind."
    if clock.errors.lower_ns is not None:
        caption += " Shade: the interval stated with each."
        if clock.outside is not None:
            caption += f" {clock.outside:,} of {len(clock.after.seconds):,} exclude 0."
    if clock.converged_after_s:
        caption += f" Converged after {short(clock.converged_after_s)} s."
    if clock.holdovers:
        caption += " Grey: gaps without measurements."
    if _needs_two(clock):
        caption += " Above: the whole time; below: after convergence."
    constant = told(clock.constant_us)
    return Picture(
        f"clock-time-{clock.errors.name}",
        f"Time error of {clock.errors.name} over time",
        caption,
        f"Time error of {clock.errors.name} over time: constant part {constant}, spread "
        f"{told(clock.spread_us)}, largest {in_words(clock.most_us)}.",
        lambda width: _draw(width, clock, simulated=result.measurement.simulated),
    )


def _needs_two(clock: ClockSummary) -> bool:
    after = clock.after.error_ns
    if not clock.converged_after_s or len(after) < 2:
        return False
    return float(np.ptp(clock.errors.error_ns)) > 3 * float(np.ptp(after))


def _draw(width: float, clock: ClockSummary, *, simulated: bool) -> Figure:
    with style.drawing():
        two = _needs_two(clock)
        unit, factor = unit_for_clocks([clock])
        figure = style.figure_of(
            width,
            4.9 if two else 3.3,
            f"Time error of {clock.errors.name} in {unit}",
            simulated=simulated,
        )
        seconds = clock.errors.seconds
        name, size = time_unit(float(np.ptp(seconds)))
        panels = figure.subplots(1 + two, height_ratios=(1, 2) if two else (1,), squeeze=False)[
            :, 0
        ]
        begins = (-np.inf, float(clock.after.seconds[0])) if two else (-np.inf,)
        begin, end = float(seconds[0]) / size, float(seconds[-1]) / size
        margin = 0.01 * (end - begin) or 0.5
        for axes, since in zip(panels, begins, strict=True):
            apply(axes, "y", _scale(clock, seconds >= since, factor), most=4 if two else 0)
            apply(axes, "x", Scale("linear", begin - margin, end + margin))
            _panel(axes, clock, since, factor, size)
        first, last = panels[0], panels[-1]
        last.set_xlabel(f"time since the start in {name}")
        if two:
            first.tick_params(labelbottom=False)
            last.set_title("After convergence")
        constant = clock.constant_us.value * factor
        low, high = last.get_ylim()
        if low <= constant <= high:
            # In grey the errors are as dark as the dashes.
            last.axhline(constant, color=style.PAPER.light, linewidth=2.5)
            last.axhline(
                constant,
                color=style.INK.light,
                linewidth=0.9,
                linestyle=(0, (5, 2)),
                label=f"constant part {short(constant)}\N{NO-BREAK SPACE}{unit}",
            )
        converged = float(clock.after.seconds[0]) / size
        if clock.converged_after_s and begin < converged < end:
            first.axvline(
                converged,
                color=style.GREEN.light,
                linewidth=1.2,
                linestyle="dotted",
                label="converged",
            )
        style.legend(figure)
        return figure


def _scale(clock: ClockSummary, chosen: npt.NDArray[np.bool_], factor: float) -> Scale:
    """Choose the axis of what is chosen; wide intervals may leave it, errors never do."""
    error = clock.errors.error_ns[chosen] / 1000.0
    values = [error]
    if clock.errors.lower_ns is not None and clock.errors.upper_ns is not None:
        for bound, share in ((clock.errors.lower_ns, 1), (clock.errors.upper_ns, 99)):
            own = bound[chosen] / 1000.0
            own = own[np.isfinite(own)]
            values.append(np.percentile(own, [share]) if len(own) else own)
    every = np.concatenate(values) * factor
    return axis_scale(every, log_ratio=np.inf, room=0.08, from_zero=True)


def columns(seconds: Array, least: Array, most: Array) -> tuple[Array, Array, Array]:
    """Return at most that many columns, each with the least and the largest within it."""
    n = len(seconds)
    if n <= 2 * _COLUMNS:
        return seconds, least, most
    edges = np.linspace(seconds[0], seconds[-1], _COLUMNS + 1)[:-1]
    starts = np.unique(np.searchsorted(seconds, edges))
    return (
        seconds[starts],
        np.minimum.reduceat(least, starts),
        np.maximum.reduceat(most, starts),
    )


def _broken(seconds: Array, clock: ClockSummary, *values: Array) -> list[Array]:
    """Put a NaN at every gap, so that no line crosses it."""
    places = [
        int(np.searchsorted(seconds, gap.begin_s + 1e-9))
        for gap in clock.holdovers
        if seconds[0] <= gap.begin_s and gap.end_s <= seconds[-1]
    ]
    return [np.insert(array, places, np.nan) for array in (seconds, *values)]


def _panel(axes: Axes, clock: ClockSummary, begin: float, factor: float, size: float) -> None:
    errors = clock.errors
    chosen = errors.seconds >= begin
    seconds = errors.seconds[chosen]
    if not len(seconds):
        return
    scale = factor / 1000.0
    for gap in clock.holdovers:
        axes.axvspan(
            gap.begin_s / size, gap.end_s / size, color=style.MUTED.light, alpha=0.15, lw=0
        )
    if errors.lower_ns is not None and errors.upper_ns is not None:
        at, low, high = columns(
            seconds, errors.lower_ns[chosen] * scale, errors.upper_ns[chosen] * scale
        )
        # A bound may be infinite: it ends beyond the axis.
        least, most = axes.get_ylim()
        beyond = most - least
        low = np.clip(low, least - beyond, most + beyond)
        high = np.clip(high, least - beyond, most + beyond)
        at, low, high = _broken(at, clock, low, high)
        axes.fill_between(at / size, low, high, color=style.BLUE.light, alpha=0.18, linewidth=0)
    own = errors.error_ns[chosen] * scale
    at, low, high = columns(seconds, own, own)
    thinned = len(at) < len(own)
    at, low, high = _broken(at, clock, low, high)
    if thinned:
        axes.fill_between(at / size, low, high, color=style.BLUE.light, linewidth=0.6)
    else:
        few = len(own) <= 60
        axes.plot(
            at / size,
            low,
            color=style.BLUE.light,
            linewidth=0.9,
            marker="o" if few else None,
            markersize=3.5,
        )
