"""A real Mosquitto, real servers and real clients in one loop; every true offset is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import holds

from demo.local_broker import Mosquitto
from mqtick.client.agent import Agent
from mqtick.client.config import Settings as ClientSettings
from mqtick.client.pending import WallSample
from mqtick.client.sample import Kind, SampleVerdict
from mqtick.mqtt.broker import Broker, parse_broker_url
from mqtick.mqtt.loop import Loop
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import Clock, SystemClock, VirtualClock, VirtualClockSettings
from mqtick.timeserver.config import Settings as ServerSettings
from mqtick.timeserver.server import Server

SECOND, MS, US = 1_000_000_000, 1_000_000, 1_000
OFFSET_NS = -3 * MS
"""Server minus client: the client's clock is three milliseconds ahead."""


class Client:
    """An agent with a wrong clock and what it measured."""

    def __init__(
        self,
        world: World,
        settings: ClientSettings,
        keyring: Keyring,
        name: str,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or VirtualClock(
            VirtualClockSettings.starting_now(offset_ns=-OFFSET_NS, frequency_ppb=20_000)
        )
        self.samples: list[WallSample] = []
        self.agent = Agent(
            settings,
            world.loop,
            replace(world.broker, version=settings.mqtt_version),
            self.clock,
            keyring,
            name,
            on_sample=lambda _track, wall: self.samples.append(wall),
        )
        self.asked = 0
        publish = self.agent.connection.publish

        def counting(topic: str, payload: bytes, properties: bytes = b"") -> Any:
            self.asked += "/q/" in topic
            return publish(topic, payload, properties)

        self.agent.connection.publish = counting  # type: ignore[method-assign]

    def good(self, kind: Kind) -> int:
        """How many samples of a kind were not refused."""
        return sum(
            wall.sample.kind is kind and wall.sample.verdict is not SampleVerdict.REFUSED
            for wall in self.samples
        )

    @property
    def exchanges(self) -> int:
        """How many exchanges were good."""
        return self.good(Kind.TWO_WAY)

    def truth_ns(self) -> int:
        """Server minus client, as it is: both clocks are this host's, one of them twisted."""
        before_ns = self.clock.raw_ns()
        now_ns = time.time_ns()
        return now_ns - (before_ns + self.clock.raw_ns()) // 2

    @property
    def knows_time(self) -> bool:
        """Whether there is a usable offset."""
        return self.agent.best() is not None

    def assert_truth_in_bound(self) -> None:
        """The interval of every known server holds the true offset, and so does its bound."""
        assert self.knows_time
        for track in self.agent.tracks:
            estimate = track.estimator.at(self.clock.raw_ns())
            if estimate.lower_ns is None or estimate.upper_ns is None:
                continue
            assert holds(estimate, self.truth_ns())
            assert estimate.upper_ns - estimate.lower_ns < 100 * MS


class World:
    """One loop; `run` turns it until something is true."""

    def __init__(self, folder: Path, keyring: Keyring | None = None) -> None:
        self.loop = Loop()
        self.mosquitto = Mosquitto(folder)
        self.keyring = keyring or Keyring()
        self.servers: list[Server] = []
        self.clients: list[Client] = []
        self._tick()

    @property
    def broker(self) -> Broker:
        """Where everybody connects."""
        return replace(parse_broker_url(self.mosquitto.url), connect_timeout_s=2.0)

    def _tick(self) -> None:
        for server in self.servers:
            server.tick()
        for client in self.clients:
            client.agent.tick()
        self.loop.call_later(SECOND, self._tick)

    def serve(
        self, *, clock: Clock | None = None, keyring: Keyring | None = None, **settings: Any
    ) -> Server:
        """Start a server that trusts its clock, and wait until it publishes."""
        known = {"trust_system_clock": True, "interval_s": 0.25, **settings}
        server = Server(
            ServerSettings(**known),
            self.loop,
            self.broker,
            clock or SystemClock(),
            self.keyring if keyring is None else keyring,
        )
        server.start()
        self.servers.append(server)
        publishes = "precise" in server.settings.formats
        self.run(lambda: server.broadcast.sent > 1 if publishes else server.leads())
        return server

    def settle(self, server: Server) -> None:
        """Wait until a server is sure of its number: then it has a retained status."""
        self.run(lambda: server.election.settled(time.monotonic_ns()))
        server.tick()
        self.run_for(0.1)

    def stop(self, server: Server) -> None:
        """Let a server go."""
        server.close()
        self.servers.remove(server)

    def follow(
        self,
        *,
        keyring: Keyring | None = None,
        name: str = "pi7",
        clock: Clock | None = None,
        **settings: Any,
    ) -> Client:
        """Start a client."""
        known = {"fast": True, **settings}
        keys = self.keyring if keyring is None else keyring
        client = Client(self, ClientSettings(**known), keys, name, clock)
        client.agent.start()
        self.clients.append(client)
        return client

    def run(self, until: Callable[[], object] = lambda: False, limit_s: float = 10.0) -> float:
        """Turn the loop until something is true; returns the seconds that took."""
        began_s = time.monotonic()
        while not until():
            if time.monotonic() - began_s > limit_s:
                raise AssertionError(f"not within {limit_s} s; {self._state()}")
            self.loop.turn(0.01)
        return time.monotonic() - began_s

    def run_for(self, duration_s: float) -> None:
        """Turn the loop for some time."""
        end_s = time.monotonic() + duration_s
        self.run(lambda: time.monotonic() >= end_s, duration_s + 5)

    def _state(self) -> str:
        return "; ".join(
            f"{client.agent.name}: connected {client.agent.connection.connected}, "
            f"{client.agent.connection.last_error}, {dict(client.agent.refused)}, "
            f"{len(client.samples)} samples"
            for client in self.clients
        )

    def close(self) -> None:
        """End everything."""
        for client in self.clients:
            client.agent.close()
        for server in self.servers:
            server.close()
        self.loop.close()
        self.mosquitto.stop()


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A world with a running broker; its parameter, if it has one, is the keyring of everybody."""
    made = World(tmp_path, getattr(request, "param", None))
    made.mosquitto.start()
    yield made
    made.close()
