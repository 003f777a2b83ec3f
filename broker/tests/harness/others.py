"""Clients that want to be served while somebody else does harm."""

from __future__ import annotations

import itertools
import socket
import struct

from broker.conformance.client import V5, Client
from broker.tests.harness.brokers import Broker

ONE_THREAD = "threads = 1"
"""Who harms shares it with who is served."""


class Others:
    """Two clients that want nothing but their messages."""

    def __init__(self, sender: Client, hearer: Client) -> None:
        self.sender, self.hearer = sender, hearer
        self.numbers = itertools.count()
        hearer.subscribe("others")

    def are_served(self) -> None:
        """One publishes, the other one gets it, and the first one's acknowledgement comes."""
        payload = b"%d" % next(self.numbers)
        self.sender.publish("others", payload, qos=1)
        assert self.hearer.message().payload == payload


def others_of(broker: Broker) -> Others:
    """Two of a broker's clients."""
    return Others(broker.client(), broker.client())


def connection(port: int, *, window: int | None = None) -> socket.socket:
    """A connection that leaves nothing behind; `window`: octets that wait for who does not read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if window:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    made.settimeout(60)
    made.connect(("127.0.0.1", port))
    return made


def deaf_client(broker: Broker, name: str) -> Client:
    """A connected client whose socket takes little until it is read."""
    client = Client(("", 0), V5, name, connection(broker.port, window=4096))
    assert client.connect().reason == 0
    return client
