"""The fleet's table: every host is a row, the worst first, whatever hosts say."""

from __future__ import annotations

import copy
import json
import re
from html import escape
from html.parser import HTMLParser
from typing import Any

import pytest
from ansible_collections.mqtick.fleet.plugins.filter.fleet_status import fleet_status
from ansible_collections.mqtick.fleet.plugins.module_utils.chrony_view import chrony_view
from ansible_collections.mqtick.fleet.plugins.module_utils.durations import duration
from ansible_collections.mqtick.fleet.plugins.module_utils.host_row import STATES, Row, row_of
from ansible_collections.mqtick.fleet.plugins.module_utils.page import page_of
from ansible_collections.mqtick.fleet.plugins.module_utils.table import (
    Table,
    fleet_table,
)
from ansible_collections.mqtick.fleet.plugins.module_utils.table_text import table_lines
from hypothesis import given, settings
from hypothesis import strategies as st

TRACKING = (
    "4D515430,MQT0,2,1795208084.297,0.000012,-0.000003,0.000005,1.2,0.001,0.133,"
    "0.002,0.00003,16.0,Normal"
)
SOURCES = "#,*,MQT0,1,4,77,15,0.000001,0.000001,0.001\n^,-,ntp.lan,2,6,377,20,0.1,0.1,0.02"
RUNS = {
    "code": 0,
    "out": "LoadState=loaded\nActiveState=active\nResult=success\nExecMainStatus=0",
    "err": "",
}
SERVER = {
    "server": 0,
    "format": "precise",
    "state": "synchronised",
    "offset_ns": 40_000,
    "earliest_offset_ns": 10_000,
    "latest_offset_ns": 70_000,
    "bound_ns": 30_000,
    "root_distance_ns": 5_000,
    "delay_ns": 170_000,
    "stratum": 1,
}


def answer(text: str, code: int = 0, err: str = "") -> dict[str, Any]:
    return {"code": code, "out": text, "err": err}


def client(state: str = "synchronised", **changes: Any) -> dict[str, Any]:
    status = {
        "age_ns": 800_000_000,
        "state": state,
        "chosen": 0,
        "servers": [{**SERVER, **changes}],
        "connected": True,
        "broker": "mqtts://broker.lan:8883",
        "last_error": "",
        "refused": {},
        "chrony": {"0": {"sent": {"sent": 3}, "says": ""}},
    }
    return look(client=status)


def look(version: str = "1.0.0", **statuses: dict[str, Any]) -> dict[str, Any]:
    seen = {"tracking": answer(TRACKING), "sources": answer(SOURCES)}
    for role, status in statuses.items():
        seen |= {
            f"{role} status": answer(json.dumps(status)),
            f"{role} unit": dict(RUNS),
            f"{role} journal": answer("the last words"),
        }
    return {"seen": seen, "version": version}


def timeserver(**changes: Any) -> dict[str, Any]:
    status = {
        "age_ns": 100,
        "state": "synchronised",
        "reason": "",
        "number": 0,
        "connected": True,
        "stratum": 2,
        "root_distance_ns": 400_000,
    }
    return look(timeserver={**status, **changes})


def changed(found: dict[str, Any], question: str, **changes: Any) -> dict[str, Any]:
    found = copy.deepcopy(found)
    found["seen"][question] |= changes
    return found


def with_status(found: dict[str, Any], **changes: Any) -> dict[str, Any]:
    status = json.loads(found["seen"]["client status"]["out"]) | changes
    return changed(found, "client status", out=json.dumps(status))


def row(found: object, role: str = "client", limit_us: float = 1000.0) -> Row:
    return row_of("pi7", role, found, limit_us)


def table_of(looks: dict[str, object], limit_us: float = 1000.0) -> Table:
    hostvars = {name: {"fleet_look": found} for name, found in looks.items()}
    return fleet_table(hostvars, {"mqtick_clients": list(looks)}, looks, limit_us)


# ---- states -------------------------------------------------------------------------------------
STOPPED = "LoadState=loaded\nActiveState=inactive\nResult=success\nExecMainStatus=0"
REFUSED = "LoadState=loaded\nActiveState=failed\nResult=exit-code\nExecMainStatus=2"
SAYS_WHAT = {
    "unreachable": {"unreachable": True, "msg": "no route to host"},
    "not understood": {"failed": True, "msg": "/usr/bin/python3: not found"},
    "not installed": changed(
        look("", client={}), "client status", out="", err="mqtick-client: No such file or directory"
    ),
    "failed config": changed(client(), "client unit", out=REFUSED),
    "stopped": changed(client(), "client unit", out=STOPPED),
    "old status": with_status(client(), age_ns=6_000_000_000),
    "unsynchronised": with_status(client("unsynchronised"), servers=[], chosen=None),
    "holdover": client("holdover"),
    "synchronised": client(),
}


