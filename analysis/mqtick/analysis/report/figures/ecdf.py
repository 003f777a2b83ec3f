"""The distribution of values, with a tail that can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from mqtick.analysis.report import style
from mqtick.analysis.report.figures.labels import above, key
from mqtick.analysis.report.figures.picture import Picture, limits_of_values
from mqtick.analysis.report.figures.scales import Scale, apply, axis_scale, label_width
from mqtick.analysis.report.numbers import Unit, in_words, unit_for, unit_for_clocks
from mqtick.analysis.report.remarks import negative
from mqtick.analysis.results.result import QuantityResult, Result
from mqtick.analysis.statistics.limit import Limit

__all__ = ["Curve", "draw_ecdf", "ecdf_picture", "looks_by_number"]

_POINTS: Final = 600
"""Of a curve: more cannot be seen."""


class Curve(NamedTuple):
    """Values of one kind, in us, called `name`."""

    name: str
    look: style.Look
    values_us: npt.NDArray[np.float64]


def looks_by_number(quantity: QuantityResult) -> dict[int, style.Look]:
    """Return a look for each N, of five at most: the least, the largest, and some between."""
    numbers = sorted(set(quantity.subscribers.tolist()))
    if len(numbers) > len(style.SERIES):
        places = np.linspace(0, len(numbers) - 1, len(style.SERIES)).round().astype(int)
        numbers = [numbers[place] for place in dict.fromkeys(places.tolist())]
    return dict(zip(numbers, style.SERIES, strict=False))


def ecdf_picture(result: Result, quantity: QuantityResult) -> Picture | None:
    """Return the picture of the distribution of one quantity, None without values."""
    if not len(quantity.values_us):
        return None
    of = "samples" if quantity.node else "shots"
    looks = looks_by_number(quantity)
    several = len(set(quantity.subscribers.tolist()))
    curves = [
        Curve(f"N = {n}", look, quantity.values_us[quantity.subscribers == n])
        for n, look in looks.items()
    ]
    if several == 1:
        n = next(iter(looks))
        curves = [
            Curve(
                f"N = {n}" if n else f"{len(quantity.values_us):,} {of}",
                style.SERIES[0],
                quantity.values_us,
            )
        ]
    limits = limits_of_values([result], quantity.quantity)
    left_out = f" {len(looks)} of {several} values of N are drawn." if several > len(looks) else ""
    own = [clock for clock in result.clocks if clock.errors.name == quantity.node]
    unit = unit_for_clocks(own) if own else unit_for([quantity])
    slug = f"-{quantity.node}" if quantity.node else ""
    row, sign = quantity.rows[-1], negative(quantity)
    alt = f"Distribution of {len(quantity.values_us)} values of {quantity.title.lower()}"
    if row.signed is not None:
        alt += (
            f"{f'; at N = {row.subscribers}' if several > 1 else ''}: median "
            f"{in_words(row.signed.median.value)}, 95 % below {in_words(row.signed.p95.value)}, "
            f"largest {in_words(row.signed.most)}"
        )
    return Picture(
        f"ecdf-{quantity.quantity}{slug}",
        f"Distribution of {quantity.title[0].lower()}{quantity.title[1:]}",
        f"Above: the share of {of} at or below a value. Below: the share beyond it, on a "
        "logarithmic scale, so that rare late ones can be read; it ends at the last one."
        + left_out
        + (f" {sign}" if sign else ""),
        f"{alt}.",
        lambda width: draw_ecdf(
            width,
            quantity.title,
            curves,
            limits,
            unit,
            simulated=result.measurement.simulated,
            of=of,
        ),
    )


def draw_ecdf(
    width: float,
    title: str,
    curves: Sequence[Curve],
    limits: Sequence[Limit],
    unit: Unit,
    *,
    simulated: bool,
    of: str = "shots",
) -> Figure:
    """Draw the share at or below, and the share beyond on a logarithm, of each curve."""
    with style.drawing():
        wide = style.is_wide(width)
        figure = style.figure_of(width, 4.5 if wide else 4.7)
        every = np.concatenate([curve.values_us for curve in curves])
        every = every[np.isfinite(every)]
        factor = unit.per_us
        top = style.header(figure, f"{title} in {unit.name}: share of {of}", simulated=simulated)
        top += key(figure, 0.06, top, width - 0.12, [(c.look, c.name) for c in curves]) + 0.05
        bounds = [
            (
                sign * limit.bound_us * factor,
                f"{limit.statistic} limit {in_words(sign * limit.bound_us)}",
            )
            for limit in limits
            # A limit is of the size: where values are negative, it is below them as well.
            for sign in ((1, -1) if every.min() < 0 else (1,))
        ]
        x = _scale(every * factor, [bound for bound, _ in bounds])
        upper, lower = style.paper_axes(figure), style.paper_axes(figure)
        top += style.LINE + 0.05 if limits else 0.05
        bottom, gap = 0.5, 0.42
        height = (float(figure.get_size_inches()[1]) - top - bottom - gap) / 2
        least = 1.0 / max(len(curve.values_us) for curve in curves)
        apply(upper, "y", Scale("linear", 0.0, 1.02), height)
        apply(lower, "y", Scale("log", least / 1.5, 1.15), height)
        left = max(label_width(upper), label_width(lower))
        style.place(figure, upper, left, 0.15, top, bottom + height + gap)
        style.place(figure, lower, left, 0.15, top + height + gap, bottom)
        for axes in (upper, lower):
            apply(axes, "x", x, width - left - 0.15)
        name = " ".join(f"{title} in {unit.name}".split())
        lower.set_xlabel(style.wrapped(name, width - left - 0.15, lines=1))
        upper.tick_params(labelbottom=False)
        figure.text(
            0.06 / width,
            1 - (top + height + gap * 0.55) / float(figure.get_size_inches()[1]),
            "Share beyond it",
            ha="left",
            va="center",
        )
        for curve in curves:
            values = np.sort(curve.values_us[np.isfinite(curve.values_us)]) * factor
            if not len(values):
                continue
            options: Any = {
                "color": curve.look.ink.light,
                "linestyle": curve.look.dashes,
                "linewidth": 1.4,
                "drawstyle": "steps-post",
            }
            at, share = _below(values, x)
            upper.plot(at, share, **options)
            at, share = _beyond(values, x, least / 1.5)
            lower.plot(at, share, **options)
            if len(values) < 3:
                upper.plot(values, np.arange(1, len(values) + 1) / len(values), "o", markersize=4,
                           color=curve.look.ink.light)  # fmt: skip
        above(figure, upper, bounds)
        for value in {bound for bound, _ in bounds if x.low <= bound <= x.high}:
            lower.axvline(value, color=style.LIMIT.light, linewidth=1.1, linestyle=(0, (4, 2)))
        return figure


def _scale(values: npt.NDArray[np.float64], bounds: Sequence[float]) -> Scale:
    """Choose the values' axis; limits are on it unless they would squeeze the values."""
    own = axis_scale(values)
    if own.kind != "linear":
        positive = [bound for bound in bounds if own.kind == "symlog" or bound > 0]
        return axis_scale(np.concatenate([values, positive]))
    span = own.high - own.low
    near = [b for b in bounds if own.low - 1.5 * span <= b <= own.high + 1.5 * span]
    return axis_scale(np.concatenate([values, near])) if near else own


def _below(
    values: npt.NDArray[np.float64], x: Scale
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    n = len(values)
    chosen = np.unique(np.linspace(0, n - 1, min(n, _POINTS)).round().astype(np.int64))
    at = np.concatenate([[x.low], values[chosen], [x.high]])
    share = np.concatenate([[0.0], (chosen + 1) / n, [1.0]])
    return at, share


def _beyond(
    values: npt.NDArray[np.float64], x: Scale, floor: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    n = len(values)
    # Evenly on the logarithm of what is left, so that the tail keeps every shot.
    left = np.unique(np.geomspace(1, n, min(n, _POINTS)).round().astype(np.int64))
    if n <= _POINTS:
        left = np.arange(1, n + 1)
    chosen = (n - left)[::-1]
    share = (n - 1 - chosen) / n
    at = np.concatenate([[x.low], values[chosen]])
    return at, np.concatenate([[1.0], np.where(share > 0, share, floor)])
