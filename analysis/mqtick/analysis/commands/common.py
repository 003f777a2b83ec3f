"""What the commands share: numbers and limits on the command line, progress, results."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from mqtick.analysis.measurement import Measurement
from mqtick.analysis.results.analyse import analyse
from mqtick.analysis.results.compare import RatioLimit
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.limit import Limit
from mqtick.analysis.statistics.limits import LimitError, parse_limit

PROCESSES = min(os.cpu_count() or 1, 4)
"""Processes that read a run: more of them only wait for the disk."""
_PATIENCE_S = 1.0
_PERIOD_S = 0.1


class WrongUseError(ValueError):
    """The request cannot be met; the text says why, and what to ask for instead."""


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
