"""Who of an inventory may do what at the broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mqtick.fleet.plugins.module_utils.accounts import (
    InventoryError,
    access_list,
    account_names,
    client_name,
    fleet_accounts,
)
from ansible_collections.mqtick.fleet.plugins.module_utils.certificates import (
    certificate_names,
    printed_names,
)

DOCUMENT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
FLEET = {"clients": ["pi7"], "servers": [0, 4]}


def documented(name: str) -> dict[str, set[str]]:
    found = re.search(rf"```acl{name}\n(.*?)```", DOCUMENT, re.DOTALL)
    assert found
    return rights(found.group(1))


def rights(acl: str) -> dict[str, set[str]]:
    """The lines by account; patterns under `everybody`."""
    found: dict[str, set[str]] = {}
    user = ""
    for line in filter(None, acl.splitlines()):
        word, rest = line.split(" ", 1)
        if word == "user":
            user = rest
        else:
            found.setdefault("everybody" if word == "pattern" else user, set()).add(rest)
    return found


def only(number: int, lines: set[str]) -> set[str]:
    """The documented rights of a time server, for one number."""
    return {re.sub(r"^(\w+ mqtick/(?:[xy]/)?\w)/\+", rf"\1/{number}", line) for line in lines}


# -- the access list -------------------------------------------------------------------------------


@pytest.mark.parametrize("experiments", [False, True])
def test_it_is_the_documented_one_with_each_time_server_confined_to_its_number(
    experiments: bool,
) -> None:
    expected = documented("")
    if experiments:
        for user, lines in documented(" experiments").items():
            expected[user] = expected.get(user, set()) | lines
        expected["mqtick-lab"].add("readwrite mqtick/d/#")
    server = expected.pop("mqtick-server")
    for number in FLEET["servers"]:
        expected[f"mqtick-server-{number}"] = only(number, server)
    assert rights(access_list(FLEET, "mqtick", experiments=experiments)) == expected


def test_the_prefix_may_have_levels() -> None:
    assert "topic write hall/time/t/4\n" in access_list(FLEET, "hall/time")


@pytest.mark.parametrize(("name", "topic"), [("1451.1.6", "BRSU"), ("draft-2021", "TIME")])
def test_formats_without_keys_get_their_lines_only_when_they_are_asked_for(
    name: str, topic: str
) -> None:
    assert topic not in access_list(FLEET, "mqtick")
    lines = rights(access_list(FLEET, "mqtick", ["precise", name]))
    writers = {
        who for who, own in lines.items() for line in own if "SYN" in line and "write" in line
    }
    assert writers == {"mqtick-server-0", "mqtick-server-4"}


def placed(**settings: Any) -> dict[str, list[Any]]:
    hosts = {"time1": {"timeserver_number": 0}, "pi-a": {}, "pi-b": settings}
    return fleet_accounts(
        hosts, {"mqtick_timeservers": ["time1"], "mqtick_clients": ["pi-a", "pi-b"]}
    )


def test_the_place_that_a_program_is_set_to_is_in_the_access_list_of_the_draft() -> None:
    fleet = placed(client_settings={"draft_location": "hall"})
    lines = rights(access_list(fleet, "mqtick", ["precise", "draft-2021"]))
    for place in ("hall", "location"):
        assert f"read {place}/TIME/SYN" in lines["everybody"]
        assert f"write {place}/TIME/SRQ" in lines["everybody"]
        assert f"write {place}/TIME/SYN" in lines["mqtick-server-0"]
    assert "hall" not in access_list(fleet, "mqtick")


@pytest.mark.parametrize("place", ["", "#", "hall 2", "a\nuser pi-a"])
def test_a_place_that_would_spoil_the_access_list_is_refused(place: str) -> None:
    with pytest.raises(InventoryError, match="client_settings of 'pi-b'"):
        placed(client_settings={"draft_location": place})


@pytest.mark.parametrize("settings", ["format=draft-2021", ["format"], 1])
def test_settings_that_are_no_mapping_are_refused_with_a_sentence(settings: object) -> None:
    with pytest.raises(InventoryError, match="client_settings of 'pi-b' is no mapping"):
        placed(client_settings=settings)


def test_further_accounts_get_their_own_lines() -> None:
    lines = rights(access_list(FLEET, "mqtick", own={"lamp": ["read hall/#", "write hall/lamp"]}))
    assert lines["lamp"] == {"read hall/#", "write hall/lamp"}


@pytest.mark.parametrize("name", ["kitchen", "mqtick-server-0", "mqtick-server-7", "mqtick-lab"])
def test_a_further_account_does_not_get_the_rights_of_a_program(name: str) -> None:
    fleet = {"clients": ["kitchen"], "servers": [0]}
    with pytest.raises(InventoryError, match=f"broker_accounts has '{name}'"):
        access_list(fleet, "mqtick", own={name: ["read hall/#"]})


# -- the inventory ---------------------------------------------------------------------------------


def accounts(servers: dict[str, object], clients: dict[str, object]) -> dict[str, list[Any]]:
    hosts: dict[str, dict[str, Any]] = {
        host: {"timeserver_number": n} for host, n in servers.items()
    }
    for host, name in clients.items():
        hosts.setdefault(host, {}).update({} if name is None else {"client_name": name})
    groups = {"mqtick_timeservers": list(servers), "mqtick_clients": list(clients)}
    return fleet_accounts(hosts, groups)


def test_every_host_of_the_inventory_has_its_account() -> None:
    found = accounts({"time1.lan": "4", "time2.lan": 0}, {"pi-b.lan": None, "time1.lan": "kitchen"})
    assert found["clients"] == ["kitchen", "pi-b"]
    assert found["servers"] == [0, 4]
    assert account_names(found, experiments=True) == [
        *("mqtick-server-0", "mqtick-server-4", "kitchen", "pi-b", "mqtick-lab"),
    ]


@pytest.mark.parametrize(
    ("host", "name"),
    [("pi7.lan", "pi7"), ("10.0.0.7", "10.0.0.7"), ("wörk_a", "w-rk_a"), ("x" * 20, "x" * 16)],
)
def test_a_hosts_name_becomes_one_that_is_legal_in_topics(host: str, name: str) -> None:
    assert client_name(host) == name


@pytest.mark.parametrize(
    ("servers", "clients", "says"),
    [
        ({"a": 1, "b": 1}, {}, "could not tell them apart"),
        ({"a": None}, {}, "is not set"),
        ({"a": 256}, {}, "0 to 255"),
        ({"a": "-1"}, {}, "0 to 255"),
        ({}, {"pi.a": None, "pi.b": None}, "'pi.b' and 'pi.a' would both be 'pi'"),
        ({}, {"a": "", "b": None}, "0 characters"),
        ({}, {"a": "x" * 17}, "17 characters"),
        ({}, {"a": "a/b"}, "A-Z a-z"),
        ({"t": 0}, {"a": "mqtick-server-0"}, "an account of the fleet itself"),
    ],
)
def test_what_cannot_work_is_a_sentence(
    servers: dict[str, object], clients: dict[str, object], says: str
) -> None:
    with pytest.raises(InventoryError, match=re.escape(says)):
        accounts(servers, clients)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InventoryError, match=r"has .1451[.]9."):
        access_list(FLEET, "mqtick", ["1451.9"])


# -- names in certificates -------------------------------------------------------------------------


def test_names_that_openssl_prints_are_those_it_was_given() -> None:
    given = certificate_names(["Broker.lan", "10.0.0.1", "fd00::1", "", "broker.lan"])
    assert given == ["DNS:broker.lan", "IP:10.0.0.1", "IP:fd00::1"]
    printed = (
        "X509v3 Subject Alternative Name: \n"
        "    DNS:broker.lan, IP Address:10.0.0.1, IP Address:FD00:0:0:0:0:0:0:1\n"
    )
    assert printed_names(printed) == given
