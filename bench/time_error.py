"""time-error: |estimate - truth| of 2 to 600 clients with virtual clocks, by method.

Real broker (Mosquitto), real time server, real connections; the clients' clocks are virtual
(labelled simulated), so that the truth is known to the nanosecond. Truth is the server's clock. The
error is taken on a 1 s grid, not at samples.

    python -m bench.time_error                       10 minutes each for 2, 10, 100, 600 clients
    python -m bench.time_error --short               2 minutes each for 2, 10, 100
    python -m bench.time_error --proxies             through proxies with unequal delays
    python -m bench.time_error --residence           through mqtick-broker, which states residence
    python -m bench.time_error --accelerated         the same over mqtt+udp, past the broker: the
                                                     kernel copies and states residence (root)
    python -m bench.time_error --clients 600 --add   keeps the results for other numbers of clients

With --silent-s 3600 the clients send no requests for an hour before errors are measured, so that
they know the time from broadcasts only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.harness import Report, Row, options, wait
from bench.ntp_pair import errors_us, ntp_client
from bench.time_error_worker import Workers
from demo.local_broker import Mosquitto, MqtickBroker, running
from demo.local_programs import started, time_server
from demo.local_sensors import (
    CLIENT_SIDE,
    Accelerator,
    SensorBroker,
    between_namespaces,
    in_the_kernel,
    inside,
)

_US = 1000.0
_PROCESSES = 4
_RESIDENCE = " through a broker that states residence"
_ACCELERATED = " past the broker"
_SILENT = " s after the last exchange"
_STATES_RESIDENCE = '[[delivery.topic]]\nfilter = "mqtick/#"\nmode = "ordered"\nresidence = true'


def _proxied(
    stack: contextlib.ExitStack, broker: Mosquitto, folder: Path, clients: int
) -> list[str]:
    """Start a proxy for each client; return their addresses."""
    ports = folder / "ports.json"
    arguments = (str(broker.port), str(clients), str(ports))
    stack.enter_context(started("bench.delay_proxy", *arguments, log=folder / "proxies.log"))
    while not ports.exists():
        time.sleep(0.05)
    return [f"mqtt://127.0.0.1:{port}" for port in json.loads(ports.read_text())]


def _past_the_broker(stack: contextlib.ExitStack, folder: Path) -> tuple[str, Accelerator]:
    """Start broker and accelerator on the other side of a link; return the broker's address."""
    broker = SensorBroker(folder, "10.77.0.1", _STATES_RESIDENCE, udp=True)
    feed = broker.told()
    at = stack.enter_context(between_namespaces(folder, broker=broker))
    one = in_the_kernel(folder, at, feed=feed, udp=True)
    stack.callback(one.end)
    stack.enter_context(inside(CLIENT_SIDE))
    return f"mqtt+udp://{at[0]}:{at[1]}", one


def _share_copied(one: Accelerator) -> float:
    """Return how many of 100 publishes of QoS 0 were copied past the broker."""
    frames = one.status()["frames"]
    others = sum(frames[name] for name in ("no_rule", "closed", "waiting", "stale"))
    return float(100 * frames["hits"] / max(1, frames["hits"] + others))


