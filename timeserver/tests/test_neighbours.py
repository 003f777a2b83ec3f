"""What a server makes of the time messages and statuses it hears."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mqtick.protocol.auth import Keyring
from mqtick.protocol.frames import Arrival
from mqtick.protocol.precise import Leap, Time
from mqtick.protocol.stamps import Source, Stamp
from mqtick.protocol.topics import TopicTree
from mqtick.timeserver.counters import Counters
from mqtick.timeserver.election import Election
from mqtick.timeserver.neighbours import GONE, Neighbours

TREE = TopicTree()
KEYS = Keyring(fleet=(bytes(range(32)),))
S = 1_000_000_000


class Server:
    """Number 5, connected just now."""

    def __init__(self, keys: Keyring | None = None) -> None:
        self.keys = (keys or Keyring()).broadcast()
        self.counters = Counters()
        self.election = Election(5, 3 * S)
        self.neighbours = Neighbours(
            TREE, self.keys, self.election, self.counters, interval_ns=S, generation=3
        )
        self.up_ns = time.time_ns()
        self.neighbours.connected(self.up_ns)

    def message(self, number: int = 5, sequence: int = 900, **changes: Any) -> bytes:
        fields = {"transmit_ns": time.time_ns(), "generation": 3, **changes}
        message = Time(
            number,
            sequence,
            fields["transmit_ns"],
            None,
            0,
            1,
            Leap.NONE,
            Source.NONE,
            fields["generation"],
        )
        return self.keys.sign(message.body(), TREE.time(number))

    def hear(self, payload: bytes, number: int = 5, *, retain: bool = False) -> None:
        stamp = Stamp(time.time_ns(), Source.KERNEL)
        self.neighbours.on_time(Arrival(TREE.time(number), payload, stamp, retain, b""))

    def status(self, number: int, payload: bytes, own: bytes = b"ours") -> None:
        stamp = Stamp(time.time_ns(), Source.KERNEL)
        arrival = Arrival(TREE.status(number), payload, stamp, True, b"")
        self.neighbours.on_status(arrival, own)

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


def test_our_own_messages_are_known_when_they_come_back(server: Server) -> None:
    for sequence in range(1, 30):
        payload = server.message(sequence=sequence)
        server.neighbours.sent(payload)
        server.hear(payload)
    assert not server.neighbours.has_to_go
    assert server.election.conflicts == 0


def test_somebody_older_with_our_number_makes_us_go(server: Server) -> None:
    server.neighbours.sent(server.message(sequence=1))
    server.hear(server.message(sequence=900))
    assert server.neighbours.has_to_go
    assert server.counters.refused == {"number-in-use": 1}


def test_somebody_younger_with_our_number_is_given_time_to_go(server: Server) -> None:
    server.neighbours.sent(server.message(sequence=10))
    server.hear(server.message(sequence=1))
    assert not server.neighbours.has_to_go


@pytest.mark.parametrize(("theirs", "goes"), [(2, True), (4, False)])
def test_of_two_that_began_together_the_higher_generation_goes(
    server: Server, theirs: int, goes: bool
) -> None:
    server.neighbours.sent(server.message(sequence=2))
    server.hear(server.message(sequence=2, generation=theirs))
    assert server.neighbours.has_to_go is goes


@pytest.mark.parametrize(("later_s", "goes"), [(0, True), (1, True), (2, True), (3, False)])
def test_who_was_first_is_told_by_the_messages_sent_until_the_same_second(
    server: Server, later_s: int, goes: bool
) -> None:
    now_ns = time.time_ns()
    server.neighbours.sent(server.message(sequence=2, transmit_ns=now_ns))
    # Had it begun when we did, its fourth message would come two seconds after our second one.
    server.hear(server.message(sequence=4, transmit_ns=now_ns + later_s * S))
    assert server.neighbours.has_to_go is goes


def test_a_twin_that_counts_as_we_do_is_found_out(server: Server) -> None:
    for sequence in (1, 2):
        payload = server.message(sequence=sequence)
        server.neighbours.sent(payload)
        server.hear(payload)
        server.hear(server.message(sequence=sequence, transmit_ns=time.time_ns() + 1))
    assert server.election.conflicts == 2


# -- two servers, together -------------------------------------------------------------------------

NOW = 1_781_234_567 * S
TENTH = S // 10


class Twin:
    """A server that speaks at whole multiples of its interval; `Broker` carries its messages."""

    def __init__(self, start_ns: int, interval_ns: int, generation: int, ahead_ns: int = 0) -> None:
        self.start_ns, self.interval_ns = start_ns, interval_ns
        self.generation, self.ahead_ns = generation, ahead_ns
        self.sequence = 0
        election = Election(0, max(2 * S, 7 * interval_ns // 2))
        self.neighbours = Neighbours(
            TREE,
            Keyring().broadcast(),
            election,
            Counters(),
            interval_ns=interval_ns,
            generation=generation,
        )

    @property
    def stays(self) -> bool:
        return not self.neighbours.has_to_go

    def due(self, at_ns: int) -> bool:
        time_ns = at_ns + self.ahead_ns
        return self.stays and at_ns > self.start_ns and time_ns % self.interval_ns == 0

    def speak(self, at_ns: int) -> bytes:
        self.sequence += 1
        stated_ns = NOW + at_ns + self.ahead_ns + 70_000
        message = Time(
            0, self.sequence, stated_ns, None, 0, 1, Leap.NONE, Source.NONE, self.generation
        )
        payload = message.body() + bytes(8)
        self.neighbours.sent(payload)
        return payload


def survivors(
    monkeypatch: pytest.MonkeyPatch, *twins: Twin, late_tenths: int = 0, for_s: int = 40
) -> list[bool]:
    """Let them run; messages arrive `late_tenths` later, also when their sender is gone by then."""
    under_way: list[tuple[int, Twin, bytes]] = []
    for tenth in range(for_s * 10):
        at_ns = tenth * TENTH
        monkeypatch.setattr(time, "monotonic_ns", lambda at_ns=at_ns: 1000 * S + at_ns)
        for twin in twins:
            if twin.start_ns == at_ns:
                twin.neighbours.connected(NOW + at_ns + twin.ahead_ns)
        for sender, payload in [(who, what) for due, who, what in under_way if due == tenth]:
            for twin in twins:
                if twin.stays and twin.start_ns <= at_ns:
                    stamp = Stamp(NOW, Source.USER)
                    twin.neighbours.on_time(Arrival("mqtick/t/0", payload, stamp, False, b""))
            assert sender in twins
        speaking = [twin for twin in twins if twin.due(at_ns)]
        under_way += [(tenth + 1 + late_tenths, twin, twin.speak(at_ns)) for twin in speaking]
    return [twin.stays for twin in twins]


@pytest.mark.parametrize("late_s", [4, 7, 20])
@pytest.mark.parametrize("tenths", [(10, 10), (1, 10), (10, 1)], ids=str)
@pytest.mark.parametrize("generations", [(1, 2), (2, 1), (7, 7)], ids=str)
def test_whoever_came_later_goes(
    monkeypatch: pytest.MonkeyPatch,
    late_s: int,
    tenths: tuple[int, int],
    generations: tuple[int, int],
) -> None:
    first = Twin(0, tenths[0] * TENTH, generations[0])
    second = Twin(late_s * S, tenths[1] * TENTH, generations[1])
    assert survivors(monkeypatch, first, second) == [True, False]


@pytest.mark.parametrize("ahead_s", [-1000, -7, 7, 1000])
def test_whoever_came_later_goes_also_where_the_clocks_differ(
    monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    first, second = Twin(0, S, 1), Twin(9 * S, S, 2, ahead_s * S)
    assert survivors(monkeypatch, first, second) == [True, False]


@pytest.mark.parametrize("later_tenths", range(0, 38, 2))
@pytest.mark.parametrize("tenths", [2, 10])
@pytest.mark.parametrize("late_tenths", [0, 1, 5])
@pytest.mark.parametrize("generations", [(3, 200), (200, 3)], ids=str)
def test_of_two_that_came_together_one_stays(
    monkeypatch: pytest.MonkeyPatch,
    later_tenths: int,
    tenths: int,
    late_tenths: int,
    generations: tuple[int, int],
) -> None:
    first = Twin(0, tenths * TENTH, generations[0])
    second = Twin(later_tenths * TENTH, tenths * TENTH, generations[1])
    assert sum(survivors(monkeypatch, first, second, late_tenths=late_tenths)) == 1


def test_of_two_that_came_together_with_different_rhythms_one_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert sum(survivors(monkeypatch, Twin(0, S, 3), Twin(5 * TENTH, 2 * TENTH, 200))) == 1
    assert sum(survivors(monkeypatch, Twin(0, 2 * TENTH, 3), Twin(5 * TENTH, S, 200))) == 1


# -- attackers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [Keyring(), Keyring(fleet=(bytes(32),))], ids=["none", "wrong"])
def test_without_the_key_nobody_can_make_us_go(keys: Keyring) -> None:
    server, stranger = Server(KEYS), Server(keys)
    for number in (5, 2):
        server.hear(stranger.message(number), number)
    assert not server.neighbours.has_to_go
    assert server.alive == []
    assert sum(server.counters.refused.values()) == 2
    assert set(server.counters.refused) <= {"tag", "unsigned"}


def test_what_we_said_ourselves_before_a_restart_does_not_make_us_go() -> None:
    server = Server(KEYS)
    recorded = server.message(transmit_ns=server.up_ns - 1)
    server.hear(recorded)
    assert not server.neighbours.has_to_go
    assert server.counters.refused == {"replayed": 1}


def test_with_keys_a_real_rival_makes_us_go_all_the_same() -> None:
    server = Server(KEYS)
    server.hear(server.message())
    assert server.neighbours.has_to_go


def test_a_message_of_another_servers_topic_is_nobodys() -> None:
    server = Server(KEYS)
    server.hear(server.message(2), 5)
    assert server.alive == []
    assert server.counters.refused == {"server": 1}


def test_retained_time_is_no_sign_of_life(server: Server) -> None:
    server.hear(server.message(2), 2, retain=True)
    assert server.alive == []
    assert server.counters.refused == {"retained": 1}


@pytest.mark.parametrize("payload", [b"", b"now", b"\x11" + bytes(30), b"\xff" * 32], ids=repr)
def test_what_is_no_time_message_is_counted(server: Server, payload: bytes) -> None:
    server.hear(payload)
    assert sum(server.counters.refused.values()) == 1


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
    stamp = Stamp(0, Source.USER)
    server.neighbours.on_status(Arrival("mqtick/s/0500", GONE, stamp, True, b""), b"")
    assert server.counters.refused == {"topic": 1}
