"""`mqtick-client chrony-config`: the lines that chronyd needs, right for its version."""

from __future__ import annotations

import argparse
import re

from mqtick.client.chrony_lines import POLL, refclock_lines
from mqtick.service import ChronydError, ChronyVersion, chronyd
from mqtick.service.commandline import Exit, fail

__all__ = ["add_flags", "print_lines"]


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
    parser.add_argument("--chrony-version", default="", help="another host's, for example 4.3")
    parser.add_argument("--run-folder", default="/run", help=argparse.SUPPRESS)


def print_lines(args: argparse.Namespace) -> int:
    """Print the lines; exit code 2 for values that chronyd would not accept."""
    try:
        version = _version(args.chrony_version) if args.chrony_version else chronyd.version()
        lines = refclock_lines(
            version,
            _numbers(args.servers),
            delay_ns=round(args.delay_us * 1000),
            poll=args.poll,
            stratum=args.stratum,
            run_folder=args.run_folder,
        )
    except ChronydError as error:
        return fail(f"{error}; or name a version with --chrony-version")
    except ValueError as error:
        return fail(str(error), Exit.WRONG_USE)
    print(f"# chrony {version}: samples of mqtick-client, one reference clock per time server")
    print("\n".join(lines))
    return Exit.GOOD


def _version(text: str) -> ChronyVersion:
    parts = re.fullmatch(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?", text, re.ASCII)
    if parts is None:
        raise ValueError(f"{text!r} is not a version of chrony: write it as 4.3 or 4.6.1")
    return ChronyVersion(*(int(part or 0) for part in parts.groups()))


def _numbers(text: str) -> list[int]:
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text, re.ASCII):
        raise ValueError(f"{text!r} names no servers: write their numbers as 0 or 0,1")
    return [int(number) for number in text.split(",")]
