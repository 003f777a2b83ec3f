"""A whole bench in one process: simulated oscilloscope, and nodes that make edges in its feed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scope_rig import Simulated, simulated

from mqtick.lab.runner.control import NodeError, NodeSilentError
from mqtick.lab.runner.experiment import (
    ChannelKeys,
    CrowdKeys,
    Experiment,
    InstrumentKeys,
    OrderKeys,
    TimeoutKeys,
)
from mqtick.lab.runner.run import RunOutcome, run_experiment
from mqtick.lab.scope.simulator import Front
from mqtick.lab.scope.simulator.keysight import KeysightFront
from mqtick.pins.base import monotonic_raw_ns

LINES = {"server:0": 1, "client:first": 2, "client:last": 3}
LATENCY_NS = 100_000
EACH_NS = 1_000
"""What every subscriber before one adds to its latency."""


class FakeNodes:
    """Obeys as server, clients and crowd do; `hooks` run before the message of that number."""

    def __init__(self, bench: Simulated) -> None:
        self.bench = bench
        self.connections = 1
        self.log: list[tuple[str, str]] = []
        self.order: list[str] = []
        self.fired = 0
        self.hooks: dict[int, Callable[[], None]] = {}
        self.refuses: dict[tuple[str, str], str] = {}
        self.most = 10_000
        self.silent: set[str] = set()
        self.asked_s = 0.0
        self.broker_away = 0
        self.skips: set[str] = set()
        self.made: dict[str, int] = {}
        self.connects: dict[str, int] = {}
        self.closed = False

    def start(self, timeout_s: float = 5.0) -> None:
        if self.broker_away:
            self.broker_away -= 1
            raise NodeSilentError("The nodes cannot be asked: the broker is away.")

    def ask(
        self, node: str, do: str, timeout_s: float = 3.0, before_s: float = 0.0, **arguments: Any
    ) -> dict[str, Any]:
        self.log.append((node, do))
        self.asked_s = before_s + timeout_s
        if self.broker_away:
            raise NodeSilentError(f"{node} was not asked to {do}: the broker is away.")
        if node in self.silent:
            raise NodeSilentError(f"{node} did not answer to {do}.")
        if (node, do) in self.refuses:
            raise NodeError(f"{node} did not {do}: {self.refuses[node, do]}")
        return getattr(self, f"_{do}")(node, **arguments)

    def close(self) -> None:
        self.closed = True

    def _info(self, node: str) -> dict[str, Any]:
        is_crowd = node.startswith("crowd")
        settings = {"most_members": self.most} if is_crowd else {}
        info = {"node": node, "simulated": True, "kernel": "Linux 6", "settings": settings}
        return info | ({"members": self.order.count(node)} if is_crowd else {})

    def _leave(self, node: str) -> dict[str, Any]:
        self.order = [each for each in self.order if each != node]
        return {}

    def _join(self, node: str, count: int = 1) -> dict[str, Any]:
        granted = min(count, self.most)
        self.order += [node] * granted
        return {"members": granted, "granted": granted, "refused": count - granted}

    def _edges(self, node: str, last: int) -> dict[str, Any]:
        return {
            "edges": [{"pin": "arrival", "sequence": self.made.get(node, 0)}],
            "connects": self.connects.get(node, 1),
            "since_ns": 1,
        }

    def _count(self, node: str) -> dict[str, Any]:
        return {"members": self.order.count(node), "lost": 0}

    def _fire(self, node: str, after_ms: int) -> dict[str, Any]:
        self.fired += 1
        if hook := self.hooks.get(self.fired):
            hook()
        self.publish()
        return {"sequence": self.fired, "at_ns": 0}

    def publish(self) -> None:
        """Make the edges of one message, pulses of 100 us."""
        at_ns = monotonic_raw_ns() + 1_000_000
        for node, line in LINES.items():
            if node in self.skips:
                continue
            self.made[node] = self.made.get(node, 0) + 1
            edge_ns = at_ns
            if node != "server:0":
                if node not in self.order:
                    continue
                edge_ns += LATENCY_NS + EACH_NS * self.order.index(node)
            self.bench.model.feed.add(line, edge_ns, True)
            self.bench.model.feed.add(line, edge_ns + 100_000, False)


@dataclass
class Told:
    """A progress that remembers."""

    notes: list[str] = field(default_factory=list)
    shots: list[int] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def begin(self, total: int) -> None: ...

    def shot(self, meta: Any) -> None:
        self.shots.append(meta.number)

    def end(self) -> None: ...


@dataclass
class Bench:
    """Instrument and nodes, and a run on them."""

    instrument: Simulated
    nodes: FakeNodes
    folder: Path
    told: Told = field(default_factory=Told)

    def experiment(self, **keys: Any) -> Experiment:
        keys = {"subscribers": (2, 5), "shots": 2, "rounds": 1, **keys}
        return wired({"scope": self.instrument.resource}, **keys)

    def run(self, experiment: Experiment | None = None, *, resume: bool = False) -> RunOutcome:
        @contextlib.contextmanager
        def crowd(_: Experiment) -> Iterator[Callable[[], None]]:
            yield lambda: None

        return run_experiment(
            experiment or self.experiment(),
            self.folder,
            resume=resume,
            say=self.told,
            connect=lambda _: self.nodes,
            crowd=crowd,
        )


def wired(resources: dict[str, str], **keys: Any) -> Experiment:
    """Publisher, first and last on the first instrument, messages on request."""
    name = next(iter(resources))
    channels = {
        "pub": ChannelKeys(instrument=name, input=1, node="server:0", pin="time"),
        "near": ChannelKeys(instrument=name, input=2, node="client:first"),
        "far": ChannelKeys(instrument=name, input=3, node="client:last"),
    }
    usual: dict[str, Any] = {
        "title": "a test",
        "fire": "request",
        "interval_s": 0.001,
        "instrument": {
            each: InstrumentKeys(resource=resource, span_us=1000.0, points=1000, trigger="pub")
            for each, resource in resources.items()
        },
        "channel": channels,
        "order": OrderKeys(publisher="pub", first="near", last="far"),
        "crowd": CrowdKeys(processes=1),
        "timeouts": TimeoutKeys(
            trigger_s=0.2, broker_s=0.2, give_up_s=0.3, misses=3, instrument_s=30
        ),
    }
    return Experiment(**(usual | keys))


@contextlib.contextmanager
def bench(folder: Path, front: type[Front] = KeysightFront) -> Iterator[Bench]:
    """Serve an instrument, and make nodes for it."""
    depths = (2_000,) if front is KeysightFront else front.physics.depths
    with simulated(front, replace(front.physics, depths=depths)) as instrument:
        yield Bench(instrument, FakeNodes(instrument), folder)


@contextlib.contextmanager
def scheduled(nodes: FakeNodes, interval_s: float) -> Iterator[None]:
    """Publish on a schedule for the length of a with block."""
    over = threading.Event()

    def publish() -> None:
        while not over.wait(interval_s):
            nodes.publish()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
