"""A broker that the matrix launches runs for its turn, and no longer."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from demo.local_broker import free_port
from mqtick.lab.brokers.launch import LaunchError, launched, listens
from mqtick.lab.brokers.matrix import load_brokers
from mqtick.mqtt.broker import Broker, parse_broker_url

LISTEN = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as door:
    while True:
        door.accept()[0].close()
"""


@pytest.fixture
def broker() -> Broker:
    return parse_broker_url(f"mqtt://127.0.0.1:{free_port()}")


def listener(broker: Broker) -> list[str]:
    return [sys.executable, "-c", LISTEN, str(broker.port)]


def test_it_can_be_reached_during_its_turn_and_not_after(broker: Broker) -> None:
    with launched(listener(broker), broker):
        assert listens(broker)
    assert not listens(broker)


def test_it_ends_when_the_experiment_fails(broker: Broker) -> None:
    with pytest.raises(ZeroDivisionError), launched(listener(broker), broker):
        raise ZeroDivisionError
    assert not listens(broker)


def test_without_a_command_nothing_is_started(broker: Broker) -> None:
    with launched((), broker):
        assert not listens(broker)


def test_another_broker_at_its_address_is_not_measured_in_its_place(broker: Broker) -> None:
    with (
        socket.create_server((broker.host, broker.port)),
        pytest.raises(LaunchError, match="somebody listens there already"),
        launched(listener(broker), broker),
    ):
        pytest.fail("it went on")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["/nowhere/broker"], "/nowhere/broker: No such file"),
        ([sys.executable, "-c", "raise SystemExit('bad settings')"], "ended with 1.*bad settings"),
    ],
)
def test_one_that_does_not_start_is_reported_with_its_words(
    broker: Broker, command: list[str], says: str
) -> None:
    with pytest.raises(LaunchError, match=says), launched(command, broker):
        pytest.fail("it went on")


def test_the_file_of_brokers_says_how_each_is_launched(tmp_path: Path) -> None:
    file = tmp_path / "brokers.toml"
    file.write_text(
        '[broker.mqtick]\nbroker = "mqtt://127.0.0.1:1884"\nlaunch = ["mqtick-broker"]\n'
        '[broker.other]\nbroker = "mqtt://127.0.0.1"\n'
    )
    assert [one.launch for one in load_brokers(file).values()] == [("mqtick-broker",), ()]
