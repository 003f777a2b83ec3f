"""How figures look: inks for light and dark, sizes, axes, numbers.

The inks are Okabe and Ito's hues (distinguishable by colour-blind people), darkened for light
paper and lightened for dark paper until text in them has a contrast of at least 4.5. What differs
by ink differs by marker and dashes too, so that it survives printing in grey.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mqtick.analysis.report.lettering import LINE, SIZE, text_inches, wrapped

__all__ = [
    "BLUE",
    "CSS",
    "GREEN",
    "GRID",
    "INK",
    "INKS",
    "LIMIT",
    "LINE",
    "MUTED",
    "PAPER",
    "SERIES",
    "SIZE",
    "Ink",
    "Look",
    "drawing",
    "figure_of",
    "header",
    "is_wide",
    "paper_axes",
    "place",
    "text_inches",
    "wrapped",
]


class Ink(NamedTuple):
    """A colour by its part: as it is drawn (light paper), and on dark paper."""

    name: str
    light: str
    dark: str


INK: Final = Ink("ink", "#1b1c1f", "#e8e9ec")
MUTED: Final = Ink("muted", "#585e67", "#a9b0ba")
GRID: Final = Ink("grid", "#dcdfe4", "#3a3e45")
PAPER: Final = Ink("paper", "#fefdfe", "#16181c")
LIMIT: Final = Ink("limit", "#b5410f", "#ff9460")
BLUE: Final = Ink("blue", "#0068a6", "#5ab6ee")
GREEN: Final = Ink("green", "#00775a", "#34c79c")
PURPLE: Final = Ink("purple", "#9c4a78", "#e69cc4")
OCHRE: Final = Ink("ochre", "#8a5f00", "#e8b23c")
INKS: Final = (INK, MUTED, GRID, PAPER, LIMIT, BLUE, GREEN, PURPLE, OCHRE)


class Look(NamedTuple):
    """How one series of several is told from the others, also in grey."""

    ink: Ink
    marker: str
    dashes: Any


SERIES: Final = (
    Look(BLUE, "o", "solid"),
    Look(OCHRE, "s", (0, (5, 1.5))),
    Look(GREEN, "^", (0, (1.2, 1.2))),
    Look(PURPLE, "D", (0, (6, 1.5, 1.2, 1.5))),
    Look(MUTED, "v", (0, (3, 1, 1, 1, 1, 1))),
)
"""At most five: more cannot be told apart."""

_RC: Final[Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": SIZE,
    "text.color": INK.light,
    "axes.edgecolor": MUTED.light,
    "axes.labelcolor": MUTED.light,
    "axes.labelsize": SIZE,
    "axes.facecolor": "none",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": GRID.light,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED.light,
    "ytick.color": MUTED.light,
    "xtick.labelsize": SIZE,
    "ytick.labelsize": SIZE,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round",
    "text.parse_math": False,
    "text.usetex": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "mqtick",
    "pdf.fonttype": 42,
    "path.simplify": True,
    "savefig.dpi": 200,
}


def _css() -> str:
    def inks(dark: bool) -> str:
        return "".join(f"--figure-{ink.name}:{ink.dark if dark else ink.light};" for ink in INKS)

    return (
        f":root{{{inks(False)}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{inks(True)}}}}}"
        f"@media print{{:root{{{inks(False)}}}}}"
        "svg.figure{color:var(--figure-ink);font-family:inherit;display:block;"
        "width:100%;height:auto}"
    )


CSS: Final = _css()
"""What a page needs for figures that follow its light or dark paper."""


@contextmanager
def drawing() -> Iterator[None]:
    """Draw and save in our style, and leave other code's style as it was.

    A title in a script that the figures' font does not have is text in a page all the same; in a
    PNG its letters are boxes, about which nobody needs a warning.
    """
    with mpl.rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def is_wide(width: float) -> bool:
    """Return whether a figure of `width` inches has room for labels beside it."""
    return width > 5.0


def figure_of(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, on paper of its own."""
    figure = Figure(figsize=(width, height), dpi=100, facecolor=PAPER.light)
    FigureCanvasAgg(figure)
    return figure


def header(figure: Figure, text: str, *, simulated: bool) -> float:
    """Write what is shown, and SIMULATED where it is; return the inches it takes at the top."""
    width, height = figure.get_size_inches()
    margin = 0.06
    room = width - 2 * margin
    if simulated:
        mark = "SIMULATED"
        room -= text_inches(mark, SIZE, bold=True) + 0.15
        figure.text(
            1 - margin / width,
            1 - margin / height,
            mark,
            ha="right",
            va="top",
            weight="bold",
            color=LIMIT.light,
        )
    lines = wrapped(" ".join(text.split()), room)
    figure.text(margin / width, 1 - margin / height, lines, ha="left", va="top", linespacing=1.2)
    return margin + LINE * (lines.count("\n") + 1) + 0.1


def place(figure: Figure, axes: Axes, left: float, right: float, top: float, bottom: float) -> None:
    """Put axes so that they keep these distances from the figure's edges, in inches."""
    width, height = figure.get_size_inches()
    axes.set_position(
        (
            left / width,
            bottom / height,
            max(width - left - right, 0.2) / width,
            max(height - top - bottom, 0.2) / height,
        )
    )


def paper_axes(figure: Figure) -> Axes:
    """Return new axes, to be placed later."""
    return figure.add_axes((0.1, 0.1, 0.8, 0.8))
