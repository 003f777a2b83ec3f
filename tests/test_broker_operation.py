"""`mqtick-broker` as a service: sockets of systemd, metrics, one limit for memory, the units."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import mmap
import os
import re
import resource
import select
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from broker.conformance.client import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V3,
    V5,
    Client,
    ClosedError,
)
from broker.conformance.launch import PASSWORD, USER
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
            # Copies first, behind all of them: a socket may be where another one has to be.
            free = max(9, *(one.fileno() for one in passed)) + 1
            far = "".join(f"exec {free + at}<&{one.fileno()}; " for at, one in enumerate(passed))
            near = "".join(f" {3 + at}<&{free + at}" for at in range(len(passed)))
            said = f"LISTEN_PID=$$ LISTEN_FDS={len(passed)} LISTEN_FDNAMES={names}"
            command = ["bash", "-c", f'{far}export {said}; exec "$0" "$@"{near}', *command]
        with (self.folder / "broker.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stderr=log,
                pass_fds=[one.fileno() for one in passed],
                env={**os.environ, "JOURNAL_STREAM": "as systemd sets it"},
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


def wait(found: Callable[[], T | None]) -> T:
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


def test_only_the_journal_is_told_how_grave_a_line_is(program: Program) -> None:
    nowhere = program.command(f'[[listener]]\naddress = "192.0.2.1:1883"\n{ANYBODY}')
    for marks in ("", "<3>"):
        environment = {**os.environ, "JOURNAL_STREAM": "as systemd sets it"}
        if not marks:
            del environment["JOURNAL_STREAM"]
        done = subprocess.run(
            nowhere, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
        assert done.stderr.splitlines()[-1].startswith(f"{marks}192.0.2.1:1883: ")


def test_a_second_broker_does_not_take_half_of_the_clients_of_the_first(program: Program) -> None:
    lines = f'threads = 2\n[[listener]]\naddress = "127.0.0.1:{free_port()}"\n{ANYBODY}'
    program.start(lines)
    wait(lambda: "listens on" in program.log())
    assert "Address already in use" in program.refused(lines)


def test_when_it_runs_out_of_descriptors_others_come_in_as_some_leave(program: Program) -> None:
    port = free_port()
    lines = f'threads = 1\n[[listener]]\naddress = "127.0.0.1:{port}"\n{ANYBODY}'
    process = program.start(lines)
    wait(lambda: "listens on" in program.log())
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (40, 40))
    inside = []
    crowd = [Client(("127.0.0.1", port), V5, f"c{number}") for number in range(60)]
    for one in crowd:
        one.send(one.encode.connect(one.id))
    wait(lambda: "could not be accepted" in program.log())
    for one in crowd:
        assert one.expect(CONNACK).reason == 0
        inside.append(one)
        if len(inside) == 20:  # fewer than fit
            inside.pop(0).close()
    assert len(program.log().splitlines()) < 60


def test_a_flood_of_passwords_from_one_address_leaves_places_to_others(
    program: Program, tmp_path: Path
) -> None:
    salt, rounds = b"conformance!", 1_000
    digest = hashlib.pbkdf2_hmac("sha512", PASSWORD, salt, rounds)
    encoded = "$".join(base64.b64encode(each).decode() for each in (salt, digest))
    passwords = tmp_path / "passwd"
    passwords.write_text(f"{USER}:$7${rounds}${encoded}\n")
    passwords.chmod(0o600)
    port = free_port()
    access = f'[access]\npassword_file = "{passwords}"\n'
    program.start(f'[[listener]]\naddress = "127.0.0.1:{port}"\n{access}')
    wait(lambda: "listens on" in program.log())
    flood = [Client(("127.0.0.1", port), V5, f"flood{number}") for number in range(400)]
    for one in flood:
        one.send(one.encode.connect(one.id, username=USER, password=b"wrong"))
    other = Client(("127.0.0.1", port), V5, "other")
    other.socket.close()
    other.socket = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
    assert other.connect(username=USER, password=PASSWORD).reason == 0
    assert {one.expect(CONNACK).reason for one in flood} == {0x86, 0x89}


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
    assert 0 <= watched_once.values()["uptime_seconds"] < 3_600, "since the start"
    client(watched_once.port)


# -- one limit for all memory ----------------------------------------------------------------------

MIB = 1 << 20
BESIDE_THE_LIMIT = 64 * MIB
"""What the process may take beyond `limits.memory`: a few packets a thread, freed pieces that the
allocator keeps, and 4 KiB for each client."""


def limited(memory: int, queue: int = MIB) -> str:
    """Lines for a limit of all memory, with packets of 1 MiB at most."""
    return f"[limits]\nmemory = {memory}\npacket = {MIB}\nqueue = {queue}\n"


def held(watched: Watched) -> int:
    """What clients make the broker hold."""
    return sum(n for name, n in watched.values().items() if name.startswith("memory_bytes"))


def ended(watched: Watched) -> int:
    """How many connections of clients it ended."""
    pairs = watched.values().items()
    return sum(number for name, number in pairs if name.startswith("connections_ended_total"))


def most_memory(process: subprocess.Popen[bytes], field: str = "VmHWM") -> int:
    """The most memory that it had at any time, octets."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def test_a_crowd_that_reads_nothing_cannot_take_more_than_the_limit(program: Program) -> None:
    """Without the limit it would hold 8 MiB for each of them."""
    watched = Watched(program, limited(32 * MIB, 8 * MIB), first="threads = 2\n")
    crowd = [client(watched.port, f"deaf{number}") for number in range(20)]
    for one in crowd:
        one.subscribe("large")
    hearer, sender = client(watched.port, "hearer"), client(watched.port, "sender")
    hearer.subscribe("small")
    before = most_memory(watched.process, "VmRSS")
    large = sender.encode.publish("large", bytes(1_000_000))
    for number in range(18):
        sender.send(large, sender.encode.publish("small", b"%d" % number))
        assert hearer.message().payload == b"%d" % number
    wait(lambda: watched.values()["messages_dropped_total"] > 0)
    assert held(watched) <= 32 * MIB
    assert most_memory(watched.process) <= before + 32 * MIB + BESIDE_THE_LIMIT
    assert watched.values()["clients"] == 22
    assert ended(watched) == 0
    for one in crowd:
        one.vanish()
    wait(lambda: held(watched) < MIB)


