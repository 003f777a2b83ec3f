"""Which of several servers speaks on the fixed topics, and which goes when two have one number."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from mqtick.timeserver.election import Election

S = 1_000_000_000
TIMEOUT = 3 * S


def election(number: int = 5, connected_ns: int | None = 0) -> Election:
    made = Election(number, TIMEOUT)
    if connected_ns is not None:
        made.connected(connected_ns)
    return made


# -- who leads -------------------------------------------------------------------------------------


def test_alone_it_leads_once_everybody_had_the_time_to_be_heard() -> None:
    made = election()
    assert not made.leads(TIMEOUT - 1)
    assert made.leads(TIMEOUT)


def test_before_it_is_connected_it_claims_nothing() -> None:
    made = election(connected_ns=None)
    assert not made.leads(1000 * S)
    made.connected(1000 * S)
    assert not made.leads(1000 * S + TIMEOUT - 1)
    assert made.leads(1000 * S + TIMEOUT)


def test_after_a_lost_connection_it_listens_first() -> None:
    made = election()
    assert made.leads(100 * S)
    made.connected(100 * S)
    assert not made.leads(101 * S)
    made.heard(2, 101 * S)
    assert not made.leads(103 * S)


@pytest.mark.parametrize(("other", "leads"), [(4, False), (6, True), (0, False), (255, True)])
def test_the_lowest_number_alive_leads(other: int, leads: bool) -> None:
    made = election()
    made.heard(other, 4 * S)
    assert made.leads(5 * S) is leads


def test_a_server_that_falls_silent_is_given_up_after_the_timeout() -> None:
    made = election()
    made.heard(4, 10 * S)
    assert not made.leads(10 * S + TIMEOUT)
    assert made.leads(10 * S + TIMEOUT + 1)


def test_a_server_that_says_goodbye_is_given_up_at_once_and_leads_again_when_it_is_back() -> None:
    made = election()
    made.heard(4, 10 * S)
    made.gone(4)
    assert made.leads(10 * S)
    made.heard(4, 11 * S)
    assert not made.leads(11 * S)


def test_those_alive_are_listed_in_order_without_ourselves() -> None:
    made = election(5)
    for number in (200, 5, 7, 3):
        made.heard(number, 10 * S)
    made.heard(9, 0)
    assert made.alive(11 * S) == [3, 7, 200]


# -- two with one number ---------------------------------------------------------------------------


def test_a_newcomer_goes_when_it_hears_an_older_rival() -> None:
    assert election().conflict(S, rival_is_older=True)


def test_who_is_settled_stays_whatever_is_heard() -> None:
    made = election()
    for n in range(100):
        assert not made.conflict(TIMEOUT + n * S // 2, rival_is_older=n % 2 == 0)
    assert made.conflicts == 100


def test_a_newcomer_gives_a_younger_rival_the_time_to_go() -> None:
    made = election()
    assert not made.conflict(S, rival_is_older=False)
    assert made.settled(5 * S)
    assert not made.conflict(90 * S, rival_is_older=True)  # that is another one, and too late


def test_a_rival_that_looked_younger_and_does_not_go_was_here_before() -> None:
    made = election()
    heard = [made.conflict(n * S, rival_is_older=False) for n in range(1, 6)]
    assert heard == [False, False, False, False, True]


# -- two servers, together -------------------------------------------------------------------------


@dataclass
class Server:
    """A server that speaks at whole multiples of its interval and hears its twin 1 ms later."""

    start_ns: int
    interval_ns: int
    generation: int
    alive: bool = True
    sequence: int = 0
    election: Election = field(default_factory=lambda: Election(0, TIMEOUT))

    def speaks(self, now_ns: int) -> bool:
        return self.alive and now_ns % self.interval_ns == 0 and now_ns >= self.start_ns + S // 10

    def hears(self, other: Server, now_ns: int) -> None:
        ahead = other.sequence - self.sequence
        older = ahead > 1 or (ahead >= -1 and other.generation <= self.generation)
        if self.alive and now_ns >= self.start_ns:
            self.alive = not self.election.conflict(now_ns, rival_is_older=older)


def survivors(*servers: Server, for_s: int = 40) -> list[bool]:
    for server in servers:
        server.election.timeout_ns = max(2 * S, 7 * server.interval_ns // 2)
    for tenth in range(for_s * 10):
        now_ns = tenth * S // 10
        for server in servers:
            if server.start_ns == now_ns:
                server.election.connected(now_ns)
        speaking = [server for server in servers if server.speaks(now_ns)]
        for server in speaking:
            server.sequence += 1
        for server in speaking:
            for other in servers:
                if other is not server:
                    other.hears(server, now_ns + 1_000_000)
    return [server.alive for server in servers]


@pytest.mark.parametrize("late_s", [4, 7, 20])
@pytest.mark.parametrize("intervals", [(10, 10), (1, 10), (10, 1)], ids=str)
@pytest.mark.parametrize("generations", [(1, 2), (2, 1), (7, 7)], ids=str)
def test_whoever_came_later_goes(
    late_s: int, intervals: tuple[int, int], generations: tuple[int, int]
) -> None:
    first = Server(0, intervals[0] * S // 10, generations[0])
    second = Server(late_s * S, intervals[1] * S // 10, generations[1])
    assert survivors(first, second) == [True, False]


@pytest.mark.parametrize("late_tenths", range(0, 40, 3))
@pytest.mark.parametrize("intervals", [(10, 10), (2, 2)], ids=str)
def test_of_two_that_came_together_one_stays(late_tenths: int, intervals: tuple[int, int]) -> None:
    first = Server(0, intervals[0] * S // 10, 3)
    second = Server(late_tenths * S // 10, intervals[1] * S // 10, 200)
    assert sum(survivors(first, second)) == 1


def test_of_two_that_came_together_with_different_rhythms_one_stays() -> None:
    assert sum(survivors(Server(0, S, 3), Server(S // 2, S // 5, 200))) == 1
    assert sum(survivors(Server(0, S // 5, 3), Server(S // 2, S, 200))) == 1
