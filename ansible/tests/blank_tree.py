"""The file system of a freshly flashed host, made by debootstrap once and then kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

CACHE = (
    Path(
        os.environ.get("MQTICK_FLEET_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mqtick"
    )
    / "fleet"
)
SCRIPT = Path(__file__).parents[2] / "scripts/debian_tree.sh"
USER = "pi"
# What Raspberry Pi OS Lite and Debian's images have at least, and what lets Ansible in.
PACKAGES = (
    *("systemd", "systemd-sysv", "systemd-timesyncd", "dbus", "openssh-server", "python3"),
    *("iproute2", "ca-certificates", "adduser", "procps", "sudo"),
)

# All hosts of a rig share the kernel's one clock, and none of them may move it.
SHARED_CLOCK_UNIT = """\
# For tests only: the hosts of the rig share one clock, so chronyd must not touch it (-x), and its
# unit must not be skipped because the right to do so (CAP_SYS_TIME) is missing.
[Unit]
ConditionCapability=
[Service]
EnvironmentFile=/etc/systemd/system/chrony.service.d/test-shared-clock.options
"""
SHARED_CLOCK_OPTIONS = 'DAEMON_OPTS="-F 1 -x"\n'


class RigError(Exception):
    """What the rig cannot do, and what to do about it."""


def blank_tree(release: str) -> Path:
    """Return the folder of the release's tree; nothing may be written into it."""
    mirror = os.environ.get("MQTICK_DEBIAN_MIRROR", "")
    made_of = f"{release}\n{mirror}\n{Path(__file__).read_text()}"
    tree = CACHE / f"{release}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tree.is_dir():
            half_made = tree.with_suffix(".half-made")
            shutil.rmtree(half_made, ignore_errors=True)
            _make(release, half_made)
            half_made.rename(tree)
    return tree


def _make(release: str, tree: Path) -> None:
    made = subprocess.run([SCRIPT, "make", tree, release, ",".join(PACKAGES)], check=False)
    if made.returncode:
        raise RigError(f"no blank {release} tree could be made: its words stand above")
    units = tree / "etc/systemd/system"
    chrony = units / "chrony.service.d"
    chrony.mkdir()
    (chrony / "test-shared-clock.conf").write_text(SHARED_CLOCK_UNIT)
    (chrony / "test-shared-clock.options").write_text(SHARED_CLOCK_OPTIONS)
    subprocess.run(
        ["systemctl", f"--root={tree}", "--quiet", "enable", "systemd-networkd.service"], check=True
    )
    subprocess.run(
        ["chroot", tree, "useradd", "--create-home", "--shell=/bin/bash", USER], check=True
    )
    (tree / "etc/sudoers.d/010_pi-nopasswd").write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    # Each host makes its own; the control machine's name server is none of theirs.
    (tree / "etc/machine-id").write_text("")
    (tree / "etc/resolv.conf").write_text("")
