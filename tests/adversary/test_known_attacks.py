"""Attacks that once moved the clock of a client with keys outside its bound, each by its name.

Each is told twice: with keys, where it must do nothing but cost availability, and without, where
whoever runs the broker says what time it is.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from attacks import Adversary, Forged, Move, attacked
from play import Conditions, Play, utc_s
from virtual_time import MS, SECOND, US

from mqtick.client.sample import Kind

DAY_NS = 86_400 * SECOND
SPLICE = Move("other-correction", topics="qrf", roles=("client", "server"), amount_ns=300 * MS)


def with_attack(
    conditions: Conditions, *moves: Move, broadcast_key: bool = False, before_s: float = 0.0
) -> Play:
    """Play a scenario; the attack begins after so many seconds."""
    later = [move._replace(start_s=move.start_s + before_s) for move in moves]
    return attacked(conditions, later, broadcast_key=broadcast_key)


# -- nobody attacks --------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_without_an_attack_the_client_is_synchronised_to_microseconds(keys: bool) -> None:
    play = with_attack(Conditions(keys=keys))
    assert play.faults == []
    assert play.state == "synchronised"
    assert abs(play.error_ns or SECOND) < 10 * US
    assert play.handed_ns
    assert max(map(abs, play.handed_ns)) < 50 * US
    best = play.agent.best()
    assert best is not None
    assert (best[1].half_width_ns or SECOND) < 500 * US


# -- formats without tags --------------------------------------------------------------------------


def foreign_only(*, keys: bool) -> Play:
    """Nothing precise reaches the client; somebody publishes the time of tomorrow as 1451.1.6."""
    return with_attack(
        Conditions(keys=keys, duration_s=20.0),
        Move("drop", topics="tqrfs", roles=("client", "server")),
        Move("foreign", amount_ns=DAY_NS),
    )


def test_with_keys_a_format_without_tags_is_not_followed() -> None:
    play = foreign_only(keys=True)
    assert play.faults == []
    assert play.state == "unsynchronised"
    assert play.agent.foreign is None
    assert play.samples == []


def test_without_keys_a_format_without_tags_says_what_time_it_is() -> None:
    play = foreign_only(keys=False)
    assert play.state == "synchronised"
    assert (play.error_ns or 0) > DAY_NS - SECOND


# -- the follow-up of another reply ----------------------------------------------------------------


def test_with_keys_the_follow_up_of_another_reply_is_refused() -> None:
    """It moved the client by 300 ms, at a bound of 1 ms."""
    play = with_attack(Conditions(duration_s=30.0), SPLICE, before_s=5.0)
    assert play.faults == []
    errors = [wall.sample.offset_ns - play.truth_ns() for wall in play.samples]
    assert errors
    best = play.agent.best()
    assert best is not None
    assert best[1].lower_ns is not None
    assert best[1].lower_ns <= play.truth_ns() <= (best[1].upper_ns or 0)


def test_with_keys_the_follow_up_of_another_reply_is_refused_from_the_first_exchange_on() -> None:
    play = with_attack(Conditions(duration_s=30.0, client={"start_burst": 40}), SPLICE)
    assert play.faults == []


def test_a_nonce_is_answered_once() -> None:
    play = Play(Conditions(duration_s=20.0))
    adversary = Adversary(play, [Move("ask-again", share=20.0)])
    play.broker.attack = adversary
    with play.running():
        play.run()
    assert adversary.done > 10
    asked = sum(1 for wall in play.samples if wall.sample.kind is Kind.TWO_WAY)
    assert play.server.counters.done["replies"] <= asked + 4
    assert play.faults == []
