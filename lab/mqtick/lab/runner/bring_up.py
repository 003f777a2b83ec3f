"""Brings subscribers up in order, so that the first and the last of N are the measured ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from mqtick.lab.runner.control import NodeError, NodeSilentError
from mqtick.lab.runner.experiment import Experiment

_PER_MEMBER_S: Final = 0.02
_CROWD_S: Final = 5.0
"""Added to `subscribe_s`: a crowd answers after 12 s at most, with the missing members' error."""


class Nodes(Protocol):
    """The part of `Control` that a run needs."""

    connections: int
    """How often we connected to the broker."""

    def start(self, timeout_s: float = 5.0) -> None:
        """Connect, or check that it is connected; NodeError if that takes too long."""

    def ask(
        self, node: str, do: str, timeout_s: float = 3.0, before_s: float = 0.0, **arguments: Any
    ) -> dict[str, Any]:
        """Send a command to a node and return its answer; NodeError."""

    def close(self) -> None:
        """Disconnect."""


class CrowdShortError(Exception):
    """The wanted number of subscribers was not available; the text says why."""


def nodes_of(experiment: Experiment) -> list[str]:
    """Return the nodes whose pins are measured, each once, in the order of the channel map."""
    return list(dict.fromkeys(channel.node for channel in experiment.channel.values()))


def clients_of(experiment: Experiment) -> tuple[str, list[str], str]:
    """Return the client that subscribes first, those between that have a channel, and the last.

    "" if the experiment names none.
    """
    parts = {part: experiment.channel[name].node for part, name in experiment.measured().items()}
    first, last = parts.get("first", ""), parts.get("last", "")
    others = [
        node
        for node in nodes_of(experiment)
        if node.startswith("client:") and node not in (first, last)
    ]
    return first, others, last


def share(count: int, nodes: Iterable[str]) -> dict[str, int]:
    """Spread members evenly over crowd processes."""
    names = list(nodes)
    return {
        name: count * (place + 1) // len(names) - count * place // len(names)
        for place, name in enumerate(names)
    }


def bring_up(nodes: Nodes, experiment: Experiment, subscribers: int) -> dict[str, int]:
    """Subscribe exactly `subscribers` to the time, in order; all others leave.

    The broker serves subscribers in the order of their subscriptions (docs/accuracy.md); a client
    that leaves and joins comes last. CrowdShortError if the crowd does not have enough members,
    NodeError if a measured node fails. Returns the members of each crowd.
    """
    timeouts = experiment.timeouts
    first, others, last = clients_of(experiment)
    crowd = experiment.crowd_nodes()
    for node in (first, *others, last):
        if node:
            nodes.ask(node, "leave", timeouts.broker_s)
    for node in crowd:
        nodes.ask(node, "leave", timeouts.subscribe_s)
    left = subscribers - bool(last)
    for node in (first, *others):
        if node and left > 0:
            nodes.ask(node, "join", timeouts.subscribe_s)
            left -= 1
    shares = share(left, crowd) if crowd else {}
    for node, count in shares.items():
        if count:
            _join_crowd(nodes, node, count, _CROWD_S + timeouts.subscribe_s + _PER_MEMBER_S * count)
    if last:
        nodes.ask(last, "join", timeouts.subscribe_s)
    return shares


def _join_crowd(nodes: Nodes, node: str, count: int, timeout_s: float) -> None:
    try:
        answer = nodes.ask(node, "join", timeout_s, count=count)
    except NodeSilentError:
        raise
    except NodeError as error:
        raise CrowdShortError(f"{node} cannot bring {count} subscribers. {error}") from error
    granted = answer.get("granted")
    if granted != count:
        raise CrowdShortError(
            f"{node} was to bring {count} subscribers, but the broker granted {granted} and "
            f"refused {answer.get('refused', 'some')}; check the broker's access list and its "
            "limits (max_connections, ulimit -n), or spread the crowd over more processes."
        )


def let_join(nodes: Nodes, clients: Iterable[str]) -> None:
    """Let clients join again after a run, so that none stays without time; ignores failures."""
    for node in filter(None, clients):
        try:
            nodes.ask(node, "join", 1.0)
        except NodeError:
            continue
