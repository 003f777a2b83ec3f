"""arrival: from the kernel's receive stamp of a time message to the edge of the pin.

Ours is the whole `mqtick-client` with a `memory` pin; the peer is a plain paho-mqtt `on_message`
callback that toggles the same kind of pin. A real time server publishes every 50 ms through one
Mosquitto. Both contestants are measured in the same way, from outside: the kernel's stamp from a
packet socket on the loopback (it needs root), the edge from the pin's record in a pipe.

    python -m bench.arrival              5 rounds of 5 blocks of 12 s
    python -m bench.arrival --short      1 round, blocks of 4 s

A round has a block for each contestant alone, and two in which ours and the peer receive the same
messages; each is subscribed first in one of them. Together they compete for the processors, and the
one with real-time rights wins. Alone is the fairer comparison, so the goals apply to both.
"""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from bench.harness import Report, options, progress, quantile, spread_of_blocks
from bench.sniffer import Sniffer
from demo.local_broker import Mosquitto, free_port, running
from demo.local_programs import Process, started, time_client, time_server
from demo.simulated_bench import real_time
from mqtick.pins.memory import RECORD_OCTETS, decode_record
from mqtick.protocol.clocks import read_kernel_time
from mqtick.protocol.precise import Time

_INTERVAL_MS = 50
_TOPIC = b"mqtick/t/0"
_SETTLE_S = 2.5
_READ_EVERY_S = 0.25

OURS = "mqtick-client"
ORDINARY = "mqtick-client without real-time rights"
PEER = "paho-mqtt on_message"


# As in client/systemd/mqtick-client.service: CPUSchedulingPriority and related keys.
_FIFO_PRIORITY = 10


def like_the_unit() -> None:
    """Set up the process as the client's unit file does; call it in the child."""
    unlimited = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    with contextlib.suppress(ValueError):  # with CAP_IPC_LOCK no limit is needed
        resource.setrlimit(resource.RLIMIT_MEMLOCK, unlimited)
    priority = os.sched_param(_FIFO_PRIORITY)
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, priority)


@dataclass
class Contestant:
    """One program, the port of its listener, and its measurements, block by block."""

    who: str
    port: int
    real_time: bool
    arrival_us: list[list[float]] = field(default_factory=list)
    publish_us: list[list[float]] = field(default_factory=list)

    def started(self, folder: Path, sink: int) -> contextlib.AbstractContextManager[Process]:
        """Start the program; it toggles a pin, whose edges are written to `sink`."""
        if self.who == PEER:
            arguments = ("127.0.0.1", str(self.port), _TOPIC.decode(), f"fd:{sink}")
            log = folder / "peer.log"
            return started("bench.paho_subscriber", *arguments, log=log, pass_fds=(sink,))
        return time_client(
            f"mqtt://127.0.0.1:{self.port}",
            folder,
            "bench",
            *("--pin-backend", "memory", "--pin-sink", f"fd:{sink}"),
            pass_fds=(sink,),
            prepare=like_the_unit if self.real_time else None,
        )


def stated_ns(segment: bytes) -> int | None:
    """Return the stated transmit time of the time message in a segment; None: no time message."""
    at = segment.find(_TOPIC)
    if at < 0:
        return None
    at += len(_TOPIC)
    at += segment[at] == 0  # MQTT 5: no properties
    return Time.decode(segment[at : at + 32]).transmit_ns


def matched(
    arrivals: Sequence[tuple[int, int]], edges_ns: Sequence[int]
) -> list[tuple[float, float]]:
    """Return (arrival to edge, publish to edge), us; each edge is matched to the arrival before it.

    `arrivals`: (received, stated transmit time), in order; all are instants of one clock, in ns.
    """
    found = []
    edges = iter(edges_ns)
    edge = next(edges, None)
    for place, (received, stated) in enumerate(arrivals):
        following = arrivals[place + 1][0] if place + 1 < len(arrivals) else received + 10**9
        while edge is not None and edge < received:
            edge = next(edges, None)
        if edge is not None and edge < following:
            found.append(((edge - received) / 1e3, (edge - stated) / 1e3))
    return found


