"""Two servers that cannot both be right are named, wherever somebody looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from live_world import MS, SECOND, US, World, world
from test_doctor_live import examined, in_background

from mqtick.client.disagreement import Disagreement, disagreements
from mqtick.client.doctor import broker as doctor_broker
from mqtick.client.estimate import Estimate, State
from mqtick.client.metrics import metrics
from mqtick.client.status import status
from mqtick.client.status_text import status_lines, summary
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings

__all__ = ["world"]  # a fixture


def claim(lower_ns: int, upper_ns: int | None, root_ns: int = 0, known: bool = True) -> Estimate:
    state = State.HOLDOVER if known else State.UNSYNCHRONISED
    return Estimate(0, state, 0, lower_ns, upper_ns, root_distance_ns=root_ns)


def test_intervals_that_meet_agree_and_others_are_told_with_their_gap() -> None:
    claims = {
        "0": claim(-5, 5),
        "1": claim(5, 9),
        "2": claim(37, 40, root_ns=7),  # on both sides
        "3": claim(70, None),
        "4": claim(80, 90, known=False),
    }
    assert disagreements(claims) == [
        Disagreement(("0", "2"), 25),
        Disagreement(("1", "2"), 21),
    ]


@pytest.fixture
def servers(world: World) -> World:
    """Two of them, half a second apart."""
    world.serve(number=3)
    ahead = VirtualClock(VirtualClockSettings.starting_now(offset_ns=SECOND // 2))
    world.serve(number=5, clock=ahead)
    return world


def values_of(world: World) -> dict[str, Any]:
    """The status of a client that knows both servers' time."""
    client = world.follow()

    def known() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = status(client.agent, {})["servers"]
        return [row for row in rows if row["state"] == "synchronised" and row["kind"] != "one-way"]

    world.run(lambda: len(known()) == 2)
    return status(client.agent, {})


@pytest.mark.slow
@pytest.mark.needs("mosquitto")
def test_servers_half_a_second_apart_are_named_in_status_summary_and_metrics(
    servers: World,
) -> None:
    values = values_of(servers)
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
@pytest.mark.needs("mosquitto")
def test_the_doctor_names_servers_that_disagree(servers: World, tmp_path: Path) -> None:
    with in_background(servers):
        check = examined(tmp_path, servers.mosquitto.port, listen_s=3.0)["servers 3 and 5"]
    assert check.result == "FAIL"
    assert "ms apart" in check.value


def test_nothing_is_said_of_servers_that_agree() -> None:
    assert list(doctor_broker.check_agreement([])) == []
    values = {"chosen": 0, "state": "synchronised", "disagreements": []}
    row = {"offset_ns": 3 * US, "bound_ns": 20 * US, "narrow_bound_ns": None}
    assert summary({**values, "servers": [row]}) == "synchronised: offset +3.0 us, bound 20.0 us"
