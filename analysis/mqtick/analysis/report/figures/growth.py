"""Mean and spread over the number of subscribers, beside the published figure 9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from mqtick.analysis.report.figures.labels import Label, beside
from mqtick.analysis.report.figures.picture import Picture
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
    label_width,
    scale_of,
)
from mqtick.analysis.report.style import (
    LIMIT,
    PAPER,
    SERIES,
    Look,
    drawing,
    figure_of,
    header,
    is_wide,
    number,
    paper_axes,
    place,
    unit_of,
)
from mqtick.analysis.results.result import QuantityResult, Result
from mqtick.analysis.statistics.limit import Limit

__all__ = ["Grown", "draw_growth", "growth_picture", "limits_of"]

_NBSP: Final = "\N{NO-BREAK SPACE}"
_CROWDED: Final = 15
"""Of more N, markers are small."""


class Grown(NamedTuple):
    """One series: a quantity over N, called `name`."""

    name: str
    quantity: QuantityResult
    look: Look


def limits_of(results: Sequence[Result], quantity: str) -> list[Limit]:
    """Return the different limits that were judged of a quantity, the tightest first."""
    found = {
        verdict.limit
        for result in results
        for verdict in result.verdicts
        if verdict.limit.quantity == quantity
    }
    return sorted(found, key=lambda limit: (limit.bound_us, limit.name))


def growth_picture(result: Result, quantity: QuantityResult) -> Picture | None:
    """Return the picture of one quantity over N, or None where no N is known."""
    if not any(row.subscribers and row.signed for row in quantity.rows):
        return None
    grown = [Grown("this run", quantity, SERIES[0])]
    limits = limits_of([result], quantity.quantity)
    simulated = result.measurement.simulated
    name = quantity.quantity
    line = quantity.growth
    says = ""
    if line is not None:
        sign = "−" if line.b.value < 0 else "+"
        says = (
            f" The robust line, with its band, is {number(line.a.value)} µs {sign} "
            f"{number(abs(line.b.value))} µs a subscriber; of skewed values it is below the means."
        )
    percent = f"{100 * result.confidence:g}{_NBSP}%"
    return Picture(
        f"growth-{name}",
        f"{quantity.title} over the number of subscribers",
        f"Mean of the values as they are; thick bar: {percent} interval of the mean; thin bar: "
        f"standard deviation of single shots.{says} Hollow: published means and standard "
        "deviations (IEEJ Transactions 17(2), 2022), of 20 shots each.",
        _alt(quantity),
        lambda width: draw_growth(width, grown, limits, simulated=simulated),
    )


def _alt(quantity: QuantityResult) -> str:
    told = [
        f"{number(row.signed.mean.value)} µs at {row.subscribers} subscribers"
        for row in quantity.rows
        if row.subscribers and row.signed
    ]
    shown = told if len(told) <= 6 else [told[0], told[len(told) // 2], told[-1]]
    return f"Mean {quantity.quantity}: {', '.join(shown)}."


def draw_growth(
    width: float, grown: Sequence[Grown], limits: Sequence[Limit], *, simulated: bool
) -> Figure:
    """Draw series over N, with published points and limits of the mean."""
    with drawing():
        wide = is_wide(width)
        figure = figure_of(width, 4.1 if wide else 3.7)
        quantity = grown[0].quantity.quantity
        measured = {row.subscribers for one in grown for row in one.quantity.rows if row.signed}
        numbers = sorted(n for n in measured if n)
        published = published_points(quantity, set(numbers))
        means = [
            row.signed.mean.value
            for one in grown
            for row in one.quantity.rows
            if row.subscribers and row.signed
        ]
        bounds = [limit for limit in limits if limit.statistic == "mean"]
        unit, factor = unit_of(means)
        top = header(
            figure,
            f"{quantity.capitalize()} in {unit}: mean, its interval, standard deviation",
            simulated=simulated,
        )
        axes = paper_axes(figure)
        room = 1.75 if wide else 1.12
        x, y = _scales(grown, numbers, published, means, bounds, factor, width - room - 0.5)
        height = float(figure.get_size_inches()[1]) - top - 0.55
        apply(axes, "y", y, height)
        left = label_width(axes)
        place(figure, axes, left, room, top, 0.5)
        every = sorted({*numbers, *(p.subscribers for _, _, points in published for p in points)})
        apply_numbers(axes, x, every, width - left - room)
        axes.set_xlabel("subscribers N")
        axes.grid(axis="x", visible=False)
        labels = _limit_lines(axes, [limit.bound_us for limit in bounds], y, factor)
        if min(means) < 0:
            labels += _limit_lines(axes, [-limit.bound_us for limit in bounds], y, factor)
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
    x = scale_of(every, log_ratio=8, room=(ASIDE_POINTS + 8) / 72 / length)
    if len(set(every)) == 1:
        x = Scale("linear", every[0] - 1, every[0] + 1)
    marks = [
        *means,
        *(point.mean for _, _, points in published for point in points),
        *(limit.bound_us for limit in bounds),
    ]
    spreads = [
        row.signed.mean.value + sign * row.signed.deviation.value
        for one in grown
        for row in one.quantity.rows
        if row.subscribers and row.signed and row.signed.deviation
        for sign in (-1, 1)
    ]
    spreads += [
        p.mean + sign * p.deviation for _, _, ps in published for p in ps for sign in (-1, 1)
    ]
    logarithmic = min(marks) > 0 and max(marks) / min(marks) >= 12
    if logarithmic:
        # A deviation as large as its mean reaches below any logarithm: its bar meets the edge.
        kept = [value for value in spreads if value > 0.5 * min(marks)]
        y = scale_of(np.array([*marks, *kept]) * factor, log_ratio=1.0001, room=0.05)
    else:
        y = scale_of(np.array([*marks, *spreads]) * factor, from_zero=True)
    return x, y


def _limit_lines(axes: Axes, bounds: Sequence[float], y: Scale, factor: float) -> list[Label]:
    labels = []
    for bound in dict.fromkeys(bounds):
        value = bound * factor
        if not y.low <= value <= y.high:
            continue
        axes.axhline(value, color=LIMIT.light, linewidth=1.1, linestyle=(0, (4, 2)))
        labels.append(Label(value, f"limit {number(bound, 4)}{_NBSP}µs", LIMIT))
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
    rows = [row for row in one.quantity.rows if row.subscribers and row.signed]
    numbers = [float(row.subscribers or 0) for row in rows]
    found = [row.signed for row in rows if row.signed]
    means = [each.mean.value * factor for each in found]
    color = one.look.ink.light
    moved = axes.transData + ScaledTranslation(shift / 72, 0, figure.dpi_scale_trans)
    spread = [each.deviation.value * factor if each.deviation else 0.0 for each in found]
    logarithmic = axes.get_yscale() == "log"
    crowded = len(rows) > _CROWDED
    axes.errorbar(
        numbers,
        means,
        yerr=bars(means, spread) if logarithmic else spread,
        fmt="none",
        ecolor=color,
        elinewidth=0.9,
        capsize=0 if crowded else 2.5,
        transform=moved,
        zorder=3,
    )
    for at, each in zip(numbers, found, strict=True):
        if each.mean.low is not None and each.mean.high is not None:
            axes.plot(
                [at, at],
                [each.mean.low * factor, each.mean.high * factor],
                color=color,
                linewidth=2 if crowded else 4,
                alpha=0.55,
                solid_capstyle="butt",
                transform=moved,
                zorder=3.1,
            )
    axes.plot(
        numbers,
        means,
        linestyle="none",
        marker=one.look.marker,
        markersize=3.5 if crowded else 5.5,
        color=color,
        markeredgecolor=PAPER.light,
        markeredgewidth=0.6,
        transform=moved,
        zorder=3.2,
    )
    text = one.name
    line = one.quantity.growth
    if line is not None:
        _line(axes, one, factor, x)
        slope_unit, slope_factor = unit_of([line.b.value])
        slope = f"{number(line.b.value * slope_factor)}{_NBSP}{slope_unit}"
        if with_slope:
            text += f": {slope} a{_NBSP}subscriber"
    return Label(means[-1], text, one.look.ink, bold=True, x=numbers[-1])


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
