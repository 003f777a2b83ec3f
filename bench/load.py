"""load: how many messages a second a load tool handles on one core.

`mqtick-load` and loads built on paho-mqtt (Python) and rumqttc (Rust) publish through the same
mqtick-broker to one subscriber of their own, with the same window; the broker has one processor and
the load the other. Then `mqtick-load limit` finds the limit of performance of Mosquitto and of
mqtick-broker, beside it on the same processors.

    python -m bench.load             5 rounds of 2 s (4 minutes)
    python -m bench.load --short     a look: 2 rounds of 0.5 s
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from bench.brokers import Ours
from bench.harness import (
    Report,
    built,
    fresh,
    medians,
    options,
    progress,
    quantile,
    result_of,
    start_load,
)
from demo.local_broker import Mosquitto

_WINDOW, _OCTETS = 1000, 64
_OURS, _ENGINE = "mqtick-load pairs", "mqtick-load run"
_PAHO, _RUMQTTC = "paho-mqtt", "rumqttc"
_FLOOD = f"[[group]]\nkind = 'load'\npayload = {_OCTETS}\ninterval_us = 0\n"


def rate(who: str, port: int, seconds: float, folder: Path, processor: int) -> float:
    """Return how many messages a second one load got back."""
    broker, pinned = f"127.0.0.1:{port}", ["taskset", "-c", str(processor)]
    if who == _OURS:
        flags = ("--size", _OCTETS, "--window", _WINDOW, "--seconds", seconds, "--repeats", 1)
        load = start_load("pairs", "--broker", broker, *flags, under=pinned)
        return medians(result_of(load))["rate", "broker"]
    if who == _ENGINE:
        file = folder / "flood.toml"
        file.write_text(f"seconds = {seconds}\nramp_up_s = 0\nramp_down_s = 0\n{_FLOOD}")
        load = start_load("run", file, "--broker", broker, under=pinned)
        return medians(result_of(load))["egress", "broker"]
    settings = [str(port), str(max(1, round(seconds))), str(_OCTETS), str(_WINDOW)]
    other = [sys.executable, "-m", "bench.paho_load"] if who == _PAHO else [built("load")]
    said = subprocess.check_output([*pinned, *other, *settings], text=True)
    came, passed_s = said.split()
    return int(came) / float(passed_s)


def limit(report: Report, kind: type[Mosquitto], seconds: float) -> None:
    """Add a broker's limit of performance, and how fast it is at half of it."""
    with fresh(kind) as broker:
        load = start_load("limit", broker.url, "--trial", seconds, "--repeats", 3)
        result = result_of(load, limit_s=None)
    values = medians(result)
    what = "limit of performance"
    report.add(f"{what}, messages to it", "1/s", kind.name, result["lists"]["limits"], digits=0)
    for key, at, text, unit in (
        ("limit_egress", "broker", "copies from it", "1/s"),
        ("limit_ingress_low", "broker", "messages to it, from", "1/s"),
        ("limit_ingress_high", "broker", "messages to it, to", "1/s"),
        ("limited_by_load", "broker", "trials above it where mqtick-load was at its end", "%"),
        ("wire_p50_us", "at 50 %", "left to each copy at half of it, p50", "us"),
        ("skew_p50_us", "at 50 %", "first to last of 5 copies at half of it, p50", "us"),
    ):
        report.add(f"{what}, {text}", unit, kind.name, [values[key, at]], digits=1)


def main() -> None:
    """Run the benchmark."""
    short = {"rounds": 2, "seconds": 0.5, "trial": 0.3}
    args = options(__doc__, short, rounds=5, seconds=2.0, trial=1.0)
    for name in ("mqtick-load", "load", "mqtick-broker"):
        built(name)
    processors = sorted(os.sched_getaffinity(0))
    report = Report("load")
    rates: defaultdict[str, list[float]] = defaultdict(list)
    with fresh(Ours) as broker:
        assert broker.process is not None
        os.sched_setaffinity(broker.process.pid, {processors[0]})
        for number in range(args.rounds):
            for who in (_OURS, _ENGINE, _RUMQTTC, _PAHO):
                progress(f"round {number + 1} of {args.rounds}: {who}")
                rates[who].append(
                    rate(who, broker.port, args.seconds, broker.folder, processors[-1])
                )
        os.sched_setaffinity(broker.process.pid, set(processors))
        for who, found in rates.items():
            report.add("messages a second on one core", "1/s", who, found, digits=0)
    for kind in (Mosquitto, Ours):
        progress(f"limit of {kind.name}")
        limit(report, kind, args.trial)
    for peer in (_RUMQTTC, _PAHO):
        for ours in (_OURS, _ENGINE):
            theirs, own = (quantile(sorted(rates[who]), 0.5) for who in (peer, ours))
            quantity = f"messages a second: {peer} / {ours}"
            report.compare(quantity, round(theirs), round(own), round(1 / 3, 4))
    report.finish()


if __name__ == "__main__":
    main()
