"""Whatever the broker does, a client with keys says nothing about the time that is not so.

`make test-adversary` plays a hundred thousand scenarios; `search.py --seed N` one of them again.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from attacks import KINDS, Move
from play import Conditions
from scenarios import Scenario, of_seed
from search import main, stretch
from virtual_time import MS, SECOND, US

ROLES = ("client", "server", "first", "last")
FAST = 5
"""So many seeds a test of the fast suite: each takes some ten milliseconds."""


@pytest.mark.parametrize("first", range(0, 12 * FAST, FAST))
def test_whatever_the_broker_does_the_interval_holds_the_truth(first: int) -> None:
    assert stretch(first, FAST).failed == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(100_000, 101_000, 100))
def test_in_a_thousand_scenarios_the_interval_holds_the_truth(first: int) -> None:
    outcome = stretch(first, 100)
    assert outcome.failed == {}
    assert outcome.judged > 2_000
    assert outcome.handed > 100
    assert set(outcome.kinds) == set(KINDS), "every move is among them"


def which_ends(seed: int) -> Scenario:
    """A scenario by chance in which everybody leaves the client alone after 20 s."""
    scenario = of_seed(seed)
    given = scenario.conditions
    estimator = {name: it for name, it in given.estimator.items() if name != "holdover_after_s"}
    moves = [
        move._replace(start_s=min(move.start_s, 8.0), length_s=12.0) for move in scenario.moves
    ]
    client = {**given.client, "exchange_interval_s": 4.0}
    conditions = replace(given, duration_s=75.0, client=client, estimator=estimator)
    return replace(scenario, conditions=conditions, moves=tuple(moves))


def does_not_come_back(seed: int) -> bool:
    play = which_ends(seed).play()
    best = play.agent.best()
    wide_ns = 10 * play.conditions.least_link_ns + 3 * play.conditions.busy_ns + 2 * MS
    return (
        play.faults != []
        or play.state != "synchronised"
        or best is None
        or (best[1].half_width_ns or SECOND) > wide_ns
    )


def test_when_he_stops_the_client_is_as_good_as_before() -> None:
    assert [seed for seed in range(6) if does_not_come_back(seed)] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, 200, 40))
def test_when_he_stops_the_client_is_as_good_as_before_in_two_hundred_scenarios(first: int) -> None:
    assert [seed for seed in range(first, first + 40) if does_not_come_back(seed)] == []


HONEST = (
    *("delay", "bend", "sway", "reorder", "drop", "duplicate", "window", "cut", "restart"),
    *("unstated", "restated"),
)


def trusting(seed: int) -> Scenario:
    """A scenario in which brokers invent nothing and are trusted; links are what they are."""
    scenario = of_seed(seed)
    estimator = {**scenario.conditions.estimator, "trust_broker_residence": True}
    conditions = replace(scenario.conditions, fills=True, estimator=estimator)
    honest = tuple(move for move in scenario.moves if move.kind in HONEST)
    return replace(scenario, conditions=conditions, moves=honest, broadcast_key=False)


@pytest.mark.parametrize("first", range(0, 4 * FAST, FAST))
def test_who_trusts_an_honest_broker_has_an_interval_that_holds_the_truth(first: int) -> None:
    plays = [trusting(seed).play() for seed in range(first, first + FAST)]
    assert [play.faults for play in plays] == [[]] * FAST


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_who_trusts_an_honest_broker_is_right_in_two_hundred_scenarios() -> None:
    assert [seed for seed in range(5_000, 5_200) if trusting(seed).play().faults] == []


def moves() -> st.SearchStrategy[Move]:
    return st.builds(
        Move,
        kind=st.sampled_from(KINDS),
        start_s=st.floats(0, 12),
        length_s=st.floats(0.1, 20),
        topics=st.text("tqrfclos", min_size=1, max_size=3),
        roles=st.lists(st.sampled_from(ROLES), min_size=1, max_size=4, unique=True).map(tuple),
        share=st.sampled_from([1.0, 0.5, 0.1]),
        amount_ns=st.integers(0, 3 * SECOND) | st.integers(0, MS),
    )


def scenarios() -> st.SearchStrategy[Scenario]:
    conditions = st.builds(
        Conditions,
        seed=st.integers(0, 2**32),
        duration_s=st.just(12.0),
        client_offset_ns=st.integers(-(10**18), 10**18),
        ppm=st.floats(-98, 98),
        wander_ppb=st.floats(0, 5),
        slew_ppm=st.floats(-500, 500),
        least_link_ns=st.integers(US, 20 * MS),
        busy_ns=st.integers(0, 50 * MS),
        shared_reads=st.floats(0, 1),
        kernel_stamps=st.booleans(),
        fills=st.booleans(),
        client=st.fixed_dictionaries({"exchange_interval_s": st.sampled_from([0.5, 2.0])}),
        estimator=st.fixed_dictionaries(
            {"prefer_better_s": st.sampled_from([0.0, 2.0, 60.0]), "use_echo": st.booleans()}
        ),
    )
    return st.builds(Scenario, conditions, st.lists(moves(), max_size=6).map(tuple), st.booleans())


@settings(max_examples=15)
@given(scenarios())
def test_whatever_anybody_thinks_of_the_interval_holds_the_truth(scenario: Scenario) -> None:
    assert scenario.play().faults == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=100)
@given(scenarios())
def test_whatever_anybody_thinks_of_in_a_hundred_scenarios(scenario: Scenario) -> None:
    assert scenario.play().faults == []


# -- the test itself -------------------------------------------------------------------------------


def test_a_scenario_is_the_same_each_time() -> None:
    one, other = of_seed(7).play(), of_seed(7).play()
    assert one.judged == other.judged > 0
    assert [wall.sample for wall in one.samples] == [wall.sample for wall in other.samples]


def test_the_judge_finds_a_broker_that_is_trusted_and_lies(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lies = (
        Move("delay", topics="q", amount_ns=3 * MS),
        Move("delay", topics="r", roles=("client",), amount_ns=2 * MS),
        Move("duplicate", topics="l"),
    )
    trusting = Conditions(duration_s=30.0, estimator={"trust_broker": True})
    monkeypatch.setattr("search.of_seed", lambda _seed: Scenario(trusting, lies, False))
    assert main(["--seed", "4711"]) == 1
    said = capsys.readouterr().out
    assert "seed 4711: FAILS" in said
    assert "does not hold it" in said
    assert "kind='delay'" in said
    assert "kind='duplicate'" not in said, "what does not matter is left out"
