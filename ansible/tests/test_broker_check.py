"""Who asks an existing broker what it lets the fleet do, and who fails of the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from playbook import Run, needs_ansible, play_tasks

TASKS = Path(__file__).parent.parent / "roles/broker/tasks/check.yml"
pytestmark = [pytest.mark.slow, needs_ansible]
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
NOWHERE = {"ansible_host": "127.0.0.1", "ansible_port": 9}  # discard: nobody listens
AFTERWARDS = {"name": "Go on", "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} goes on"}}


def check(folder: Path, *flags: str) -> Run:
    """Let three clients check, of which the first is down; their files are in the folder."""
    tasks = yaml.safe_load(TASKS.read_text())
    tasks[0]["ansible.builtin.stat"]["path"] = f"{folder}/{{{{ inventory_hostname }}}}.toml"
    (asking,) = (task["block"][0] for task in tasks if "block" in task)
    assert asking["ansible.builtin.command"]["argv"][-3:] == [
        "/opt/mqtick/bin/mqtick-client",
        "doctor",
        "--broker-only",
    ]
    told = f"echo asked >>{folder}/asked; echo 'FAIL no answer to requests'; exit 1"
    asking["ansible.builtin.command"] = {"argv": ["sh", "-c", told]}
    broker = {"fleet_broker": "mqtts://broker.lan", "fleet_broker_node": ""}
    hosts = {"down": NOWHERE, "pi-a": LOCAL, "pi-b": LOCAL}
    return play_tasks(folder, tasks, {"hosts": hosts, "vars": broker}, *flags, then=[AFTERWARDS])


def failed(run: Run) -> list[str]:
    return [host for host, counts in run.recap.items() if counts["failed"]]


def test_one_client_asks_that_answers_and_only_that_one_fails(tmp_path: Path) -> None:
    for name in ("pi-a", "pi-b"):
        (tmp_path / f"{name}.toml").touch()
    run = check(tmp_path)
    assert run.status != 0
    assert failed(run) == ["pi-a"], run.said
    assert "the fleet cannot work as it should: no answer to requests" in run.sentences
    assert (tmp_path / "asked").read_text() == "asked\n"
    assert "down goes on" in run.said
    assert "pi-b goes on" in run.said


def test_without_a_client_that_is_set_up_it_is_said_once(tmp_path: Path) -> None:
    run = check(tmp_path)
    assert failed(run) == ["down"], run.said
    assert "nobody can ask the broker. Run site first" in run.sentences


def test_a_dry_run_asks_nothing(tmp_path: Path) -> None:
    (tmp_path / "pi-b.toml").touch()
    run = check(tmp_path, "--check")
    assert run.status == 0, run.said
    assert not (tmp_path / "asked").exists()
