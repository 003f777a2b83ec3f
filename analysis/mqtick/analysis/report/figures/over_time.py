"""Every shot over time: what drifted, what jumped, what was missed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mqtick.analysis.measurement import MISSED, REFUSED
from mqtick.analysis.report import style
from mqtick.analysis.report.figures.ecdf import series_by_number
from mqtick.analysis.report.figures.picture import Picture, limits_of_values
from mqtick.analysis.report.figures.scales import Scale, apply, axis_scale, time_unit
from mqtick.analysis.report.numbers import in_words, unit_for
from mqtick.analysis.report.words import DriftWords, drift_words, negative
from mqtick.analysis.results.result import QuantityResult, Result
from mqtick.analysis.statistics.limit import Limit

Array = npt.NDArray[np.float64]
_RASTERISED_FROM: Final = 2000
_OTHER: Final = style.Series(style.MUTED, ".", "solid")


def over_time_picture(result: Result, quantity: QuantityResult) -> Picture | None:
    """Return every value over time, None for fewer than two; clocks have one of their own."""
    if len(quantity.values_us) < 2 or quantity.node:
        return None
    timed = bool(np.isfinite(quantity.seconds).all()) and float(np.ptp(quantity.seconds)) > 0
    lost = _lost(result, quantity, timed)
    limits = limits_of_values([result], quantity.quantity)
    over = "time" if timed else "shot number"
    caption = " ".join(filter(None, (f"Each shot over {over}.", negative(quantity))))
    if not timed and np.isfinite(quantity.seconds).any():
        caption += " Some shots do not say when they were taken."
    if len(lost):
        shots = "1 shot that was" if len(lost) == 1 else f"{len(lost)} shots that were"
        caption += f" Crosses at the bottom: {shots} missed or refused."
    drift = drift_words(quantity)
    alt = f"{len(quantity.values_us)} values of {quantity.quantity} over {over}"
    if drift is not None:
        sure = quantity.drift is not None and quantity.drift.significant
        said = "" if sure else "; its interval contains 0"
        caption += f" Dashed: drift of {_amount(drift)}, within each N{said}."
        alt += f", drift {_amount(drift)}"
    return Picture(
        f"over-time-{quantity.quantity}",
        f"{quantity.title} over {over}",
        caption,
        f"{alt}.",
        lambda width: _draw(width, result, quantity, lost, limits, timed=timed),
    )


def _amount(drift: DriftWords) -> str:
    within = f" ({drift.interval})" if drift.interval else ""
    return f"{drift.value}\N{NO-BREAK SPACE}{drift.unit.name}{within} over {drift.over}"


def _lost(result: Result, quantity: QuantityResult, timed: bool) -> Array:
    """Return where missed and refused shots stand on the axis of the captured ones."""
    shots = [s for s in result.measurement.shots if s.outcome in (MISSED, REFUSED)]
    if not timed:
        return np.array([shot.number for shot in shots], np.float64)
    captured = {shot.number: shot.started_ns for shot in result.measurement.shots}
    for index, own in enumerate(quantity.numbers.tolist()):
        started = captured.get(own)
        if started is not None:
            begin = started - round(float(quantity.seconds[index]) * 1e9)
            return np.array(
                [(s.started_ns - begin) / 1e9 for s in shots if s.started_ns is not None],
                np.float64,
            )
    return np.array([], np.float64)


def _draw(
    width: float,
    result: Result,
    quantity: QuantityResult,
    lost: Array,
    limits: Sequence[Limit],
    *,
    timed: bool,
) -> Figure:
    with style.drawing():
        unit, factor = unit_for([quantity])
        figure = style.figure_of(
            width,
            3.5,
            f"{quantity.title} of each shot in {unit}",
            simulated=result.measurement.simulated,
        )
        axes = figure.subplots()
        size, name = 1.0, "shot number"
        at = quantity.numbers.astype(np.float64)
        if timed:
            unit_of_time, size = time_unit(float(np.ptp(quantity.seconds)))
            at, name = quantity.seconds / size, f"time since the first shot in {unit_of_time}"
        values = quantity.values_us * factor
        # A limit is of the size: where values are negative, it is below them as well.
        signs = (1, -1) if values.min() < 0 else (1,)
        bounds = [(sign * limit.bound_us * factor, limit) for limit in limits for sign in signs]
        y = _y_scale(values, [bound for bound, _ in bounds])
        apply(axes, "y", y)
        apply(axes, "x", axis_scale(np.concatenate([at, lost / size]), log_ratio=np.inf, room=0.02))
        axes.set_xlabel(name)
        _points(axes, quantity, at, values)
        if len(lost):
            axes.plot(
                lost / size,
                np.full(len(lost), 0.02),
                "x",
                color=style.INK.light,
                markersize=5,
                markeredgewidth=1.2,
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                zorder=5,
                label="missed or refused",
            )
        shown = drift_words(quantity)
        if timed and quantity.drift is not None and shown is not None:
            per_size = quantity.drift.us_per_hour.value / 3600.0 * size * factor
            _drift_lines(axes, quantity, at, values, per_size, f"drift {_amount(shown)}")
        for bound, limit in bounds:
            if y.low <= bound <= y.high:
                text = f"{limit.statistic} limit {in_words(limit.bound_us)}"
                style.limit(axes.axhline, bound, text)
        style.legend(figure)
        return figure


def _drift_lines(
    axes: Axes, quantity: QuantityResult, at: Array, values: Array, slope: float, label: str
) -> None:
    """Draw the drift through the middle of each N's shots."""
    for n in series_by_number(quantity):
        own = quantity.subscribers == n
        ends = np.array([at[own].min(), at[own].max()])
        axes.plot(
            ends,
            np.median(values[own]) + slope * (ends - np.median(at[own])),
            color=style.INK.light,
            linewidth=1.2,
            linestyle=(0, (5, 2)),
            zorder=4,
            label=label,
        )


def _y_scale(values: Array, bounds: Sequence[float]) -> Scale:
    own = axis_scale(values, log_ratio=100)
    if own.kind != "linear":
        return own
    span = own.high - own.low
    near = [b for b in bounds if own.low - 0.8 * span <= b <= own.high + 0.8 * span]
    return axis_scale(np.concatenate([values, near]), log_ratio=100, from_zero=True)


def _points(axes: Axes, quantity: QuantityResult, at: Array, values: Array) -> None:
    many = len(values) > _RASTERISED_FROM
    styles = series_by_number(quantity)
    different = sorted(set(quantity.subscribers.tolist()))
    for n in different:
        own = quantity.subscribers == n
        series = styles.get(n, _OTHER)
        axes.plot(
            at[own],
            values[own],
            linestyle="none",
            marker=series.marker,
            markersize=2.2 if many else 4,
            color=series.ink.light,
            alpha=0.6 if many else 0.75,
            markeredgewidth=0,
            rasterized=many,
            zorder=2,
            label="" if len(different) == 1 else f"N = {n}" if n in styles else "other N",
        )
