"""time-error: |estimate - truth| of 2 to 600 clients with virtual clocks, by method.

Real Mosquitto, real time server, real connections; the clients' clocks are virtual (labelled
simulated), so that the truth is known to the nanosecond. Truth is the server's clock. The error is
taken on a 1 s grid, not at samples.

    python -m bench.time_error                       10 minutes each for 2, 10, 100, 600 clients
    python -m bench.time_error --short               2 minutes each for 2, 10, 100
    python -m bench.time_error --proxies             through proxies with unequal delays
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.harness import RESULTS, Ratio, Report, Row
from bench.ntp_pair import NtpPair
from demo.local_broker import Mosquitto, running

_US = 1000.0


def _workers(clients: int) -> int:
    return min(clients, 4)


def _start_workers(
    folder: Path, urls: list[str], args: argparse.Namespace
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    count = _workers(len(urls))
    for number in range(count):
        result = folder / f"worker{number}.pickle"
        job = {
            "indexes": list(range(number, len(urls), count)),
            "urls": urls[number::count],
            "exchange_interval_s": args.exchange_interval_s,
            "exchange_burst": args.exchange_burst,
            "wander_ppb": args.wander_ppb,
            "warm_up_s": args.warm_up_s,
            "seconds": args.seconds,
            "result": str(result),
        }
        command = [sys.executable, "-m", "bench.time_error_worker", json.dumps(job)]
        yield subprocess.Popen(command), result


def measure(clients: int, args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[float]]:
    """Run once; return the clients' records and the errors of NTP, us."""
    with tempfile.TemporaryDirectory() as name, running(Mosquitto(Path(name))) as broker:
        folder = Path(name)
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "mqtick.timeserver.cli", "--trust-system-clock"),
                *("--broker", broker.url, "--formats", "precise"),
                *("--state-folder", str(folder / "state")),
            ],
            stderr=subprocess.DEVNULL,
        )
        proxies: subprocess.Popen[bytes] | None = None
        urls = [broker.url] * clients
        if args.proxies:
            ports = folder / "ports.json"
            proxies = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bench.delay_proxy",
                    str(broker.port),
                    str(clients),
                    str(ports),
                ]
            )
            while not ports.exists():
                time.sleep(0.05)
            urls = [f"mqtt://127.0.0.1:{port}" for port in json.loads(ports.read_text())]
        ntp = NtpPair(folder)
        time.sleep(3)
        errors: list[float] = []
        watch = threading.Thread(
            target=lambda: errors.extend(ntp.errors_us(args.warm_up_s, args.seconds)), daemon=True
        )
        try:
            started = list(_start_workers(folder, urls, args))
            watch.start()
            _progress(clients, args.warm_up_s + args.seconds)
            for process, _ in started:
                process.wait()
            watch.join(10)
            records = [row for _, path in started for row in pickle.loads(path.read_bytes())]
        finally:
            server.terminate()
            ntp.stop()
            if proxies is not None:
                proxies.terminate()
        return records, errors


