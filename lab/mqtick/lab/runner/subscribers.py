"""The nodes of a run: identified, brought up for each block, recovered when lost."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from mqtick.lab.runner.bring_up import (
    CrowdShortError,
    Nodes,
    bring_up,
    clients_of,
    let_join,
    nodes_of,
    share,
)
from mqtick.lab.runner.control import NodeError, NodeSilentError
from mqtick.lab.runner.experiment import Experiment
from mqtick.lab.runner.progress import Progress

_EDGES_ASKED: Final = 4
_FIRE_AFTER_MS: Final = 50
_FIRST_PAUSE_S: Final = 0.2
_CROWD_STARTS_S: Final = 30.0
"""Start-up time allowed for a process of ours on a busy host; if it ends, we notice it at once."""
_LONGEST_PAUSE_S: Final = 10.0
_ASK_AGAIN_S: Final = 1.0
_CROWD_EVERY_S: Final = 30.0
_SETTLE_S: Final = 0.1
"""Time for the first requests of clients after joining."""


class StopRunError(Exception):
    """The run cannot go on; the text says why."""


def pauses_s(give_up_s: float) -> Iterator[float]:
    """Yield pauses in s, each twice the last, until `give_up_s` is over; at least one."""
    end_s = time.monotonic() + give_up_s
    pause_s = _FIRST_PAUSE_S
    while True:
        left_s = end_s - time.monotonic()
        yield max(0.0, min(pause_s, left_s))
        if left_s <= 0:
            return
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class Subscribers:
    """The nodes of a run, and the commands that the runner gives them."""

    def __init__(self, nodes: Nodes, experiment: Experiment, say: Progress) -> None:
        self._nodes, self._experiment, self._say = nodes, experiment, say
        self._connections = nodes.connections
        self._half_way = False
        self._edges: dict[str, Any] = {}
        self._places: dict[str, object] = {}
        self._moved = False
        self._crowd: dict[str, int] = {}
        self._crowd_seen_s = 0.0
        self._subscribes = experiment.kind != "clock"

    def infos(self, refuse_ended: Callable[[], None]) -> dict[str, dict[str, Any]]:
        """Ask all nodes to describe themselves; NodeError if a needed subscriber does not answer.

        `refuse_ended` is called while a node is silent: if its process has ended, it raises the
        reason.
        """
        found: dict[str, dict[str, Any]] = {}
        crowd = self._experiment.crowd_nodes() if self._subscribes else ()
        for node in (*nodes_of(self._experiment), *crowd):
            try:
                found[node] = self._info(node, refuse_ended)
            except NodeError as error:
                if self._subscribes:
                    raise
                found[node] = {"error": str(error)}
                self._say.note(f"{error} The run continues without knowing more about it.")
        if crowd:
            self._warn_of_small_crowds({node: found[node] for node in crowd})
        return found

    def _warn_of_small_crowds(self, infos: dict[str, dict[str, Any]]) -> None:
        """Tell the user, before the run begins, which N are not available."""
        measured = 2 if self._experiment.order.last else 1
        for node, info in infos.items():
            settings = info.get("settings")
            most = settings.get("most_members") if isinstance(settings, dict) else None
            short = [
                number
                for number in self._experiment.subscribers
                if isinstance(most, int) and share(number - measured, infos)[node] > most
            ]
            if short:
                self._say.note(
                    f"{node} holds at most {most} subscribers, so N = "
                    f"{', '.join(map(str, short))} will be left out; start it with a higher "
                    "--most-members, or add processes to the crowd."
                )

    def _info(self, node: str, refuse_ended: Callable[[], None]) -> dict[str, Any]:
        """Ask a node repeatedly, because it may be starting, as a crowd of this host does."""
        experiment = self._experiment
        whole_s = experiment.timeouts.broker_s
        if node in experiment.crowd_nodes()[: experiment.crowd.processes]:
            whole_s = max(whole_s, _CROWD_STARTS_S)
        end_s = time.monotonic() + whole_s
        while True:
            left_s = end_s - time.monotonic()
            try:
                wait_s = max(0.05, min(_ASK_AGAIN_S, left_s))
                return _plain(self._nodes.ask(node, "info", wait_s, before_s=whole_s - wait_s))
            except NodeSilentError:
                refuse_ended()
                if left_s <= _ASK_AGAIN_S:
                    raise

    def bring_up(self, subscribers: int) -> str:
        """Subscribe that many; returns the reason if impossible, or "". StopRunError, NodeError."""
        if not self._subscribes:
            return ""
        try:
            self._bring_up(subscribers)
        except CrowdShortError as error:
            self._say.note(f"N = {subscribers} is left out. {error}")
            return str(error)
        except NodeSilentError as error:
            return self.regain(subscribers, str(error))
        return ""

    def _bring_up(self, subscribers: int) -> None:
        self._half_way = True
        self._connections = self._nodes.connections
        self._crowd = bring_up(self._nodes, self._experiment, subscribers)
        self._crowd_seen_s = time.monotonic()
        self._half_way = False
        time.sleep(_SETTLE_S)
        self.edges()
        self._moved = False

    def regain(self, subscribers: int, fault: str) -> str:
        """Wait until broker and nodes answer again, and bring them up again; like `bring_up`."""
        if not self._subscribes:
            return ""
        timeouts = self._experiment.timeouts
        self._say.note(f"{fault} Trying again.")
        for pause_s in pauses_s(timeouts.give_up_s):
            try:
                self._nodes.start(min(timeouts.broker_s, max(pause_s, 0.01)))
                self._bring_up(subscribers)
                return ""
            except NodeSilentError as error:
                fault = str(error)
                time.sleep(pause_s)
            except CrowdShortError as error:
                return str(error)
        raise StopRunError(f"{fault} It was retried for {timeouts.give_up_s:g} s.")

    def settled(self, *, thorough: bool) -> bool:
        """Whether all nodes still have the subscriptions with which they were brought up.

        `thorough` asks each measured node. Otherwise it is enough that our connection has lasted,
        and that no client had reconnected when it was last asked for edges: the broker would serve
        such a client last.
        """
        if not self._subscribes:
            return True
        if self._nodes.connections != self._connections or self._moved:
            return False
        if not self._crowd_is_there(at_once=thorough):
            return False
        if not thorough:
            return True
        try:
            self._nodes.start(0.0)
            for node in nodes_of(self._experiment):
                self._nodes.ask(node, "info", self._experiment.timeouts.broker_s)
        except NodeError:
            return False
        return True

    def _crowd_is_there(self, *, at_once: bool) -> bool:
        """Ask the crowd now and then whether all its members are still subscribed.

        The question also keeps the crowd alive: without commands it leaves after 15 minutes.
        """
        if not at_once and time.monotonic() - self._crowd_seen_s < _CROWD_EVERY_S:
            return True
        self._crowd_seen_s = time.monotonic()
        for node, wanted in self._crowd.items():
            try:
                info = self._nodes.ask(node, "info", self._experiment.timeouts.broker_s)
            except NodeError:
                return False
            if info.get("members") != wanted:
                return False
        return True

    def fire(self) -> None:
        """Ask the server for a message, if the experiment is set so; NodeError."""
        if self._experiment.fire == "request":
            server = self._experiment.channel[self._experiment.order.publisher].node
            timeout_s = self._experiment.timeouts.broker_s
            self._nodes.ask(server, "fire", timeout_s, after_ms=_FIRE_AFTER_MS)

    def edges(self) -> tuple[dict[str, Any], str]:
        """Ask all measured nodes for their last edges; the reason stands for a missing answer.

        Also returns a sentence that names nodes without a new edge since the last time, or "".
        """
        before = self._edges
        places = self._places
        self._edges = {
            node: self._asked(node, "edges", last=_EDGES_ASKED)
            for node in nodes_of(self._experiment)
        }
        self._places = {node: _place(said) for node, said in self._edges.items()}
        self._moved = any(
            node in places and None not in (place, places[node]) and place != places[node]
            for node, place in self._places.items()
        )
        idle = [
            node
            for node, said in self._edges.items()
            if "edges" in said and said["edges"] == before.get(node, {}).get("edges")
        ]
        clients = " and ".join(node for node in idle if node.startswith("client:"))
        servers = " and ".join(node for node in idle if node.startswith("server:"))
        sentence = ""
        if servers:
            sentence = f" {servers} made no edge meanwhile: does it publish (see its status)?"
        elif clients:
            sentence = (
                f" {clients} made no edge meanwhile: does the broker's access list let it read "
                "the time messages?"
            )
        return dict(self._edges), sentence

    def counts(self) -> dict[str, Any]:
        """Ask the crowd how many messages its members have received since they joined."""
        crowd = self._experiment.crowd_nodes() if self._subscribes else ()
        return {node: self._asked(node, "count") for node in crowd}

    def _asked(self, node: str, do: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer = self._nodes.ask(node, do, self._experiment.timeouts.broker_s, **arguments)
            return _plain(answer)
        except NodeError as error:
            return {"error": str(error)}

    def release(self) -> None:
        """Leave no client without time, and no crowd running."""
        if not self._subscribes:
            return
        for node in self._experiment.crowd.nodes:
            with contextlib.suppress(NodeError):
                self._nodes.ask(node, "leave", 1.0)
        first, others, last = clients_of(self._experiment)
        let_join(self._nodes, (first, *others, last) if self._half_way else others)


def _place(said: dict[str, Any]) -> object:
    """Return a value that changes when a client resubscribes by itself; None: not known."""
    return (said["connects"], said.get("since_ns")) if "connects" in said else None


def _plain(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without NaN, which JSON does not have, but Python reads and writes."""
    plain: dict[str, Any] = json.loads(json.dumps(answer), parse_constant=lambda _: None)
    return plain
