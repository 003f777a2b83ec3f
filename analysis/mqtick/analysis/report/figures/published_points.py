"""The published points of figure 9, as hollow markers next to ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from mqtick.analysis.report import style
from mqtick.analysis.report.figures.labels import Label
from mqtick.analysis.results.published import PUBLISHED

__all__ = [
    "ASIDE_POINTS",
    "Point",
    "PublishedSeries",
    "bars",
    "draw_published",
    "published_points",
]

ASIDE_POINTS: Final = 8.0
"""How far published points stand from their N, so that ours can be seen."""


class Point(NamedTuple):
    """A published mean and its standard deviation, in us."""

    subscribers: int
    mean: float
    deviation: float


class PublishedSeries(NamedTuple):
    """The published points of one broker."""

    name: str
    marker: str
    points: list[Point]


def published_points(quantity: str, measured: set[int]) -> list[PublishedSeries]:
    """Return the published series of a quantity; of latency, at an N that was measured."""
    known = {n: found for (name, n), found in PUBLISHED.items() if name == quantity}
    if quantity == "latency":
        # The same value stands for one and for two subscribers.
        n = next((n for n in known if n in measured), 1)
        known = {n: known[n]}
    if not known:
        return []
    software = [
        Point(n, f.software_mean_us, f.software_deviation_us) for n, f in sorted(known.items())
    ]
    hardware = [
        Point(n, f.hardware_mean_us, f.hardware_deviation_us) for n, f in sorted(known.items())
    ]
    return [
        PublishedSeries("published, software broker", "s", software),
        PublishedSeries("published, hardware broker", "D", hardware),
    ]


def draw_published(
    figure: Figure,
    axes: Axes,
    published: Sequence[PublishedSeries],
    factor: float,
) -> list[Label]:
    """Draw published points with their deviations, a little aside; return their labels."""
    labels = []
    for place_of, (name, marker, points) in enumerate(published):
        shift = ScaledTranslation(
            (1 if place_of else -1) * ASIDE_POINTS / 72, 0, figure.dpi_scale_trans
        )
        axes.errorbar(
            [point.subscribers for point in points],
            [point.mean * factor for point in points],
            yerr=bars([p.mean * factor for p in points], [p.deviation * factor for p in points]),
            fmt=marker,
            color=style.MUTED.light,
            markerfacecolor=style.PAPER.light,
            markersize=6,
            markeredgewidth=1.2,
            elinewidth=0.9,
            capsize=2.5,
            transform=axes.transData + shift,
            zorder=2.5,
        )
        labels.append(Label(points[-1].mean * factor, name, style.MUTED, x=points[-1].subscribers))
    return labels


def bars(means: Sequence[float], deviations: Sequence[float]) -> list[list[float]]:
    """Return distances down and up of absolute values: down to what is nearly nothing."""
    down = [
        min(deviation, mean * (1 - 1e-6)) if mean > 0 else deviation
        for mean, deviation in zip(means, deviations, strict=True)
    ]
    return [down, list(deviations)]