def measure(
    clients: int, args: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[float], float]:
    """Run once; return the clients' records, the errors of NTP, us, and % copied by the kernel."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        accelerator = None
        if args.accelerated:
            url, accelerator = _past_the_broker(stack, folder)
        else:
            ours = args.residence and MqtickBroker(folder, _STATES_RESIDENCE)
            broker = stack.enter_context(running(ours or Mosquitto(folder)))
            url = broker.url
        stack.enter_context(time_server(url, folder, "--formats", "precise"))
        urls = [url] * clients
        if args.proxies:
            urls = _proxied(stack, broker, folder, clients)
        ntp = stack.enter_context(ntp_client(folder))
        time.sleep(3)
        errors: list[float] = []
        before_s = args.warm_up_s + args.silent_s
        watch = threading.Thread(
            target=lambda: errors.extend(errors_us(ntp, before_s, args.seconds)), daemon=True
        )
        workers = Workers(
            folder,
            urls,
            count=min(clients, _PROCESSES),
            seconds=args.seconds,
            warm_up_s=args.warm_up_s,
            silent_s=args.silent_s,
            exchange_interval_s=args.exchange_interval_s,
            exchange_burst=args.exchange_burst,
            wander_ppb=args.wander_ppb,
        )
        watch.start()
        wait(f"{clients} clients", before_s + args.seconds)
        found = workers.records()
        watch.join(10)
        return found, errors, _share_copied(accelerator) if accelerator else 0.0


def _summarise(
    report: Report, clients: int, records: list[dict[str, Any]], ntp_us: list[float], tag: str
) -> None:
    names = {
        "one-way": "one-way (published method, its common delay removed)",
        "two-way": "two-way",
        "echo": "echo, every sample",
        "best": "best combination",
    }
    # If residence is stated, clients ask for no echo; silent clients ask for nothing.
    left_out = {"echo"} if tag else set()
    left_out |= {"two-way"} if _SILENT in tag else set()
    what = f"{clients} clients{tag}"
    found: dict[str, Row] = {}
    common = statistics.median(v for record in records for v in record["errors"]["one-way"])
    for method, who in ((method, who) for method, who in names.items() if method not in left_out):
        shift = common if method == "one-way" else 0
        per_client = [
            [(value - shift) / _US for value in record["errors"][method]] for record in records
        ]
        pooled = [abs(value) for values in per_client for value in values]
        if not pooled:
            continue
        found[method] = report.add(f"{what}: |time error|", "us", who, pooled)
        per_client = [values for values in per_client if values]  # some clients got no echo
        constants = [statistics.fmean(values) for values in per_client]
        worst = max(constants, key=abs)
        spread = [v - c for values, c in zip(per_client, constants, strict=True) for v in values]
        line = f"{what}, {who}: worst client's constant part {worst:+.1f} us, "
        line += f"spread (standard deviation) {statistics.pstdev(spread):.1f} us"
        if method != "one-way":
            halves = [half / _US for record in records for half in record["halves"][method]]
            looks = sum(len(record["errors"][method]) for record in records)
            outside = sum(record["outside"][method] for record in records)
            share = 100 * outside / max(1, looks)
            line += f", inside the bound {100 - share:.3f} %"
            report.add(f"{what}: half the interval", "us", who, halves)
            report.add(f"{what}: outside the bound", "%", who, [share], digits=4)
            unknown = sum(record["unknown"][method] for record in records)
            if unknown:
                share = 100 * unknown / (unknown + looks)
                report.add(f"{what}: looks without an estimate", "%", who, [share], digits=4)
        report.add(f"{what}: |constant part| by client", "us", who, [abs(c) for c in constants])
        print(line, flush=True)
    if ntp_us:
        errors = [abs(value) for value in ntp_us]
        who = "NTP between two chronyd (floor)"
        ntp = report.add(f"{what}: |time error|", "us", who, errors, simulated=False)
        if tag in (_RESIDENCE, _ACCELERATED):
            best = found["best"]
            report.compare(f"median time error, best / NTP, {what}", best.median, ntp.median, 2)
            report.compare(f"p99 of the time error, best / NTP, {what}", best.p99, ntp.p99, 5)
    for kind in ("residence", "echo", "two-way", "one-way"):
        values = [abs(v) / _US for record in records for v in record["samples"][kind]]
        if values:
            report.add(f"{what}: |error| of one sample", "us", kind, values)
    goal = 1 / 20 if clients >= 100 and not tag else None
    quantity = f"median time error, best / one-way, {what}"
    report.compare(quantity, found["best"].median, found["one-way"].median, goal)
    asking = [
        row
        for row in report.rows
        if row.quantity == f"100 clients{_RESIDENCE}: |time error|" and row.who == names["best"]
    ]
    if _SILENT in tag and asking:
        quantity = f"median time error, {what} / 2 us above that of 100 that ask"
        report.compare(quantity, found["best"].median, asking[0].median + 2, 1)


def main() -> None:
    """Run the benchmark. `--add` keeps the results file's rows for other numbers of clients."""
    args = options(
        __doc__,
        {"clients": "2,10,100", "seconds": 120.0},
        clients="2,10,100,600",
        seconds=600.0,
        warm_up_s=60.0,
        wander_ppb=10.0,
        exchange_interval_s=16.0,
        exchange_burst=4,
        proxies=False,
        silent_s=0.0,
        residence=False,
        accelerated=False,
        add=False,
    )
    name, tag = "time-error", ""
    if args.proxies:
        name, tag = "time-error-proxies", " through proxies"
    elif args.residence:
        name, tag = "time-error-residence", _RESIDENCE
    elif args.accelerated:
        name, tag = "time-error-accelerated", _ACCELERATED
    if args.silent_s:
        tag += f", {args.silent_s:g}{_SILENT}"
    report = Report(name, simulated=True)
    sizes = [int(size) for size in args.clients.split(",")]
    if args.add:
        of_these = re.compile(rf"\b({'|'.join(map(str, sizes))}) clients")
        report.keep(lambda quantity: not of_these.search(quantity))
    for clients in sizes:
        records, ntp_us, share = measure(clients, args)
        _summarise(report, clients, records, ntp_us, tag)
        if args.accelerated:
            quantity = f"{clients} clients{tag}: publishes that the kernel copied"
            report.add(quantity, "%", "mqtick-accelerate", [share], simulated=False)
    report.finish()


if __name__ == "__main__":
    main()
