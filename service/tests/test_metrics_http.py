from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.service.metrics import Metric
from mqtick.service.metrics_http import MetricsError, MetricsServer, parse_address

SNAPSHOT = [Metric("mqtick_offset_seconds", 1.5e-6, "Offset.")]


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    server = MetricsServer("127.0.0.1:0", lambda: SNAPSHOT)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def fuzzed_server() -> Iterator[MetricsServer]:
    server = MetricsServer("127.0.0.1:0", lambda: SNAPSHOT)
    server.start()
    yield server
    server.stop()


def scrape(server: MetricsServer) -> str:
    with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=3) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text: str = answer.read().decode()
        return text


def connect(server: MetricsServer) -> socket.socket:
    return socket.create_connection(parse_address(server.address), timeout=30)


def answer_to(server: MetricsServer, request: bytes) -> bytes:
    with connect(server) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        octets = b""
        while more := client.recv(65536):
            octets += more
        return octets


def status_of(server: MetricsServer, request: bytes) -> str:
    return answer_to(server, request).partition(b"\r\n")[0].decode()


def test_get_metrics_gives_the_snapshot(server: MetricsServer) -> None:
    assert scrape(server).endswith("mqtick_offset_seconds 1.5e-06\n")
    assert scrape(server), "and again"


def test_each_request_gets_a_new_snapshot() -> None:
    count = iter(range(1, 9))
    server = MetricsServer("127.0.0.1:0", lambda: [Metric("a_total", next(count), "", "counter")])
    server.start()
    assert scrape(server).endswith("a_total 1\n")
    assert scrape(server).endswith("a_total 2\n")
    server.stop()


def test_loopback_of_ipv6_works() -> None:
    server = MetricsServer("[::1]:0", lambda: SNAPSHOT)
    try:
        server.start()
    except MetricsError as error:
        server.stop()
        pytest.skip(f"this machine has no IPv6: {error}")
    assert server.address.startswith("[::1]:")
    assert "mqtick_offset" in scrape(server)
    server.stop()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"),
        (b"GET /metrics?x=1 HTTP/1.1\nHost: a\n\n", "HTTP/1.1 200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"GET /metrics/../x HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"GET /metrics\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"GET /metrics HTTP/2\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\n\n", "HTTP/1.1 400 Bad Request"),  # a TLS client
        (b"GET /" + b"a" * 9000, "HTTP/1.1 431 Request Header Fields Too Large"),
        (
            b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
            "HTTP/1.1 431 Request Header Fields Too Large",
        ),
        (b"GET /metrics HTTP/1.1\r\n", ""),  # it ends in the middle
        (b"", ""),
    ],
)
def test_anything_but_get_metrics_is_refused(
    server: MetricsServer, request_: bytes, status: str
) -> None:
    assert status_of(server, request_) == status
    assert scrape(server), "the server goes on"


@given(st.binary(max_size=100))
@settings(max_examples=50)
def test_no_bytes_stop_the_server(fuzzed_server: MetricsServer, octets: bytes) -> None:
    status = status_of(fuzzed_server, octets + b"\r\n\r\n")
    assert status.startswith("HTTP/1.1 4")


@pytest.mark.slow
def test_idle_connections_do_not_keep_prometheus_out(server: MetricsServer) -> None:
    idle = [connect(server) for _ in range(60)]
    assert "mqtick_offset" in scrape(server)
    # The oldest were closed to make room: at most 16 are open at a time.
    open_now = 0
    for client in idle:
        client.settimeout(0.01)
        try:
            open_now += client.recv(1) != b""
        except TimeoutError:
            open_now += 1
        except ConnectionResetError:
            pass
        client.close()
    assert 0 < open_now <= 16


def test_a_slow_client_delays_nobody_and_is_closed(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqtick.service.metrics_http._TIMEOUT_S", 0.2)
    with connect(server) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert "mqtick_offset" in scrape(server)
        began = time.monotonic()
        assert slow.recv(1) == b"", "closed without an answer"
        assert time.monotonic() - began < 2


def test_a_client_that_never_reads_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqtick.service.metrics_http._TIMEOUT_S", 0.3)
    many = [Metric("a", 1, "", labels={"n": f"{n:0200d}"}) for n in range(40_000)]
    server = MetricsServer("127.0.0.1:0", lambda: many)
    server.start()
    with connect(server) as lazy:
        lazy.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        deadline = time.monotonic() + 30
        while server._connections or not lazy.recv(1, socket.MSG_PEEK):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    server.stop()


def test_a_snapshot_that_fails_is_a_500_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    def snapshot() -> list[Metric]:
        raise RuntimeError("no clock")

    server = MetricsServer("127.0.0.1:0", snapshot)
    server.start()
    with pytest.raises(urllib.error.HTTPError, match="500"):
        scrape(server)
    assert server.failures == 1
    assert "the metrics could not be collected" in caplog.text
    server.stop()


def test_an_address_in_use_is_a_sentence(server: MetricsServer) -> None:
    second = MetricsServer(server.address, lambda: SNAPSHOT)
    with pytest.raises(
        MetricsError, match=rf"cannot be served at {server.address}: .*in use; choose another"
    ):
        second.start()
    second.stop()


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_an_address_that_no_interface_has_yet_is_waited_for(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = f"[{address}]" if ":" in address else address
    server = MetricsServer(f"{host}:0", lambda: SNAPSHOT)
    server.start()
    assert server.address.startswith(f"{host}:")
    assert f"no interface has the address {address} yet" in caplog.text
    server.stop()


def test_a_name_that_nobody_knows_is_a_sentence() -> None:
    server = MetricsServer("no-such-host.invalid:0", lambda: SNAPSHOT)
    with pytest.raises(MetricsError, match="cannot be served at"):
        server.start()
    server.stop()


def test_stop_ends_the_thread_and_frees_the_port(server: MetricsServer) -> None:
    with connect(server):
        server.stop()
    assert not [thread for thread in threading.enumerate() if thread is server._thread]
    again = MetricsServer(server.address, lambda: SNAPSHOT)
    again.start()
    assert scrape(again)
    again.stop()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9752", ("127.0.0.1", 9752)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["", "9752", ":9752", "127.0.0.1", "127.0.0.1:", "::1:9752", "a:65536", "a:-1", "a:²"]
)
def test_a_wrong_address_is_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address|needs brackets|at most 65535"):
        MetricsServer(text, lambda: SNAPSHOT)
