"""A look at a capture as a picture: the whole record, and the first edges of each channel."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mqtick.analysis.captures.look import Look
from mqtick.analysis.report import style
from mqtick.analysis.report.look_drawing import DrawnLane, drawn_lanes, span_us
from mqtick.analysis.report.numbers import plain, unit_of
from mqtick.recording.units import FS_PER_US

WIDTH: Final = 9.0
"""Inches."""
RESOLUTION: Final = 150
"""Dots an inch, so that the picture fits a screen."""
_POINTS: Final = 4000
_TITLE, _LABEL, _LANE, _AXIS, _CLOSE_UP = 0.45, 0.24, 0.9, 0.55, 1.7
"""Heights in inches: of the title, a channel's name, a channel with it, an axis, a close-up."""
_LEFT, _RIGHT = 0.55, 0.12
_MOST_LANES: Final = 16
_MOST_MARKS: Final = 2000
"""Marks of a channel that are drawn: more cannot be told apart."""
_NEAR: Final = 4
"""Channels drawn from near as well."""
_AROUND: Final = 12
"""Samples on either side of an edge from near, at the least."""
_NEARLY: Final = 0.1
"""What is within this share of the amplitude of a level has arrived there."""
_MOST_WIDER: Final = 40
"""How many times as many there are at the most, around a slow edge."""


def draw_look(look: Look) -> Figure:
    """Return the picture; a filled mark is an edge that a report would use."""
    lanes = drawn_lanes(look, _POINTS)[:_MOST_LANES]
    used = [each for each in lanes if each.lane.used.any()]
    sampled = [each for each in used or lanes if each.interval_us and each.at_us.size]
    near = sampled[:_NEAR]
    with style.drawing():
        title = f"{plain(look.title)}: a report uses the filled marks"
        if look.assumed and used:
            title += " (which channel is whose was guessed)"
        lanes_high = _LANE * max(len(lanes), 1) + _AXIS
        high = _TITLE + lanes_high + (_CLOSE_UP + _AXIS if near else 0.0)
        # Laid out by hand, which takes half the time.
        figure = style.figure_of(WIDTH, high, title, simulated=look.simulated, laid_out=False)
        begin, end = span_us(lanes)
        unit = unit_of([begin, end])
        top = _TITLE
        for place, each in enumerate(lanes):
            axes = _axes(figure, _LEFT, top + _LABEL, WIDTH - _LEFT - _RIGHT, _LANE - _LABEL)
            top += _LANE
            _lane(axes, each, unit.per_us, _colours(place))
            _window(axes, look, begin, end, unit.per_us)
            axes.set_xlim(begin * unit.per_us, end * unit.per_us)
            if place < len(lanes) - 1:
                axes.tick_params(labelbottom=False)
            else:
                origin = "the trigger" if look.triggered else "the start of the record"
                axes.set_xlabel(f"time after {origin} in {unit.name}")
        share = WIDTH / max(len(near), 1)
        for place, each in enumerate(near):
            left, wide = place * share + _LEFT, share - _LEFT - _RIGHT
            axes = _axes(figure, left, top + _AXIS + _LABEL, wide, _CLOSE_UP - _LABEL)
            _near(axes, each, _colours(lanes.index(each)))
        return figure


def _colours(place: int) -> style.Series:
    return style.SERIES[place % len(style.SERIES)]


def _axes(figure: Figure, left: float, top: float, wide: float, high: float) -> Axes:
    """Add axes in inches from the upper left corner."""
    all_high = float(figure.get_figheight())
    place = (left / WIDTH, 1 - (top + high) / all_high, wide / WIDTH, high / all_high)
    return figure.add_axes(place)


def _lane(axes: Axes, each: DrawnLane, factor: float, series: style.Series) -> None:
    ink = series.ink.light
    axes.plot(each.us * factor, each.volts, color=ink, linewidth=0.9)
    for volts, dashes in zip(each.levels_v, ("dotted", style.DASHES, "dotted"), strict=False):
        colour = style.LIMIT.light if dashes == style.DASHES else style.MUTED.light
        axes.axhline(volts, color=colour, linewidth=0.8, linestyle=dashes, zorder=1)
    if each.levels_v:
        _marks(axes, each, factor, ink)
    note = "" if each.at_us.size else f": {each.lane.glance.seen.why_not}"
    axes.set_title(style.shortened(each.label + note, WIDTH - _LEFT), color=ink)
    axes.set_ylabel("V" if each.interval_us else "level")
    axes.margins(y=0.15)
    axes.locator_params(axis="y", nbins=3)


