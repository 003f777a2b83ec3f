"""Fixtures of the tests that run the broker's programs."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.tests.harness.brokers import Broker, Gateway, Launch
from broker.tests.harness.sites import Site, joined
from demo.local_broker import Mosquitto, program, running
from tests.rig import Rig


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start a broker; see `Broker` and its kinds for the arguments. It must not panic."""
    with contextlib.ExitStack() as open_ones:

        def start(*lines: Any, kind: type[Broker] = Broker, **options: Any) -> Broker:
            broker = kind(tmp_path, *lines, **options)
            open_ones.enter_context(running(broker))
            return broker

        yield start
    for log in tmp_path.glob("*.log"):
        assert "panicked" not in log.read_text()
        assert "a worker failed" not in log.read_text()


@pytest.fixture
def descriptors() -> Iterator[int]:
    """How many more files this process, and the broker that it starts, may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 12_000 if hard == resource.RLIM_INFINITY else min(hard, 12_000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield max(soft, wanted) - 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Our Python programs."""
    with contextlib.closing(Rig()) as made:
        yield made


# -- gateways --------------------------------------------------------------------------------------


@pytest.fixture(params=["aggregating", "transparent"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both modes of a gateway."""
    return str(request.param)


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker behind a gateway."""
    if program("mosquitto") is None:
        pytest.skip(Mosquitto.missing)
    with running(Mosquitto(tmp_path, "persistence false")) as broker:
        yield broker


@pytest.fixture
def launch_gateway(launch: Launch, mode: str) -> Launch:
    """Start a gateway before a broker, connected unless that is not wanted."""

    def start(url: str, sn_lines: str = "", lines: str = "", *, connects: bool = True) -> Broker:
        made = launch(url, mode, sn_lines, lines, kind=Gateway)
        if connects:
            made.says("connected, MQTT")
        return made

    return start


# -- sites -----------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[Site]]:
    """Two sites that are joined."""
    with joined(tmp_path, [Mosquitto] * 2) as sites:
        yield sites


@pytest.fixture(params=["subscriptions", "publications"])
def row(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Site]]:
    """Three sites in a row, under both algorithms."""
    with joined(tmp_path, [Mosquitto] * 3, f'algorithm = "{request.param}"') as sites:
        yield sites
