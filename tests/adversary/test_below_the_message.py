"""Whatever a broker without keys does below the messages, a client says nothing that is not so.

Real programs, and a broker with a TCP stack of its own between them. `make test-below` plays random
scripts; `search_below.py --attacks` prints what the attacks by name have done.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from below import Watched, needs_tun, play
from plays import ATTACKS, HONEST
from rig import Rig
from search_below import stretch

pytestmark = [needs_tun, pytest.mark.slow]


def played(rig: Rig, name: str) -> Watched:
    """Play one by name; it must have been played."""
    attack = (HONEST | ATTACKS)[name]()
    watched = play(rig, attack)
    made = attack.played(attack.client, attack.server)
    assert made >= attack.times, (name, attack.client.count, attack.server.count)
    return watched


@pytest.mark.parametrize("name", HONEST)
def test_a_client_that_nobody_attacks_knows_the_time(rig: Rig, name: str) -> None:
    watched = played(rig, name)
    assert watched.faults == []
    assert watched.client.is_right()
    assert watched.handed


@pytest.mark.parametrize("name", ATTACKS)
def test_who_moves_stamps_below_the_message_moves_no_interval(rig: Rig, name: str) -> None:
    watched = played(rig, name)
    assert watched.faults == []
    assert (watched.known > 0) == ATTACKS[name]().may_know


SCRIPTS = int(os.environ.get("MQTICK_SCRIPTS", "200"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, SCRIPTS, 40))
def test_random_scripts_move_no_interval(first: int) -> None:
    outcome = stretch(first, 40)
    assert outcome.failed == {}
    assert outcome.known > 400
    assert all(outcome.played[what] > 10 for what in ("used", "held", "late"))
