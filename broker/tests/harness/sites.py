"""Sites for the tests of `mqtick-join`: each has a broker, a node before it, and clients."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.conformance.client import V5, Client
from broker.tests.harness.events import PATIENCE_S, until
from broker.tests.harness.servers import Server
from demo.local_broker import Mosquitto, free_port, program, running, wait_for_port

JOIN = Path(__file__).resolve().parents[2] / "server/target/debug/mqtick-join"
_numbers = itertools.count(1)
MARKS = [
    pytest.mark.broker,
    pytest.mark.skipif(program("mosquitto") is None, reason=Mosquitto.missing),
    pytest.mark.skipif(not JOIN.exists(), reason="mqtick-join is not built: make test-broker does"),
]


def hello(
    node: str = "abc", *, version: int = 4, key: int = 5, index: str = "0/1", rest: str = "x"
) -> str:
    """The client identifier of a node."""
    return f"mqtick-join/{version}/{node}/{key:x}/{index}/{rest}"


class Site:
    """A node and the broker behind it."""

    def __init__(
        self,
        folder: Path,
        broker: Mosquitto | Server,
        *,
        neighbours: Sequence[str] = (),
        lines: str = "",
        tables: str = "",
        listener: str = "",
        url: str | None = None,
        keep_alive_s: int = 2,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.broker, self.port = folder, broker, free_port()
        self.options = options
        self.environment = {**os.environ, **(environment or {})}
        self.name = folder.name
        self.log = folder / "node.log"
        self.control = folder / "control"
        self.config = folder / "join.toml"
        urls = ", ".join(f'"{one}"' for one in neighbours)
        listeners = f'[[listener]]\naddress = "127.0.0.1:{self.port}"\n{listener}'
        if "[neighbours]" not in tables:
            tables = f"[neighbours]\n{tables}"
        own = f"[neighbours]\nurls = [{urls}]\nkeep_alive_s = {keep_alive_s}"
        tables = tables.replace("[neighbours]", own)
        self.config.write_text(
            f'name = "{self.name}"\ncontrol = "{self.control}"\n{lines}\n{listeners}\n'
            f'[broker]\nurl = "{url or broker.url}"\n{tables}\n'
        )
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients and other nodes find the node."""
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self, *, listens: bool = True) -> None:
        """Start the node, which listens then."""
        with self.log.open("ab") as log:
            command = [str(JOIN), "--config", str(self.config), *self.options]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)
        if listens:
            wait_for_port(self.port, self.process)

    def kill(self) -> None:
        """End it as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it as systemd does; it must end well and must not have panicked."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(PATIENCE_S) == 0
        assert "panicked" not in self.log.read_text()

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `mqtick-join status` and the like for this node."""
        command = [str(JOIN), *words, "--control", str(self.control)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def status(self) -> dict[str, Any]:
        """Its status, once it has processed everything that came before."""
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(PATIENCE_S)
            one.connect(str(self.control))
            one.sendall(b"status --json\n")
            answer = b"".join(iter(lambda: one.recv(65536), b""))
        return dict(json.loads(answer))

    def now(self, name: str) -> int:
        """One of its numbers."""
        status = self.status()
        return int({**status["counts"], **status["now"]}[name])

    def topology(self) -> dict[str, Any]:
        """The tree."""
        return dict(json.loads(self.ask("topology", "--json").stdout))

    def says(self, what: str) -> None:
        """Wait until its log has that."""
        until(lambda: what in self.log.read_text(), f"no {what!r} in {self.log.read_text()}")

    def client(self, name: str, version: int = V5, **options: Any) -> Client:
        """A client of the node's, connected."""
        client = Client(("127.0.0.1", self.port), version, name)
        assert client.connect(**options).reason == 0
        return client


def settled(*sites: Site) -> None:
    """Wait until all nodes know each other, have their brokers and have told what they want."""

    for site in sites:
        until(partial(_knows, site, len(sites)), f"{site.name}: {site.ask('status').stdout}")
    idle(*sites)


def idle(*sites: Site) -> None:
    """Wait until nothing is on its way between these nodes.

    A node answers once it has processed everything that came, and has written the results: they are
    at the next node then. So after as many rounds as there are nodes, news of one has reached all
    the others. If no status has changed in these rounds, nothing is on its way any more.
    """
    waits = ("unconfirmed", "broker_waiting", "neighbours_waiting")
    rounds: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    while len(rounds) <= len(sites) or any(one != rounds[-1] for one in rounds[-len(sites) - 1 :]):
        assert time.monotonic() < end, [site.ask("status").stdout for site in sites]
        found = [site.status() for site in sites]
        if any(one["now"][name] for one in found for name in waits):
            rounds.clear()
        else:
            rounds.append([(one["now"], one["counts"]) for one in found])


def _knows(site: Site, nodes: int) -> bool:
    status = site.status()
    return bool(status["broker_connected"] and status["now"]["nodes"] == nodes)


def wanted(site: Site, count: int) -> None:
    """Wait until a node knows so many filters, of its clients or of others."""
    until(lambda: site.now("filters_known") == count, f"not {count} filters at {site.name}")


def works(here: Site, there: Site, writer: Client | None = None) -> None:
    """Check that messages go from one site to the other, also those of a client from before."""
    settled(here, there)
    topic = f"probe-{next(_numbers)}"
    reader = there.client(topic)
    reader.subscribe(topic)
    settled(here, there)
    sender = writer or here.client(f"{topic}-writer")
    sender.publish(topic, b"works", qos=1)
    assert reader.message().payload == b"works"
    reader.disconnect()
    if writer is None:
        sender.disconnect()


@contextlib.contextmanager
def running_site(
    folder: Path, broker: Mosquitto | Server | None = None, **options: Any
) -> Iterator[Site]:
    """A site in this new folder: its node runs, and a Mosquitto, or another broker, behind it."""
    folder.mkdir(parents=True, exist_ok=True)
    with running(broker or Mosquitto(folder)) as behind:
        site = Site(folder, behind, **options)
        site.start()
        try:
            yield site
        finally:
            site.stop()


@contextlib.contextmanager
def row_of(folder: Path, *each: Mapping[str, Any]) -> Iterator[list[Site]]:
    """Sites with these options in a row: each node joins the one before, unless it says otherwise.

    Besides those of `Site` there is `kind`, which makes its broker in a folder.
    """
    with contextlib.ExitStack() as open_ones:
        sites: list[Site] = []
        for letter, given in zip("abcdefgh", each, strict=False):
            options = {"neighbours": [one.url for one in sites[-1:]], **given}
            own = folder / f"site-{letter}"
            own.mkdir()
            broker = options.pop("kind", Mosquitto)(own)
            sites.append(open_ones.enter_context(running_site(own, broker, **options)))
        yield sites


@contextlib.contextmanager
def joined(
    folder: Path, brokers: Sequence[type[Mosquitto]], lines: str = ""
) -> Iterator[list[Site]]:
    """Sites in a row, each with a broker of its kind, which know each other."""
    with row_of(folder, *({"kind": kind, "lines": lines} for kind in brokers)) as sites:
        settled(*sites)
        yield sites
