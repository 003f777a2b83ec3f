"""The broker under test, connections to it, and the statements that each test is about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.conformance import client
from broker.conformance.client import V3, V5
from broker.conformance.connections import Mqtt
from broker.conformance.launch import Judged, NotInstalledError, launch
from broker.conformance.statements import deviations, names

STANDARDS = {V3: "MQTT-", V5: "MQTT5-"}
VERSION_NAMES = {V3: "3.1.1", V5: "5"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--broker", default="mosquitto", help="mosquitto or mqtick=PATH")
    group.addoption("--patience", type=float, default=30, help="seconds an event may take (30)")
    group.addoption("--address", help="HOST:PORT of a broker that runs, instead of --broker")


def pytest_configure(config: pytest.Config) -> None:
    client.PATIENCE_S = config.getoption("--patience")
    config.addinivalue_line("markers", "statement(*numbers): which statements the test is about")


def statements_of(function: Any) -> list[str]:
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "statement"]
    return [number for mark in marks for number in mark.args]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each version of MQTT that it has a statement of."""
    if "mqtt" in metafunc.fixturenames:
        numbers = statements_of(metafunc.function)
        versions = [
            version
            for version, standard in STANDARDS.items()
            if any(number.startswith(standard) for number in numbers)
        ]
        assert versions, f"{metafunc.definition.nodeid} names no statement"
        ids = [VERSION_NAMES[version] for version in versions]
        metafunc.parametrize("mqtt", versions, ids=ids, indirect=True, scope="function")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        version = item.callspec.params.get("mqtt")
        if isinstance(version, int):
            numbers = [
                number
                for number in statements_of(item.function)
                if number.startswith(STANDARDS[version])
            ]
            item.user_properties.append(("statements", numbers))


@pytest.fixture(scope="session")
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Judged]:
    """The broker, started once."""
    config = request.config
    try:
        broker = launch(
            tmp_path_factory.mktemp("broker"),
            config.getoption("broker"),
            config.getoption("address"),
        )
    except NotInstalledError as error:
        pytest.skip(f"nothing was judged: {error}")
    yield broker
    broker.stop()


@pytest.fixture
def mqtt(judged: Judged, request: pytest.FixtureRequest) -> Iterator[Mqtt]:
    """Connections to the broker in one version; it has to live through the test."""
    name = request.node.name
    for each in deviations():
        if each.broker == judged.name and names(name) & set(each.tests):
            request.node.user_properties.append(("deviates", list(each.statements)))
            request.node.add_marker(
                pytest.mark.xfail(reason=each.does, strict=each.version == judged.version)
            )
    request.node.user_properties.append(("broker", f"{judged.name} {judged.version}"))
    connections = Mqtt(judged, request.param)
    yield connections
    connections.close()
    assert judged.alive(), "the broker ended"
