"""The order of N: every shot once, drawn again each round, the same for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.lab.runner.plan import make_plan, plan_from_json, plan_to_json

NUMBERS = st.lists(st.integers(1, 600), min_size=1, max_size=8, unique=True)


@given(NUMBERS, st.integers(1, 60), st.integers(1, 10), st.integers(0, 1 << 40))
def test_each_n_gets_its_shots_and_each_shot_one_number(
    subscribers: list[int], shots: int, rounds: int, seed: int
) -> None:
    plan = make_plan(subscribers, shots, rounds, seed)
    counts: Counter[int] = Counter()
    for block in plan:
        counts[block.subscribers] += block.shots
    assert counts == dict.fromkeys(subscribers, shots)
    numbers = [number for block in plan for number in block.numbers()]
    assert numbers == list(range(1, shots * len(subscribers) + 1))
    assert [block.round for block in plan] == sorted(block.round for block in plan)
    assert plan == make_plan(subscribers, shots, rounds, seed)
    assert plan_from_json(plan_to_json(plan)) == plan


@given(NUMBERS, st.integers(1, 60), st.integers(1, 10), st.integers(0, 1 << 40))
def test_rounds_are_even(subscribers: list[int], shots: int, rounds: int, seed: int) -> None:
    sizes = {block.shots for block in make_plan(subscribers, shots, rounds, seed)}
    assert max(sizes) - min(sizes) <= 1


def test_the_order_changes_from_round_to_round_and_with_the_seed() -> None:
    plan = make_plan(range(2, 12), 10, 5, 1)
    orders = {
        tuple(block.subscribers for block in plan if block.round == turn) for turn in range(1, 6)
    }
    assert len(orders) == 5
    assert plan != make_plan(range(2, 12), 10, 5, 2)


DAMAGED = {"round": 1, "subscribers": 2, "shots": "x", "first": 1}


@pytest.mark.parametrize("content", [None, {}, [1], [{"round": 1}], [{"what": 1}], [DAMAGED]])
def test_what_is_no_plan_is_refused(content: object) -> None:
    with pytest.raises(ValueError, match="is not valid"):
        plan_from_json(content)
