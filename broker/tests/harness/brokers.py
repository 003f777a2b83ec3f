"""`mqtick-broker` with whatever a test configures, its log, its metrics and clients for it."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.conformance.client import V5, Client
from broker.tests.harness.events import PATIENCE_S, until
from demo.local_broker import MqtickBroker

METRICS = '[metrics]\naddress = "127.0.0.1:0"\n'
_numbers = itertools.count(1)


class Broker(MqtickBroker):
    """The broker. In its configuration, `{port}` stands for its own port.

    `first` comes before the listener that all have: settings without a table, and more listeners.
    """

    def __init__(self, folder: Path, lines: str = "", *, first: str = "") -> None:
        super().__init__(folder)
        self.log_file = folder / "broker.log"
        text = f"{first}\n{self.config.read_text()}{lines}\n"
        self.config.write_text(text.replace("{port}", str(self.port)))

    @property
    def command(self) -> list[str]:
        """How it is started."""
        return [self.built(), "--config", str(self.config)]

    def log(self) -> str:
        """What it said."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def says(self, what: str, times: int = 1) -> None:
        """Wait until it has said that so often."""
        until(lambda: len(re.findall(what, self.log())) >= times, f"no {what!r} in what it says")

    # -- how it ends and goes on

    def send_signal(self, what: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(what)

    def end(self, how: signal.Signals = signal.SIGKILL) -> int:
        """End it, however loaded it is; its exit code."""
        self.send_signal(how)
        assert self.process is not None
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def again(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it and start it again."""
        self.end(how)
        self.start()

    def read_again(self, says: str = "were read again") -> None:
        """Have it read its files again, and wait until it says this once more."""
        before = self.log().count(says)
        self.send_signal(signal.SIGHUP)
        self.says(says, before + 1)

    def refuses(self, *arguments: str, code: int = 1) -> str:
        """The sentence with which it does not start."""
        done = subprocess.run(
            [*self.command, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (code, "")
        return done.stderr.splitlines()[-1]

    # -- clients

    def raw(self, name: str = "", version: int = V5) -> Client:
        """A connection on which nothing was said."""
        return Client(("127.0.0.1", self.port), version, name or f"c{next(_numbers)}")

    def client(self, name: str = "", version: int = V5, **options: Any) -> Client:
        """A connected client."""
        client = self.raw(name, version)
        assert client.connect(**options).reason == 0
        return client

    # -- what it counts

    def report(self, what: str) -> int:
        """A number of `$SYS`, the next time that it is said."""
        watcher = self.client()
        watcher.subscribe(f"$SYS/broker/{what}")
        found = watcher.message()
        while found.retain:
            found = watcher.message()
        return int(found.payload)

    def metrics_at(self) -> tuple[str, int]:
        """Where its metrics are."""
        found = until(lambda: re.search(r"metrics are at http://([^:]+):(\d+)/", self.log()))
        return found[1], int(found[2])

    def ask(self, request: bytes) -> bytes:
        """Send a request where its metrics are, and return all that is answered."""
        with socket.create_connection(self.metrics_at(), PATIENCE_S) as asking:
            answer = b""
            with contextlib.suppress(ConnectionError):
                asking.sendall(request)
                while octets := asking.recv(65536):
                    answer += octets
            return answer

    def metrics(self) -> dict[str, int]:
        """Its metrics by name and labels, without what all names begin with."""
        page = self.ask(b"GET /metrics HTTP/1.0\r\n\r\n").decode().partition("\r\n\r\n")[2]
        lines = [one for one in page.splitlines() if not one.startswith("#")]
        pairs = (line.removeprefix("mqtick_broker_").rsplit(" ", 1) for line in lines)
        return {name: int(value) for name, value in pairs}


class Gateway(Broker):
    """The broker as a gateway: no TCP, sensors at a port of UDP."""

    name = "gateway"

    def __init__(
        self, folder: Path, url: str, mode: str, sn_lines: str = "", lines: str = ""
    ) -> None:
        super().__init__(folder)
        self.log_file = folder / "gateway.log"
        self.config.write_text(
            f'[sn]\naddress = "127.0.0.1:{self.port}"\nsubnets = ["127.0.0.0/8"]\n'
            f'{sn_lines}\n[upstream]\nurl = "{url}"\nmode = "{mode}"\n{lines}\n'
        )

    def _run(self, command: list[str]) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.says("for MQTT-SN")


Launch = Callable[..., Broker]
"""Starts a broker with these lines of configuration, until the test ends."""
