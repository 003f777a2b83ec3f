"""A host with several addresses: a dead one costs a quarter of a second, not the limit."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from mqtick.mqtt.happy_eyeballs import connect_to


@pytest.fixture
def dead() -> Iterator[int]:
    """A port of 127.0.0.1 that answers no SYN, because its backlog is full."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@pytest.fixture
def alive() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def resolve(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: found)


def test_a_dead_address_costs_a_quarter_of_a_second(
    monkeypatch: pytest.MonkeyPatch, dead: int, alive: int
) -> None:
    resolve(monkeypatch, ("127.0.0.1", dead), ("127.0.0.1", alive))
    began_s = time.monotonic()
    with connect_to("broker.lan", 1883, 60.0) as sock:
        assert sock.getpeername()[1] == alive
        assert sock.gettimeout() == 60.0
    assert time.monotonic() - began_s < 30


def test_a_refusing_or_unreachable_address_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, alive: int
) -> None:
    resolve(monkeypatch, ("127.0.0.1", 1), ("255.255.255.255", 1), ("127.0.0.1", alive))
    with connect_to("broker.lan", 1883, 60.0) as sock:
        assert sock.getpeername()[1] == alive


def test_families_take_turns(monkeypatch: pytest.MonkeyPatch, alive: int) -> None:
    tried: list[int] = []
    six, four = socket.AF_INET6, socket.AF_INET
    found = [(six, 1, 6, "", (one, 1, 0, 0)) for one in ("::1", "::2")]
    found += [(four, 1, 6, "", ("127.0.0.1", alive))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: found)
    make = socket.socket

    def made(family: int, *more: int) -> socket.socket:
        tried.append(family)
        return make(family, *more)

    monkeypatch.setattr(socket, "socket", made)
    connect_to("broker.lan", 1883, 60.0).close()
    assert tried == [six, four]


def test_if_none_answers_the_error_is_one_of_theirs(
    monkeypatch: pytest.MonkeyPatch, dead: int
) -> None:
    resolve(monkeypatch, ("127.0.0.1", 1), ("127.0.0.1", 1))
    with pytest.raises(ConnectionRefusedError):
        connect_to("broker.lan", 1883, 60.0)
    resolve(monkeypatch, ("127.0.0.1", dead))
    with pytest.raises(TimeoutError):
        connect_to("broker.lan", 1883, 0.05)


@pytest.mark.parametrize("first", [True, False])
def test_a_family_that_this_host_lacks_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, dead: int, alive: int, *, first: bool
) -> None:
    """With `ipv6.disable=1` names still have IPv6 addresses."""
    unknown = (44, socket.SOCK_STREAM, 6, "", ("::1", 1, 0, 0))
    places = [("127.0.0.1", dead), ("127.0.0.1", alive)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
    found.insert(0 if first else 1, unknown)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: found)
    with connect_to("broker.lan", 1883, 60.0) as sock:
        assert sock.getpeername()[1] == alive
