"""Labels next to what they name, without overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mqtick.analysis.report import style

__all__ = ["Label", "above", "beside", "key", "spread"]


class Label(NamedTuple):
    """A text at a value of the y axis; the first of several are kept where room is short.

    `x` is where the thing that it names ends, if that is before the right edge of the axes.
    """

    y: float
    text: str
    ink: style.Ink
    bold: bool = False
    x: float | None = None


def spread(places: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Move `places` (ascending) apart until things of `sizes` around them do not overlap.

    They stay between `low` and `high` as far as their sum has room there, and move no further than
    they have to: neighbours that touch are moved together, about their common middle.
    """
    groups: list[tuple[float, float, list[float]]] = []
    for place, size in zip(places, sizes, strict=True):
        start = min(max(place - size / 2, low), max(high - size, low))
        groups.append((start, size, [size]))
        while len(groups) > 1 and groups[-2][0] + groups[-2][1] > groups[-1][0]:
            second, first = groups.pop(), groups.pop()
            total = first[1] + second[1]
            weight = len(first[2]), len(second[2])
            start = (first[0] * weight[0] + (second[0] - first[1]) * weight[1]) / sum(weight)
            start = max(min(start, high - total), low)
            groups.append((start, total, first[2] + second[2]))
    found = []
    for start, _, members in groups:
        at = start
        for size in members:
            found.append(at + size / 2)
            at += size
    return found


def beside(figure: Figure, axes: Axes, labels: Sequence[Label], room: float) -> None:
    """Write labels at the right of placed axes, in `room` inches, each at the height of its y."""
    box = axes.get_position()
    height = box.height * figure.get_size_inches()[1]
    width = box.width * figure.get_size_inches()[0]
    texts = [style.wrapped(each.text, room - 0.22, lines=5, bold=each.bold) for each in labels]
    sizes = [style.LINE * (text.count("\n") + 1) + 0.05 for text in texts]
    kept = list(range(len(labels)))
    while kept and sum(sizes[index] for index in kept) > height + 0.3:
        kept.pop()
    transform = axes.transData + axes.transAxes.inverted()
    own = {}
    for index in kept:
        place = float(transform.transform((axes.get_xlim()[0], labels[index].y))[1])
        own[index] = min(max(place, 0.0), 1.0) * height
    order = sorted(kept, key=lambda index: (own[index], index))
    placed = spread(
        [own[index] for index in order], [sizes[index] for index in order], -0.15, height + 0.15
    )
    for index, at in zip(order, placed, strict=True):
        label = labels[index]
        if label.x is not None:
            axes.plot(
                [label.x, axes.get_xlim()[1]],
                [label.y, label.y],
                color=label.ink.light,
                linewidth=0.5,
                alpha=0.6,
                zorder=1.5,
            )
        axes.annotate(
            texts[index],
            xy=(1.0, own[index] / height),
            xytext=(1.0 + 0.16 / width, at / height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            ha="left",
            va="center",
            color=label.ink.light,
            weight="bold" if label.bold else "normal",
            linespacing=1.15,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": label.ink.light,
                "linewidth": 0.7,
                "shrinkA": 1,
                "shrinkB": 1,
                "relpos": (0.0, 0.5),
            },
        )


def key(
    figure: Figure,
    left: float,
    top: float,
    width: float,
    entries: Sequence[tuple[style.Look, str]],
    *,
    marks: bool = False,
) -> float:
    """Write what each look means, in rows from `left`, `top` inches; return their height.

    For curves that cross: a label at their end would not say which is which.
    """
    full_width, full_height = figure.get_size_inches()
    x, row = 0.0, 0
    for look, text in entries:
        shown = style.wrapped(text, width - 0.45, style.SIZE, 1)
        size = 0.36 + style.text_inches(shown) + 0.16
        if x > 0 and x + size - 0.16 > width:
            x, row = 0.0, row + 1
        y = 1 - (top + style.LINE * 1.2 * (row + 0.5)) / full_height
        at = (left + x) / full_width
        line: dict[str, Any] = {"linestyle": look.dashes, "linewidth": 1.5}
        if marks:
            line = {"linestyle": "none", "marker": look.marker, "markersize": 5}
        figure.add_artist(
            Line2D(
                [at, at + 0.15 / full_width, at + 0.3 / full_width],
                [y, y, y],
                color=look.ink.light,
                markevery=[1],
                transform=figure.transFigure,
                **line,
            )
        )
        figure.text(
            at + 0.36 / full_width, y, shown, ha="left", va="center_baseline", color=look.ink.light
        )
        x += size
    return style.LINE * 1.2 * (row + 1)


def above(figure: Figure, axes: Axes, bounds: Sequence[tuple[float, str]]) -> None:
    """Draw limits across the values' (x) axis of placed axes, and their texts above it.

    Those that have no room, or lie outside of the axis, are left out.
    """
    low, high = axes.get_xlim()
    box = axes.get_position()
    full = float(figure.get_size_inches()[0])
    width = box.width * full
    shown = sorted({bound for bound in bounds if low <= bound[0] <= high})
    texts = [text for _, text in shown]
    sizes = [style.text_inches(text) + 0.12 for text in texts]
    while shown and sum(sizes) > full - 0.1:
        shown.pop()
        texts.pop()
        sizes.pop()
    if not shown:
        return
    transform = axes.transData + axes.transAxes.inverted()
    places = [
        float(transform.transform((value, axes.get_ylim()[0]))[0]) * width for value, _ in shown
    ]
    left = box.x0 * full
    placed = spread(places, sizes, -left + 0.05, full - left - 0.05)
    for (value, _), text, at in zip(shown, texts, placed, strict=True):
        axes.axvline(value, color=style.LIMIT.light, linewidth=1.1, linestyle=(0, (4, 2)))
        axes.annotate(
            text,
            xy=(at / width, 1.0),
            xytext=(0, 3),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="center",
            va="bottom",
            color=style.LIMIT.light,
            annotation_clip=False,
        )
