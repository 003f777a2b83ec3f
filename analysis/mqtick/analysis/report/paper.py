"""Sheets of A4 on which text, tables and figures flow, drawn with matplotlib alone.

All places are in inches. Figures stay as they were drawn: a sheet draws each of them at its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from matplotlib.artist import Artist
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from mqtick.analysis.report.lettering import lines_of, wrapped
from mqtick.analysis.report.style import INK, MUTED

__all__ = ["HEIGHT", "MARGIN", "ROOM", "WIDTH", "Paper"]

WIDTH: Final = 8.27
HEIGHT: Final = 11.69
MARGIN: Final = 0.65
ROOM: Final = WIDTH - 2 * MARGIN
_BOTTOM: Final = 0.75
_SPACING: Final = 1.35
_CAPTION: Final = 8.0
_BELOW_FIGURE: Final = 0.3
_FOOTER: Final = 7.0
_FOOT: Final = 0.4


@dataclass(slots=True)
class _Sheet:
    """What stands on one sheet; a figure with its lower left corner."""

    texts: list[tuple[float, float, str, dict[str, Any]]] = field(default_factory=list)
    rules: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    figures: list[tuple[Figure, float, float]] = field(default_factory=list)


class _State(NamedTuple):
    """How far the paper was filled."""

    sheets: int
    texts: int
    rules: int
    figures: int
    y: float
    fresh: bool


class Paper:
    """Sheets that are filled from the top."""

    def __init__(self) -> None:
        self._sheets: list[_Sheet] = []
        self._y = 0.0
        self._fresh = True
        self.begin()

    @property
    def left(self) -> float:
        """Return how many inches are free on the present sheet."""
        return self._y - _BOTTOM

    def begin(self) -> None:
        """Begin a sheet."""
        self._sheets.append(_Sheet())
        self._y = HEIGHT - MARGIN
        self._fresh = True

    def together(self, put: Callable[[], None]) -> None:
        """Do what puts something on paper; if it does not fit on this sheet, begin another first.

        What is larger than a sheet begins on a new one and continues on the next.
        """
        before = self._state()
        put()
        if len(self._sheets) > before.sheets and not before.fresh:
            self._back_to(before)
            self.begin()
            put()

    def _state(self) -> _State:
        sheet = self._sheets[-1]
        filled = len(sheet.texts), len(sheet.rules), len(sheet.figures)
        return _State(len(self._sheets), *filled, self._y, self._fresh)

    def _back_to(self, state: _State) -> None:
        del self._sheets[state.sheets :]
        sheet = self._sheets[-1]
        del sheet.texts[state.texts :], sheet.rules[state.rules :], sheet.figures[state.figures :]
        self._y, self._fresh = state.y, state.fresh

    def picture(self, figure: Figure, caption: str) -> None:
        """Put a figure and its caption."""
        lines = lines_of(caption, ROOM, _CAPTION)
        width, height = (float(inches) for inches in figure.get_size_inches())
        self.down(0.1)
        self.need(height + 0.05 + len(lines) * _CAPTION * _SPACING / 72)
        self._y -= height
        self._sheets[-1].figures.append((figure, (WIDTH - width) / 2, self._y))
        self._fresh = False
        self._y -= 0.05
        for line in lines:
            self._y -= _CAPTION * _SPACING / 72
            self.put(line, 0.0, _CAPTION, ink=MUTED.light)
        self.down(_BELOW_FIGURE)

    def need(self, inches: float) -> bool:
        """Begin sheets until that much is free, and return whether that was needed."""
        begun = False
        while self.left < inches and not self._fresh:
            self.begin()
            begun = True
        return begun

    def down(self, inches: float) -> None:
        """Leave that much free, but not at the top of a sheet."""
        if not self._fresh:
            self._y -= inches

    def step(self, inches: float) -> None:
        """Go down by that much, also at the top of a sheet."""
        self._y -= inches

    def write(
        self,
        text: str,
        size: float = 9.0,
        *,
        x: float = 0.0,
        width: float = ROOM,
        bold: bool = False,
        ink: str = INK.light,
    ) -> None:
        """Write a text in lines, `x` inches from the left margin."""
        height = size * _SPACING / 72
        for line in lines_of(text, width - x, size, bold=bold):
            self.need(height)
            self._y -= height
            self.put(line, x, size, bold=bold, ink=ink)

    def put(
        self,
        line: str,
        x: float,
        size: float,
        *,
        right: bool = False,
        bold: bool = False,
        ink: str = INK.light,
    ) -> None:
        """Put one line at the present height, its left (or right) end at `x` inches."""
        how = {
            "fontsize": size,
            "ha": "right" if right else "left",
            "weight": "bold" if bold else "normal",
            "color": ink,
        }
        lift = 0.28 * size * _SPACING / 72
        self._sheets[-1].texts.append((MARGIN + x, self._y + lift, line, how))
        self._fresh = False

    def rule(self, width: float = ROOM, weight: float = 0.5, ink: str = MUTED.light) -> None:
        """Draw a line at the present height."""
        self._sheets[-1].rules.append((MARGIN, self._y, width, weight, ink))
        self._fresh = False

    def save(self, pages: PdfPages, footer: str) -> None:
        """Write every sheet with its number; `footer` is cut to one line."""
        short = wrapped(footer, ROOM - 1.0, _FOOTER, 1)
        for number, sheet in enumerate(self._sheets, 1):
            how = {"fontsize": _FOOTER, "color": MUTED.light}
            end = f"{number} of {len(self._sheets)}"
            sheet.texts.append((MARGIN, _FOOT, short, how))
            sheet.texts.append((WIDTH - MARGIN, _FOOT, end, {**how, "ha": "right"}))
            _save(pages, sheet)


def _save(pages: PdfPages, sheet: _Sheet) -> None:
    page = _Page([figure for figure, _, _ in sheet.figures])
    for figure, x, y in sheet.figures:
        page.add_artist(_Placed(figure, x, y))
    for left, height, line, how in sheet.texts:
        place = left / WIDTH, height / HEIGHT
        page.text(*place, line, va="baseline", parse_math=False, **how)
    for left, height, width, weight, ink in sheet.rules:
        ends = [left / WIDTH, (left + width) / WIDTH]
        page.add_artist(Line2D(ends, [height / HEIGHT] * 2, lw=weight, color=ink))
    untyped: Any = pages
    untyped.savefig(page, facecolor="none")


_RESOLUTION: Final[Any] = Figure.dpi


class _Page(Figure):
    """An A4; its resolution, which changes while dots are drawn, is that of the figures on it."""

    def __init__(self, figures: list[Figure]) -> None:
        self._figures = figures
        super().__init__(figsize=(WIDTH, HEIGHT))

    def _set_resolution(self, dpi: float) -> None:
        _RESOLUTION.fset(self, dpi)
        for each in self._figures:
            each.dpi = dpi

    dpi = property(_RESOLUTION.fget, _set_resolution)


class _Placed(Artist):
    """A figure of its own, drawn on a page with its lower left corner at `x` and `y` inches."""

    def __init__(self, figure: Figure, x: float, y: float) -> None:
        super().__init__()
        self._placed = figure
        self._corner = x, y

    def draw(self, renderer: RendererBase) -> None:
        figure = self._placed
        own = figure.bbox_inches.frozen()
        shown = figure.patch.get_visible()
        figure.patch.set_visible(False)
        figure.bbox_inches.set(Bbox.from_bounds(*self._corner, own.width, own.height))
        figure.draw(renderer)
        figure.bbox_inches.set(own)
        figure.patch.set_visible(shown)
