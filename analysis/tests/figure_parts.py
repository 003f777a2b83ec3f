"""What tests of figures ask of a figure: whether its texts can be read."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.text import Text

_TOLERANCE = 1.0
"""Pixels by which boxes of texts, which are larger than their letters, may touch."""


def _shown(figure: Figure) -> list[Text]:
    found = []
    for artist in figure.findobj(Text):
        assert isinstance(artist, Text)
        if artist.get_visible() and artist.get_text().strip():
            found.append(artist)
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            drawn = {id(tick) for tick in axis._update_ticks()}  # type: ignore[attr-defined]
            for tick in (*axis.majorTicks, *axis.minorTicks):  # type: ignore[attr-defined]
                for label in (tick.label1, tick.label2):
                    if id(tick) not in drawn or not label.get_visible():
                        hidden.add(id(label))
    return [text for text in found if id(text) not in hidden]


def texts_of(figure: Figure) -> list[str]:
    """Return every text that is seen."""
    figure.draw_without_rendering()
    return [text.get_text() for text in _shown(figure)]


def misplaced(figure: Figure) -> list[str]:
    """Return a sentence for each text that leaves the figure or lies on another one."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    full = figure.bbox
    boxes = [(text.get_text(), Text.get_window_extent(text, renderer)) for text in _shown(figure)]
    wrong = []
    for index, (name, box) in enumerate(boxes):
        if (
            box.x0 < full.x0 - _TOLERANCE
            or box.y0 < full.y0 - _TOLERANCE
            or box.x1 > full.x1 + _TOLERANCE
            or box.y1 > full.y1 + _TOLERANCE
        ):
            wrong.append(f"{name!r} leaves the figure: {box.extents.round().tolist()}")
        for other, its in boxes[:index]:
            across = min(box.x1, its.x1) - max(box.x0, its.x0)
            along = min(box.y1, its.y1) - max(box.y0, its.y0)
            if across > _TOLERANCE and along > 2 * _TOLERANCE:
                wrong.append(f"{name!r} lies on {other!r}")
    return wrong
