"""Whoever sets the clocks of client and server, at whatever moment: the interval holds the truth.

The kernel stamps messages with CLOCK_REALTIME. A stamp that was made before that clock was set, and
converted afterwards, is wrong by the step; so is one that was made between a step and its end.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from attacks import Adversary, Move, attacked
from play import Conditions, Play
from scenarios import Scenario, of_seed
from virtual_time import MS, SECOND, US

import mqtick.client.status as client_status
from mqtick.client.sample import Kind

CLOCK_MOVES = ("set", "set-and-back", "sleep")
FAST = 20


def with_clocks_set(seed: int) -> Scenario:
    """A scenario by chance in which clocks are set, and now and then the broker does something."""
    scenario, chance = of_seed(seed), random.Random(f"clocks {seed}")
    move = Move(
        chance.choice(CLOCK_MOVES),
        chance.choice((0.0, 2.5, chance.uniform(0.0, scenario.conditions.duration_s))),
        chance.choice((3.0, 10.0, 1e6)),
        chance.choice(("q", "r", "f", "t", "c", "l", "rf", "qrf")),
        chance.choice((("client",), ("server",), ("first",), ("client", "server"))),
        chance.choice((1.0, 0.3, 0.1, 0.02)),
        chance.choice((10 * US, 50 * US, 150 * US, 300 * US, MS, 10 * MS, 300 * MS, SECOND)),
    )
    others = scenario.moves if chance.random() < 0.3 else ()
    return replace(scenario, moves=(move, *others))


def faults(first: int, count: int) -> dict[int, list[str]]:
    plays = {seed: with_clocks_set(seed).play() for seed in range(first, first + count)}
    return {seed: play.faults for seed, play in plays.items() if play.faults}


@pytest.mark.parametrize("first", range(0, 5 * FAST, FAST))
def test_whatever_is_done_to_the_clocks_the_interval_holds_the_truth(first: int) -> None:
    assert faults(first, FAST) == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(10_000, 14_000, 200))
def test_whatever_is_done_to_the_clocks_four_thousand_times_the_interval_holds_the_truth(
    first: int,
) -> None:
    assert faults(first, 200) == {}


# Less than the round trip: more would make the delay negative, which is refused in any case.
BUSY = Conditions(duration_s=40.0, busy_ns=5 * MS)
AMOUNT_NS = 2 * MS


@pytest.mark.parametrize("topics", "rft")
@pytest.mark.parametrize("kind", ["set", "set-and-back"])
def test_a_client_whose_clock_is_set_while_messages_wait_to_be_read_says_nothing_wrong(
    kind: str, topics: str
) -> None:
    move = Move(kind, 5.0, 20.0, topics, ("client",), 0.3, AMOUNT_NS)
    play = attacked(BUSY, [move])
    assert play.faults == []
    assert play.agent.steps > 1
    assert play.agent.refused["clock-changed"] > 0
    assert play.state == "synchronised"


@pytest.mark.parametrize("kind", ["set", "set-and-back"])
def test_a_server_whose_clock_is_set_while_requests_wait_to_be_read_states_nothing_wrong(
    kind: str,
) -> None:
    move = Move(kind, 5.0, 20.0, "q", ("server",), 0.3, AMOUNT_NS)
    play = attacked(BUSY, [move])
    assert play.faults == []
    assert play.server.steps > 2
    assert play.server.counters.refused["clock-changed"] > 0
    assert play.state == "synchronised"


@pytest.mark.parametrize("kind", ["set", "set-and-back"])
def test_a_server_whose_clock_is_set_while_a_reply_comes_back_to_it_says_nothing_of_that(
    kind: str,
) -> None:
    """Who trusts the broker takes what it says of echoes for certain."""
    conditions = Conditions(
        duration_s=12.0, client={"exchange_interval_s": 1.0}, estimator={"trust_broker": True}
    )
    move = Move(kind, 3.0, 20.0, "r", ("first",), 0.3, 150 * US)
    plays = [attacked(replace(conditions, seed=seed), [move]) for seed in range(54, 59)]
    assert [play.faults for play in plays] == [[]] * len(plays)
    assert sum(play.server.steps for play in plays) > 10


@pytest.mark.parametrize("role", ["client", "server"])
def test_a_loop_during_which_the_clock_was_set_and_set_back_is_not_measured(role: str) -> None:
    """A loop that seems short would move the echoes' interval, which one may have trusted."""
    least_ns = 2 * BUSY.least_link_ns
    move = Move("set-and-back", 0.0, 20.0, "cl", (role,), 0.5, 60 * US)
    play = attacked(replace(BUSY, busy_ns=0), [move])
    loops = {"client": play.agent.loopback, "server": play.server.loopback}
    assert (play.agent.steps, play.server.steps)[role == "server"] > 1
    assert loops[role]._delays._values
    assert min(value for _, value in loops[role]._delays._values) >= least_ns


