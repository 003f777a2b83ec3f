"""Mosquitto's password file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.mqtick.fleet.plugins.module_utils.passwords import mosquitto_passwords

USERS = {"pi7": "correct-horse", "pi8": "battery:staple$"}


def test_a_second_run_changes_nothing() -> None:
    first = mosquitto_passwords(USERS, "")
    assert mosquitto_passwords(USERS, first) == first


def test_two_files_of_the_same_passwords_have_different_salts() -> None:
    assert mosquitto_passwords(USERS, "") != mosquitto_passwords(USERS, "")


def test_another_password_changes_that_line_only_and_who_left_is_gone() -> None:
    first = mosquitto_passwords({**USERS, "pi9": "gone"}, "").splitlines()
    second = mosquitto_passwords({**USERS, "pi8": "other"}, "\n".join(first)).splitlines()
    assert second[0] == first[0]
    assert second[1] != first[1]
    assert [line.split(":")[0] for line in second] == ["pi7", "pi8"]


@pytest.mark.needs("mosquitto_passwd")
def test_lines_that_mosquitto_passwd_made_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.touch(mode=0o600)
    for name, password in USERS.items():
        subprocess.run(["mosquitto_passwd", "-b", file, name, password], check=True)
    assert mosquitto_passwords(USERS, file.read_text()) == file.read_text()


@pytest.mark.parametrize(
    "damaged",
    [
        "pi7",
        "pi7:",
        "pi7:$6$c2FsdA==$aGFzaA==",
        "pi7:$7$0$c2FsdA==$eA==",
        "pi7:$7$x$y$z",
        "pi7:$7$1$!$!",
    ],
)
def test_a_damaged_line_is_made_anew(damaged: str) -> None:
    line = mosquitto_passwords({"pi7": "correct-horse"}, damaged)
    assert line.startswith("pi7:$7$101$")
