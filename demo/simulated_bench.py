"""make demo-bench: the published experiment, on a simulated bench.

A real Mosquitto, a real time server, real clients and a real crowd of subscribers; their pins are
simulated, and so is the oscilloscope that sees them: it turns the real edges into
waveforms, and is reached through PyVISA over TCP like a real one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from demo.local_broker import Mosquitto, free_port, running, wait_for_port
from demo.stage import any_broker, play, tool

SUBSCRIBERS, FULL = (2, 10, 50, 100), (2, 10, 50, 100, 200, 400, 600)
SHOTS = 20
# The instrument's channels, and the pin lines behind them.
PUBLISHER, FIRST, LAST = 1, 2, 3
INTERVAL_S = 0.25

_HEAD = """\
# {purpose}, on a simulated bench.
title = "{title}"
kind = "{kind}"
shots = {shots}
broker = "{broker}"
mqtt_version = "{mqtt_version}"
{more}
[instrument.scope]
resource = "{resource}"
span_us = {span_us}
before = 0.4
points = 100000
trigger = "publisher"
"""
_CHANNEL = """
[channel.{name}]
instrument = "scope"
input = {input}
node = "{node}"
pin = "{pin}"
"""
_SKEW = """
[order]
publisher = "publisher"
first = "first"
last = "last"

[crowd]
processes = 1

# Other programs here may delay an edge beyond the record, several shots in a row.
[timeouts]
misses = 20
"""
_CLOCK = """
[order]
publisher = "publisher"
"""


def experiment_text(
    broker: Mosquitto,
    resource: str,
    *,
    kind: str = "skew",
    subscribers: Sequence[int] = SUBSCRIBERS,
    shots: int = SHOTS,
    span_us: int = 10_000,
    title: str = "simulated bench",
) -> str:
    """Return the experiment's file: kind skew as published, or kind clock."""
    clock = kind == "clock"
    many = f"subscribers = {list(subscribers)}\nrounds = 2\ninterval_s = {INTERVAL_S}\n"
    head = _HEAD.format(
        title=title,
        purpose="Clocks: the pps pins of clients against the server's"
        if clock
        else "Skew between the first and the last of N subscribers, as published",
        kind=kind,
        shots=shots,
        broker=broker.url,
        mqtt_version=broker.mqtt_version,
        more="" if clock else many,
        resource=resource,
        span_us=span_us,
    )
    channels = [
        _CHANNEL.format(name=name, input=line, node=node, pin="pps" if clock else pin)
        for name, line, node, pin in (
            ("publisher", PUBLISHER, "server:0", "time"),
            ("first", FIRST, "client:first", "arrival"),
            ("last", LAST, "client:last", "arrival"),
        )
        if name != "last" or not clock
    ]
    return head + "".join(channels) + (_CLOCK if clock else _SKEW)


# client/systemd/mqtick-client.service: what the unit gives the programs, where we may give it.
_FIFO = ["chrt", "--fifo", "10"]


