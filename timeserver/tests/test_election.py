"""Which of several servers speaks on the topics that have no number in them."""

from __future__ import annotations

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
