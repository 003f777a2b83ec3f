#!/usr/bin/env python3
"""Real Debian hosts on this machine: real systemd as PID 1, a network and an sshd of their own.

    hosts.py up --name try --subnet 4 --hosts h1,h2     two blank hosts, ready in a few seconds
    hosts.py ssh --name try h1 [COMMAND...]             as user pi, who may use sudo
    hosts.py down --name try                            takes them and all they wrote away

Each host is systemd-nspawn on an overlay over one blank Debian tree. Hosts of subnet N have the
addresses 10.77.N.11, .12 and so on; 10.77.N.1 is this machine. They have no way to the Internet.
The folder of a rig holds `ssh_config`: `ssh -F`, and Ansible with
`ansible_ssh_common_args: -F .../ssh_config`, know the hosts by their names; Ansible also needs
`ansible_control_path_dir`, so that it does not take one rig's h1 for another's. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from blank_tree import CACHE, USER, RigError, blank_tree
from machine import cgroup_root, make_room, what_is_missing

ONCE = Path(__file__).parent / "on_host/once/sitecustomize.py"
KEPT = "/var/cache/mqtick-kept-modules"
REBOOT = 133  # the exit code of systemd-nspawn when the host asked for a reboot
ACTIONS = ("up", "down", "ssh", "keep")


class Host:
    """One host of a rig, running or not."""

    def __init__(self, rig: Rig, name: str, address: str) -> None:
        self.rig, self.name, self.address = rig, name, address
        self.folder = rig.folder / "hosts" / name
        self.machine = f"{rig.name}-{name}"
        self.link = f"vb-{self.machine}"
        """The bridge's end of its cable, as systemd-nspawn calls it if the name is short enough."""
        if len(self.link) > 15:
            raise RigError(f"{self.machine} has more than 12 letters: give the rig a shorter name")
        self.cgroup = cgroup_root() / f"mqtick-{self.machine}"

    @property
    def is_running(self) -> bool:
        """Whether any process of it is alive."""
        with contextlib.suppress(FileNotFoundError):
            return "populated 1" in (self.cgroup / "cgroup.events").read_text()
        return False

    def ssh(self, *command: str, user: str = USER) -> list[str]:
        """Return the command line that runs a command there."""
        return ["ssh", "-F", str(self.rig.ssh_config), "-l", user, self.name, *command]

    def run(self, command: str, *, check: bool = True, timeout_s: float = 60) -> str:
        """Run a shell command there as root and return what it printed."""
        done = subprocess.run(
            self.ssh(command, user="root"),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        if check and done.returncode:
            raise RigError(f"{self.name}: {command!r} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def copy(self, to: str, folder: Path, *names: str) -> None:
        """Copy files of a folder into a new one there."""
        self.run(f"mkdir '{to}'")
        with subprocess.Popen(
            ["tar", "-c", "-C", folder, *names], stdout=subprocess.PIPE
        ) as sender:
            unpack = self.ssh(f"tar -x -C '{to}' --no-same-owner", user="root")
            subprocess.run(unpack, stdin=sender.stdout, check=True)

    def start(self) -> None:
        """Switch it on and return when it lets us in and has finished starting."""
        if self.is_running:
            return
        # A mount namespace of its own: whatever is mounted goes with the last process.
        own_mounts = ("unshare", "--mount", sys.executable, __file__)
        with (self.folder / "log").open("a") as log:
            subprocess.Popen(
                [*own_mounts, "keep", "--name", self.rig.name, self.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait_until_up()

    def stop(self) -> None:
        """Pull the plug; what it wrote stays."""
        with contextlib.suppress(FileNotFoundError):
            (self.cgroup / "cgroup.kill").write_text("1")
        end = time.monotonic() + 10
        while self.is_running:
            if time.monotonic() > end:
                raise RigError(f"processes of {self.name} are left in {self.cgroup}")
            time.sleep(0.02)
        for group, _, _ in os.walk(self.cgroup, topdown=False):
            os.rmdir(group)
        # The kernel takes it away when it comes to it, and until then the next start would fail.
        if Path(f"/sys/class/net/{self.link}").exists():
            subprocess.run(["ip", "link", "delete", self.link], capture_output=True, check=False)

    def reboot(self) -> None:
        """Reboot it and return when it is up again."""
        before = self._started()
        self.run("systemctl reboot", check=False)
        self.wait_until_up(unlike=before)

    def _started(self) -> str:
        return self.run("systemctl show --value -p UserspaceTimestampMonotonic", check=False)

    def wait_until_up(self, timeout_s: float = 120, unlike: str = "") -> None:
        """Return when systemd, another one than started then, says that it is up."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if self._started() not in ("", unlike):
                state = self.run("systemctl is-system-running --wait", check=False).strip()
                if state == "running":
                    return
                if state == "degraded":
                    raise RigError(f"{self.name}: {self.run('systemctl --failed --no-legend')}")
            time.sleep(0.1)
        raise RigError(
            f"{self.name} ({self.address}) did not let us in for {timeout_s:g} s; the end of its "
            f"log {self.folder / 'log'}: {(self.folder / 'log').read_text()[-1000:]}"
        )

    def keep(self) -> None:
        """Run the host until it is switched off; this process has a mount namespace of its own."""
        self.cgroup.mkdir(exist_ok=True)
        (self.cgroup / "cgroup.procs").write_text(str(os.getpid()))
        root, tree = self.folder / "root", (self.rig.folder / "tree").resolve()
        layers = f"lowerdir={tree},upperdir={self.folder}/upper,workdir={self.folder}/work"
        # Volatile: nothing waits for the disk, which a host that lives for minutes has no need of.
        # The mark of the last mount would forbid the next; only a crash of this machine loses data.
        shutil.rmtree(self.folder / "work" / "work" / "incompat", ignore_errors=True)
        _run("mount", "-t", "overlay", "overlay", "-o", f"{layers},volatile", root)
        # Where /run is on a disk nspawn finds its own folder there, takes fright and ends.
        Path("/run/systemd/nspawn").mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "tmpfs", "/run/systemd/nspawn")
        command = [
            "systemd-nspawn",
            "--boot",
            f"--directory={root}",
            "--settings=no",
            "--register=no",
            "--keep-unit",
            f"--machine={self.machine}",
            f"--hostname={self.name}",
            f"--network-bridge={self.rig.bridge}",
            "--drop-capability=CAP_SYS_TIME",  # nothing here may move the clock of this machine
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--console=pipe",
            *self.rig.options,
            *([f"--bind={kept}:{KEPT}"] if (kept := os.environ.get("MQTICK_KEPT_MODULES")) else []),
        ]
        unified = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        while subprocess.run(command, env=unified, check=False).returncode == REBOOT:
            pass

    def make(self) -> None:
        """Write what tells this host from the others."""
        for part in ("upper/etc/systemd/network", "upper/root/.ssh", "work", "root"):
            (self.folder / part).mkdir(parents=True)
        pi = self.folder / f"upper/home/{USER}/.ssh"
        pi.mkdir(parents=True)
        etc = self.folder / "upper/etc"
        public = (self.rig.folder / "key.pub").read_text()
        for folder in (self.folder / "upper/root/.ssh", pi):
            (folder / "authorized_keys").write_text(public)
        for folder in (pi.parent, pi, pi / "authorized_keys"):
            os.chown(folder, 1000, 1000)
        (self.folder / "upper/root").chmod(0o700)
        (etc / "hostname").write_text(f"{self.name}\n")
        names = "".join(f"{host.address} {host.name}\n" for host in self.rig.hosts)
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{names}{self.rig.control} control\n")
        (etc / "systemd/network/10-host0.network").write_text(
            f"[Match]\nName=host0\n[Network]\nAddress={self.address}/24\nGateway={self.rig.control}\n"
        )
        if kept := os.environ.get("MQTICK_KEPT_MODULES"):
            Path(kept).mkdir(parents=True, exist_ok=True)
            python = self.folder / "upper/usr/lib/python3/dist-packages"
            python.mkdir(parents=True)
            shutil.copy(ONCE, python / "compile_once.py")
            (python / "compile_once.pth").write_text("import compile_once\n")


class Rig:
    """Hosts that know each other, on one bridge."""

    def __init__(
        self,
        name: str,
        subnet: int,
        hosts: list[str],
        release: str = "bookworm",
        options: Sequence[str] = (),
    ) -> None:
        self.name, self.subnet, self.release = name, subnet, release
        self.options = options
        """More for systemd-nspawn: what its hosts may do, say."""
        self.folder = CACHE / "rigs" / name
        self.ssh_config = self.folder / "ssh_config"
        self.bridge, self.control = f"mqbr{subnet}", f"10.77.{subnet}.1"
        self.hosts = [
            Host(self, host, f"10.77.{subnet}.{11 + number}") for number, host in enumerate(hosts)
        ]

    @classmethod
    def load(cls, name: str) -> Rig:
        """Return a rig that was brought up before."""
        try:
            return cls(**json.loads((CACHE / "rigs" / name / "rig.json").read_text()))
        except FileNotFoundError:
            raise RigError(
                f"there is no rig {name!r}: bring it up first (up --name {name})"
            ) from None

    def host(self, name: str) -> Host:
        """Return the host of that name."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise RigError(f"rig {self.name} has no host {name!r}, but {[h.name for h in self.hosts]}")

    def up(self) -> None:
        """Make the hosts and switch all of them on."""
        if missing := what_is_missing():
            raise RigError(missing)
        if self.folder.exists():
            raise RigError(f"rig {self.name} is there already: down --name {self.name} first")
        make_room()
        tree = blank_tree(self.release)
        self.folder.mkdir(parents=True)
        (self.folder / "tree").symlink_to(tree)
        about = {"name": self.name, "subnet": self.subnet, "release": self.release}
        about |= {"options": self.options}
        names = [host.name for host in self.hosts]
        (self.folder / "rig.json").write_text(json.dumps({**about, "hosts": names}))
        key = self.folder / "key"
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rig", "-f", key)
        self.ssh_config.write_text(
            "".join(f"Host {host.name}\n  HostName {host.address}\n" for host in self.hosts)
            + f"Host *\n  User {USER}\n  IdentityFile {key}\n  IdentitiesOnly yes\n"
            "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
            "  ConnectTimeout 20\n  ServerAliveInterval 2\n  ServerAliveCountMax 3\n"
        )
        _run("ip", "link", "add", self.bridge, "type", "bridge")
        _run("ip", "address", "add", f"{self.control}/24", "dev", self.bridge)
        _run("ip", "link", "set", self.bridge, "up")
        for host in self.hosts:
            host.make()
            host.start()

    def __enter__(self) -> Rig:
        self.down()  # an earlier run may have been killed
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if os.environ.get("MQTICK_FLEET_KEEP") != "1":
            self.down()

    def down(self) -> None:
        """Take the hosts away, and all they wrote."""
        for host in self.hosts:
            host.stop()
        if Path(f"/sys/class/net/{self.bridge}").exists():
            _run("ip", "link", "delete", self.bridge)
        shutil.rmtree(self.folder, ignore_errors=True)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("--name", default="try", help="name of the rig")
    parser.add_argument("--subnet", type=int, default=1, help="N of 10.77.N.0/24")
    parser.add_argument("--hosts", default="h1", help="names of the hosts, with commas between")
    parser.add_argument("--release", default="bookworm", help="Debian release: bookworm or trixie")
    parser.add_argument("host", nargs="?")
    parser.add_argument("command", nargs="*")
    given = parser.parse_intermixed_args()
    try:
        if given.action == "up":
            rig = Rig(given.name, given.subnet, given.hosts.split(","), given.release)
            rig.up()
            print(f"ssh -F {rig.ssh_config} {rig.hosts[0].name}")
        elif given.action == "down":
            Rig.load(given.name).down()
        else:
            host = Rig.load(given.name).host(given.host or "")
            if given.action == "ssh":
                return subprocess.run(host.ssh(*given.command), check=False).returncode
            host.keep()
    except RigError as error:
        print(f"hosts.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
