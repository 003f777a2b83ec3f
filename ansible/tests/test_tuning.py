"""What mqtick-tuning does to a host, tried on a made-up /sys with made-up ethtool and iw."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent.parent / "roles/tuning/files/mqtick-tuning"

# Both keep what they were told in a file of the interface's name.
ETHTOOL = """#!/bin/sh
case $1 in
  --show-eee) [ -e "$STATE/$2" ] || { echo "netlink error: Operation not supported" >&2; exit 1; }
    printf 'EEE settings for %s:\\n\\tEEE status: %s\\n' "$2" "$(cat "$STATE/$2")" ;;
  --set-eee) if [ "$4" = on ]; then echo enabled - active; else echo disabled; fi >"$STATE/$2" ;;
esac
"""
IW = """#!/bin/sh
case $3 in
  get) [ -e "$STATE/$2" ] || { echo "command failed: No such device (-19)" >&2; exit 237; }
    echo "Power save: $(cat "$STATE/$2")" ;;
  set) echo "$5" >"$STATE/$2" ;;
esac
"""


class MadeUpHost:
    """A Raspberry Pi 4: four CPUs with one clock, Ethernet, Wi-Fi, a bridge and a loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.sys = folder, folder / "state", folder / "sys"
        self.write("bin/ethtool", ETHTOOL).chmod(0o755)
        self.write("bin/iw", IW).chmod(0o755)
        self.write("state/eth0", "enabled - active\n")
        self.write("state/wlan0", "on\n")
        policy = self.write("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "ondemand\n")
        self.governor = policy
        policy.with_name("scaling_available_governors").write_text("ondemand performance \n")
        for cpu in range(4):
            (self.sys / f"devices/system/cpu/cpu{cpu}").mkdir()
            (self.sys / f"devices/system/cpu/cpu{cpu}/cpufreq").symlink_to(policy.parent)
        for name, kind in (("eth0", 1), ("wlan0", 1), ("can0", 280), ("br0", 1), ("lo", 772)):
            self.write(f"sys/class/net/{name}/type", f"{kind}\n")
        for folder_ in ("eth0/device", "can0/device", "wlan0/device", "wlan0/phy80211"):
            (self.sys / "class/net" / folder_).mkdir()

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        environ = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "SYS": str(self.sys),
            "STATE": str(self.state),
            "RUNTIME_DIRECTORY": str(self.folder),
        }
        return subprocess.run(
            ["sh", str(PROGRAM), *words], env=environ, capture_output=True, text=True, check=False
        )

    def settings(self) -> tuple[str, ...]:
        files = (self.governor, self.state / "eth0", self.state / "wlan0")
        return tuple(file.read_text().strip() for file in files)


@pytest.fixture
def host(tmp_path: Path) -> MadeUpHost:
    return MadeUpHost(tmp_path)


BEFORE = ("ondemand", "enabled - active", "on")
ALL = ("governor", "ethernet", "wifi")


def test_everything_is_kept_awake_and_put_back(host: MadeUpHost) -> None:
    done = host.run("start", *ALL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert host.settings() == ("performance", "disabled", "off")
    assert host.run("stop").returncode == 0
    assert host.settings() == BEFORE


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        ((), BEFORE),
        (("governor",), ("performance", "enabled - active", "on")),
        (("ethernet",), ("ondemand", "disabled", "on")),
        (("wifi",), ("ondemand", "enabled - active", "off")),
    ],
)
def test_only_what_was_asked_for_is_changed(
    host: MadeUpHost, asked: tuple[str, ...], after: tuple[str, ...]
) -> None:
    host.run("start", *asked)
    assert host.settings() == after


def test_what_was_so_before_stays_so_afterwards(host: MadeUpHost) -> None:
    host.governor.write_text("performance\n")
    (host.state / "eth0").write_text("disabled\n")
    (host.state / "wlan0").write_text("off\n")
    host.run("start", *ALL)
    host.run("stop")
    assert host.settings() == ("performance", "disabled", "off")


def test_what_is_not_there_is_passed_over_with_a_word(host: MadeUpHost) -> None:
    for cpu in range(4):
        (host.sys / f"devices/system/cpu/cpu{cpu}/cpufreq").unlink()
    (host.state / "eth0").unlink()
    (host.state / "wlan0").unlink()
    done = host.run("start", *ALL)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "governor: this host offers none, passed over",
        "ethernet: eth0 has no energy-efficient Ethernet, passed over",
        "wifi: wlan0 has no power saving, passed over",
    ]
    assert host.run("stop").returncode == 0


def test_a_cpu_without_the_governor_performance_keeps_its_own(host: MadeUpHost) -> None:
    host.governor.with_name("scaling_available_governors").write_text("ondemand powersave\n")
    assert "knows no 'performance', passed over" in host.run("start", "governor").stdout
    assert host.settings() == BEFORE


def test_what_cannot_be_switched_is_an_error_and_the_rest_is_done(host: MadeUpHost) -> None:
    host.write("bin/ethtool", ETHTOOL.replace("--set-eee)", "--set-eee) exit 1;"))
    done = host.run("start", *ALL)
    assert done.returncode == 1
    assert "energy-efficient Ethernet of eth0 could not be switched off" in done.stderr
    assert host.settings() == ("performance", "enabled - active", "off")


def test_to_stop_what_was_never_started_changes_nothing(host: MadeUpHost) -> None:
    assert host.run("stop").returncode == 0
    assert host.settings() == BEFORE


def test_a_word_that_it_does_not_know_is_refused(host: MadeUpHost) -> None:
    assert "no 'usb' to start: governor, ethernet, wifi" in host.run("start", "usb").stderr
    assert host.run("begin").returncode == 2
