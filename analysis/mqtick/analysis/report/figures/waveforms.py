"""One typical shot: what every node's pin did, and where its edge was found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mqtick.analysis.measurement import Example
from mqtick.analysis.report import style
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.figures.scales import apply, axis_scale
from mqtick.analysis.report.numbers import in_words, short, unit_of
from mqtick.analysis.results.result import Result
from mqtick.recording.edges import Edge
from mqtick.recording.units import FS_PER_US

_MOST: Final = 8
"""Nodes drawn: more do not fit above one another."""
_NEAR: Final = 4
"""Of them, drawn from near as well."""


def waveforms_picture(result: Result) -> Picture | None:
    """Return the picture of the measurement's example, None where it has none."""
    example = result.measurement.example
    if example is None:
        return None
    example = _finite(example)
    nodes = [name for name, (us, _) in example.traces.items() if len(us)]
    if not nodes:
        return None
    shown = nodes[:_MOST]
    far = _far_apart(example, shown)
    caption = (
        f"Shot {example.number}. Each node's voltage around its edges, stacked on the same time "
        "axis; the mark on each is the edge that was found."
    )
    if far:
        caption += (
            " Below: edges close up; the shade shows how far the instant may be off, either way."
        )
    if len(shown) < len(nodes):
        caption += f" {len(shown)} of {len(nodes)} nodes are drawn."
    told = ", ".join(
        f"{name} at {in_words(example.edges[name].instant_fs / FS_PER_US)}"
        for name in shown
        if name in example.edges
    )
    return Picture(
        "waveforms",
        "A typical shot",
        caption,
        f"Waveforms of shot {example.number}: {told or 'no edge found'}.",
        lambda width: _draw(width, example, shown, far=far, simulated=result.measurement.simulated),
    )


def _finite(example: Example) -> Example:
    """Leave out what is not a number: it has no place in a figure."""
    traces = {}
    for name, (us, volts) in example.traces.items():
        known = np.isfinite(us) & np.isfinite(volts)
        traces[name] = (us[known], volts[known])
    return replace(example, traces=traces)


def _instants(example: Example, nodes: Sequence[str]) -> dict[str, Edge]:
    return {name: example.edges[name] for name in nodes if name in example.edges}


def _first_and_last(marks: dict[str, Edge]) -> dict[str, Edge]:
    """Return the marks to be drawn from near: four at most, the last one among them."""
    names = list(marks)
    if len(names) > _NEAR:
        names = [*names[: _NEAR - 1], names[-1]]
    return {name: marks[name] for name in names}


def _far_apart(example: Example, nodes: Sequence[str]) -> bool:
    """Whether edges are so far apart that none can be seen to rise."""
    marks = _instants(example, nodes)
    if not marks:
        return False
    us = np.concatenate([example.traces[name][0] for name in nodes])
    whole = float(us.max() - us.min())
    return any(whole > 25 * _near_us(example, name, mark) for name, mark in marks.items())


def _near_us(example: Example, name: str, mark: Edge) -> float:
    """Return half the width of a view in which the edge can be seen to rise."""
    us, volts = example.traces[name]
    at = mark.instant_fs / FS_PER_US
    low, high = float(np.min(volts)), float(np.max(volts))
    before = np.flatnonzero(
        (us < at) & (np.abs(volts - (low if mark.rising else high)) < 0.1 * (high - low))
    )
    after = np.flatnonzero(
        (us > at) & (np.abs(volts - (high if mark.rising else low)) < 0.1 * (high - low))
    )
    rise = 0.0
    if len(before) and len(after):
        rise = float(us[after[0]] - us[before[-1]])
    return max(2.0 * rise, 4 * mark.uncertainty_fs / FS_PER_US, 1e-3)


