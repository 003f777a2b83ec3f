"""The distribution of values, with a tail that can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from mqtick.analysis.report import style
from mqtick.analysis.report.figures.picture import Picture, limits_of_values
from mqtick.analysis.report.figures.scales import Scale, apply, axis_scale
from mqtick.analysis.report.numbers import Unit, in_words, unit_for, unit_for_clocks
from mqtick.analysis.report.words import negative
from mqtick.analysis.results.result import QuantityResult, Result
from mqtick.analysis.statistics.limit import Limit


class Curve(NamedTuple):
    """Values of one kind, in us, called `name`."""

    name: str
    series: style.Series
    values_us: npt.NDArray[np.float64]


def series_by_number(quantity: QuantityResult) -> dict[int, style.Series]:
    """Return how each N is drawn, of five at most: the least, the largest, and some between."""
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
    styles = series_by_number(quantity)
    several = len(set(quantity.subscribers.tolist()))
    curves = [
        Curve(f"N = {n}", series, quantity.values_us[quantity.subscribers == n])
        for n, series in styles.items()
    ]
    if not quantity.subscribers.any():
        name = f"{len(quantity.values_us):,} {of}"
        curves = [Curve(name, style.SERIES[0], quantity.values_us)]
    limits = limits_of_values([result], quantity.quantity)
    left_out = (
        f" {len(styles)} of {several} values of N are drawn." if several > len(styles) else ""
    )
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
        figure = style.figure_of(
            width,
            4.4,
            f"Share of {of} at or below",
            simulated=simulated,
        )
        every = np.concatenate([curve.values_us for curve in curves])
        every = every[np.isfinite(every)]
        factor = unit.per_us
        bounds = {
            sign * limit.bound_us * factor: f"{limit.statistic} limit {in_words(limit.bound_us)}"
            for limit in limits
            # A limit is of the size: where values are negative, it is below them as well.
            for sign in ((1, -1) if every.min() < 0 else (1,))
        }
        x = _scale(every * factor, list(bounds))
        upper, lower = figure.subplots(2, sharex=True)
        least = 1.0 / max(len(curve.values_us) for curve in curves)
        apply(upper, "x", x)
        apply(upper, "y", Scale("linear", 0.0, 1.02))
        apply(lower, "y", Scale("log", least / 1.5, 1.15))
        lower.set_title("Share beyond it")
        lower.set_xlabel(style.shortened(f"{title} in {unit.name}", width - 1.0))
        for curve in curves:
            values = curve.values_us[np.isfinite(curve.values_us)] * factor
            if not len(values):
                continue
            how: Any = {
                "color": curve.series.ink.light,
                "linestyle": curve.series.dashes,
                "linewidth": 1.4,
            }
            upper.ecdf(values, label=curve.name, **how)
            lower.ecdf(values, complementary=True, **how)
        for bound, text in bounds.items():
            if x.low <= bound <= x.high:
                style.limit(upper.axvline, bound, text)
                style.limit(lower.axvline, bound, "")
        style.legend(figure)
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
