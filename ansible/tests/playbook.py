"""Run a playbook of the collection as a user would: ansible-playbook, an inventory, ssh."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hosts import ONCE, Rig
from machine import what_is_missing

PROJECT = Path(__file__).resolve().parents[2]
ANSIBLE = PROJECT / ".venv-ansible"
needs_ansible = pytest.mark.skipif(
    not (ANSIBLE / "bin/ansible-playbook").exists(), reason="Ansible is missing: make setup-ansible"
)
needs_hosts = [
    pytest.mark.fleet,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "-"),
    needs_ansible,
]
"""For tests on the rig's hosts, which need root."""
RECAP = re.compile(r"^(\S+)\s+: ((?:\w+=\d+\s*)+)$", re.MULTILINE)


class Run(NamedTuple):
    """What a run of ansible-playbook ended with."""

    status: int
    said: str

    @property
    def recap(self) -> dict[str, dict[str, int]]:
        """By host: ok, changed, unreachable, failed and so on."""
        return {
            host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)}
            for host, counts in RECAP.findall(self.said)
        }

    @property
    def sentences(self) -> str:
        """Everything that was said, on one line: Ansible wraps and quotes."""
        return re.sub(r"\s+", " ", self.said.replace("\\n", " ").replace('\\"', '"'))


def write_inventory(folder: Path, rig: Rig, groups: dict[str, Any], **variables: Any) -> Path:
    """Write an inventory: by group, either names of hosts or their variables."""
    everywhere = {
        "ansible_ssh_common_args": f"-F {rig.ssh_config}",
        "ansible_control_path_dir": str(rig.folder / "ssh"),
        "ansible_python_interpreter": "/usr/bin/python3",
        **variables,
    }
    children = {
        group: {"hosts": hosts if isinstance(hosts, dict) else dict.fromkeys(hosts)}
        for group, hosts in groups.items()
    }
    file = folder / "inventory.yml"
    file.write_text(yaml.safe_dump({"all": {"vars": everywhere, "children": children}}))
    return file


def play(
    inventory: Path,
    playbook: str,
    *arguments: str,
    collections: Path = ANSIBLE / "collections",
    timeout_s: float = 600,
    on_line: Callable[[str], None] = lambda line: None,
    cut_off_at: str = "",
    environ: Mapping[str, str] | None = None,
) -> Run:
    """Run a playbook on the hosts of an inventory, of the checkout's collection or another.

    A playbook with a suffix is a file beside the inventory.

    `on_line` gets each line as soon as it is said. A run that takes too long is ended; what it had
    said by then is in the outcome. One that comes to a task called `cut_off_at` is killed there,
    with all that it has started, as by a power cut of the control machine.
    """
    if kept := os.environ.get("MQTICK_KEPT_MODULES"):
        Path(kept).mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "PYTHONPATH": str(ONCE.parent),  # for modules that run here
        "PYTHONUNBUFFERED": "",  # it would read a module octet by octet
        **(environ or {}),
    }
    command = [
        str(ANSIBLE / "bin/ansible-playbook"),
        *("-i", str(inventory), playbook if "." in playbook else f"mqtick.fleet.{playbook}"),
        *arguments,
    ]
    lines = []
    with subprocess.Popen(
        command,
        cwd=inventory.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        end = threading.Timer(timeout_s, process.terminate)
        end.start()
        for line in process.stdout or ():
            lines.append(line)
            on_line(line.rstrip("\n"))
            if cut_off_at and re.match(rf"TASK \[.*{re.escape(cut_off_at)}\]", line):
                os.killpg(process.pid, signal.SIGKILL)
        end.cancel()
    return Run(process.returncode, "".join(lines))


def play_tasks(
    folder: Path,
    tasks: list[Any],
    inventory: dict[str, Any],
    *arguments: str,
    then: list[Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Run:
    """Run tasks of a test, without facts, on all hosts of an inventory (the content of `all`).

    `then`: tasks of a second play.
    """
    plays = [
        {"hosts": "all", "gather_facts": False, "tasks": each} for each in (tasks, then) if each
    ]
    (folder / "play.json").write_text(json.dumps(plays))
    (folder / "inventory.json").write_text(json.dumps({"all": inventory}))
    return play(folder / "inventory.json", "play.json", *arguments, timeout_s=200, environ=environ)
