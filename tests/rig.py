"""What the end-to-end tests are made of: brokers, our programs as processes, keys, certificates."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from demo.local_broker import Mosquitto, program
from demo.local_programs import true_error_ns, wait_until
from mqtick.client.interval import Now, NowError, now_from
from mqtick.protocol.auth import derive_broadcast_key, derive_client_key
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings
from mqtick.service import StatusError, read_status

T = TypeVar("T")
US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
MODULES = {"mqtick-timeserver": "mqtick.timeserver.cli", "mqtick-client": "mqtick.client.cli"}


class Program:
    """One of our programs as a process of its own, with its log and its status."""

    def __init__(self, folder: Path, command: str, *arguments: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.command = folder, command
        self.arguments = [*arguments, "--state-folder", str(folder)]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it said since the first start."""
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""

    def start(self) -> None:
        """Start it, or start it again; what it wrote before is gone."""
        (self.folder / "status.json").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", MODULES[self.command], *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def status(self) -> dict[str, Any]:
        """What it says about itself; empty before it says anything."""
        try:
            return dict(read_status(self.folder / "status.json").values)
        except StatusError:
            return {}

    def wait_for(
        self, condition: Callable[[dict[str, Any]], T], what: str, timeout_s: float = 15.0
    ) -> T:
        """Wait until its status fulfils a condition."""

        def look() -> T | None:
            assert self.process is not None
            assert self.process.poll() is None, f"{self.command} ended:\n{self.log}"
            values = self.status()
            return condition(values) if values else None

        try:
            found = wait_until(look, what, timeout_s)
        except AssertionError as error:
            status = json.dumps(self.status(), indent=1)
            raise AssertionError(f"{error}\n{self.log}\n{status}") from None
        assert found is not None
        return found

    def refused(self, reason: str) -> int:
        """How many messages it refused for that reason."""
        return int(self.status().get("refused", {}).get(reason, 0))

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """End it; returns the exit code."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        process.send_signal(signal.SIGCONT)
        process.send_signal(with_signal)
        try:
            return process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{self.command} did not end:\n{self.log}") from None


class Server(Program):
    """A time server that serves this host's clock, or a virtual one."""

    def wait_ready(self) -> None:
        """Wait until it serves time."""
        self.wait_for(lambda values: values["done"].get("times", 0) >= 1, "the server publishes")


class Client(Program):
    """A client with a virtual clock, so that its true error is known."""

    clock: VirtualClockSettings
    reference: VirtualClock | None = None
    """The clock that the server serves; None: this host's."""

    def run_with(self, clock: VirtualClockSettings) -> None:
        """Start with a clock that is wrong by a known amount."""
        self.clock = clock
        self.arguments += ["--virtual-clock", clock.to_text()]
        self.start()

    def now(self) -> Now:
        """What it knows of the present; NowError when that is nothing."""
        return now_from(read_status(self.folder / "status.json"))

    def look(self) -> tuple[int, int]:
        """Return (true error of its estimate, its stated bound) now, ns."""
        now = self.now()
        return true_error_ns(now, self.clock, self.reference), now.bound_ns

    def is_right(self, within_ns: int | None = None) -> bool:
        """Whether it is synchronised, and the truth inside its bound (and within a limit)."""
        try:
            if self.now().state != "synchronised":
                return False
            error_ns, bound_ns = self.look()
        except (NowError, StatusError):
            return False
        return abs(error_ns) <= bound_ns and (within_ns is None or abs(error_ns) <= within_ns)

    def wait_synchronised(self, timeout_s: float = 15.0) -> None:
        """Wait until it says that it is synchronised; the truth has to be in its bound then."""
        self.wait_for(
            lambda values: values["state"] == "synchronised", "the client synchronises", timeout_s
        )
        assert self.is_right(), self.look()

    def row(self, server: int = 0) -> dict[str, Any]:
        """What it says about one server; empty while it does not know it."""
        rows = self.status().get("servers", [])
        return next((row for row in rows if row["server"] == server), {})

    def samples(self, kind: str, verdict: str, server: int = 0) -> int:
        """How many samples of a kind met a verdict."""
        return sum(
            row["count"]
            for row in self.row(server).get("verdicts", [])
            if (row["kind"], row["verdict"]) == (kind, verdict)
        )


