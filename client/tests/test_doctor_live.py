"""What the doctor hears at real brokers, good and bad ones."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mqtick.client import doctor_broker
from mqtick.client.config import Settings
from mqtick.client.doctor_broker import Heard
from mqtick.protocol.auth import Keyring
from mqtick.protocol.broker import parse_broker_url

sys.path.insert(0, str(Path(__file__).parent))
from live_world import HAS_BROKER, Mosquitto, World

pytestmark = pytest.mark.skipif(
    not HAS_BROKER, reason="mosquitto is not installed; install it with: apt install mosquitto"
)

KEYS = Keyring(fleet=(b"fleet key of 24 octets..",))


def listen(port: int, *, listen_s: float = 1.2, keyring: Keyring | None = None) -> Heard:
    broker = replace(parse_broker_url(f"mqtt://127.0.0.1:{port}"), connect_timeout_s=0.3)
    return doctor_broker.listen(Settings(), broker, keyring or Keyring(), "pi7", listen_s=listen_s)


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

    def make(keyring: Keyring | None = None) -> World:
        made.append(World(tmp_path, keyring))
        made[-1].mosquitto.start()
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
        doctor_broker.check_subscriptions(heard),
        *doctor_broker.check_times(heard, "auto", 1.2),
        *doctor_broker.check_exchanges(heard, use_two_way=True),
    ]
    assert [check.line() for check in checks if check.result != "OK"] == []


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
    assert time.monotonic() - began_s < 3.0
    assert not heard.connected
    assert "accepted but did not answer within 0.3 s" in heard.error


def test_no_broker_at_all_is_found_at_once() -> None:
    began_s = time.monotonic()
    heard = listen(1)
    assert time.monotonic() - began_s < 1.0
    assert "Connection refused" in heard.error
