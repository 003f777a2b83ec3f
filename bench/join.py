"""join: what does a node of mqtick-join cost, and what a hop between two sites?

Latency: one message at a time, from just before it is written to the kernel's stamp of its arrival.
Four ways take turns, message by message: Mosquitto alone; a node before it; a bare relay before it
(epoll, read, write: the floor of a node); and from one site to another (two nodes, two brokers).
Processor time: `mqtick-load pairs`, at Mosquitto and through the node in turn; its floor relays by
bare system calls; and the cost of each step of a message (`mqtick-load run`, at Mosquitto, at its
node, and from one site to the other). Everything runs on one machine.

    python -m bench.join              4,000 messages each way, 5 blocks of pairs
    python -m bench.join --short      a look
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.harness import (
    Report,
    connected,
    cpu_ns,
    medians,
    options,
    progress,
    result_of,
    start_load,
)
from bench.join_nodes import node, relay, settled
from demo.local_broker import Mosquitto, running
from mqtick.mqtt.packets import encode_publish
from mqtick.mqtt.stamps import KernelSocket

GAP_S = 0.002
TOPICS = 5
EACH_US = 1000.0
"""Time between two messages of a publisher while cost is measured. With ten copies of each this is
close to Mosquitto's limit on one core. At a lower rate, wake-ups add to each message's cost."""
BEHIND = "Mosquitto behind the node"
PLACES = (
    "Mosquitto",
    "a node before Mosquitto",
    "a bare relay before Mosquitto",
    "from one site to another",
)
FAULTS = ("lost", "duplicates", "disorder")
Way = tuple[socket.socket, KernelSocket]
"""A publisher, and a subscriber with kernel stamps."""


def latencies(ways: Sequence[Way], count: int) -> tuple[list[list[float]], int]:
    """Send over each way in turn. Returns their delays in us, and how many messages were wrong."""
    found: list[list[float]] = [[] for _ in ways]
    wrong = 0
    for number in range(-200, count):
        progress(f"latency: {number} of {count}")
        for way, ((writer, reader), delays) in enumerate(zip(ways, found, strict=True)):
            payload = struct.pack(">q24x", number)
            packet = encode_publish(topic(way).encode(), payload, None)
            begin_ns = time.time_ns()
            writer.sendall(packet)
            octets = reader.recv(4096)
            reader.acknowledge()
            wrong += not octets.endswith(payload)
            if number >= 0:
                delays.append((reader.received.realtime_ns - begin_ns) / 1000)
            time.sleep(GAP_S)
    return found, wrong


def topic(way: int) -> str:
    """Each way has a topic of its own."""
    return f"bench/join/{way}"


def pairs(
    port: int, pid: int, burst: int, seconds: float, *, floor: bool
) -> dict[tuple[str, str], float]:
    """Run one block of `mqtick-load pairs`. Returns the medians, by the row's key and `who`."""
    flags = ["--broker", f"127.0.0.1:{port}", "--broker-pid", pid, *(["--floor"] if floor else [])]
    flags += ["--burst", burst, "--seconds", seconds, "--repeats", 1]
    return medians(result_of(start_load("pairs", *flags)))


