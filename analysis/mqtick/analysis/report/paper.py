"""Sheets of A4 on which text, tables and figures flow, drawn with matplotlib alone.

All places are in inches. When a sheet is saved, its text is put around the figure that stands on
it, in the figure's own inches, and an A4 is cut out of that: so figures stay as they were drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from mqtick.analysis.report.style import INK, MUTED, text_inches

__all__ = ["HEIGHT", "MARGIN", "ROOM", "WIDTH", "Paper", "lines_of"]

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


def lines_of(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Return a text in lines of `width` inches; words that are wider are broken."""
    done: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            longer = f"{line} {word}" if line else word
            if text_inches(longer, size, bold=bold) <= width:
                line = longer
                continue
            if line:
                done.append(line)
            line = word
            while text_inches(line, size, bold=bold) > width and len(line) > 1:
                count = _fitting(line, width, size, bold)
                done.append(line[:count])
                line = line[count:]
        done.append(line)
    return done


def _fitting(word: str, width: float, size: float, bold: bool) -> int:
    low, high = 1, len(word)
    while low < high:
        middle = (low + high + 1) // 2
        if text_inches(word[:middle], size, bold=bold) <= width:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(slots=True)
class _Sheet:
    """What stands on one sheet, with the figure whose lower left corner is at `corner`."""

    texts: list[tuple[float, float, str, dict[str, Any]]] = field(default_factory=list)
    rules: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    figure: Figure | None = None
    corner: tuple[float, float] = (0.0, 0.0)


class Paper:
    """Sheets that are filled from the top; figures wait for the top of a sheet."""

    def __init__(self) -> None:
        self._sheets: list[_Sheet] = []
        self._waiting: list[tuple[Figure, list[str]]] = []
        self._y = 0.0
        self._fresh = True
        self.begin()

    @property
    def left(self) -> float:
        """Return how many inches are free on the present sheet."""
        return self._y - _BOTTOM

    def begin(self) -> None:
        """Begin a sheet; the figure that has waited longest stands at its top."""
        self._sheets.append(_Sheet())
        self._y = HEIGHT - MARGIN
        self._fresh = True
        if self._waiting:
            self._put_figure(*self._waiting.pop(0))
            self.down(_BELOW_FIGURE)

    def picture(self, figure: Figure, caption: list[str]) -> None:
        """Put a figure here if it is the sheet's first and fits, else on a later sheet's top."""
        height = float(figure.get_size_inches()[1]) + len(caption) * _CAPTION * _SPACING / 72
        if self._sheets[-1].figure is None and not self._waiting and height + 0.2 < self.left:
            self.down(0.1)
            self._put_figure(figure, caption)
        else:
            self._waiting.append((figure, caption))

    def _put_figure(self, figure: Figure, caption: list[str]) -> None:
        width, height = (float(inches) for inches in figure.get_size_inches())
        self._y -= height
        self._sheets[-1].figure = figure
        self._sheets[-1].corner = ((WIDTH - width) / 2, self._y)
        self._fresh = False
        self._y -= 0.05
        for line in caption:
            self._y -= _CAPTION * _SPACING / 72
            self.put(line, 0.0, _CAPTION, ink=MUTED.light)

    def need(self, inches: float) -> bool:
        """Begin sheets until so much is free, and return whether that was needed."""
        begun = False
        while self.left < inches and not self._fresh:
            self.begin()
            begun = True
        return begun

    def down(self, inches: float) -> None:
        """Leave so much free, but not at the top of a sheet."""
        if not self._fresh:
            self._y -= inches

    def step(self, inches: float) -> None:
        """Go down by so much, also at the top of a sheet."""
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
        while self._waiting:
            self.begin()
        lines = lines_of(footer, ROOM - 1.0, _FOOTER)
        short = lines[0] + ("…" if len(lines) > 1 else "")
        for number, sheet in enumerate(self._sheets, 1):
            how = {"fontsize": _FOOTER, "color": MUTED.light}
            end = f"{number} of {len(self._sheets)}"
            sheet.texts.append((MARGIN, _FOOT, short, how))
            sheet.texts.append((WIDTH - MARGIN, _FOOT, end, {**how, "ha": "right"}))
            _save(pages, sheet)


def _save(pages: PdfPages, sheet: _Sheet) -> None:
    figure = sheet.figure or Figure(figsize=(WIDTH, HEIGHT))
    x, y = sheet.corner
    # Of the figure's transforms this one alone is moved when an A4 is cut out around it.
    whole = figure.transFigure
    wide, high = (float(inches) for inches in figure.get_size_inches())
    for left, height, line, how in sheet.texts:
        place = (left - x) / wide, (height - y) / high
        figure.text(*place, line, va="baseline", parse_math=False, **how)
    for left, height, width, weight, ink in sheet.rules:
        ends = [(left - x) / wide, (left + width - x) / wide]
        at = (height - y) / high
        figure.add_artist(Line2D(ends, [at, at], lw=weight, color=ink, transform=whole))
    a4 = Bbox.from_bounds(-x, -y, WIDTH, HEIGHT)
    untyped: Any = pages
    untyped.savefig(figure, bbox_inches=a4, facecolor="none")
