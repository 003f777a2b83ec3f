"""mqtick-lab crowd: hold many subscribers for the runner of an experiment."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from mqtick.lab.load import crowd
from mqtick.mqtt.broker import broker_from
from mqtick.protocol.topics import TopicTree
from mqtick.service.commandline import Exit, add_run_flags, carry_out, read_settings
from mqtick.service.settings.program import ConnectionSettings
from mqtick.service.settings.schema import key

CONFIG = "/etc/mqtick/crowd.toml"

EXAMPLES = """\
examples:
  mqtick-lab crowd --broker mqtt://broker.lan --name w1
      wait for a runner to ask crowd:w1 for subscribers, 600 at most
  mqtick-lab crowd --broker mqtts://broker.lan --ca-file ca.pem --username w1 \\
      --password-file /etc/mqtick/w1.password --name w1 --most-members 300
      the same over TLS; the access list wants the user name to be the crowd's name
  mqtick-lab crowd --broker mqtt+udp://broker.lan --name w1
      over UDP: each subscriber is a socket of its own"""


@dataclass(frozen=True, slots=True)
class CrowdSettings(ConnectionSettings):
    """What a crowd does."""

    name: str = key("crowd", "Name of this crowd: 1 to 16 of A-Z a-z 0-9 _ . -.")
    most_members: int = key(
        600,
        "Subscribers it may be asked for; its limit of open files is raised at the start.",
        minimum=1,
        maximum=20_000,
    )


def add(commands: Any) -> None:
    """Add the sub-command."""
    parser = commands.add_parser(
        "crowd",
        help="hold many subscribers, as commanded by the runner of an experiment",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run_flags(parser, CrowdSettings, CONFIG)
    parser.set_defaults(call=_run)


def _check(settings: CrowdSettings) -> None:
    broker_from(settings)
    TopicTree(settings.prefix).command(f"crowd:{settings.name}")


def _run(args: argparse.Namespace) -> int:
    settings = read_settings(args, CrowdSettings, CONFIG, _check)
    if isinstance(settings, Exit):
        return settings

    def run() -> int:
        at, most = broker_from(settings), settings.most_members
        crowd.run(at, settings.name, prefix=settings.prefix, most=most)
        return Exit.GOOD

    # ValueError: a broker's address, a name
    return carry_out(run, {OSError: Exit.FAILED, ValueError: Exit.WRONG_USE})
