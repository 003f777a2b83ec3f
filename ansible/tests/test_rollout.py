"""The order of an upgrade, and when it stops."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.mqtick.fleet.plugins.module_utils.rollout import batches, worse
from hypothesis import given
from hypothesis import strategies as st


def host(name: str, role: str = "client", error_us: float = 50, **changes: Any) -> dict[str, Any]:
    found = {
        "host": name,
        "role": role,
        "state": "synchronised",
        "good": True,
        "reason": "",
        "version": "1.0.0",
        "error_ns": round(error_us * 1000),
    }
    return found | changes


def fleet(clients: int, **changes: Any) -> list[dict[str, Any]]:
    return [host(f"pi{number:03}", **changes) for number in range(clients)]


def judge(
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
    batch: list[str],
    first: list[dict[str, Any]] | None = None,
) -> list[str]:
    """Compare with the numbers of the playbook."""
    return worse(after, first or before, before, batch, 0.9, 1.5, 100, 0.01)


def lost(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"state": "holdover", "good": False, "reason": "nothing was heard lately"}


def gone(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"state": "unreachable", "good": False, "reason": "no route to host"}


# ---- the order ----------------------------------------------------------------------------------
def test_first_one_client_then_tenths_then_each_time_server_alone() -> None:
    rows = [host("s1", "timeserver"), host("s0", "timeserver"), *fleet(600)]
    found = batches(rows, "10%")
    assert [len(batch) for batch in found] == [1] + 9 * [60] + [59, 1, 1]
    assert found[-2:] == [["s0"], ["s1"]]


@given(st.integers(0, 50), st.integers(0, 3), st.sampled_from(["10%", "100%", 1, 7, "50 %"]))
def test_every_host_comes_exactly_once(clients: int, servers: int, size: str | int) -> None:
    rows = fleet(clients) + [host(f"s{number}", "timeserver") for number in range(servers)]
    found = [name for batch in batches(rows, size) for name in batch]
    assert sorted(found) == sorted(row["host"] for row in rows)


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        ([lost(host("a")), host("b")], [["b"], ["a"]]),  # first one whose time is good
        # a time server that is a client too comes once, and last
        ([host("s0", "timeserver"), host("s0"), host("pi")], [["pi"], ["s0"]]),
        ([host("down", version="", state="unreachable"), host("up")], [["up"]]),
    ],
)
def test_who_comes_when(rows: list[dict[str, Any]], order: list[list[str]]) -> None:
    assert batches(rows, 1) == order


@pytest.mark.parametrize("size", ["0", "-1", "ten", "101%", "0%", ""])
def test_a_batch_that_is_no_number_is_refused_with_its_value(size: str) -> None:
    with pytest.raises(ValueError, match=r"upgrade_batch is '.*', but it is a number"):
        batches(fleet(3), size)


# ---- worse --------------------------------------------------------------------------------------
def test_one_bad_first_host_is_noticed_in_a_fleet_of_hundreds() -> None:
    after = [host("pi000", error_us=300), *fleet(600)[1:]]
    (sentence,) = judge(fleet(600), after, ["pi000"])
    assert (
        "the batch may be off by 300 us, at the beginning it was 50 us; good is up to 175 us"
        in sentence
    )


def test_a_server_that_makes_all_clients_worse_is_noticed() -> None:
    before = [host("s0", "timeserver"), *fleet(20)]
    after = [host("s0", "timeserver"), *fleet(20, error_us=300)]
    (sentence,) = judge(before, after, ["s0"])
    assert "of the fleet" in sentence


def test_what_is_good_enough_does_not_stop_it() -> None:
    assert judge(fleet(100), fleet(100), ["pi000"]) == []
    assert judge(fleet(10), fleet(10, error_us=175), ["pi000"]) == []
    assert judge(fleet(10), fleet(10, error_us=175.001), ["pi000"]) != []
    had_none = [lost(host("pi000")), *fleet(5)[1:]]
    assert judge(had_none, had_none, ["pi000"]) == []


def test_a_host_of_the_batch_that_loses_the_time_or_is_gone_stops_it() -> None:
    before = fleet(600)
    (sentence,) = judge(before, [lost(before[0]), *before[1:]], ["pi000"])
    assert sentence == "pi000 was synchronised and is holdover now: nothing was heard lately"
    (sentence,) = judge(before, [gone(before[0]), *before[1:]], ["pi000"])
    assert sentence.startswith("pi000 was synchronised and is unreachable now")


def test_of_the_other_hosts_a_hundredth_may_lose_the_time() -> None:
    before = fleet(600)
    six = [lost(row) for row in before[10:16]]
    assert judge(before, [*before[:10], *six, *before[16:]], ["pi000"]) == []
    seven = [lost(row) for row in before[10:17]]
    (sentence,) = judge(before, [*before[:10], *seven, *before[17:]], ["pi000"])
    assert (
        sentence == "of the hosts outside of the batch 7 more are without the time, at most 6 may"
    )


def test_in_a_small_fleet_a_plug_may_be_pulled_but_nobody_may_lose_the_time() -> None:
    before = fleet(3)
    assert judge(before, [*before[:2], gone(before[2])], ["pi000"]) == []
    assert judge(before, [*before[:2], lost(before[2])], ["pi000"]) != []
    assert judge(before, [before[0], gone(before[1]), gone(before[2])], ["pi000"]) != []


def test_a_little_worse_in_each_batch_is_noticed_in_the_end() -> None:
    first, before, after = fleet(20), fleet(20, error_us=170), fleet(20, error_us=200)
    assert judge(before, after, ["pi000"]) == []
    assert judge(before, after, ["pi000"], first) != []


def test_a_client_that_chrony_follows_no_longer_stops_it() -> None:
    before = fleet(3)
    after = [host("pi000", reason="chronyd cannot select MQT0"), *before[1:]]
    assert judge(before, after, ["pi000"]) == ["pi000: chronyd cannot select MQT0"]
    assert judge(after, after, ["pi000"]) == []
    assert judge(before, after, ["pi001"]) == []