class Rig:
    """Starts whatever a test needs, and ends all of it."""

    def __init__(self) -> None:
        # A short path: the name of a socket has 108 octets.
        self.folder = Path(tempfile.mkdtemp(prefix="mqtick-"))
        self.folder.chmod(0o755)
        self._stack = contextlib.ExitStack()
        self._count = 0

    def close(self) -> None:
        """End everything."""
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def on_close(self, call: Callable[[], object]) -> None:
        """Call something at the end."""
        self._stack.callback(call)

    def new_folder(self, name: str) -> Path:
        """Return a new folder."""
        self._count += 1
        folder = self.folder / f"{self._count}-{name}"
        folder.mkdir()
        return folder

    def broker(self, lines: str = "", *, anonymous: bool = True) -> Mosquitto:
        """Start a Mosquitto."""
        broker = Mosquitto(self.new_folder("broker"), lines, anonymous=anonymous)
        broker.start()
        self._stack.callback(broker.stop)
        return broker

    def server(self, url: str, *arguments: str, number: int = 0, start: bool = True) -> Server:
        """Start a time server that trusts the clock it serves."""
        server = Server(
            self.new_folder(f"server{number}"),
            "mqtick-timeserver",
            *("--broker", url, "--number", str(number), "--trust-system-clock"),
            *arguments,
        )
        self._stack.callback(server.stop)
        if start:
            server.start()
        return server

    def client(
        self,
        url: str,
        name: str = "c1",
        *arguments: str,
        offset_ns: int = 3 * MS,
        clock: VirtualClockSettings | None = None,
    ) -> Client:
        """Start a client whose clock is wrong."""
        client = Client(
            self.new_folder(name),
            "mqtick-client",
            *("--broker", url, "--name", name, "--fast", "--exchange-interval-s", "1"),
            *arguments,
        )
        self._stack.callback(client.stop)
        client.run_with(
            clock or VirtualClockSettings.starting_now(offset_ns=offset_ns, frequency_ppb=20_000.0)
        )
        return client

    def synchronised(self) -> tuple[Mosquitto, Server, Client]:
        """Start a broker, a server and a client, and wait until the client is synchronised."""
        broker = self.broker()
        server = self.server(broker.url)
        server.wait_ready()
        client = self.client(broker.url)
        client.wait_synchronised()
        return broker, server, client

    def keys(self, *lines: str) -> str:
        """Write a key file; returns its path."""
        file = self.new_folder("keys") / "keys"
        file.write_text("".join(f"{line}\n" for line in lines))
        file.chmod(0o640)
        return str(file)

    def secret(self, text: str) -> str:
        """Write a password file; returns its path."""
        file = self.new_folder("secret") / "password"
        file.write_text(f"{text}\n")
        file.chmod(0o600)
        return str(file)


FLEET, NEXT_FLEET = bytes(range(32)), bytes(range(100, 132))


def fleet_lines(*keys: bytes) -> list[str]:
    """The lines of the server's key file."""
    return [f"fleet {key.hex()}" for key in keys]


def client_lines(name: str, *keys: bytes) -> list[str]:
    """The lines of a client's key file."""
    return [
        line
        for key in keys
        for line in (
            f"broadcast {derive_broadcast_key(key).hex()}",
            f"client {derive_client_key(key, name).hex()}",
        )
    ]


def password_file(folder: Path, users: dict[str, str]) -> Path:
    """Write a password file for Mosquitto."""
    file = folder / "passwords"
    file.write_text("".join(f"{user}:{password}\n" for user, password in users.items()))
    file.chmod(0o600)
    subprocess.run(
        [str(program("mosquitto_passwd")), "-U", str(file)], check=True, capture_output=True
    )
    return file


class Authority:
    """Makes certificates of any dates; `openssl ca` is the one command of OpenSSL 3.0 that can."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self.folder = folder
        self.certificate = folder / "ca.crt"
        (folder / "index").touch()
        (folder / "serial").write_text("01\n")
        (folder / "ca.conf").write_text(
            "[ca]\ndefault_ca = here\n[here]\n"
            f"database = {folder}/index\nserial = {folder}/serial\nnew_certs_dir = {folder}\n"
            f"certificate = {folder}/ca.crt\nprivate_key = {folder}/ca.key\n"
            "default_md = sha256\npolicy = any\nunique_subject = no\nx509_extensions = server\n"
            "[any]\ncommonName = supplied\n"
            f"[server]\nsubjectAltName = IP:{address}\nbasicConstraints = CA:false\n"
            "subjectKeyIdentifier = hash\nauthorityKeyIdentifier = keyid\n"
            "[authority]\nbasicConstraints = critical,CA:true\nkeyUsage = critical,keyCertSign\n"
            "subjectKeyIdentifier = hash\n"
            "[req]\ndistinguished_name = name\n[name]\n"
        )
        self._request("ca", "test authority")
        self._sign("ca", "20000101000000Z", "20991231235959Z", "-selfsign", "-extensions=authority")

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(
            ["openssl", *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def _request(self, name: str, subject: str) -> None:
        self._openssl(
            *("req", "-config", "ca.conf", "-new", "-nodes", "-subj", f"/CN={subject}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )

    def _sign(self, name: str, since: str, until: str, *more: str) -> None:
        words = [part for word in more for part in word.split("=")]
        keys = ["-keyfile", "ca.key"] if "-selfsign" in more else []
        self._openssl(
            *("ca", "-batch", "-notext", "-config", "ca.conf", "-in", f"{name}.csr"),
            *("-out", f"{name}.crt", "-startdate", since, "-enddate", until, *words, *keys),
        )

    def issue(self, subject: str) -> tuple[Path, Path]:
        """Make a certificate for 127.0.0.1 with this common name; where it and its key are."""
        self._request(subject, subject)
        self._sign(subject, "20200101000000Z", "20991231235959Z")
        return self.folder / f"{subject}.crt", self.folder / f"{subject}.key"

    def listener(self, port: int, since: str = "20200101", until: str = "20991231") -> str:
        """Make a certificate for 127.0.0.1 and return the lines of a TLS listener with it."""
        name = f"broker{port}"
        self._request(name, "test broker")
        self._sign(name, f"{since}000000Z", f"{until}235959Z")
        return (
            f"listener {port} 127.0.0.1\ncertfile {self.folder}/{name}.crt\n"
            f"keyfile {self.folder}/{name}.key\n"
        )


class Wire:
    """A way to the broker that can be cut; it mends itself."""

    def __init__(self, port: int) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.to, self.ends = port, list[socket.socket]()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.server.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
                self.ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while octets := source.recv(65536):
                sink.sendall(octets)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End the connections that go through it."""
        ends, self.ends = self.ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let nobody through any more."""
        self.server.close()
        self.cut()
