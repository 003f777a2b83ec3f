"""Commands of an experiment's runner to a time server: describe it, list edges, send a message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mqtick.mqtt.frames import Arrival
from mqtick.pins.base import Edge
from mqtick.pins.drive import PpsDriver
from mqtick.protocol.experiments import Answer, Command, CommandError, Commands, number_in
from mqtick.timeserver.server import Server

KEPT_EDGES = 64
_MS = 1_000_000
_LONGEST_MS = 10_000
# An additional message keeps this distance from a scheduled one.
_APART_NS = 5 * _MS
# The answer waits for this long, because the broker is busy with the subscribers at first.
_ANSWER_AFTER_NS = 50 * _MS


class Experiments:
    """Executes the commands for a server.

    `edges` holds the edge of each recent time message. `about()` describes server and host.
    """

    def __init__(
        self,
        server: Server,
        edges: deque[Edge],
        pps: PpsDriver | None,
        about: Callable[[], dict[str, Any]],
    ) -> None:
        self._server, self._edges, self._pps, self._about = server, edges, pps, about
        self._node = f"server:{server.number}"
        self._firing = False
        self._commands = Commands(
            server.tree.command(self._node),
            server.tree.answer(self._node),
            server.connection.publish_unstamped,
            server.counters.refuse,
            {"info": self._info, "edges": self._last_edges, "fire": self._fire},
        )
        self.topic = self._commands.topic

    def on_command(self, arrival: Arrival) -> None:
        """Execute a command, or count the reason for refusing it."""
        self._commands.on_command(arrival.payload, retained=arrival.retain)

    def _info(self, _command: Command) -> Answer:
        reference = self._server.reference
        return {
            "node": self._node,
            "refused": dict(self._server.counters.refused),
            "chrony": {
                "synchronised": reference.synchronised,
                "reason": reference.reason,
                "stratum": reference.stratum,
                "root_distance_ns": reference.root_distance_ns,
            },
            **self._about(),
        }

    def _last_edges(self, command: Command) -> Answer:
        last = number_in(command, "last", 1, KEPT_EDGES, 8)
        kept, newest = list(self._edges), self._server.broadcast.sequence
        rows: list[dict[str, Any]] = [
            # Each message has one edge, and we are between two messages.
            {"pin": "time", **edge._asdict(), "sequence": (newest - age) % 2**32}
            for age, edge in reversed(list(enumerate(reversed(kept))))
        ][-last:]
        if self._pps is not None:
            rows += [{"pin": "pps", **edge._asdict()} for edge in list(self._pps.edges)[-last:]]
        return {"edges": rows}

    def _fire(self, command: Command) -> None:
        after_ns = number_in(command, "after_ms", 0, _LONGEST_MS, 20) * _MS
        server = self._server
        if self._firing:
            raise CommandError("An additional message is due already: wait for its answer.")
        if "precise" not in server.settings.formats:
            raise CommandError("This server does not publish the precise format: add it.")
        interval_ns = server.interval_ns
        phase_ns = (server.clock.time_ns() + after_ns) % interval_ns
        if interval_ns > 4 * _APART_NS and not _APART_NS < phase_ns < interval_ns - _APART_NS:
            after_ns += 2 * _APART_NS
        self._firing = True
        server.publish_extra(after_ns, lambda *sent: self._fired(command["id"], *sent))

    def _fired(self, identity: str, sequence: int | None, at_ns: int) -> None:
        self._firing = False
        if sequence is None:
            self._commands.fail(
                identity,
                "The additional message was not sent: the broker cannot be reached, another server "
                "holds the number, or the clock was set meanwhile. See mqtick-timeserver status.",
            )
            return
        answer = {"sequence": sequence, "at_ns": at_ns}
        self._server.loop.call_later(
            _ANSWER_AFTER_NS, lambda: self._commands.answer(identity, answer)
        )
