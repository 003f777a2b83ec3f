"""What bench/accelerate.py makes of the figures that it measures."""

from __future__ import annotations

import argparse

import pytest

from bench.accelerate import FAST, PEER, PLAIN, Bench

SKEW = "100 subscribers: first to last, p50"


@pytest.fixture
def bench() -> Bench:
    """One that has measured some rounds of 100 subscribers."""
    bench = Bench(argparse.Namespace(crowd=4000))
    for who, values in {FAST: (50.0, 70.0, 60.0), PLAIN: (400.0, 500.0, 450.0)}.items():
        for value in values:
            bench.take(SKEW, "us", who, value)
    return bench


def test_a_goal_is_judged_by_the_median_of_all_rounds(bench: Bench) -> None:
    [found] = bench.report().ratios
    assert (found.ours, found.peer, found.goal, found.met) == (60, 450, 0.2, True)


def test_the_ratio_of_each_round_shows_its_spread(bench: Bench) -> None:
    [row] = [row for row in bench.report().rows if row.who == "ratio"]
    assert (row.n, row.median, row.p5, row.max) == (3, 0.1333, 0.125, 0.14)


def test_a_peer_that_is_not_there_has_no_row_and_no_goal(bench: Bench) -> None:
    report = bench.report()
    assert all(row.who != PEER for row in report.rows)
    assert all(PEER not in ratio.quantity for ratio in report.ratios)


def test_one_copy_that_is_lost_and_not_counted_is_a_goal_missed(bench: Bench) -> None:
    what = "4,000 subscribers, netdev_max_backlog 10,000: lost and not counted"
    bench.take(what, "copies", FAST, 1)
    assert [one.met for one in bench.report().ratios if "not counted" in one.quantity] == [False]
    bench.values[what, "copies", FAST] = [0]
    assert [one.met for one in bench.report().ratios if "not counted" in one.quantity] == [True]


def test_what_fails_is_said_and_the_rest_goes_on(bench: Bench) -> None:
    def fails() -> None:
        raise RuntimeError("no copy came.")

    bench.attempt("a thing", fails)
    assert bench.failed == ["a thing: no copy came."]
