"""Write a report: figures, tables, JSON, page and PDF, each whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtick.analysis.report.as_json import FORMAT, as_json
from mqtick.analysis.report.pdf import print_page
from mqtick.analysis.report.tables import tables_of
from mqtick.analysis.results.result import Result
from mqtick.recording.shot import replace_file

_FOLDERS: Final = ("figures", "tables")
_ENDINGS: Final = (".svg", ".png", ".csv")
_PAGE: Final = ("report.html", "report.pdf")


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
    # Matplotlib takes a second to import, which tables alone need not wait for.
    from mqtick.analysis.report.figures import pictures_of  # noqa: PLC0415
    from mqtick.analysis.report.page import Drawn, drawn_of, page_of  # noqa: PLC0415
    from mqtick.analysis.report.svg import png_of, svg_file  # noqa: PLC0415

    figures = out / "figures"
    for folder in (figures, out / "tables"):
        folder.mkdir(parents=True, exist_ok=True)
    earlier = _earlier_files(out)
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


def write_tables(
    results: Sequence[Result], out: Path, figures: Sequence[Path] | None = None
) -> list[Path]:
    """Write tables and report.json into the folder `out`; returns the files, report.json last.

    `figures` are those that belong to them. Without (None) nothing is drawn: page and figures of an
    earlier report are removed, because they would show another one.

    Raises:
        OSError: when something cannot be written.
    """
    (out / "tables").mkdir(parents=True, exist_ok=True)
    earlier = _earlier_files(out) if figures is None else set()
    files: list[Path] = []
    for name, text in tables_of(results).items():
        files.append(out / "tables" / name)
        replace_file(files[-1], text.encode())
    named = [f"{path.parent.name}/{path.name}" for path in (*(figures or ()), *files)]
    said = json.dumps(
        {**as_json(results), "files": named}, indent=1, ensure_ascii=False, allow_nan=False
    )
    files.append(out / "report.json")
    replace_file(files[-1], said.encode() + b"\n")
    if figures is None:
        for path in (earlier | {out / name for name in _PAGE if earlier}) - set(files):
            path.unlink(missing_ok=True)
    return files


def _earlier_files(out: Path) -> set[Path]:
    """Return the figures and tables of the report that lies there, as it names them itself."""
    try:
        known = json.loads((out / "report.json").read_bytes())
        names = known["files"] if known["format"] == FORMAT else []
        parts = [str(name).split("/") for name in names]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return set()
    own = [each for each in parts if len(each) == 2 and each[0] in _FOLDERS]
    return {out / folder / name for folder, name in own if Path(name).suffix in _ENDINGS}
