"""Each source of time that can be asked for becomes a line that says so, and that chronyd takes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from playbook import needs_ansible, play_tasks

ROLE = Path(__file__).parent.parent / "roles/timeserver"
CHRONYD = shutil.which("chronyd")
pytestmark = [
    pytest.mark.slow,
    needs_ansible,
    pytest.mark.skipif(CHRONYD is None, reason="chronyd is not installed"),
]

NTP = {"kind": "pool", "host": "pool.lan"}
SOCKET = {"kind": "gpsd", "socket": "/run/chrony.ttyAMA0.sock"}
SWEPT = {"kind": "ptp", "socket": "/run/chrony.phc2sys.sock"}
# The variables of a host, and the lines that chrony gets.
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({"timeserver_upstream": []}, []),
    "trusted": ({"timeserver_upstream": [{"kind": "trusted"}]}, []),
    "pool": ({"timeserver_upstream": [NTP]}, ["pool pool.lan iburst"]),
    "server": (
        {"timeserver_upstream": [{"kind": "server", "host": "192.0.2.1", "options": "minpoll 4"}]},
        ["server 192.0.2.1 iburst minpoll 4"],
    ),
    "nts": (
        {"timeserver_upstream": [{"kind": "nts", "host": "time.lan", "options": "prefer"}]},
        ["server time.lan iburst nts prefer"],
    ),
    "gpsd_by_memory": (
        {"timeserver_upstream": [{"kind": "gpsd"}]},
        ["refclock SHM 0 refid NMEA precision 1e-1 offset 0 delay 0.2"],
    ),
    "second_receiver": (
        {
            "timeserver_upstream": [
                {"kind": "gpsd", "unit": 2, "refid": "GLO", "offset_s": 0.136, "options": "poll 3"}
            ]
        },
        ["refclock SHM 2 refid GLO precision 1e-1 offset 0.136 delay 0.2 poll 3"],
    ),
    "gpsd_by_socket": (
        {"timeserver_upstream": [SOCKET]},
        ["refclock SOCK /run/chrony.ttyAMA0.sock refid GPS precision 1e-6"],
    ),
    "pps": (
        {"timeserver_upstream": [{"kind": "pps"}]},
        ["refclock PPS /dev/pps0 refid PPS precision 1e-7"],
    ),
    "receiver_with_pulse": (
        {
            "timeserver_upstream": [
                {"kind": "gpsd", "options": "noselect"},
                {"kind": "pps", "device": "/dev/pps1", "lock": "NMEA", "options": "prefer"},
            ]
        },
        [
            "refclock SHM 0 refid NMEA precision 1e-1 offset 0 delay 0.2 noselect",
            "refclock PPS /dev/pps1 refid PPS precision 1e-7 lock NMEA prefer",
        ],
    ),
    "ptp": (
        {"timeserver_upstream": [{"kind": "ptp", "device": "/dev/ptp1", "refid": "GM"}]},
        ["refclock PHC /dev/ptp1 refid GM poll 2 dpoll -2 precision 1e-7 tai"],
    ),
    "ptp_by_socket": (
        {"timeserver_upstream": [SWEPT]},
        ["refclock SOCK /run/chrony.phc2sys.sock refid PTP poll 2 precision 1e-7"],
    ),
    "local": ({"timeserver_upstream": [{"kind": "local"}]}, ["local stratum 8"]),
    "local_of_many": (
        {"timeserver_upstream": [{"kind": "local", "stratum": 10, "options": "orphan"}]},
        ["local stratum 10 orphan"],
    ),
    "asked_by_others": (
        {
            "timeserver_upstream": [NTP],
            "timeserver_allow": ["192.168.7.0/24", "2001:db8::/32"],
            "timeserver_chrony_directives": ["rtcsync", "makestep 1 3"],
        },
        [
            "pool pool.lan iburst",
            "allow 192.168.7.0/24",
            "allow 2001:db8::/32",
            "rtcsync",
            "makestep 1 3",
        ],
    ),
}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the role gives to chrony, by case; Ansible makes it of the role's own files."""
    folder = tmp_path_factory.mktemp("upstream")
    (folder / "templates").symlink_to(ROLE / "templates")
    tasks = yaml.safe_load((ROLE / "tasks/chrony.yml").read_text())
    show = {
        "text": "{{ lines | to_json }}",
        "file": "{{ playbook_dir }}/{{ inventory_hostname }}.json",
    }
    lines = {"lines": tasks[0]["vars"]["fleet_chrony_lines"]}
    hosts = {name: variables for name, (variables, _) in CASES.items()}
    nothing_else = {"timeserver_allow": [], "timeserver_chrony_directives": []}
    inventory = {"hosts": hosts, "vars": nothing_else}
    done = play_tasks(folder, [{"mqtick.fleet.show": show, "vars": lines}], inventory)
    assert done.status == 0, done.said
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in CASES}


def test_every_kind_of_source_is_one_of_the_cases() -> None:
    specs = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())
    kinds = specs["argument_specs"]["main"]["options"]["timeserver_upstream"]["options"]["kind"]
    asked = {
        source["kind"]
        for variables, _ in CASES.values()
        for source in variables["timeserver_upstream"]
    }
    assert asked == set(kinds["choices"])


def reads(lines: list[str]) -> str:
    """Let chronyd read lines; returns why it does not take them."""
    if not lines:
        return ""  # it would read the configuration of this machine
    done = subprocess.run(
        [str(CHRONYD), "-p", *lines], capture_output=True, text=True, check=False, timeout=20
    )
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("name", CASES)
def test_chronyd_takes_a_line_for_what_was_asked_for(
    name: str, lines: dict[str, list[str]]
) -> None:
    assert lines[name] == CASES[name][1]
    assert reads(lines[name]) == ""


def test_chronyd_would_refuse_a_word_that_it_does_not_know() -> None:
    assert "Invalid" in reads(["refclock PPS /dev/pps0 lok NMEA"])
