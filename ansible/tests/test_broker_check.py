"""Who asks an existing broker what it lets the fleet do, and who fails of the answer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from playbook import ANSIBLE, Run

TASKS = Path(__file__).parent.parent / "roles/broker/tasks/check.yml"
PROGRAM = ANSIBLE / "bin/ansible-playbook"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM.exists(), reason="needs `make setup-ansible`"),
]
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
NOWHERE = {"ansible_host": "127.0.0.1", "ansible_port": 9}  # discard: nobody listens
AFTERWARDS = {"name": "Go on", "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} goes on"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three clients, of which the first is down; their files are in the folder."""
    tasks = yaml.safe_load(TASKS.read_text())
    tasks[0]["ansible.builtin.stat"]["path"] = f"{tmp_path}/{{{{ inventory_hostname }}}}.toml"
    (asking,) = (task["block"][0] for task in tasks if "block" in task)
    assert asking["ansible.builtin.command"]["argv"][-3:] == [
        "/opt/mqtick/bin/mqtick-client",
        "doctor",
        "--broker-only",
    ]
    told = f"echo asked >>{tmp_path}/asked; echo 'FAIL no answer to requests'; exit 1"
    asking["ansible.builtin.command"] = {"argv": ["sh", "-c", told]}
    plays = [
        {"hosts": "all", "gather_facts": False, "tasks": each} for each in (tasks, [AFTERWARDS])
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(plays))
    broker = {"fleet_broker": "mqtts://broker.lan", "fleet_broker_node": ""}
    hosts = {"down": NOWHERE, "pi-a": LOCAL, "pi-b": LOCAL}
    (tmp_path / "inventory.yml").write_text(
        yaml.safe_dump({"all": {"hosts": hosts, "vars": broker}})
    )
    return tmp_path


def check(folder: Path, *flags: str) -> Run:
    done = subprocess.run(
        [PROGRAM, "-i", "inventory.yml", "play.yml", *flags],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ANSIBLE / "collections"),
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return Run(done.returncode, done.stdout + done.stderr)


def failed(run: Run) -> list[str]:
    return [host for host, counts in run.recap.items() if counts["failed"]]


def test_one_client_asks_that_answers_and_only_that_one_fails(folder: Path) -> None:
    for name in ("pi-a", "pi-b"):
        (folder / f"{name}.toml").touch()
    run = check(folder)
    assert run.status != 0
    assert failed(run) == ["pi-a"], run.said
    assert "the fleet cannot work as it should: no answer to requests" in run.sentences
    assert (folder / "asked").read_text() == "asked\n"
    assert "down goes on" in run.said
    assert "pi-b goes on" in run.said


def test_without_a_client_that_is_set_up_it_is_said_once(folder: Path) -> None:
    run = check(folder)
    assert failed(run) == ["down"], run.said
    assert "nobody can ask the broker. Run site first" in run.sentences


def test_a_dry_run_asks_nothing(folder: Path) -> None:
    (folder / "pi-b.toml").touch()
    run = check(folder, "--check")
    assert run.status == 0, run.said
    assert not (folder / "asked").exists()