def test_every_state_has_an_example_here() -> None:
    assert tuple(SAYS_WHAT) == STATES


@pytest.mark.parametrize("state", STATES)
def test_each_state_is_recognised_and_what_is_not_good_says_why_and_what_to_do(state: str) -> None:
    found = row(SAYS_WHAT[state])
    assert found.state == state
    assert found.good == (state == "synchronised")
    assert found.good or (found.reason and found.remedy)


def test_a_host_that_was_never_asked_is_unreachable() -> None:
    assert row(None).state == "unreachable"


def test_the_earlier_answer_of_a_host_that_was_given_up_is_not_believed() -> None:
    hostvars = {"pi7": {"fleet_look": client()}}
    table = fleet_table(hostvars, {"mqtick_clients": ["pi7"]}, ["pi7"], 1000, given_up=["pi7"])
    assert [found.state for found in table.rows] == ["unreachable"]


def test_the_last_words_of_a_refused_configuration_are_the_reason() -> None:
    assert "the last words" in row(SAYS_WHAT["failed config"]).reason
    # Where systemd says only half, that is enough.
    assert row(changed(client(), "client unit", out="ExecMainStatus=2")).state == "failed config"


def test_a_client_without_broker_says_so() -> None:
    found = with_status(client("holdover"), connected=False, last_error="Connection refused")
    assert "broker.lan" in row(found).reason
    assert "Connection refused" in row(found).reason


# ---- the limit ----------------------------------------------------------------------------------
def test_what_a_clock_may_be_off_by_is_the_far_end_of_its_interval_plus_root_distance() -> None:
    assert row(client()).error_ns == 70_000 + 5_000
    ahead = client(offset_ns=-40_000, earliest_offset_ns=-90_000, latest_offset_ns=10_000)
    assert row(ahead).error_ns == 90_000 + 5_000


def test_a_clock_may_be_off_by_exactly_the_limit() -> None:
    assert row(client(), limit_us=75).good
    over = row(client(), limit_us=74.999)
    assert over.over_limit
    assert over.fault == "over the limit"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"offset_ns": 2_000_000, "latest_offset_ns": 2_100_000}, "still slewing"),
        ({"bound_ns": 2_000_000, "latest_offset_ns": 2_100_000}, "the way to the broker"),
        ({"root_distance_ns": 2_000_000}, "its time server is that uncertain"),
    ],
)
def test_over_the_limit_the_largest_part_decides_what_to_do(
    changes: dict[str, int], words: str
) -> None:
    assert words in row(client(**changes)).remedy


def test_where_nobody_steers_the_clock_the_remedy_is_to_let_chrony_do_it() -> None:
    found = with_status(client(offset_ns=2_000_000, latest_offset_ns=2_000_000), chrony={})
    assert "client_discipline" in row(found).remedy


# ---- time servers -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "fault", "remedy"),
    [
        ({}, "", ""),
        ({"root_distance_ns": 1_000_000}, "", ""),
        ({"root_distance_ns": 1_000_001}, "over the limit", "timeserver_upstream"),
        ({"connected": False}, "unsynchronised", "is the broker up?"),
        ({"state": "standing by"}, "standing by", "a timeserver_number of its own"),
    ],
)
def test_a_time_server_is_a_row_with_what_is_wrong_with_it(
    changes: dict[str, Any], fault: str, remedy: str
) -> None:
    found = row(timeserver(reason="another one has the number 0", **changes), "timeserver")
    assert (found.good, found.fault) == (not fault, fault)
    assert remedy in found.remedy
    assert found.stratum == 2
    assert found.root_distance_ns == changes.get("root_distance_ns", 400_000)
    assert found.chrony["source"] == "MQT0"
    assert fault != "standing by" or found.reason == "another one has the number 0"


def test_a_host_with_both_roles_has_two_rows() -> None:
    both = {"seen": client()["seen"] | timeserver()["seen"], "version": "1.0.0"}
    groups = {"mqtick_clients": ["pi7"], "mqtick_timeservers": ["pi7"]}
    table = fleet_table({"pi7": {"fleet_look": both}}, groups, ["pi7"], 1000)
    assert sorted(found.role for found in table.rows) == ["client", "timeserver"]
    assert table.is_good


# ---- chrony -------------------------------------------------------------------------------------
def test_chrony_that_follows_the_client_is_no_trouble() -> None:
    view = chrony_view(answer(TRACKING), answer(SOURCES), "MQT0")
    assert (view.trouble, view.text) == ("", "follows MQT0")
    assert view.system_offset_ns == 12_000, "positive: the clock is slow"


