"""What this machine has to have, so that hosts can run on it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from blank_tree import RigError

PROGRAMS = ("debootstrap", "systemd-nspawn", "ssh", "ssh-keygen", "ip", "unshare")
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")


def what_is_missing() -> str:
    """Return why no hosts can be made here, or nothing."""
    if os.geteuid() != 0:
        return "the rig's hosts need root"
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    return f"not installed: {', '.join(missing)} (make setup-fleet-test)" if missing else ""


def make_room() -> None:
    """Let more systemds run at once, until the next boot: the kernel's 128 instances serve a few.

    Without, units of the last hosts fail, and nobody gets in.
    """
    if int(INSTANCES.read_text()) < 1024:
        INSTANCES.write_text("1024")


def cgroup_root() -> Path:
    """Return where the hosts' groups of processes are made."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, folder, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(folder)
    raise RigError("this machine has no cgroup2 file system: hosts cannot be kept apart")
