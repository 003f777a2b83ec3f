"""What a paper takes: figures at the width of its column, their captions, and tables for LaTeX."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from mqtick.analysis.report import style
from mqtick.analysis.report.figures import Picture, pictures_of
from mqtick.analysis.report.page import part
from mqtick.analysis.report.statistics_tables import short_tables
from mqtick.analysis.report.writers import latex_table, tex
from mqtick.analysis.results.result import Result
from mqtick.recording.shot import replace_file

_ALL: Final = "all"
_PT: Final = 72.27
"""Of LaTeX, in an inch."""
_FORMATS: Final[dict[str, dict[str, Any]]] = {
    "pdf": {"Creator": "mqtick-report", "Producer": None, "CreationDate": None},
    "svg": {"Creator": "mqtick-report", "Date": None},
}
"""Without a date, and without the version of what drew it: the same input, the same file."""


class UnknownFigureError(ValueError):
    """There is no such figure; the text says which ones there are."""


def write_paper(
    results: Sequence[Result], out: Path, names: Sequence[str], width: float, font: str = "serif"
) -> list[Path]:
    """Write figures as PDF and SVG, `figures.tex` with their captions, tables, references.bib.

    `names` are those of figures, parts of these, or "all"; `width` is the column's, in inches;
    `font` is "serif" or "sans". Returns the files.

    Raises:
        UnknownFigureError: a name that no figure has.
        OSError: when something cannot be written.
    """
    chosen = _chosen(pictures_of(results), names)
    out.mkdir(parents=True, exist_ok=True)
    files: dict[Path, bytes] = {}
    for picture in chosen:
        with style.for_paper(font):
            figure = picture.draw(width)
            for ending in _FORMATS:
                files[out / f"{picture.name}.{ending}"] = _saved(figure, ending)
    floats = [_float(picture) for picture in chosen]
    files[out / "figures.tex"] = "\n".join(floats).encode()
    files[out / "references.bib"] = part("references.bib").encode()
    for name, table in short_tables(results).items():
        files[out / f"{name}.tex"] = latex_table(table, name, width * _PT).encode()
    for path, octets in files.items():
        replace_file(path, octets)
    return list(files)


def _float(picture: Picture) -> str:
    """Return a figure as a float with its caption, to be found beside its files."""
    return (
        f"\\begin{{figure}}\n  \\centering\n  \\includegraphics{{{picture.name}}}\n"
        f"  \\caption{{{tex(f'{picture.title}. {picture.caption}')}}}\n"
        f"  \\label{{fig:{picture.name}}}\n\\end{{figure}}\n"
    )


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


def _saved(figure: Figure, ending: str) -> bytes:
    buffer = io.BytesIO()
    mpl.rcParams["svg.hashsalt"] = "mqtick"
    figure.savefig(buffer, format=ending, facecolor="none", metadata=_FORMATS[ending])
    return buffer.getvalue()