@pytest.mark.parametrize(
    ("tracking", "sources", "words"),
    [
        (TRACKING, SOURCES.replace("#,*", "#,?"), "cannot select MQT0"),
        (TRACKING, SOURCES.replace("#,*", "#,x"), "disagrees"),
        (TRACKING, SOURCES.splitlines()[1], "does not know the source MQT0"),
        (TRACKING.replace("Normal", "Not synchronised"), SOURCES, "follows nothing"),
        # after its first update
        (TRACKING.replace(",0.133,", ",1000000.0,"), SOURCES, "has just begun"),
        (TRACKING.replace("4D515430", "7F7F0101"), SOURCES, "local mode"),
        ("506 Cannot talk to daemon", "", "506 Cannot talk to daemon"),
    ],
)
def test_what_is_wrong_with_chrony_is_said(tracking: str, sources: str, words: str) -> None:
    assert words in chrony_view(answer(tracking), answer(sources), "MQT0").trouble


def test_a_client_whose_chrony_does_not_follow_it_is_good_but_noted() -> None:
    unselected = changed(client(), "sources", out=SOURCES.replace("#,*", "#,?"))
    assert row(unselected).good
    assert "cannot select" in row(unselected).reason
    assert row(with_status(unselected, chrony={})).reason == "", "it only measures"


# ---- the table ----------------------------------------------------------------------------------
def test_the_worst_stands_first_and_the_summary_counts() -> None:
    looks = {f"good{number}": client() for number in range(3)}
    looks |= {"wrong": client(latest_offset_ns=2_000_000), "down": SAYS_WHAT["unreachable"]}
    table = table_of(looks)
    assert [found.host for found in table.rows[:2]] == ["down", "wrong"]
    assert table.summary == "3 of 5 hosts are within 1 ms; 1 over the limit; 1 unreachable"
    assert not table.is_good


def test_among_the_good_the_most_wrong_stands_first() -> None:
    table = table_of({"near": client(), "far": client(latest_offset_ns=200_000)})
    assert [found.host for found in table.rows] == ["far", "near"]
    assert table.is_good


def test_of_many_hosts_the_text_shows_all_that_are_not_good_and_some_of_the_others() -> None:
    looks: dict[str, object] = {f"pi{number}": client() for number in range(600)}
    looks |= {f"down{number}": SAYS_WHAT["unreachable"] for number in range(50)}
    texts = [line["text"] for line in table_lines(table_of(looks), 40)]
    # In the grid, and the reasons of the first 20 above it.
    assert sum(text.startswith("down") for text in texts) == 50 + 20
    assert texts[-1] == "and 600 more that are good; -e status_rows=0 shows all"
    everything = table_lines(table_of(looks), 0)
    assert sum(line["text"].startswith("pi") for line in everything) == 600


def test_columns_stand_below_their_headings() -> None:
    lines = table_lines(table_of({"pi7": client(), "a-much-longer-name": client()}), 40)
    head, *rows = [line["text"] for line in lines[-3:]]
    place = head.index("version")
    assert [text[place:] for text in rows] == ["1.0.0", "1.0.0"]


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (1_500, "1.5 us"),
        (-33_700, "-33.7 us"),
        (1_000_000, "1 ms"),
        (2_500_000_000, "2.5 s"),
        (0, "0 us"),
        (-1, "-0.001 us"),
    ],
)
def test_durations_have_a_unit_that_fits(value_ns: int, text: str) -> None:
    assert duration(value_ns) == text


# ---- time servers that disagree ------------------------------------------------------------------
def test_time_servers_that_disagree_are_named_with_their_hosts_and_spoil_the_fleet() -> None:
    apart = [{"servers": ["0", "1"], "gap_ns": 499_200_000}]
    looks = {
        "time-1": timeserver(number=0),
        "time-2": timeserver(number=1),
        "pi1": with_status(client(), disagreements=apart),
        "pi2": with_status(client(), disagreements=apart),
        "pi3": client(),
    }
    hostvars = {name: {"fleet_look": found} for name, found in looks.items()}
    groups = {
        "mqtick_timeservers": ["time-1", "time-2"],
        "mqtick_clients": ["pi1", "pi2", "pi3"],
    }
    table = fleet_table(hostvars, groups, looks, 1000)
    (sentence,) = table.disagreements
    assert sentence.startswith(
        "Time servers 0 (time-1) and 1 (time-2) disagree by at least 499.2 ms, as 2 clients find:"
    )
    assert not table.is_good
    assert table.summary == "5 of 5 hosts are within 1 ms; time servers disagree"
    assert sentence in [line["text"] for line in table_lines(table, 40)]
    assert sentence in page_of(table)
    assert table.as_json()["disagreements"] == [sentence]
    assert table_of({"pi3": client()}).disagreements == ()


