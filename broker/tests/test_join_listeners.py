"""Clients of a node over TLS, WebSocket and a Unix socket; and too many of them."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.conformance.client import V3, V5, Carrier, Client
from broker.conformance.websocket import WebSocket
from broker.tests.harness.events import PATIENCE_S, until
from broker.tests.harness.sites import MARKS, Site, row_of, settled
from demo.local_broker import free_port
from tests.rig import Authority

pytestmark = MARKS
Way = tuple[str, Callable[[], Carrier]]
"""The configuration of a listener, and how to connect to it."""


def over_unix(folder: Path) -> Way:
    """A Unix socket."""
    path = str(folder / "socket")

    def connect() -> Carrier:
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        return made

    return f'path = "{path}"', connect


def over_websocket(_: Path) -> Way:
    """WebSocket."""
    port = free_port()
    lines = f'address = "127.0.0.1:{port}"\ntransport = "websocket"'
    return lines, lambda: WebSocket(("127.0.0.1", port), PATIENCE_S)


def over_tls(folder: Path) -> Way:
    """TLS over TCP."""
    authority, port = Authority(folder), free_port()
    certificate, key = authority.issue("node")
    tls = f'[listener.tls]\ncertificate = "{certificate}"\nkey = "{key}"'
    trust = ssl.create_default_context(cafile=str(authority.certificate))

    def connect() -> Carrier:
        made = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        return trust.wrap_socket(made, server_hostname="127.0.0.1")

    return f'address = "127.0.0.1:{port}"\n{tls}', connect


@pytest.mark.parametrize(
    "kind", [over_unix, over_websocket, pytest.param(over_tls, marks=pytest.mark.needs("openssl"))]
)
@pytest.mark.parametrize("version", [V3, V5])
def test_a_client_of_each_kind_of_listener_is_served_by_both_sites(
    kind: Callable[[Path], Way], version: int, tmp_path: Path
) -> None:
    lines, connect = kind(tmp_path)
    with row_of(tmp_path, {"listener": f"[[listener]]\n{lines}\n"}, {}) as (here, there):
        settled(here, there)

        def client(name: str) -> Client:
            made = Client(("", 0), version, name, connect())
            assert made.connect().reason == 0
            return made

        near, far = client("near"), there.client("far")
        near.subscribe("to/near")
        far.subscribe("to/far")
        settled(here, there)
        long = b"x" * 300_000  # does not fit one TLS record, frame or read
        writer = client("writer")
        for qos in (1, 2):
            writer.publish("to/far", long, qos=qos)
            assert far.message().payload == long
            far.publish("to/near", long, qos=qos)
            assert near.message().payload == long
        near.disconnect()
        writer.close()
        until(lambda: here.now("clients") == 0, "both are gone")


@pytest.mark.needs("openssl")
def test_octets_that_are_no_tls_and_no_websocket_end_their_connection_only(tmp_path: Path) -> None:
    ways = [over_tls(tmp_path), over_websocket(tmp_path)]
    more = "".join(f"[[listener]]\n{lines}\n" for lines, _ in ways)
    with row_of(tmp_path, {"listener": more}) as (site,):
        settled(site)
        for lines, connect in ways:
            port = int(lines.partition('"127.0.0.1:')[2].partition('"')[0])
            for wrong in (b"\x10\x0c\0\4MQTT\4\2\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n", bytes(400)):
                with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as stranger:
                    stranger.sendall(wrong)
                    with contextlib.suppress(ConnectionResetError):
                        stranger.shutdown(socket.SHUT_WR)
                        while stranger.recv(4096):
                            pass
            after = Client(("", 0), V5, "after", connect())
            assert after.connect().reason == 0


def test_more_connections_than_the_limit_are_refused_counted_and_told_once(tmp_path: Path) -> None:
    with row_of(tmp_path, {"tables": "[limits]\nconnections = 5\n"}) as (site,):
        settled(site)
        with contextlib.ExitStack() as open_ones:
            for _ in range(30):
                one = socket.create_connection(("127.0.0.1", site.port), PATIENCE_S)
                open_ones.enter_context(one)
            until(lambda: site.now("refused_full") >= 20, "most are refused")
            said = site.log.read_text()
            assert 1 <= said.count("limits.connections, 5, is reached") < 5
        client = until(lambda: reached(site), "there is room again")
        client.publish("t", b"works", qos=1)


def reached(site: Site) -> Client | None:
    """A client of a node that had no room for it a moment ago."""
    with contextlib.suppress(AssertionError, OSError):
        return site.client("client")
    return None
