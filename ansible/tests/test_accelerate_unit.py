"""mqtick-broker and mqtick-accelerate from the Debian package, as units of a running systemd.

The host's interface has the kernel's data plane; clients of MQTT-SN are on this machine.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import RELEASE, broker_package
from hosts import Host, Rig
from machine import what_is_missing

from demo.local_programs import wait_until
from demo.local_sensors import Sensor

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "-"),
]

FEED = "/run/mqtick-broker/accelerate"
PORT = 1884
UNIT = "mqtick-accelerate"
RIGHTS = {"CAP_BPF": 39, "CAP_PERFMON": 38, "CAP_NET_ADMIN": 12, "CAP_DAC_OVERRIDE": 1}
# A container has these only if it is given them; the unit takes its own from what a host has.
HOST = ("--capability=CAP_BPF,CAP_PERFMON,CAP_NET_ADMIN", "--system-call-filter=bpf")
BPF = {"x86_64": 321, "aarch64": 280}
FD_BY_ID = {"prog": 13, "map": 14, "link": 30}


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """A host with the package, and in it the broker with MQTT-SN and its feed."""
    package = broker_package()
    with Rig("acc", 85, ["h1"], RELEASE, HOST) as rig:
        (host,) = rig.hosts
        put(host, "/var/tmp/mqtick-broker.deb", package.read_bytes())
        host.run("dpkg --install /var/tmp/mqtick-broker.deb", timeout_s=120)
        config = (
            '[[listener]]\naddress = "127.0.0.1:1883"\n[access]\nanonymous = true\n'
            f'[delivery]\naccelerate = "{FEED}"\n'
            f'[sn]\naddress = "{host.address}:{PORT}"\nsubnets = ["{rig.control}/32"]\n'
        )
        put(host, "/etc/mqtick/broker.toml", config.encode())
        yield host


def put(host: Host, path: str, octets: bytes) -> None:
    subprocess.run(host.ssh(f"cat >{path}", user="root"), input=octets, check=True, timeout=60)


def status(host: Host) -> dict[str, Any]:
    return dict(json.loads(host.run(f"{UNIT} status --json", check=False) or "{}"))


def unit(host: Host, name: str) -> str:
    return host.run(f"systemctl show --value -p {name} {UNIT}").strip()


def process(host: Host) -> Path:
    """The program's folder in this machine's /proc."""
    (group,) = host.cgroup.rglob(f"{UNIT}.service")
    pids = (group / "cgroup.procs").read_text().split()
    (pid,) = [one for one in pids if Path(f"/proc/{one}/comm").read_text() == f"{UNIT[:15]}\n"]
    return Path("/proc") / pid


def held(host: Host) -> set[tuple[str, int]]:
    """Return what the program has in the kernel: programs, maps and links, by their numbers."""
    found = set()
    for file in (process(host) / "fdinfo").iterdir():
        for kind, number in re.findall(r"^(\w+)_id:\s+(\d+)$", file.read_text(), re.MULTILINE):
            if kind in FD_BY_ID:
                found.add((kind, int(number)))
    return found


def is_in_the_kernel(one: tuple[str, int]) -> bool:
    kind, number = one
    attributes = ctypes.create_string_buffer(struct.pack("=III", number, 0, 0), 128)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(BPF[platform.machine()], FD_BY_ID[kind], attributes, 12)
    if fd >= 0:
        os.close(fd)
        return True
    assert ctypes.get_errno() == errno.ENOENT, os.strerror(ctypes.get_errno())
    return False


class Traffic:
    """A publisher, and three subscribers that must get each message once and in order."""

    def __init__(self, host: Host) -> None:
        self.host, at = host, (host.address, PORT)
        self.subscribers = [Sensor(at, f"s{number}").connect(600) for number in range(3)]
        for one in self.subscribers:
            one.subscribe("hall/1")
        self.publisher = Sensor(at, "publisher").connect(600)
        self.topic = self.publisher.register("hall/1")
        self.sent = 0

    def send(self) -> None:
        self.publisher.publish(self.topic, b"%d" % self.sent)
        self.sent += 1
        for one in self.subscribers:
            one.has(*(("hall/1", b"%d" % number) for number in range(self.sent)))

    def copies(self) -> int:
        """How many the kernel has made since the program started."""
        return int(status(self.host)["frames"].get("copies", 0))

    def until_copied(self) -> None:
        def copied() -> bool:
            self.send()
            return self.copies() > 0

        wait_until(copied, "the kernel copies", 60)
        before = self.copies()
        for _ in range(20):
            self.send()
        assert self.copies() == before + 20 * len(self.subscribers)


@pytest.fixture(scope="module")
def traffic(host: Host) -> Traffic:
    host.run("systemctl enable --now mqtick-broker")
    return Traffic(host)


def test_without_a_command_line_the_unit_fails_once_and_says_what_is_missing(host: Host) -> None:
    host.run(f"systemctl start {UNIT}", check=False)
    wait_until(lambda: unit(host, "ActiveState") == "failed", "it has failed", 30)
    assert (unit(host, "ExecMainStatus"), unit(host, "NRestarts")) == ("2", "0")
    said = host.run(f"journalctl -u {UNIT} -o cat")
    assert "--broker HOST[:PORT] is missing" in said
    host.run(f"systemctl reset-failed {UNIT}")


def test_it_copies_as_a_unit_with_four_rights_and_no_more(host: Host, traffic: Traffic) -> None:
    options = f"OPTIONS=--interface host0 --broker {host.address}:{PORT} --feed {FEED}\n"
    put(host, "/etc/mqtick/accelerate", options.encode())
    host.run(f"systemctl enable --now {UNIT}")
    traffic.until_copied()
    said = dict(
        line.split(":\t", 1) for line in (process(host) / "status").read_text().splitlines()
    )
    assert int(said["CapEff"], 16) == sum(1 << number for number in RIGHTS.values())
    assert int(said["CapBnd"], 16) == int(said["CapEff"], 16)
    assert (said["NoNewPrivs"], said["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize("how", ["systemctl stop", "systemctl kill --signal=KILL"])
def test_nothing_is_left_in_the_kernel_and_no_message_is_lost(
    host: Host, traffic: Traffic, how: str
) -> None:
    host.run(f"systemctl start {UNIT}")
    traffic.until_copied()
    before = held(host)
    assert {kind for kind, _ in before} == {"prog", "map", "link"}
    assert all(map(is_in_the_kernel, before))
    started = ("ExecMainStartTimestampMonotonic", unit(host, "ExecMainStartTimestampMonotonic"))
    host.run(f"{how} {UNIT}")
    for _ in range(5):
        traffic.send()
    wait_until(lambda: not any(map(is_in_the_kernel, before)), "the kernel let go of all", 20)
    if "KILL" in how:
        started_again = lambda: unit(host, started[0]) not in ("", "0", started[1])  # noqa: E731
        wait_until(started_again, "systemd started it again", 30)
        traffic.until_copied()
        host.run(f"systemctl stop {UNIT}")
    on_the_interface = "tc filter show dev host0 ingress; tc filter show dev host0 egress"
    assert host.run(on_the_interface) == ""
    assert "clsact" not in host.run("tc qdisc show dev host0")


@pytest.mark.parametrize("right", RIGHTS)
def test_each_of_its_rights_is_needed(host: Host, traffic: Traffic, right: str) -> None:
    folder = f"/run/systemd/system/{UNIT}.service.d"
    others = " ".join(set(RIGHTS) - {right})
    less = f"[Service]\nCapabilityBoundingSet=\nCapabilityBoundingSet={others}\nRestart=no\n"
    host.run(f"systemctl stop {UNIT}; mkdir -p {folder}")
    put(host, f"{folder}/less.conf", less.encode())
    host.run(f"systemctl daemon-reload; systemctl start {UNIT}", check=False)

    def is_refused() -> bool:
        """It has ended; without a way to the feed it waits for it, and says so."""
        state = unit(host, "ActiveState")
        return state == "failed" or "does not answer" in status(host).get("data_plane", "")

    wait_until(is_refused, f"it finds that it has no {right}", 30)
    for _ in range(5):
        traffic.send()
    assert status(host).get("frames", {}).get("copies", 0) == 0
    host.run(f"systemctl stop {UNIT}; rm -r {folder}; systemctl daemon-reload")
    host.run(f"systemctl reset-failed {UNIT}", check=False)
