"""How figures look: inks for light and dark, sizes, axes, numbers.

The inks are Okabe and Ito's hues (distinguishable by colour-blind people), darkened for light
paper and lightened for dark paper until text in them has a contrast of at least 4.5. What differs
by ink differs by marker and dashes too, so that it survives printing in grey.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mqtick.analysis.report.numbers import plain

_SIZE: Final = 9.0
"""Of text, in points."""
_LINE: Final = 0.17
_LETTER: Final = 0.08
"""Height of a line and width of a letter, in inches: hardly any text takes more."""
_LOW: Final = 2.6
"""A figure that is not higher, in inches, has no room to spare for a paper."""
_BESIDE: Final = 1.6
"""Room for a legend beside the axes of a wide figure, in inches."""
_MARGIN: Final = 0.04
_INSIDE: Final = 5
"""Lines of a legend that have room inside of axes."""


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


class Series(NamedTuple):
    """How one series of several is told from the others, also in grey."""

    ink: Ink
    marker: str
    dashes: Any


SERIES: Final = (
    Series(BLUE, "o", "solid"),
    Series(OCHRE, "s", (0, (5, 1.5))),
    Series(GREEN, "^", (0, (1.2, 1.2))),
    Series(PURPLE, "D", (0, (6, 1.5, 1.2, 1.5))),
    Series(MUTED, "v", (0, (3, 1, 1, 1, 1, 1))),
)
"""At most five: more cannot be told apart."""

DASHES: Final[Any] = (0, (4, 2))
"""Of a line that was not measured, such as a limit."""

_RC: Final[Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": _SIZE,
    "text.color": INK.light,
    "axes.edgecolor": MUTED.light,
    "axes.labelcolor": MUTED.light,
    "axes.labelsize": _SIZE,
    "axes.titlesize": _SIZE,
    "axes.titlelocation": "left",
    "figure.titlesize": _SIZE,
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
    "xtick.labelsize": _SIZE,
    "ytick.labelsize": _SIZE,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "legend.fontsize": _SIZE,
    "legend.frameon": False,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0.4,
    "legend.handlelength": 1.8,
    "legend.handletextpad": 0.5,
    "legend.labelspacing": 0.45,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round",
    "text.parse_math": False,
    "text.usetex": False,
    "svg.fonttype": "none",
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
        f"@media print{{:root{{{inks(False).replace(PAPER.light, '#ffffff')}}}}}"
        "svg.figure{color:var(--figure-ink);font-family:inherit;display:block;"
        "width:100%;height:auto}"
    )


CSS: Final = _css()
"""What a page needs for figures that follow its light or dark paper."""


class _Paper(NamedTuple):
    """What differs from a page: text in points, its font, how high figures are for their width."""

    size: float
    font: str
    height: float


_ON_A_PAGE: Final = _Paper(_SIZE, "DejaVu Sans", 1.0)
_IN_A_COLUMN: Final = {
    "serif": _Paper(8.0, "STIXGeneral", 0.75),
    "sans": _Paper(7.0, "DejaVu Sans", 0.75),
}
"""STIX has the shapes and widths of Times."""
_ON: ContextVar[_Paper] = ContextVar("_ON", default=_ON_A_PAGE)


@contextmanager
def for_paper(font: str) -> Iterator[None]:
    """Draw what is drawn within for a column of a paper: its font, smaller text, less high."""
    token = _ON.set(_IN_A_COLUMN[font])
    try:
        with drawing():
            yield
    finally:
        _ON.reset(token)


def _letter() -> float:
    return _LETTER * _ON.get().size / _SIZE


@contextmanager
def drawing() -> Iterator[None]:
    """Draw and save in our style, and leave other code's style as it was.

    A title in a script that the figures' font does not have is text in a page all the same; in a
    PNG its letters are boxes, about which nobody needs a warning.
    """
    on = _ON.get()
    sizes = {key: on.size for key, value in _RC.items() if value == _SIZE}
    own = {**_RC, **sizes, "font.family": [on.font, "DejaVu Sans"]}
    with mpl.rc_context(own), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def is_wide(width: float) -> bool:
    """Return whether a figure of `width` inches has room for a legend beside its axes."""
    return width > 5.0


def wrapped(text: str, width: float, lines: int = 3) -> str:
    """Return `text` in at most `lines` lines of about `width` inches; what is too long ends in ....

    A no-break space keeps a number and its unit together.
    """
    letters = max(int(width / _letter()), 4)
    return "\n".join(
        textwrap.wrap(
            plain(text), letters, max_lines=lines, placeholder="…", break_on_hyphens=False
        )
    )


def shortened(name: str, width: float) -> str:
    """Return a name on one line, without its middle if it is too long: names differ at the end."""
    letters = max(int(width / _letter()), 4)
    name = plain(name)
    if len(name) <= letters:
        return name
    return f"{name[: letters // 2]}…{name[len(name) - (letters - 1) // 2 :]}"


def figure_of(
    width: float,
    height: float,
    title: str,
    *,
    simulated: bool,
    laid_out: bool = True,
    is_square: bool = False,
) -> Figure:
    """Return a figure, in inches, that says what is shown, and SIMULATED where it is.

    Matplotlib lays out what is put into it, for which it draws everything twice, unless not
    `laid_out`. For a paper it is less high, unless it `is_square`.
    """
    if not is_square:
        height = max(height * _ON.get().height, min(height, _LOW))
    layout: Any = "constrained" if laid_out else None
    figure = Figure(figsize=(width, height), dpi=100, facecolor=PAPER.light, layout=layout)
    FigureCanvasAgg(figure)
    room = width - 2 * _MARGIN
    lines = 3 if _ON.get() is _ON_A_PAGE else 1
    if simulated:
        mark: Any = {"ha": "right", "va": "top", "weight": "bold", "color": LIMIT.light}
        figure.text(1 - _MARGIN / width, 1 - _MARGIN / height, "SIMULATED", **mark)
        room -= 1.0
    figure.suptitle(wrapped(title, room, lines), x=_MARGIN / width, ha="left")
    return figure


def limit(draw: Callable[..., Any], value: float, label: str) -> None:
    """Draw a limit across axes, with their `axhline` or `axvline`."""
    draw(value, color=LIMIT.light, linewidth=1.1, linestyle=DASHES, zorder=3, label=label)


def legend(figure: Figure) -> None:
    """Say what everything with a label is: beside the axes, below a figure for a phone.

    In a paper it stands inside of the axes that have the most room, if it is short.
    """
    width = float(figure.get_figwidth())
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    if not entries:
        return
    colors = [handle.get_color() for handle in entries.values()]
    if is_wide(width):
        figure.legend(
            entries.values(),
            [wrapped(label, _BESIDE) for label in entries],
            loc="outside right upper",
            # Empty lines beside those of the figure's title, where SIMULATED may stand.
            title="\n".join("\N{NO-BREAK SPACE}" for _ in figure.get_suptitle().split("\n")),
            labelcolor=colors,
        )
        return
    if _ON.get() is not _ON_A_PAGE and len(entries) <= _INSIDE:
        inside = max(figure.axes, key=lambda axes: axes.get_position().height)
        inside.legend(
            entries.values(),
            entries,
            loc="best",
            labelcolor=colors,
            fontsize=_ON.get().size - 1,
            frameon=True,
            framealpha=0.9,
            facecolor=PAPER.light,
            edgecolor="none",
            borderpad=0.2,
        )
        return
    texts = [wrapped(label, width - 0.5) for label in entries]
    longest = max(len(line) for text in texts for line in text.split("\n"))
    columns = max(1, int(width / (0.55 + _letter() * longest)))
    lines = math.ceil(len(texts) / columns) + sum(text.count("\n") for text in texts)
    figure.set_figheight(figure.get_figheight() + _LINE * lines)
    figure.legend(
        entries.values(),
        texts,
        loc="outside lower left",
        ncols=columns,
        labelcolor=colors,
    )