def block(
    contestants: Sequence[Contestant], folder: Path, sniffer: Sniffer, seconds: float
) -> None:
    """Start the contestants, which subscribe in this order, and measure them for a while."""
    with contextlib.ExitStack() as stack:
        pipes = []
        for one in contestants:
            read_end, write_end = os.pipe()
            pipes.append(read_end)
            stack.callback(os.close, read_end)
            os.set_blocking(read_end, False)
            stack.enter_context(one.started(folder, write_end))
            os.close(write_end)
            time.sleep(1.0)  # it must subscribe before the next one does
        time.sleep(_SETTLE_S)
        edges: list[list[int]] = [[] for _ in contestants]
        arrivals: list[list[tuple[int, int]]] = [[] for _ in contestants]
        ports = {one.port: place for place, one in enumerate(contestants)}
        end = time.monotonic() + seconds
        for _ in sniffer.read():
            pass
        for pipe in pipes:
            _edges(pipe)
        while time.monotonic() < end:
            time.sleep(_READ_EVERY_S)
            now = read_kernel_time(10)
            for place, pipe in enumerate(pipes):
                edges[place] += [raw - now.raw_ns + now.realtime_ns for raw in _edges(pipe)]
            for segment in sniffer.read():
                place_of = None if segment.outgoing else ports.get(segment.ports[0])
                if place_of is not None and (stated := stated_ns(segment.data)) is not None:
                    arrivals[place_of].append((segment.realtime_ns, stated))
    for place, one in enumerate(contestants):
        pairs = matched(arrivals[place], edges[place])
        one.arrival_us.append([arrival for arrival, _ in pairs])
        one.publish_us.append([publish for _, publish in pairs])


def _edges(pipe: int) -> list[int]:
    """Return the times of the edges waiting in a pipe, on CLOCK_MONOTONIC_RAW."""
    try:
        octets = os.read(pipe, 1 << 20)
    except BlockingIOError:
        return []
    records = range(0, len(octets), RECORD_OCTETS)
    return [decode_record(octets[at : at + RECORD_OCTETS]).time_ns for at in records]


def _rows(report: Report, how: str, contestants: Sequence[Contestant]) -> None:
    """Add the measurements of one arrangement, and print how much the blocks differ."""
    for one in contestants:
        medians = spread_of_blocks(f"{how}, {one.who}", one.arrival_us)
        for quantity, blocks in (("arrival", one.arrival_us), ("publish", one.publish_us)):
            values = list(chain(*blocks))
            report.add(f"{quantity} to pin, {how}", "us", one.who, values, digits=1)
        name = f"arrival to pin, {how}: median of each block"
        report.add(name, "us", one.who, medians, digits=1)
    ours, peer = (sorted(chain(*one.arrival_us)) for one in (contestants[0], contestants[-1]))
    for name, share, goal in (("p50", 0.5, 0.6), ("p99", 0.99, 0.5)):
        quantity = f"arrival to pin, {how}, {name}: ours / paho-mqtt"
        our_us, peer_us = (round(quantile(values, share), 1) for values in (ours, peer))
        report.compare(quantity, our_us, peer_us, goal)


def measure(rounds: int, seconds: float) -> Report:
    """Run all blocks."""
    report = Report("arrival")
    sniffer = Sniffer()
    with contextlib.closing(sniffer), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A listener for each contestant, so that the sender's port identifies the receiver.
        ports = {who: free_port() for who in (OURS, ORDINARY, PEER)}
        lines = "\n".join(f"listener {port} 127.0.0.1" for port in ports.values())
        alone, together = (
            {who: Contestant(who, port, who == OURS) for who, port in ports.items()}
            for _ in range(2)
        )
        blocks = [
            *([one] for one in alone.values()),
            [together[OURS], together[PEER]],
            [together[PEER], together[OURS]],
        ]
        arguments = ("--interval-s", str(_INTERVAL_MS / 1000), "--formats", "precise")
        with (
            running(Mosquitto(folder, lines)) as broker,
            time_server(broker.url, folder, *arguments),
        ):
            time.sleep(_SETTLE_S)
            for number, contestants in enumerate(blocks * rounds):
                progress(f"block {number + 1} of {len(blocks) * rounds}")
                block(contestants, folder, sniffer, seconds)
        _rows(report, "alone", list(alone.values()))
        _rows(report, "together", [together[OURS], together[PEER]])
    return report


def main() -> None:
    """Run the benchmark."""
    args = options(__doc__, {"rounds": 1, "seconds": 4.0}, rounds=5, seconds=12.0)
    if not real_time():
        raise SystemExit(
            "error: arrival needs root, for the real-time rights that the unit file gives and for "
            "a packet socket that tells the kernel's stamps; run it with sudo."
        )
    measure(args.rounds, args.seconds).finish()


if __name__ == "__main__":
    main()
