"""The broker under test, connections to it, and the statements that each test is about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.conformance import client
from broker.conformance.client import V3, V5
from broker.conformance.connections import Mqtt
from broker.conformance.launch import ALLOWED, Judged, NotInstalledError, Udp, launch
from broker.conformance.statements import deviations, names

STANDARDS = {V3: "MQTT-", V5: "MQTT5-"}
FIXTURES = {"mqtt", "guarded", "udp"}
VERSION_NAMES = {V3: "3.1.1", V5: "5"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--broker", default="mosquitto", help="mosquitto or mqtick=PATH")
    group.addoption("--kept", action="store_true", help="mqtick keeps sessions on disk")
    group.addoption("--patience", type=float, default=30, help="seconds an event may take (30)")
    group.addoption("--address", help="HOST:PORT of a broker that runs, instead of --broker")
    group.addoption(
        "--udp", default="reference", help="reference, model (the RTL), mqtick=PATH or HOST:PORT"
    )


def pytest_configure(config: pytest.Config) -> None:
    client.PATIENCE_S = config.getoption("--patience")
    config.addinivalue_line("markers", "statement(*numbers): which statements the test is about")


def statements_of(function: Any) -> list[str]:
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "statement"]
    return [number for mark in marks for number in mark.args]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each version of MQTT that it has a statement of."""
    for fixture in FIXTURES & set(metafunc.fixturenames):
        numbers = statements_of(metafunc.function)
        versions = [
            version
            for version, standard in STANDARDS.items()
            if any(number.startswith(standard) for number in numbers)
        ]
        assert versions, f"{metafunc.definition.nodeid} names no statement"
        ids = [VERSION_NAMES[version] for version in versions]
        metafunc.parametrize(fixture, versions, ids=ids, indirect=True, scope="function")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        version = next((v for k, v in item.callspec.params.items() if k in FIXTURES), None)
        if isinstance(version, int):
            numbers = [
                number
                for number in statements_of(item.function)
                if number.startswith(STANDARDS[version])
            ]
            item.user_properties.append(("statements", numbers))


class Brokers:
    """The brokers under test, each started when it is first needed, or after it has ended."""

    def __init__(self, config: pytest.Config, factory: pytest.TempPathFactory) -> None:
        self._config, self._factory = config, factory
        self._brokers: dict[bool, Judged] = {}

    def get(self, *, guarded: bool) -> Judged:
        """The one with or without an access list; skips where it cannot be had."""
        if guarded not in self._brokers:
            try:
                self._brokers[guarded] = launch(
                    self._factory.mktemp("broker"),
                    self._config.getoption("broker"),
                    self._config.getoption("address"),
                    guarded=guarded,
                    kept=self._config.getoption("kept"),
                )
            except NotInstalledError as error:
                pytest.skip(f"nothing was judged: {error}")
        broker = self._brokers[guarded]
        if not broker.alive():
            broker.start()
        return broker

    def stop(self) -> None:
        """End all of them."""
        for broker in self._brokers.values():
            broker.stop()


@pytest.fixture(scope="session")
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    brokers = Brokers(request.config, tmp_path_factory)
    yield brokers
    brokers.stop()


def connections(request: pytest.FixtureRequest, judged: Judged, prefix: str = "") -> Iterator[Mqtt]:
    """Connections of one test to a broker, which has to live through it."""
    name = request.node.name
    for each in deviations():
        if each.broker == judged.name and names(name) & set(each.tests):
            request.node.user_properties.append(("deviates", list(each.statements)))
            request.node.add_marker(
                pytest.mark.xfail(reason=each.does, strict=each.version == judged.version)
            )
    request.node.user_properties.append(("broker", f"{judged.name} {judged.version}"))
    made = Mqtt(judged, request.param, prefix)
    yield made
    made.close()
    assert judged.alive(), "the broker ended"


@pytest.fixture
def mqtt(brokers: Brokers, request: pytest.FixtureRequest) -> Iterator[Mqtt]:
    """A broker that is open to everybody."""
    yield from connections(request, brokers.get(guarded=False))


@pytest.fixture
def guarded(brokers: Brokers, request: pytest.FixtureRequest) -> Iterator[Mqtt]:
    """A broker with an access list, and topics that are open to its one user."""
    yield from connections(request, brokers.get(guarded=True), ALLOWED)


@pytest.fixture(scope="session")
def on_udp(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Udp]:
    """The broker that is judged over UDP."""
    try:
        broker = Udp(tmp_path_factory.mktemp("udp"), request.config.getoption("--udp"))
    except NotInstalledError as error:
        pytest.skip(f"nothing was judged over UDP: {error}")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def udp(on_udp: Udp, request: pytest.FixtureRequest) -> Iterator[Mqtt]:
    """A broker that speaks MQTT over UDP."""
    yield from connections(request, on_udp)