def test_half_of_the_limit_is_not_for_what_is_retained(program: Program) -> None:
    watched = Watched(program, limited(8 * MIB))
    sender = client(watched.port)

    def answer(topic: str, payload: bytes, *, retain: bool) -> int:
        sender.send(sender.encode.publish(topic, payload, qos=1, retain=retain, packet_id=1))
        return sender.expect(PUBACK).reason

    answers = [answer(f"a/{number}", bytes(200_000), retain=True) for number in range(60)]
    kept = answers.index(0x97)
    assert 15 <= kept <= 21
    assert set(answers[kept:]) == {0x97}
    assert answer("a", bytes(200_000), retain=False) == 0x10, "nobody is subscribed"
    hearer = client(watched.port, "hearer")
    hearer.subscribe("a/0")
    assert len(hearer.message().payload) == 200_000
    for number in range(kept):
        sender.send(sender.encode.publish(f"a/{number}", b"", retain=True))
    assert answer("a/1", bytes(200_000), retain=True) == 0x10, "kept again"


def test_packets_that_do_not_end_cost_those_who_send_them_their_connections(
    program: Program,
) -> None:
    watched = Watched(program, limited(8 * MIB), first="threads = 2\n")
    other = client(watched.port, "other")
    crowd = [client(watched.port, f"c{number}") for number in range(30)]
    for one in crowd:
        with contextlib.suppress(ConnectionError):
            one.send(one.encode.publish("a", bytes(1_000_000))[:-1])
    wait(lambda: watched.values()['connections_ended_total{reason="quota"}'] >= 20)
    assert held(watched) <= 8 * MIB
    other.subscribe("a")
    other.send(other.encode.publish("a", b"x" * 3000))
    assert other.message().payload == b"x" * 3000


def test_topic_aliases_are_part_of_the_limit(program: Program) -> None:
    """Also where nothing but whole packets comes, one at a time."""
    watched = Watched(program, f"{limited(8 * MIB)}topic_alias = 65535\n")
    one = client(watched.port)
    for alias in range(1, 200):
        named = [("topic_alias", alias)]
        one.send(one.encode.publish("x" * 60_000, b"", qos=1, packet_id=1, properties=named))
        answer = one.receive()
        if answer.kind == DISCONNECT:
            break
    assert (answer.kind, answer.reason) == (DISCONNECT, 0x97)
    assert 60 < alias < 80, "half of it"


