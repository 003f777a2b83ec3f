"""timestamps: how far a program's own timestamps are from the kernel's, idle and with busy cores.

A program sends itself messages through Mosquitto, on the same kind of connection as client and
server. For each message it notes when it handed it over and when the kernel sent it, when the
kernel received it and when the program read it. Kernel timestamps remove the differences from a
measurement.

    python -m bench.timestamps              3 rounds of 4 blocks of 20 s
    python -m bench.timestamps --short      1 round, blocks of 5 s
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

from bench.harness import Report, options, progress, quantile, spread_of_blocks
from bench.programs import like_the_unit, may_be_real_time
from demo.local_broker import Mosquitto, running

_HOG = "while True: pass"
_PROCESSES_A_CORE = 2
NAMES = {
    "receive": "receive: program's stamp minus kernel's",
    "transmit": "transmit: kernel's stamp minus program's",
    "kernel round trip": "round trip through the broker by kernel stamps",
    "user round trip": "round trip through the broker by the program's stamps",
}


@contextlib.contextmanager
def busy_cores(wanted: bool) -> Iterator[None]:
    """Keep all cores busy with ordinary processes for the length of a with block."""
    count = _PROCESSES_A_CORE * (os.cpu_count() or 1) if wanted else 0
    hogs = [subprocess.Popen([sys.executable, "-c", _HOG]) for _ in range(count)]
    try:
        time.sleep(0.5 if wanted else 0.0)
        yield
    finally:
        for hog in hogs:
            hog.kill()
        for hog in hogs:
            hog.wait()


def block(url: str, folder: Path, seconds: float, *, real_time: bool) -> dict[str, list[float]]:
    """Let the worker run for a while; return its durations by name, us."""
    result = folder / "result.json"
    subprocess.run(
        [sys.executable, "-m", "bench.stamp_worker", url, str(seconds), str(result)],
        check=True,
        preexec_fn=like_the_unit if real_time else None,
    )
    found: dict[str, list[float]] = json.loads(result.read_text())["us"]
    return found


def measure(rounds: int, seconds: float) -> Report:
    """Run all blocks: idle and busy, as an ordinary process and with the unit's rights, in turn."""
    report = Report("timestamps")
    policies = {"ordinary process": False}
    if may_be_real_time():
        policies["SCHED_FIFO, as the unit"] = True
    else:
        print("without the right to SCHED_FIFO: only the ordinary process is measured")
    loads = {"idle": False, "all cores busy": True}
    found: dict[tuple[str, str, str], list[list[float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, running(Mosquitto(Path(name))) as broker:
        for number in range(rounds):
            for load, is_busy in loads.items():
                for who, real_time in policies.items():
                    progress(f"round {number + 1} of {rounds}: {load}, {who}")
                    with busy_cores(is_busy):
                        values = block(broker.url, Path(name), seconds, real_time=real_time)
                    for kind, durations in values.items():
                        found[kind, load, who].append(durations)
    spreads: dict[tuple[str, str, str], float] = {}
    for (kind, load, who), blocks in found.items():
        pooled = sorted(value for durations in blocks for value in durations)
        report.add(f"{NAMES[kind]}, {load}", "us", who, pooled, digits=1)
        spreads[kind, load, who] = round(quantile(pooled, 0.95) - quantile(pooled, 0.05), 1)
        spread_of_blocks(f"{NAMES[kind]}, {load}, {who}", blocks)
    for load in loads:
        for who in policies:
            quantity = f"spread (p95 - p5) of the round trip, {load}, {who}: kernel / program"
            kernel, user = (
                spreads[kind, load, who] for kind in ("kernel round trip", "user round trip")
            )
            report.compare(quantity, kernel, user)
    return report


def main() -> None:
    """Run the benchmark."""
    args = options(__doc__, {"rounds": 1, "seconds": 5.0}, rounds=3, seconds=20.0)
    measure(args.rounds, args.seconds).finish()


if __name__ == "__main__":
    main()
