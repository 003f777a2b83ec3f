"""Processes are read as the kernel tells of them; our services are told from our other commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqtick.service.processes import find_program, processes


def add(proc: Path, pid: int, *words: str, name: str = "python3", space: str = "") -> None:
    (proc / str(pid) / "ns").mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 0 0")
    (proc / str(pid) / "cmdline").write_text("\0".join(words) + "\0")
    if space:
        (proc / str(pid) / "ns/pid").symlink_to(space)


def test_we_and_our_parent_are_among_them() -> None:
    found = {each.pid: each for each in processes()}
    assert found[os.getpid()].parent == os.getppid()
    assert "python" in found[os.getpid()].words[0]


def test_a_name_may_hold_parentheses_and_blanks(tmp_path: Path) -> None:
    add(tmp_path, 7, "x", name="a) S (b")
    assert [each.name for each in processes(tmp_path)] == ["a) S (b"]


def test_who_has_ended_and_who_is_in_a_container_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[1]")
    (tmp_path / "5").mkdir()
    add(tmp_path, 6, "chronyd", space="pid:[2]")
    add(tmp_path, 7, "chronyd", space="pid:[1]")
    assert [each.pid for each in processes(tmp_path)] == [7]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("/opt/mqtick/bin/python3", "/opt/mqtick/bin/mqtick-client", "run"), True),
        (("python3", "-m", "mqtick.client.cli", "--broker", "mqtt://b"), True),
        (("python3", "/usr/local/bin/mqtick-client", "status"), False),
        (("python3", "/usr/local/bin/mqtick-timeserver", "run"), False),
        (("mqtick-client", "run", "--state-folder", "/elsewhere"), False),
        (("tail", "-f", "x", "y", "mqtick-client"), False),
    ],
)
def test_a_service_is_found_by_its_command_line(
    tmp_path: Path, words: tuple[str, ...], found: bool
) -> None:
    add(tmp_path, 7, *words)
    assert (find_program("mqtick-client", "/run/mqtick-client", tmp_path) == 7) is found


def test_a_process_that_has_not_been_waited_for_does_not_count() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid not in {each.pid for each in processes()}
    child.wait()