def test_identifiers_that_are_not_released_are_part_of_the_limit(program: Program) -> None:
    watched = Watched(program, limited(8 * MIB))
    numbers = range(1, 60_001)
    crowd = [client(watched.port, f"c{number}") for number in range(4)]
    one = crowd[-1]
    flood = [one.encode.publish("a", b"", qos=2, packet_id=number) for number in numbers]
    for each in crowd:
        reasons = []
        for first in range(0, len(flood), 1000):
            each.send(*flood[first : first + 1000])
            reasons += [each.expect(PUBREC).reason for _ in range(1000)]
    assert held(watched) < 8 * MIB + 65_536, "each may hold 4 KiB in any case"
    assert reasons.index(0x97) > 1000
    for number, reason in zip(numbers, reasons, strict=True):
        if reason == 0x97:
            continue
        one.send(one.encode.ack(PUBREL, number))
        assert one.expect(PUBCOMP).reason == 0
    one.send(flood[-1])
    assert one.expect(PUBREC).reason == 0x10, "nobody is subscribed"


def test_subscriptions_are_part_of_the_limit(program: Program) -> None:
    watched = Watched(program, limited(8 * MIB))
    one = client(watched.port)
    filters = [(f"{'x/' * 100}{number}", 0) for number in range(300)]
    reasons = one.subscribe(*filters).reasons
    assert 100 < reasons.index(0x97) < 200
    one.unsubscribe(*(pattern for pattern, _ in filters))
    assert one.subscribe("a").reasons == [2]


def test_what_waits_for_those_who_are_away_is_part_of_the_limit(program: Program) -> None:
    watched = Watched(program, limited(8 * MIB, 8 * MIB))
    kept = [("session_expiry", 3600)]
    for number in range(10):
        away = Client(("127.0.0.1", watched.port), V5, f"away{number}")
        assert away.connect(clean=False, properties=kept).reason == 0
        away.subscribe((f"a/{number}", 1))
        away.vanish()
    wait(lambda: watched.values()["clients"] == 0)
    sender = client(watched.port)
    for number in range(300):
        topic = f"a/{number % 10}"
        sender.send(sender.encode.publish(topic, bytes(100_000), qos=1, packet_id=1))
        assert sender.expect(PUBACK).reason in (0, 0x97)
    assert held(watched) <= 8 * MIB
    first = Client(("127.0.0.1", watched.port), V5, "away0")
    assert first.connect(clean=False, properties=kept).session_present
    assert len(first.message().payload) == 100_000


# -- its end, and the next start -------------------------------------------------------------------


def crowd_of(port: int, count: int) -> list[Client]:
    """Connected clients with sessions that are kept, each subscribed to its own name."""
    crowd = [Client(("127.0.0.1", port), V5, f"crowd{number}") for number in range(count)]
    for one in crowd:
        assert one.connect(clean=False, properties=[("session_expiry", 3600)]).reason == 0
        one.subscribe((one.id, 1))
    return crowd


def told(crowd: list[Client]) -> list[Client]:
    """Those to whom something was said."""
    sockets = {one.socket: one for one in crowd if isinstance(one.socket, socket.socket)}
    readable, _, _ = select.select(list(sockets), [], [], 60)
    return [sockets[one] for one in readable]


@pytest.mark.parametrize("threads", [1, 3])
def test_at_its_end_clients_are_told_one_after_another_and_the_others_served_until_then(
    program: Program, tmp_path: Path, threads: int
) -> None:
    """And what comes for those who went is kept for them."""
    port = free_port()
    listener = f'threads = {threads}\n[[listener]]\naddress = "127.0.0.1:{port}"\n{ANYBODY}'
    limits = "[limits]\nconnections_a_second = 10\nstop_s = 15\n"
    lines = f'{listener}{limits}[store]\npath = "{tmp_path}/store"\n'
    process = program.start(lines)
    wait(lambda: "listens on" in program.log())
    crowd = crowd_of(port, 40)
    process.terminate()
    (first, *_) = told(crowd)
    assert first.expect(DISCONNECT).reason == 0x8B
    wait(lambda: reached(port, "late") is None)
    staying = [one for one in crowd if one not in told(crowd)]
    for sender, hearer in itertools.pairwise(staying):
        with contextlib.suppress(AssertionError):  # one of them was told meanwhile
            sender.publish(first.id, b"kept", qos=1)
            sender.publish(hearer.id, b"heard", qos=1)
            assert hearer.message().payload == b"heard"
            break
    else:
        pytest.fail("nobody was left who was served")
    process.terminate()  # again: at once
    assert process.wait(60) == 0
    assert staying[-1].expect(DISCONNECT).reason == 0x8B
    program.start(lines)
    again = wait(lambda: reached(port, first.id))
    assert again.connect(clean=False, properties=[("session_expiry", 3600)]).session_present
    assert again.message().payload == b"kept"


