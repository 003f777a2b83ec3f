"""What both commands share: flags, limits, progress, exit codes."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mqtick.analysis.commands.outputs import PaperError, add_paper_flags, write_for_others
from mqtick.analysis.measurement import Measurement
from mqtick.analysis.results.analyse import analyse
from mqtick.analysis.results.compare import RatioLimit
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.limit import HOLDS, Limit
from mqtick.analysis.statistics.limits import LimitError, parse_limit
from mqtick.service.commandline import Exit, fail

__all__ = [
    "PROCESSES",
    "WrongUseError",
    "add_output_flags",
    "add_units_flag",
    "finish",
    "limits_of",
    "number_in",
    "ratio_of",
    "results_of",
    "units_in",
    "watch",
]

PROCESSES = min(os.cpu_count() or 1, 4)
"""Processes that read a run: more of them only wait for the disk."""
_PATIENCE_S = 1.0
_PERIOD_S = 0.1
_WRONG = Exit.WRONG_USE


class WrongUseError(ValueError):
    """The request cannot be met; the text says why, and what to ask for instead."""


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add what says which limits count, and where the report goes."""
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the report is written")
    parser.add_argument(
        "--limit",
        action="append",
        metavar="LIMIT",
        help="limit that decides the exit code, instead of the usual ones; may be repeated: a name "
        "(c37.118-60) or QUANTITY.STATISTIC<VALUE (skew.p99<100us)",
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
    add_paper_flags(parser)


def add_units_flag(parser: argparse.ArgumentParser) -> None:
    """Add what says the units of two columns of text."""
    parser.add_argument(
        "--units",
        default="",
        metavar="TIME,OFFSET",
        help="units of two columns of text without a line of names, when and how far a clock was "
        "off: s,ns (or s,-ns where the offsets are local minus reference); with --tau, of the "
        "offsets alone",
    )
    parser.add_argument(
        "--tau",
        default="",
        metavar="TIME",
        help="time from row to row of a file that has one column, the offsets, in s or as --units "
        "says: 1s",
    )


def units_in(args: argparse.Namespace) -> str:
    """Return --units, of one column with --tau in front, as `units_of` takes it."""
    units = str(args.units)
    return f"{args.tau}:{units or 's'}" if args.tau else units


def _confidence(text: str) -> float:
    wrong = "is not between 0.5 and 0.9999; 0.95 is usual"
    return number_in(text, lambda share: 0.5 <= share <= 0.9999, wrong)


def number_in(text: str, allowed: Callable[[float], bool], wrong: str) -> float:
    """Return the number that `text` is; ArgumentTypeError, which says `wrong`, if it is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not allowed(value):
        raise argparse.ArgumentTypeError(f"{text!r} {wrong}")
    return value


_RATIO: Final = re.compile(
    r"(latency|skew)\.(mean|median|p95|growth)<(\d{1,6}(?:\.\d{1,6})?)x", re.ASCII
)


def ratio_of(text: str) -> RatioLimit | None:
    """Return a limit of a ratio to the first measurement, `latency.mean<0.8x`; None if none."""
    found = _RATIO.fullmatch(text.strip())
    return RatioLimit(text.strip(), found[1], found[2], float(found[3])) if found else None


def limits_of(args: argparse.Namespace, *, ratios: bool = False) -> list[Limit] | None:
    """Return the limits that count, None for the usual ones of what was measured.

    With `ratios`, those of ratios are left to `ratio_of`.
    """
    if args.no_limits:
        if args.limit:
            raise WrongUseError("--limit and --no-limits contradict each other; leave one out.")
        return []
    if args.limit is None:
        return None
    try:
        texts = [text for text in args.limit if not (ratios and ratio_of(text))]
        return [limit for text in texts for limit in parse_limit(text)]
    except LimitError as error:
        raise WrongUseError(str(error)) from error


def watch(args: argparse.Namespace, what: str = "") -> Callable[[float, int], None] | None:
    """Return what shows how much of `what` was read on a terminal, None if there is none.

    From the first second on; part of a file is a number of files that is not whole.
    """
    if args.quiet or not sys.stderr.isatty():
        return None
    next_s = time.monotonic() + _PATIENCE_S
    shown = False

    def show(done: float, total: int) -> None:
        nonlocal next_s, shown
        now = time.monotonic()
        if now < next_s if done < total else not shown:
            return
        next_s, shown = now + _PERIOD_S, True
        bar = "#" * int(30 * done / max(total, 1))
        count = f"{done:,} of {total:,}" if isinstance(done, int) else f"{done / total:.0%}"
        line = f"{bar:<30} {count} {what}" if done < total else ""
        print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)

    return show


def results_of(
    measurements: Sequence[Measurement], limits: list[Limit] | None, confidence: float
) -> list[Result]:
    """Work out the numbers; WrongUseError if nothing was measured."""
    for measurement in measurements:
        if not measurement.shots and not measurement.time_errors:
            damaged = f" {measurement.damaged[0]}" if measurement.damaged else ""
            raise WrongUseError(f"{measurement.title}: it contains no shot.{damaged}")
    return [analyse(measurement, limits, confidence) for measurement in measurements]


def finish(args: argparse.Namespace, results: Sequence[Result], out: Path, command: str) -> int:
    """Write the report, print the result, and return the exit code."""
    from mqtick.analysis.report.as_json import as_json  # noqa: PLC0415
    from mqtick.analysis.report.as_text import as_text  # noqa: PLC0415

    if args.tables_only and args.figure:
        return fail("--tables-only and --figure contradict each other; leave one out.", _WRONG)
    try:
        # first, because it refuses what was asked for wrongly
        files = write_for_others(args, results, out)
        where, without = _written(args, results, out, command)
    except PaperError as error:
        return fail(str(error), _WRONG)
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
        print(f"\nreport: {where}")
        for path in files:
            print(f"wrote {path}")
        if without:
            print(without)
    states = [verdict.state for result in results for verdict in result.verdicts]
    states += [each.state for result in results for each in result.compared if each.limit]
    proven = all(state == HOLDS for state in states)
    return Exit.GOOD if proven else Exit.LIMIT_NOT_MET


def _written(
    args: argparse.Namespace, results: Sequence[Result], out: Path, command: str
) -> tuple[Path, str]:
    """Write the report, or its tables alone; returns where it is, and why there is no PDF."""
    if args.tables_only:
        from mqtick.analysis.report.write_tables import write_tables  # noqa: PLC0415

        return write_tables(results, out)[-1], ""
    # matplotlib takes a second to import: do not make people wait for it to see a usage error
    from mqtick.analysis.report.write import write_report  # noqa: PLC0415

    written = write_report(results, out, command, pdf=not args.no_pdf)
    return written.html, written.without
