"""MTIE, TDEV and ADEV over the observation interval, with the masks of standards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mqtick.analysis.clocks.masks import MASKS, Mask
from mqtick.analysis.clocks.stability import Deviation
from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.report import style
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.figures.scales import Scale, apply, axis_scale
from mqtick.analysis.report.numbers import short
from mqtick.analysis.results.result import Result

_LOOKS: Final = {"MTIE": style.SERIES[0], "TDEV": style.SERIES[2], "ADEV": style.SERIES[3]}
_MASK_DASHES: Final[Any] = {
    "MTIE": (style.DASHES, (0, (9, 1.5, 1.5, 1.5))),
    "TDEV": ((0, (1.5, 1.5)), (0, (4, 1.5, 1.5, 1.5, 1.5, 1.5))),
}
"""Of the masks that are drawn of each measure: those that are nearest to it."""
_MASKS: Final = 2


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
        "intervals (MTIE is a maximum and has none). Thin, without marks: masks of standards, the "
        "two nearest to each measure. A client's samples also contain the noise of its network.",
        f"Stability of {name}: {told}.",
        lambda width: _draw(width, clock, drawn, simulated=result.measurement.simulated),
    )


def compared_stability(
    clocks: Sequence[tuple[str, ClockSummary, style.Series]], spare: str, *, simulated: bool
) -> Picture | None:
    """Return MTIE and TDEV of several clocks, called by name; None of fewer than two."""
    parts = {
        measure: [
            (name, clock, each, series)
            for name, clock, series in clocks
            for each in clock.deviations
            if each.name == measure and _usable(each).any()
        ]
        for measure in ("MTIE", "TDEV")
    }
    parts = {measure: part for measure, part in parts.items() if len(part) > 1}
    if not parts:
        return None

    def draw(width: float) -> Figure:
        with style.drawing():
            figure = style.figure_of(
                width, 2.7 * len(parts), f"{next(iter(parts))} in ns", simulated=simulated
            )
            panels = figure.subplots(len(parts), sharex=True, squeeze=False)[:, 0]
            x = _tau_scale([each for part in parts.values() for _, _, each, _ in part])
            for axes, (measure, part) in zip(panels, parts.items(), strict=True):
                apply(axes, "y", _scale(part[0][1], [each for _, _, each, _ in part]))
                for name, _, each, series in part:
                    _curve(axes, each, series, name if axes is panels[0] else "")
                _mask_lines(axes, part[0][1], part[0][2], x)
                if axes is not panels[0]:
                    axes.set_title(f"{measure} in ns")
            apply(panels[0], "x", x)
            panels[-1].set_xlabel("observation interval in s")
            style.legend(figure)
            return figure

    told = "; ".join(
        f"{name}: {measure} {short(float(each.value[_usable(each)][0]))} ns at "
        f"{short(float(each.tau_s[_usable(each)][0]))} s"
        for measure, part in parts.items()
        for name, _, each, _ in part
    )
    return Picture(
        "compare-stability",
        f"{' and '.join(parts)} of the clocks",
        "Over the observation interval; bars: intervals of TDEV (MTIE is a maximum and has none). "
        "Thin, without marks: masks of standards, the two nearest to the first clock. What a clock "
        f"is measured by differs, and its noise is part of this.{spare}",
        f"Stability. {told}.",
        draw,
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
        times = [each for each in drawn if each.name != "ADEV"]
        rest = [each for each in drawn if each.name == "ADEV"]
        parts = [part for part in (times, rest) if part]
        figure = style.figure_of(
            width,
            5.2 if len(parts) > 1 else 3.4,
            f"{clock.errors.name}: {'MTIE and TDEV in ns' if times else 'ADEV'}",
            simulated=simulated,
        )
        x = _tau_scale(drawn)
        ratios = (3, 2)[: len(parts)]
        panels = figure.subplots(len(parts), sharex=True, height_ratios=ratios, squeeze=False)[:, 0]
        for axes, part in zip(panels, parts, strict=True):
            apply(axes, "y", _scale(clock, part))
            for each in part:
                _curve(axes, each, _LOOKS.get(each.name, style.SERIES[0]), each.name)
            for each in part:
                _mask_lines(axes, clock, each, x)
            if axes is not panels[0]:
                axes.set_title("Allan deviation (ADEV)")
        apply(panels[0], "x", x)
        panels[-1].set_xlabel("observation interval in s")
        style.legend(figure)
        return figure


def _tau_scale(drawn: Sequence[Deviation]) -> Scale:
    tau = np.concatenate([each.tau_s[_usable(each)] for each in drawn])
    x = axis_scale(tau, log_ratio=1.0001, room=0.03)
    return x if x.kind != "linear" else Scale("log", float(tau.min()) / 2, float(tau.max()) * 2)


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


def _curve(axes: Axes, deviation: Deviation, series: style.Series, label: str) -> None:
    usable = _usable(deviation)
    tau, value = deviation.tau_s[usable], deviation.value[usable]
    color = series.ink.light
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
        marker=series.marker,
        markersize=3.5,
        linewidth=1.2,
        linestyle=series.dashes,
        label=label,
    )


def _mask_lines(axes: Axes, clock: ClockSummary, deviation: Deviation, x: Scale) -> None:
    low, high = axes.get_ylim()
    for mask, dashes in zip(
        _masks(clock, deviation), _MASK_DASHES.get(deviation.name, ()), strict=False
    ):
        tau = np.geomspace(max(x.low, 1e-9), x.high, 200)
        limit = mask.at(tau)
        shown = np.isfinite(limit) & (limit > 0)
        if not ((limit[shown] >= low) & (limit[shown] <= high)).any():
            continue
        ink = style.LIMIT if deviation.name == "MTIE" else style.MUTED
        name = f"{mask.name} {deviation.name}"
        axes.plot(
            tau[shown],
            limit[shown],
            color=ink.light,
            linewidth=1.0,
            linestyle=dashes,
            label=name,
        )
