"""What role join writes for a node, without a host: its join.toml and its access list."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from playbook import ANSIBLE, PROJECT, needs_ansible

pytestmark = [pytest.mark.slow, needs_ansible]
ROLES = PROJECT / "ansible/roles"
ACCOUNTS = {"plant": ["readwrite plant/#"]}
CERTIFIED = {
    "fleet_ca_file": "/ca.pem",
    "join_certificate_file": "/{{ inventory_hostname }}.pem",
    "join_certificate_key_file": "/{{ inventory_hostname }}.key",
}


def rendered(folder: Path, **variables: Any) -> tuple[dict[str, Any], str]:
    """Settings of the second of two nodes, and its access list."""
    (folder / "ansible_collections/mqtick").mkdir(parents=True)
    (folder / "ansible_collections/mqtick/fleet").symlink_to(PROJECT / "ansible")
    groups = {
        "mqtick_broker": {"hosts": {"a": {"broker_accounts": ACCOUNTS}}},
        "mqtick_join": {"hosts": {"a": {"ansible_host": "192.0.2.1"}, "b": None}},
        "mqtick_timeservers": {"hosts": {"a": {"timeserver_number": 3}}},
    }
    inventory = folder / "inventory.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": groups, "vars": variables}}))
    of_roles: dict[str, Any] = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    for role in ("fleet", "join"):
        for kind in ("defaults", "vars"):
            of_roles |= yaml.safe_load((ROLES / role / kind / "main.yml").read_text())
    settings = "join_computed_settings | combine(join_settings, recursive=true)"
    tasks = [
        {"ansible.builtin.copy": {"content": content, "dest": str(folder / name)}}
        for name, content in (
            ("toml", f"{{{{ {settings} | mqtick.fleet.toml }}}}"),
            ("acl", "{{ join_acl }}"),
        )
    ]
    play = {"hosts": "b", "connection": "local", "gather_facts": False, "tasks": tasks}
    # A role's defaults give way to the inventory, a play's variables do not.
    play["vars"] = {name: value for name, value in of_roles.items() if name not in variables}
    book = folder / "book.yml"
    book.write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [str(ANSIBLE / "bin/ansible-playbook"), "-i", str(inventory), str(book)],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return tomllib.loads((folder / "toml").read_text()), (folder / "acl").read_text()


def test_a_node_has_the_access_list_and_the_topics_of_the_fleet(tmp_path: Path) -> None:
    settings, acl = rendered(tmp_path, fleet_prefix="plant/time")
    assert settings["time_filters"] == ["plant/time/#"]
    assert settings["access"] == {"acl_file": "/etc/mqtick/join.acl"}
    assert "user plant\ntopic readwrite plant/#" in acl
    assert "user mqtick-join\ntopic readwrite #" in acl
    assert "topic write plant/time/t/3" in acl
    assert settings["neighbours"]["urls"] == ["mqtt://192.0.2.1:1883"]
    assert "tls" not in settings["listener"][0]


def test_where_everybody_may_do_everything_a_node_has_no_list(tmp_path: Path) -> None:
    settings, _ = rendered(tmp_path, fleet_anonymous=True)
    assert "access" not in settings


def test_nodes_with_certificates_authenticate_each_other_by_them(tmp_path: Path) -> None:
    settings, _ = rendered(tmp_path, **CERTIFIED)
    own = {"certificate": "/etc/mqtick/join.pem", "key": "/etc/mqtick/join.key"}
    (listener,), nodes = settings["listener"], settings["neighbours"]
    assert listener["tls"] == {**own, "client_ca": "/etc/mqtick/join.ca.pem"}
    assert nodes["certificate_names"] == ["192.0.2.1", "b"]
    assert {name: nodes[name] for name in own} == own
    assert nodes["ca_file"] == "/etc/mqtick/join.ca.pem"
    assert nodes["secret_file"] == "/etc/mqtick/join.secret"
    assert nodes["urls"] == ["mqtts://192.0.2.1:8883"]


def test_a_certificate_may_have_another_name_than_its_node(tmp_path: Path) -> None:
    settings, _ = rendered(tmp_path, **CERTIFIED, join_certificate_name="a node")
    assert settings["neighbours"]["certificate_names"] == ["a node"]


def test_without_a_known_authority_nodes_show_no_certificate(tmp_path: Path) -> None:
    settings, _ = rendered(tmp_path, **{**CERTIFIED, "fleet_ca_file": ""})
    assert "client_ca" not in settings["listener"][0]["tls"]
    assert "certificate_names" not in settings["neighbours"]