def _marks(axes: Axes, each: DrawnLane, factor: float, ink: str) -> None:
    for used in (False, True):
        for rising, marker in ((True, "^"), (False, "v")):
            chosen = np.flatnonzero((each.lane.used == used) & (each.lane.glance.rising == rising))
            if chosen.size > _MOST_MARKS:
                chosen = chosen[np.linspace(0, chosen.size - 1, _MOST_MARKS).astype(np.intp)]
            axes.plot(
                each.at_us[chosen] * factor,
                np.full(chosen.size, each.levels_v[1]),
                linestyle="",
                marker=marker,
                markersize=5.5 if used else 3.5,
                color=ink,
                markerfacecolor=ink if used else style.PAPER.light,
                markeredgewidth=0.7,
                zorder=4 if used else 3,
            )


def _window(axes: Axes, look: Look, begin: float, end: float, factor: float) -> None:
    """Shade what does not count."""
    from_fs, to_fs = look.window_fs
    shade: Any = {"color": style.GRID.light, "alpha": 0.7, "linewidth": 0, "zorder": 5}
    if from_fs is not None and from_fs / FS_PER_US > begin:
        axes.axvspan(begin * factor, min(from_fs / FS_PER_US, end) * factor, **shade)
    if to_fs is not None and to_fs / FS_PER_US < end:
        axes.axvspan(max(to_fs / FS_PER_US, begin) * factor, end * factor, **shade)


def _near(axes: Axes, each: DrawnLane, series: style.Series) -> None:
    """Draw the first edge that counts from near, sample by sample."""
    ink, used = series.ink.light, each.lane.used
    first = int(np.flatnonzero(used)[0]) if used.any() else 0
    at = float(each.at_us[first])
    half = _half_us(each, at, rising=bool(each.lane.glance.rising[first]))
    unit = unit_of([half])
    kept = np.flatnonzero(np.abs(each.us - at) <= 1.3 * half)
    if kept.size:
        kept = np.arange(max(kept[0] - 1, 0), min(kept[-1] + 2, each.us.size))
    away = (each.us[kept] - at) * unit.per_us
    dots: Any = {"marker": "o", "markersize": 2.5} if each.interval_us and kept.size < 80 else {}
    axes.plot(away, each.volts[kept], color=ink, linewidth=0.9, **dots)
    axes.axhline(each.levels_v[1], color=style.LIMIT.light, linewidth=0.8, linestyle=style.DASHES)
    marker = "^" if each.lane.glance.rising[first] else "v"
    axes.plot(0, each.levels_v[1], marker, color=ink, markersize=6, zorder=4)
    axes.axvline(0, color=ink, linewidth=0.7, linestyle="dotted")
    axes.set_xlim(-half * unit.per_us, half * unit.per_us)
    axes.locator_params(axis="both", nbins=4)
    what = "used edge" if used.any() else "edge"
    axes.set_title(style.shortened(f"{each.lane.name}: first {what}", 2.2), color=ink)
    axes.set_xlabel(f"{unit.name} from this edge")


def _half_us(each: DrawnLane, at: float, *, rising: bool) -> float:
    """Return half the width of a view in which the edge can be seen to rise, however slow it is."""
    low, _, high = each.levels_v
    start, end = (low, high) if rising else (high, low)
    least = max(_AROUND * each.interval_us, 1e-3)
    near = _NEARLY * (high - low)
    before = np.flatnonzero((each.us < at) & (np.abs(each.volts - start) < near))
    after = np.flatnonzero((each.us > at) & (np.abs(each.volts - end) < near))
    rise = float(each.us[after[0]] - each.us[before[-1]]) if before.size and after.size else 0.0
    return min(max(least, 2 * rise), _MOST_WIDER * least)
