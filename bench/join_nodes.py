"""Nodes of mqtick-join for benchmarks, and a bare relay in place of a node."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from bench.harness import built
from demo.local_broker import Mosquitto, free_port, wait_for_port


def node(
    folder: Path, broker: Mosquitto, *neighbours: int, settings: str = "", port: int = 0
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a node before a broker; `neighbours`: their ports. Returns the process and its port."""
    port = port or free_port()
    config = folder / "join.toml"
    config.write_text(settings)
    command = [built("mqtick-join"), "--config", str(config), "--name", folder.name]
    command += ["--listen", f"127.0.0.1:{port}", "--broker", f"127.0.0.1:{broker.port}"]
    command += ["--control", str(folder / "control")]
    for one in neighbours:
        command += ["--neighbour", f"127.0.0.1:{one}"]
    with (folder / "node.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    wait_for_port(port, process)
    return process, port


def relay(broker: Mosquitto) -> tuple[subprocess.Popen[bytes], int]:
    """Start a bare relay before a broker. Returns the process and its port."""
    port = free_port()
    command = [built("examples/bare_relay"), str(port), str(broker.port)]
    process = subprocess.Popen(command)
    wait_for_port(port, process)
    return process, port


def settled(folder: Path, nodes: int, filters: int) -> None:
    """Wait until a node knows this number of nodes and filters."""
    command = [built("mqtick-join"), "status", "--json"]
    command += ["--control", str(folder / "control")]
    end = time.monotonic() + 30
    while True:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        now = json.loads(said)["now"]
        if (now["nodes"], now["filters_known"]) == (nodes, filters) and now["broker_sessions"]:
            return
        if time.monotonic() > end:
            raise RuntimeError(f"{folder.name} does not settle: {now}")
        time.sleep(0.05)
