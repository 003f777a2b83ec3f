"""Heat map of the skew of every pair of nodes."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from mqtick.analysis.report import style
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.numbers import in_words, short, unit_of
from mqtick.analysis.results.result import Pairs, Result

__all__ = ["pairs_picture"]

_MAP: Final = "PuOr"


def pairs_picture(result: Result) -> Picture | None:
    """Return the heat map, None where fewer than three nodes share shots."""
    pairs = result.pairs
    if pairs is None or len(pairs.nodes) < 2 or not np.isfinite(pairs.median_us).any():
        return None
    least = int(pairs.n[np.isfinite(pairs.median_us)].min())
    i, j = divmod(int(np.nanargmax(pairs.median_us)), len(pairs.nodes))
    return Picture(
        "pairs",
        "Skew between each pair of nodes",
        "Median of the column's edge minus the row's, over the shots that have both "
        f"(at least {least}): orange is positive, the column's node is later; purple is negative.",
        f"Pairwise median skew of {len(pairs.nodes)} nodes; the largest is "
        f"{in_words(float(pairs.median_us[i, j]))}, {pairs.nodes[j]} after {pairs.nodes[i]}.",
        lambda width: _draw(width, pairs, simulated=result.measurement.simulated),
    )


def _draw(width: float, pairs: Pairs, *, simulated: bool) -> Figure:
    with style.drawing():
        count = len(pairs.nodes)
        unit, factor = unit_of(pairs.median_us[np.isfinite(pairs.median_us)])
        values = pairs.median_us * factor
        names = [
            style.wrapped(name, 1.5 if style.is_wide(width) else 0.9, lines=1)
            for name in pairs.nodes
        ]
        left = max(style.text_inches(name) for name in names) + 0.15
        room, bottom = 0.75, 0.2
        side = min(width - left - room, 5.2, max(0.62 * count, 2.7))
        cell = side / count
        slanted = max(style.text_inches(name) for name in names) + 0.08 > cell
        above = (max(style.text_inches(name) for name in names) + 0.1) if slanted else 0.25
        figure = style.figure_of(width, side + above + bottom + 0.55)
        style.header(figure, f"Median skew in {unit}, column after row", simulated=simulated)
        axes = style.paper_axes(figure)
        style.place(figure, axes, left, width - left - side, 0.55 + above, bottom)
        most = float(np.nanmax(np.abs(values))) or 1.0
        colours = colormaps[_MAP].reversed()
        norm = Normalize(-1.25 * most, 1.25 * most)
        edges = np.arange(count + 1) - 0.5
        axes.pcolormesh(
            edges, edges, np.ma.masked_invalid(values), cmap=colours, norm=norm,
            rasterized=count > 45,
        )  # fmt: skip
        axes.set_xlim(-0.5, count - 0.5)
        axes.set_ylim(count - 0.5, -0.5)
        axes.grid(visible=False)
        axes.xaxis.tick_top()
        step = max(1, int(np.ceil(0.16 / cell)))
        shown = range(0, count, step)
        axes.set_xticks(list(shown), [names[i] for i in shown], rotation=90 if slanted else 0)
        axes.set_yticks(list(shown), [names[i] for i in shown])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        widest = max(style.text_inches(short(float(v), 2)) for v in values[np.isfinite(values)])
        if cell >= widest + 0.06 and cell >= 0.24:
            for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
                value = float(values[row, column])
                red, green, blue, _ = colours(norm(value))
                dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
                axes.text(
                    column, row, short(value, 2), ha="center", va="center",
                    color="#ffffff" if dark else "#101010",
                )  # fmt: skip
        bar = figure.add_axes(
            (
                (left + side + 0.12) / width,
                bottom / float(figure.get_size_inches()[1]),
                0.12 / width,
                side / float(figure.get_size_inches()[1]),
            )
        )
        shades = np.linspace(-most, most, 41)
        bar.pcolormesh(
            [0, 1], np.linspace(-most, most, 42), shades[:, None], cmap=colours, norm=norm
        )
        bar.set_xticks([])
        bar.yaxis.tick_right()
        bar.set_yticks([-most, 0, most], [short(-most, 2), "0", short(most, 2)])
        bar.grid(visible=False)
        for spine in bar.spines.values():
            spine.set_visible(False)
        return figure
