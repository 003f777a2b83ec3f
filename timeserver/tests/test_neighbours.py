"""What a server makes of the time messages and statuses it hears."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from stage import KEYS, TREE, S, Stage, arrival

from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keyring
from mqtick.protocol.precise import Leap, Time
from mqtick.timeserver.announcement import GONE
from mqtick.timeserver.claims import Claims
from mqtick.timeserver.election import Election
from mqtick.timeserver.neighbours import Neighbours


class Server(Stage):
    """Number 5, connected just now."""

    def __init__(self, keys: Keyring | None = None) -> None:
        super().__init__(5, keys)
        self.signs = self.keys.broadcast()
        self.election = Election(5, 3 * S)
        self.claims = Claims(self, self.keys.server(), 3 * S, since=time.time_ns)
        self.neighbours = Neighbours(self, self.signs, self.election, self.claims, interval_ns=S)

    def message(self, number: int = 5, sequence: int = 900) -> bytes:
        message = Time(number, sequence, time.time_ns(), None, 0, 1, Leap.NONE, StampSource.NONE, 3)
        return self.signs.sign(message.body(), TREE.time(number))

    def hear(self, payload: bytes, number: int = 5, *, retain: bool = False) -> None:
        self.neighbours.on_time(arrival(TREE.time(number), payload, retain=retain))

    def status(self, number: int, payload: bytes, own: bytes = b"ours") -> None:
        self.neighbours.on_status(arrival(TREE.status(number), payload, retain=True), own)

    @property
    def alive(self) -> list[int]:
        return self.election.alive(time.monotonic_ns())


@pytest.fixture
def server() -> Server:
    return Server()


def test_whoever_publishes_time_is_alive(server: Server) -> None:
    server.hear(server.message(7), 7)
    server.hear(server.message(2), 2)
    assert server.alive == [2, 7]


def test_our_own_messages_are_known_whatever_the_broker_wrote_into_them(server: Server) -> None:
    message = replace(Time.decode(server.message()), fills=True, version=2)
    payload = server.signs.sign(message.body(), TREE.time(5))
    server.neighbours.sent(payload)
    server.hear(payload[:-16] + bytes(range(16)))
    assert server.claims.strangers == 0
    server.hear(payload[:-17] + b"?" + bytes(range(16)))
    assert server.claims.strangers == 1


def test_our_own_messages_are_known_when_they_come_back(server: Server) -> None:
    for sequence in range(1, 30):
        payload = server.message(sequence=sequence)
        server.neighbours.sent(payload)
        server.hear(payload)
    assert (server.claims.strangers, server.published) == (0, [])


def test_somebody_with_our_number_is_counted_and_asked_who_it_is(server: Server) -> None:
    for _ in range(3):
        server.hear(server.message())
    assert server.claims.strangers == 3
    assert server.refused == {"number-in-use": 3}
    assert len(server.published) == 1
    assert not server.claims.standing_by


def test_a_twin_that_counts_as_we_do_is_found_out(server: Server) -> None:
    for sequence in (1, 2):
        payload = server.message(sequence=sequence)
        server.neighbours.sent(payload)
        server.hear(payload)
        server.hear(server.message(sequence=sequence))
    assert server.claims.strangers == 2


# -- attackers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [Keyring(), Keyring(fleet=(bytes(32),))], ids=["none", "wrong"])
def test_who_has_no_key_is_not_even_asked(keys: Keyring) -> None:
    server, stranger = Server(KEYS), Server(keys)
    for number in (5, 2):
        server.hear(stranger.message(number), number)
    assert server.published == []
    assert server.alive == []
    assert sum(server.refused.values()) == 2
    assert set(server.refused) <= {"tag", "unsigned"}


def test_a_message_of_another_servers_topic_is_nobodys() -> None:
    server = Server(KEYS)
    server.hear(server.message(2), 5)
    assert server.alive == []
    assert server.refused == {"server": 1}


def test_retained_time_is_no_sign_of_life(server: Server) -> None:
    server.hear(server.message(2), 2, retain=True)
    assert server.alive == []
    assert server.refused == {"retained": 1}


@pytest.mark.parametrize("payload", [b"", b"now", b"\x11" + bytes(30), b"\xff" * 32], ids=repr)
def test_what_is_no_time_message_is_counted(server: Server, payload: bytes) -> None:
    server.hear(payload)
    assert sum(server.refused.values()) == 1


# -- statuses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [GONE, b'{"state": "gone"}', b'{ "state" : "gone" }'])
def test_who_says_goodbye_is_gone_at_once(server: Server, payload: bytes) -> None:
    server.hear(server.message(2), 2)
    server.status(2, payload)
    assert server.alive == []


@pytest.mark.parametrize("payload", [b'{"state": "synchronised"}', b"", b"gone"])
def test_any_other_status_changes_nothing(server: Server, payload: bytes) -> None:
    server.hear(server.message(2), 2)
    server.status(2, payload)
    server.status(9, payload)
    assert server.alive == [2]


def test_our_own_status_is_noticed_when_somebody_overwrote_it(server: Server) -> None:
    server.status(5, b"ours", own=b"ours")
    assert not server.neighbours.status_lost
    server.status(5, GONE, own=b"ours")  # the last will of a twin that was sent away
    assert server.neighbours.status_lost


def test_a_status_topic_that_is_none_is_counted(server: Server) -> None:
    server.neighbours.on_status(arrival("mqtick/s/0500", GONE, retain=True), b"")
    assert server.refused == {"topic": 1}
