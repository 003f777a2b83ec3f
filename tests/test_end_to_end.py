"""Server, broker, clients and chronyd as people run them: processes, sockets, command lines.

Only the clients' clocks are virtual, so that the truth is known: it has to lie inside the bound
that each client states, whatever happens.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import (
    FLEET,
    MS,
    NEXT_FLEET,
    US,
    Authority,
    Client,
    Program,
    Rig,
    Server,
    client_lines,
    fleet_lines,
    password_file,
    wait_until,
)

from demo.local_broker import free_port
from mqtick.protocol.clocks import VirtualClockSettings
from mqtick.protocol.topics import TopicTree, acl

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.needs("mosquitto"), pytest.mark.slow]


# ---- the demo -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "arguments"),
    [
        ("Mosquitto", []),
        ("amqtt", ["--broker", "amqtt"]),
        ("the reference of our broker over UDP", ["--broker", "udp"]),
    ],
)
def test_the_demo_ends_well_by_itself(broker: str, arguments: list[str]) -> None:
    if broker == "amqtt":
        pytest.importorskip("amqtt", reason="amqtt is not installed (make setup-check brings it)")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "demo.sync", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 60
    assert f"Over {broker}, every client ended inside its own bound" in done.stdout
    assert "simulated" in done.stdout


# ---- ways to the broker -------------------------------------------------------------------------


def test_a_client_is_right_within_its_bound_and_says_so(rig: Rig) -> None:
    broker = rig.broker()
    rig.server(broker.url).wait_ready()
    client = rig.client(broker.url)
    client.wait_synchronised()
    client.wait_for(lambda _: client.is_right(within_ns=300 * US), "it is right within 0.3 ms")
    assert client.row()["format"] == "precise"
    assert not client.row()["authenticated"]


@pytest.mark.parametrize("way", ["mqtt 3.1.1", "websocket", "unix socket"])
def test_every_way_to_the_broker_carries_time(rig: Rig, way: str) -> None:
    port, socket = free_port(), rig.folder / "broker.sock"
    lines = {
        "mqtt 3.1.1": "",
        "websocket": f"listener {port} 127.0.0.1\nprotocol websockets",
        "unix socket": f"listener 0 {socket}",
    }[way]
    broker = rig.broker(lines)
    url, more = {
        "mqtt 3.1.1": (broker.url, ("--mqtt-version", "3.1.1")),
        "websocket": (f"ws://127.0.0.1:{port}", ()),
        "unix socket": (f"unix://{socket}", ()),
    }[way]
    rig.server(url, *more).wait_ready()
    client = rig.client(url, "c1", *more)
    client.wait_synchronised()
    client.wait_for(lambda _: client.is_right(within_ns=MS), "it is right within 1 ms")
    # What passes no network has no packets that the kernel could stamp.
    assert client.status()["kernel_timestamps"] == (way != "unix socket")


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("scheme", ["mqtts", "wss"])
def test_tls_keys_password_and_access_list_together(rig: Rig, scheme: str) -> None:
    authority = Authority(rig.new_folder("authority"))
    folder, port = rig.new_folder("guard"), free_port()
    users = {"mqtick-server": "secret-s", "kitchen-1": "secret-1", "hall": "secret-2"}
    (folder / "acl").write_text(acl(TopicTree(), "mqtick-server"))
    broker = rig.broker(
        f"{authority.listener(port)}"
        + ("protocol websockets\n" if scheme == "wss" else "")
        + f"password_file {password_file(folder, users)}\nacl_file {folder}/acl\n",
        anonymous=False,
    )
    url = f"{scheme}://127.0.0.1:{port}"

    def access(user: str, *keys: str) -> list[str]:
        return [
            *("--ca-file", str(authority.certificate), "--username", user),
            *("--password-file", rig.secret(users[user]), "--keys-file", rig.keys(*keys)),
        ]

    server = rig.server(url, *access("mqtick-server", *fleet_lines(FLEET)))
    server.wait_ready()
    clients = [
        rig.client(url, name, *access(name, *client_lines(name, FLEET)))
        for name in ("kitchen-1", "hall")
    ]
    for client in clients:
        client.wait_synchronised()
        client.wait_for(lambda _: client.row()["authenticated"], "it is authenticated")  # noqa: B023
        assert client.is_right(within_ns=5 * MS)
        # On a busy machine echoes are held, and a loop comes back when it is not awaited any more.
        busy = {"before-exchange", "held", "loop-unknown"}
        assert client.status()["refused"].keys() <= busy
    # The access list lets everything through that is needed, and nobody was refused anything
    # but samples that a busy machine spoilt.
    assert all(reason.startswith("echo-") for reason in server.status()["refused"])
    stranger = rig.client(url, "stranger", "--ca-file", str(authority.certificate))
    stranger.wait_for(lambda values: values["last_error"], "the stranger is turned away")
    assert not stranger.status()["connected"]
    assert broker.process is not None


# ---- keys ---------------------------------------------------------------------------------------


class Watch:
    """Looks again and again whether clients are right, while something else happens."""

    def __init__(self, *clients: Client) -> None:
        self.faults: list[str] = []
        self._clients, self._ended = clients, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            for client in self._clients:
                if not client.is_right():
                    self.faults.append(f"{client.now().state}, {client.look()}")

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def test_keys_are_rotated_without_a_gap(rig: Rig) -> None:
    broker = rig.broker()

    def key_file(program: Program) -> Path:
        return Path(program.arguments[program.arguments.index("--keys-file") + 1])

    server = rig.server(broker.url, "--keys-file", rig.keys(*fleet_lines(FLEET)))
    server.wait_ready()
    clients = {
        name: rig.client(broker.url, name, "--keys-file", rig.keys(*client_lines(name, FLEET)))
        for name in ("c1", "c2")
    }
    for client in clients.values():
        client.wait_synchronised()

    def roll_out(*keys: bytes) -> None:
        """Give everybody these keys, one after the other, as docs/protocol.md says."""
        key_file(server).write_text("\n".join(fleet_lines(*keys)))
        with Watch(*clients.values()) as watch:
            assert server.stop() == 0
            server.start()
            server.wait_ready()
            for client in clients.values():
                used = client.samples("echo", "used") + client.samples("two-way", "used")
                client.wait_for(lambda _: is_newer(client, used), "a sample of the new generation")  # noqa: B023
        assert watch.faults == []
        for name, client in clients.items():
            key_file(client).write_text("\n".join(client_lines(name, *keys)))
            others = [other for other in clients.values() if other is not client]
            with Watch(*others) as watch:
                assert client.refused("tag") == client.refused("unsigned") == 0
                assert client.stop() == 0
                client.start()
                client.wait_synchronised()
            assert watch.faults == []
        assert server.refused("tag") == server.refused("unsigned") == 0

    def is_newer(client: Client, used: int) -> bool:
        return client.samples("echo", "used") + client.samples("two-way", "used") > used

    roll_out(FLEET, NEXT_FLEET)  # the new key second, everywhere
    roll_out(NEXT_FLEET, FLEET)  # the new one signs
    roll_out(NEXT_FLEET)  # the old one is gone
    # And somebody who missed it is told so, instead of being served.
    late = rig.client(broker.url, "late", "--keys-file", rig.keys(*client_lines("late", FLEET)))
    late.wait_for(lambda _: late.refused("tag"), "the client with the old key refuses")
    server.wait_for(lambda _: server.refused("tag"), "the server refuses its requests")
    assert late.status()["state"] == "unsynchronised"


# ---- several servers ----------------------------------------------------------------------------


def test_the_client_follows_every_server_of_the_broker(rig: Rig) -> None:
    broker = rig.broker()
    servers = [rig.server(broker.url, number=number) for number in (0, 7)]
    for server in servers:
        server.wait_ready()
    client = rig.client(broker.url)
    client.wait_for(
        lambda _: all(client.row(number).get("state") == "synchronised" for number in (0, 7)),
        "both servers are followed",
    )
    assert client.is_right()
    # The fixed topics of the other formats have one server only: the lowest number.
    servers[0].wait_for(lambda values: values["leads"], "the lowest number leads")
    servers[1].wait_for(lambda values: values["other_servers"] == [0], "the other stands by")
    assert not servers[1].status()["leads"]
    servers[0].stop()
    servers[1].wait_for(lambda values: values["leads"], "the other takes over")
    client.wait_for(
        lambda values: values["servers"][values["chosen"]]["server"] == 7,
        "the client goes by the server that is left",
        timeout_s=30.0,
    )
    assert client.is_right()


# ---- full disk, signals -------------------------------------------------------------------------


@pytest.fixture
def small_disk(rig: Rig) -> Path:
    """A disk of 64 KiB."""
    folder = rig.new_folder("disk")
    options = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=755", "tmpfs", str(folder)]
    if subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small disk: run as root")
    rig.on_close(lambda: subprocess.run(["umount", "-l", str(folder)], check=True))
    return folder


def test_a_full_disk_costs_log_lines_and_nothing_else(rig: Rig, small_disk: Path) -> None:
    broker = rig.broker()
    rig.server(broker.url, "--interval-s", "0.2").wait_ready()
    client = Client(
        small_disk / "state",
        "mqtick-client",
        *("--broker", broker.url, "--name", "c1", "--fast", "--exchange-interval-s", "1"),
        *("--sample-log", str(small_disk / "samples.jsonl")),
    )
    rig.on_close(client.stop)
    client.run_with(VirtualClockSettings.starting_now(offset_ns=-5 * MS))
    client.wait_synchronised()
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass  # full
    # The last status stays as it was; what it says grows old, and its bound with it.
    for said in ("the status could not be written", "samples are not logged"):
        wait_until(lambda said=said: said in client.log, "the client says that the disk is full")
    assert client.is_right()
    assert client.process is not None
    assert client.process.poll() is None
    ballast.unlink()
    values = client.wait_for(
        lambda values: values if values["samples_not_logged"] else None, "the status is written"
    )
    assert values["state"] == "synchronised"
    assert values["connects"] == 1
    assert client.is_right()
    size = (small_disk / "samples.jsonl").stat().st_size
    wait_until(
        lambda: (small_disk / "samples.jsonl").stat().st_size > size, "samples are logged again"
    )
    lines = (small_disk / "samples.jsonl").read_text().splitlines()
    broken = [line for line in lines[:-1] if not _is_json(line)]
    assert len(broken) <= 1  # the line at which the disk was full
    assert client.log.count("samples are not logged") == 1


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def test_a_client_that_was_ended_leaves_a_time_that_is_still_right(rig: Rig) -> None:
    _, _, client = rig.synchronised()
    _, bound_ns = client.look()
    assert client.stop() == 0
    assert "Traceback" not in client.log
    time.sleep(0.5)
    error_ns, grown_ns = client.look()  # from the status that it left
    assert abs(error_ns) <= grown_ns
    assert grown_ns > bound_ns


def test_a_broker_that_restarts_is_found_again(rig: Rig) -> None:
    broker, server, client = rig.synchronised()
    client.wait_for(lambda _: client.samples("echo", "used"), "the echo is used")
    with Watch(client) as watch:
        for count in (2, 3, 4):
            broker.stop()
            client.wait_for(lambda values: not values["connected"], "the loss is noticed")
            broker.start()
            used = client.samples("echo", "used")
            client.wait_for(lambda values: values["connects"] == count, "it connects again")  # noqa: B023
            client.wait_for(
                lambda _: client.samples("echo", "used") > used + 4,  # noqa: B023
                "the echo is used again",
            )
    assert watch.faults == []
    assert client.is_right(within_ns=300 * US)
    assert server.status()["connects"] == 4
    # The server was back later, and both measure their loops anew; and what happens to come right
    # behind an acknowledgement could have been held back by the broker.
    assert client.status()["refused"].keys() <= {"no-reply", "held", "loop-unknown"}


def test_both_programs_wait_for_a_broker_that_is_not_there_yet(rig: Rig) -> None:
    broker = rig.broker()
    broker.stop()
    server: Server = rig.server(broker.url)
    client = rig.client(broker.url)
    client.wait_for(lambda values: values["attempts"] >= 2, "the client tries")
    assert "Connection refused" in client.status()["last_error"]
    broker.start()
    server.wait_ready()
    client.wait_synchronised()


def test_everything_ends_at_once_while_the_broker_hangs(rig: Rig) -> None:
    broker, server, client = rig.synchronised()
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        codes: list[Callable[[], int]] = [client.stop, server.stop]
        assert [stop() for stop in codes] == [0, 0]
        assert time.monotonic() - began < 5
    finally:
        broker.process.send_signal(signal.SIGCONT)
