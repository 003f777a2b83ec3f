"""mqtick-report limit: how much a broker carries, as a page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mqtick.analysis.broker_limit import load_limit
from mqtick.service.commandline import Exit, fail


def add(commands: Any) -> None:
    """Add the parser of `limit`."""
    parser = commands.add_parser(
        "limit",
        help="make a page of what mqtick-load limit --json printed",
        description="Make a page of the limit of a broker: the search for it, latency and skew at "
        "and below it, all figures.",
        epilog="examples:\n  mqtick-load limit mqtt://broker.lan --json >limit.json\n"
        "  mqtick-report limit limit.json\n\nexit codes: 0 good, 1 it failed, 2 wrong use",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, metavar="FILE", help="what mqtick-load printed")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default: FILE with .html at its end)"
    )
    parser.set_defaults(call=_call)


def _call(args: argparse.Namespace) -> int:
    found = load_limit(args.path)
    from mqtick.analysis.report.broker_limit_page import limit_page  # noqa: PLC0415 - as finish
    from mqtick.analysis.report.figures.broker_limit import limit_pictures  # noqa: PLC0415
    from mqtick.analysis.report.page import drawn_of  # noqa: PLC0415
    from mqtick.recording.shot import replace_file  # noqa: PLC0415

    out = args.out or args.path.with_suffix(".html")
    try:
        pictures = [drawn_of(each, place)[0] for place, each in enumerate(limit_pictures(found))]
        replace_file(out, limit_page(found, pictures).encode())
    except OSError as error:
        return fail(f"{out} cannot be written ({error.strerror or error}); name another by --out.")
    print(f"page: {out}")
    return Exit.GOOD
