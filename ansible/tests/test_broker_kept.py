"""The files that a broker gets back when it does not take new ones are those it last ran with."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

ROLE = Path(__file__).parent.parent / "roles/broker"
pytestmark = pytest.mark.needs("ss")


class Host:
    """A host with files of the broker, and where the role keeps the ones before."""

    def __init__(self, folder: Path) -> None:
        self.records, self.port = folder / "records", 0
        self.files = [folder / "etc/mqtick.acl", folder / "etc/mqtick.key"]
        self.files[0].parent.mkdir()
        names = " ".join(map(str, self.files))
        variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
        self.sums = variables["broker_sums"].replace("{{ broker_files_this | join(' ') }}", names)
        tasks = yaml.safe_load((ROLE / "tasks/configuration.yml").read_text())
        self.command = tasks[0]["ansible.builtin.shell"]["cmd"]
        for text, value in {
            "{{ broker_sums }}": self.sums,
            "{{ broker_kept }}": str(self.records / "broker-before"),
            "{{ broker_files_own | join(' ') }}": names,
            "/var/lib/mqtick-fleet": str(self.records),
        }.items():
            self.command = self.command.replace(text, value)

    def place(self, generation: str) -> None:
        for file in self.files:
            file.write_text(generation)

    def note_that_they_are_read(self) -> None:
        said = subprocess.run(["sh", "-c", self.sums], capture_output=True, text=True, check=True)
        (self.records / "broker-read").write_text(said.stdout.strip())

    def keep(self) -> set[str]:
        command = self.command.replace("{{ broker_port }}", str(self.port))
        assert not re.search("{{|}}", command)
        subprocess.run(["sh", "-c", command], check=True, timeout=20)
        kept = self.records / "broker-before"
        return {Path(f"{kept}{file}").read_text() for file in self.files}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_run_that_was_cut_off_before_the_broker_had_read_its_files_keeps_the_ones_before(
    host: Host,
) -> None:
    host.place("first")
    assert host.keep() == {"first"}
    host.note_that_they_are_read()
    host.place("second")
    assert host.keep() == {"first"}


def test_what_the_broker_has_read_and_listens_with_is_kept_in_the_place_of_what_was_before(
    host: Host,
) -> None:
    host.place("first")
    host.keep()
    host.place("second")
    host.note_that_they_are_read()
    with socket.create_server(("127.0.0.1", 0)) as broker:
        host.port = broker.getsockname()[1]
        assert host.keep() == {"second"}


def test_files_with_which_the_broker_does_not_listen_are_not_kept(host: Host) -> None:
    host.place("first")
    host.keep()
    host.place("second")
    host.note_that_they_are_read()
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        host.port = elsewhere.getsockname()[1]
    assert host.keep() == {"first"}
