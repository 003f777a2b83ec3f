"""A host gets the time of the control machine only when its own clock is the wrong one."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playbook import Run, needs_ansible, play_tasks

pytestmark = [pytest.mark.fleet, needs_ansible]

YEARS_S = 6 * 365 * 86400
WRONG = {"ahead": str(-YEARS_S), "chrony": "", "synchronised": "no", "container": ""}
CHRONY_FOLLOWS = "4D515430,MQT0,2,1795320000.1,0,0,0,0,0,0,0.002,0.001,16.0,Normal"
CHRONY_FOLLOWS_NOBODY = "7F7F0101,,10,1795320000.1,0,0,0,0,0,0,0.0,0.0,16.0,Normal"


def checked(folder: Path, zone: str, **hosts: dict[str, Any]) -> Run:
    """Check the clock of hosts that are all this machine, as from a time zone; nothing is set."""
    asked: list[dict[str, Any]] = [
        {"ansible.builtin.include_role": {"name": "mqtick.fleet.fleet", "tasks_from": tasks}}
        for tasks in ("probe", "clock")
    ]
    asked[0]["when"] = "fleet_host is not defined"
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    }
    return play_tasks(
        folder, asked, {"hosts": hosts, "vars": here}, "--check", "-v", environ={"TZ": zone}
    )


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_right_clock_stays_whatever_the_time_zone_of_the_control_machine(
    zone: str, tmp_path: Path
) -> None:
    run = checked(tmp_path, zone, right={"fleet_clock_tolerance_s": 60})
    assert run.status == 0, run.said
    assert run.recap["right"]["changed"] == 0, run.said


def test_a_clock_is_set_unless_somebody_knows_better(tmp_path: Path) -> None:
    (tmp_path / "index.json").touch()
    os.utime(tmp_path / "index.json", (time.time() + 86400,) * 2)
    run = checked(
        tmp_path,
        "America/New_York",
        wrong={"fleet_host": WRONG},
        alone={"fleet_host": WRONG | {"chrony": CHRONY_FOLLOWS_NOBODY}},
        chrony={"fleet_host": WRONG | {"chrony": CHRONY_FOLLOWS}},
        timesyncd={"fleet_host": WRONG | {"synchronised": "yes"}},
        forbidden={"fleet_host": WRONG, "fleet_fix_clock": "false"},
        newer={"fleet_host": WRONG, "fleet_wheelhouse": str(tmp_path)},
    )
    failed = {name for name, counts in run.recap.items() if counts["failed"]}
    assert failed == {"chrony", "timesyncd", "forbidden", "newer"}, run.said
    told = {int(seconds) for seconds in re.findall(r"--set=@(\d+)", run.said)}
    assert told, run.said
    assert all(abs(seconds - time.time()) < 120 for seconds in told), told
    assert "The clock of chrony is 2190.0 days behind" in run.sentences
    assert "a time daemon there is synchronised" in run.sentences
    assert "fleet_fix_clock is false" in run.sentences
    assert "so it is the control machine that is wrong" in run.sentences
