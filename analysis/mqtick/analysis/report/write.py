"""Write a report: figures, tables, JSON, page and PDF, each whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from mqtick.analysis.report.figures import pictures_of
from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.page import Drawn, page_of
from mqtick.analysis.report.pdf import print_page
from mqtick.analysis.report.svg import png_of, svg_file, svg_of
from mqtick.analysis.report.write_tables import earlier_files, write_tables
from mqtick.analysis.results.result import Result
from mqtick.recording.shot import replace_file

__all__ = ["Written", "drawn_of", "write_report"]

_WIDE: Final = 7.0
"""Inches: A4 without its margins."""
_PHONE: Final = 3.7


@dataclass(frozen=True, slots=True)
class Written:
    """What was written.

    Attributes:
        html: the page.
        folder: where it lies.
        files: every file in it, the page and the PDF too.
        without: why there is no PDF, in a sentence; "" where there is one, or none was wanted.
    """

    html: Path
    folder: Path
    files: tuple[Path, ...]
    without: str


def drawn_of(picture: Picture, place: int) -> tuple[Drawn, Figure]:
    """Draw the picture at a place of a page; returns it, and the wide one as a figure."""
    wide = picture.draw(_WIDE)
    phone = svg_of(picture.draw(_PHONE), picture.alt, f"p{place}")
    shown = svg_of(wide, picture.alt, f"w{place}")
    return Drawn(picture.title, picture.caption, shown, phone), wide


def write_report(
    results: Sequence[Result], out: Path, command: str = "", *, pdf: bool = True
) -> Written:
    """Write the report of one result, or of several side by side, into the folder `out`.

    The folder is made where it is missing; a report that lies there is replaced, nothing else is
    touched. The same results make the same octets, but for the PDF, in which the browser that
    prints it says when. Without a browser there is no PDF, nor if it is not wanted. `command` is
    shown as what made the report.

    Raises:
        OSError: when something cannot be written. What was written before is whole; the page
            comes after all but the PDF, so a folder in which it is new has everything else.
        ValueError: without a result.
    """
    if not results:
        raise ValueError("A report needs at least one result.")
    figures = out / "figures"
    for folder in (figures, out / "tables"):
        folder.mkdir(parents=True, exist_ok=True)
    earlier = earlier_files(out)
    files: list[Path] = []
    drawn: list[Drawn] = []
    for place, picture in enumerate(pictures_of(results)):
        shown, wide = drawn_of(picture, place)
        for ending, octets in (("svg", svg_file(shown.wide).encode()), ("png", png_of(wide))):
            files.append(figures / f"{picture.name}.{ending}")
            replace_file(files[-1], octets)
        drawn.append(shown)
    files += write_tables(results, out, files)
    files.append(out / "report.html")
    replace_file(files[-1], page_of(results, drawn, command).encode())
    for path in earlier - set(files):
        path.unlink(missing_ok=True)
    html, printed = files[-1], out / "report.pdf"
    if not pdf:
        printed.unlink(missing_ok=True)  # it would show another report
        return Written(html, out, tuple(files), "")
    without = print_page(html, printed)
    return Written(html, out, (*files, *([] if without else [printed])), without)
