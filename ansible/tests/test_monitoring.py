"""Alert rules and dashboard: what they look at is exported, and they say what they should."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from paho.mqtt import publish
from rig import Rig

from demo.local_broker import free_port

ROLE = Path(__file__).parent.parent / "roles/monitoring"
DASHBOARD = json.loads((ROLE / "files/dashboard.json").read_text())
VARIABLES = {
    "monitoring_limit_s": "0.001",
    "monitoring_root_distance_s": "0.05",
    "monitoring_holdover_s": "600",
    "monitoring_timeservers": "2",
    "monitoring_joined": "3",
}


def rules_text() -> str:
    """The rules as the template makes them: a line for Ansible, then variables in [[ ]]."""
    head, _, text = (ROLE / "templates/rules.yml.j2").read_text().partition("\n")
    assert head.startswith("#jinja2: variable_start_string:'[['")
    return re.sub(r"\[\[ (\w+) \]\]", lambda found: VARIABLES[found[1]], text)


ALERTS = {rule["alert"]: rule for rule in yaml.safe_load(rules_text())["groups"][0]["rules"]}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """The dashboard's queries, with values for Grafana's variables."""
    values = {"host": "pi-1", "limit": "0.001", "__rate_interval": "1m"}
    return [
        re.sub(r"\$(\w+)", lambda found: values[found[1]], target["expr"])
        for panel in panels()
        for target in panel["targets"]
    ]


def promtool(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["promtool", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


COMMANDS = (
    r"\b(mqtick-(client|timeserver|join|{{ \$labels\.program }}) (status|doctor|topology)"
    r"|chronyc \w+|run site|(systemctl status|journalctl -u) \S+"
    r"|ansible-playbook mqtick\.fleet\.\w+)"
)


# -- alert rules -----------------------------------------------------------------------------------

CLIENT = {"job": "mqtick", "instance": "pi-1", "program": "client"}
SERVER = {"job": "mqtick", "instance": "time-1", "program": "timeserver"}
NODE = {"job": "mqtick", "instance": "site-1", "program": "join"}
# What a good fleet exports: one client, two time servers, one node of three sites.
HEALTHY: dict[str, str] = {
    "client up": "1",
    "client mqtick_client_connected": "1",
    "client mqtick_client_synchronised": "1",
    "client mqtick_client_holdover": "0",
    "client mqtick_client_clock_error_seconds": "0.0001",
    "client mqtick_client_clock_steps_total": "1",
    'client mqtick_client_disagreement_seconds{server="0"}': "0",
    'client mqtick_client_samples_total{verdict="used",server="0"}': "0+15",
    'client mqtick_client_samples_total{verdict="refused",server="0"}': "0+1",
    'client mqtick_client_chrony_total{outcome="sent"}': "0+4",
    'client mqtick_client_chrony_total{outcome="missing"}': "3",
    'client mqtick_client_info{version="0.1.0"}': "1",
    "server up": "1",
    "server mqtick_timeserver_connected": "1",
    "server mqtick_timeserver_synchronised": "1",
    "server mqtick_timeserver_root_distance_seconds": "0.01",
    "server mqtick_timeserver_conflicts_total": "0",
    'server mqtick_timeserver_info{version="0.1.0"}': "1",
    "other mqtick_timeserver_synchronised": "1",
    "node up": "1",
    "node mqtick_join_nodes": "3",
    "node mqtick_join_neighbours_away": "0",
    "node mqtick_join_broker_sessions": "2",
    "node mqtick_join_dropped_neighbour_total": "7",
    "node mqtick_join_dropped_away_total": "0",
    "node mqtick_join_dropped_broker_total": "0",
    "node mqtick_join_dropped_too_long_total": "0",
}
# What goes wrong, the minute in which nobody is told yet, one in which somebody is, and of whom.
CASES: dict[str, tuple[dict[str, str], int, int, str]] = {
    "MqtickProgramDown": ({"client up": "0"}, 4, 5, "pi-1"),
    "MqtickBrokerDisconnected": ({"server mqtick_timeserver_connected": "0"}, 1, 2, "time-1"),
    "MqtickNotSynchronised": ({"client mqtick_client_synchronised": "0"}, 4, 5, "pi-1"),
    "MqtickOverLimit": ({"client mqtick_client_clock_error_seconds": "0.0011"}, 4, 5, "pi-1"),
    "MqtickHoldover": (
        {"client mqtick_client_synchronised": "0", "client mqtick_client_holdover": "1"},
        9,
        10,
        "pi-1",
    ),
    "MqtickNoSamples": (
        {'client mqtick_client_samples_total{verdict="used",server="0"}': "99"},
        4,
        5,
        "pi-1",
    ),
    "MqtickServersDisagree": (
        {'client mqtick_client_disagreement_seconds{server="0"}': "0.5"},
        0,
        1,
        "pi-1",
    ),
    "MqtickClockStepped": ({"client mqtick_client_clock_steps_total": "0 0 0 1x90"}, 2, 3, "pi-1"),
    "MqtickChronyTakesNothing": (
        {'client mqtick_client_chrony_total{outcome="missing"}': "0+1"},
        10,
        11,
        "pi-1",
    ),
    "MqtickServerNotSynchronised": (
        {"server mqtick_timeserver_synchronised": "0"},
        4,
        5,
        "time-1",
    ),
    "MqtickServerRootDistance": (
        {"server mqtick_timeserver_root_distance_seconds": "0.051"},
        4,
        5,
        "time-1",
    ),
    "MqtickServerNumberTaken": (
        {"server mqtick_timeserver_conflicts_total": "0 0 0 1x90"},
        2,
        3,
        "time-1",
    ),
    "MqtickServersMissing": ({"other mqtick_timeserver_synchronised": "_"}, 9, 10, ""),
    "MqtickSitesApart": ({"node mqtick_join_nodes": "2"}, 4, 5, "site-1"),
    "MqtickNeighbourAway": ({"node mqtick_join_neighbours_away": "1"}, 4, 5, "site-1"),
    "MqtickSiteWithoutBroker": ({"node mqtick_join_broker_sessions": "0"}, 1, 2, "site-1"),
    "MqtickJoinDrops": ({"node mqtick_join_dropped_away_total": "0 0 0 5x90"}, 2, 5, "site-1"),
    "MqtickVersionsDiffer": ({'client mqtick_client_info{version="0.0.9"}': "1"}, 59, 60, ""),
}


def series(values: dict[str, str]) -> list[dict[str, str]]:
    """Write the values in promtool's words: with x120, the same for two hours."""
    labels = {"client": CLIENT, "server": SERVER, "other": SERVER | {"instance": "time-2"}}
    labels |= {"node": NODE}
    found = []
    for name, text in values.items():
        who, _, metric = name.partition(" ")
        bare, _, own = metric.partition("{")
        pairs = [f'{key}="{value}"' for key, value in labels[who].items()]
        inside = ",".join([*pairs, *filter(None, [own.removesuffix("}")])])
        found.append(
            {"series": f"{bare}{{{inside}}}", "values": text if " " in text else f"{text}x120"}
        )
    return found


