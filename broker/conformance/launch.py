"""Starts the broker that is to be judged, and says which one it is."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from demo.hardware import free_udp_port
from demo.local_broker import Mosquitto, free_port, program, wait_for_port
from demo.local_programs import wait_until
from mqtick.lab.hardware.program import ModelError, find_model

USER, PASSWORD, ALLOWED = "limited", b"secret", "allowed/"
"""The one user of a guarded broker, and the beginning of the only topics that are open to it."""


class Judged(Protocol):
    """A broker under test."""

    name: str
    version: str
    address: tuple[str, int]
    websocket: tuple[str, int] | None
    """Where it speaks WebSocket, if it does."""

    def alive(self) -> bool:
        """Whether it still runs, as far as can be known."""

    def start(self) -> None:
        """Start it, or start it again."""

    def stop(self) -> None:
        """End it, if it was started here."""


class NotInstalledError(Exception):
    """There is no such broker on this machine."""


def password_line(user: str, password: bytes, rounds: int = 101) -> str:
    """A line of a password file in Mosquitto's format."""
    salt = b"conformance!"
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, rounds)
    encoded = "$".join(base64.b64encode(each).decode() for each in (salt, digest))
    return f"{user}:$7${rounds}${encoded}\n"


def write_rules(folder: Path) -> tuple[Path, Path]:
    """A password file and an access list in Mosquitto's formats, for a guarded broker."""
    passwords, rules = folder / "passwd", folder / "acl"
    passwords.write_text(password_line(USER, PASSWORD))
    rules.write_text(f"user {USER}\ntopic readwrite {ALLOWED}#\n")
    for file in (passwords, rules):
        file.chmod(0o600)
    return passwords, rules


