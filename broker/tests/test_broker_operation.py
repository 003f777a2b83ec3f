"""`mqtick-broker` as a service: sockets of systemd, metrics, one limit for memory, the units."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
from broker.conformance.launch import PASSWORD, USER, password_line
from broker.tests.harness.brokers import METRICS, Broker, Launch
from broker.tests.harness.events import PATIENCE_S, until
from broker.tests.harness.tools import memory, stand_in
from demo.local_broker import running

pytestmark = pytest.mark.broker

KEPT: dict[str, Any] = {"clean": False, "properties": [("session_expiry", 3600)]}
ON_SYSTEMD = '[[listener]]\nsystemd = "mqtt"\n[access]\nanonymous = true\n'


class Passed(Broker):
    """The broker as systemd starts it, with a configuration of its own and sockets."""

    def __init__(
        self,
        folder: Path,
        lines: str = ON_SYSTEMD,
        sockets: Sequence[socket.socket] = (),
        names: str = "mqtt",
    ) -> None:
        super().__init__(folder)
        self.config.write_text(lines)
        self.sockets, self.names = sockets, names

    def start(self) -> None:
        """Start it; the sockets are descriptors 3 and up, and take connections before that."""
        # Copies first, behind all of them: a socket may be where another one has to be.
        free = max([9, *(one.fileno() for one in self.sockets)]) + 1
        far = "".join(f"exec {free + at}<&{one.fileno()}; " for at, one in enumerate(self.sockets))
        near = "".join(f" {3 + at}<&{free + at}" for at in range(len(self.sockets)))
        said = f"LISTEN_PID=$$ LISTEN_FDS={len(self.sockets)} LISTEN_FDNAMES={self.names}"
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f'{far}export {said}; exec "$0" "$@"{near}', *self.command],
                stderr=log,
                pass_fds=[one.fileno() for one in self.sockets],
                env={**os.environ, "JOURNAL_STREAM": "as systemd sets it"},
            )

    def refused(self) -> str:
        """What it says when it does not start, which is one sentence."""
        self.start()
        assert self.process is not None
        assert self.process.wait(PATIENCE_S) == 1
        assert self.log().count("<3>") == 1
        return self.log()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener


def client(at: tuple[str, int], name: str = "c") -> Client:
    """A connected client."""
    client = Client(at, V5, name)
    assert client.connect().reason == 0
    return client


# -- ports -----------------------------------------------------------------------------------------


def test_port_0_is_one_port_for_all_threads(launch: Launch) -> None:
    broker = launch(first='threads = 4\n[[listener]]\naddress = "127.0.0.1:0"')
    pattern = r"listens on 127\.0\.0\.1:(\d+)"
    ports = until(lambda: {*re.findall(pattern, broker.log())} - {str(broker.port)})
    (port,) = ports - {"0"}
    for number in range(40):
        client(("127.0.0.1", int(port)), f"c{number}")


@pytest.mark.parametrize("marks", ["", "<3>"])
def test_only_the_journal_is_told_how_grave_a_line_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marks: str
) -> None:
    nowhere = Broker(tmp_path, first='[[listener]]\naddress = "192.0.2.1:1883"')
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    if marks:
        monkeypatch.setenv("JOURNAL_STREAM", "as systemd sets it")
    assert nowhere.refuses().startswith(f"{marks}192.0.2.1:1883: ")


def test_a_second_broker_does_not_take_half_of_the_clients_of_the_first(launch: Launch) -> None:
    broker = launch(first="threads = 2")
    assert "Address already in use" in broker.refuses()


def test_when_it_runs_out_of_descriptors_others_come_in_as_some_leave(launch: Launch) -> None:
    broker = launch(first="threads = 1")
    assert broker.process is not None
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (40, 40))
    inside = []
    crowd = [broker.raw() for _ in range(60)]
    for one in crowd:
        one.send(one.encode.connect(one.id))
    broker.says("could not be accepted")
    for one in crowd:
        assert one.expect(CONNACK).reason == 0
        inside.append(one)
        if len(inside) == 20:  # fewer than fit
            inside.pop(0).close()
    assert len(broker.log().splitlines()) < 60


def test_a_flood_of_passwords_from_one_address_leaves_places_to_others(
    launch: Launch, tmp_path: Path
) -> None:
    """And whoever is in is served: they are checked beside the threads that deliver."""
    passwords = tmp_path / "passwd"
    passwords.write_text(password_line(USER, PASSWORD, rounds=5_000))
    passwords.chmod(0o600)
    broker = launch(f'password_file = "{passwords}"')
    inside = broker.client(username=USER, password=PASSWORD)
    inside.subscribe("a")
    flood = [broker.raw() for _ in range(400)]
    for one in flood:
        one.send(one.encode.connect(one.id, username=USER, password=b"wrong"))
    inside.send(inside.encode.publish("a", b"x"))
    assert inside.message().payload == b"x"
    elsewhere = socket.create_connection(
        ("127.0.0.1", broker.port), source_address=("127.0.0.2", 0)
    )
    other = Client(("", 0), V5, "other", elsewhere)
    assert other.connect(username=USER, password=PASSWORD).reason == 0
    assert {one.expect(CONNACK).reason for one in flood} == {0x86, 0x89}


# -- metrics ---------------------------------------------------------------------------------------


def page(broker: Broker) -> str:
    """The metrics, as they are answered."""
    answer = broker.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head.split("\r\n")
    assert f"Content-Length: {len(body)}" in head.split("\r\n")
    return body


def test_the_metrics_say_what_clients_did(launch: Launch) -> None:
    watched = launch(f"{METRICS}[limits]\nqueue = 128\npacket = 128")
    before = watched.metrics()["connections_accepted_total"]
    one, other = watched.client(), watched.client()
    one.subscribe("a", "b/+")
    other.subscribe("a")
    other.send(*(other.encode.publish("a", b"x", retain=True) for _ in range(5)))
    assert [one.message().payload for _ in range(5)] == [b"x"] * 5
    dumb, wrong = watched.raw(), watched.raw()
    wrong.send(b"\x30\x03\x00\x01a")
    other.refused(b"\x30\xff\xff\x7f")
    wanted = {
        "clients": 1,
        'connections{transport="mqtt"}': 2,
        'connections{transport="tls"}': 0,
        "sessions": 1,
        "subscriptions": 2,
        "connections_accepted_total": before + 4,
        'connections_refused_total{reason="protocol"}': 1,
        'connections_ended_total{reason="too_large"}': 1,
        "messages_received_total": 5,
        "messages_sent_total": 10,
        "messages_dropped_total": 0,
        "worker_restarts_total": 0,
    }
    until(lambda: wanted.items() <= watched.metrics().items(), "it is not counted")
    dumb.close()
    assert watched.metrics()["retained_messages"] >= 1


def test_the_metrics_keep_to_prometheus_rules(watched_once: Broker) -> None:
    lines = page(watched_once).splitlines()
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
    watched_once: Broker, request_: bytes, status: bytes
) -> None:
    answer = watched_once.ask(request_)
    assert answer.split(b" ")[1] == status
    assert answer.count(b"mqtick_broker_") == 0 or request_.startswith(b"GET /metrics?")


@pytest.fixture(scope="module")
def watched_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(Broker(tmp_path_factory.mktemp("watched"), METRICS)) as broker:
        yield broker


def test_a_crowd_that_says_nothing_keeps_nobody_from_the_metrics(watched_once: Broker) -> None:
    """Without end, without a newline, without a word; and those that stay are closed in time."""
    crowd = []
    for number in range(1000):
        one = socket.create_connection(watched_once.metrics_at())
        crowd.append(one)
        with contextlib.suppress(ConnectionError):
            one.sendall((b"", b"GET /metrics HTTP/1.1\r\n", b"x" * 20_000)[number % 3])
        if number % 100 == 0:
            assert watched_once.metrics()["uptime_seconds"] >= 0
    for one in crowd:
        one.settimeout(60)
        with contextlib.suppress(ConnectionError):
            while one.recv(4096):
                pass
        one.close()
    assert 0 <= watched_once.metrics()["uptime_seconds"] < 3_600, "since the start"
    watched_once.client()


# -- one limit for all memory ----------------------------------------------------------------------

MIB = 1 << 20
BESIDE_THE_LIMIT = 64 * MIB
"""What the process may take beyond `limits.memory`: a few packets a thread, freed pieces that the
allocator keeps, and 4 KiB for each client."""


def limited(most: int, queue: int = MIB) -> str:
    """Lines for metrics and a limit of all memory, with packets of 1 MiB at most."""
    return f"{METRICS}[limits]\nmemory = {most}\npacket = {MIB}\nqueue = {queue}\n"


def total(watched: Broker, name: str) -> int:
    """The sum of a metric over its labels."""
    return sum(number for one, number in watched.metrics().items() if one.startswith(name))


def held(watched: Broker) -> int:
    """What clients make the broker hold."""
    return total(watched, "memory_bytes")


def test_a_crowd_that_reads_nothing_cannot_take_more_than_the_limit(launch: Launch) -> None:
    """Without the limit it would hold 8 MiB for each of them."""
    watched = launch(limited(32 * MIB, 8 * MIB), first="threads = 2")
    crowd = [watched.client() for _ in range(20)]
    for one in crowd:
        one.subscribe("large")
    hearer, sender = watched.client(), watched.client()
    hearer.subscribe("small")
    before = memory(watched.process, "VmRSS")
    large = sender.encode.publish("large", bytes(1_000_000))
    for number in range(18):
        sender.send(large, sender.encode.publish("small", b"%d" % number))
        assert hearer.message().payload == b"%d" % number
    until(lambda: watched.metrics()["messages_dropped_total"] > 0)
    assert held(watched) <= 32 * MIB
    assert memory(watched.process) <= before + 32 * MIB + BESIDE_THE_LIMIT
    assert watched.metrics()["clients"] == 22
    assert total(watched, "connections_ended_total") == 0
    for one in crowd:
        one.vanish()
    until(lambda: held(watched) < MIB)


def test_half_of_the_limit_is_not_for_what_is_retained(launch: Launch) -> None:
    watched = launch(limited(8 * MIB))
    sender = watched.client()

    def answer(topic: str, payload: bytes, *, retain: bool) -> int:
        sender.send(sender.encode.publish(topic, payload, qos=1, retain=retain, packet_id=1))
        return sender.expect(PUBACK).reason

    answers = [answer(f"a/{number}", bytes(200_000), retain=True) for number in range(60)]
    kept = answers.index(0x97)
    assert 15 <= kept <= 21
    assert set(answers[kept:]) == {0x97}
    assert answer("a", bytes(200_000), retain=False) == 0x10, "nobody is subscribed"
    hearer = watched.client()
    hearer.subscribe("a/0")
    assert len(hearer.message().payload) == 200_000
    for number in range(kept):
        sender.send(sender.encode.publish(f"a/{number}", b"", retain=True))
    assert answer("a/1", bytes(200_000), retain=True) == 0x10, "kept again"


def test_packets_that_do_not_end_cost_those_who_send_them_their_connections(
    launch: Launch,
) -> None:
    watched = launch(limited(8 * MIB), first="threads = 2")
    other = watched.client()
    crowd = [watched.client() for _ in range(30)]
    for one in crowd:
        with contextlib.suppress(ConnectionError):
            one.send(one.encode.publish("a", bytes(1_000_000))[:-1])
    until(lambda: watched.metrics()['connections_ended_total{reason="quota"}'] >= 20)
    assert held(watched) <= 8 * MIB
    other.subscribe("a")
    other.send(other.encode.publish("a", b"x" * 3000))
    assert other.message().payload == b"x" * 3000


def test_topic_aliases_are_part_of_the_limit(launch: Launch) -> None:
    """Also where nothing but whole packets comes, one at a time."""
    watched = launch(f"{limited(8 * MIB)}topic_alias = 65535\n")
    one = watched.client()
    for alias in range(1, 200):
        named = [("topic_alias", alias)]
        one.send(one.encode.publish("x" * 60_000, b"", qos=1, packet_id=1, properties=named))
        answer = one.receive()
        if answer.kind == DISCONNECT:
            break
    assert (answer.kind, answer.reason) == (DISCONNECT, 0x97)
    assert 60 < alias < 80, "half of it"


def test_identifiers_that_are_not_released_are_part_of_the_limit(launch: Launch) -> None:
    watched = launch(limited(8 * MIB))
    numbers = range(1, 60_001)
    crowd = [watched.client() for _ in range(4)]
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


def test_subscriptions_are_part_of_the_limit(launch: Launch) -> None:
    watched = launch(limited(8 * MIB))
    one = watched.client()
    filters = [(f"{'x/' * 100}{number}", 0) for number in range(300)]
    reasons = one.subscribe(*filters).reasons
    assert 100 < reasons.index(0x97) < 200
    one.unsubscribe(*(pattern for pattern, _ in filters))
    assert one.subscribe("a").reasons == [2]


def test_what_waits_for_those_who_are_away_is_part_of_the_limit(launch: Launch) -> None:
    watched = launch(limited(8 * MIB, 8 * MIB))
    for number in range(10):
        away = watched.client(f"away{number}", **KEPT)
        away.subscribe((f"a/{number}", 1))
        away.vanish()
    until(lambda: watched.metrics()["clients"] == 0)
    sender = watched.client()
    for number in range(300):
        topic = f"a/{number % 10}"
        sender.send(sender.encode.publish(topic, bytes(100_000), qos=1, packet_id=1))
        assert sender.expect(PUBACK).reason in (0, 0x97)
    assert held(watched) <= 8 * MIB
    first = watched.client("away0", **KEPT)
    assert first.connack.session_present
    assert len(first.message().payload) == 100_000


# -- its end, and the next start -------------------------------------------------------------------


def told(crowd: list[Client]) -> list[Client]:
    """Those to whom something was said."""
    sockets = {one.socket: one for one in crowd if isinstance(one.socket, socket.socket)}
    readable, _, _ = select.select(list(sockets), [], [], 60)
    return [sockets[one] for one in readable]


@pytest.mark.parametrize("threads", [1, 3])
def test_at_its_end_clients_are_told_one_after_another_and_the_others_served_until_then(
    launch: Launch, tmp_path: Path, threads: int
) -> None:
    """And what comes for those who went is kept for them."""
    limits = "[limits]\nconnections_a_second = 10\nstop_s = 15\n"
    store = f'[store]\npath = "{tmp_path}/store"'
    broker = launch(limits + store, first=f"threads = {threads}")
    crowd = [broker.client(**KEPT) for _ in range(40)]
    for one in crowd:
        one.subscribe((one.id, 1))
    broker.send_signal(signal.SIGTERM)
    (first, *_) = told(crowd)
    assert first.expect(DISCONNECT).reason == 0x8B
    until(lambda: not listens(broker), "it takes nobody more")
    staying = [one for one in crowd if one not in told(crowd)]
    for sender, hearer in itertools.pairwise(staying):
        with contextlib.suppress(AssertionError):  # one of them was told meanwhile
            sender.publish(first.id, b"kept", qos=1)
            sender.publish(hearer.id, b"heard", qos=1)
            assert hearer.message().payload == b"heard"
            break
    else:
        pytest.fail("nobody was left who was served")
    assert broker.end(signal.SIGTERM) == 0, "told again, at once"
    assert staying[-1].expect(DISCONNECT).reason == 0x8B
    broker.start()
    again = broker.client(first.id, **KEPT)
    assert again.connack.session_present
    assert again.message().payload == b"kept"


def listens(broker: Broker) -> bool:
    """Whether it takes connections."""
    with contextlib.suppress(ConnectionRefusedError):
        broker.raw().close()
        return True
    return False


def test_few_clients_do_not_hold_up_its_end_and_strangers_do_not_at_all(launch: Launch) -> None:
    broker = launch("[limits]\nconnections_a_second = 1\nstop_s = 15\n")
    one, stranger = broker.client(), broker.raw()
    broker.send_signal(signal.SIGTERM)
    assert one.expect(DISCONNECT).reason == 0x8B
    stranger.ended()
    assert broker.process is not None
    assert broker.process.wait(PATIENCE_S) == 0


@pytest.fixture
def hears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What systemd is told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield made


def test_systemd_hears_how_long_the_end_takes(launch: Launch, hears: socket.socket) -> None:
    broker = launch("[limits]\nconnections_a_second = 1\nstop_s = 3\n")
    assert hears.recv(100) == b"READY=1"
    crowd = [broker.client() for _ in range(5)]
    broker.send_signal(signal.SIGTERM)
    assert hears.recv(100) == b"STOPPING=1"
    assert hears.recv(100) == b"EXTEND_TIMEOUT_USEC=13000000"
    assert {one.expect(DISCONNECT).reason for one in crowd} == {0x8B}


def test_who_comes_faster_than_allowed_waits_and_is_served(launch: Launch) -> None:
    broker = launch("[limits]\nconnections_a_second = 100\n", first="threads = 2")
    crowd = [broker.raw() for _ in range(400)]
    for one in crowd:
        one.send(one.encode.connect(one.id))
    assert {one.expect(CONNACK).reason for one in crowd} == {0}


def test_connections_come_in_evenly_not_all_at_the_beginning_of_a_second(launch: Launch) -> None:
    """But for those of the last tenth of a second, which may be made up for."""
    broker = launch("[limits]\nconnections_a_second = 50\n", first="threads = 1")
    began_s = time.monotonic()
    crowd = [broker.raw() for _ in range(50)]
    for one in crowd:
        one.send(one.encode.connect(one.id))
    assert {one.expect(CONNACK).reason for one in crowd} == {0}
    assert time.monotonic() - began_s > 0.85


# -- a worker that fails ---------------------------------------------------------------------------


def test_the_clients_of_a_worker_that_failed_are_told_and_served_when_they_come_back(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rust's library panics where the system has no time; once, here, in a worker."""
    (tmp_path / "failures").write_bytes(bytes(4096))
    monkeypatch.setenv("MQTICK_FAILURES", str(tmp_path / "failures"))
    monkeypatch.setenv("JOURNAL_STREAM", "as systemd sets it")
    source = Path(__file__).with_name("failing_clock.c")
    monkeypatch.setenv("LD_PRELOAD", stand_in(source, tmp_path))
    watched = launch(METRICS, first="threads = 1")
    new, old = watched.client("new", **KEPT), watched.client("old", V3)
    new.subscribe(("a", 1))
    with (tmp_path / "failures").open("r+b") as file, mmap.mmap(file.fileno(), 4096) as failures:
        failures[:4] = (1).to_bytes(4, "little")
    assert new.expect(DISCONNECT).reason == 0x80
    with pytest.raises(ClosedError):
        new.receive()
    with pytest.raises(ClosedError):
        old.receive()
    sender = watched.client()
    sender.publish("a", b"x", qos=1)
    again = watched.client("new", **KEPT)
    assert again.connack.session_present
    assert again.message().payload == b"x"
    values = watched.metrics()
    assert values["worker_restarts_total"] == 1
    assert values['connections_ended_total{reason="unspecified"}'] == 2
    assert watched.log().count("panicked") == 1
    assert "<3>a worker failed and begins anew" in watched.log()
    watched.log_file.write_text("")


