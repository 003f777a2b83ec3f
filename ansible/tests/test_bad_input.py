"""Bad input: the run stops with a sentence, changes nothing, and the next run completes the host.

The hosts are real (tests/hosts.py). Two things are simulated: another operating system by its
/etc/os-release, and a wrong clock by a program `date` that is years off, because the hosts share
the clock of this machine.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apt_source import apt_source
from fleet import RELEASE, is_right, look, snapshot, wheelhouse
from hosts import Host, Rig
from playbook import Run, needs_hosts, play, write_inventory

pytestmark = needs_hosts
NOWHERE = "mqtt://10.77.78.200:1883"
Site = Callable[..., Run]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig("bad", 78, ["one", "two"], RELEASE) as rig:
        yield rig


@pytest.fixture(scope="module")
def one(rig: Rig) -> Host:
    return rig.host("one")


@pytest.fixture
def site(rig: Rig, tmp_path: Path) -> Site:
    """Run site on these groups, with these variables for all."""

    def run(groups: dict[str, Any], *arguments: str, cut_off_at: str = "", **variables: Any) -> Run:
        offline = {"fleet_offline": True, "fleet_wheelhouse": str(wheelhouse(RELEASE))}
        inventory = write_inventory(tmp_path, rig, groups, **{**offline, **variables})
        return play(inventory, "site", *arguments, cut_off_at=cut_off_at)

    return run


def refused(run: Run, *sentences: str) -> None:
    """The run failed, and each of these sentences is in what it said."""
    assert run.status != 0
    assert [sentence for sentence in sentences if sentence not in run.sentences] == [], run.said
    assert "Traceback" not in run.said


# ---- variables: nothing is changed --------------------------------------------------------------

SERVER = {"timeserver_number": 0}
WRONG_VALUES = {
    "mqtick_timeservers": [
        ("timeserver_upstream", [{"kind": "sundial"}], "sundial"),
        ("timeserver_upstream", [{"kind": "pool"}], "a pool, server or nts without 'host'"),
    ],
    "mqtick_clients": [
        ("client_wait_s", "long", "client_wait_s"),
        ("fleet_limit_us", "many", "fleet_limit_us"),
        ("fleet_broker_url", "broker.lan", "fleet_broker_url"),
        ("fleet_broker_url", "mqtt://a:hunter2@broker.lan", "holds a user name or a password"),
        ("fleet_wheelhouse", "/nowhere", "/nowhere"),
    ],
}


@pytest.mark.parametrize("group", WRONG_VALUES)
def test_a_wrong_value_is_named_before_anything_is_changed(
    group: str, site: Site, one: Host
) -> None:
    before = snapshot(one)
    # One host under many names, each with a mistake of its own.
    hosts: dict[str, Any] = {}
    for number, (name, value, _) in enumerate(WRONG_VALUES[group]):
        given = {"timeserver_number": number + 1} if group == "mqtick_timeservers" else {}
        hosts[f"wrong{number}"] = {"ansible_host": one.address, **given, name: value}
    groups = {"mqtick_timeservers": {"two": SERVER}, group: hosts}
    run = site(groups, "--limit", "wrong*", fleet_broker_url=NOWHERE)
    refused(run, *(sentence for _, _, sentence in WRONG_VALUES[group]))
    assert {name for name, counts in run.recap.items() if counts["failed"]} == hosts.keys()
    assert snapshot(one) == before


def servers(**hosts: dict[str, Any]) -> dict[str, Any]:
    return {"mqtick_timeservers": hosts}


def clients(**hosts: dict[str, Any]) -> dict[str, Any]:
    return {"mqtick_timeservers": {"one": SERVER}, "mqtick_clients": hosts}


WRONG_FLEETS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no broker": (servers(one=SERVER), {"fleet_broker_url": ""}, "fleet_broker_url"),
    "no time server": ({"mqtick_clients": ["one"]}, {}, "has no time server"),
    "a number too large": (servers(one={"timeserver_number": 256}), {}, "a whole number"),
    "no number": (servers(one={}), {}, "a whole number"),
    "one number for two": (servers(one=SERVER, two=SERVER), {}, "could not tell them apart"),
    "no name": (clients(one={"client_name": "pi/a"}), {}, "1 to 16 are possible"),
    "one name for two": (
        clients(one={"client_name": "pi"}, two={"client_name": "pi"}),
        {},
        "would both be",
    ),
    "no key": (
        servers(one=SERVER),
        {"fleet_keys": ["12ab"]},
        "is not 32 to 128 hexadecimal digits",
    ),
}


@pytest.mark.parametrize("mistake", WRONG_FLEETS)
def test_a_fleet_that_contradicts_itself_is_refused_before_anything_is_changed(
    mistake: str, site: Site
) -> None:
    groups, variables, sentence = WRONG_FLEETS[mistake]
    run = site(groups, **{"fleet_broker_url": NOWHERE, **variables})
    refused(run, sentence)
    assert {counts["changed"] for counts in run.recap.values()} <= {0}


# ---- hosts that are not as they should be -------------------------------------------------------


@pytest.fixture
def wrong(one: Host) -> Iterator[Callable[[str, str], None]]:
    """Make something wrong on the host by a command, and say which command puts it right."""
    remedies: list[str] = []

    def make(command: str, remedy: str) -> None:
        remedies.append(remedy)
        one.run(command)

    yield make
    for remedy in reversed(remedies):
        one.run(remedy)


@pytest.fixture
def client(site: Site) -> Site:
    """Run site for host one alone, as a client of a time server that is not in the run."""
    groups = {"mqtick_timeservers": {"two": SERVER}, "mqtick_clients": ["one"]}

    def run(**variables: Any) -> Run:
        return site(groups, "--limit", "one", **{"fleet_broker_url": NOWHERE, **variables})

    return run


def test_a_host_without_python_is_named(client: Site, wrong: Callable[[str, str], None]) -> None:
    python = "/usr/bin/python3"
    wrong(f"mv {python} {python}.aside", f"mv {python}.aside {python}")
    refused(client(), "has no Python at /usr/bin/python3", "apt-get install python3")


def test_another_operating_system_is_refused(
    client: Site, one: Host, wrong: Callable[[str, str], None]
) -> None:
    fedora = 'PRETTY_NAME="Fedora Linux 43"\\nID=fedora\\nVERSION_ID=43\\n'
    wrong(
        f"rm /etc/os-release && printf '{fedora}' >/etc/os-release",
        "ln -sf ../usr/lib/os-release /etc/os-release",
    )
    before = snapshot(one)
    refused(client(), "Fedora", "Debian 12")
    assert snapshot(one) == before


def test_a_broker_that_cannot_be_reached_is_said_before_anything_is_changed(
    client: Site, one: Host
) -> None:
    before = snapshot(one)
    refused(client(), "no route to the broker: 10.77.78.200 port 1883")
    assert snapshot(one) == before


def test_a_port_that_another_program_has_is_named(
    site: Site, wrong: Callable[[str, str], None]
) -> None:
    wrong(
        "systemd-run --quiet --unit=squatter python3 -m http.server 1883; sleep 1",
        "systemctl stop squatter",
    )
    groups = {"mqtick_broker": ["one"], "mqtick_timeservers": {"two": SERVER}}
    refused(site(groups, "--limit", "one", fleet_tls=False), "Port 1883", "taken by python3")


def test_a_full_disk_is_said_in_megabytes(client: Site, wrong: Callable[[str, str], None]) -> None:
    wrong("mount -t tmpfs -o size=2m tmpfs /opt", "umount /opt")
    refused(client(), "free at /opt", "are needed (fleet_free_mb)")


DATE_THAT_IS_YEARS_OFF = """#!/bin/sh
case "$*" in
  *-s*|*--set*) echo "$@" >>/run/date-was-set ;;
  *) exec /usr/bin/date.aside -d "-6 years" "$@" ;;
