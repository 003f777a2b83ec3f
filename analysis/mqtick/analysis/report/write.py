"""Write a report: page, PDF, figures, tables and JSON, each whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtick.analysis.report.as_json import FORMAT, as_json
from mqtick.analysis.report.figures import pictures_of
from mqtick.analysis.report.page import Drawn, page_of
from mqtick.analysis.report.paper import ROOM
from mqtick.analysis.report.pdf import PrintedPicture, pdf_of
from mqtick.analysis.report.svg import png_of, svg_file, svg_of
from mqtick.analysis.report.tables import tables_of
from mqtick.analysis.results.result import Result
from mqtick.analysis.runs.shot import replace_file

__all__ = ["Written", "write_report"]

_FOLDERS: Final = ("figures", "tables")
_ENDINGS: Final = (".svg", ".png", ".csv")
_PHONE: Final = 3.7
"""Inches; a wide page shows what is printed, so that it is drawn once."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: the page, the PDF, the folder, and every file in it, these too."""

    html: Path
    pdf: Path
    folder: Path
    files: tuple[Path, ...]


def write_report(results: Sequence[Result], out: Path, command: str = "") -> Written:
    """Write the report of one result, or of several side by side, into the folder `out`.

    The folder is made where it is missing; a report that lies there is replaced, nothing else is
    touched. The same results make the same octets. `command` is shown as what made the report.

    Raises:
        OSError: when something cannot be written. What was written before is whole; the page
            comes last, so a folder in which it is new has everything.
        ValueError: without a result.
    """
    if not results:
        raise ValueError("A report needs at least one result.")
    for name in _FOLDERS:
        (out / name).mkdir(parents=True, exist_ok=True)
    figures, tables = out / "figures", out / "tables"
    earlier = _earlier(out)
    files: list[Path] = []
    drawn: list[Drawn] = []
    printed: list[PrintedPicture] = []
    for place, picture in enumerate(pictures_of(results)):
        wide = picture.draw(ROOM)
        shown = svg_of(wide, picture.alt, f"w{place}")
        for ending, octets in (("svg", svg_file(shown).encode()), ("png", png_of(wide))):
            files.append(figures / f"{picture.name}.{ending}")
            replace_file(files[-1], octets)
        phone = svg_of(picture.draw(_PHONE), picture.alt, f"p{place}")
        drawn.append(Drawn(picture.title, picture.caption, shown, phone))
        printed.append((picture.title, picture.caption, wide))
    for name, text in tables_of(results).items():
        files.append(tables / name)
        replace_file(files[-1], text.encode())
    files.append(out / "report.json")
    structure = {**as_json(results), "files": [f"{p.parent.name}/{p.name}" for p in files[:-1]]}
    said = json.dumps(structure, indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(files[-1], said.encode() + b"\n")
    pdf, html = out / "report.pdf", out / "report.html"
    replace_file(pdf, pdf_of(results, printed, command))
    replace_file(html, page_of(results, drawn, command).encode())
    for path in earlier - set(files):
        path.unlink(missing_ok=True)
    return Written(html, pdf, out, (*files, pdf, html))


def _earlier(out: Path) -> set[Path]:
    """Return the figures and tables of the report that lies there, as it names them itself."""
    try:
        known = json.loads((out / "report.json").read_bytes())
        names = known["files"] if known["format"] == FORMAT else []
        parts = [str(name).split("/") for name in names]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return set()
    own = [each for each in parts if len(each) == 2 and each[0] in _FOLDERS]
    return {out / folder / name for folder, name in own if Path(name).suffix in _ENDINGS}
