"""Heat map of the skew of every pair of nodes."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from mqtick.analysis.report import style
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.numbers import in_words, short, unit_of
from mqtick.analysis.results.result import Pairs, Result

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
        f"(at least {least}). Orange, or the darker greys: positive, the column's node is later; "
        "purple, or the lighter greys: negative.",
        f"Pairwise median skew of {len(pairs.nodes)} nodes; the largest is "
        f"{in_words(float(pairs.median_us[i, j]))}, {pairs.nodes[j]} after {pairs.nodes[i]}.",
        lambda width: _draw(width, pairs, simulated=result.measurement.simulated),
    )


def _draw(width: float, pairs: Pairs, *, simulated: bool) -> Figure:
    with style.drawing():
        count = len(pairs.nodes)
        unit, factor = unit_of(pairs.median_us[np.isfinite(pairs.median_us)])
        values = pairs.median_us * factor
        wide = style.is_wide(width)
        names = [style.shortened(name, 1.6 if wide else 1.0) for name in pairs.nodes]
        longest = max(map(len, names))
        side = min(width - 1.6, 5.0, max(0.7 * count, 2.4))
        cell = side / count
        upright = longest > 11 * cell
        figure = style.figure_of(
            width,
            side + (1.7 if upright else 0.8),
            f"Median skew in {unit}",
            simulated=simulated,
            is_square=True,
        )
        axes = figure.subplots()
        axes.set_aspect("equal", anchor="NW")
        most = float(np.nanmax(np.abs(values))) or 1.0
        # The strongest colours are left out: words in them could not be read.
        colours = LinearSegmentedColormap.from_list(
            _MAP, colormaps[_MAP].reversed()(np.linspace(0.1, 0.9, 256))
        )
        norm = Normalize(-most, most)
        edges = np.arange(count + 1) - 0.5
        mesh = axes.pcolormesh(
            edges, edges, np.ma.masked_invalid(values), cmap=colours, norm=norm,
            rasterized=count > 45,
        )  # fmt: skip
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.xaxis.tick_top()
        shown = range(0, count, max(1, int(np.ceil(0.16 / cell))))
        axes.set_xticks(shown, [names[i] for i in shown], rotation=90 if upright else 0)
        axes.set_yticks(shown, [names[i] for i in shown])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        if cell >= 0.4:
            for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
                value = float(values[row, column])
                red, green, blue, _ = colours(norm(value))
                dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
                axes.text(
                    column, row, short(value, 2), ha="center", va="center",
                    color="#ffffff" if dark else "#101010",
                )  # fmt: skip
        place = axes.inset_axes((1.03, 0.0, 0.12 / side, 1.0))
        bar = figure.colorbar(mesh, cax=place, ticks=[-most, 0, most])
        bar.ax.set_yticklabels([short(-most, 2), "0", short(most, 2)])
        bar.ax.tick_params(length=0)
        bar.outline.set_visible(False)
        return figure