class LaunchedMosquitto:
    """Mosquitto as it is installed, with little more than listeners configured."""

    name = "mosquitto"

    def __init__(self, folder: Path, *, guarded: bool) -> None:
        binary = program("mosquitto")
        if binary is None:
            raise NotInstalledError(Mosquitto.missing)
        said = subprocess.run([binary, "-h"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"version (\S+)", said)
        self.version = found[1] if found else "unknown"
        self.websocket = None if guarded else ("127.0.0.1", free_port())
        if self.websocket:
            lines = f"listener {self.websocket[1]} 127.0.0.1\nprotocol websockets"
        else:
            passwords, rules = write_rules(folder)
            lines = f"password_file {passwords}\nacl_file {rules}"
        self._broker = Mosquitto(folder, lines, anonymous=not guarded)
        self.address = ("127.0.0.1", self._broker.port)

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._broker.process is not None and self._broker.process.poll() is None

    def start(self) -> None:
        """Start the process and wait until it listens."""
        self._broker.start()
        if self.websocket and self._broker.process:
            wait_for_port(self.websocket[1], self._broker.process)

    def stop(self) -> None:
        """End the process."""
        self._broker.stop()


class LaunchedMqtick:
    """`mqtick-broker` from a path, with little more than listeners configured."""

    name = "mqtick-broker"

    def __init__(self, folder: Path, path: str, *, guarded: bool, kept: bool) -> None:
        self.address = ("127.0.0.1", free_port())
        self.websocket = None if guarded else ("127.0.0.1", free_port())
        lines = ["[[listener]]", f'address = "127.0.0.1:{self.address[1]}"']
        if self.websocket:
            lines += ["[[listener]]", f'address = "127.0.0.1:{self.websocket[1]}"']
            lines += ['transport = "websocket"', "[access]", "anonymous = true"]
        else:
            passwords, rules = write_rules(folder)
            lines += ["[access]", "anonymous = false"]
            lines += [f'password_file = "{passwords}"', f'acl_file = "{rules}"']
        if kept:
            lines += ["[store]", f'path = "{folder / "store"}"']
        config = folder / "broker.toml"
        config.write_text("\n".join(lines) + "\n")
        self._command = [*shlex.split(path), "--config", str(config)]
        self._log = folder / "log"
        try:
            said = subprocess.run(
                [*shlex.split(path), "--version"], capture_output=True, text=True, check=False
            ).stdout.split()
        except OSError as error:
            raise NotInstalledError(f"{path}: {error}") from None
        self.version = said[-1] if said else "unknown"
        self._process: subprocess.Popen[bytes] | None = None

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        for _, port in filter(None, (self.address, self.websocket)):
            wait_for_port(port, self._process)

    def stop(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Running:
    """A broker that somebody else runs, whichever it is."""

    name, version = "running", "unknown"
    websocket: tuple[str, int] | None = None

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = (host.strip("[]"), int(port))

    def alive(self) -> bool:
        """Not known."""
        return True

    def start(self) -> None:
        """It runs."""

    def stop(self) -> None:
        """Not ours."""


class Udp:
    """A broker on UDP: the reference, the RTL in simulation, `mqtick=PATH`, or one that runs."""

    name = "mqtt-udp"
    websocket: tuple[str, int] | None = None

    def __init__(self, folder: Path, which: str) -> None:
        self._folder, self._which = folder, which
        self._process: subprocess.Popen[str] | None = None
        self._call: list[str] | None = None
        self.address = ("127.0.0.1", 0)
        if which == "reference":
            self.version = "reference"
            self._call = [sys.executable, "-u", "-m", "broker.rtl.sim.udp_door"]
        elif which == "model":
            self.version = "RTL, simulated"
            try:
                model = str(find_model())
            except ModelError as error:
                raise NotInstalledError(str(error)) from None
            self.address = ("127.0.0.1", free_udp_port())
            self._status = folder / "model.json"
            self._call = [model, "live", "--listen", f"127.0.0.1:{self.address[1]}"]
            self._call += ["--status", str(self._status)]
        elif which.startswith("mqtick="):
            port = free_port()
            self.version, self.address = "mqtick-broker", ("127.0.0.1", port)
            config = folder / "broker.toml"
            place = f'address = "127.0.0.1:{port}"\n'
            udp = f'[udp]\n{place}subnets = ["127.0.0.0/8"]\n'
            config.write_text(f"[[listener]]\n{place}{udp}")
            self._call = [*shlex.split(which.partition("=")[2]), "--config", str(config)]
        else:
            running = Running(which)
            self.version, self.address = running.version, running.address

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._call is None or (self._process is not None and self._process.poll() is None)

    def start(self) -> None:
        """Start the process and wait until it listens."""
        if self._call is None:
            return
        self._process = subprocess.Popen(self._call, stdout=subprocess.PIPE, text=True)
        if self._which == "reference":
            assert self._process.stdout is not None
            said = self._process.stdout.readline()
            self.address = ("127.0.0.1", int(said.rpartition(":")[2]))
        elif self._which.startswith("mqtick="):
            wait_for_port(self.address[1], self._process)  # it opens UDP before
        else:
            process = self._process
            wait_until(
                lambda: process.poll() is not None or self._status.exists(), "the model serves"
            )

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()


def launch(
    folder: Path,
    broker: str,
    address: str | None,
    *,
    guarded: bool = False,
    kept: bool = False,
) -> Judged:
    """Prepare what the command line names; NotInstalledError where it is missing.

    A guarded broker has one user, who may use some topics only. Ours keeps sessions on disk where
    that is asked for.
    """
    kind, _, path = broker.partition("=")
    judged: Judged
    if address:
        if guarded:
            raise NotInstalledError("a broker that runs elsewhere has no access list of ours")
        judged = Running(address)
    elif kind == "mosquitto" and not path:
        judged = LaunchedMosquitto(folder, guarded=guarded)
    elif kind == "mqtick" and path:
        judged = LaunchedMqtick(folder, path, guarded=guarded, kept=kept)
    else:
        raise ValueError(f"--broker {broker}: expected mosquitto or mqtick=PATH")
    return judged