def _draw(
    width: float, example: Example, nodes: Sequence[str], *, far: bool, simulated: bool
) -> Figure:
    with style.drawing():
        wide = style.is_wide(width)
        marks = _first_and_last(_instants(example, nodes)) if far else {}
        across = max(min(len(marks), 4 if wide else 2), 1)
        rows = math.ceil(len(marks) / across)
        lanes = max(0.5 * len(nodes), 0.9) + 0.45
        volts = np.concatenate([example.traces[name][1] for name in nodes])
        figure = style.figure_of(
            width,
            0.5 + lanes + 1.75 * rows,
            f"Shot {example.number}, {short(float(np.ptp(volts)), 2)}\N{NO-BREAK SPACE}V a lane",
            simulated=simulated,
        )
        # A figure of their own keeps the names of the lanes from moving the views below.
        parts: Any = [figure]
        if rows:
            parts = figure.subfigures(2, height_ratios=(lanes, 1.75 * rows))
        us = np.concatenate([example.traces[name][0] for name in nodes])
        unit, factor = unit_of(us)
        axes = parts[0].subplots()
        apply(axes, "x", axis_scale(us * factor, log_ratio=np.inf, room=0.02))
        axes.set_xlabel(f"time after the trigger in {unit}")
        _lanes(axes, example, nodes, factor)
        for index, (name, mark) in enumerate(marks.items()):
            near = parts[1].add_subplot(rows, across, index + 1)
            _near(near, example, name, mark, _series(nodes, name), width / across - 0.3)
        return figure


def _series(nodes: Sequence[str], name: str) -> style.Series:
    return style.SERIES[list(nodes).index(name) % len(style.SERIES)]


def _lanes(axes: Axes, example: Example, nodes: Sequence[str], factor: float) -> None:
    volts = np.concatenate([example.traces[name][1] for name in nodes])
    swing = float(np.max(volts) - np.min(volts)) or 1.0
    ticks = []
    for index, name in enumerate(nodes):
        us, own = example.traces[name]
        series = _series(nodes, name)
        base = float(len(nodes) - 1 - index)
        level = float(np.min(own))
        heights = base + 0.1 + 0.68 * (own - level) / swing
        axes.plot(us * factor, heights, color=series.ink.light, linewidth=1.1)
        ticks.append(base + 0.4)
        mark = example.edges.get(name)
        if mark is not None:
            at = mark.instant_fs / FS_PER_US * factor
            axes.plot(
                [at, at], [base + 0.02, base + 0.9], color=series.ink.light, linewidth=0.8,
                linestyle=(0, (2, 1.5)),
            )  # fmt: skip
            axes.plot(at, base + 0.44, series.marker, color=series.ink.light, markersize=5)
    axes.set_ylim(0, len(nodes))
    axes.set_yticks(ticks, [style.shortened(name, 1.2) for name in nodes])
    axes.tick_params(axis="y", length=0)
    for label, name in zip(axes.get_yticklabels(), nodes, strict=True):
        label.set_color(_series(nodes, name).ink.light)
    axes.grid(axis="y", visible=False)


def _near(
    axes: Axes, example: Example, name: str, mark: Edge, series: style.Series, length: float
) -> None:
    us, volts = example.traces[name]
    at = mark.instant_fs / FS_PER_US
    half = _near_us(example, name, mark)
    unit, factor = unit_of([half])
    away = (us - at) * factor
    kept = np.flatnonzero(np.abs(us - at) <= 1.3 * half)
    if len(kept):
        kept = np.arange(max(kept[0] - 1, 0), min(kept[-1] + 2, len(us)))
    shown = volts[kept] if len(kept) else volts
    axes.plot(
        away[kept],
        volts[kept],
        color=series.ink.light,
        linewidth=1.1,
        marker="." if len(kept) < 60 else None,
        markersize=4,
    )
    low, high = float(np.min(shown)), float(np.max(shown))
    spare = 0.1 * (high - low) or 0.5
    axes.set_ylim(low - spare, high + spare)
    off = mark.uncertainty_fs / FS_PER_US * factor
    axes.axvspan(-off, off, color=series.ink.light, alpha=0.2, linewidth=0)
    axes.axvline(0, color=series.ink.light, linewidth=0.8, linestyle=(0, (2, 1.5)))
    apply(axes, "x", axis_scale([-half * factor, half * factor], room=0.0), most=2)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    where_unit, where = unit_of([at])
    off_unit, off_factor = unit_of([mark.uncertainty_fs / FS_PER_US])
    size = short(mark.uncertainty_fs / FS_PER_US * off_factor, 2)
    place_of = f"{short(at * where, 6)} {where_unit} ± {size} {off_unit}"
    axes.set_title(
        f"{style.shortened(name, length)}\n{style.shortened(place_of, length)}",
        color=series.ink.light,
    )
    axes.set_xlabel(f"{unit} from the edge")
