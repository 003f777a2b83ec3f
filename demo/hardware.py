"""make demo-hardware: the hardware broker without an FPGA.

Its RTL, compiled by Verilator, answers on a real UDP socket: a real time server and three real
clients, whose clocks are simulated, find the time through it. Then the published experiment is
measured through Mosquitto (real programs; pins and oscilloscope simulated) and run on the RTL in
simulated time; one report shows both beside the published figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from demo import sync
from demo.local_broker import Mosquitto, running
from demo.local_programs import wait_until
from demo.simulated_bench import FULL, SHOTS, bench, experiment_text
from demo.stage import any_broker, compare, play, tool
from mqtick.lab.hardware.program import find_model

NAME = "the hardware broker (RTL, simulated)"
SIMULATED = FULL
"""Numbers of subscribers on the RTL."""


@dataclass
class Rtl:
    """The broker's RTL behind a real UDP socket."""

    folder: Path
    port: int
    name = NAME
    mqtt_version = "3.1.1"

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"mqtt+udp://127.0.0.1:{self.port}"

    def slower(self) -> float:
        """Say how many times slower than the hardware it is; 0: not known yet."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            said = json.loads((self.folder / "model.json").read_text())
            return float(said["slower_than_hardware"])
        return 0.0


def free_udp_port() -> int:
    """Return a loopback UDP port that is unused."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def model_running(folder: Path) -> Iterator[Rtl]:
    """Run the model for the length of a with block; RuntimeError if it does not start."""
    rtl, log = Rtl(folder, free_udp_port()), folder / "model.log"
    call = [str(find_model()), "live", "--listen", f"127.0.0.1:{rtl.port}"]
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*call, "--status", str(folder / "model.json")], stdout=said, stderr=said
        )
    try:
        wait_until(
            lambda: process.poll() is not None or (folder / "model.json").exists(),
            "the model serves",
        )
        if process.poll() is not None:
            raise RuntimeError(f"the model ended:\n{log.read_text()}")
        yield rtl
    finally:
        process.terminate()
        process.wait(10)


def find_the_time(folder: Path, seconds: float) -> int:
    """Let three clients find the time through the RTL; return the exit code."""
    print(f"Broker: {NAME}, on UDP. Clients' clocks: simulated. Programs and sockets are real.")
    with (
        model_running(folder) as rtl,
        sync.started(folder, rtl, with_chronyd=False) as (clients, _),
    ):
        sync.watch(clients, None, seconds)
        slower = rtl.slower()
    code = sync.summary(clients, rtl.name)
    if slower:
        print(f"The RTL ran {slower:,.0f} times slower than at 156.25 MHz.")
    return code


def measure(broker: Mosquitto, folder: Path, out: Path, shots: int = SHOTS) -> int:
    """Measure the published experiment through a software broker; return the exit code."""
    print(f"\nThe published experiment through {broker.name}; pins and oscilloscope simulated.")
    experiment = folder / "experiment.toml"
    with running(broker), bench(folder, broker) as resource:
        title = f"{broker.name}, pins simulated"
        experiment.write_text(
            experiment_text(broker, resource, shots=shots, span_us=40_000, title=title)
        )
        return tool("mqtick-lab", "run", str(experiment), "--out", str(out), quiet=True)


def experiment(folder: Path, out: Path) -> int:
    """Measure through Mosquitto, simulate on the RTL, and report both; return the exit code."""
    software, hardware = out / "software", out / "hardware"
    if code := measure(any_broker(folder), folder, software):
        return code
    print("\nThe same on the RTL, in simulated time.")
    numbers = ",".join(map(str, SIMULATED))
    if code := tool("mqtick-lab", "hardware", "--out", str(hardware), "--subscribers", numbers):
        return code
    return compare(software, hardware, out=out)


def main() -> int:
    """Run the demo; exit code 0 if the clients found the time and the experiment was run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30, help="how long to watch (default 30)")
    parser.add_argument("--out", type=Path, help="folder of both runs and their report")
    args = parser.parse_args()
    out = args.out or Path("runs") / time.strftime("hardware-%Y%m%d-%H%M%S")
    return play(
        "hardware", lambda folder: find_the_time(folder, args.seconds) or experiment(folder, out)
    )


if __name__ == "__main__":
    sys.exit(main())