esac
"""


def test_a_clock_that_is_years_off_is_set_before_anything_else(
    client: Site,
    one: Host,
    wrong: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong(
        "cp /usr/bin/date /usr/bin/date.aside; "
        f"cat >/usr/bin/date <<'EOF'\n{DATE_THAT_IS_YEARS_OFF}EOF\n",
        "mv /usr/bin/date.aside /usr/bin/date",
    )
    monkeypatch.setenv("TZ", "America/New_York")  # of the control machine
    refused(client(), "no route to the broker")  # so the clock stopped it no longer
    (set_to,) = re.findall(r"=@(\d+)", one.run("cat /run/date-was-set"))
    assert abs(int(set_to) - time.time()) < 60


# ---- and in the end -----------------------------------------------------------------------------


def test_after_all_that_and_two_runs_that_were_cut_off_the_next_one_completes_the_fleet(
    site: Site, one: Host, rig: Rig, tmp_path: Path
) -> None:
    # No upstream, as in the shortest path, where the pool that Debian brings would be one.
    trusted = {**SERVER, "timeserver_settings": {"trust_system_clock": True}}
    groups = {
        "mqtick_broker": ["two"],
        "mqtick_timeservers": {"two": trusted},
        # It fetches its packages itself, and has never heard of any.
        "mqtick_clients": {"one": {"fleet_offline": False}},
    }
    served = tmp_path / "served"
    served.mkdir()
    with apt_source(rig.control, wheelhouse(RELEASE), f"{RELEASE}-amd64", served) as line:
        one.run("rm -rf /var/lib/apt/lists/* /etc/apt/sources.list.d/*")
        one.run(f"echo '{line}' >/etc/apt/sources.list")
        for task in ("Place accounts, certificate and key", "Install the wheels"):
            assert site(groups, cut_off_at=task).status < 0, task
        run = site(groups, "--diff", "-vvv")
    assert run.status == 0, run.said
    assert is_right(look(one))
    secrets = one.run("cat /etc/mqtick/*.keys /etc/mqtick/*.password").split()
    secrets = [word for word in secrets if len(word) >= 16]
    assert secrets
    assert [word for word in secrets if word in run.said] == []  # not even with -vvv
