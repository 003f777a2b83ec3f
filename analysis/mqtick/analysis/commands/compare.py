"""mqtick-report compare: several runs, brokers above all, in one report."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from mqtick.analysis.commands.common import (
    PROCESSES,
    WrongUseError,
    add_units_flag,
    limits_of,
    ratio_of,
    results_of,
    units_in,
    watch,
)
from mqtick.analysis.commands.outputs import add_output_flags, finish
from mqtick.analysis.commands.report import command_line
from mqtick.analysis.load import load, needs_units
from mqtick.analysis.results.compare import compare
from mqtick.analysis.results.result import SIGNED_RANKS
from mqtick.service.commandline import Exit, fail

_EPILOG = """\
examples:
  mqtick-report compare runs/software runs/hardware
  mqtick-report compare runs/brokers/* --out comparison --limit skew.mean<52us
  mqtick-report compare runs/before runs/after --limit 'latency.mean<0.8x'
  mqtick-report compare runs/cable-a runs/cable-b --paired
  mqtick-report compare ntp/ mqtick/ --figure stability --width 88mm

exit codes: 0 every limit holds in every run, 1 it failed, 2 wrong use, 4 a limit is not met or
not proven"""


def add(commands: Any) -> None:
    """Add the parser of `compare`."""
    parser = commands.add_parser(
        "compare",
        help="overlay several runs",
        description="Overlay several runs, such as those of two brokers, in one report.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="two or more run folders, logs, or folders of logs",
    )
    parser.add_argument(
        "--paired",
        action="store_true",
        help="shots of the same N and number belong together, as those of one event do: their "
        "differences are tested (Wilcoxon), and what they have in common leaves the intervals",
    )
    add_units_flag(parser)
    add_output_flags(parser)
    parser.set_defaults(call=_call)


def _call(args: argparse.Namespace) -> int:
    try:
        if len(args.paths) < 2:
            raise WrongUseError(
                f"there is nothing to compare {args.paths[0]} with; name a second run, or leave "
                "`compare` out."
            )
        limits = limits_of(args, ratios=True)
        ratios = [found for text in args.limit or () if (found := ratio_of(text))]
        units = units_in(args)
        need = [bool(units) and needs_units(path, units) for path in args.paths]
        if units and not any(need):
            raise WrongUseError("none of these files needs --units or --tau; leave them out.")
        measurements = [
            load(
                path,
                units=units if needed else "",
                progress=watch(args, path.name),
                processes=PROCESSES,
            )
            for path, needed in zip(args.paths, need, strict=True)
        ]
        titles = [measurement.title for measurement in measurements]
        for path, measurement in zip(args.paths, measurements, strict=True):
            # Runs of one experiment have one title; their folders tell them apart.
            if titles.count(measurement.title) > 1 or not measurement.title:
                measurement.title = path.resolve().name
        first, *others = results_of(measurements, limits, args.confidence)
        compared = compare(first, others, ratios, paired=args.paired)
        results = [
            first,
            *(replace(each, compared=rows) for each, rows in zip(others, compared, strict=True)),
        ]
        if args.paired and not all(
            any(row.test == SIGNED_RANKS for row in rows) for rows in compared
        ):
            raise WrongUseError(
                "--paired needs at least 8 shots of one N and one number in every two runs; leave "
                "it out, then the runs count as independent."
            )
        judged = [(each.quantity, each.statistic) for each in ratios]
        if twice := [
            each.name for each in ratios if judged.count((each.quantity, each.statistic)) > 1
        ]:
            raise WrongUseError(f"{' and '.join(twice)} limit the same ratio; leave one of them.")
        held = {row.limit for each in results for row in each.compared}
        if missing := [each.name for each in ratios if each.name not in held]:
            raise WrongUseError(
                f"{missing[0]} cannot be judged: no two runs have it at the same N."
            )
    except WrongUseError as error:
        return fail(str(error), Exit.WRONG_USE)
    return finish(args, results, args.out or Path("comparison"), command_line())
