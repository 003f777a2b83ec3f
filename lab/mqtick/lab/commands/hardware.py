"""mqtick-lab hardware: the published experiment on the hardware broker's RTL, in simulated time."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from mqtick.lab.hardware.datagrams import CYCLE_FS, DatagramError
from mqtick.lab.hardware.program import ModelError
from mqtick.lab.hardware.run import HardwareRun, run_hardware
from mqtick.recording.run_folder import RunFolderError
from mqtick.service.commandline import Exit, fail
from mqtick.service.settings.load import SettingsError, add_flags, load, overrides_from

_EPILOG = """\
examples:
  mqtick-lab hardware --out runs/rtl
  mqtick-lab hardware --out runs/wire --way-receiver-ns 0 --way-receiver-jitter-ns 0
  mqtick-report compare runs/software runs/rtl

Everything is simulated: the broker's RTL exactly, the links, the switch and the receivers as the
flags of --way say.

exit codes: 0 good, 1 it failed, 2 wrong use"""


def add(commands: Any) -> None:
    """Add the parser of `hardware`."""
    parser = commands.add_parser(
        "hardware",
        help="run the published experiment on the hardware broker's RTL, in simulated time",
        description="Run the published experiment on the hardware broker's RTL, in simulated time, "
        "and keep it in a run folder.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="run folder")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_flags(parser, HardwareRun)
    parser.set_defaults(call=_call)


def _call(args: argparse.Namespace) -> int:
    try:
        settings = load(HardwareRun, None, overrides_from(args))
    except SettingsError as error:
        return fail(str(error), Exit.WRONG_USE)
    try:
        outcome = run_hardware(settings, args.out, _say)
    except RunFolderError as error:
        return fail(str(error), Exit.WRONG_USE)
    except (ModelError, DatagramError, OSError) as error:
        return fail(str(error))
    spreads_us = {
        n: [each * CYCLE_FS / 1e9 for each in all_] for n, all_ in outcome.spreads.items()
    }
    if args.json:
        print(json.dumps({"folder": str(args.out), "simulated": True, "spread_us": spreads_us}))
        return Exit.GOOD
    print("simulated: from the first copy to the last one, at the broker")
    print("    N  mean, us   max, us")
    for number, values in sorted(spreads_us.items()):
        print(f"{number:5}  {fmean(values):8.3f}  {max(values):8.3f}")
    print(f"The run is in {args.out}; next: mqtick-report {args.out}")
    return Exit.GOOD


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="\r", file=sys.stderr, flush=True)
