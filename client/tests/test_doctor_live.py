"""What the doctor hears at real brokers, good and bad ones."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from live_world import World

from demo.local_broker import Mosquitto, Nats, program, running
from mqtick.client.config import Settings
from mqtick.client.doctor import examine as doctor
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings
from mqtick.service.check import Check

pytestmark = pytest.mark.needs("mosquitto")

KEYS = Keyring(fleet=(b"fleet key of 24 octets..",))


PASSWORD = "correct-horse"
PROJECT = Path(__file__).resolve().parents[2]
Found = dict[str, Check]
Examine = Callable[..., Found]


def examined(folder: Path, port: int, *, listen_s: float = 1.2, **keys: str) -> Found:
    """What the doctor finds at a broker, by name."""
    settings = Settings(
        broker=f"mqtt://127.0.0.1:{port}",
        name="pi7",
        state_folder=str(folder),
        connect_timeout_s=0.5,
        **keys,  # type: ignore[arg-type]
    )
    host = doctor.Host(listen_s=listen_s)
    return {check.name: check for check in doctor.examine(settings, host, broker_only=True)}


@pytest.fixture
def examine(tmp_path: Path) -> Examine:
    return partial(examined, tmp_path)


def wrong(found: Found) -> list[str]:
    return [name for name, check in found.items() if check.result != "OK"]


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
            subprocess.run([tool, "-b", passwords, "pi7", PASSWORD], check=True)
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
def test_a_server_is_heard_and_answers(world: Callable[..., World], examine: Examine) -> None:
    here = world()
    here.settle(here.serve(number=4))
    with in_background(here):
        found = examine(here.mosquitto.port)
    assert wrong(found) == ["access list"]  # there is none
    assert "kernel timestamps" in found["broker"].value
    times = re.match(r"precise, (\d+) in 1.2 s", found["time of server 4"].value)
    assert times
    assert int(times[1]) >= 3
    answered = re.match(r"(\d+) answered", found["exchange with server 4"].value)
    assert answered
    assert int(answered[1]) >= 4


def documented_access_list() -> str:
    """That of docs/protocol.md; here the time server is who has no account."""
    text = (PROJECT / "docs/protocol.md").read_text(encoding="utf-8")
    return text.split("```acl\n")[1].split("```")[0].replace("user mqtick-server\n", "")


@pytest.fixture
def with_account(
    world: Callable[..., World], examine: Examine, tmp_path: Path
) -> Callable[..., Found]:
    """Return what the doctor finds with the account pi7, at a broker with an access list."""

    def found(access_list: str, lines: str = "") -> Found:
        here = world(access_list=access_list, lines=lines)
        here.settle(here.serve())
        password = tmp_path / "password"
        password.touch(mode=0o600)
        password.write_text(PASSWORD)
        with in_background(here):
            return examine(here.mosquitto.port, username="pi7", password_file=str(password))

    return found


@pytest.mark.slow
@pytest.mark.alone
def test_a_broker_with_the_documented_access_list_is_good(
    with_account: Callable[..., Found],
) -> None:
    found = with_account(documented_access_list())
    assert wrong(found) == []
    assert {"exchange with server 0", "promptness", "access list"} <= set(found)


@pytest.mark.slow
@pytest.mark.alone
def test_an_access_list_that_lets_everybody_do_everything_is_found(
    with_account: Callable[..., Found],
) -> None:
    found = with_account("pattern readwrite #\ntopic readwrite #\n")
    assert wrong(found) == ["access list"]
    assert "may publish time for every clock" in found["access list"].value


@pytest.mark.slow
def test_an_access_list_that_confuses_clients_is_found(with_account: Callable[..., Found]) -> None:
    widened = documented_access_list() + "pattern readwrite mqtick/r/#\n"
    found = with_account(widened)
    assert found["access list"].result == "WARN"
    assert "mqtick/r/" in found["access list"].value
    assert "mqtick/t/" not in found["access list"].value


@pytest.mark.slow
def test_an_account_without_rights_hears_nothing_and_is_told_of_the_access_list(
    with_account: Callable[..., Found],
) -> None:
    server_only = documented_access_list().split("pattern")[0]
    found = with_account(server_only)
    assert found["time messages"].result == "FAIL"
    assert "access list" in found["time messages"].remedy
    assert found["messages to itself"].result == "WARN"
    assert "access list" not in found


@pytest.mark.slow
def test_an_account_that_may_only_listen_gets_no_answer(with_account: Callable[..., Found]) -> None:
    lines = documented_access_list().splitlines()
    found = with_account("\n".join(line for line in lines if "/q/+/%u" not in line))
    assert found["exchange with server 0"].result == "FAIL"
    assert "mqtick" not in found["time of server 0"].remedy
    assert "PREFIX/q/0/NAME" in found["exchange with server 0"].remedy


@pytest.mark.slow
@pytest.mark.alone
def test_a_broker_without_tcp_nodelay_is_found(with_account: Callable[..., Found]) -> None:
    found = with_account(documented_access_list(), "set_tcp_nodelay false")
    assert found["promptness"].result == "WARN", found["promptness"].value
    assert "set_tcp_nodelay true" in found["promptness"].remedy


@pytest.mark.slow
def test_a_server_that_is_a_day_ahead_answers_and_its_time_is_not_believed_yet(
    world: Callable[..., World], examine: Examine
) -> None:
    here = world()
    ahead = VirtualClockSettings.starting_now(offset_ns=86_400 * 1_000_000_000)
    here.serve(clock=VirtualClock(ahead))
    with in_background(here):
        found = examine(here.mosquitto.port)
    assert found["exchange with server 0"].result == "OK"
    check = found["time of server 0"]  # the second line of that name
    assert check.result == "WARN"
    assert re.search(r"by \+(86399\.9|86400\.0)", check.value)


@pytest.mark.slow
@pytest.mark.needs("nats-server")
def test_at_nats_a_topic_with_a_dot_and_an_older_mqtt_are_no_faults(
    tmp_path: Path, examine: Examine
) -> None:
    with running(Nats(tmp_path)) as broker:
        found = examine(broker.port, format="precise")
    assert (found["broker"].result, found["MQTT 5"].result) == ("OK", "WARN")
    assert found["subscriptions"].result == "OK"
    assert "not needed for precise time: _1451.1.6/BRSU/SYN" in found["subscriptions"].value


@pytest.mark.slow
def test_keys_that_differ_are_found(
    world: Callable[..., World], examine: Examine, tmp_path: Path
) -> None:
    here = world(KEYS)
    here.serve()
    other = tmp_path / "keys"
    other.touch(mode=0o600)
    other.write_text(f"fleet {b'another key of 26 octets..'.hex()}\n")
    with in_background(here):
        found = examine(here.mosquitto.port, keys_file=str(other))
    assert found["exchange with server 0"].result == "FAIL"
    assert any("keys differ" in check.remedy for check in found.values())


def test_a_silent_broker_has_no_time(world: Callable[..., World], examine: Examine) -> None:
    found = examine(world().mosquitto.port, listen_s=0.3)
    assert found["broker"].result == "OK"
    assert found["time messages"].value == "none in 0.3 s"


def test_a_broker_that_wants_a_password_says_so(tmp_path: Path, examine: Examine) -> None:
    with running(Mosquitto(tmp_path, anonymous=False)) as broker:
        check = examine(broker.port)["broker"]
    assert check.result == "FAIL"
    assert "refused the connection: Not authorized" in check.value
    assert "--password-file" in check.remedy


@pytest.mark.slow
def test_a_broker_that_accepts_and_stalls_is_given_up_in_time(examine: Examine) -> None:
    began_s = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as stalling:
        check = examine(stalling.getsockname()[1])["broker"]
    assert time.monotonic() - began_s < 6.0
    assert check.result == "FAIL"
    assert "accepted but did not answer within 0.5 s" in check.value


def test_no_broker_at_all_is_found_at_once(examine: Examine) -> None:
    began_s = time.monotonic()
    found = examine(1)
    assert time.monotonic() - began_s < 1.0
    assert "Connection refused" in found["broker"].value
