"""mqtick-report: the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mqtick.analysis.captures.naming import NamingError
from mqtick.analysis.commands import compare, limit, look, report
from mqtick.analysis.commands.quantities import joined
from mqtick.analysis.load import LoadError
from mqtick.recording.capture import CaptureError
from mqtick.recording.edge_overrides import EdgeOverridesError
from mqtick.recording.run_folder import RunFolderError
from mqtick.service.commandline import Exit, carry_out, make_parser

EXAMPLES = """\
  mqtick-report runs/today
  mqtick-report look scope.bin
  mqtick-report capture1.csv capture2.csv --channels publisher=1,first=2,last=3
  mqtick-report samples.jsonl --limit c37.118-50
  mqtick-report compare runs/software runs/hardware --out comparison
  mqtick-report limit limit.json
  mqtick-report --version

exit codes: 0 every limit holds, 1 it failed, 2 wrong use, 4 a limit is not met or not proven"""
_COMMANDS = ("report", "compare", "look", "limit")


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "mqtick-report", "Turn captures into a report on latency, skew and time error.", EXAMPLES
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    report.add(commands)
    compare.add(commands)
    look.add(commands)
    limit.add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = joined(list(sys.argv[1:] if arguments is None else arguments))
    # Paths alone are what people give it.
    if words and words[0] not in (*_COMMANDS, "-h", "--help", "--version"):
        words = ["report", *words]
    args = _parser().parse_args(words)
    return carry_out(
        lambda: args.call(args),
        {
            NamingError: Exit.WRONG_USE,
            LoadError: Exit.WRONG_USE,
            CaptureError: Exit.FAILED,
            RunFolderError: Exit.FAILED,
            EdgeOverridesError: Exit.FAILED,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
