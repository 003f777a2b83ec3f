"""join: what does a node of mqtick-join cost, and what a hop between two sites?

Latency: one message at a time, from just before it is written to the kernel's stamp of its arrival.
Four ways take turns, message by message: Mosquitto alone; a node before it; a bare relay before it
(epoll, read, write: the floor of a node); and from one site to another (two nodes, two brokers).
Processor time: `mqtick-load pairs`, at Mosquitto and through the node in turn; its floor relays by
bare system calls. Five joined brokers: the cost of each step of a message (`mqtick-load run`, at
Mosquitto, at its node, and from one site to the other), and from that how much the patterns of the
published benchmark carry (simulated, bench/join_plan.py). Last: which messages another site misses
while a publisher's node is restarted (bench/join_restart.py). Everything runs on one machine.

    python -m bench.join              4,000 messages each way, 5 blocks of pairs
    python -m bench.join --short      a look
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.harness import Report, options, progress
from bench.join_nodes import PROGRAMS, node, relay, settled
from bench.join_plan import PATTERNS, TOPICS, Costs, gain
from bench.join_restart import restarts
from demo.local_broker import Mosquitto, running

SO_TIMESTAMPNS = 35
GAP_S = 0.002
EACH_US = 1000.0
"""Time between two messages of a publisher while cost is measured. With ten copies of each this is
close to Mosquitto's limit on one core. At a lower rate, wake-ups add to each message's cost."""
GOALS = {"A": 0.95, "B": 1.0, "C": 4.5, "D": 1.0}
BEHIND = "Mosquitto behind the node"
PLACES = (
    "Mosquitto",
    "a node before Mosquitto",
    "a bare relay before Mosquitto",
    "from one site to another",
)


class Client:
    """A client of MQTT 3.1.1 with kernel stamps."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        body = b"\0\4MQTT\4\2\0\0" + struct.pack(">H", len(name)) + name.encode()
        self.socket.sendall(bytes([0x10, len(body)]) + body)
        if self.receive()[0][:1] != b"\x20":
            raise RuntimeError("the broker refused the connection")

    def subscribe(self, topic: str) -> None:
        """Subscribe, and wait for the answer."""
        body = b"\0\1" + struct.pack(">H", len(topic)) + topic.encode() + b"\0"
        self.socket.sendall(bytes([0x82, len(body)]) + body)
        self.receive()

    def publish(self, topic: str, payload: bytes) -> int:
        """Publish. Returns the time just before, in ns."""
        body = struct.pack(">H", len(topic)) + topic.encode() + payload
        packet = bytes([0x30, len(body)]) + body
        begin_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        self.socket.sendall(packet)
        return begin_ns

    def receive(self) -> tuple[bytes, int]:
        """Receive octets. Returns them, and the kernel's stamp in ns."""
        octets, more, _, _ = self.socket.recvmsg(4096, 64)
        stamp = next((data for _, kind, data in more if kind == SO_TIMESTAMPNS), bytes(16))
        seconds, nanoseconds = struct.unpack("qq", stamp[:16])
        return octets, seconds * 1_000_000_000 + nanoseconds


def latencies(ways: Sequence[tuple[Client, Client]], count: int) -> tuple[list[list[float]], int]:
    """Send over each way in turn. Returns their delays in us, and how many messages were wrong."""
    found: list[list[float]] = [[] for _ in ways]
    wrong = 0
    for number in range(-200, count):
        progress(f"latency: {number} of {count}")
        for way, ((writer, reader), delays) in enumerate(zip(ways, found, strict=True)):
            payload = struct.pack(">q24x", number)
            begin_ns = writer.publish(topic(way), payload)
            octets, end_ns = reader.receive()
            wrong += not octets.endswith(payload)
            if number >= 0:
                delays.append((end_ns - begin_ns) / 1000)
            time.sleep(GAP_S)
    return found, wrong


def topic(way: int) -> str:
    """Each way has a topic of its own."""
    return f"bench/join/{way}"


