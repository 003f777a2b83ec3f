"""Commands of an experiment's runner to a client: describe it, leave, join, list the last edges."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mqtick.client.agent import Agent
from mqtick.mqtt.frames import Arrival
from mqtick.pins.base import Edge
from mqtick.pins.drive import PpsDriver
from mqtick.protocol.experiments import Answer, Command, CommandError, Commands, number_in
from mqtick.protocol.precise import read_server_and_sequence

KEPT_EDGES = 64
# The runner that told us to leave may have ended: a client must not stay without time for ever.
_COME_BACK_S = 900.0


class Experiments:
    """Executes the commands for an agent.

    `edges` holds the last edges on arrival. `about()` describes client, host and clock.
    """

    def __init__(
        self,
        agent: Agent,
        edges: deque[Edge],
        pps: PpsDriver | None,
        about: Callable[[], dict[str, Any]],
    ) -> None:
        node = f"client:{agent.name}"
        self._agent, self._edges, self._pps, self._about = agent, edges, pps, about
        self._node = node
        self._since_ns = time.monotonic_ns()
        self._messages: deque[tuple[Edge, bytes]] = deque(maxlen=KEPT_EDGES)
        self._commands = Commands(
            agent.tree.command(node),
            agent.tree.answer(node),
            agent.connection.publish_unstamped,
            agent.refuse,
            {
                "info": self._info,
                "leave": self._leave,
                "join": self._join,
                "edges": self._last_edges,
            },
        )
        self.topic = self._commands.topic

    def on_command(self, arrival: Arrival) -> None:
        """Execute a command, or count the reason for refusing it."""
        self._commands.on_command(arrival.payload, retained=arrival.retain)

    def on_time(self, arrival: Arrival) -> None:
        """Remember which message made the last edge."""
        edges, messages = self._edges, self._messages
        if edges and not (messages and messages[-1][0] is edges[-1]):
            messages.append((edges[-1], arrival.payload))

    def tick(self) -> None:
        """Join again if the runner has forgotten us."""
        agent = self._agent
        if not agent.joined and time.monotonic() - self._commands.heard_s > _COME_BACK_S:
            agent.join(lambda _granted: None)

    def _info(self, _command: Command) -> Answer:
        agent = self._agent
        return {
            "node": self._node,
            "joined": agent.joined,
            "refused": dict(agent.refused),
            **self._about(),
        }

    def _must_be_precise(self) -> None:
        if self._agent.settings.format not in ("auto", "precise"):
            raise CommandError(
                f"This client follows the format {self._agent.settings.format}, whose subscription "
                "experiments do not move: set its format to precise."
            )

    def _leave(self, _command: Command) -> Answer:
        self._must_be_precise()
        self._agent.leave()
        # UNSUBSCRIBE was sent before this answer on the same connection: the broker reads it first.
        return {}

    def _join(self, command: Command) -> None:
        self._must_be_precise()
        self._agent.join(lambda granted: self._joined(command["id"], granted))

    def _joined(self, identity: str, granted: bool) -> None:
        if granted:
            self._commands.answer(identity, {})
        else:
            self._commands.fail(
                identity,
                f"The broker refused the subscription to {self._agent.tree.all_times()}: "
                f"{self._agent.connection.broker.refusal_remedy}.",
            )

    def _last_edges(self, command: Command) -> Answer:
        last = number_in(command, "last", 1, KEPT_EDGES, 8)
        payloads = {id(edge): payload for edge, payload in self._messages}
        rows = []
        for edge in list(self._edges)[-last:]:
            row: dict[str, Any] = {"pin": "arrival", **edge._asdict()}
            if found := read_server_and_sequence(payloads.get(id(edge), b"")):
                row |= {"server": found[0], "sequence": found[1]}
            rows.append(row)
        if self._pps is not None:
            rows += [{"pin": "pps", **edge._asdict()} for edge in list(self._pps.edges)[-last:]]
        # After a new connection the subscription is new, and the broker serves it last.
        return {
            "edges": rows,
            "connects": self._agent.connection.connects,
            "since_ns": self._since_ns,
        }
