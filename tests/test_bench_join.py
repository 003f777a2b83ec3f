"""What bench/join.py says of five joined brokers follows from what a message costs."""

from __future__ import annotations

import pytest

from bench.join_plan import PATTERNS, Costs, gain

FREE_NODES = Costs(1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("name", ["B", "C", "D"])
def test_each_topic_has_ten_of_each_kind_and_each_site_as_many_as_the_others(name: str) -> None:
    assert [sum(row) for row in PATTERNS[name]] == [10] * 5
    assert [sum(column) for column in zip(*PATTERNS[name], strict=True)] == [10] * 5


def test_where_nodes_cost_nothing_the_brokers_share_the_work() -> None:
    assert gain(PATTERNS["C"], FREE_NODES) == (5.0, 5.0), "each has a fifth"
    # Each broker takes every message, and has a fifth of the copies: 11 / (1 + 2).
    assert gain(PATTERNS["B"], FREE_NODES)[0] == pytest.approx(11 / 3)


def test_a_node_that_costs_less_than_its_broker_costs_nothing_of_the_limit() -> None:
    assert gain(PATTERNS["A"], FREE_NODES._replace(client_in=0.9, client_out=0.9))[1] == 1.0
    assert gain(PATTERNS["A"], FREE_NODES._replace(client_in=2.0, client_out=2.0))[1] == 0.5


def test_a_node_that_costs_more_than_its_broker_sets_the_limit() -> None:
    slow = FREE_NODES._replace(client_in=2.0, client_out=2.0)
    assert gain(PATTERNS["C"], slow) == (5.0, 2.5)


def test_what_goes_on_along_the_row_is_paid_at_each_site_between() -> None:
    only_links = Costs(0.001, 0.0, 0.001, 0.0, 0.0, 0.0, 0.0, 1.0)
    # 50 messages, alone 0.05. Of each topic, 2 begin at each site; the middle one passes on both
    # ways what is its own, and one way what comes from either side: 10 * (2 + 4) = 60.
    assert gain(PATTERNS["B"], only_links)[1] == pytest.approx(0.05 / 60)
