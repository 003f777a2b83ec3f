"""A fleet at a broker that was there before: what the control machine writes and says by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from playbook import Run, needs_ansible, play

pytestmark = [pytest.mark.slow, needs_ansible]
FLEET: dict[str, Any] = {
    "mqtick_timeservers": {"hosts": {"time.invalid": {"timeserver_number": 0}}},
    "mqtick_clients": {"hosts": {"pi-a.invalid": None}},
}


def site(folder: Path, inventory: Path, *arguments: str, broker: str = "mqtts://broker.lan") -> Run:
    """Run the part of site that is the broker's; there is no wheelhouse, and no host answers."""
    variables = {"fleet_broker_url": broker}
    text = yaml.safe_dump({"all": {"vars": variables, "children": FLEET}})
    inventory.write_text(text, encoding="utf-8")
    where = inventory if inventory.parent == folder else inventory.parent
    return play(where, "site", "--tags", "broker", "--skip-tags", "always", *arguments)


def test_no_host_is_needed_to_say_what_the_broker_needs(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    first = site(tmp_path, inventory)
    assert first.status == 0, first.said
    assert "topic write mqtick/t/0" in first.said
    assert all(counts["unreachable"] == 0 for counts in first.recap.values())
    users = (tmp_path / "secrets/broker/passwords").read_text(encoding="ascii").splitlines()
    assert [line.partition(":")[0] for line in users] == ["mqtick-server-0", "pi-a"]
    again = site(tmp_path, inventory)
    assert {counts["changed"] for counts in again.recap.values()} == {0}


def test_of_a_broker_over_udp_subnets_are_asked_instead_of_accounts(tmp_path: Path) -> None:
    anonymous = ("-e", "fleet_anonymous=true")
    udp = "mqtt+udp://broker.lan"
    done = site(tmp_path, tmp_path / "inventory.yml", *anonymous, broker=udp)
    assert done.status == 0, done.said
    assert "the subnets of these hosts" in done.said
    assert "Mosquitto" not in done.said


def test_a_word_switches_keys_off(tmp_path: Path) -> None:
    done = site(tmp_path, tmp_path / "inventory.yml", "-e", "fleet_keys_enabled=false")
    assert done.status == 0, done.said
    assert not (tmp_path / "secrets/fleet.keys").exists()


def test_secrets_do_not_come_into_an_inventory_that_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "inventory"
    folder.mkdir()
    refused = site(tmp_path, folder / "hosts.yml")
    assert refused.status != 0
    assert f"Set fleet_secrets to {tmp_path}/secrets" in refused.sentences
    assert [path.name for path in folder.iterdir()] == ["hosts.yml"]
