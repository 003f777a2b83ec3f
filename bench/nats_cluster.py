"""nats-cluster: how long does a message take through three joined nats-servers, or one broker?

One publisher, 30 subscribers; 200 messages a second at QoS 0, 20 at QoS 1. The cluster has three
nodes on this machine: the publisher is at the first, ten subscribers at each. Beside it, in turn:
one nats-server and one Mosquitto with all 30. `mqtick-load` stamps both ends of each message.

    python -m bench.nats_cluster             4 rounds of 8 s at QoS 0 and at QoS 1
    python -m bench.nats_cluster --short     a look: 1 round of 2 s
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.brokers import Peer
from bench.harness import Report, options, progress, quantile
from demo.local_broker import Mosquitto, Nats, free_port, running

_LOAD = Path(__file__).resolve().parent.parent / "broker/server/target/release/mqtick-load"
_NODES, _SUBSCRIBERS = 3, 30
_RATES = 200, 20
"""Messages a second at QoS 0 and 1."""
_CLUSTER = "nats-server, 3 nodes"
_LIMIT_S = 60.0
_TAKES = (
    ("wire_p50_us", "leaving to each copy, p50", "us"),
    ("wire_p99_us", "leaving to each copy, p99", "us"),
    ("skew_p50_us", "first to last copy, p50", "us"),
    ("skew_p99_us", "first to last copy, p99", "us"),
    ("lost", "lost", "messages"),
    ("duplicates", "duplicates", "messages"),
    ("disorder", "out of order", "messages"),
)


class Node(Nats):
    """One node of a cluster."""

    def __init__(self, folder: Path, number: int, routes: list[int]) -> None:
        self._number, self._routes = number, routes
        super().__init__(folder)

    def _configuration(self, anonymous: bool) -> str:
        single = super()._configuration(anonymous)
        routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in self._routes)
        return single.replace("server_name: mqtick", f"server_name: mqtick-{self._number}") + (
            f"cluster {{ name: mqtick, host: 127.0.0.1, port: {self._routes[self._number]}, "
            f"routes: [{routes}] }}\n"
        )


def scenario(brokers: list[str], seconds: float, qos: int, pid: int) -> str:
    """Return a scenario whose subscribers are spread over brokers."""
    return (
        f"seconds = {seconds}\nramp_up_s = {seconds / 10}\nramp_down_s = 0\n[[group]]\n"
        f"name = 'q{qos}-{pid}'\nkind = 'latency'\nsubscribers = {_SUBSCRIBERS}\nqos = {qos}\n"
        f"interval_us = {1e6 / _RATES[qos]}\npublisher_brokers = {json.dumps(brokers[:1])}\n"
        f"subscriber_brokers = {json.dumps(brokers)}\n"
    )


def run(program: str, text: str, folder: Path) -> dict[str, float]:
    """Run a scenario with mqtick-load; RuntimeError, with its text, if it fails."""
    file = folder / "scenario.toml"
    file.write_text(text)
    command = [program, "run", str(file), "--patience", "10", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return {row["key"]: row["median"] for row in json.loads(done.stdout)["rows"]}


@contextlib.contextmanager
def cluster(folder: Path, program: str) -> Iterator[tuple[list[str], float]]:
    """Run three nodes; yield their addresses, and how long they took to serve MQTT, in s.

    `program` is mqtick-load, which connects to them.
    """
    routes = [free_port() for _ in range(_NODES)]
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in range(_NODES):
            place = folder / str(number)
            place.mkdir()
            nodes.append(stack.enter_context(running(Node(place, number, routes))))
        brokers = [f"127.0.0.1:{node.port}" for node in nodes]
        while True:
            # Sessions need a leader, which the nodes elect first; until then they refuse.
            try:
                run(program, scenario(brokers, 0.2, 1, os.getpid()), folder)
                break
            except RuntimeError:
                if time.monotonic() > began + _LIMIT_S:
                    raise
                time.sleep(0.2)
        yield brokers, time.monotonic() - began


def main() -> None:
    """Run the benchmark."""
    args = options(__doc__, {"rounds": 1, "seconds": 2.0}, rounds=4, seconds=8.0)
    if not _LOAD.exists():
        sys.exit("mqtick-load is not built: make broker-programs")
    figures: defaultdict[tuple[int, str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        served: dict[str, list[str]] = {}
        for kind in (Peer, Nats):
            place = folder / kind.name
            place.mkdir()
            broker: Mosquitto = stack.enter_context(running(kind(place)))
            served[broker.name] = [f"127.0.0.1:{broker.port}"]
        served[_CLUSTER], ready_s = stack.enter_context(cluster(folder, str(_LOAD)))
        for number in range(args.rounds):
            for qos in (0, 1):
                for who, brokers in served.items():
                    progress(f"round {number + 1} of {args.rounds}: {who}, QoS {qos}")
                    found = run(
                        str(_LOAD), scenario(brokers, args.seconds, qos, os.getpid()), folder
                    )
                    for key, _, _ in _TAKES:
                        figures[qos, key, who].append(found[key])
    report = Report("nats-cluster")
    report.add("three nodes: from start to the first MQTT session", "s", _CLUSTER, [ready_s])
    for qos in (0, 1):
        for key, text, unit in _TAKES:
            for who in served:
                report.add(f"QoS {qos}: {text}", unit, who, figures[qos, key, who])
    for qos in (0, 1):
        for key, text, _ in _TAKES[:4]:
            ours, one = (
                quantile(sorted(figures[qos, key, who]), 0.5) for who in (_CLUSTER, Nats.name)
            )
            report.compare(f"QoS {qos}: {text}, three nodes / one", ours, one)
    report.finish()


if __name__ == "__main__":
    main()
