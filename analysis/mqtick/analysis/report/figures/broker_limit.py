"""How much a broker carries: the trials of the search, and percentiles below the limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from mqtick.analysis.broker_limit import BrokerLimit, Level
from mqtick.analysis.report import style
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.figures.scales import Scale, apply, axis_scale
from mqtick.analysis.report.numbers import SPACE, number, unit_of

_MOST_RATIO = 1.05
"""More copies than were due come late from before: how many more says nothing."""


def limit_pictures(found: BrokerLimit) -> list[Picture]:
    """Return the search, and the percentiles that were measured."""
    ours = [
        Picture(
            "limit-search",
            "The search for the limit",
            "Each mark is a trial. Filled: at least 99 % of the copies came as fast as messages "
            "were published; hollow: fewer. The line is the limit, the band its interval.",
            f"{len(found.trials)} trials around the limit of {number(found.ingress, 0)} messages "
            "a second.",
            partial(_draw_search, found),
        )
    ]
    for name, title, levels, caption in (
        (
            "limit-latency",
            "Latency",
            found.latency,
            "From the kernel's stamp when a message left to its stamp when each copy came.",
        ),
        ("limit-skew", "Skew", found.skew, "From the first copy of a message to its last."),
    ):
        if levels:
            ours.append(
                Picture(
                    name,
                    f"{title} at the limit and below",
                    f"{caption} A curve ends where only the largest value is beyond it.",
                    f"Percentiles of {title.lower()} {', '.join(each.name for each in levels)}.",
                    partial(_draw_percentiles, title, levels),
                )
            )
    return ours


def _draw_search(found: BrokerLimit, width: float) -> Figure:
    with style.drawing():
        figure = style.figure_of(
            width, 3.4, "Copies that came over copies due, by messages a second", simulated=False
        )
        axes = figure.subplots()
        ratios = [min(trial.ratio, _MOST_RATIO) for trial in found.trials]
        rates = [trial.ingress for trial in found.trials]
        apply(axes, "x", axis_scale([*rates, found.low, found.high], log_ratio=1.5))
        apply(axes, "y", Scale("linear", min([0.9, *ratios]) - 0.02, _MOST_RATIO + 0.02))
        blue = style.BLUE.light
        axes.axvspan(found.low, found.high, color=blue, alpha=0.15, linewidth=0)
        axes.axvline(found.ingress, color=blue, linewidth=1.2, label="limit")
        style.limit(axes.axhline, 0.99, f"99{SPACE}%")
        for held, fill in ((True, blue), (False, style.PAPER.light)):
            chosen = [place for place, trial in enumerate(found.trials) if trial.held is held]
            axes.plot(
                [rates[place] for place in chosen],
                [ratios[place] for place in chosen],
                "o",
                color=blue,
                markerfacecolor=fill,
                label="held" if held else "did not hold",
                clip_on=False,
                zorder=4,
            )
        axes.set_xlabel("messages published a second")
        style.legend(figure)
        return figure


def _draw_percentiles(title: str, levels: Sequence[Level], width: float) -> Figure:
    with style.drawing():
        every = [value for level in levels for value in level.values_us]
        unit = unit_of(every)
        figure = style.figure_of(
            width, 3.4, f"{title} in {unit.name}: percentiles", simulated=False
        )
        axes = figure.subplots()
        apply(axes, "y", axis_scale([value * unit.per_us for value in every], log_ratio=5))
        for level, look in zip(levels, style.SERIES, strict=False):
            axes.plot(
                [-math.log10(1 - percent / 100) for percent in level.percents],
                [value * unit.per_us for value in level.values_us],
                color=look.ink.light,
                linestyle=look.dashes,
                label=f"{level.name}, n{SPACE}={SPACE}{level.count:,}",
            )
        # Each nine of a percentile has as much room.
        axes.set_xlim(0, 3)
        axes.set_xticks(range(4), [f"{percent}{SPACE}%" for percent in (0, 90, 99, 99.9)])
        axes.set_xlabel("share of values at or below")
        style.legend(figure)
        return figure