def real_time() -> list[str]:
    """Return what to put before a command to run it as the unit does, [] if not permitted."""
    try:
        allowed = subprocess.run([*_FIFO, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return []
    return _FIFO if allowed else []


def _pin(which: str, line: int, sink: Path) -> list[str]:
    flag = f"--{which}-"
    return [
        *(flag + "backend", "memory", flag + "line", str(line), flag + "sink", str(sink)),
        *(flag + "mode", "pulse", flag + "width-us", "100"),
    ]


@contextlib.contextmanager
def bench(
    folder: Path, broker: Mosquitto, family: str = "keysight", *, kind: str = "skew"
) -> Iterator[str]:
    """Run oscilloscope, server and clients for the length of a with block; gives the resource.

    With kind clock the oscilloscope sees the pps pins of the server and of one client, whose clock
    is simulated: a program that makes such an edge spins before it, and two CPUs can hold two that
    spin.
    """
    tools = Path(sys.executable).parent
    where = ("--broker", broker.url, "--mqtt-version", broker.mqtt_version, "--experiments")
    sink, port, fifo = folder / "pins.sock", free_port(), real_time()
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, command: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("wb") as log:
            call = [str(tools / command), *arguments]
            if command != "mqtick-lab":
                call = [*fifo, *call]
            processes.append(subprocess.Popen(call, stdout=log, stderr=log))
        return processes[-1]

    try:
        lines = [f"{line}={line}" for line in (PUBLISHER, FIRST, LAST)]
        scope = start(
            "oscilloscope",
            *("mqtick-lab", "simulate", "--family", family, "--port", str(port)),
            *("--listen", str(sink), *(word for line in lines for word in ("--line", line))),
        )
        wait_for_port(port, scope)
        which = "pps" if kind == "clock" else "pin"
        start(
            "server",
            *("mqtick-timeserver", *where, "--trust-system-clock", "--formats", "precise"),
            *("--interval-s", str(INTERVAL_S), "--state-folder", str(folder / "server")),
            *_pin(which, PUBLISHER, sink),
        )
        clock = ["--virtual-clock", "offset_s=0.003,frequency_ppm=40,wander_ppb=10"]
        clock += ["--fast", "--exchange-interval-s", "2"]
        for name, line in (("first", FIRST), ("last", LAST)):
            if kind == "clock" and name == "last":
                continue
            start(
                name,
                *("mqtick-client", *where, "--name", name, "--state-folder", str(folder / name)),
                *_pin(which, line, sink),
                *(clock if kind == "clock" else []),
            )
        time.sleep(15.0 if kind == "clock" else 1.0)  # a clock's frequency has to be learned
        yield f"TCPIP::127.0.0.1::{port}::SOCKET"
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def hold(experiment: Path) -> int:
    """Keep the bench running for experiments by hand, until Ctrl-C."""
    mine = Path("runs/experiment.toml")
    if mine.exists():  # edited by the user: only update where this bench is
        fresh = dict(re.findall(r'^(broker|resource) = "(.*)"$', experiment.read_text(), re.M))
        text = mine.read_text()
        for key, value in fresh.items():
            text = re.sub(rf'^{key} = ".*"$', f'{key} = "{value}"', text, flags=re.M)
        mine.write_text(text)
        print(f"{mine} is yours; only broker and resource were set to this bench's.")
    else:
        mine.parent.mkdir(exist_ok=True)
        shutil.copy(experiment, mine)
        print(f"The experiment is in {mine}: edit it.")
    print(f"In another terminal: .venv/bin/mqtick-lab run {mine} --out runs/mine")
    print("The bench runs until Ctrl-C.", flush=True)
    while True:
        time.sleep(3600)


def show(folder: Path, args: argparse.Namespace) -> int:
    """Run the experiment and report it; return the exit code."""
    out = args.out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    broker = any_broker(folder)
    how = "server and clients under SCHED_FIFO" if real_time() else "without real-time priority"
    print(
        f"Broker: {broker.name}. Time server, clients and crowd: real programs, {how}.\n"
        f"Pins and oscilloscope ({args.family}): simulated. All share the {os.cpu_count()} CPUs of "
        "this machine: see how it works, not how good a fleet is.",
        flush=True,
    )
    experiment = folder / "experiment.toml"
    with running(broker), bench(folder, broker, args.family, kind=args.kind) as resource:
        text = experiment_text(
            broker,
            resource,
            kind=args.kind,
            subscribers=FULL if args.full else SUBSCRIBERS,
            shots=args.shots,
            span_us=40_000 if args.full else 10_000,
        )
        experiment.write_text(text)
        if args.hold:
            return hold(experiment)
        # The report says the same as the table at the run's end, and more.
        code = tool("mqtick-lab", "run", str(experiment), "--out", str(out), quiet=True)
    if not code:
        print()
        # Limits are for a fleet. What two shared CPUs can do is shown beside what was published.
        code = tool("mqtick-report", str(out), "--no-limits")
    return code


def main() -> int:
    """Run the demo; the exit code is that of `mqtick-lab run`, or of the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="up to 600 subscribers")
    parser.add_argument("--kind", choices=("skew", "clock"), default="skew")
    parser.add_argument("--shots", type=int, default=20, help="of each N (default 20)")
    parser.add_argument("--family", default="keysight", help="of the simulated oscilloscope")
    parser.add_argument("--out", type=Path, help="run folder (default runs/demo-DATE)")
    parser.add_argument(
        "--hold", action="store_true", help="write the experiment's file and keep the bench running"
    )
    args = parser.parse_args()
    return play("bench", lambda folder: show(folder, args))


if __name__ == "__main__":
    sys.exit(main())
