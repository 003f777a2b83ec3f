"""What a user asks for: limits, the report, figures for a paper, files for a pipeline."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mqtick.analysis.commands.common import WrongUseError, number_in
from mqtick.analysis.report.as_json import as_json
from mqtick.analysis.report.as_text import as_text
from mqtick.analysis.report.pipeline import junit_of, markdown_of
from mqtick.analysis.report.write import write_report, write_tables
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.limit import HOLDS
from mqtick.recording.shot import replace_file
from mqtick.service.commandline import Exit, fail

_INCHES: Final = {"mm": 1 / 25.4, "cm": 1 / 2.54, "in": 1.0, "pt": 1 / 72.27}
"""Of LaTeX's units; its pt is a little smaller than others'."""


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add what says which limits count, what is written, and where."""
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the report is written")
    parser.add_argument(
        "--limit",
        action="append",
        metavar="LIMIT",
        help="limit that decides the exit code, instead of the usual ones: a name (c37.118-60) or "
        "QUANTITY.STATISTIC<VALUE (skew.p99<100us); may be repeated",
    )
    parser.add_argument("--no-limits", action="store_true", help="judge nothing; exit code 0")
    parser.add_argument(
        "--confidence",
        type=_confidence,
        default=0.95,
        metavar="SHARE",
        help="of intervals and verdicts (default 0.95)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    paper = parser.add_argument_group(
        "for a paper, in the report's folder paper/, and no page",
        "figures as PDF and SVG with their captions, tables for LaTeX, and references",
    )
    paper.add_argument(
        "--figure",
        type=_words,
        default=[],
        metavar="NAME,...",
        help="figures to draw, by their names in figures/ or parts of them (skew), or all",
    )
    paper.add_argument(
        "--width",
        type=_width,
        default=_width("88mm"),
        metavar="LENGTH",
        help="width of the column, in mm, cm, in or LaTeX's pt (default 88mm)",
    )
    paper.add_argument(
        "--font",
        choices=("serif", "sans"),
        default="serif",
        help="letters like Times, or without serifs (default serif)",
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


def _confidence(text: str) -> float:
    wrong = "is not between 0.5 and 0.9999; 0.95 is usual"
    return number_in(text, lambda share: 0.5 <= share <= 0.9999, wrong)


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME,NAME")
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
    asked = (args.figure, args.junit, args.markdown, args.tables_only)
    return any(bool(each) for each in asked)


def finish(args: argparse.Namespace, results: Sequence[Result], out: Path, command: str) -> int:
    """Write the report, print the result, and return the exit code."""
    try:
        files = _write_for_others(args, results, out)  # first: it may refuse what was asked for
        where, without = out / "paper", ""
        if args.tables_only:
            where = write_tables(results, out)[-1]
        elif not args.figure:
            written = write_report(results, out, command, pdf=not args.no_pdf)
            where, without = written.html, written.without
    except WrongUseError as error:
        return fail(str(error), Exit.WRONG_USE)
    except OSError as error:
        return fail(
            f"the report cannot be written to {error.filename or out} ({error.strerror or error}); "
            "name another folder with --out FOLDER"
        )
    if args.json:
        # a program wants to know where the page is, too
        print(json.dumps({**as_json(results), "report": str(where)}, indent=1))
    elif not args.quiet:
        print(as_text(results))
        print(f"\n{'paper' if args.figure else 'report'}: {where}")
        for path in files:
            print(f"wrote {path}")
        if without:
            print(without)
    states = [verdict.state for result in results for verdict in result.verdicts]
    states += [each.state for result in results for each in result.compared if each.limit]
    proven = all(state == HOLDS for state in states)
    return Exit.GOOD if proven else Exit.LIMIT_NOT_MET


def _write_for_others(args: argparse.Namespace, results: Sequence[Result], out: Path) -> list[Path]:
    """Write what was asked for besides the report; returns the files.

    WrongUseError where a figure does not exist, OSError where something cannot be written.
    """
    files: list[Path] = []
    if args.figure:
        # Matplotlib takes a second to import.
        from mqtick.analysis.report.paper import UnknownFigureError, write_paper  # noqa: PLC0415

        try:
            files += write_paper(results, out / "paper", args.figure, args.width, args.font)
        except UnknownFigureError as error:
            raise WrongUseError(str(error)) from error
    if args.junit is not None:
        files.append(_put(args.junit, junit_of(results)))
    if args.markdown is not None:
        files.append(_put(args.markdown, markdown_of(results).encode()))
    return files


def _put(path: Path, octets: bytes) -> Path:
    try:
        replace_file(path, octets)
    except (OSError, ValueError) as error:  # a folder, or no name at all
        why = getattr(error, "strerror", None) or error
        raise WrongUseError(f"{path} cannot be written ({why}); name another.") from error
    return path
