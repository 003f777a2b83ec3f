"""crowd-cost: what the subscribers of `mqtick-lab crowd` cost, and whether they disturb a client.

There are a real client and a real time server, both with memory pins. The client has subscribed
first, and has the real-time rights of its unit file (as root; without them it waits now and then
until a broker on its processor has sent to all). The crowd is two processes, as an experiment's
runner starts them. The peer is the same crowd, but its members read each message at once. The
arrangements take turns, in random order.

    python -m bench.crowd_cost            10 rounds
    python -m bench.crowd_cost --short    2 rounds
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.cost import cpu_ns
from bench.harness import Report, options, progress, quantile
from bench.programs import like_the_unit, may_be_real_time
from demo.local_broker import Mosquitto, running
from demo.local_programs import started, time_client, time_server, wait_until
from mqtick.lab.runner.control import Control, NodeError
from mqtick.mqtt.broker import parse_broker_url

_SIZES = (100, 300, 598)
_INTERVAL_S = 0.1
_SHOTS = 50
_PROCESSES = 2
_PATIENCE_S = 20.0
NONE, OURS, PEER = "nobody else", "mqtick-lab crowd", "crowd that reads at once"


class Bench:
    """Server, client and both kinds of crowd, running; `phase` measures one arrangement."""

    def __init__(self, control: Control, crowds: dict[str, dict[str, int]]) -> None:
        self.control = control
        self.crowds = crowds
        """By kind: process IDs by node."""
        self.latency_us: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
        self.cpu_ns: defaultdict[tuple[str, int], list[float]] = defaultdict(list)

    def phase(self, who: str, size: int) -> None:
        """Let the client join first and then the crowd; measure; release the crowd."""
        ask = self.control.ask
        pids = self.crowds.get(who, {})
        ask("client:bench", "join")
        for node, count in zip(pids, _shares(size, len(pids)), strict=True):
            answer = ask(node, "join", timeout_s=_PATIENCE_S, count=count)
            if answer["granted"] != count:
                raise RuntimeError(f"{node}: {answer}")
        time.sleep(3 * _INTERVAL_S)
        for node in pids:
            ask(node, "count", timeout_s=_PATIENCE_S)
        began_ns = {node: cpu_ns(pid) for node, pid in pids.items()}
        time.sleep(_SHOTS * _INTERVAL_S)
        sent = ask("server:0", "edges", last=64)["edges"]
        came = ask("client:bench", "edges", last=64)["edges"]
        counts = {node: ask(node, "count", timeout_s=_PATIENCE_S) for node in pids}
        used_ns = sum(cpu_ns(pid) - began_ns[node] for node, pid in pids.items())
        for node, counted in counts.items():
            if counted["lost"]:
                raise RuntimeError(f"{node} lost members: {counted}")
            ask(node, "leave", timeout_s=_PATIENCE_S)
        if size:
            self.cpu_ns[who, size].append(used_ns / (_SHOTS * size))
        at = {edge["sequence"]: edge for edge in sent}
        pairs = [(at[edge["sequence"]], edge) for edge in came if edge.get("sequence") in at]
        self.latency_us[who, size] += [
            (_instant_ns(back) - _instant_ns(out)) / 1e3 for out, back in pairs[-_SHOTS:]
        ]


def _shares(size: int, processes: int) -> list[int]:
    return [size // processes + (place < size % processes) for place in range(processes)]


def _instant_ns(edge: dict[str, int]) -> float:
    return (edge["before_ns"] + edge["after_ns"]) / 2


def _answers(control: Control, node: str) -> bool:
    try:
        return bool(control.ask(node, "info", timeout_s=0.3))
    except NodeError:
        return False


def measure(rounds: int) -> Report:
    """Run all phases."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(running(Mosquitto(folder)))
        arguments = ("--experiments", "--formats", "precise", "--interval-s", str(_INTERVAL_S))
        pin = ("--pin-backend", "memory")
        stack.enter_context(time_server(broker.url, folder, *arguments, *pin, "--pulse", "before"))
        rights = like_the_unit if may_be_real_time() else None
        stack.enter_context(
            time_client(broker.url, folder, "bench", "--experiments", *pin, prepare=rights)
        )
        crowds: dict[str, dict[str, int]] = {OURS: {}, PEER: {}}
        for number in range(_PROCESSES):
            ours, peer = f"ours{number}", f"peer{number}"
            flags = ("crowd", "--broker", broker.url, "--name", ours)
            one = stack.enter_context(started("mqtick.lab.cli", *flags, log=folder / f"{ours}.log"))
            crowds[OURS][f"crowd:{ours}"] = one.pid
            two = stack.enter_context(
                started("bench.eager_crowd", broker.url, peer, "600", log=folder / f"{peer}.log")
            )
            crowds[PEER][f"crowd:{peer}"] = two.pid
        control = stack.enter_context(Control(parse_broker_url(broker.url)))
        for node in ("server:0", "client:bench", *crowds[OURS], *crowds[PEER]):
            wait_until(lambda node=node: _answers(control, node), node, _PATIENCE_S)  # type: ignore[misc]
        time.sleep(4)  # the client has met its server, and its first burst is over
        bench = Bench(control, crowds)
        phases = [(NONE, 0), *((who, size) for who in (OURS, PEER) for size in _SIZES)]
        for number in range(rounds):
            for who, size in random.sample(phases, len(phases)):
                progress(f"round {number + 1} of {rounds}: {size}, {who}")
                bench.phase(who, size)
    return _report(bench)


def _report(bench: Bench) -> Report:
    report = Report("crowd-cost")
    for (who, size), values in sorted(bench.latency_us.items(), key=lambda item: item[0][1]):
        name = f"server's pin to client's pin, {size} others"
        report.add(name, "us", who, values, digits=1)
    for (who, size), values in sorted(bench.cpu_ns.items(), key=lambda item: item[0][1]):
        name = f"processor, by broadcast and member, {size} members"
        report.add(name, "ns", who, values, digits=0)
    for size in _SIZES:
        ours, peer = (sum(bench.cpu_ns[who, size]) for who in (OURS, PEER))
        name = f"processor with {size} members: ours / reads at once"
        report.compare(name, round(ours), round(peer), 0.5)
    largest = _SIZES[-1]
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        alone, ours, peer = (
            round(quantile(sorted(bench.latency_us[key]), share), 1)
            for key in ((NONE, 0), (OURS, largest), (PEER, largest))
        )
        latency = f"server's pin to client's pin, {name}, {largest} others"
        report.compare(f"{latency}: ours / reads at once", ours, peer, 1.0)
        report.compare(f"{latency}: ours / nobody else", ours, alone)
    return report


def main() -> None:
    """Run the benchmark."""
    args = options(__doc__, {"rounds": 2}, rounds=10)
    if not may_be_real_time():
        print(
            "the client has no real-time rights, unlike its unit: run this as root", file=sys.stderr
        )
    measure(args.rounds).finish()


if __name__ == "__main__":
    main()