# -- the units -------------------------------------------------------------------------------------

UNITS = Path(__file__).parents[1] / "server/systemd"


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


def test_the_units_fit_the_program(
    launch: Launch, listening: socket.socket, tmp_path: Path
) -> None:
    text = (UNITS / "mqtick-broker.socket").read_text()
    name = re.search(r"^FileDescriptorName=(\w+)$", text, re.MULTILINE)
    said = re.findall(r"^#   (.*)$", text, re.MULTILINE)
    assert name
    lines = "\n".join([*said, "[access]", "anonymous = true"])
    broker = launch(lines, [listening], name[1], kind=Passed)
    client(listening.getsockname())
    help_ = [broker.built(), "--help"]
    shown = subprocess.run(help_, capture_output=True, text=True, check=True).stdout
    assert "--config FILE" in shown


# -- the watchdog ----------------------------------------------------------------------------------


class Piped(Broker):
    """A broker that logs into a pipe."""

    def __init__(self, folder: Path, pipe: int) -> None:
        super().__init__(folder, first="threads = 1")
        self.pipe = pipe

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stderr=self.pipe)


def test_systemd_hears_that_it_is_alive_only_while_its_workers_answer(
    launch: Launch, hears: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that wants to log while nobody reads the log is one that does not answer."""
    reading, writing = os.pipe()
    monkeypatch.setenv("WATCHDOG_USEC", "1500000")
    broker = launch(writing, kind=Piped)
    assert hears.recv(100) == b"READY=1"
    for _ in range(3):
        assert hears.recv(100) == b"WATCHDOG=1"
    os.set_blocking(writing, False)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * size)
    os.set_blocking(writing, True)
    broker.raw().send(b"\x30\x03\x00\x01a")
    hears.settimeout(3)
    for _ in range(30):
        try:
            hears.recv(100)
        except TimeoutError:
            break
    else:
        pytest.fail("it says that it is alive, and is not")
    drain = threading.Thread(target=lambda: [*iter(lambda: os.read(reading, 65536), b"")])
    drain.start()
    hears.settimeout(PATIENCE_S)
    assert hears.recv(100) == b"WATCHDOG=1"
    broker.stop()
    os.close(writing)
    drain.join()
    os.close(reading)


# -- sockets of systemd ----------------------------------------------------------------------------


def test_who_connects_while_it_restarts_is_served_afterwards(
    launch: Launch, listening: socket.socket
) -> None:
    at = listening.getsockname()
    broker = launch(f"threads = 3\n{ON_SYSTEMD}", [listening], kind=Passed)
    for number in range(20):
        client(at, f"before{number}")
    broker.stop()
    waiting = [Client(at, V5, f"c{number}") for number in range(20)]
    for one in waiting:
        one.send(one.encode.connect(one.id))
    broker.start()
    assert {one.expect(CONNACK).reason for one in waiting} == {0}


def test_sockets_of_one_name_are_one_listener_and_names_keep_listeners_apart(
    launch: Launch, listening: socket.socket, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as second, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        lines = f'[[listener]]\nsystemd = "web"\ntransport = "websocket"\n{ON_SYSTEMD}'
        launch(lines, [listening, second, local], "mqtt:web:mqtt", kind=Passed)
        client(listening.getsockname())
        carrier = socket.socket(socket.AF_UNIX)
        carrier.connect(str(tmp_path / "socket"))
        assert Client(("", 0), V5, "local", carrier).connect().reason == 0
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
    tmp_path: Path, kinds: list[str], names: str, why: str
) -> None:
    def made(kind: str) -> socket.socket:
        match kind:
            case "listens":
                return socket.create_server(("127.0.0.1", 0))
            case "datagram":
                return socket.socket(type=socket.SOCK_DGRAM)
        return socket.socketpair()[0]

    assert why in Passed(tmp_path, ON_SYSTEMD, [made(kind) for kind in kinds], names).refused()


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ("LISTEN_PID=1 LISTEN_FDS=1", "passed no such socket"),
        ("LISTEN_PID=$$ LISTEN_FDS=-1", "LISTEN_FDS=-1"),
        ("LISTEN_PID=$$ LISTEN_FDS=99999999", "LISTEN_FDS=99999999"),
        ("LISTEN_PID=$$ LISTEN_FDS=some", "LISTEN_FDS=some"),
        ("LISTEN_PID=$$ LISTEN_FDS=20", "LISTEN_FDS=20"),
    ],
)
def test_sockets_of_another_process_and_descriptors_that_cannot_be_there_are_a_sentence(
    tmp_path: Path, environment: str, why: str
) -> None:
    command = ["bash", "-c", f'{environment} exec "$0" "$@"', *Passed(tmp_path).command]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert why in ended.stderr


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd is not here")
def test_systemds_own_program_starts_it_with_the_first_connection(tmp_path: Path) -> None:
    broker = Passed(tmp_path)
    listens = f"--listen=127.0.0.1:{broker.port}"
    activate = ["systemd-socket-activate", "--fdname=mqtt", listens, *broker.command]
    with broker.log_file.open("ab") as log:
        broker.process = subprocess.Popen(activate, stderr=log)
    try:
        broker.says(f"Listening on 127.0.0.1:{broker.port}")
        assert "listens on" not in broker.log()
        broker.client()
    finally:
        broker.stop()
