"""A fleet that is watched over MQTT: what clients publish, and what is made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqtick.client.fleet.announcement import GONE
from mqtick.client.fleet.clients import Fleet, read, table
from mqtick.client.fleet.watch import judge
from mqtick.protocol.errors import DecodeError
from mqtick.service.commandline import Exit

SECOND, MS = 1_000_000_000, 1_000_000


def published(state: str = "synchronised", error_ns: int | None = 50_000, **more: Any) -> bytes:
    return json.dumps(
        {"state": state, "version": "1", "clock_error_ns": error_ns, "server": "0"} | more
    ).encode()


def fleet(**payloads: bytes) -> Fleet:
    made = Fleet()
    for name, payload in payloads.items():
        made.note(name, payload, 0)
    return made


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b'"synchronised"',
        b"{}",
        b"\xff",
        b"[" * 100_000,
        published("excellent"),
        published(error_ns=1 << 63),
        published(error_ns=-1),
        b'{"state":"synchronised","clock_error_ns":1e999}',
        b'{"state":"synchronised","clock_error_ns":true}',
        b'{"state":"synchronised","offset_ns":"0"}',
        b'{"state":"synchronised","troubles":[1]}',
        published(more="x" * 9000),
    ],
)
def test_what_is_no_status_is_refused_with_a_reason(payload: bytes) -> None:
    with pytest.raises(DecodeError, match="pi1") as refused:
        read("pi1", payload)
    assert refused.value.reason == "status"


def test_nothing_that_is_published_steers_a_terminal() -> None:
    client = read("pi1", published(troubles={"\x1b[2J": "\r\n\u202e"}, version="\x07", server={}))
    assert all(each.isprintable() for line in table([client]) for each in line)


def test_the_worst_clock_comes_first_and_decides_the_exit_code() -> None:
    made = fleet(
        good=published(error_ns=9_000),
        far=published(error_ns=3 * MS),
        none=published("unsynchronised", None),
        over=published("holdover"),
        ended=GONE,
    )
    clients = made.clients(0)
    assert [each.name for each in clients] == ["ended", "none", "over", "far", "good"]
    assert judge(clients, MS) is judge([], MS) is Exit.NOT_SYNCHRONISED
    assert judge(clients[3:], MS) is Exit.LIMIT_NOT_MET
    assert judge(clients[3:], 3 * MS) is Exit.GOOD


def test_a_client_that_stops_to_publish_is_silent_not_synchronised() -> None:
    made = fleet(pi1=published(interval_s=10), pi2=published(interval_s=60), pi3=GONE)
    assert [each.state for each in made.clients(35 * SECOND)][1:] == ["synchronised"] * 2
    late = made.clients(36 * SECOND)
    assert {each.name: each.state for each in late} == {
        "pi1": "silent",
        "pi2": "synchronised",
        "pi3": "gone",
    }
    assert not late[1].is_within(1 << 61)


@pytest.mark.parametrize(
    ("written", "offset_ns", "state"),
    [
        ("2026-11-29T04:00:00Z", 0, "synchronised"),
        ("2026-11-29T03:59:26Z", 0, "silent"),
        ("2026-11-29T03:00:00Z", 3600 * SECOND, "synchronised"),  # its clock is an hour late
        ("2020-01-01T00:00:00Z", None, "silent"),
        ("yesterday", None, "silent"),
    ],
)
def test_what_the_broker_has_kept_is_as_old_as_it_is(
    written: str, offset_ns: int | None, state: str
) -> None:
    made, now_ns = Fleet(), 10**15
    wall_ns = 1_795_924_802 * SECOND  # 2026-11-29 04:00:02
    for _ in range(2):  # the same again, as after a connection was lost
        made.note("pi1", published(time=written, offset_ns=offset_ns), now_ns, wall_ns)
        (row,) = made.as_json(now_ns)
        assert row["state"] == state
        assert state == "synchronised" or row["since_s"] == row["heard_s"] >= 36


def test_a_status_that_is_cleared_takes_the_client_out() -> None:
    made = fleet(pi1=GONE, pi2=published())
    made.note("pi1", b"", 1)
    made.note("nobody", b"", 1)
    assert [each.name for each in made.clients(1)] == ["pi2"]


def test_each_minute_keeps_its_greatest_error_for_an_hour() -> None:
    made = Fleet()
    for second in range(0, 7200, 10):
        error = None if second == 7000 else second
        made.note("pi1", published(error_ns=error), second * SECOND)
    (row,) = made.as_json(7199 * SECOND, history=True)
    known = dict(row["history"])
    assert (len(known), known[0], known[59], known[119 - 7000 // 60]) == (60, 7190, 3650, None)


def test_the_number_of_clients_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqtick.client.fleet.clients._MOST_CLIENTS", 2)
    made = fleet(a=published(), b=published())
    made.note("a", published(), 1)
    with pytest.raises(DecodeError, match="There are 2 clients"):
        made.note("c", published(), 1)
