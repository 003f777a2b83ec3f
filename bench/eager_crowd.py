"""The crowd's peer in bench.crowd_cost: the same, but each member reads each message at once.

python -m bench.eager_crowd URL NAME MEMBERS
"""

from __future__ import annotations

import sys
from typing import Any

from mqtick.lab.load import crowd
from mqtick.lab.load.member import Member, State
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.loop import Loop


class EagerMember(Member):
    """Polls for input, like an ordinary subscriber."""

    def _take(self, head: int, body: bytes) -> None:
        was_up = self.state is State.UP
        super()._take(head, body)
        if self.state is State.UP and not was_up:
            self._loop.modify(self._fd, Loop.READ)

    def _ready(self, events: int) -> None:
        if self.state is State.UP:
            self._read()
        else:
            super()._ready(events)


def main() -> None:
    """Run until a signal."""
    module: Any = crowd
    module.Member = EagerMember
    url, name, members = sys.argv[1:]
    crowd.run(parse_broker_url(url), name, prefix="mqtick", most=int(members))


if __name__ == "__main__":
    main()
