"""A broker that the matrix launches runs for its turn, and no longer."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from run_rig import wired

from demo.local_broker import free_port
from mqtick.lab.brokers import launch
from mqtick.lab.brokers.launch import LaunchError, launched, listens, prepared, recipes
from mqtick.lab.brokers.matrix import experiments_of, load_brokers
from mqtick.mqtt.broker import Broker, parse_broker_url
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.loop import Loop
from mqtick.service.settings.load import SettingsError, render

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


# ---- recipes ------------------------------------------------------------------------------------
BUILT = Path(__file__).parents[2] / "broker/server/target"


def carried(broker: Broker) -> list[bytes]:
    """Return what a subscriber gets of a message as long as a time message."""
    loop, arrivals, granted = Loop(), [], []
    connection = Connection(
        loop,
        broker,
        "node",
        on_publish=arrivals.append,
        on_up=lambda: connection.subscribe(["mqtick/t/#"], granted.append),
    )
    connection.start()
    try:
        assert loop.turn_until(lambda: granted, 30), connection.last_error
        connection.publish("mqtick/t/0", bytes(range(32)))
        loop.turn_until(lambda: arrivals, 30)
    finally:
        connection.close()
        loop.close()
    return [arrival.payload for arrival in arrivals]


@pytest.mark.slow
@pytest.mark.parametrize("name", recipes())
def test_a_broker_runs_by_its_recipe_and_carries_a_time_message(
    name: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = (str(BUILT / "release"), str(BUILT / "debug"), os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    recipe = recipes()[name]
    if recipe.found() is None:
        pytest.skip(f"{recipe.program} is not installed: {recipe.installed}")
    with prepared(name, broker) as command:
        with launched(command, broker):
            assert carried(broker) == [bytes(range(32))]
        files = [Path(word) for word in command if recipe.file and word.endswith(recipe.file)]
        assert all(file.exists() for file in files)
    assert not listens(broker)
    assert not any(file.exists() for file in files)


def test_a_recipe_whose_program_is_missing_says_how_to_come_by_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = replace(recipes()["mosquitto"], program="no-such-broker")
    monkeypatch.setattr(launch, "recipes", lambda: {"mosquitto": missing})
    with (
        pytest.raises(LaunchError, match="no-such-broker is not installed: apt-get install mosq"),
        prepared("mosquitto", broker),
    ):
        pytest.fail("it went on")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('broker = "mqtt://localhost"\nrecipe = "mosqito"', "mosqito"),
        ('broker = "mqtts://localhost"\nrecipe = "mosquitto"', "not mqtts://localhost:8883"),
        (
            'broker = "mqtt://localhost"\nrecipe = "mosquitto"\nlaunch = ["mosquitto"]',
            "contradict each other",
        ),
    ],
)
def test_a_recipe_that_cannot_serve_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "experiment.toml").write_text(render(wired({"scope": "TCPIP::x::1::SOCKET"})))
    (tmp_path / "brokers.toml").write_text(f"[broker.one]\n{text}\n")
    with pytest.raises(SettingsError, match=says):
        experiments_of(tmp_path / "experiment.toml", tmp_path / "brokers.toml")


# ---- the file -----------------------------------------------------------------------------------
def test_the_file_of_brokers_says_how_each_is_launched(tmp_path: Path) -> None:
    file = tmp_path / "brokers.toml"
    file.write_text(
        '[broker.mqtick]\nbroker = "mqtt://127.0.0.1:1884"\nlaunch = ["mqtick-broker"]\n'
        '[broker.other]\nbroker = "mqtt://127.0.0.1"\n'
    )
    assert [one.launch for one in load_brokers(file).values()] == [("mqtick-broker",), ()]
