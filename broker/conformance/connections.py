"""What a test makes its connections with, and how it says what it is about."""

from __future__ import annotations

import itertools
import secrets
from typing import Any

import pytest

from broker.conformance import client
from broker.conformance.client import V5, Carrier, Client, Encoder
from broker.conformance.datagrams import Datagrams
from broker.conformance.launch import Judged, Udp

statement = pytest.mark.statement
"""The statements that a test is about: `MQTT-` those of 3.1.1, `MQTT5-` those of 5.

A test runs in each version that it names a statement of.
"""
_RUN = secrets.token_hex(3)
_numbers = itertools.count(1)


class Mqtt:
    """Connections of one test, which has client identifiers and topics of its own."""

    def __init__(self, broker: Judged, version: int, prefix: str = "") -> None:
        self.broker, self.version, self.prefix = broker, version, prefix
        self.encode = Encoder(version)
        self._own = f"t{_RUN}n{next(_numbers)}"
        self._names = itertools.count(1)
        self._clients: list[Client] = []

    def name(self) -> str:
        """A client identifier that nobody else has."""
        return f"{self._own}c{next(self._names)}"

    def topic(self, rest: str = "a") -> str:
        """A topic of this test."""
        return f"{self.prefix}{self._own}/{rest}"

    def raw(self, client_id: str | None = None, carrier: Carrier | None = None) -> Client:
        """A connection on which nothing has been said, over TCP, a WebSocket or UDP."""
        name = self.name() if client_id is None else client_id
        if isinstance(self.broker, Udp):
            carrier = Datagrams(self.broker.address, client.PATIENCE_S)
        made = Client(self.broker.address, self.version, name, carrier)
        self._clients.append(made)
        return made

    def connect(self, client_id: str | None = None, **options: Any) -> Client:
        """A connection that the broker has accepted."""
        made = self.raw(client_id)
        assert made.connect(**options).reason == 0
        return made

    def keep(self, client_id: str | None = None, *, clean: bool = False, **options: Any) -> Client:
        """A connection whose session outlives it, in either version."""
        if self.version == V5:
            options["properties"] = [("session_expiry", 3600), *options.get("properties", ())]
        return self.connect(client_id, clean=clean, **options)

    def subscriber(self, *filters: str | tuple[str, int], **options: Any) -> Client:
        """A connection that has subscribed."""
        made = self.connect(**options)
        answer = made.subscribe(*filters)
        assert max(answer.reasons) < 0x80, answer
        return made

    def close(self) -> None:
        """End all of them."""
        for each in self._clients:
            each.close()
