"""What a client does when an experiment's runner commands it, and what never happens to it."""

from __future__ import annotations

import json
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from live_world import Client, World, world

from mqtick.client import experiments as experiments_module
from mqtick.client.experiments import Experiments
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.stamps import Stamp, StampSource
from mqtick.pins import Edge
from mqtick.protocol.topics import TopicTree

__all__ = ["world"]  # a fixture

pytestmark = pytest.mark.needs("mosquitto")


class Commanded:
    """A client that obeys, and what it and the runner said, in the order of the connection."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.client: Client = world.follow(format="precise", **settings)
        self.said: list[tuple[str, Any]] = []
        agent = self.client.agent
        agent.experiments = Experiments(agent, deque[Edge](), None, dict)
        connection = agent.connection
        unsubscribe, subscribe = connection.unsubscribe, connection.subscribe

        def unsubscribing(topics: Any) -> None:
            self.said.append(("unsubscribe", list(topics)))
            unsubscribe(topics)

        def subscribing(topics: Any, *done: Any) -> None:
            self.said.append(("subscribe", list(topics)))
            subscribe(topics, *done)

        connection.unsubscribe, connection.subscribe = unsubscribing, subscribing  # type: ignore
        world.run(lambda: connection.connected)
        self.control = world.follow(name="runner").agent.connection
        self.answers: list[dict[str, Any]] = []
        self.control.on_publish = self._heard
        world.run(lambda: self.control.connected)
        self.control.subscribe(["mqtick/y/+/+"])
        world.run_for(0.05)
        self.said.clear()
        self.world = world

    def _heard(self, arrival: Arrival) -> None:
        if arrival.topic == "mqtick/y/c/pi7":
            self.answers.append(json.loads(arrival.payload))

    def ask(self, do: str) -> dict[str, Any]:
        self.answers.clear()
        payload = json.dumps({"id": "00000001", "do": do}).encode()
        self.control.publish("mqtick/x/c/pi7", payload)
        self.world.run(lambda: self.answers and "ok" in self.answers[-1])
        return self.answers[-1]


def test_join_unsubscribes_first_so_that_it_goes_to_the_end_of_the_order(world: World) -> None:
    node = Commanded(world)
    assert node.ask("join") == {"id": "00000001", "ok": True}
    assert node.said == [("unsubscribe", ["mqtick/t/+"]), ("subscribe", ["mqtick/t/+"])]


def test_after_a_new_connection_it_has_joined(world: World) -> None:
    node = Commanded(world)
    agent = node.client.agent
    assert node.ask("leave")["ok"]
    assert not agent.joined
    node.said.clear()
    world.mosquitto.stop()
    world.run(lambda: not agent.connection.connected)
    world.mosquitto.start()
    world.run(lambda: agent.connection.connected)
    assert agent.joined
    assert "mqtick/t/+" in node.said[0][1]
    assert ("subscribe", ["mqtick/x/c/pi7"]) in node.said


def test_who_is_forgotten_joins_by_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Commanded(world)
    agent = node.client.agent
    node.ask("leave")
    agent.tick()
    assert not agent.joined
    later_s = time.monotonic() + 901
    with monkeypatch.context() as patch:
        patch.setattr(experiments_module.time, "monotonic", lambda: later_s)
        agent.tick()
    assert agent.joined
    assert node.said[-2:] == [("unsubscribe", ["mqtick/t/+"]), ("subscribe", ["mqtick/t/+"])]


def test_a_client_of_another_format_says_that_it_cannot_leave(world: World) -> None:
    node = Commanded(world, name="pi7")
    object.__setattr__(node.client.agent.settings, "format", "1451.1.6")
    answer = node.ask("leave")
    assert "set its format to precise" in answer["error"]
    assert node.client.agent.joined


def test_without_the_setting_it_does_not_listen(world: World) -> None:
    agent = world.follow().agent
    world.run(lambda: agent.connection.connected)
    assert agent.experiments is None
    assert not any("/x/" in topic for topic in agent._servers.topics())


def test_the_last_edges_name_the_message_that_made_them_if_it_has_a_name() -> None:
    """A pin is driven before the message is read, whatever it turns out to be."""
    said: list[bytes] = []
    agent = SimpleNamespace(name="pi7", tree=TopicTree(), refuse=said.append)
    agent.connection = SimpleNamespace(
        connects=1, publish_unstamped=lambda _topic, payload: said.append(payload)
    )
    edges = deque[Edge]()
    node = Experiments(agent, edges, None, dict)  # type: ignore[arg-type]
    for number, payload in enumerate((b"\x11\x07\x00\x00\x01\x02\xff", b"\x11\x07")):
        edges.append(Edge(number, number + 1, True))
        node.on_time(Arrival("mqtick/t/7", payload, Stamp(0, StampSource.KERNEL), False, b""))
    command = Arrival(
        "", b'{"id": "00000001", "do": "edges"}', Stamp(0, StampSource.USER), False, b""
    )
    node.on_command(command)
    (answer,) = map(json.loads, said)
    first, second = answer["edges"]
    assert (first["server"], first["sequence"]) == (7, 0x102)
    assert "server" not in second