# ---- hostile hosts ------------------------------------------------------------------------------
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
LOOKS = (
    ANYTHING
    | st.fixed_dictionaries({"seen": ANYTHING, "version": ANYTHING})
    | st.builds(with_status, st.just(client()), state=ANYTHING, servers=ANYTHING, chosen=ANYTHING)
    | st.builds(with_status, st.just(client()), disagreements=ANYTHING)
    | st.builds(
        lambda pairs: with_status(client(), disagreements=pairs),
        st.lists(st.fixed_dictionaries({"servers": ANYTHING, "gap_ns": ANYTHING}), max_size=3),
    )
    | st.builds(client, offset_ns=ANYTHING, earliest_offset_ns=ANYTHING, latest_offset_ns=ANYTHING)
    | st.builds(changed, st.just(client()), st.just("tracking"), out=ANYTHING)
    | st.builds(changed, st.just(client()), st.just("sources"), out=ANYTHING)
    | st.builds(changed, st.just(client()), st.just("client unit"), out=ANYTHING)
)


@settings(max_examples=30)
@given(LOOKS)
def test_whatever_a_host_answers_it_is_one_row_and_spoils_no_other(found: object) -> None:
    table = table_of({"liar": found, "honest": client()})
    assert sorted(each.host for each in table.rows) == ["honest", "liar"]
    assert [each.good for each in table.rows if each.host == "honest"] == [True]
    json.dumps(table.as_json(), allow_nan=False)
    for line in table_lines(table, 40):
        assert line["text"].isprintable()
    assert page_of(table).count("<tr") == 3


def test_what_steers_a_terminal_does_not_reach_it() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07 \u202ereversed\nsecond line"
    found = with_status(client("holdover"), connected=False, last_error=evil)
    for line in table_lines(table_of({"pi7\x1b[31m": found}), 40):
        assert line["text"].isprintable()


def test_huge_answers_are_cut() -> None:
    found = with_status(client("holdover"), connected=False, last_error="x" * 100_000)
    assert len(row(found).reason) < 600


class Tags(HTMLParser):
    """Counts what a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_html_of_a_host_stays_text() -> None:
    evil = '<script>alert(1)</script><img src=x onerror="alert(1)">'
    found = with_status(client("holdover"), connected=False, last_error=evil)
    found["version"] = evil
    plain = Tags(page_of(table_of({"pi7": client()})))
    page = page_of(table_of({f"pi{evil}": found}))
    assert Tags(page).tags.count("script") == plain.tags.count("script") == 1
    assert "img" not in Tags(page).tags


# ---- the broker's certificate --------------------------------------------------------------------
def with_certificate(days: int) -> dict[str, Any]:
    return fleet_status(
        {"pi7": {"fleet_look": client()}},
        {"mqtick_clients": ["pi7"]},
        ["pi7"],
        limit_us=1000,
        rows=40,
        certificate={"days": days, "renew_days": "60"},
    )


@pytest.mark.parametrize(
    ("days", "says", "level"),
    [
        (812, "ends in 812 days.", "plain"),
        (60, "ends in 60 days.", "plain"),
        (59, "ends in 59 days. ansible-playbook mqtick.fleet.site", "bad"),
        (1, "ends in 1 day.", "bad"),
        (-1, "has ended", "bad"),
    ],
)
def test_the_table_says_how_long_the_brokers_certificate_lasts(
    days: int, says: str, level: str
) -> None:
    status = with_certificate(days)
    assert says in status["lines"][-1]["text"]
    assert status["lines"][-1]["level"] == level
    assert status["table"]["certificate"] == {"days": days, "renew_days": 60}
    assert ("! certificate" in status["page"]) == (level == "bad")
    assert escape(says) in status["page"]


def test_nothing_is_said_of_a_certificate_that_nobody_knows() -> None:
    table = table_of({"pi7": client()})
    assert table.as_json()["certificate"] is None
    assert not any("certificate" in line["text"] for line in table_lines(table, 40))
    assert 'class="certificate"' not in page_of(table)


# ---- the page -----------------------------------------------------------------------------------
def test_the_page_asks_nobody_for_anything() -> None:
    page = page_of(table_of({"pi7": client()}), "2026-11-22 03:30")
    assert Tags(page).links == []
    assert "http:" not in page
    assert "https:" not in page
    assert "default-src 'none'" in page


def test_the_page_is_complete_without_its_script() -> None:
    table = table_of({"pi7": client(), "down": SAYS_WHAT["unreachable"]})
    page = re.sub("<script>.*</script>", "", page_of(table), flags=re.DOTALL)
    assert page.index(">down<") < page.index(">pi7<")
    assert "no route to host" in page
    assert table.summary in page
