"""Brokers of MQTT over UDP that say nothing of who is subscribed, also between namespaces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from demo.local_broker import free_port
from demo.local_sensors import SensorBroker, until
from mqtick.lab.hardware.program import find_model

ROOT = Path(__file__).resolve().parent.parent


class Plain(SensorBroker):
    """`mqtick-broker` without its feed."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        super().__init__(folder, address, udp=True)


class Reference(Plain):
    """What a broker of ours does over UDP, in plain Python."""

    name = "reference"

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self.folder, self.address, self.port, self.is_udp = folder, address, free_port(), True
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """What runs it."""
        door = [sys.executable, "-m", "broker.rtl.sim.udp_door"]
        return [*door, "--host", self.address, "--port", str(self.port)]

    def start(self) -> None:
        """Start and wait until it answers."""
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), cwd=ROOT, stdout=log, stderr=log)
        until(self.answers, "the broker does not answer")


class Model(Reference):
    """The RTL of the hardware broker as a program (simulated)."""

    name = "rtl"

    def command(self) -> list[str]:
        """What runs it."""
        return [str(find_model()), "live", "--listen", f"{self.address}:{self.port}"]
