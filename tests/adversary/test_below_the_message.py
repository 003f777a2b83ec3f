"""Whatever a broker without keys does below the messages, a client says nothing that is not so.

Real programs, and a broker with a TCP stack of its own between them. `make test-below` plays random
scripts; `search_below.py --attacks` prints what the attacks by name have done.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from below import SLEW, Watched, needs_tun, play, play_all
from plays import (
    ATTACKS,
    DATAGRAMS,
    DELAYS,
    ECHOES,
    HONEST,
    RETRANSMISSIONS,
    SHAPES,
    STAMPS,
    Attack,
)
from search_below import stretch

pytestmark = [needs_tun, pytest.mark.slow, pytest.mark.timeout(900)]


@cache
def everything() -> dict[str, tuple[Attack, Watched]]:
    """Play all attacks, as many at the same time as have the same server."""
    return {name: (attack, watched) for name, attack, watched in play_all(HONEST | ATTACKS)}


def played(name: str) -> Watched:
    """What came of an attack: it must have been made, and nothing said or handed on is wrong."""
    attack, watched = everything()[name]
    assert attack.made >= attack.times, (attack.client.count, attack.server)
    assert watched.faults == []
    assert bool(watched.known) == attack.may_know, watched.client.log
    return watched


@pytest.mark.parametrize("name", HONEST)
def test_a_client_that_nobody_attacks_knows_the_time(name: str) -> None:
    assert played(name).handed


def test_a_server_whose_clock_is_slewed_leaves_the_truth_in_the_interval() -> None:
    attacks = {name: make() for name, make in HONEST.items() if "version 2" in name}
    for name, watched in play(attacks, SLEW).items():
        assert watched.known, name
        assert watched.faults == [], name


@pytest.mark.parametrize("name", STAMPS)
def test_who_moves_stamps_below_the_message_moves_no_interval(name: str) -> None:
    played(name)


@pytest.mark.parametrize("name", ECHOES)
def test_echoes_and_loops_whose_end_comes_first_narrow_nothing_that_is_certain(name: str) -> None:
    played(name)


@pytest.mark.parametrize("name", SHAPES)
def test_segments_of_any_size_and_order_move_no_interval(name: str) -> None:
    played(name)


@pytest.mark.parametrize("name", RETRANSMISSIONS)
def test_acknowledgements_that_come_late_move_no_interval(name: str) -> None:
    played(name)


@pytest.mark.parametrize("name", DATAGRAMS)
def test_fragments_and_copies_of_datagrams_move_no_interval(name: str) -> None:
    played(name)


@pytest.mark.parametrize("name", DELAYS)
def test_a_plain_delay_leaves_the_client_unsynchronised_and_chronyd_alone(name: str) -> None:
    assert not played(name).handed


SCRIPTS, LOT = 200, 40


@pytest.mark.parametrize("first", range(0, SCRIPTS, LOT))
def test_random_scripts_move_no_interval(first: int) -> None:
    outcome = stretch(first, LOT)
    assert outcome.failed == {}
    assert outcome.known > LOT
    assert all(outcome.played[what] > LOT // 2 for what in ("used", "held", "late"))
