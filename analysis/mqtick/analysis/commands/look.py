"""mqtick-report look: what is in files, as a picture, a page and the command to go on with."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from mqtick.analysis.captures.look import Look, look_at
from mqtick.analysis.captures.naming import UnknownChannelError
from mqtick.analysis.commands.capture_flags import add_capture_flags, capture_options
from mqtick.analysis.commands.common import WrongUseError
from mqtick.analysis.load import files_in, refuse_for_run, run_folder_of
from mqtick.analysis.look_at_run import look_at_run
from mqtick.recording.edge_overrides import EdgeOverridesError
from mqtick.service.commandline import Exit, fail

_EPILOG = """\
examples:
  mqtick-report look scope.bin
  mqtick-report look scope.bin --threshold 1.65V --from 0 --to 5ms
  mqtick-report look scope.bin --channels publisher=1,first=2 --every-event
  mqtick-report look scope/*.csv --capture 3
  mqtick-report look runs/today --capture 12 --threshold first=1.2V

exit codes: 0 good, 1 nothing can be read, 2 wrong use"""


def add(commands: Any) -> None:
    """Add the parser of `look`."""
    parser = commands.add_parser(
        "look",
        help="draw what is in captures, with the edges that a report would use",
        description="Draw each channel of a capture with its levels and edges, as PNG and as a "
        "page to zoom in; the marked edges are those that a report would use.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="FILE", help="files, a folder of them, or a run"
    )
    parser.add_argument(
        "--capture",
        type=_number,
        default=1,
        metavar="N",
        help="which capture is drawn, counted over all files and segments; of a run: which shot "
        "(default 1)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path(), metavar="FOLDER", help="where the two files are written"
    )
    add_capture_flags(parser)
    parser.set_defaults(call=_call)


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a capture, from 1")
    return int(text)


def _call(args: argparse.Namespace) -> int:
    try:
        options = capture_options(args)
        if (run := run_folder_of(args.paths)) is not None:
            refuse_for_run(run, options)
            found = look_at_run(run, options, args.capture)
        else:
            found = look_at(files_in(args.paths), options, args.capture)
    except (WrongUseError, UnknownChannelError, EdgeOverridesError) as error:
        said = str(error)
        return fail(said[0].upper() + said[1:], Exit.WRONG_USE)
    return _draw(found, args.out)


def _draw(look: Look, folder: Path) -> int:
    """Draw a look, say what it shows, and return the exit code."""
    from mqtick.analysis.report.look_page import look_page  # noqa: PLC0415 - as common.finish
    from mqtick.analysis.report.look_picture import RESOLUTION, draw_look  # noqa: PLC0415
    from mqtick.analysis.report.svg import png_of  # noqa: PLC0415
    from mqtick.recording.shot import replace_file  # noqa: PLC0415

    stem = re.sub(r"[^\w.+-]+", "-", look.path.stem)[:80] or "capture"
    picture, page = folder / f"look-{stem}.png", folder / f"look-{stem}.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        octets = png_of(draw_look(look), RESOLUTION)
        replace_file(picture, octets)
        print(f"picture: {picture}", flush=True)
        replace_file(page, look_page(look, octets).encode())
        print(f"page to zoom in: {page}\n", flush=True)
    except OSError as error:
        print(look.text)
        return fail(
            f"the picture cannot be written to {folder} ({error.strerror or error}); name another "
            "folder with --out FOLDER"
        )
    print(look.text)
    return Exit.GOOD
