"""Mean and spread against the number of subscribers, next to the published figure 9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from mqtick.analysis.report import style
from mqtick.analysis.report.figures.picture import Picture, judged_limits
from mqtick.analysis.report.figures.scales import Scale, apply, axis_scale
from mqtick.analysis.report.numbers import in_words, told, unit_for
from mqtick.analysis.results.result import QuantityResult, Result
from mqtick.analysis.statistics.limit import Limit
from mqtick.recording.published import PUBLISHED, SHORT

_NBSP: Final = "\N{NO-BREAK SPACE}"
_CROWDED: Final = 15
"""Of more N, markers are small."""
_ASIDE_POINTS: Final = 8.0
"""How far published points stand from their N, so that ours can be seen."""


class Grown(NamedTuple):
    """One series: a quantity over N, called `name`."""

    name: str
    quantity: QuantityResult
    series: style.Series


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
        f"Mean of |{name}|; thick bar: its {percent} interval; thin bar: p5 to p95 of "
        f"single shots.{says} Hollow, a little beside their N: published means and standard "
        f"deviations ({SHORT}), of 20 shots each.",
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
        quantity = grown[0].quantity.quantity
        rows = [row for one in grown for row in one.quantity.rows if row.absolute]
        numbers = sorted({row.subscribers for row in rows if row.subscribers})
        published = _published_points(quantity, set(numbers))
        bounds = sorted({limit.bound_us for limit in limits if limit.statistic == "mean"})
        unit, factor = unit_for([one.quantity for one in grown])
        figure = style.figure_of(
            width,
            4.1 if style.is_wide(width) else 3.6,
            f"Mean |{quantity}| in {unit}",
            simulated=simulated,
        )
        axes = figure.subplots()
        x, y = _scales(grown, numbers, published, bounds, factor)
        apply(axes, "x", x, whole=True)
        apply(axes, "y", y)
        axes.set_xlabel("subscribers N")
        axes.grid(axis="x", visible=False)
        for place, one in enumerate(grown):
            _series(figure, axes, one, factor, x, (place - (len(grown) - 1) / 2) * 4.0)
        _draw_published(figure, axes, published, factor)
        for bound in bounds:
            if y.low <= bound * factor <= y.high:
                style.limit(axes.axhline, bound * factor, f"limit {in_words(bound)}")
        style.legend(figure)
        return figure


def _scales(
    grown: Sequence[Grown],
    numbers: Sequence[int],
    published: Sequence[_Published],
    bounds: Sequence[float],
    factor: float,
) -> tuple[Scale, Scale]:
    points = [point for series in published for point in series.points]
    every = [*numbers, *(point.subscribers for point in points)]
    x = axis_scale(every, log_ratio=8, room=0.08)
    if len(set(every)) == 1:
        x = Scale("linear", every[0] - 1, every[0] + 1)
    found = [row.absolute for one in grown for row in one.quantity.rows if row.subscribers]
    rows = [each for each in found if each is not None]
    marks = [*(row.mean.value for row in rows), *(point.mean for point in points), *bounds]
    spreads = [
        max(point.mean + sign * point.deviation, 0.0) for point in points for sign in (-1, 1)
    ]
    spreads += [each.value for row in rows for each in (row.p5, row.p95)]
    spreads += [end for row in rows for end in (row.mean.low, row.mean.high) if end is not None]
    logarithmic = min(marks) > 0 and max(marks) / min(marks) >= 12
    if logarithmic:
        # A published deviation as large as its mean reaches below any logarithm, and p5 may be
        # next to 0: such a bar meets the edge.
        kept = [value for value in spreads if value > 0.2 * min(marks)]
        y = axis_scale(np.array([*marks, *kept]) * factor, log_ratio=1.0001, room=0.05)
    else:
        y = axis_scale(np.array([*marks, *spreads]) * factor, from_zero=True)
    return x, y


def _series(
    figure: Figure,
    axes: Axes,
    one: Grown,
    factor: float,
    x: Scale,
    shift: float,
) -> None:
    rows = [row for row in one.quantity.rows if row.subscribers and row.absolute]
    numbers = [float(row.subscribers or 0) for row in rows]
    found = [row.absolute for row in rows if row.absolute]
    means = [each.mean.value * factor for each in found]
    color = one.series.ink.light
    moved = axes.transData + ScaledTranslation(shift / 72, 0, figure.dpi_scale_trans)
    # Rare late shots may pull the mean out of p5 to p95.
    middles = [(each.p5.value + each.p95.value) / 2 * factor for each in found]
    halves = [(each.p95.value - each.p5.value) / 2 * factor for each in found]
    crowded = len(rows) > _CROWDED
    axes.errorbar(
        numbers,
        middles,
        yerr=halves,
        fmt="none",
        ecolor=color,
        elinewidth=0.9,
        capsize=0 if crowded else 2.5,
        transform=moved,
        zorder=3,
    )
    for at, each in zip(numbers, found, strict=True):
        if each.mean.low is not None and each.mean.high is not None:
            axes.vlines(
                at,
                each.mean.low * factor,
                each.mean.high * factor,
                color=color,
                linewidth=2 if crowded else 4,
                alpha=0.55,
                transform=moved,
                zorder=3.1,
            )
    line = one.quantity.growth
    slope = f": {told(line.b)} per{_NBSP}subscriber" if line is not None else ""
    axes.plot(
        numbers,
        means,
        linestyle="none",
        marker=one.series.marker,
        markersize=3.5 if crowded else 5.5,
        color=color,
        label=one.name + slope,
        markeredgecolor=style.PAPER.light,
        markeredgewidth=0.6,
        transform=moved,
        zorder=3.2,
    )
    _line(axes, one, factor, x)


def _line(axes: Axes, one: Grown, factor: float, x: Scale) -> None:
    line = one.quantity.growth
    if line is None or not line.subscribers:
        return
    first, last = line.subscribers[0], line.subscribers[-1]
    n = np.geomspace(first, last, 60) if x.kind == "log" else np.linspace(first, last, 60)
    middle = line.a.value + line.b.value * n
    axes.plot(
        n, middle * factor, color=one.series.ink.light, linewidth=1.2, linestyle=one.series.dashes
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
        color=one.series.ink.light,
        alpha=0.15,
        linewidth=0,
    )


class _Point(NamedTuple):
    """A published mean and its standard deviation, in us."""

    subscribers: int
    mean: float
    deviation: float


class _Published(NamedTuple):
    """The published points of one broker."""

    name: str
    marker: str
    points: list[_Point]


def _published_points(quantity: str, measured: set[int]) -> list[_Published]:
    """Return the published series of a quantity; of latency, at an N that was measured."""
    known = {n: found for (name, n), found in PUBLISHED.items() if name == quantity}
    if quantity == "latency":
        # The same value stands for one and for two subscribers.
        n = next((n for n in known if n in measured), 1)
        known = {n: known[n]}
    if not known:
        return []
    software = [
        _Point(n, f.software_mean_us, f.software_deviation_us) for n, f in sorted(known.items())
    ]
    hardware = [
        _Point(n, f.hardware_mean_us, f.hardware_deviation_us) for n, f in sorted(known.items())
    ]
    return [
        _Published("published, software broker", "s", software),
        _Published("published, hardware broker", "D", hardware),
    ]


def _draw_published(
    figure: Figure,
    axes: Axes,
    published: Sequence[_Published],
    factor: float,
) -> None:
    """Draw published points with their deviations, a little aside."""
    for place_of, (name, marker, points) in enumerate(published):
        shift = ScaledTranslation(
            (1 if place_of else -1) * _ASIDE_POINTS / 72, 0, figure.dpi_scale_trans
        )
        numbers = [point.subscribers for point in points]
        means = [point.mean * factor for point in points]
        marks: Any = {
            "color": style.MUTED.light,
            "transform": axes.transData + shift,
            "zorder": 2.5,
        }
        spread = [point.deviation * factor for point in points]
        axes.errorbar(numbers, means, yerr=spread, fmt="none", elinewidth=0.9, capsize=2.5, **marks)
        axes.plot(
            numbers,
            means,
            marker,
            markerfacecolor=style.PAPER.light,
            markersize=6,
            markeredgewidth=1.2,
            label=name,
            **marks,
        )
