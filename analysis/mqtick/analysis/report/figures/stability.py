"""MTIE, TDEV and ADEV over the observation interval, with the masks of standards."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mqtick.analysis.clocks.deviation import Deviation
from mqtick.analysis.clocks.masks import MASKS, Mask
from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.report import style
from mqtick.analysis.report.figures.labels import Label, beside
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.figures.scales import Scale, apply, axis_scale, label_width
from mqtick.analysis.report.numbers import short
from mqtick.analysis.results.result import Result

__all__ = ["stability_picture"]

_LOOKS: Final = {"MTIE": style.SERIES[0], "TDEV": style.SERIES[2], "ADEV": style.SERIES[3]}
_MASKS: Final = 2
"""Drawn of each measure: those that are nearest to it."""


def stability_picture(result: Result, clock: ClockSummary) -> Picture | None:
    """Return the stability of one clock, None with too few samples for any."""
    drawn = [each for each in clock.deviations if _usable(each).any()]
    if not drawn:
        return None
    name = clock.errors.name
    told = ", ".join(
        f"{each.name} {short(float(each.value[_usable(each)][0]))}"
        f"{'' if each.name == 'ADEV' else ' ns'} at {short(float(each.tau_s[_usable(each)][0]))} s"
        for each in drawn
    )
    return Picture(
        f"stability-{name}",
        f"Stability of {name}",
        f"Over the observation interval; bars: {100 * result.confidence:g}\N{NO-BREAK SPACE}% "
        "intervals (MTIE is a maximum and has none). Dashed: masks of standards, the two nearest "
        "to each measure. A client's samples also contain the noise of its network.",
        f"Stability of {name}: {told}.",
        lambda width: _draw(width, clock, drawn, simulated=result.measurement.simulated),
    )


def _usable(deviation: Deviation) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    usable: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        np.isfinite(deviation.value) & (deviation.value > 0) & (deviation.tau_s > 0)
    )
    return usable


def _masks(clock: ClockSummary, deviation: Deviation) -> list[Mask]:
    judged = {
        verdict.mask: abs(np.log(max(verdict.worst_ratio, 1e-12)))
        for verdict in clock.masks
        if verdict.measure == deviation.name and verdict.worst_ratio is not None
    }
    found = [mask for mask in MASKS if mask.measure == deviation.name and mask.name in judged]
    return sorted(found, key=lambda mask: judged[mask.name])[:_MASKS]


def _draw(width: float, clock: ClockSummary, drawn: list[Deviation], *, simulated: bool) -> Figure:
    with style.drawing():
        wide = style.is_wide(width)
        times = [each for each in drawn if each.name != "ADEV"]
        rest = [each for each in drawn if each.name == "ADEV"]
        panels = [panel for panel in (times, rest) if panel]
        sizes = [2.6 if panel is times else 1.7 for panel in panels]
        gap = style.LINE + 0.3
        figure = style.figure_of(width, sum(sizes) + gap * (len(panels) - 1) + 0.85)
        full = float(figure.get_size_inches()[1])
        begin = "MTIE and TDEV in ns" if times else "ADEV"
        top = style.header(figure, f"{clock.errors.name}: {begin}", simulated=simulated)
        tau = np.concatenate([each.tau_s[_usable(each)] for each in drawn])
        x = axis_scale(tau, log_ratio=1.0001, room=0.03)
        if x.kind == "linear":
            x = Scale("log", float(tau.min()) / 2, float(tau.max()) * 2)
        room = 1.35 if wide else 0.95
        placed = []
        at = top
        for panel, size in zip(panels, sizes, strict=True):
            axes = style.paper_axes(figure)
            height = size * (full - top - 0.5 - gap * (len(panels) - 1)) / sum(sizes)
            apply(axes, "y", _scale(clock, panel), height)
            placed.append((axes, panel, at, height))
            at += height + gap
        left = max(label_width(axes) for axes, *_ in placed)
        for axes, panel, panel_top, height in placed:
            style.place(figure, axes, left, room, panel_top, full - panel_top - height)
            apply(axes, "x", x, width - left - room)
            labels = [_curve(axes, each, _LOOKS.get(each.name, style.SERIES[0])) for each in panel]
            for each in panel:
                labels += _mask_lines(axes, clock, each, x)
            beside(figure, axes, labels, room)
            if panel is rest and len(panels) > 1:
                figure.text(
                    0.06 / width,
                    1 - (panel_top - gap * 0.4) / full,
                    "Allan deviation (ADEV)",
                    ha="left",
                    va="center",
                )
        for axes, *_ in placed[:-1]:
            axes.tick_params(labelbottom=False)
        placed[-1][0].set_xlabel("observation interval in s")
        return figure


def _scale(clock: ClockSummary, panel: list[Deviation]) -> Scale:
    values = np.concatenate([each.value[_usable(each)] for each in panel])
    low, high = float(values.min()), float(values.max())
    near = [
        limit
        for each in panel
        for mask in _masks(clock, each)
        for limit in mask.at(each.tau_s).tolist()
        if low / 300 < limit < high * 300
    ]
    found = axis_scale(np.array([low, high, *near]), log_ratio=1.0001, room=0.05)
    if found.kind == "log" and found.high / found.low > 10:
        return found
    return Scale("log", low / 4, high * 4)


def _curve(axes: Axes, deviation: Deviation, look: style.Look) -> Label:
    usable = _usable(deviation)
    tau, value = deviation.tau_s[usable], deviation.value[usable]
    color = look.ink.light
    if deviation.low is not None and deviation.high is not None:
        low, high = deviation.low[usable], deviation.high[usable]
        known = np.isfinite(low) & np.isfinite(high)
        bars = [np.maximum(value - low, 0)[known], np.maximum(high - value, 0)[known]]
        axes.errorbar(
            tau[known], value[known], yerr=bars, fmt="none", ecolor=color, elinewidth=0.8, capsize=2
        )
    axes.plot(
        tau,
        value,
        color=color,
        marker=look.marker,
        markersize=3.5,
        linewidth=1.2,
        linestyle=look.dashes,
    )
    return Label(float(value[-1]), deviation.name, look.ink, bold=True)


def _mask_lines(axes: Axes, clock: ClockSummary, deviation: Deviation, x: Scale) -> list[Label]:
    labels = []
    low, high = axes.get_ylim()
    for mask in _masks(clock, deviation):
        tau = np.geomspace(max(x.low, 1e-9), x.high, 200)
        limit = mask.at(tau)
        shown = np.isfinite(limit) & (limit > 0)
        if not shown.any() or not ((limit[shown] >= low) & (limit[shown] <= high)).any():
            continue
        ink = style.LIMIT if deviation.name == "MTIE" else style.MUTED
        axes.plot(tau[shown], limit[shown], color=ink.light, linewidth=1.0, linestyle=(0, (4, 2)))
        labels.append(Label(float(limit[shown][-1]), f"{mask.name} {deviation.name}", ink))
    return labels
