"""What a fleet costs, by the formulas of docs/scale.md and message by message."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench import scale_plan
from bench.harness import RESULTS
from bench.scale_page import PAGE, filled
from bench.scale_plan import Costs, Fleet, load, most_hosts
from bench.scale_world import Plan, asked_us, served, site_traffic, strata

COSTS = Costs(
    broker_us=10.0,
    server_us=500.0,
    server_idle_share=0.002,
    client_share=0.0017,
    node_in_us=20.0,
    node_out_us=2.0,
    node_site_us=5.0,
)


def test_messages_of_a_fleet_are_those_of_the_protocol() -> None:
    # Each second a time message; of each client, 4 exchanges of three messages in 16 s.
    fleet = Fleet(600)
    assert fleet.answers == 150
    assert fleet.ingress == 1 + 3 * 150
    # A copy of the time for each; of an exchange a request, four replies and an echo.
    assert fleet.egress == 600 + 150 * 6
    assert fleet._replace(echo=False).egress == 600 + 150 * 3


def test_the_first_program_at_its_end_says_how_many_hosts_fit() -> None:
    hosts, first = most_hosts(COSTS, share=0.5003)
    assert first == "server"
    assert load(Fleet(hosts), COSTS).server <= 0.5003 < load(Fleet(hosts + 1), COSTS).server


def test_a_node_pays_for_messages_and_for_copies() -> None:
    fleet = Fleet(600)
    assert load(fleet, COSTS).node == pytest.approx((20 * 451 + 2 * 1500) / 1e6)


def test_the_constants_come_from_the_results_of_benchmarks() -> None:
    ours, mosquitto = Costs.measured(), Costs.measured("Mosquitto")
    assert ours.broker_us < mosquitto.broker_us
    assert ours.server_us == mosquitto.server_us > 0


def test_a_node_that_was_not_measured_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("brokers", "cost", "fleet", "join"):
        found = json.loads((RESULTS / f"{file}.json").read_text())
        kept = [row for row in found["rows"] if row["who"] != "the node"]
        (tmp_path / f"{file}.json").write_text(json.dumps({"rows": kept}))
    monkeypatch.setattr(scale_plan, "RESULTS", tmp_path)
    with pytest.raises(
        ValueError, match=r"join.json does not say 'processor time: client.* run python -m bench"
    ):
        Costs.measured()


def test_the_page_has_the_figures_of_the_results_and_no_others() -> None:
    content = json.loads((RESULTS / "scale.json").read_text())
    assert PAGE.read_text() == filled(content)
    row = {"quantity": "wait: a reply", "who": "one", "median": 2500.0, "p99": 9.96}
    small = {"rows": [row], "ratios": [{"quantity": "a / b", "ratio": 0.987}]}
    text = "{{wait: a reply @ one @ .1f /1000}} {{wait: a reply @ one @ p99 .1f}} {{a / b @ .2f}}"
    assert filled(small, text) == "2.5 10.0 0.99"
    for wrong, says in (("{{wait @ two @ .1f}}", "no figure"), ("{{wait}}", "not understood")):
        with pytest.raises(ValueError, match=says):
            filled(small, wrong)


def test_a_planner_gets_a_row_for_each_number_of_hosts_and_none_for_no_fleet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["scale_plan", "600", "5000"])
    scale_plan.main()
    assert [row.split()[:3] for row in capsys.readouterr().out.splitlines()[2:]] == [
        ["600", "451", "1,500"],
        ["5,000", "3,751", "12,500"],
    ]
    monkeypatch.setattr("sys.argv", ["scale_plan", "600", "0"])
    with pytest.raises(SystemExit):
        scale_plan.main()
    assert "0 hosts are no fleet" in capsys.readouterr().err


def test_a_queue_serves_in_order_of_arrival() -> None:
    done = served(np.array([0.0, 100.0, 5.0, 10.0]), np.full(4, 10.0))
    assert done.tolist() == [10.0, 110.0, 20.0, 30.0]


def test_clients_ask_as_often_as_their_settings_say_and_clear_of_the_time() -> None:
    asked = asked_us(1000, 64, np.random.default_rng(1))
    assert len(asked) == pytest.approx(1000 * 64 * 4 / 16, rel=0.05)
    assert ((asked / 1e6 % 1) >= 0.149).all()


def test_simulated_messages_cost_what_the_formula_says() -> None:
    fleet = Fleet(500)
    found = site_traffic(fleet, COSTS, 60, np.random.default_rng(1))
    expected = load(fleet, COSTS)
    assert found.broker == pytest.approx(expected.broker, rel=0.06)
    assert found.server == pytest.approx(expected.server, rel=0.06)
    assert found.copies / 60 == pytest.approx(fleet.egress, rel=0.06)
    assert (found.request_us >= COSTS.broker_us - 1e-3).all()


@pytest.mark.slow
def test_a_site_that_is_cut_off_knows_less_and_says_so() -> None:
    draw = np.random.default_rng(1)
    traffic = site_traffic(Fleet(100), COSTS, 20, draw)
    plan = Plan(sites=3, clients=1, seconds=240, cut_s=(120.0, 240.0), lost_s=(0.0, 0.0))
    servers, clients = strata(plan, traffic, [traffic], residence=True, seed=1)
    assert not any(look.outside for node in servers + clients for look in node.looks)
    bounds = [[look.bound_ns for look in node.looks][-1] for node in servers]
    assert bounds[0] > 2 * max(bounds[1:])
    # Its clients hear that from their server.
    assert clients[0].looks[-1].bound_ns > bounds[0]
