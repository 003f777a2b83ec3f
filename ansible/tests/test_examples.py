"""The example of an inventory, as Ansible reads it."""

from __future__ import annotations

import json
import subprocess

import pytest
from playbook import ANSIBLE, PROJECT

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(not ANSIBLE.exists(), reason="Ansible is missing: make setup-ansible"),
]


def test_it_has_a_broker_two_time_servers_two_measured_clients_and_600_others() -> None:
    done = subprocess.run(
        [
            ANSIBLE / "bin/ansible-inventory",
            *("-i", PROJECT / "ansible/examples/inventory.yml", "--list"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    groups = json.loads(done.stdout)
    wanted = {
        "mqtick_broker": 1,
        "mqtick_timeservers": 2,
        "measured": 2,
        "others": 600,
    }
    assert {name: len(groups[name]["hosts"]) for name in wanted} == wanted
    assert sorted(groups["mqtick_clients"]["children"]) == ["measured", "others"]
    assert groups["others"]["hosts"][::599] == ["node001.lan", "node600.lan"]
    assert len(groups["_meta"]["hostvars"]) == 605