def reached(port: int, name: str) -> Client | None:
    """A connection, if somebody listens."""
    with contextlib.suppress(ConnectionRefusedError):
        return Client(("127.0.0.1", port), V5, name)
    return None


def test_few_clients_do_not_hold_up_its_end_and_strangers_do_not_at_all(program: Program) -> None:
    port = free_port()
    limits = "[limits]\nconnections_a_second = 1\nstop_s = 15\n"
    process = program.start(f'[[listener]]\naddress = "127.0.0.1:{port}"\n{ANYBODY}{limits}')
    wait(lambda: "listens on" in program.log())
    one = client(port)
    stranger = Client(("127.0.0.1", port), V5, "stranger")
    process.terminate()
    assert one.expect(DISCONNECT).reason == 0x8B
    stranger.ended()
    assert process.wait(60) == 0


def test_systemd_hears_how_long_the_end_takes(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears:
        hears.bind(str(tmp_path / "notify"))
        hears.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        lines = f'[[listener]]\naddress = "127.0.0.1:{port}"\n{ANYBODY}'
        process = program.start(f"{lines}[limits]\nconnections_a_second = 1\nstop_s = 3\n")
        assert hears.recv(100) == b"READY=1"
        crowd = [client(port, f"c{number}") for number in range(5)]
        process.terminate()
        assert hears.recv(100) == b"STOPPING=1"
        assert hears.recv(100) == b"EXTEND_TIMEOUT_USEC=13000000"
        assert {one.expect(DISCONNECT).reason for one in crowd} == {0x8B}


def test_who_comes_faster_than_allowed_waits_and_is_served(program: Program) -> None:
    port = free_port()
    lines = f'threads = 2\n[[listener]]\naddress = "127.0.0.1:{port}"\n{ANYBODY}'
    program.start(f"{lines}[limits]\nconnections_a_second = 100\n")
    wait(lambda: "listens on" in program.log())
    crowd = [Client(("127.0.0.1", port), V5, f"c{number}") for number in range(400)]
    for one in crowd:
        one.send(one.encode.connect(one.id))
    assert {one.expect(CONNACK).reason for one in crowd} == {0}


def test_connections_come_in_evenly_not_all_at_the_beginning_of_a_second(program: Program) -> None:
    """But for those of the last tenth of a second, which may be made up for."""
    port = free_port()
    lines = f'threads = 1\n[[listener]]\naddress = "127.0.0.1:{port}"\n{ANYBODY}'
    program.start(f"{lines}[limits]\nconnections_a_second = 50\n")
    wait(lambda: "listens on" in program.log())
    began_s = time.monotonic()
    crowd = [Client(("127.0.0.1", port), V5, f"c{number}") for number in range(50)]
    for one in crowd:
        one.send(one.encode.connect(one.id))
    assert {one.expect(CONNACK).reason for one in crowd} == {0}
    assert time.monotonic() - began_s > 0.85


# -- a worker that fails ---------------------------------------------------------------------------

NO_TIME = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile int *failures;
__attribute__((constructor)) static void begin(void) {
  int file = open(getenv("MQTICK_FAILURES"), O_RDWR);
  failures = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
  char name[16] = "";
  if (clock == CLOCK_MONOTONIC && *failures && !prctl(PR_GET_NAME, name) &&
      !strncmp(name, "worker", 6) && __sync_bool_compare_and_swap(failures, 1, 0)) {
    errno = EINVAL;
    return -1;
  }
  return (int)syscall(SYS_clock_gettime, clock, now);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_clients_of_a_worker_that_failed_are_told_and_served_when_they_come_back(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rust's library panics where the system has no time; once, here, in a worker."""
    (tmp_path / "no_time.c").write_text(NO_TIME)
    words = "cc -shared -fPIC -o no_time.so no_time.c"
    subprocess.run(words.split(), cwd=tmp_path, check=True)
    (tmp_path / "failures").write_bytes(bytes(4096))
    monkeypatch.setenv("MQTICK_FAILURES", str(tmp_path / "failures"))
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "no_time.so"))
    watched = Watched(program, first="threads = 1\n")
    kept = {"clean": False, "properties": [("session_expiry", 3600)]}
    new = Client(("127.0.0.1", watched.port), V5, "new")
    assert new.connect(**kept).reason == 0
    new.subscribe(("a", 1))
    old = Client(("127.0.0.1", watched.port), V3, "old")
    assert old.connect().reason == 0
    with (tmp_path / "failures").open("r+b") as file, mmap.mmap(file.fileno(), 4096) as failures:
        failures[:4] = (1).to_bytes(4, "little")
    assert new.expect(DISCONNECT).reason == 0x80
    with pytest.raises(ClosedError):
        new.receive()
    with pytest.raises(ClosedError):
        old.receive()
    sender = client(watched.port, "sender")
    sender.publish("a", b"x", qos=1)
    again = Client(("127.0.0.1", watched.port), V5, "new")
    assert again.connect(**kept).session_present
    assert again.message().payload == b"x"
    values = watched.values()
    assert values["worker_restarts_total"] == 1
    assert values['connections_ended_total{reason="unspecified"}'] == 2
    log = program.log()
    assert log.count("panicked") == 1
    assert "<3>a worker failed and begins anew" in log
    (tmp_path / "broker.log").write_text("")


# -- the units -------------------------------------------------------------------------------------

UNITS = Path(__file__).parent.parent / "broker/server/systemd"


@pytest.fixture(scope="module")
def _systemd(tmp_path_factory: pytest.TempPathFactory) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path_factory.mktemp("unit") / "plain.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    if said := verify(unit):
        pytest.skip(f"systemd-analyze does not work here: {said}")


def verify(*units: Path) -> str:
    """What systemd complains of."""
    command = ["systemd-analyze", "verify", "--recursive-errors=no", *map(str, units)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


@pytest.mark.usefixtures("_systemd")
def test_systemd_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    for unit in UNITS.iterdir():
        # The programs need not be here.
        text = re.sub(r"^(Exec\w+)=\S+", r"\1=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    assert verify(*tmp_path.iterdir()) == ""


@pytest.mark.usefixtures("_systemd")
@pytest.mark.parametrize(
    ("name", "most"), [("mqtick-broker", 1.5), ("mqtick-join", 1.5), ("mqtick-accelerate", 2.5)]
)
def test_the_service_is_exposed_little_and_says_why_where_it_is(name: str, most: float) -> None:
    unit = UNITS / f"{name}.service"
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    exposure = re.search(r"Overall exposure level for \S+: (\d+\.\d)", said)
    assert exposure
    assert float(exposure[1]) < most
    found = re.findall(r"^✗ ([^=]+=(?:~\S+)?)", said, re.MULTILINE)
    reasons = re.findall(r"^# - ([^:]+):", unit.read_text(), re.MULTILINE)
    named = {what for each in reasons for what in each.split(", ")}
    assert named == {each.removesuffix("=") for each in found}


def test_the_units_fit_the_program(program: Program, listening: socket.socket) -> None:
    text = (UNITS / "mqtick-broker.socket").read_text()
    name = re.search(r"^FileDescriptorName=(\w+)$", text, re.MULTILINE)
    said = re.findall(r"^#   (.*)$", text, re.MULTILINE)
    assert name
    lines = "\n".join(said) + f"\n{ANYBODY}"
    program.start(lines, [listening], name[1])
    client(listening.getsockname()[1])
    assert (
        "--config FILE"
        in subprocess.run(
            [program.command("")[0], "--help"], capture_output=True, text=True, check=True
        ).stdout
    )


# -- the watchdog ----------------------------------------------------------------------------------


def test_systemd_hears_that_it_is_alive_only_while_its_workers_answer(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that wants to log while nobody reads the log is one that does not answer."""
    port = free_port()
    lines = f'threads = 1\n[[listener]]\naddress = "127.0.0.1:{port}"\n{ANYBODY}'
    reading, writing = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1500000")
        process = subprocess.Popen(program.command(lines), stderr=writing)
        program.running.append(process)
        assert told.recv(100) == b"READY=1"
        for _ in range(3):
            assert told.recv(100) == b"WATCHDOG=1"
        os.set_blocking(writing, False)
        for size in (4096, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(writing, b"x" * size)
        os.set_blocking(writing, True)
        Client(("127.0.0.1", port), V5, "wrong").send(b"\x30\x03\x00\x01a")
        told.settimeout(3)
        for _ in range(30):
            try:
                told.recv(100)
            except TimeoutError:
                break
        else:
            pytest.fail("it says that it is alive, and is not")
        drain = threading.Thread(target=lambda: [*iter(lambda: os.read(reading, 65536), b"")])
        drain.start()
        told.settimeout(60)
        assert told.recv(100) == b"WATCHDOG=1"
        program.stop()
        os.close(writing)
        drain.join()
        os.close(reading)


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
