"""Write what of a report is for programs: tables and report.json, without drawing anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mqtick.analysis.report.as_json import FORMAT, as_json
from mqtick.analysis.report.tables import tables_of
from mqtick.analysis.results.result import Result
from mqtick.recording.shot import replace_file

__all__ = ["earlier_files", "write_tables"]

_FOLDERS: Final = ("figures", "tables")
_ENDINGS: Final = (".svg", ".png", ".csv")
_PAGE: Final = ("report.html", "report.pdf")


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
    earlier = earlier_files(out) if figures is None else set()
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


def earlier_files(out: Path) -> set[Path]:
    """Return the figures and tables of the report that lies there, as it names them itself."""
    try:
        known = json.loads((out / "report.json").read_bytes())
        names = known["files"] if known["format"] == FORMAT else []
        parts = [str(name).split("/") for name in names]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return set()
    own = [each for each in parts if len(each) == 2 and each[0] in _FOLDERS]
    return {out / folder / name for folder, name in own if Path(name).suffix in _ENDINGS}
