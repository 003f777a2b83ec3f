"""The certificates of the fleet's own authority, as the control machine makes them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playbook import Run, needs_ansible, play_tasks

pytestmark = [pytest.mark.slow, needs_ansible]
BROKER = "broker.invalid"


def part(role: str, tasks: str, **variables: Any) -> dict[str, Any]:
    """A part of a role of the collection."""
    name = f"mqtick.fleet.{role}"
    task = {"ansible.builtin.import_role": {"name": name, "tasks_from": tasks}}
    return {"name": tasks, **task, "vars": variables} if variables else {"name": tasks, **task}


CERTIFICATES = [
    part("fleet", "secrets"),
    part("broker", "certificate", broker_certificate_days=30),
]


def run(folder: Path, *tasks: dict[str, Any], path: str = "") -> Run:
    """Let Ansible do tasks for a broker's host that nobody can reach."""
    inventory = {"children": {"mqtick_broker": {"hosts": {BROKER: None}}}}
    programs = f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]
    return play_tasks(folder, list(tasks), inventory, environ={"PATH": programs})


def said(done: Run) -> str:
    assert done.status == 0, done.said
    return done.said


def openssl(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["openssl", *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def slow_openssl(folder: Path, seconds: float) -> Path:
    """Return a folder with an openssl that takes its time to make something."""
    program = folder / "openssl"
    folder.mkdir()
    program.write_text(
        f"#!/bin/sh\ncase $1 in genpkey|req|ca) sleep {seconds};; esac\n"
        f'exec {shutil.which("openssl")} "$@"\n'
    )
    program.chmod(0o755)
    return folder


def test_two_runs_at_once_make_one_authority_and_a_certificate_that_fits_its_key(
    tmp_path: Path,
) -> None:
    shows = {"name": "Show", "ansible.builtin.debug": {"var": "fleet_secret_ca"}}

    def one(name: str, seconds: float) -> list[str]:
        programs = slow_openssl(tmp_path / name, seconds)
        words = said(run(tmp_path, *CERTIFICATES, shows, path=str(programs)))
        return re.findall(r'"(-----BEGIN[^"]*)"', words)

    with ThreadPoolExecutor() as at_once:
        given = list(at_once.map(one, ("slow", "slower"), (0.8, 1.6)))
    assert given[0] == given[1] != []
    folder = tmp_path / "secrets/ca"
    for name in ("ca", "broker"):
        openssl(folder, "verify", "-x509_strict", "-CAfile", "ca.pem", f"{name}.pem")
        public = openssl(folder, "pkey", "-in", f"{name}.key", "-pubout")
        assert openssl(folder, "x509", "-in", f"{name}.pem", "-noout", "-pubkey") == public


def test_the_days_that_the_certificate_lasts_are_read_from_its_file(tmp_path: Path) -> None:
    shows = {"name": "Show", "ansible.builtin.debug": {"var": "broker_certificate_life"}}
    words = said(run(tmp_path, *CERTIFICATES, part("broker", "certificate_end"), shows))
    assert '"days": "29"' in words or '"days": 29' in words


def test_an_authority_that_is_damaged_is_not_replaced(tmp_path: Path) -> None:
    said(run(tmp_path, *CERTIFICATES))
    key = tmp_path / "secrets/ca/ca.key"
    key.write_text(openssl(tmp_path, "genpkey", "-algorithm", "ED25519"))
    before = (tmp_path / "secrets/ca/ca.pem").read_bytes()
    done = run(tmp_path, *CERTIFICATES)
    assert done.status != 0
    assert "Put them back from a backup" in done.sentences
    assert (tmp_path / "secrets/ca/ca.pem").read_bytes() == before
