"""The collection on real systemd hosts, over ssh, in the order in which a fleet lives.

h1 is the broker and a client, h2 the time server, h3 and h4 are clients. The hosts share the
kernel's clock; each client has a virtual one that is wrong by a known amount, h4's by more than the
limit. The time server follows an NTP server on this machine, as it would follow a pool.
"""

from __future__ import annotations

import json
import re
import shutil
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fleet import (
    EARLIER,
    LIMIT_US,
    RELEASE,
    Fleet,
    client_status,
    is_right,
    knows_the_time,
    look,
    ntp_server,
    on_host,
    other_wheelhouse,
    refused_for_its_tag,
    snapshot,
    wheelhouse,
)
from hosts import Host, Rig
from machine import what_is_missing

from demo.local_programs import wait_until

pytestmark = [pytest.mark.fleet, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    missing = what_is_missing()
    if not missing and not shutil.which("chronyd"):
        missing = "not installed: chronyd, which is to be the time server's upstream"
    if missing:
        pytest.skip(f"the fleet was not tested: {missing}")
    with Rig("test", 77, ["h1", "h2", "h3", "h4"], RELEASE) as rig:
        yield rig


@pytest.fixture(scope="module")
def upstream(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with ntp_server(rig, tmp_path_factory.mktemp("ntp")):
        yield


@pytest.fixture(scope="module")
def built() -> tuple[Path, Path]:
    """This version's wheelhouse and an earlier one's."""
    now = wheelhouse(RELEASE)
    return now, other_wheelhouse(now, EARLIER, lambda source: None)


@pytest.fixture(scope="module")
def before() -> dict[str, set[str]]:
    """Host -> what it was like when it was new."""
    return {}


@pytest.fixture(scope="module")
def fleet(
    rig: Rig,
    upstream: None,
    built: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Fleet:
    fleet = Fleet(tmp_path_factory.mktemp("user"), rig)
    fleet.install_collection()
    fleet.use_wheelhouse(built[1])
    return fleet


def wait_until_right(*hosts: Host, timeout_s: float = 60) -> None:
    """Wait until each client is synchronised, with the truth inside its bound."""
    for host in hosts:
        wait_until(lambda host=host: is_right(look(host)), f"{host.name} is right", timeout_s)  # type: ignore[misc]


def is_active(host: Host, unit: str) -> bool:
    return host.run(f"systemctl is-active {unit}", check=False).strip() == "active"


def follows_the_client(host: Host) -> bool:
    """Whether the client is what the chrony there follows."""
    return host.run("chronyc -c -n sources", check=False).startswith("#,*,MQT0,")


# ---- from blank hosts to one time ---------------------------------------------------------------
def test_a_dry_run_on_blank_hosts_ends_well_and_changes_nothing(
    fleet: Fleet, before: dict[str, set[str]]
) -> None:
    before |= {host.name: snapshot(host) for host in fleet.hosts}
    fleet.play("site", "--check", "--diff")
    for host in fleet.hosts:
        assert snapshot(host) == before[host.name]


def test_one_command_makes_a_fleet_of_blank_hosts(fleet: Fleet) -> None:
    fleet.play("site")
    for host in fleet.clients:
        assert is_active(host, "mqtick-client")
        assert is_active(host, "chrony")
    assert is_active(fleet.rig.host("h1"), "mosquitto")
    assert is_active(fleet.rig.host("h2"), "mqtick-timeserver")


def test_a_second_run_changes_nothing(fleet: Fleet) -> None:
    recap = fleet.play("site").recap
    assert {host: counts["changed"] for host, counts in recap.items()} == dict.fromkeys(
        ["h1", "h2", "h3", "h4"], 0
    )


def test_every_client_knows_the_time_within_the_bound_that_it_states(fleet: Fleet) -> None:
    for host in fleet.clients:
        seen = look(host)
        assert is_right(seen), (host.name, seen)


def test_status_shows_how_wrong_each_clock_truly_is_and_marks_the_one_over_the_limit(
    fleet: Fleet,
) -> None:
    early = {host.name: look(host)["clock_error_ns"] for host in fleet.clients}
    rows = fleet.status()
    late = {host.name: look(host)["clock_error_ns"] for host in fleet.clients}
    for name, early_ns in early.items():
        row = rows[name]
        assert row["state"] == "synchronised"
        slack_ns = abs(late[name] - early_ns) + row["bound_ns"]
        # An offset is reference minus local: what the clock is wrong by, with the other sign.
        assert abs(row["offset_ns"] + late[name]) <= slack_ns, (name, row, early, late)
        assert row["over_limit"] == (abs(late[name]) > LIMIT_US * 1000)
    assert [name for name in early if rows[name]["over_limit"]] == ["h4"]


def test_the_clients_are_what_their_chrony_follows(fleet: Fleet) -> None:
    assert [host.name for host in fleet.clients if not follows_the_client(host)] == []


# ---- a new version ------------------------------------------------------------------------------
def versions(fleet: Fleet) -> set[str]:
    return {host.run("/opt/mqtick/bin/mqtick-client --version").strip() for host in fleet.hosts}


def widen_the_bound(source: Path) -> None:
    """Let a version of the client trust its timestamps less."""
    settings = source / "client/mqtick/client/estimator_settings.py"
    text = settings.read_text()
    worse = re.sub(r"(stamp_error_us: float = key\(\s*)1\.0", r"\g<1>3000.0", text)
    assert worse != text
    settings.write_text(worse)


def test_an_upgrade_that_makes_the_time_worse_is_stopped_and_taken_back(
    fleet: Fleet, built: tuple[Path, Path]
) -> None:
    before = versions(fleet)
    fleet.use_wheelhouse(other_wheelhouse(built[0], "99.0.0", widen_the_bound))
    said = fleet.refused("upgrade", "-e", "upgrade_settle_s=10").sentences
    assert "clients of the batch may be off by" in said
    assert "With the version that they had before: h" in said
    assert "No other host was changed" in said
    assert versions(fleet) == before
    wait_until_right(*fleet.clients)


def test_an_upgrade_brings_the_new_version_to_every_host(
    fleet: Fleet, built: tuple[Path, Path]
) -> None:
    assert versions(fleet) == {f"mqtick-client {EARLIER}"}
    fleet.use_wheelhouse(built[0])
    fleet.play("upgrade")
    assert EARLIER not in " ".join(versions(fleet))
    wait_until_right(*fleet.clients)


# ---- what goes wrong in the life of a fleet -----------------------------------------------------
def test_what_hangs_or_is_killed_and_a_chrony_that_restarts_come_back_by_themselves(
    fleet: Fleet,
) -> None:
    # Each on a host of its own, so that they wait together.
    h1, h3, h4 = fleet.clients
    h2 = fleet.rig.host("h2")
    client, server = (
        f"systemctl show --value -p MainPID mqtick-{part}" for part in ("client", "timeserver")
    )
    hung, killed, stuck = h3.run(client), h4.run(client), h2.run(server)
    h3.run(f"kill -STOP {hung}")
    h2.run(f"kill -STOP {stuck}")
    h1.run("systemctl restart chrony")
    assert not follows_the_client(h1)
    h4.run(f"kill -KILL {killed}")
    wait_until(lambda: h4.run(client) not in (killed, "0\n"), "h4's client is started again")
    # the watchdog: WatchdogSec, the time to write the core that says where it hung, RestartSec
    wait_until(lambda: h3.run(client) not in (hung, "0\n"), "h3's client is started again", 60)
    wait_until(lambda: h2.run(server) not in (stuck, "0\n"), "the server is started again", 60)
    wait_until_right(*fleet.clients)
    for host, unit in ((h3, "mqtick-client"), (h2, "mqtick-timeserver")):
        assert "watchdog" in host.run(f"journalctl -u {unit} --no-pager").lower()
    # chronyd takes a source when it has had a few samples, and asks for one every 16 s
    wait_until(lambda: follows_the_client(h1), "h1's chrony follows its client again", 120)
    running = h2.run(server)
    h2.run(f"kill -KILL {running}")
    wait_until(lambda: h2.run(server) not in (running, "0\n"), "the server is started again")
    wait_until_right(*fleet.clients)


def test_clients_outlast_a_broker_that_is_killed(fleet: Fleet) -> None:
    broker = fleet.rig.host("h1")
    broker.run("systemctl kill --signal=KILL mosquitto; systemctl stop mosquitto")
    wait_until(
        lambda: not any(client_status(host)["connected"] for host in fleet.clients),
        "the clients notice that the broker is gone",
        90,
    )
    for host in fleet.clients:
        seen = look(host)
        assert knows_the_time(seen), (host.name, seen)
    broker.run("systemctl start mosquitto")
    wait_until_right(*fleet.clients)
    pid = "systemctl show --value -p MainPID mosquitto"
    killed = broker.run(pid)
    broker.run("systemctl kill --signal=KILL mosquitto")
    wait_until(lambda: broker.run(pid) not in (killed, "0\n"), "the broker is started again")
    wait_until_right(*fleet.clients)


def test_a_host_that_is_rebooted_finds_the_time_by_itself(fleet: Fleet) -> None:
    with ThreadPoolExecutor() as at_once:
        list(at_once.map(Host.reboot, (fleet.rig.host("h1"), fleet.rig.host("h3"))))
    # whose boot went on only when the time was known (client_wait_sync)
    assert is_active(fleet.rig.host("h1"), "mqtick-wait-sync")
    assert is_active(fleet.rig.host("h1"), "time-sync.target")
    wait_until_right(*fleet.clients)


def test_a_host_that_is_down_is_reported_and_holds_nobody_up(fleet: Fleet) -> None:
    down = fleet.rig.host("h4")
    down.stop()
    try:
        rows = fleet.status()
        assert rows["h4"]["state"] == "unreachable"
        assert rows["h1"]["state"] == rows["h3"]["state"] == "synchronised"
        assert next(iter(rows)) == "h4", "the worst stands first"
        assert "unreachable" in (fleet.folder / "fleet-status.html").read_text()
    finally:
        down.start()
    wait_until_right(down)


# ---- those who mean ill -------------------------------------------------------------------------
def test_a_rogue_client_may_not_publish_time(fleet: Fleet) -> None:
    answer, _ = on_host(fleet.rig.host("h4"), "rogue.py").communicate(timeout=20)
    assert answer.strip() == "Not authorized"


def test_without_the_access_list_the_tag_still_refuses_wrong_time(fleet: Fleet) -> None:
    broker, victim = fleet.rig.host("h1"), fleet.rig.host("h3")
    broker.run("sed -i '/^acl_file/d' /etc/mosquitto/conf.d/*.conf && systemctl restart mosquitto")
    try:
        wait_until_right(victim)
        refused = refused_for_its_tag(victim)
        answer, _ = on_host(fleet.rig.host("h4"), "rogue.py").communicate(timeout=20)
        assert answer.strip() == "Success"
        wait_until(lambda: refused_for_its_tag(victim) > refused, "the victim counts it")
        assert is_right(look(victim))
        assert "WARNING: " in fleet.play("site", "--tags", "broker_check").sentences
    finally:
        # and a client tries what it may do there, and what it must not
        recap = fleet.play("site", "--tags", "broker,broker_check").recap
    assert recap["h1"]["changed"] > 0, "site puts right what somebody changed by hand"


# ---- keys ---------------------------------------------------------------------------------------
def test_time_flows_on_while_keys_are_rotated(fleet: Fleet) -> None:
    wait_until_right(*fleet.clients)
    refused = {host.name: refused_for_its_tag(host) for host in fleet.clients}
    keys = {host.name: client_status(host)["keys"] for host in fleet.clients}
    certificate = ssl.get_server_certificate((fleet.rig.host("h1").address, 8883))
    watches = {host.name: on_host(host, "look.py", "1000") for host in fleet.clients}
    fleet.play("rotate_keys")
    assert ssl.get_server_certificate((fleet.rig.host("h1").address, 8883)) != certificate
    time.sleep(5)
    for name, watch in watches.items():
        watch.terminate()
        words, _ = watch.communicate(timeout=20)
        seen = [json.loads(line) for line in words.splitlines() if line.endswith("}")]
        assert len(seen) > 20, (name, words)
        wrong = [one for one in seen if not knows_the_time(one)]
        assert wrong == [], name
        host = fleet.rig.host(name)
        assert client_status(host)["keys"] != keys[name]
        assert refused_for_its_tag(host) == refused[name]


# ---- the end ------------------------------------------------------------------------------------
def test_remove_leaves_every_host_as_it_was(fleet: Fleet, before: dict[str, set[str]]) -> None:
    fleet.play("remove", "-e", "remove_confirm=yes")
    for host in fleet.hosts:
        assert snapshot(host) ^ before[host.name] == set(), host.name
