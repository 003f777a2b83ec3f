"""What the doctor hears at real brokers, good and bad ones."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mqtick.client.config import Settings
from mqtick.client.doctor import broker as doctor_broker
from mqtick.client.doctor import listen as doctor_listen
from mqtick.client.doctor import probes as doctor_probes
from mqtick.client.doctor.listen import Heard
from mqtick.mqtt.broker import parse_broker_url
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings
from mqtick.service.check import Check

sys.path.insert(0, str(Path(__file__).parent))
from live_world import HAS_BROKER, Mosquitto, World, program
from local_broker import Nats, running

pytestmark = pytest.mark.skipif(
    not HAS_BROKER, reason="mosquitto is not installed; install it with: apt install mosquitto"
)

KEYS = Keyring(fleet=(b"fleet key of 24 octets..",))


PROJECT = Path(__file__).resolve().parents[2]


def listen(
    port: int, *, listen_s: float = 1.2, keyring: Keyring | None = None, **account: str
) -> Heard:
    broker = parse_broker_url(f"mqtt://127.0.0.1:{port}")
    broker = replace(broker, connect_timeout_s=0.3, **account)
    return doctor_listen.listen(Settings(), broker, keyring or Keyring(), "pi7", listen_s=listen_s)


@contextmanager
def in_background(world: World) -> Iterator[None]:
    """Let a world's servers go on in a thread of their own."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: world.run(stop.is_set, limit_s=30))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(keyring: Keyring | None = None, *, access_list: str = "", lines: str = "") -> World:
        made.append(World(tmp_path, keyring))
        broker = made[-1].mosquitto
        if access_list:
            (tmp_path / "acl").write_text(access_list)
            passwords = tmp_path / "passwords"
            passwords.touch(mode=0o600)
            tool = program("mosquitto_passwd")
            assert tool is not None
            subprocess.run([tool, "-b", passwords, "pi7", "correct-horse"], check=True)
            more = f"password_file {passwords}\nacl_file {tmp_path}/acl\n"
            broker.config.write_text(broker.config.read_text() + more)
        if lines:
            word = lines.split(maxsplit=1)[0]
            kept = [
                line
                for line in broker.config.read_text().splitlines()
                if line.split()[:1] != [word]
            ]
            broker.config.write_text("\n".join((*kept, lines, "")))
        broker.start()
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.slow
def test_a_server_is_heard_and_answers(world: Callable[..., World]) -> None:
    here = world()
    here.serve(number=4)
    with in_background(here):
        heard = listen(here.mosquitto.port)
    assert heard.connected
    assert heard.kernel_stamps
    assert heard.servers[4].times >= 3
    assert heard.servers[4].exchanges >= 4
    assert heard.granted == dict.fromkeys(heard.granted, True)
    assert {"mqtick/t/+", "mqtick/r/4/pi7"} <= set(heard.granted)
    checks = [
        doctor_broker.check_broker(heard),
        doctor_broker.check_subscriptions(heard, "auto"),
        *doctor_broker.check_times(heard, "auto", 1.2),
        *doctor_broker.check_exchanges(heard, use_two_way=True),
    ]
    assert [check.line() for check in checks if check.result != "OK"] == []


def documented_access_list() -> str:
    """That of docs/protocol.md; here the time server is who has no account."""
    text = (PROJECT / "docs/protocol.md").read_text(encoding="utf-8")
    return text.split("```acl\n")[1].split("```")[0].replace("user mqtick-server\n", "")


def examine(world: Callable[..., World], access_list: str, lines: str = "") -> dict[str, Check]:
    """Return what the doctor finds with the account pi7, at a broker with this access list."""
    here = world(access_list=access_list, lines=lines)
    here.settle(here.serve())
    with in_background(here):
        heard = listen(here.mosquitto.port, username="pi7", password="correct-horse")
    checks = [
        doctor_broker.check_broker(heard),
        doctor_broker.check_subscriptions(heard, "auto"),
        *doctor_broker.check_times(heard, "auto", 1.2),
        *doctor_broker.check_statuses(heard),
        *doctor_broker.check_exchanges(heard, use_two_way=True),
        *doctor_probes.check_promptness(heard.probes),
        *doctor_probes.check_access(
            heard.probes,
            hears_time=any(server.times for server in heard.servers.values()),
            has_keys=False,
            account="pi7",
        ),
    ]
    return {check.name: check for check in checks}


@pytest.mark.slow
@pytest.mark.alone
def test_a_broker_with_the_documented_access_list_is_good(world: Callable[..., World]) -> None:
    found = examine(world, documented_access_list())
    assert [check.line() for check in found.values() if check.result != "OK"] == []
    assert {"exchange with server 0", "promptness", "access list"} <= set(found)


@pytest.mark.slow
@pytest.mark.alone
def test_an_access_list_that_lets_everybody_do_everything_is_found(
    world: Callable[..., World],
) -> None:
    found = examine(world, "pattern readwrite #\ntopic readwrite #\n")
    assert [name for name, check in found.items() if check.result != "OK"] == ["access list"]
    assert "may publish time for every clock" in found["access list"].value


