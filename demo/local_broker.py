"""A private broker on a free loopback port, for the demo, the tests and the benchmarks."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar


def program(name: str) -> str | None:
    """Find a program, also outside an ordinary user's PATH."""
    here = Path(__file__).resolve().parent.parent / ".venv/debian/usr"
    places = (os.environ.get("PATH", ""), "/usr/sbin", "/sbin", here / "sbin", here / "bin")
    return shutil.which(name, path=os.pathsep.join(map(str, places)))


_BUILT = Path(__file__).resolve().parent.parent / "broker/server/target"


def newest_build(name: str, kinds: Sequence[str] = ("release", "debug")) -> str | None:
    """Return where a program of ours in Rust is; of several builds, the last one."""
    there = [path for kind in kinds if (path := _BUILT / kind / name).exists()]
    return str(max(there, key=lambda path: path.stat().st_mtime)) if there else None


_END_S = 20.0
_claims: deque[socket.socket] = deque()


def free_port() -> int:
    """Return a loopback TCP port that is unused and will not be handed out by the kernel.

    It lies below those that the kernel gives to connections, and is claimed by an abstract socket:
    until a broker listens on it, no other process gets it from here.
    """
    while True:
        port, claim = random.randrange(10_000, 30_000), socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0mqtick-port-{port}")
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        if len(_claims) > 100:  # whoever wanted the oldest has it by now
            _claims.popleft().close()
        return port


def wait_for_port(port: int, process: subprocess.Popen[Any], limit_s: float = 30.0) -> None:
    """Wait until the process listens; RuntimeError when it ends or takes too long."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with code {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} did not listen on port {port} within {limit_s:g} s")


class Mosquitto:
    """A private Mosquitto, with whatever configuration lines a test needs."""

    name = "Mosquitto"
    mqtt_version = "5"
    missing = "mosquitto is not installed: apt-get install mosquitto"

    def __init__(self, folder: Path, lines: str = "", *, anonymous: bool = True) -> None:
        self.folder, self.port = folder, free_port()
        self.config = folder / f"{self.name}.conf"
        self.config.write_text(f"{self._configuration(anonymous)}{lines}\n")
        self.process: subprocess.Popen[bytes] | None = None

    def _configuration(self, anonymous: bool) -> str:
        # Started by root, Mosquitto becomes the user that it is told to be.
        user = pwd.getpwuid(os.getuid()).pw_name
        return (
            f"user {user}\nlistener {self.port} 127.0.0.1\nset_tcp_nodelay true\n"
            f"allow_anonymous {'true' if anonymous else 'false'}\nmax_connections -1\n"
            "max_queued_messages 100000\n"
        )

    def _program(self) -> str | None:
        return program("mosquitto")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait until it listens."""
        found = self._program()
        if found is None:
            raise FileNotFoundError(self.missing)
        self._run([found, "-c", str(self.config)])

    def _run(self, command: list[str]) -> None:
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for_port(self.port, self.process)

    def stop(self) -> None:
        """Stop it; one that does not end soon (Mosquitto after a crowd of thousands) is killed."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


class Amqtt(Mosquitto):
    """The broker from Python packages, where Mosquitto cannot be installed."""

    name = "amqtt"
    mqtt_version = "3.1.1"
    missing = "neither Mosquitto nor amqtt is installed: run make setup-demo"

    def _configuration(self, anonymous: bool) -> str:
        return (
            f"listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:{self.port}\n"
            "plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n"
            f"    allow_anonymous: {'true' if anonymous else 'false'}\n"
        )

    def _program(self) -> str | None:
        beside = Path(sys.executable).with_name("amqtt")
        return str(beside) if beside.exists() else None


class Nats(Mosquitto):
    """nats-server as an MQTT broker; what it stores is in the folder and is removed with it."""

    name = "nats-server"
    mqtt_version = "3.1.1"
    missing = "nats-server is not installed: apt-get install nats-server"

    def _configuration(self, anonymous: bool) -> str:
        # MQTT sessions live in JetStream, which wants a named server; no port for NATS's own
        # protocol (-1: any free one).
        return (
            "server_name: mqtick\nhost: 127.0.0.1\nport: -1\n"
            f'jetstream {{ store_dir: "{self.folder / "jetstream"}" }}\n'
            f"mqtt {{ host: 127.0.0.1, port: {self.port} }}\n"
        )

    def _program(self) -> str | None:
        return program("nats-server")


class MqtickBroker(Mosquitto):
    """Our broker, as `make broker-programs` built it.

    Attributes:
        builds: Which builds may be taken, the newest one: what measures takes no debug build.
    """

    name = "mqtick-broker"
    missing = "broker/server/target/release/mqtick-broker is not built: run make broker-programs"
    builds: tuple[str, ...] = ("release",)

    def _configuration(self, anonymous: bool) -> str:
        return (
            f'[[listener]]\naddress = "127.0.0.1:{self.port}"\n'
            f"[access]\nanonymous = {'true' if anonymous else 'false'}\n"
        )

    def built(self) -> str:
        """Where it is; FileNotFoundError where it is not."""
        found = self._program()
        if found is None:
            raise FileNotFoundError(self.missing)
        return found

    def _program(self) -> str | None:
        return newest_build("mqtick-broker", self.builds)

    def start(self) -> None:
        """Start and wait until it listens."""
        self._run([self.built(), "--config", str(self.config)])


class UdpReference(Mosquitto):
    """What a broker of ours does over UDP: its reference in plain Python, as a program."""

    name = "the reference of our broker over UDP"
    mqtt_version = "3.1.1"

    def _configuration(self, anonymous: bool) -> str:
        return ""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"mqtt+udp://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait until it listens."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "broker.rtl.sim.udp_door", "--port", str(self.port)],
            cwd=Path(__file__).resolve().parent.parent,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise RuntimeError(f"{self.process.args!r} does not listen on port {self.port}")


class Startable(Protocol):
    """A broker, or what passes for one."""

    def start(self) -> None:
        """Start, and wait until it listens."""

    def stop(self) -> None:
        """End it."""


Kind = TypeVar("Kind", bound=Startable)


@contextlib.contextmanager
def running(broker: Kind) -> Iterator[Kind]:
    """Run a broker for the length of a with block."""
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
