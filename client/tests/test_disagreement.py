"""Two servers that cannot both be right are named, wherever somebody looks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqtick.client.disagreement import Claim, Disagreement, claim_of, disagreements
from mqtick.client.doctor import broker as doctor_broker
from mqtick.client.estimate import Estimate, State
from mqtick.client.metrics import metrics
from mqtick.client.status import status
from mqtick.client.status_text import status_lines, summary
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings

sys.path.insert(0, str(Path(__file__).parent))
from live_world import HAS_BROKER, MS, SECOND, US, World
from test_doctor_live import in_background, listen


def test_intervals_that_meet_agree_and_others_are_told_with_their_gap() -> None:
    claims = [Claim("0", -5, 5), Claim("1", 5, 9), Claim("2", 30, 40), None]
    assert disagreements(claims) == [
        Disagreement(("0", "2"), 25),
        Disagreement(("1", "2"), 21),
    ]


def test_a_server_claims_its_interval_and_its_root_distance_on_both_sides() -> None:
    known = Estimate(0, State.HOLDOVER, 0, -10, 20, root_distance_ns=7)
    assert claim_of("3", known) == Claim("3", -17, 27)
    assert claim_of("3", Estimate(0, State.SYNCHRONISED, 0, -10, None)) is None
    assert claim_of("3", Estimate(0, State.UNSYNCHRONISED, 0, -10, 20)) is None


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if not HAS_BROKER:
        pytest.skip("mosquitto is not installed; install it with: apt install mosquitto")
    made = World(tmp_path)
    made.mosquitto.start()
    made.serve(number=3)
    ahead = VirtualClock(VirtualClockSettings.starting_now(offset_ns=SECOND // 2))
    made.serve(number=5, clock=ahead)
    yield made
    made.close()


def values_of(world: World) -> dict[str, Any]:
    """The status of a client that knows both servers' time."""
    client = world.follow()

    def known() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = status(client.agent, {})["servers"]
        return [row for row in rows if row["state"] == "synchronised" and row["kind"] != "one-way"]

    world.run(lambda: len(known()) == 2)
    return status(client.agent, {})


@pytest.mark.slow
def test_servers_half_a_second_apart_are_named_in_status_summary_and_metrics(world: World) -> None:
    values = values_of(world)
    (found,) = values["disagreements"]
    assert found["servers"] == ("3", "5")
    assert SECOND // 2 - 50 * MS < found["gap_ns"] < SECOND // 2
    said = "servers 3 and 5 disagree by at least 4"
    assert said in summary(values)
    assert any(line.startswith(f"disagreement      {said}") for line in status_lines(values))
    gaps = {
        metric.labels["server"]: metric.value
        for metric in metrics(values)
        if metric.name == "mqtick_client_disagreement_seconds"
    }
    assert gaps == {"3": found["gap_ns"] / SECOND, "5": found["gap_ns"] / SECOND}


@pytest.mark.slow
def test_the_doctor_names_servers_that_disagree(world: World) -> None:
    with in_background(world):
        heard = listen(world.mosquitto.port, listen_s=3.0)
    (check,) = doctor_broker.check_agreement(heard.disagreements)
    assert check.result == "FAIL"
    assert check.name == "servers 3 and 5"
    assert "ms apart" in check.value


def test_nothing_is_said_of_servers_that_agree() -> None:
    assert list(doctor_broker.check_agreement([])) == []
    values = {"chosen": 0, "state": "synchronised", "disagreements": []}
    row = {"offset_ns": 3 * US, "bound_ns": 20 * US, "narrow_bound_ns": None}
    assert summary({**values, "servers": [row]}) == "synchronised: offset +3.0 us, bound 20.0 us"
