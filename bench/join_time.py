"""join-time: how good is the time through nodes of mqtick-join, with and without residence?

Four setups run at the same time: a time server and some clients at one site, and a time server at
one site and its clients at another; each with nodes that state residence, and with nodes that do
not. All brokers are Mosquitto. The clients' clocks are virtual (labelled simulated), so the true
time is known.

    python -m bench.join_time              4 clients each, 2 minutes
    python -m bench.join_time --short      a look
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.harness import Report, options, wait
from bench.join_nodes import node, settled
from bench.time_error_worker import Workers
from demo.local_broker import Mosquitto, running
from demo.local_programs import time_server

SILENT = "residence = false\n"
WARM_UP_S = 30.0
SETUPS = {  # how many sites, and settings of their nodes
    "one site, nothing stated": (1, SILENT),
    "one site": (1, ""),
    "two sites, nothing stated": (2, SILENT),
    "two sites": (2, ""),
}


def sites(open_ones: ExitStack, folder: Path, count: int, settings: str) -> list[int]:
    """Start sites in a row. Returns the ports of their nodes."""
    ports: list[int] = []
    for number in range(count):
        own = folder / f"site-{number}"
        own.mkdir(parents=True)
        broker = open_ones.enter_context(running(Mosquitto(own)))
        process, port = node(own, broker, *ports[-1:], settings=settings)
        open_ones.callback(process.wait)
        open_ones.callback(process.terminate)
        ports.append(port)
    settled(folder / "site-0", count, 0)
    return ports


def say(report: Report, what: str, records: list[dict[str, Any]]) -> float:
    """Report one setup. Returns its median error in us."""
    errors = [abs(one) / 1e3 for record in records for one in record["errors"]["best"]]
    halves = [one / 1e3 for record in records for one in record["halves"]["best"]]
    outside = sum(record["outside"]["best"] for record in records)
    row = report.add("|time error|", "us", what, errors)
    report.add("half the interval", "us", what, halves)
    report.add("outside the interval", "looks", what, [outside], digits=0)
    for kind in ("residence", "echo", "two-way"):
        samples = [abs(one) / 1e3 for record in records for one in record["samples"][kind]]
        if samples:
            report.add(f"|error| of one {kind} sample", "us", what, samples)
    return row.median


def main() -> int:
    """Measure, print, write the file."""
    args = options(__doc__, {"seconds": 30.0}, seconds=120.0, clients=4)
    report = Report("join-time", simulated=True)
    with tempfile.TemporaryDirectory() as name, ExitStack() as open_ones:
        running_ones = []
        for number, (what, (count, settings)) in enumerate(SETUPS.items()):
            folder = Path(name) / str(number)
            ports = sites(open_ones, folder, count, settings)
            open_ones.enter_context(time_server(f"mqtt://127.0.0.1:{ports[0]}", folder))
            running_ones.append((what, folder, ports[-1]))
        time.sleep(2)  # until the servers serve
        workers = {
            what: Workers(
                folder,
                [f"mqtt://127.0.0.1:{port}"] * args.clients,
                count=1,
                seconds=args.seconds,
                warm_up_s=WARM_UP_S,
                exchange_interval_s=4.0,
            )
            for what, folder, port in running_ones
        }
        wait("clients", WARM_UP_S + args.seconds)
        found = {what: say(report, what, one.records()) for what, one in workers.items()}
    for place in ("one site", "two sites"):
        ours, before = found[place], found[f"{place}, nothing stated"]
        report.compare(f"median time error, {place}: residence stated, and not", ours, before, 1.0)
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
