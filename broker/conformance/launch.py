"""Starts the broker that is to be judged, and says which one it is."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Protocol

from demo.local_broker import Mosquitto, free_port, program, wait_for_port


class Judged(Protocol):
    """A broker under test."""

    name: str
    version: str
    address: tuple[str, int]

    def alive(self) -> bool:
        """Whether it still runs, as far as can be known."""

    def stop(self) -> None:
        """End it, if it was started here."""


class NotInstalledError(Exception):
    """There is no such broker on this machine."""


class LaunchedMosquitto:
    """Mosquitto as it is installed, with nothing but a listener configured."""

    name = "mosquitto"

    def __init__(self, folder: Path) -> None:
        binary = program("mosquitto")
        if binary is None:
            raise NotInstalledError(Mosquitto.missing)
        said = subprocess.run([binary, "-h"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"version (\S+)", said)
        self.version = found[1] if found else "unknown"
        self._broker = Mosquitto(folder)
        self._broker.start()
        self.address = ("127.0.0.1", self._broker.port)

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._broker.process is not None and self._broker.process.poll() is None

    def stop(self) -> None:
        """End the process."""
        self._broker.stop()


class LaunchedMqtick:
    """`mqtick-broker` from a path, with nothing but a listener configured."""

    name = "mqtick"

    def __init__(self, folder: Path, path: str) -> None:
        self.address = ("127.0.0.1", free_port())
        config = folder / "broker.toml"
        config.write_text(
            f'[[listener]]\naddress = "127.0.0.1:{self.address[1]}"\n\n[access]\nanonymous = true\n'
        )
        command = [*shlex.split(path), "--config", str(config)]
        try:
            said = subprocess.run(
                [*shlex.split(path), "--version"], capture_output=True, text=True, check=False
            ).stdout.split()
        except OSError as error:
            raise NotInstalledError(f"{path}: {error}") from None
        self.version = said[-1] if said else "unknown"
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for_port(self.address[1], self._process)

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Running:
    """A broker that somebody else runs, whichever it is."""

    name, version = "running", "unknown"

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = (host.strip("[]"), int(port))

    def alive(self) -> bool:
        """Not known."""
        return True

    def stop(self) -> None:
        """Not ours."""


def launch(folder: Path, broker: str, address: str | None) -> Judged:
    """Start what the command line names; NotInstalledError where it is missing."""
    if address:
        return Running(address)
    kind, _, path = broker.partition("=")
    if kind == "mosquitto" and not path:
        return LaunchedMosquitto(folder)
    if kind == "mqtick" and path:
        return LaunchedMqtick(folder, path)
    raise ValueError(f"--broker {broker}: expected mosquitto or mqtick=PATH")