def _progress(clients: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if sys.stderr.isatty():
            print(f"\r{clients} clients: {left:4.0f} s left ", end="", file=sys.stderr, flush=True)
        time.sleep(min(1.0, left))
    if sys.stderr.isatty():
        print(file=sys.stderr)


def _summarise(
    report: Report, clients: int, records: list[dict[str, Any]], ntp_us: list[float], tag: str
) -> None:
    names = {
        "one-way": "one-way (published method, its common delay removed)",
        "two-way": "two-way",
        "echo": "echo, every sample",
        "best": "best combination",
    }
    medians: dict[str, float] = {}
    common = statistics.median(v for record in records for v in record["errors"]["one-way"])
    for method, who in names.items():
        shift = common if method == "one-way" else 0
        per_client = [
            [(value - shift) / _US for value in record["errors"][method]] for record in records
        ]
        pooled = [abs(value) for values in per_client for value in values]
        row = Row.of(f"{clients} clients{tag}: |time error|", "us", who, pooled, simulated=True)
        report.rows.append(row)
        medians[method] = row.median
        constants = [statistics.fmean(values) for values in per_client if values]
        worst = max(constants, key=abs)
        spread = [v - c for values, c in zip(per_client, constants, strict=True) for v in values]
        line = f"{clients} clients{tag}, {who}: worst client's constant part {worst:+.1f} us, "
        line += f"spread (standard deviation) {statistics.pstdev(spread):.1f} us"
        if method != "one-way":
            halves = [half / _US for record in records for half in record["halves"][method]]
            looks = sum(len(record["errors"][method]) for record in records)
            outside = sum(record["outside"][method] for record in records)
            line += f", inside the bound {100 * (1 - outside / max(1, looks)):.3f} %"
            report.rows.append(
                Row.of(
                    f"{clients} clients{tag}: half the interval", "us", who, halves, simulated=True
                )
            )
            report.rows.append(
                Row.of(
                    f"{clients} clients{tag}: outside the bound",
                    "%",
                    who,
                    [100 * outside / max(1, looks)],
                    simulated=True,
                    digits=4,
                )
            )
        report.rows.append(
            Row.of(
                f"{clients} clients{tag}: |constant part| by client",
                "us",
                who,
                [abs(constant) for constant in constants],
                simulated=True,
            )
        )
        print(line, flush=True)
    if ntp_us:
        report.rows.append(
            Row.of(
                f"{clients} clients{tag}: |time error|",
                "us",
                "NTP between two chronyd (floor)",
                [abs(value) for value in ntp_us],
            )
        )
    samples = {
        kind: sorted(abs(v) / _US for record in records for v in record["samples"][kind])
        for kind in ("echo", "two-way", "one-way")
    }
    for kind, values in samples.items():
        if values:
            report.rows.append(
                Row.of(
                    f"{clients} clients{tag}: |error| of one sample",
                    "us",
                    kind,
                    values,
                    simulated=True,
                )
            )
    goal = 1 / 20 if clients >= 100 and not tag else None
    report.ratios.append(
        Ratio.of(
            f"median time error, best / one-way, {clients} clients{tag}",
            medians["best"],
            medians["one-way"],
            goal,
        )
    )


def _keep_others(report: Report, sizes: list[int]) -> None:
    """Start with what an earlier run found for other numbers of clients."""
    file = RESULTS / f"{report.name}.json"
    found = json.loads(file.read_text()) if file.exists() else {"rows": [], "ratios": []}

    def is_other(quantity: str) -> bool:
        return not any(re.search(rf"\b{size} clients", quantity) for size in sizes)

    report.rows += [Row(**row) for row in found["rows"] if is_other(row["quantity"])]
    report.ratios += [Ratio(**row) for row in found["ratios"] if is_other(row["quantity"])]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", default="2,10,100,600")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--warm-up-s", type=float, default=60)
    parser.add_argument("--exchange-interval-s", type=float, default=16)
    parser.add_argument("--exchange-burst", type=int, default=4)
    parser.add_argument("--wander-ppb", type=float, default=10)
    parser.add_argument("--short", action="store_true", help="2 minutes, up to 100 clients")
    parser.add_argument("--proxies", action="store_true", help="unequal delays up and down")
    parser.add_argument(
        "--add",
        action="store_true",
        help="keep the results file's rows for other numbers of clients",
    )
    args = parser.parse_args()
    if args.short:
        args.clients, args.seconds = "2,10,100", 120
    report = Report("time-error-proxies" if args.proxies else "time-error")
    sizes = [int(size) for size in args.clients.split(",")]
    if args.add:
        _keep_others(report, sizes)
    for clients in sizes:
        records, ntp_us = measure(clients, args)
        _summarise(report, clients, records, ntp_us, " through proxies" if args.proxies else "")
    report.finish()


if __name__ == "__main__":
    main()
