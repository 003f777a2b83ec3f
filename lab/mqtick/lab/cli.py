"""mqtick-lab: the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mqtick.service import SettingsError
from mqtick.service.commandline import Exit, carry_out, make_parser, needing

with needing("lab"):
    from mqtick.lab.commands import crowd, doctor, hardware, run, scope, simulate
    from mqtick.lab.scope.conversation import InstrumentError

EXAMPLES = """\
  mqtick-lab crowd --broker mqtt://broker.lan --name w1
  mqtick-lab doctor mqtt://broker.example
  mqtick-lab hardware --out runs/rtl
  mqtick-lab run experiment.toml --out runs/today
  mqtick-lab scope identify TCPIP::192.168.1.5::5025::SOCKET
  mqtick-lab simulate --demo
  mqtick-lab --version"""

# Each function adds its sub-command, whose `call` takes the arguments and returns the exit code.
_COMMANDS: tuple[Callable[[Any], None], ...] = (
    crowd.add,
    doctor.add,
    hardware.add,
    run.add,
    scope.add,
    simulate.add,
)


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "mqtick-lab", "Measure latency and skew over MQTT with oscilloscopes.", EXAMPLES
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in _COMMANDS:
        add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = _parser().parse_args(arguments)
    return carry_out(
        lambda: args.call(args), {InstrumentError: Exit.FAILED, SettingsError: Exit.FAILED}
    )


if __name__ == "__main__":
    sys.exit(main())