@pytest.mark.slow
def test_an_access_list_that_confuses_clients_is_found(world: Callable[..., World]) -> None:
    widened = documented_access_list() + "pattern readwrite mqtick/r/#\n"
    found = examine(world, widened)
    assert found["access list"].result == "WARN"
    assert "mqtick/r/" in found["access list"].value
    assert "mqtick/t/" not in found["access list"].value


@pytest.mark.slow
def test_an_account_without_rights_hears_nothing_and_is_told_of_the_access_list(
    world: Callable[..., World],
) -> None:
    server_only = documented_access_list().split("pattern")[0]
    found = examine(world, server_only)
    assert found["time messages"].result == "FAIL"
    assert "access list" in found["time messages"].remedy
    assert found["messages to itself"].result == "WARN"
    assert "access list" not in found


@pytest.mark.slow
def test_an_account_that_may_only_listen_gets_no_answer(world: Callable[..., World]) -> None:
    lines = documented_access_list().splitlines()
    found = examine(world, "\n".join(line for line in lines if "/q/+/%u" not in line))
    assert found["exchange with server 0"].result == "FAIL"
    assert "mqtick" not in found["time of server 0"].remedy
    assert "PREFIX/q/0/NAME" in found["exchange with server 0"].remedy


@pytest.mark.slow
@pytest.mark.alone
def test_a_broker_without_tcp_nodelay_is_found(world: Callable[..., World]) -> None:
    found = examine(world, documented_access_list(), "set_tcp_nodelay false")
    assert found["promptness"].result == "WARN", found["promptness"].value
    assert "set_tcp_nodelay true" in found["promptness"].remedy


@pytest.mark.slow
def test_a_server_that_is_a_day_ahead_answers_and_its_time_is_not_believed_yet(
    world: Callable[..., World],
) -> None:
    here = world()
    ahead = VirtualClockSettings.starting_now(offset_ns=86_400 * 1_000_000_000)
    here.serve(clock=VirtualClock(ahead))
    with in_background(here):
        heard = listen(here.mosquitto.port)
    (answered,) = doctor_broker.check_exchanges(heard, use_two_way=True)
    assert answered.result == "OK"
    (check,) = doctor_broker.check_belief(heard.troubles)
    assert (check.result, check.name) == ("WARN", "time of server 0")
    assert re.search(r"by \+(86399\.9|86400\.0)", check.value)


@pytest.mark.slow
@pytest.mark.skipif(program("nats-server") is None, reason="nats-server is not installed")
def test_at_nats_a_topic_with_a_dot_and_an_older_mqtt_are_no_faults(tmp_path: Path) -> None:
    with running(Nats(tmp_path)) as broker:
        heard = listen(broker.port)
    assert doctor_broker.check_broker(heard).result == "OK"
    (version,) = doctor_broker.check_version(heard)
    assert (version.result, version.name) == ("WARN", "MQTT 5")
    subscriptions = doctor_broker.check_subscriptions(heard, "precise")
    assert subscriptions.result == "OK"
    assert "not needed for precise time: _1451.1.6/BRSU/SYN" in subscriptions.value


@pytest.mark.slow
def test_keys_that_differ_are_found(world: Callable[..., World]) -> None:
    here = world(KEYS)
    here.serve()
    other = Keyring(fleet=(b"another key of 26 octets..",))
    with in_background(here):
        heard = listen(here.mosquitto.port, keyring=other)
    found = list(doctor_broker.check_exchanges(heard, use_two_way=True))
    assert "FAIL exchange with server 0" in found[0].line()
    assert any("keys differ" in check.remedy for check in found)


def test_a_silent_broker_has_no_time(world: Callable[..., World]) -> None:
    heard = listen(world().mosquitto.port, listen_s=0.3)
    assert heard.connected
    assert [check.name for check in doctor_broker.check_times(heard, "auto", 0.3)] == [
        "time messages"
    ]


def test_a_broker_that_wants_a_password_says_so(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path, anonymous=False)
    broker.start()
    heard = listen(broker.port)
    broker.stop()
    check = doctor_broker.check_broker(heard)
    assert check.result == "FAIL"
    assert "refused the connection: Not authorized" in check.value
    assert "password_file" in check.remedy


@pytest.mark.slow
def test_a_broker_that_accepts_and_stalls_is_given_up_in_time() -> None:
    began_s = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as stalling:
        heard = listen(stalling.getsockname()[1])
    assert time.monotonic() - began_s < 6.0
    assert not heard.connected
    assert "accepted but did not answer within 0.3 s" in heard.error


def test_no_broker_at_all_is_found_at_once() -> None:
    began_s = time.monotonic()
    heard = listen(1)
    assert time.monotonic() - began_s < 1.0
    assert "Connection refused" in heard.error
