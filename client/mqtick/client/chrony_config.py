"""`mqtick-client chrony-config`: the lines that chronyd needs, right for its version."""

from __future__ import annotations

import argparse

from mqtick.client.chrony_lines import refclock_lines
from mqtick.service import ChronydError, ChronyVersion, chronyd
from mqtick.service.commandline import Exit, fail

__all__ = ["POLL", "add_flags", "print_lines"]

POLL = 4
"""log2 of the seconds of chronyd's poll in the lines that are printed."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "--servers", default="0", metavar="N[,N...]", help="numbers of the time servers (default 0)"
    )
    parser.add_argument(
        "--delay-us",
        type=float,
        default=2000.0,
        metavar="US",
        help="round trip through the broker; chronyd takes half of it as the greatest error "
        "(default 2000)",
    )
    parser.add_argument(
        "--poll",
        type=int,
        default=POLL,
        help=f"log2 of chronyd's update interval in s (default {POLL})",
    )
    parser.add_argument(
        "--stratum", type=int, default=1, help="stratum of the time servers (default 1)"
    )
    parser.add_argument("--chrony-version", default="", help="for another host's chronyd, as 4.3")
    parser.add_argument("--run-folder", default="/run", help=argparse.SUPPRESS)


def print_lines(args: argparse.Namespace) -> int:
    """Print the lines; exit code 2 for values that chronyd would not read."""
    try:
        if args.chrony_version:
            major, _, minor = args.chrony_version.partition(".")
            version = ChronyVersion(int(major), int(minor or 0))
        else:
            version = chronyd.version()
        lines = refclock_lines(
            version,
            [int(number) for number in args.servers.split(",")],
            delay_ns=round(args.delay_us * 1000),
            poll=args.poll,
            stratum=args.stratum,
            run_folder=args.run_folder,
        )
    except ChronydError as error:
        return fail(f"{error}; or name a version with --chrony-version")
    except ValueError as error:
        return fail(str(error), Exit.WRONG_USE)
    print(f"# chrony {version}: samples of mqtick-client, a reference clock a time server")
    print("\n".join(lines))
    return Exit.GOOD
