"""Figures for a paper: at the width of its column, in a font that suits it, as PDF, PGF or SVG."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_pgf import RendererPgf
from matplotlib.figure import Figure

from mqtick.analysis.report import style
from mqtick.analysis.report.figures import Picture, pictures_of
from mqtick.analysis.report.latex import float_of, tex
from mqtick.analysis.report.svg import png_of
from mqtick.analysis.results.result import Result
from mqtick.recording.shot import replace_file

__all__ = ["Paper", "UnknownFigureError", "write_paper"]

_ALL: Final = "all"
_PGF_DPI: Final = 100.0
_ROOM: Final = 1.12
"""For a document's font that is wider than ours: Computer Modern is."""


class UnknownFigureError(ValueError):
    """There is no such figure; the text says which ones there are."""


@dataclass(frozen=True, slots=True)
class Paper:
    """What a paper wants.

    Attributes:
        figures: names of figures, or parts of names; "all" for all of them.
        width: of the column, in inches.
        formats: "pdf", "pgf", "svg", "png".
        font: "serif" or "sans"; in a PGF it is the document's own.
        grey: whether to draw without colours.
    """

    figures: Sequence[str]
    width: float
    formats: Sequence[str] = ("pdf",)
    font: str = "serif"
    grey: bool = False


def write_paper(results: Sequence[Result], out: Path, paper: Paper) -> list[Path]:
    """Write the figures, their captions, and `figures.tex`, which has both; returns the files.

    Raises:
        UnknownFigureError: a name that no figure has.
        OSError: when something cannot be written.
    """
    chosen = _chosen(pictures_of(results), paper.figures)
    out.mkdir(parents=True, exist_ok=True)
    files: dict[Path, bytes] = {}
    for picture in chosen:
        for ending in paper.formats:
            with style.for_paper(paper.font):
                figure = picture.draw(paper.width)
                if paper.grey:
                    style.without_colours(figure)
                files[out / f"{picture.name}.{ending}"] = _DRAWN[ending](figure)
    captions = [f"{picture.title}. {picture.caption}" for picture in chosen]
    is_pgf = "pgf" in paper.formats
    floats = [
        float_of(picture.name, caption, is_pgf=is_pgf)
        for picture, caption in zip(chosen, captions, strict=True)
    ]
    files[out / "figures.tex"] = "\n".join(floats).encode()
    said = [f"{p.name}: {caption}\n" for p, caption in zip(chosen, captions, strict=True)]
    files[out / "captions.txt"] = "\n".join(said).encode()
    for path, octets in files.items():
        replace_file(path, octets)
    return list(files)


def _chosen(pictures: Sequence[Picture], names: Sequence[str]) -> list[Picture]:
    chosen: dict[str, Picture] = {}
    for name in names:
        found = [each for each in pictures if each.name == name]
        found = found or [each for each in pictures if name == _ALL or name in each.name.split("-")]
        if not found:
            there = ", ".join(each.name for each in pictures) or "none, for want of data"
            raise UnknownFigureError(
                f"there is no figure {name!r} of this measurement; there is: {there}; or `all`."
            )
        chosen |= {each.name: each for each in found}
    return list(chosen.values())


def _saved(ending: str, metadata: dict[str, Any]) -> Callable[[Figure], bytes]:
    def octets(figure: Figure) -> bytes:
        buffer = io.BytesIO()
        mpl.rcParams["svg.hashsalt"] = "mqtick"
        figure.savefig(buffer, format=ending, facecolor="none", metadata=metadata)
        return buffer.getvalue()

    return octets


class _Renderer(RendererPgf):
    """Matplotlib's PGF, but with words that are no commands, and without asking LaTeX for sizes.

    LaTeX places each text by its own size; only the room for it is reckoned with our font.
    """

    def draw_text(self, gc: Any, x: Any, y: Any, s: str, *rest: Any, **more: Any) -> None:
        RendererPgf.draw_text(self, gc, x, y, tex(s), *rest, **more)  # type: ignore[no-untyped-call]

    def get_text_width_height_descent(
        self, s: str, prop: Any, ismath: Any
    ) -> tuple[float, float, float]:
        w, h, d = RendererBase.get_text_width_height_descent(self, s, prop, ismath)
        return w * _ROOM, h * _ROOM, d * _ROOM


def _pgf(figure: Figure) -> bytes:
    for artist in figure.findobj():
        artist.set_rasterized(False)  # a picture in a PGF is a file of its own
    figure.set_dpi(_PGF_DPI)
    figure.patch.set_visible(False)
    text = io.StringIO()
    width, height = (float(inches) for inches in figure.get_size_inches())
    text.write(
        "% Made by mqtick-report. In the preamble: \\usepackage{pgf}\n"
        "\\begingroup%\n\\makeatletter%\n\\begin{pgfpicture}%\n"
        f"\\pgfpathrectangle{{\\pgfpointorigin}}{{\\pgfqpoint{{{width:f}in}}{{{height:f}in}}}}%\n"
        "\\pgfusepath{use as bounding box, clip}%\n"
    )
    with mpl.rc_context({"pgf.rcfonts": False}):
        renderer: Any = _Renderer(figure, text)  # type: ignore[no-untyped-call]
        renderer = MixedModeRenderer(figure, width, height, _PGF_DPI, renderer)  # type: ignore[no-untyped-call]
        figure.draw(renderer)
    text.write("\\end{pgfpicture}%\n\\makeatother%\n\\endgroup%\n")
    return text.getvalue().encode()


_DRAWN: Final[dict[str, Callable[[Figure], bytes]]] = {
    "pdf": _saved("pdf", {"Creator": "mqtick-report", "Producer": None, "CreationDate": None}),
    "svg": _saved("svg", {"Creator": "mqtick-report", "Date": None}),
    "png": png_of,
    "pgf": _pgf,
}
