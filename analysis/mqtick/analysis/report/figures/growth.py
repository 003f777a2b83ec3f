"""Mean and spread against the number of subscribers, next to the published figure 9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation, Transform

from mqtick.analysis.report import style
from mqtick.analysis.report.figures.labels import Label, beside
from mqtick.analysis.report.figures.picture import Picture, judged_limits
from mqtick.analysis.report.figures.published_points import (
    ASIDE_POINTS,
    PublishedSeries,
    bars,
    draw_published,
    published_points,
)
from mqtick.analysis.report.figures.scales import (
    Scale,
    apply,
    apply_numbers,
    axis_scale,
    label_width,
)
from mqtick.analysis.report.numbers import in_words, told, unit_for
from mqtick.analysis.results.published import SHORT
from mqtick.analysis.results.result import QuantityResult, Result
from mqtick.analysis.statistics.limit import Limit

__all__ = ["Grown", "draw_growth", "growth_picture"]

_NBSP: Final = "\N{NO-BREAK SPACE}"
_CROWDED: Final = 15
"""Of more N, markers are small."""


class Grown(NamedTuple):
    """One series: a quantity over N, called `name`."""

    name: str
    quantity: QuantityResult
    look: style.Look


def growth_picture(result: Result, quantity: QuantityResult) -> Picture | None:
    """Return the picture of one quantity over N, or None where no N is known.

    Of absolute values, as the line, the published figures and the limits are.
    """
    if not any(row.subscribers and row.absolute for row in quantity.rows):
        return None
    grown = [Grown("this run", quantity, style.SERIES[0])]
    limits = judged_limits([result], quantity.quantity)
    simulated = result.measurement.simulated
    name = quantity.quantity
    line = quantity.growth
    says = ""
    if line is not None:
        sign, slope = "−" if line.b.value < 0 else "+", told(line.b).lstrip("−")
        says = (
            f" The robust line, with its band, is {told(line.a)} {sign} "
            f"{slope} per subscriber; for skewed values it lies below the means."
        )
    percent = f"{100 * result.confidence:g}{_NBSP}%"
    return Picture(
        f"growth-{name}",
        f"{quantity.title} against the number of subscribers",
        f"Mean of |{name}|; thick bar: its {percent} interval, with an arrow where it goes beyond "
        f"the axis; thin bar: standard deviation of single shots.{says} Hollow: published means "
        f"and standard deviations ({SHORT}), of 20 shots each.",
        _alt(quantity),
        lambda width: draw_growth(width, grown, limits, simulated=simulated),
    )


def _alt(quantity: QuantityResult) -> str:
    means = [
        f"{told(row.absolute.mean)} at {row.subscribers} subscribers"
        for row in quantity.rows
        if row.subscribers and row.absolute
    ]
    shown = means if len(means) <= 6 else [means[0], means[len(means) // 2], means[-1]]
    return f"Mean |{quantity.quantity}|: {', '.join(shown)}."


def draw_growth(
    width: float, grown: Sequence[Grown], limits: Sequence[Limit], *, simulated: bool
) -> Figure:
    """Draw series over N, with published points and limits of the mean."""
    with style.drawing():
        wide = style.is_wide(width)
        figure = style.figure_of(width, 4.1 if wide else 3.7)
        quantity = grown[0].quantity.quantity
        measured = {row.subscribers for one in grown for row in one.quantity.rows if row.absolute}
        numbers = sorted(n for n in measured if n)
        published = published_points(quantity, set(numbers))
        means = [
            row.absolute.mean.value
            for one in grown
            for row in one.quantity.rows
            if row.subscribers and row.absolute
        ]
        bounds = [limit for limit in limits if limit.statistic == "mean"]
        unit, factor = unit_for([one.quantity for one in grown])
        top = style.header(
            figure,
            f"|{quantity.capitalize()}| in {unit}: mean, its interval, standard deviation",
            simulated=simulated,
        )
        axes = style.paper_axes(figure)
        room = 1.75 if wide else 1.12
        x, y = _scales(grown, numbers, published, means, bounds, factor, width - room - 0.5)
        height = float(figure.get_size_inches()[1]) - top - 0.55
        apply(axes, "y", y, height)
        left = label_width(axes)
        style.place(figure, axes, left, room, top, 0.5)
        every = sorted({*numbers, *(p.subscribers for _, _, points in published for p in points)})
        apply_numbers(axes, x, every, width - left - room)
        axes.set_xlabel("subscribers N")
        axes.grid(axis="x", visible=False)
        labels = _limit_lines(axes, [limit.bound_us for limit in bounds], y, factor)
        labels += draw_published(figure, axes, published, factor)
        for place_of, one in enumerate(grown):
            shift = (place_of - (len(grown) - 1) / 2) * 4.0
            labels.insert(
                place_of,
                _series(figure, axes, one, factor, x, shift, with_slope=wide or len(grown) == 1),
            )
        beside(figure, axes, labels, room)
        return figure


def _scales(
    grown: Sequence[Grown],
    numbers: Sequence[int],
    published: Sequence[PublishedSeries],
    means: Sequence[float],
    bounds: Sequence[Limit],
    factor: float,
    length: float,
) -> tuple[Scale, Scale]:
    every = [*numbers, *(point.subscribers for _, _, points in published for point in points)]
    x = axis_scale(every, log_ratio=8, room=(ASIDE_POINTS + 8) / 72 / length)
    if len(set(every)) == 1:
        x = Scale("linear", every[0] - 1, every[0] + 1)
    marks = [
        *means,
        *(point.mean for _, _, points in published for point in points),
        *(limit.bound_us for limit in bounds),
    ]
    rows = [row.absolute for one in grown for row in one.quantity.rows if row.subscribers]
    means_of = [row.mean for row in rows if row is not None]
    around = [(row.mean.value, row.deviation.value) for row in rows if row and row.deviation]
    around += [(point.mean, point.deviation) for _, _, points in published for point in points]
    spreads = [max(mean + sign * spread, 0.0) for mean, spread in around for sign in (-1, 1)]
    spreads += [end for mean in means_of for end in (mean.low, mean.high) if end is not None]
    logarithmic = min(marks) > 0 and max(marks) / min(marks) >= 12
    if logarithmic:
        # A deviation as large as its mean reaches below any logarithm: its bar meets the edge.
        kept = [value for value in spreads if value > 0.5 * min(marks)]
        y = axis_scale(np.array([*marks, *kept]) * factor, log_ratio=1.0001, room=0.05)
    else:
        y = axis_scale(np.array([*marks, *spreads]) * factor, from_zero=True)
    return x, y


def _limit_lines(axes: Axes, bounds: Sequence[float], y: Scale, factor: float) -> list[Label]:
    labels = []
    for bound in dict.fromkeys(bounds):
        value = bound * factor
        if not y.low <= value <= y.high:
            continue
        axes.axhline(value, color=style.LIMIT.light, linewidth=1.1, linestyle=(0, (4, 2)))
        labels.append(Label(value, f"limit {in_words(bound)}", style.LIMIT))
    return labels


def _series(
    figure: Figure,
    axes: Axes,
    one: Grown,
    factor: float,
    x: Scale,
    shift: float,
    *,
    with_slope: bool,
) -> Label:
    rows = [row for row in one.quantity.rows if row.subscribers and row.absolute]
    numbers = [float(row.subscribers or 0) for row in rows]
    found = [row.absolute for row in rows if row.absolute]
    means = [each.mean.value * factor for each in found]
    color = one.look.ink.light
    moved = axes.transData + ScaledTranslation(shift / 72, 0, figure.dpi_scale_trans)
    spread = [each.deviation.value * factor if each.deviation else 0.0 for each in found]
    crowded = len(rows) > _CROWDED
    axes.errorbar(
        numbers,
        means,
        yerr=bars(means, spread),
        fmt="none",
        ecolor=color,
        elinewidth=0.9,
        capsize=0 if crowded else 2.5,
        transform=moved,
        zorder=3,
    )
    for at, each in zip(numbers, found, strict=True):
        if each.mean.low is not None and each.mean.high is not None:
            ends = each.mean.low * factor, each.mean.high * factor
            _interval(axes, at, ends, color, 2 if crowded else 4, moved)
    axes.plot(
        numbers,
        means,
        linestyle="none",
        marker=one.look.marker,
        markersize=3.5 if crowded else 5.5,
        color=color,
        markeredgecolor=style.PAPER.light,
        markeredgewidth=0.6,
        transform=moved,
        zorder=3.2,
    )
    text = one.name
    line = one.quantity.growth
    if line is not None:
        _line(axes, one, factor, x)
        if with_slope:
            text += f": {told(line.b)} per{_NBSP}subscriber"
    return Label(means[-1], text, one.look.ink, bold=True, x=numbers[-1])


def _interval(
    axes: Axes, at: float, ends: tuple[float, float], color: str, width: float, moved: Transform
) -> None:
    """Draw the interval of a mean; where it leaves the axis, an arrow says that it goes on."""
    low, high = axes.get_ylim()
    shown = [min(max(end, low), high) for end in ends]
    axes.plot(
        [at, at],
        shown,
        color=color,
        linewidth=width,
        alpha=0.55,
        solid_capstyle="butt",
        transform=moved,
        zorder=3.1,
    )
    for end, edge, marker in zip(ends, shown, ("v", "^"), strict=True):
        if end != edge:
            axes.plot(
                at,
                edge,
                marker,
                color=color,
                markersize=6,
                transform=moved,
                clip_on=False,
                zorder=3.3,
            )


def _line(axes: Axes, one: Grown, factor: float, x: Scale) -> None:
    line = one.quantity.growth
    if line is None or not line.subscribers:
        return
    first, last = line.subscribers[0], line.subscribers[-1]
    n = np.geomspace(first, last, 60) if x.kind == "log" else np.linspace(first, last, 60)
    middle = line.a.value + line.b.value * n
    axes.plot(
        n, middle * factor, color=one.look.ink.light, linewidth=1.2, linestyle=one.look.dashes
    )
    if line.a.low is None or line.a.high is None or line.b.low is None or line.b.high is None:
        return
    # a is the line at N = 0, far from the middle of the N: most of its interval comes from b's.
    centre = float(np.mean(line.subscribers))
    at_zero = (line.a.high - line.a.low) / 2
    slope = (line.b.high - line.b.low) / 2
    at_centre = max(at_zero**2 - (slope * centre) ** 2, 0.0) ** 0.5
    half = np.hypot(at_centre, slope * (n - centre))
    axes.fill_between(
        n,
        (middle - half) * factor,
        (middle + half) * factor,
        color=one.look.ink.light,
        alpha=0.15,
        linewidth=0,
    )