class Crossing:
    """Sends messages between sites and measures the processor time that they cost.

    Attributes:
        faults: Messages so far that were lost, came twice or out of order.
    """

    def __init__(self, folder: Path, pids: Sequence[int]) -> None:
        self.faults = 0.0
        self._file, self._pids = folder / "scenario.toml", pids

    def _run(
        self, ports: tuple[int, int], subscribers: int, seconds: float, each_us: float
    ) -> list[int]:
        """Publish at one port, subscribe at the other. Returns each process's time, ns."""
        publisher, subscriber = (f"127.0.0.1:{port}" for port in ports)
        self._file.write_text(
            f"seconds = {seconds}\nramp_up_s = 0.2\nramp_down_s = 0.2\n"
            f"[[group]]\nname = 't'\nkind = 'load'\ntopics = {TOPICS}\npublishers = 2\n"
            f"subscribers = {subscribers}\npayload = 32\ninterval_us = {each_us}\n"
            f"publisher_brokers = ['{publisher}']\nsubscriber_brokers = ['{subscriber}']\n"
        )
        before = [cpu_ns(pid) for pid in self._pids]
        found = medians(result_of(start_load("run", self._file, "--broker", publisher)))
        self.faults += sum(found[one, "broker"] for one in FAULTS)
        return [cpu_ns(pid) - was for pid, was in zip(self._pids, before, strict=True)]

    def cost(self, ports: tuple[int, int], subscribers: int, seconds: float) -> list[float]:
        """Each process's time for a message, us, without the cost of connecting clients."""
        idle = self._run(ports, subscribers, 0.5, 1e6)
        busy = self._run(ports, subscribers, seconds, EACH_US)
        messages = 2 * TOPICS * seconds * 1e6 / EACH_US
        return [(one - none) / messages / 1e3 for one, none in zip(busy, idle, strict=True)]


def steps(
    report: Report,
    crossing: Crossing,
    alone: int,
    ports: tuple[int, int],
    blocks: int,
    seconds: float,
) -> None:
    """Measure the cost of each step of a message.

    `alone`: the broker's own port; `ports`: the ports of both nodes. The crossing's processes are
    both brokers, then both nodes. In: of a message that is published, or that comes from another
    site. Out: of each copy, or of a message that goes to another site.
    """
    few, many = 2, 10
    ways = {"alone": (alone, alone), "here": (ports[0], ports[0]), "far": ports}
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for block in range(blocks):
        progress(f"steps of a message: block {block + 1} of {blocks}")
        at = {
            (way, count): crossing.cost(ends, count, seconds)
            for way, ends in ways.items()
            for count in (few, many)
        }

        def line(way: str, who: int, at: dict[tuple[str, int], list[float]] = at) -> list[float]:
            """The cost of a message and of each copy: the line through both points."""
            each = (at[way, many][who] - at[way, few][who]) / (many - few)
            return [at[way, few][who] - few * each, each]

        client = line("here", 2)
        site_in = line("far", 3)[0]
        # `client` includes the way back from the own broker, which a message for others does not.
        site_out = max(0.0, (at["far", few][2] + at["far", many][2]) / 2 - client[0])
        for name, who, costs in (
            ("alone", "Mosquitto", line("alone", 0)),
            ("broker", "Mosquitto", line("here", 0)),
            ("client", "the node", client),
            ("site", "the node", [site_in, site_out]),
        ):
            for way, cost_us in zip(("in", "out"), costs, strict=True):
                found[f"{name}, {way}", who].append(cost_us)
    for (name, who), values in found.items():
        report.add(f"processor time: {name}", "us", who, values)
    report.add("across sites: lost, twice, out of order", "messages", "joined", [crossing.faults])
    # Both sides plus one, because the limit is zero.
    report.compare("across sites: lost, twice, out of order, and one", crossing.faults + 1, 1, 1.0)


def report_latencies(report: Report, delays: list[list[float]], wrong: int) -> None:
    """Report how long messages took each way, and how much a node adds."""
    rows = [
        report.add("publisher to subscriber", "us", who, found)
        for who, found in zip(PLACES, delays, strict=True)
    ]
    alone, node_too, bare_too, _ = delays
    added = [b - a for a, b in zip(alone, node_too, strict=True)]
    node_us = report.add("added by a node", "us", PLACES[1], added).median
    floor = [b - a for a, b in zip(alone, bare_too, strict=True)]
    report.add("added by a bare relay", "us", PLACES[2], floor)
    above = [b - a for a, b in zip(bare_too, node_too, strict=True)]
    report.add("a node above a bare relay", "us", PLACES[1], above)
    report.add("not the message that was sent", "messages", "all four", [wrong])
    report.compare("added median latency of a node, us, and its goal", node_us, 60.0, 1.0)
    report.compare("median across one hop, us, and its goal", rows[3].median, 300.0, 1.0)