def pairs(port: int, pid: int, burst: int, seconds: float, *, floor: bool) -> dict[str, Any]:
    """Run one block of `mqtick-load pairs`. Returns the medians, by the row's key and `who`."""
    command = [str(PROGRAMS / "mqtick-load"), "pairs", "--broker", f"127.0.0.1:{port}", "--json"]
    command += ["--broker-pid", str(pid), "--burst", str(burst), "--seconds", str(seconds)]
    command += ["--repeats", "1", *(["--floor"] if floor else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return {f"{row['key']} {row['who']}": row["median"] for row in json.loads(done.stdout)["rows"]}


def spent_ns(pid: int) -> int:
    """Processor time of a process with one thread, ns."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


class Crossing:
    """Sends messages between sites and measures the processor time that they cost.

    Attributes:
        faults: Messages so far that were lost, came twice or out of order.
    """

    def __init__(self, folder: Path, pids: Sequence[int]) -> None:
        self.faults = 0.0
        self._file, self._pids = folder / "scenario.toml", pids

    def _run(self, ports: tuple[int, int], subscribers: int, seconds: float, each_us: float) -> Any:
        """Publish at one port, subscribe at the other. Returns each process's time, ns."""
        publisher, subscriber = (f"127.0.0.1:{port}" for port in ports)
        self._file.write_text(
            f"seconds = {seconds}\nramp_up_s = 0.2\nramp_down_s = 0.2\n"
            f"[[group]]\nname = 't'\nkind = 'load'\ntopics = {TOPICS}\npublishers = 2\n"
            f"subscribers = {subscribers}\npayload = 32\ninterval_us = {each_us}\n"
            f"publisher_brokers = ['{publisher}']\nsubscriber_brokers = ['{subscriber}']\n"
        )
        before = [spent_ns(pid) for pid in self._pids]
        command = [str(PROGRAMS / "mqtick-load"), "run", str(self._file)]
        command += ["--broker", publisher, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        found = {row["key"]: row["median"] for row in json.loads(done.stdout)["rows"]}
        self.faults += sum(found[one] for one in ("lost", "duplicates", "disorder"))
        return [spent_ns(pid) - was for pid, was in zip(self._pids, before, strict=True)]

    def cost(self, ports: tuple[int, int], subscribers: int, seconds: float) -> list[float]:
        """Each process's time for a message, us, without the cost of connecting clients."""
        idle = self._run(ports, subscribers, 0.5, 1e6)
        busy = self._run(ports, subscribers, seconds, EACH_US)
        messages = 2 * TOPICS * seconds * 1e6 / EACH_US
        return [(one - none) / messages / 1e3 for one, none in zip(busy, idle, strict=True)]


def five(
    report: Report,
    crossing: Crossing,
    alone: int,
    ports: tuple[int, int],
    blocks: int,
    seconds: float,
) -> None:
    """Measure the cost of each step of a message; compute how much five sites carry.

    `alone`: the broker's own port; `ports`: the ports of both nodes. The crossing's processes are
    both brokers, then both nodes.
    """
    few, many = 2, 10
    ways = {"alone": (alone, alone), "here": (ports[0], ports[0]), "far": ports}
    found: list[Costs] = []
    for block in range(blocks):
        progress(f"five sites: block {block + 1} of {blocks}")
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
        (alone_in, alone_out), (broker_in, broker_out) = line("alone", 0), line("here", 0)
        brokers = alone_in, alone_out, broker_in, broker_out
        found.append(Costs(*brokers, client[0], client[1], site_in, site_out))
    for name, *values in zip(Costs._fields, *found, strict=True):
        who = "Mosquitto" if name.startswith(("alone", "broker")) else "the node"
        report.add(f"processor time: {name.replace('_', ', ')}", "us", who, values)
    report.add("across sites: lost, twice, out of order", "messages", "joined", [crossing.faults])
    # Both sides plus one, because the limit is zero.
    report.compare("across sites: lost, twice, out of order, and one", crossing.faults + 1, 1, 1.0)
    for name, members in PATTERNS.items():
        of_brokers, of_all = zip(*(gain(members, costs) for costs in found), strict=True)
        text = f"pattern {name}: limit, of one Mosquitto's"
        report.add(f"{text}, by the brokers alone", "", "joined", of_brokers, simulated=True)
        row = report.add(text, "", "joined", of_all, simulated=True)
        report.compare(f"pattern {name}: goal and limit", GOALS[name], row.median, 1.0)


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
            (Client(one, f"writer-{way}"), Client(other, f"reader-{way}"))
            for way, (one, other) in enumerate(ends)
        ]
        for way, (_, reader) in enumerate(ways):
            reader.subscribe(topic(way))
        for site in (here, far_folder):
            settled(site, 2, 2)
        report_latencies(report, *latencies(ways, messages))
        assert broker.process is not None
        assert there.process is not None
        pids = broker.process.pid, there.process.pid, process.pid, sites[1][3].pid
        five(report, Crossing(here, pids), broker.port, (port, far), blocks, seconds + 0.5)
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
                costs["Mosquitto"].append(plain["cost_ns broker"])
                costs["floor"].append(plain["cost_ns floor"])
                costs["the node"].append(through["cost_ns broker"])
                costs[BEHIND].append(behind["cost_ns broker"])
                rates["Mosquitto"].append(plain["rate broker"])
                rates[PLACES[1]].append(through["rate broker"])
                faults += sum(
                    through[f"{one} broker"] for one in ("lost", "duplicates", "disorder")
                )
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
        restarts(report, Path(folder), 5 * args.messages // 4)
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
