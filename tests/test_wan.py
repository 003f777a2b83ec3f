"""Links that are not a LAN, with real programs: what clients say, and what chronyd makes of it.

`make bench-wan` runs the whole matrix; these are the corners at which something was wrong once.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator

import pytest

from bench.wan_world import Cell, Place, World, running
from demo.local_broker import program
from mqtick.client.interval import NowError, now
from mqtick.service import read_status

MS = 1_000_000
LONG = ("--estimator-unsynchronised-bound-us", "500000")
UP_IS_LONG = 60 / 65
STEERED = (
    Cell(0.2),
    Cell(5.0, UP_IS_LONG, 0.02),
    Cell(20.0, jitter=0.3),
    Cell(40.0),
    Cell(40.0, UP_IS_LONG, 0.02, 0.3),
    Cell(80.0, 0.5, 0.02, 0.3, LONG),
    Cell(300.0, flags=LONG),
    Cell(300.0, UP_IS_LONG, 0.02, 0.3, LONG),
)
LOW = Cell(40.0, flags=("--traffic", "low"))
BEYOND = Cell(80.0)
CELLS = (*STEERED, LOW, BEYOND)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(
        None in (program("mosquitto"), program("chronyd")),
        reason="mosquitto or chronyd is not installed (make setup-test brings both)",
    ),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All links at once, watched until chronyd has looked at several bursts of each."""
    with running(tmp_path_factory.mktemp("wan"), CELLS) as made:

        def is_seen(place: Place) -> bool:
            return place.cell is BEYOND or place.seen.steered_looks >= 6

        for _ in range(18):
            made.watch(5.0)
            if all(map(is_seen, made.places)):
                break
        yield made


def place_of(world: World, cell: Cell) -> Place:
    return world.places[CELLS.index(cell)]


@pytest.mark.parametrize("cell", [*STEERED, LOW], ids=lambda cell: cell.name)
def test_the_interval_and_what_chronyd_certifies_hold_on_every_link(
    world: World, cell: Cell
) -> None:
    seen = place_of(world, cell).seen
    assert seen.looks > 0
    assert seen.steered_looks > 0
    assert seen.outside == 0
    assert seen.uncertified == 0, "outside what chronyd states"
    assert seen.uncovered == 0, "chronyd states less than the client"


@pytest.mark.parametrize(
    "cell", [cell for cell in STEERED if cell.up_share == 0.5], ids=lambda cell: cell.name
)
def test_where_both_ways_take_the_same_time_they_cancel(world: World, cell: Cell) -> None:
    """An echo that takes no account of a longer link is off by the whole way down."""
    seen = place_of(world, cell).seen
    assert statistics.median(map(abs, seen.steered_ns)) < (cell.delay_ms / 2 + 5) * MS


def test_a_link_beyond_the_limit_steers_nothing_and_everything_says_why(world: World) -> None:
    place = place_of(world, BEYOND)
    status = read_status(place.folder / "status.json").values
    assert place.seen.steered_looks == 0
    assert status["chrony"]["0"]["sent"] == {}
    assert status["chrony"]["0"]["withheld"]["unsynchronised"] > 0
    limit = r"more than estimator\.unsynchronised_bound_us \(50 ms\)"
    with pytest.raises(NowError, match=limit):
        now(str(place.folder))


def test_with_little_traffic_no_broadcast_is_heard(world: World) -> None:
    verdicts = read_status(place_of(world, LOW).folder / "status.json").values["servers"][0]
    assert {row["kind"] for row in verdicts["verdicts"]} == {"two-way"}
    assert place_of(world, LOW).octets() < place_of(world, STEERED[3]).octets() / 1.2
