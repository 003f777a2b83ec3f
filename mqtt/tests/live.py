"""For tests with a real broker: a node that is connected to it, and certificates for it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
from local_broker import Amqtt, Mosquitto, Nats, free_port, program, running

__all__ = [
    "Amqtt",
    "Mosquitto",
    "Nats",
    "Node",
    "certificate",
    "free_port",
    "openssl",
    "program",
    "running",
    "turn_until",
]


def turn_until(loop: Loop, condition: Callable[[], object], timeout_s: float = 30.0) -> bool:
    """Turn the loop until something is true; returns whether it became so."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        loop.turn(0.02)
    return True


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
        done = turn_until(self.loop, condition, timeout_s)
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
