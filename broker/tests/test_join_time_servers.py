"""Two sites, each with a time server: when one is silent or cut off, the other takes over."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.tests.harness.sites import MARKS, joined, running_site
from broker.tests.harness.timing import LongWire
from demo.local_broker import Mosquitto
from tests.rig import FLEET, Rig, Server, Wire, client_lines, fleet_lines

pytestmark = [*MARKS, pytest.mark.slow, pytest.mark.timeout(400)]
FAR, NEAR = 0, 1
# What holds the time alone grows fast, so that the other server is better soon.
POOR_CRYSTAL = "frequency_bound_ppm = 100.0"
UNKNOWN_CRYSTAL = "frequency_bound_ppm = 1000.0\nfrequency_limit_ppm = 1000.0"


class BreakableWire(Wire):
    """A wire that can break: then nothing comes through, but connections stay open."""

    is_broken = False

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while octets := source.recv(65536):
                if not self.is_broken:
                    sink.sendall(octets)

    def mend(self) -> None:
        """Let new connections through from now on."""
        self.is_broken = False
        self.cut()


class FarWire(LongWire):
    """A wire on which everything takes longer than `assumed_path_delay_us`."""

    delay_s = 0.05


@contextlib.contextmanager
def two_servers(
    tmp_path: Path, rig: Rig, worse: int
) -> Iterator[tuple[BreakableWire, dict[int, Server], Callable[[int], None]]]:
    """Two sites with a time server each, one with a worse root distance, and a client.

    The third value: a function that waits until the client uses a server, and checks at each look
    that its interval contains the true time.
    """
    with (
        joined(tmp_path, [Mosquitto]) as (there,),
        contextlib.closing(BreakableWire(there.port)) as wire,
        running_site(tmp_path / "here", neighbours=[wire.url]) as here,
    ):
        keys = rig.keys(*fleet_lines(FLEET)), rig.keys(*client_lines("c1", FLEET))
        servers = {}
        for number, site in ((FAR, there), (NEAR, here)):
            config = rig.new_folder("settings") / "server.toml"
            config.write_text(f"trusted_root_distance_us = {3_000.0 if number == worse else 0.0}\n")
            more = ("--config", str(config), "--keys-file", keys[0])
            servers[number] = rig.server(site.url, *more, number=number)
            servers[number].wait_ready()
        settings = rig.new_folder("settings") / "client.toml"
        settings.write_text(f"[estimator]\n{POOR_CRYSTAL}\n")
        client = rig.client(here.url, "c1", "--config", str(settings), "--keys-file", keys[1])

        def goes_by(number: int) -> None:
            def look(values: dict[str, Any]) -> bool:
                if values["state"] != "unsynchronised":
                    error_ns, bound_ns = client.look()
                    assert abs(error_ns) <= bound_ns, (error_ns, bound_ns, values)
                chosen = values["chosen"]
                return chosen is not None and values["servers"][chosen]["server"] == number

            client.wait_for(look, f"it goes by server {number}", 120.0)

        yield wire, servers, goes_by


@pytest.mark.parametrize("worse", [NEAR, FAR], ids=["the far one is better", "the near one is"])
def test_the_other_sites_time_server_takes_over_inside_the_bound_and_gives_way_again(
    worse: int, tmp_path: Path, rig: Rig
) -> None:
    with two_servers(tmp_path, rig, worse) as (wire, servers, goes_by):
        better = FAR if worse == NEAR else NEAR
        goes_by(better)
        for _ in range(2):
            if better == FAR:
                wire.is_broken = True
            else:
                servers[NEAR].stop(signal.SIGKILL)
            goes_by(worse)
            if better == FAR:
                wire.mend()
            else:
                servers[NEAR].start()
            goes_by(better)


def test_a_server_whose_broadcasts_alone_are_heard_takes_over_from_none_that_was_asked(
    tmp_path: Path, rig: Rig
) -> None:
    """There are no keys, the access list lets no request out, and the link takes 50 ms."""
    rules = tmp_path / "acl"
    rules.write_text("topic write mqtick/t/+\ntopic write mqtick/s/+\n")
    access = f'[access]\nacl_file = "{rules}"'
    with (
        joined(tmp_path, [Mosquitto]) as (there,),
        contextlib.closing(FarWire(there.port)) as wire,
        running_site(tmp_path / "here", neighbours=[wire.url], tables=access) as here,
    ):
        far = rig.server(there.url, number=FAR)
        near = rig.server(here.url, number=NEAR)
        for server in (far, near):
            server.wait_ready()
        settings = rig.new_folder("settings") / "client.toml"
        settings.write_text(f"[estimator]\n{UNKNOWN_CRYSTAL}\n")
        client = rig.client(here.url, "c1", "--config", str(settings))

        def hears_both(values: dict[str, Any]) -> bool:
            states = {row["server"]: row["state"] for row in values["servers"]}
            return states == {FAR: "synchronised", NEAR: "synchronised"}

        client.wait_for(hears_both, "it hears both", 60.0)
        assert client.row(FAR)["bound_is_assumed"]
        near.stop(signal.SIGKILL)

        def is_worse(values: dict[str, Any]) -> bool:
            error_ns, bound_ns = client.look()
            assert abs(error_ns) <= bound_ns, (error_ns, bound_ns, values)
            assert values["servers"][values["chosen"]]["server"] == NEAR
            return bound_ns > 2 * int(client.row(FAR)["bound_ns"])

        client.wait_for(is_worse, "what it knows is wider than what it would assume", 120.0)