def expect(selector: str, minute: int, count: int = 0) -> dict[str, Any]:
    """So many alerts of that kind are firing in that minute."""
    samples = [{"labels": "{}", "value": count}] if count else []
    expression = f'count(ALERTS{{alertstate="firing",{selector}}})'
    return {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}


@pytest.mark.needs("promtool")
def test_each_alert_comes_when_something_is_wrong_and_not_before(tmp_path: Path) -> None:
    assert CASES.keys() == ALERTS.keys()
    (tmp_path / "rules.yml").write_text(rules_text())
    tests = [
        {
            "interval": "1m",
            "name": alert,
            "input_series": series(HEALTHY | wrong),
            "promql_expr_test": [
                expect(f'alertname="{alert}"', quiet),
                expect(f'alertname="{alert}",instance="{instance}"', told, 1),
            ],
        }
        for alert, (wrong, quiet, told, instance) in CASES.items()
    ]
    good_fleet = {
        "interval": "1m",
        "name": "a good fleet",
        "input_series": series(HEALTHY),
        "promql_expr_test": [expect("", minute) for minute in (0, 5, 15, 90)],
    }
    standing_by = {
        "interval": "1m",
        "name": "its own clock is good, but another server has its number",
        "input_series": series(
            HEALTHY
            | {
                "server mqtick_timeserver_synchronised": "0",
                "server mqtick_timeserver_standing_by": "1",
            }
        ),
        "promql_expr_test": [expect('alertname="MqtickServerNotSynchronised"', 60)],
    }
    content = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [*tests, good_fleet, standing_by],
    }
    (tmp_path / "test.yml").write_text(json.dumps(content))
    promtool(tmp_path, "check", "rules", "rules.yml")
    promtool(tmp_path, "test", "rules", "test.yml")


def test_each_alert_says_who_or_how_many_what_it_means_and_what_to_do() -> None:
    for name, rule in ALERTS.items():
        said = rule["annotations"]
        assert rule["labels"]["severity"] in ("warning", "critical"), name
        assert re.search(r"{{ \$(labels\.instance|value)", said["summary"]), name
        assert said["description"].endswith("."), name
        assert re.search(COMMANDS, said["remedy"]), name


