"""A fleet moves to mqtick-broker, from its Debian package, and back to Mosquitto.

h1 is broker and time server, h2 a client.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from fleet import (
    CLOCKS,
    RELEASE,
    Fleet,
    broker_package,
    is_right,
    look,
    ntp_server,
    snapshot,
    wheelhouse,
    wrong_clock,
)
from hosts import Host, Rig
from playbook import needs_hosts, write_inventory

from demo.local_programs import wait_until

pytestmark = [
    *needs_hosts,
    pytest.mark.skipif(not shutil.which("chronyd"), reason="chronyd, the upstream, is missing"),
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    package, folder = broker_package(), tmp_path_factory.mktemp("user")
    with Rig("kind", 83, ["h1", "h2"], RELEASE) as rig, ntp_server(rig, folder):
        fleet = Fleet(folder, rig)
        upstream = {"kind": "server", "host": rig.control, "options": "minpoll 0 maxpoll 2"}
        server = {"timeserver_number": 0, "timeserver_upstream": [upstream]}
        groups = {
            "mqtick_broker": ["h1"],
            "mqtick_timeservers": {"h1": server},
            "mqtick_clients": {"h2": wrong_clock(CLOCKS["h3"])},
        }
        write_inventory(folder, rig, groups, fleet_offline=True, broker_package=str(package))
        fleet.install_collection()
        fleet.use_wheelhouse(wheelhouse(RELEASE))
        yield fleet


def state(host: Host, unit: str) -> str:
    return host.run(f"systemctl is-active {unit}; systemctl is-enabled {unit}", check=False)


def pid(host: Host) -> str:
    return host.run("systemctl show --value -p MainPID mqtick-broker").strip()


def test_a_fleet_lives_on_mqtick_broker_moves_to_mosquitto_and_leaves_no_trace(
    fleet: Fleet,
) -> None:
    h1, h2 = fleet.hosts
    mqtick, tags = ("-e", "broker_kind=mqtick"), ("--tags", "broker")
    before = {host.name: snapshot(host) for host in fleet.hosts}

    fleet.play("site", *mqtick)
    assert state(h1, "mqtick-broker") == "active\nenabled\n"
    assert h1.run("command -v mosquitto", check=False) == ""
    wait_until(lambda: is_right(look(h2)), "the client knows the time through it", 60)

    # another account: the broker reads its files again and goes on; a second run changes nothing
    account = ("-e", '{"broker_accounts": {"lamp": ["read hall/#"]}}')
    running = pid(h1)
    assert fleet.play("site", *mqtick, *tags, *account).recap["h1"]["changed"] > 0
    assert pid(h1) == running != "0"
    assert "lamp:" in h1.run("cat /etc/mqtick/broker.passwords")
    assert fleet.play("site", *mqtick, *tags, *account).recap["h1"]["changed"] == 0

    fleet.play("site", *tags)
    assert state(h1, "mosquitto") == "active\nenabled\n"
    assert state(h1, "mqtick-broker") == "inactive\ndisabled\n"
    wait_until(lambda: is_right(look(h2)), "the client knows the time through Mosquitto", 60)

    fleet.play("remove", "-e", "remove_confirm=yes")
    for host in fleet.hosts:
        assert snapshot(host) ^ before[host.name] == set(), host.name