def measure(report: Report, folder: Path, messages: int, blocks: int, seconds: float) -> None:
    """Run all measurements."""
    with ExitStack() as open_ones:
        sites: list[tuple[Path, Mosquitto, int, subprocess.Popen[bytes]]] = []
        for name in ("site-a", "site-b"):
            own = folder / name
            own.mkdir()
            broker = open_ones.enter_context(running(Mosquitto(own)))
            process, port = node(own, broker, *(site[2] for site in sites))
            open_ones.callback(process.wait)
            open_ones.callback(process.terminate)
            sites.append((own, broker, port, process))
        (here, broker, port, process), (far_folder, there, far, _) = sites
        settled(here, 2, 0)
        bare, bare_port = relay(broker)
        open_ones.callback(bare.wait)
        open_ones.callback(bare.terminate)
        ends = [(broker.port, broker.port), (port, port), (bare_port, bare_port), (port, far)]
        ways = [
            (
                connected(one, f"writer-{way}"),
                KernelSocket(connected(other, f"reader-{way}", topic(way))),
            )
            for way, (one, other) in enumerate(ends)
        ]
        for site in (here, far_folder):
            settled(site, 2, 2)
        report_latencies(report, *latencies(ways, messages))
        assert broker.process is not None
        assert there.process is not None
        pids = broker.process.pid, there.process.pid, process.pid, sites[1][3].pid
        steps(report, Crossing(here, pids), broker.port, (port, far), blocks, seconds + 0.5)
        for burst in (1, 32):
            costs: dict[str, list[float]] = {
                who: [] for who in ("Mosquitto", BEHIND, "the node", "floor")
            }
            rates: dict[str, list[float]] = {"Mosquitto": [], PLACES[1]: []}
            faults = 0.0
            for block in range(2 * blocks):  # short blocks, so that all see the same load
                progress(f"pairs, burst {burst}: block {block + 1} of {2 * blocks}")
                plain = pairs(broker.port, broker.process.pid, burst, seconds / 2, floor=True)
                through = pairs(port, process.pid, burst, seconds / 2, floor=False)
                behind = pairs(port, broker.process.pid, burst, seconds / 2, floor=False)
                costs["Mosquitto"].append(plain["cost_ns", "broker"])
                costs["floor"].append(plain["cost_ns", "floor"])
                costs["the node"].append(through["cost_ns", "broker"])
                costs[BEHIND].append(behind["cost_ns", "broker"])
                rates["Mosquitto"].append(plain["rate", "broker"])
                rates[PLACES[1]].append(through["rate", "broker"])
                faults += sum(through[one, "broker"] for one in FAULTS)
            name = f"pairs, burst {burst}"
            for who, found in costs.items():
                report.add(f"{name}: processor time a message", "ns", who, found)
            for who, found in rates.items():
                report.add(f"{name}: messages, all on two cores", "1/s", who, found, digits=0)
            report.add(f"{name}: lost, twice, out of order", "messages", PLACES[1], [faults])
            # Broker and node have their own processors: the slower one sets the limit.
            shares = [
                alone / max(node_too, behind)
                for alone, node_too, behind in zip(
                    costs["Mosquitto"], costs["the node"], costs[BEHIND], strict=True
                )
            ]
            row = report.add(
                f"{name}: limit, of Mosquitto's", "", PLACES[1], shares, simulated=True
            )
            report.compare(f"{name}: 0.95 and limit, of Mosquitto's", 0.95, row.median, 1.0)


def main() -> int:
    """Measure, print, write the file."""
    args = options(
        __doc__,
        {"messages": 400, "blocks": 1, "seconds": 0.5},
        messages=4000,
        blocks=5,
        seconds=2.0,
    )
    report = Report("join")
    with tempfile.TemporaryDirectory() as folder:
        measure(report, Path(folder), args.messages, args.blocks, args.seconds)
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