# -- dashboard -------------------------------------------------------------------------------------
# Grafana is not at hand: nobody has seen the dashboard in it. The shape is that of Grafana's own
# schema, kinds/dashboard/dashboard_kind.cue in its repository (schemaVersion 36).


def test_the_dashboard_has_the_shape_of_grafanas_schema() -> None:
    assert DASHBOARD["schemaVersion"] == 36
    assert 8 <= len(DASHBOARD["uid"]) <= 40
    assert DASHBOARD["graphTooltip"] in (0, 1, 2)
    known = {"query", "adhoc", "constant", "datasource", "interval", "textbox", "custom", "system"}
    for variable in DASHBOARD["templating"]["list"]:
        assert variable["type"] in known
        assert variable["hide"] in (0, 1, 2)
    identities = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identities)) == len(identities)
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        assert panel["type"] in {"stat", "table", "timeseries"}
        assert panel["datasource"] == source
        assert panel["fieldConfig"].keys() == {"defaults", "overrides"}
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
        assert [step["value"] for step in steps][:1] in ([], [None])
        # Without steps of its own a coloured panel is red from 80 on, however many hosts there are.
        assert steps or panel.get("options", {}).get("colorMode") != "background", panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == list("ABCDEFG"[: len(letters)])
        assert all(target["datasource"] == source for target in panel["targets"])
        assert all(
            change.keys() >= {"id", "options"} for change in panel.get("transformations", [])
        )


def test_no_panel_lies_upon_another_or_beside_the_page() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["w"] > 0 < place["h"]
        for x in range(place["x"], place["x"] + place["w"]):
            assert 0 <= x < 24, panel["title"]
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_the_dashboard_asks_for_no_variable_that_it_does_not_have() -> None:
    asked = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    had = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert asked - {"__rate_interval"} == had


@pytest.mark.needs("promtool")
def test_prometheus_understands_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"query_{n}", "expr": query} for n, query in enumerate(queries())]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool(tmp_path, "check", "rules", "rules.yml")


# -- what the programs export ----------------------------------------------------------------------

PROMETHEUS_OWN = {"job", "instance", "program"}  # the labels of a target
NAME = r"mqtick_(?:client|timeserver)_\w+"


@pytest.mark.slow
@pytest.mark.needs("mosquitto")
def test_rules_and_dashboard_use_only_what_the_programs_export() -> None:
    with contextlib.closing(Rig()) as rig:
        exported = scrape_real_programs(rig)
    for expression in [rule["expr"] for rule in ALERTS.values()] + queries():
        names = re.findall(NAME, expression)
        assert set(names) <= exported.keys(), expression
        for name, selector in re.findall(rf"({NAME}){{(.*?)}}", expression):
            labels = set(re.findall(r"(\w+)[=!]", selector))
            assert labels <= exported[name] | PROMETHEUS_OWN, expression
        for grouping in re.findall(r"(?:by|on) \((.*?)\)", expression):
            labels = set(grouping.split(", "))
            assert all(labels <= exported[name] | PROMETHEUS_OWN for name in names), expression


def scrape_real_programs(rig: Rig) -> dict[str, set[str]]:
    """Run server and client; return the names of what they export, with the names of labels."""
    url = rig.broker().url
    broker, ports = urlsplit(url), (free_port(), free_port())
    server = rig.server(url, "--metrics-listen", f"127.0.0.1:{ports[0]}")
    server.wait_ready()
    client = rig.client(
        url,
        "c1",
        *("--metrics-listen", f"127.0.0.1:{ports[1]}"),
        *("--discipline", "chrony", "--chrony-socket", str(rig.folder / "chrony.{server}.sock")),
    )
    client.wait_for(
        lambda values: values["state"] == "synchronised" and values["chrony"],
        "the client is synchronised and gives samples to chronyd",
    )
    for topic in ("mqtick/t/0", "mqtick/q/0/c9"):
        publish.single(topic, b"nonsense", hostname=broker.hostname or "", port=broker.port or 0)
    client.wait_for(lambda values: values["refused"], "the client has refused something")
    server.wait_for(lambda values: values["refused"], "the server has refused something")
    found: dict[str, set[str]] = {}
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            for line in answer.read().decode().splitlines():
                if match := re.match(r"(\w+)(?:{(.*)})? ", line):
                    found.setdefault(match[1], set()).update(re.findall(r'(\w+)="', match[2] or ""))
    return found
