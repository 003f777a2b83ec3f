"""The systemd units as they are shipped, judged by systemd's own tools and read line by line."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UNITS = {path.name: path for path in sorted(ROOT.glob("*/systemd/*.service"))}
PROGRAMS = ("mqtick-client.service", "mqtick-timeserver.service")
# exposure that `systemd-analyze security` may find at most, in its own unit
MOST_EXPOSED = {
    "mqtick-client.service": 1.5,
    "mqtick-timeserver.service": 1.5,
    "mqtick-wait-sync.service": 1.0,
}

with_systemd = pytest.mark.usefixtures("_systemd")
any_unit = pytest.mark.parametrize("name", sorted(UNITS))
any_program = pytest.mark.parametrize("name", PROGRAMS)


def settings(name: str, section: str = "Service") -> dict[str, list[str]]:
    """Every value of every key of a section: systemd allows a key more than once."""
    found: dict[str, list[str]] = {}
    here = ""
    for line in UNITS[name].read_text().splitlines():
        if line.startswith("["):
            here = line.strip("[]")
        elif here == section and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def only(name: str, key: str, section: str = "Service") -> str:
    (value,) = settings(name, section)[key]
    return value


def test_the_three_units_are_there() -> None:
    assert sorted(UNITS) == sorted(MOST_EXPOSED)


@pytest.fixture(scope="module")
def _systemd(tmp_path_factory: pytest.TempPathFactory) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path_factory.mktemp("unit") / "plain.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    done = verify(unit)
    if done.returncode or done.stderr:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr.strip()}")


def verify(unit: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )


@with_systemd
@any_unit
def test_systemd_finds_nothing_to_complain_about(name: str, tmp_path: Path) -> None:
    # The other units must be beside it, and the programs must exist, which ours do not before an
    # installation and kill not in a container: any program that exists serves here.
    for unit in UNITS.values():
        text = re.sub(r"^(Exec\w+)=\S+", r"\1=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    done = verify(tmp_path / name)
    assert done.stderr + done.stdout == ""
    assert done.returncode == 0


def exposure(name: str) -> tuple[set[str], float]:
    """What systemd finds open in a unit, and how much that is together."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNITS[name])],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d)", done.stdout)
    assert found, done.stdout + done.stderr
    # RootDirectory=/RootImage= is named by the first
    what = re.findall(r"^✗ ([^=]+=(?:~\S+)?)", done.stdout, re.MULTILINE)
    return {each.removesuffix("=") for each in what}, float(found[1])


@with_systemd
@any_unit
def test_the_unit_is_exposed_no_more_than_its_limit(name: str) -> None:
    assert exposure(name)[1] <= MOST_EXPOSED[name]


@with_systemd
@any_unit
def test_the_unit_says_why_it_leaves_open_what_it_leaves_open(name: str) -> None:
    reasons = re.findall(r"^# - ([^:]+):", UNITS[name].read_text(), re.MULTILINE)
    assert {what for each in reasons for what in each.split(", ")} == exposure(name)[0]


@pytest.mark.parametrize(
    ("section", "key", "values"),
    [
        ("Service", "RestartPreventExitStatus", ["2"]),  # a wrong configuration stays wrong
        ("Service", "ExecReload", ["kill -HUP $MAINPID"]),  # new keys need no restart
        # A group that does not exist would keep the unit from starting; Debian has no group gpio.
        ("Service", "SupplementaryGroups", []),
        # ProcSubset=pid would hide /proc/device-tree, which tells the board.
        ("Service", "ProcSubset", []),
        # A path named here is mounted: a socket would be held on to after chronyd made a new one.
        ("Service", "ReadWritePaths", []),
        ("Service", "BindPaths", []),
        # It goes on without them.
        *(("Unit", key, []) for key in ("Requires", "BindsTo", "Requisite", "PartOf")),
    ],
)
@any_program
def test_what_no_other_test_would_miss_is_in_the_unit(
    name: str, section: str, key: str, values: list[str]
) -> None:
    assert settings(name, section).get(key, []) == values


@pytest.mark.parametrize(
    "unit",
    [one for one in ROOT.glob("**/systemd/*.service") if "Restart=" in one.read_text()],
    ids=lambda unit: unit.name,
)
def test_a_program_that_keeps_ending_is_started_again_for_ever(unit: Path) -> None:
    # an attack of hours would else end it for good; RestartSteps is unknown to systemd 252
    text = unit.read_text()
    assert "\nRestart=on-failure\n" in text
    assert "\nStartLimitIntervalSec=0\n" in text


@any_program
def test_a_program_has_no_capability_and_cannot_move_the_clock(name: str) -> None:
    assert only(name, "CapabilityBoundingSet") == ""
    assert only(name, "ProtectClock") == "yes"
    assert only(name, "User") == "mqtick"


@any_program
def test_only_the_gpio_devices_are_open(name: str) -> None:
    assert only(name, "DevicePolicy") == "closed"
    assert settings(name)["DeviceAllow"] == ["char-gpiochip rw", "char-*gpiomem* rw"]


@any_program
def test_pinning_to_cpus_is_allowed_by_the_last_word_of_the_filter(name: str) -> None:
    lines = settings(name)["SystemCallFilter"]
    assert lines[-1] == "sched_setaffinity"
    assert "~@privileged @resources" in lines[:-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount something read-only")
@pytest.mark.needs("unshare")
def test_a_socket_below_a_read_only_mount_can_be_sent_to(tmp_path: Path) -> None:
    # what ProtectSystem=strict makes of /run, and why the units open no path for chronyd's socket
    path = tmp_path / "chrony.mqtick0.sock"
    script = (
        f"mount --bind {tmp_path} {tmp_path} && mount -o remount,ro,bind {tmp_path} "
        f"&& ! touch {tmp_path}/file 2>/dev/null "
        f'&& exec python3 -c \'import socket; socket.socket(1, 2).sendto(b"x", "{path}")\''
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.settimeout(5)
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
        )
        if "unshare failed" in done.stderr or "permission denied" in done.stderr:
            pytest.skip(f"this machine allows no mount: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        assert server.recv(8) == b"x"


def test_the_wait_ends_before_systemd_would_end_it() -> None:
    name = "mqtick-wait-sync.service"
    waits_s = int(re.search(r"--timeout (\d+)s", only(name, "ExecStart"))[1])  # type: ignore[index]
    assert int(only(name, "TimeoutStartSec")) > waits_s
