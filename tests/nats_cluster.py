"""Three joined nats-servers, and what mqtick-load says of messages through them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from demo.local_broker import Nats, free_port, running

_NODES, _SUBSCRIBERS = 3, 30
_INTERVALS_US = 5_000, 50_000
"""From one message to the next at QoS 0 and 1."""
_LIMIT_S = 60.0


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


def through(
    brokers: list[str], program: str, folder: Path, *, seconds: float, qos: int
) -> dict[str, float]:
    """Have mqtick-load publish at the first broker to subscribers that are spread over all.

    Returns its rows, by key; RuntimeError, with its text, if it fails.
    """
    file = folder / "scenario.toml"
    file.write_text(
        f"seconds = {seconds}\nramp_up_s = {seconds / 10}\nramp_down_s = 0\n[[group]]\n"
        f"name = 'q{qos}-{os.getpid()}'\nkind = 'latency'\nsubscribers = {_SUBSCRIBERS}\n"
        f"qos = {qos}\ninterval_us = {_INTERVALS_US[qos]}\n"
        f"publisher_brokers = {json.dumps(brokers[:1])}\n"
        f"subscriber_brokers = {json.dumps(brokers)}\n"
    )
    command = [program, "run", str(file), "--patience", "10", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return {row["key"]: row["median"] for row in json.loads(done.stdout)["rows"]}


@contextlib.contextmanager
def cluster(folder: Path, program: str) -> Iterator[list[str]]:
    """Run three nodes, and yield their addresses once they serve MQTT to mqtick-load."""
    routes = [free_port() for _ in range(_NODES)]
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in range(_NODES):
            place = folder / str(number)
            place.mkdir()
            nodes.append(stack.enter_context(running(Node(place, number, routes))))
        brokers = [f"127.0.0.1:{node.port}" for node in nodes]
        end = time.monotonic() + _LIMIT_S
        while True:
            # Sessions need a leader, which the nodes elect first; until then they refuse.
            try:
                through(brokers, program, folder, seconds=0.2, qos=1)
                break
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        yield brokers
