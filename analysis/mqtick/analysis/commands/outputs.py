"""What a user asks for besides the report: figures and tables for a paper, files for a pipeline."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mqtick.analysis.results.result import Result
from mqtick.recording.shot import replace_file

__all__ = ["PaperError", "add_paper_flags", "asks_for_files", "write_for_others"]

_INCHES: Final = {"mm": 1 / 25.4, "cm": 1 / 2.54, "in": 1.0, "pt": 1 / 72.27}
"""Of LaTeX's units; its pt is a little smaller than others'."""
_FORMATS: Final = ("pdf", "pgf", "svg", "png")
_TABLES: Final = ("latex", "csv", "md", "parquet")


class PaperError(ValueError):
    """What was asked for cannot be made of this measurement; the text says why."""


def add_paper_flags(parser: argparse.ArgumentParser) -> None:
    """Add what asks for figures, tables, and files for pipelines."""
    paper = parser.add_argument_group("for a paper, in the report's folder paper/")
    paper.add_argument(
        "--figure",
        type=_words,
        default=[],
        metavar="NAME,...",
        help="figures to draw: by their names in figures/, a part of these (skew), or all",
    )
    paper.add_argument(
        "--width",
        type=_width,
        default=_width("88mm"),
        metavar="LENGTH",
        help="width of the column, in mm, cm, in or LaTeX's pt (default 88mm)",
    )
    paper.add_argument(
        "--format",
        type=_one_of(_FORMATS),
        default=["pdf"],
        metavar="FORMAT,...",
        help=f"{', '.join(_FORMATS)} (default pdf)",
    )
    paper.add_argument(
        "--font",
        choices=("serif", "sans"),
        default="serif",
        help="like Times, or without serifs; in a PGF it is the document's own (default serif)",
    )
    paper.add_argument(
        "--palette",
        choices=("colour", "grey"),
        default="colour",
        help="colours that colour-blind people can tell apart, or greys (default colour)",
    )
    paper.add_argument(
        "--tables",
        type=_one_of(_TABLES),
        default=[],
        metavar="FORMAT,...",
        help="tables with captions as latex or md; csv, with all shots, is always in tables/, and "
        "there also as parquet",
    )
    pipeline = parser.add_argument_group("for a pipeline")
    pipeline.add_argument(
        "--junit", type=Path, metavar="FILE", help="write the verdicts as JUnit XML"
    )
    pipeline.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write a summary for a pull request"
    )
    pipeline.add_argument("--no-pdf", action="store_true", help="do not print the page as PDF")
    pipeline.add_argument(
        "--tables-only",
        action="store_true",
        help="write tables and report.json, but neither page nor figures, which takes less time",
    )


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME,NAME")
    return words


def _one_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    def words(text: str) -> list[str]:
        found = _words(text)
        for word in found:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
        return list(dict.fromkeys(found))

    return words


def _width(text: str) -> float:
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,6})?) ?(mm|cm|in|pt)", text)
    inches = float(found[1]) * _INCHES[found[2]] if found else 0.0
    if not 2.0 <= inches <= 20.0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a width from 51mm to 508mm, such as 88mm, 3.5in or 252pt"
        )
    return inches


def asks_for_files(args: argparse.Namespace) -> bool:
    """Return whether files for a paper or a pipeline are asked for, maybe by a script."""
    asked = (args.figure, args.tables, args.junit, args.markdown, args.tables_only)
    return any(bool(each) for each in asked)


def write_for_others(args: argparse.Namespace, results: Sequence[Result], out: Path) -> list[Path]:
    """Write what was asked for besides the report; returns the files.

    PaperError where a figure does not exist, OSError where something cannot be written.
    """
    files: list[Path] = []
    if args.figure:
        files += _figures(args, results, out / "paper")
    if "parquet" in args.tables:
        files += _parquet(results, out / "tables")
    texts = _tables(args.tables, results)
    for name, text in texts.items():
        (out / "paper").mkdir(parents=True, exist_ok=True)
        files.append(out / "paper" / name)
        replace_file(files[-1], text.encode())
    if args.junit is not None:
        from mqtick.analysis.report.junit import junit_of  # noqa: PLC0415

        files.append(_put(args.junit, junit_of(results)))
    if args.markdown is not None:
        from mqtick.analysis.report.markdown import markdown_of  # noqa: PLC0415

        files.append(_put(args.markdown, markdown_of(results).encode()))
    return files


def _put(path: Path, octets: bytes) -> Path:
    try:
        replace_file(path, octets)
    except (OSError, ValueError) as error:  # a folder, or no name at all
        why = getattr(error, "strerror", None) or error
        raise PaperError(f"{path} cannot be written ({why}); name another.") from error
    return path


def _figures(args: argparse.Namespace, results: Sequence[Result], out: Path) -> list[Path]:
    # matplotlib takes a second to import
    from mqtick.analysis.report.paper import Paper, UnknownFigureError, write_paper  # noqa: PLC0415

    paper = Paper(args.figure, args.width, args.format, args.font, args.palette == "grey")
    try:
        return write_paper(results, out, paper)
    except UnknownFigureError as error:
        raise PaperError(str(error)) from error


def _parquet(results: Sequence[Result], out: Path) -> list[Path]:
    """Write the tables that CSV has, too; PaperError without pyarrow."""
    from mqtick.analysis.report.tables import tables_of  # noqa: PLC0415

    try:
        from mqtick.analysis.report.parquet import parquet_of  # noqa: PLC0415
    except ImportError:
        raise PaperError(
            "--tables parquet needs pyarrow: pip install 'mqtick[parquet]'. CSV needs nothing."
        ) from None
    out.mkdir(parents=True, exist_ok=True)
    files = []
    for name, text in tables_of(results).items():
        files.append(out / name.replace(".csv", ".parquet"))
        replace_file(files[-1], parquet_of(text))
    return files


def _tables(formats: Sequence[str], results: Sequence[Result]) -> dict[str, str]:
    if not {"latex", "md"} & set(formats):
        return {}
    from mqtick.analysis.report.latex import table_of  # noqa: PLC0415
    from mqtick.analysis.report.markdown import markdown_table  # noqa: PLC0415
    from mqtick.analysis.report.paper_tables import paper_tables  # noqa: PLC0415

    texts = {}
    for name, table in paper_tables(results).items():
        if "latex" in formats:
            texts[f"{name}.tex"] = table_of(table, name)
        if "md" in formats:
            texts[f"{name}.md"] = markdown_table(table)
    return texts
