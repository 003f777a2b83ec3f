"""Several measurements side by side, as in the published figure 9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from mqtick.analysis.report import style
from mqtick.analysis.report.figures.ecdf import Curve, draw_ecdf
from mqtick.analysis.report.figures.growth import Grown, draw_growth
from mqtick.analysis.report.figures.picture import Picture, judged_limits, limits_of_values
from mqtick.analysis.report.figures.scales import apply, axis_scale
from mqtick.analysis.report.figures.stability import compared_stability
from mqtick.analysis.report.numbers import short, told, unit_for, unit_of
from mqtick.analysis.report.words import names_of
from mqtick.analysis.results.result import QuantityResult, Result
from mqtick.recording.published import SHORT, published_growth

_MOST: Final = len(style.SERIES)


def compare_pictures(results: Sequence[Result]) -> list[Picture]:
    """Return overlays of every quantity that at least two of the results have."""
    shown = list(results[:_MOST])
    names = names_of(results)[:_MOST]
    left_out = len(results) - len(shown)
    spare = f" The last {left_out} of {len(results)} measurements are not drawn." * (left_out > 0)
    pictures = []
    for quantity in ("skew", "latency"):
        own = [
            Grown(name, each, series)
            for name, result, series in zip(names, shown, style.SERIES, strict=False)
            for each in result.quantities
            if each.quantity == quantity and len(each.values_us)
        ]
        if len(own) >= 2:
            pictures += _of_quantity(quantity, own, shown, spare)
    clocks = [
        (_clock_name(name, each.node, result), each)
        for name, result in zip(names, shown, strict=True)
        for each in result.quantities
        if each.quantity == "clock" and len(each.values_us)
    ]
    if len(clocks) >= 2:
        drawn = [
            (each, Curve(name, series, each.values_us))
            for (name, each), series in zip(clocks, style.SERIES, strict=False)
        ]
        more = f" {_MOST} of {len(clocks)} clocks." if len(clocks) > _MOST else ""
        pictures.append(_distributions("clock", "time error", drawn, shown, more, of="samples"))
    watched = [
        (_clock_name(name, clock.errors.name, result), clock)
        for name, result in zip(names, shown, strict=True)
        for clock in result.clocks
    ]
    stability = compared_stability(
        [(*each, series) for each, series in zip(watched, style.SERIES, strict=False)],
        f" {_MOST} of {len(watched)} clocks." if len(watched) > _MOST else "",
        simulated=_simulated(results),
    )
    return [*pictures, stability] if stability else pictures


def _clock_name(name: str, node: str, result: Result) -> str:
    several = sum(each.quantity == "clock" for each in result.quantities) > 1
    return f"{name}, {node}" if several else name


def _simulated(results: Sequence[Result]) -> bool:
    return any(result.measurement.simulated for result in results)


def _of_quantity(
    quantity: str, own: Sequence[Grown], results: Sequence[Result], spare: str
) -> list[Picture]:
    limits = judged_limits(results, quantity)
    simulated = _simulated(results)
    pictures = []
    over = [
        one for one in own if any(row.subscribers and row.absolute for row in one.quantity.rows)
    ]
    if over:
        means = "; ".join(f"{one.name}: {_means(one.quantity)}" for one in over)
        pictures.append(
            Picture(
                f"compare-growth-{quantity}",
                f"{quantity.capitalize()} against the number of subscribers",
                f"Mean of |{quantity}|; thick bar: its interval; thin bar: p5 to p95 of single "
                "shots; line: a + b N with its band. Hollow: published means and standard "
                f"deviations ({SHORT}), of 20 shots each.{spare}",
                f"Mean |{quantity}|. {means}.",
                lambda width: draw_growth(width, over, limits, simulated=simulated),
            )
        )
    shared = set.intersection(*(set(one.quantity.subscribers.tolist()) for one in own))
    if shared:
        n = max(shared)
        what = f"{quantity} at N = {n}" if n else quantity
        at_n = [
            (each, Curve(name, series, each.values_us[each.subscribers == n]))
            for name, each, series in own
        ]
        pictures.append(_distributions(quantity, what, at_n, results, spare))
    sloped = [one for one in own if one.quantity.growth is not None]
    if len(sloped) >= 2:
        slopes = "; ".join(
            f"{one.name} {told(one.quantity.growth.b)}" for one in sloped if one.quantity.growth
        )
        pictures.append(
            Picture(
                f"compare-b-{quantity}",
                f"Growth of {quantity} with each subscriber",
                "b of a + b N with its interval: what one more subscriber costs. Hollow: from the "
                f"published means at 2 and 100 subscribers.{spare}",
                f"{quantity.capitalize()} per subscriber: {slopes}.",
                lambda width: _draw_slopes(width, quantity, sloped, simulated=simulated),
            )
        )
    return pictures


def _distributions(
    quantity: str,
    what: str,
    own: Sequence[tuple[QuantityResult, Curve]],
    results: Sequence[Result],
    spare: str,
    of: str = "shots",
) -> Picture:
    curves = [curve for _, curve in own]
    limits = limits_of_values(results, quantity)
    unit = unit_for([each for each, _ in own])
    simulated = _simulated(results)
    title = f"{what[0].upper()}{what[1:]}"
    return Picture(
        f"compare-ecdf-{quantity}",
        f"Distribution of {what}",
        f"Above: the share of {of} at or below a value. Below: the share beyond it, on a "
        f"logarithm.{spare}",
        f"Distribution of {what} of {', '.join(curve.name for curve in curves)}.",
        lambda width: draw_ecdf(width, title, curves, limits, unit, simulated=simulated, of=of),
    )


def _means(quantity: QuantityResult) -> str:
    means = [
        f"{told(row.absolute.mean)} at {row.subscribers}"
        for row in quantity.rows
        if row.subscribers and row.absolute
    ]
    return ", ".join(means if len(means) <= 3 else [means[0], means[-1]])


def _draw_slopes(
    width: float, quantity: str, sloped: Sequence[Grown], *, simulated: bool
) -> Figure:
    with style.drawing():
        lines = [
            (one.name, one.series, one.quantity.growth.b) for one in sloped if one.quantity.growth
        ]
        bars: list[tuple[str, style.Series, float, float | None, float | None, bool]] = [
            (name, series, b.value, b.low, b.high, False) for name, series, b in lines
        ]
        published = published_growth(quantity) or ()
        grey = style.Series(style.MUTED, "D", "solid")
        bars += [
            (f"published, {broker} broker", grey, b, None, None, True)
            for broker, b in zip(("software", "hardware"), published, strict=False)
        ]
        every = [bar[2] for bar in bars]
        every += [end for bar in bars for end in (bar[3], bar[4]) if end is not None]
        unit, factor = unit_of(every)
        figure = style.figure_of(
            width,
            0.95 + 0.42 * len(bars),
            f"{quantity.capitalize()} per subscriber, in {unit}",
            simulated=simulated,
        )
        axes = figure.subplots()
        x = axis_scale(np.array(every) * factor, log_ratio=50)
        if x.kind == "linear":
            x = axis_scale([*(value * factor for value in every), 0.0], log_ratio=np.inf)
        apply(axes, "x", x)
        for y, (_, series, value, low, high, hollow) in enumerate(bars):
            color = series.ink.light
            if x.kind == "linear" and not hollow:
                axes.barh(y, value * factor, height=0.5, color=color, alpha=0.3, linewidth=0)
            if low is not None and high is not None:
                axes.plot([low * factor, high * factor], [y, y], color=color, linewidth=2)
            axes.plot(
                value * factor,
                y,
                series.marker,
                color=color,
                markersize=6,
                markerfacecolor=style.PAPER.light if hollow else color,
            )
            axes.annotate(
                short(value * factor),
                xy=(1.0, y),
                xycoords=("axes fraction", "data"),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                color=color,
                weight="normal" if hollow else "bold",
                annotation_clip=False,
            )
        axes.set_ylim(len(bars) - 0.4, -0.6)
        room = 2.2 if style.is_wide(width) else 1.3
        axes.set_yticks(range(len(bars)), [style.wrapped(bar[0], room, 2) for bar in bars])
        axes.tick_params(axis="y", length=0)
        for label, bar in zip(axes.get_yticklabels(), bars, strict=True):
            label.set_color(bar[1].ink.light)
        axes.grid(axis="y", visible=False)
        axes.axvline(0, color=style.INK.light, linewidth=0.8, visible=x.kind != "log")
        axes.set_xlabel(f"b in {unit} per subscriber")
        return figure
