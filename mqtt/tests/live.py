"""For tests with a real broker: a node that is connected to it, and certificates for it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from demo.local_broker import Mosquitto, free_port, running
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop


@contextlib.contextmanager
def scripted(answer: Callable[[bytes], bytes | None]) -> Iterator[str]:
    """Be a broker that answers what each connection says first; gives its host and port.

    Of what `answer(first)` gives, b"" hangs up and None says nothing.
    """
    kept: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                kept.append(server.accept()[0])
                kept[-1].settimeout(1)
                with contextlib.suppress(OSError):
                    said = answer(kept[-1].recv(4096))
                    if said:
                        kept[-1].sendall(said)
                    if said == b"":
                        kept[-1].close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)  # which ends the thread
            thread.join()
            for connection in kept:
                connection.close()


class Node:
    """A connection on a loop of its own; keeps all that arrives."""

    def __init__(self, url: str, *, check_dates: bool = True, **broker: Any) -> None:
        self.loop = Loop()
        self.arrivals: list[Arrival] = []
        self.downs: list[str] = []
        broker = {"connect_timeout_s": 2.0, **broker}
        self.connection = Connection(
            self.loop,
            replace(parse_broker_url(url), **broker),
            "node",
            on_publish=self.arrivals.append,
            on_up=lambda: None,
            on_down=self.downs.append,
            check_dates=check_dates,
        )

    def __enter__(self) -> Node:
        self.connection.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.connection.close()
        self.loop.close()

    def until(self, condition: Callable[[], object], timeout_s: float = 30.0) -> None:
        """Run until something is true; fails with what the connection said last."""
        done = self.loop.turn_until(condition, timeout_s)
        assert done, f"not within {timeout_s} s; last error: {self.connection.last_error!r}"

    def up(self) -> Node:
        """Wait for the connection."""
        self.until(lambda: self.connection.connected)
        return self

    def subscribed(self, *topics: str) -> bool:
        """Subscribe and return what the broker said."""
        answers: list[bool] = []
        self.connection.subscribe(topics, answers.append)
        self.until(lambda: answers)
        return answers[0]

    def error(self) -> str:
        """Wait for an error and return it."""
        self.until(lambda: self.connection.last_error)
        return self.connection.last_error


def openssl(folder: Path, *arguments: str) -> None:
    """Run openssl in a folder."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


AUTHORITYS_KEY = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")


def authority(folder: Path, name: str, extensions: Sequence[str] = AUTHORITYS_KEY) -> None:
    """Make an authority, unless it is there."""
    if (folder / f"{name}.pem").exists():
        return
    openssl(
        folder,
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "30", "-subj", f"/CN={name}"),
        *extensions,
    )
    (folder / f"{name}.index").touch()
    (folder / f"{name}.serial").write_text("1000\n")
    (folder / f"{name}.cnf").write_text(
        f"[ca]\ndefault_ca = {name}\n[{name}]\ndatabase = {name}.index\nserial = {name}.serial\n"
        "new_certs_dir = .\ndefault_md = sha256\npolicy = policy\nunique_subject = no\n"
        "copy_extensions = copy\nx509_extensions = host\n[policy]\ncommonName = supplied\n"
        "[host]\nsubjectKeyIdentifier = hash\nauthorityKeyIdentifier = keyid\n"
    )


def certificate(
    folder: Path,
    name: str,
    *,
    signed_by: str = "authority",
    names: str = "DNS:localhost,IP:127.0.0.1",
    days: tuple[int, int] = (-1, 30),
) -> tuple[Path, Path]:
    """Make a certificate and its key, valid from now + days[0] to now + days[1]."""
    authority(folder, signed_by)
    openssl(
        folder,
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"),
        *("-addext", f"subjectAltName={names}"),
    )
    start, end = (
        time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + day * 86_400)) for day in days
    )
    openssl(
        folder,
        *("ca", "-batch", "-config", f"{signed_by}.cnf", "-cert", f"{signed_by}.pem"),
        *("-keyfile", f"{signed_by}.key", "-in", f"{name}.csr", "-out", f"{name}.pem"),
        *("-startdate", start, "-enddate", end, "-notext"),
    )
    return folder / f"{name}.pem", folder / f"{name}.key"


class House:
    """One Mosquitto that listens in every way, and with certificates of every kind."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lines = folder, list[str]()
        self.urls: dict[str, str] = {}
        authority(folder, "lax-authority", extensions=())
        certificate(folder, "stranger", signed_by="strangers")
        certificate(folder, "kitchen")
        good = self._tls("mqtts")
        self._listen("mqtts", good)
        self._listen("ws", "protocol websockets")
        self._listen("wss", "protocol websockets", good)
        self._listen("other", self._tls("other", names="DNS:other.lan"))
        self._listen("expired", self._tls("expired", days=(-20, -10)))
        self._listen("future", self._tls("future", days=(10, 20)))
        self._listen("lax", self._tls("lax", signed_by="lax-authority"))
        self._listen("private", self._tls("private"), "require_certificate true")
        self._lines.append(f"listener 0 {folder}/broker.sock")
        self.broker = Mosquitto(folder, "\n".join(self._lines))
        self.urls |= {"mqtt": self.broker.url, "unix": f"unix://{folder}/broker.sock"}

    def _tls(self, name: str, **made: Any) -> str:
        pem, key = certificate(self.folder, name, **made)
        return f"cafile {self.folder}/authority.pem\ncertfile {pem}\nkeyfile {key}"

    def _listen(self, name: str, *lines: str) -> None:
        port = free_port()
        scheme = name if name.startswith("ws") else "mqtts"
        self.urls[name] = f"{scheme}://127.0.0.1:{port}"
        self._lines += [f"listener {port} 127.0.0.1", *lines]

    def node(self, name: str = "mqtt", *, authority: str = "authority", **broker: Any) -> Node:
        """Return a node for one of the listeners; `authority` is whom it believes."""
        url = self.urls[name]
        if url.startswith(("mqtts", "wss")) and authority:
            broker["ca_file"] = f"{self.folder}/{authority}.pem"
        return Node(url, **broker)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("b"))
    with running(made.broker):
        yield made
