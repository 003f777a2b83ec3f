"""mqtick-lab: the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mqtick.lab.commands import crowd, doctor, run, scope, simulate
from mqtick.lab.conversation import InstrumentError
from mqtick.service import SettingsError
from mqtick.service.commandline import Exit, fail, make_parser

__all__ = ["main"]

EXAMPLES = """\
  mqtick-lab crowd --broker mqtt://broker.lan --name w1
  mqtick-lab doctor mqtt://broker.example
  mqtick-lab run experiment.toml --out runs/today
  mqtick-lab scope identify TCPIP::192.168.1.5::5025::SOCKET
  mqtick-lab simulate --demo
  mqtick-lab --version"""

# Each adds its sub-command, whose `call` takes the arguments and returns the exit code.
_COMMANDS: tuple[Callable[[Any], None], ...] = (
    crowd.add,
    doctor.add,
    run.add,
    scope.add,
    simulate.add,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = make_parser(
        "mqtick-lab", "Measure latency and skew over MQTT with oscilloscopes.", EXAMPLES
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in _COMMANDS:
        add(commands)
    args = parser.parse_args(arguments)
    try:
        code: int = args.call(args)
        sys.stdout.flush()
    except (InstrumentError, SettingsError) as error:
        return fail(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever reads has seen enough; what is left must not raise at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.GOOD
    return code


if __name__ == "__main__":
    sys.exit(main())
