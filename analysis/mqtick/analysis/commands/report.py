"""mqtick-report report: a run folder, captures or a sample log become a report."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from mqtick.analysis.captures.from_captures import ListingError
from mqtick.analysis.commands.capture_flags import (
    add_capture_flags,
    capture_options,
    positive,
)
from mqtick.analysis.commands.common import (
    PROCESSES,
    WrongUseError,
    add_units_flag,
    limits_of,
    number_in,
    results_of,
    units_in,
    watch,
)
from mqtick.analysis.commands.outputs import add_output_flags, asks_for_files, finish
from mqtick.analysis.load import load, run_folder_of
from mqtick.analysis.readers.registry import FORMATS
from mqtick.recording.edge_overrides import forget, keep
from mqtick.recording.waveform import femtoseconds
from mqtick.service.commandline import Exit, fail

_EPILOG = """\
examples:
  mqtick-report runs/today
  mqtick-report scope/*.csv --channels publisher=1,first=2,last=3
  mqtick-report scope/*.csv --channels publisher=1,first=2 --limit 'latency.p95<500us'
  mqtick-report pps.sr --kind clock --channels reference=D0,pi4=D1,pi5=D2
  mqtick-report samples.jsonl
  mqtick-report /var/log/chrony/tracking.log
  mqtick-report phase.txt --units s,ns
  mqtick-report phase.dat --tau 1s
  mqtick-report runs/today --figure skew --width 88mm
  mqtick-report runs/today --tables-only --junit skew.xml --markdown skew.md

Without --channels nothing is written: the channels of the files and the command to run are shown.
The exit code is then 0, or 2 if --limit, --json, --out or files for a paper or a pipeline ask for a
report.

Logs of clocks: a client's sample log, chrony's tracking.log, measurements.log, statistics.log and
refclocks.log, ntpd's loopstats and peerstats, ppstest, lines of ptp4l, phc2sys and ts2phc, TICC,
TimeLab, two columns of text (`time [s],offset [ns]`; without such a line of names: --units s,ns),
one column (--tau 1s).

files that are recognised by their content (untested: no file from such an instrument was
available): {formats}

exit codes: 0 every limit holds, 1 it failed, 2 wrong use, 4 a limit is not met or not proven"""


def add(commands: Any) -> None:
    """Add the parser of `report`."""
    parser = commands.add_parser(
        "report",
        help="make a report of a run folder, of captures, or of logs (may be left out)",
        description="Make a report of a run folder, of captures of an oscilloscope or logic "
        "analyser, or of logs of clocks.",
        epilog=_EPILOG.format(formats="\n".join(f"  {line}" for line in _formats())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="folder or files")
    add_capture_flags(parser)
    parser.add_argument(
        "--subscribers",
        action="append",
        type=_subscribers,
        default=[],
        metavar="[PATTERN=]N",
        help="how many subscribed, of all files or of those whose name matches: '*n100*=100'",
    )
    parser.add_argument(
        "--timebase-ppm",
        type=positive,
        default=25.0,
        metavar="PPM",
        help="how far the instrument's time base may be off (default 25)",
    )
    parser.add_argument(
        "--deskew-uncertainty",
        type=_nanoseconds,
        default=0,
        metavar="NS",
        help="by how much two channels may still differ after deskew, in ns (default 0)",
    )
    add_units_flag(parser)
    parser.add_argument(
        "--automatic",
        action="store_true",
        help="forget the --threshold, --from and so on that the run folder keeps",
    )
    parser.add_argument("--title", default="", help="title of the report")
    add_output_flags(parser)
    parser.set_defaults(call=_call)


_EXTRAS = {"RigolWFM": "mqtick[captures]"}


def _formats() -> list[str]:
    return [
        each.name
        + ("" if each.tested else " (untested)")
        + (f" (needs {each.needs}: pip install '{_EXTRAS[each.needs]}')" if each.needs else "")
        for each in FORMATS
    ]


def _subscribers(text: str) -> tuple[str, int]:
    pattern, _, number = text.rpartition("=")
    if not number.isdecimal() or not 0 < int(number) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not N or PATTERN=N, such as '*n100*=100'")
    return pattern or "*", int(number)


def _nanoseconds(text: str) -> int:
    ns = number_in(text, lambda value: 0 <= value < 1e9, "is not a number of ns from 0 to 1e9")
    return femtoseconds(ns * 1e-9)


def command_line() -> str:
    """Return the command as it was given, for the report."""
    return shlex.join(["mqtick-report", *sys.argv[1:]])


def _out(args: argparse.Namespace) -> Path:
    first: Path = args.paths[0]
    if args.out is not None:
        return Path(args.out)
    return first / "report" if first.is_dir() else Path(f"report-{first.stem}")


def _call(args: argparse.Namespace) -> int:
    try:
        limits = limits_of(args)
        options = replace(
            capture_options(args),
            subscribers=args.subscribers,
            timebase_ppm=args.timebase_ppm,
            title=args.title,
            channel_uncertainty_fs=args.deskew_uncertainty,
            units=units_in(args),
        )
        run = run_folder_of(args.paths)
        if args.automatic and run is not None:
            forget(run)
        measurement = load(*args.paths, options=options, progress=watch(args), processes=PROCESSES)
        results = results_of([measurement], limits, args.confidence)
        if options.edge_overrides and run is not None:
            keep(run, options.edge_overrides)
    except ListingError as error:
        if args.limit or args.json or args.out or asks_for_files(args):
            raise  # a report was asked for, maybe by a script: it must not mistake this for one
        files = " ".join(shlex.quote(str(path)) for path in args.paths)
        print(f"{error.look.text}\n\nTo see it drawn: mqtick-report look {files}")
        return Exit.GOOD
    except WrongUseError as error:
        return fail(str(error), Exit.WRONG_USE)
    except OSError as error:
        return fail(
            f"the run folder cannot keep --threshold, --from and so on ({error}); make it "
            "writable, or copy it"
        )
    return finish(args, results, _out(args), command_line())
