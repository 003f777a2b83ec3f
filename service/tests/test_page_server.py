from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.service.metrics import Metric
from mqtick.service.page_server import MetricsServer, PageError, parse_address

SNAPSHOT = [Metric("mqtick_offset_seconds", 1.5e-6, "Offset.")]


@contextlib.contextmanager
def serving(
    address: str = "127.0.0.1:0", snapshot: Callable[[], Iterable[Metric]] = lambda: SNAPSHOT
) -> Iterator[MetricsServer]:
    server = MetricsServer(address, snapshot)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[MetricsServer]:
    with serving() as made:
        yield made


def scrape(server: MetricsServer) -> str:
    with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=3) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text: str = answer.read().decode()
        return text


def connect(server: MetricsServer) -> socket.socket:
    return socket.create_connection(parse_address(server.address), timeout=30)


def answer_to(server: MetricsServer, request: bytes) -> bytes:
    """Return what came, even if the server did not read everything that was sent."""
    octets = b""
    with connect(server) as client, contextlib.suppress(ConnectionError):
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        while more := client.recv(65536):
            octets += more
    return octets


def test_each_request_gets_a_new_snapshot() -> None:
    count = iter(range(1, 9))
    with serving(snapshot=lambda: [Metric("a_total", next(count), "", "counter")]) as server:
        assert scrape(server).endswith("a_total 1\n")
        assert scrape(server).endswith("a_total 2\n")


def test_loopback_of_ipv6_works() -> None:
    try:
        with serving("[::1]:0") as server:
            assert server.address.startswith("[::1]:")
            assert "mqtick_offset" in scrape(server)
    except PageError as error:
        pytest.skip(f"this machine has no IPv6: {error}")


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"HTTP/1.0 200 "),
        (b"GET /metrics?x=1 HTTP/1.1\nHost: a\n\n", b"HTTP/1.0 200 "),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.0 200 "),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.0 404 "),
        (b"GET /metrics/../x HTTP/1.1\r\n\r\n", b"HTTP/1.0 404 "),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n", b"HTTP/1.0 404 "),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.0 501 "),
        (b"GET /metrics HTTP/2\r\n\r\n", b"Bad request version"),
        (b"\x16\x03\x01\x02\x00\n\n", b"Bad request syntax"),  # a TLS client
        (b"\r\n\r\n", b""),
        (b"", b""),
    ],
)
def test_only_metrics_are_given(server: MetricsServer, request_: bytes, answer: bytes) -> None:
    head, _, body = answer_to(server, request_).partition(b"\r\n\r\n")
    assert head.startswith(answer)
    given = b"200" in answer and request_.startswith(b"GET")
    assert (b"mqtick_offset" in head + body) is given
    assert b"Python" not in head, "nobody needs to know what runs here"
    assert scrape(server).endswith("mqtick_offset_seconds 1.5e-06\n"), "the server goes on"


def test_of_a_request_without_end_8_kib_are_read(server: MetricsServer) -> None:
    with connect(server) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 2000)
        assert client.recv(64).startswith(b"HTTP/1."), "it did not wait for the rest"


@given(st.binary(max_size=100))
@settings(max_examples=50)
def test_no_bytes_stop_the_server_or_are_taken_for_a_request(
    server: MetricsServer, octets: bytes
) -> None:
    assert b"mqtick_offset" not in answer_to(server, octets + b"\r\n\r\n")
    assert server._thread is not None
    assert server._thread.is_alive()


def test_up_to_16_connections_stay_open() -> None:
    with serving() as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(server)) for _ in range(15)]
        assert "mqtick_offset" in scrape(server)
        for client in idle:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)


@pytest.mark.slow
def test_idle_connections_do_not_keep_prometheus_out() -> None:
    with serving() as server:
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


def test_a_slow_client_delays_nobody_and_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqtick.service.page_server._TIMEOUT_S", 0.3)
    with serving() as server, connect(server) as slow:
        began = time.monotonic()
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert "mqtick_offset" in scrape(server)
        with contextlib.suppress(ConnectionError):  # each octet is in time, all together are not
            while time.monotonic() - began < 5:
                slow.sendall(b"x")
                time.sleep(0.1)
        assert time.monotonic() - began < 3


def test_a_client_that_never_reads_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqtick.service.page_server._TIMEOUT_S", 0.3)
    many = [Metric("a", 1, "", labels={"n": f"{n:0200000d}"}) for n in range(40)]
    with serving(snapshot=lambda: many) as server, connect(server) as lazy:
        lazy.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert server._server is not None
        deadline = time.monotonic() + 30
        lazy.recv(1)  # and no more
        while server._server.open:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_snapshot_that_fails_is_a_500_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def snapshot() -> list[Metric]:
        raise RuntimeError("no clock")

    with (
        serving(snapshot=snapshot) as server,
        pytest.raises(urllib.error.HTTPError, match="500"),
    ):
        scrape(server)
    assert "/metrics could not be made" in caplog.text


def test_an_address_in_use_is_a_sentence(server: MetricsServer) -> None:
    said = rf"cannot be served at {server.address}: .*in use; choose another"
    with pytest.raises(PageError, match=said), serving(server.address):
        pass


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_an_address_that_no_interface_has_yet_is_waited_for(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = f"[{address}]" if ":" in address else address
    with serving(f"{host}:0") as server:
        assert server.address.startswith(f"{host}:")
    assert f"no interface has the address {address} yet" in caplog.text


def test_a_name_that_nobody_knows_is_a_sentence() -> None:
    with pytest.raises(PageError, match="cannot be served at"), serving("nowhere.invalid:0"):
        pass


def test_stop_ends_the_thread_and_frees_the_port() -> None:
    with serving() as server, connect(server) as idle:
        assert scrape(server)  # the idle one is accepted by now
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 1
        assert idle.recv(1) == b""
    assert not [thread for thread in threading.enumerate() if thread is server._thread]
    with serving(server.address) as again:
        assert scrape(again)


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
