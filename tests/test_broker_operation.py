"""`mqtick-broker` as a service: sockets of systemd, metrics, one limit for memory, the units."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from broker.conformance.client import CONNACK, V5, Client
from demo.local_broker import MqtickBroker, free_port

pytestmark = pytest.mark.broker

ANYBODY = "[access]\nanonymous = true\n"
ON_SYSTEMD = f'[[listener]]\nsystemd = "mqtt"\n{ANYBODY}'


class Program:
    """The broker with a configuration of its own, and the sockets that it is passed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "broker.toml"
        self.running: list[subprocess.Popen[bytes]] = []

    def command(self, lines: str) -> list[str]:
        """How it is started."""
        self.config.write_text(lines)
        return [MqtickBroker(self.folder).built(), "--config", str(self.config)]

    def start(
        self, lines: str, passed: list[socket.socket] | None = None, names: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start it; as systemd does, where sockets are passed: as descriptors 3 and up."""
        command = self.command(lines)
        passed = passed or []
        if passed:
            # Copies first, far away: a socket may be where another one has to be.
            far = "".join(f"exec {80 + at}<&{one.fileno()}; " for at, one in enumerate(passed))
            near = "".join(f" {3 + at}<&{80 + at}" for at in range(len(passed)))
            said = f"LISTEN_PID=$$ LISTEN_FDS={len(passed)} LISTEN_FDNAMES={names}"
            command = ["bash", "-c", f'{far}export {said}; exec "$0" "$@"{near}', *command]
        with (self.folder / "broker.log").open("ab") as log:
            process = subprocess.Popen(
                command, stderr=log, pass_fds=[one.fileno() for one in passed]
            )
        self.running.append(process)
        return process

    def refused(self, *arguments: object) -> str:
        """What it says when it does not start."""
        (self.folder / "broker.log").unlink(missing_ok=True)
        assert self.start(*arguments).wait(60) == 1  # type: ignore[arg-type]
        said = self.log()
        assert said.count("<3>") == 1
        return said

    def log(self) -> str:
        """What it said."""
        return (self.folder / "broker.log").read_text()

    def stop(self) -> None:
        """End all."""
        for process in self.running:
            process.terminate()
            process.wait(60)
        self.running.clear()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    yield program
    program.stop()
    log = tmp_path / "broker.log"
    assert "panicked" not in (log.read_text() if log.exists() else "")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener


def client(port: int, name: str = "c") -> Client:
    """A connected client."""
    client = Client(("127.0.0.1", port), V5, name)
    assert client.connect().reason == 0
    return client


T = TypeVar("T")


def wait(found: Callable[[], T]) -> T:
    """Wait until there is something, and return it."""
    end = time.monotonic() + 60
    while not (something := found()):
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.02)
    return something


# -- ports -----------------------------------------------------------------------------------------


def test_port_0_is_one_port_for_all_threads(program: Program) -> None:
    program.start(f'threads = 4\n[[listener]]\naddress = "127.0.0.1:0"\n{ANYBODY}')
    port = wait(lambda: re.search(r"listens on 127\.0\.0\.1:(\d+)\n", program.log()))[1]
    assert port != "0"
    for number in range(40):
        client(int(port), f"c{number}")


def test_a_second_broker_does_not_take_half_of_the_clients_of_the_first(program: Program) -> None:
    lines = f'threads = 2\n[[listener]]\naddress = "127.0.0.1:{free_port()}"\n{ANYBODY}'
    program.start(lines)
    wait(lambda: "listens on" in program.log())
    assert "Address already in use" in program.refused(lines)


# -- metrics ---------------------------------------------------------------------------------------

METRICS = "[metrics]\naddress = '127.0.0.1:0'\n"


class Watched:
    """A broker with metrics."""

    def __init__(self, program: Program, lines: str = "", *, first: str = "") -> None:
        self.port = free_port()
        listener = f'[[listener]]\naddress = "127.0.0.1:{self.port}"\n'
        self.process = program.start(f"{first}{listener}{ANYBODY}{METRICS}{lines}")
        at = r"metrics are at http://127\.0\.0\.1:(\d+)/metrics"
        self.metrics = int(wait(lambda: re.search(at, program.log()))[1])
        wait(lambda: "listens on" in program.log())

    def ask(self, request: bytes) -> bytes:
        """Send a request, and return all that is answered."""
        with socket.create_connection(("127.0.0.1", self.metrics)) as asking:
            asking.settimeout(60)
            answer = b""
            with contextlib.suppress(ConnectionError):
                asking.sendall(request)
                while octets := asking.recv(65536):
                    answer += octets
            return answer

    def page(self) -> str:
        """The metrics."""
        answer = self.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        head, _, body = answer.decode().partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK\r\n")
        assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head.split("\r\n")
        assert f"Content-Length: {len(body)}" in head.split("\r\n")
        return body

    def values(self) -> dict[str, int]:
        """The metrics' values by name and labels, without what all names begin with."""
        lines = [one for one in self.page().splitlines() if not one.startswith("#")]
        pairs = (line.removeprefix("mqtick_broker_").rsplit(" ", 1) for line in lines)
        return {name: int(value) for name, value in pairs}


def test_the_metrics_say_what_clients_did(program: Program) -> None:
    watched = Watched(program, "[limits]\nqueue = 128\npacket = 128")
    one, other = client(watched.port, "one"), client(watched.port, "other")
    one.subscribe("a", "b/+")
    other.subscribe("a")
    other.send(*(other.encode.publish("a", b"x", retain=True) for _ in range(5)))
    assert [one.message().payload for _ in range(5)] == [b"x"] * 5
    dumb, wrong = (Client(("127.0.0.1", watched.port), V5, name) for name in ("dumb", "wrong"))
    wrong.send(b"\x30\x03\x00\x01a")
    other.refused(b"\x30\xff\xff\x7f")
    wanted = {
        "clients": 1,
        'connections{transport="mqtt"}': 2,
        'connections{transport="tls"}': 0,
        "sessions": 1,
        "subscriptions": 2,
        "connections_accepted_total": 4,
        'connections_refused_total{reason="protocol"}': 1,
        'connections_ended_total{reason="too_large"}': 1,
        "messages_received_total": 5,
        "messages_sent_total": 10,
        "messages_dropped_total": 0,
        "worker_restarts_total": 0,
    }
    wait(lambda: wanted.items() <= watched.values().items())
    dumb.close()
    assert watched.values()["retained_messages"] >= 1


def test_the_metrics_keep_to_prometheus_rules(program: Program) -> None:
    lines = Watched(program).page().splitlines()
    kinds = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE "))
    helped = {line.split()[2] for line in lines if line.startswith("# HELP ")}
    series = [re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")]
    assert set(kinds) == helped == set(series)
    for name, kind in kinds.items():
        assert re.fullmatch(r"mqtick_broker_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics?x=y HTTP/1.0\n\n", b"200"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metrics/../x HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\n", b"405"),
        (b"\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", b"400"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"GET " + b"/" * 8192 + b"\n\n", b"431"),
        (b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 1400, b"431"),
    ],
)
def test_requests_that_are_odd_get_their_status(
    watched_once: Watched, request_: bytes, status: bytes
) -> None:
    answer = watched_once.ask(request_)
    assert answer.split(b" ")[1] == status
    assert answer.count(b"mqtick_broker_") == 0 or request_.startswith(b"GET /metrics?")


@pytest.fixture(scope="module")
def watched_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    program = Program(tmp_path_factory.mktemp("watched"))
    yield Watched(program)
    program.stop()


def test_a_crowd_that_says_nothing_keeps_nobody_from_the_metrics(watched_once: Watched) -> None:
    """Without end, without a newline, without a word; and those that stay are closed in time."""
    crowd = []
    for number in range(1000):
        one = socket.create_connection(("127.0.0.1", watched_once.metrics))
        crowd.append(one)
        with contextlib.suppress(ConnectionError):
            one.sendall((b"", b"GET /metrics HTTP/1.1\r\n", b"x" * 20_000)[number % 3])
        if number % 100 == 0:
            assert watched_once.values()["uptime_seconds"] >= 0
    for one in crowd:
        one.settimeout(60)
        with contextlib.suppress(ConnectionError):
            while one.recv(4096):
                pass
        one.close()
    assert watched_once.values()["uptime_seconds"] >= 0
    client(watched_once.port)


# -- sockets of systemd ----------------------------------------------------------------------------


def test_who_connects_while_it_restarts_is_served_afterwards(
    program: Program, listening: socket.socket
) -> None:
    port = listening.getsockname()[1]
    program.start(f"threads = 3\n{ON_SYSTEMD}", [listening], "mqtt")
    for number in range(20):
        client(port, f"before{number}")
    program.stop()
    waiting = [Client(("127.0.0.1", port), V5, f"c{number}") for number in range(20)]
    for one in waiting:
        one.send(one.encode.connect(one.id))
    program.start(ON_SYSTEMD, [listening], "mqtt")
    assert {one.expect(CONNACK).reason for one in waiting} == {0}


def test_sockets_of_one_name_are_one_listener_and_names_keep_listeners_apart(
    program: Program, listening: socket.socket, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as second, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        lines = f'[[listener]]\nsystemd = "web"\ntransport = "websocket"\n{ON_SYSTEMD}'
        program.start(lines, [listening, second, local], "mqtt:web:mqtt")
        client(listening.getsockname()[1])
        on_this_host = Client(listening.getsockname(), V5, "local")
        on_this_host.socket.close()
        on_this_host.socket = socket.socket(socket.AF_UNIX)
        on_this_host.socket.connect(str(tmp_path / "socket"))
        assert on_this_host.connect().reason == 0
        with socket.create_connection(second.getsockname()) as web:
            web.sendall(b"GET /other HTTP/1.1\r\n\r\n")
            assert web.recv(100).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    ("kinds", "names", "why"),
    [
        ([], "", "passed no such socket: is the program started by a .socket unit?"),
        (["listens"], "mqtts", "passed no such socket, but: mqtts"),
        (["listens"], "", "passed no such socket, but: unknown"),
        (["listens", "listens"], "mqtt:spare", 'no [[listener]] has: systemd = "spare"'),
        (["datagram"], "mqtt", "takes no connections: the .socket unit needs ListenStream="),
        (["connected"], "mqtt", "takes no connections"),
    ],
)
def test_sockets_that_do_not_fit_are_a_sentence(
    program: Program, kinds: list[str], names: str, why: str
) -> None:
    def made(kind: str) -> socket.socket:
        match kind:
            case "listens":
                return socket.create_server(("127.0.0.1", 0))
            case "datagram":
                return socket.socket(type=socket.SOCK_DGRAM)
        return socket.socketpair()[0]

    assert why in program.refused(ON_SYSTEMD, [made(kind) for kind in kinds], names)


def test_sockets_of_another_process_are_left_alone(
    program: Program, listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTEN_PID", "1")
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert "passed no such socket" in program.refused(ON_SYSTEMD)


@pytest.mark.parametrize("count", ["-1", "99999999", "some", "20"])
def test_descriptors_that_cannot_be_there_are_a_sentence(
    program: Program, listening: socket.socket, count: str
) -> None:
    command = ["bash", "-c", f'LISTEN_PID=$$ LISTEN_FDS={count} exec "$0" "$@"']
    ended = subprocess.run(
        [*command, *program.command(ON_SYSTEMD)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert f"LISTEN_FDS={count}" in ended.stderr


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd is not here")
def test_systemds_own_program_starts_it_with_the_first_connection(program: Program) -> None:
    port = free_port()
    activate = ["systemd-socket-activate", "--fdname=mqtt", f"--listen=127.0.0.1:{port}"]
    with (program.folder / "broker.log").open("ab") as log:
        process = subprocess.Popen([*activate, *program.command(ON_SYSTEMD)], stderr=log)
    program.running.append(process)
    wait(lambda: f"Listening on 127.0.0.1:{port}" in program.log())
    assert "listens on" not in program.log()
    client(port)
