"""The doctor's own publisher and subscribers: connections that share one loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.link import Link, look_at_door, reach
from mqtick.mqtt.loop import Loop

_ANSWER_S = 2.0


@dataclass(slots=True)
class Peer:
    """A connection and its arrivals."""

    connection: Connection
    arrivals: list[Arrival] = field(default_factory=list)


class Peers:
    """Makes connections whose names begin with `name`, and waits for them."""

    def __init__(self, loop: Loop, name: str) -> None:
        self.loop, self._name = loop, name
        self.all: list[Peer] = []
        self.link = Link("", connected=False)
        """The first of the last connections that failed, or the first one of all."""

    def connect(self, broker: Broker, count: int) -> list[Peer]:
        """Make connections, and wait; returns fewer if the broker does not accept them all."""
        made = []
        for _ in range(count):
            arrivals: list[Arrival] = []
            connection = Connection(
                self.loop,
                broker,
                f"{self._name}{len(self.all)}",
                on_publish=arrivals.append,
                on_up=lambda: None,
                quiet=True,
            )
            made.append(Peer(connection, arrivals))
            self.all.append(made[-1])
        connect_ns = reach(self.loop, [peer.connection for peer in made])
        links = [Link.of(peer.connection, connect_ns) for peer in made]
        link = next((one for one in links if not one.connected), links[0])
        self.link = look_at_door(link, broker)
        return [peer for peer in made if peer.connection.connected]

    def subscribe(self, peer: Peer, topic: str) -> bool:
        """Subscribe, wait, and return whether the broker granted it."""
        answers: list[bool] = []
        peer.connection.subscribe([topic], answers.append)
        self.loop.turn_until(lambda: answers, _ANSWER_S)
        return answers == [True]

    def broken(self) -> str:
        """Return why a connection was lost since it was made; empty if none was."""
        for peer in self.all:
            if peer.connection.connects > 1 or not peer.connection.connected:
                return peer.connection.last_error
        return ""

    def close(self, peers: list[Peer] | None = None) -> None:
        """Disconnect these peers; without an argument, all of them."""
        for peer in list(self.all if peers is None else peers):
            peer.connection.close()
            self.all.remove(peer)