def test_a_client_that_slept_knows_nothing_until_it_has_asked_again() -> None:
    play = Play(Conditions(duration_s=20.0))
    with play.running():
        play.run()
        play.client_clock.sleep(SECOND, play.world.now_ns)
        while play.agent.suspends == 0:
            play.run(0.001)
        assert play.state == "unsynchronised"
        play.run(8.0)
    assert play.faults == []
    assert play.state == "synchronised"


def test_nobody_is_told_the_time_from_before_a_sleep_that_was_not_noticed_yet() -> None:
    play = Play(Conditions(duration_s=20.0))
    with play.running():
        play.run()
        assert play.state == "synchronised"
        play.client_clock.sleep(SECOND, play.world.now_ns)
        assert play.agent.best() is None, "although it looks once a second only"


def test_a_sleep_while_a_status_is_made_does_not_escape_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who reads it compares how long the host has slept since."""
    play = Play(Conditions(duration_s=20.0))

    def slept_ns() -> int:
        play.client_clock.sleep(SECOND, play.world.now_ns)
        return play.client_clock.slept_ns()

    monkeypatch.setattr(client_status, "slept_ns", slept_ns)
    with play.running():
        play.run()
        told = client_status.status(play.agent, {})
        slept_later_ns = play.client_clock.slept_ns() - told["slept_ns"]
    assert not told["forecast"] or slept_later_ns > 0


def test_a_virtual_machine_that_stood_still_ceases_to_know_the_time_once_it_has_asked_twice() -> (
    None
):
    """Nothing on the host tells that it stood still, until a server does."""
    play = Play(Conditions(duration_s=20.0))
    with play.running():
        play.run()
        play.client_clock.pause(SECOND)
        taken = len(play.samples)
        while len([wall for wall in play.samples[taken:] if wall.sample.kind is Kind.TWO_WAY]) < 2:
            play.run(0.01)
        assert play.state == "unsynchronised"
        assert play.faults != [], "before that it could not know"
        play.faults.clear()
        handed = len(play.handed_ns)
        while play.state == "unsynchronised":
            play.run(0.1)
            assert len(play.handed_ns) == handed, "chronyd gets nothing meanwhile"
        play.run()
    assert [fault for fault in play.faults if "what was told" not in fault] == []
    assert abs(play.error_ns or SECOND) < MS


def test_a_broker_that_widens_every_other_exchange_takes_no_doubt_away() -> None:
    """A wide interval agrees with the old time and with the new one: it made a minute of this."""
    wide = (
        Move("delay", 20.0, topics="q", share=0.5, amount_ns=40 * MS),
        Move("delay", 20.0, topics="r", roles=("client",), share=0.7, amount_ns=40 * MS),
    )
    play = Play(Conditions(duration_s=20.0))
    play.broker.attack = Adversary(play, wide)
    with play.running():
        play.run()
        play.client_clock.pause(20 * MS)
        play.run(60.0)
    wrong = [fault for fault in play.faults if "each second" in fault and "UTC" in fault]
    assert 0 < len(wrong) <= 6, "until the second exchange that contradicts"
