"""The doctor's checks of this host: clock, time daemons, timestamps, keys."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mqtick.mqtt.stamps import KernelSocket, StampSource, Transmit
from mqtick.protocol.auth import KeyFileError, Keyring, load_key_file
from mqtick.service.check import Check, fail, ok, warn
from mqtick.service.processes import Process

_START_OF_2025_S = 1_735_689_600

# What else steers a clock: name of the process (15 characters), and what ends it for good.
_OFF = "sudo systemctl disable --now"
_OTHER_DAEMONS = {
    "systemd-timesyn": ("systemd-timesyncd", f"{_OFF} systemd-timesyncd"),
    "ntpd": ("ntpd (ntp, ntpsec or openntpd)", f"{_OFF} ntp ntpsec openntpd"),
    "ntp-daemon": ("ntpd-rs", f"{_OFF} ntpd-rs"),
    "phc2sys": ("phc2sys of linuxptp", f"{_OFF} phc2sys"),
    "timemaster": ("timemaster of linuxptp", f"{_OFF} timemaster"),
    "VBoxService": (
        "VirtualBox's guest service",
        "end its time synchronisation: VBoxService --disable-timesync, or on the host VBoxManage "
        "setextradata VM VBoxInternal/Devices/VMMDev/0/Config/GetHostTimeDisabled 1",
    ),
    "vmtoolsd": ("VMware's guest tools", "sudo vmware-toolbox-cmd timesync disable"),
    "prltoolsd": ("Parallels' guest tools", "prlctl set VM --time-sync off"),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, as the kernel checks permissions."""

    name: str
    uid: int
    gids: frozenset[int]

    @classmethod
    def named(cls, name: str) -> Identity:
        """Return the identity of a user; KeyError when there is none of that name."""
        entry = pwd.getpwnam(name)
        return cls(name, entry.pw_uid, frozenset(os.getgrouplist(name, entry.pw_gid)))

    def may(self, status: os.stat_result, bit: int) -> bool:
        """Whether a file's mode allows access; `bit` is 4 to read, 2 to write."""
        if self.uid == 0:
            return True
        if status.st_uid == self.uid:
            return bool(status.st_mode & (bit << 6))
        if status.st_gid in self.gids:
            return bool(status.st_mode & (bit << 3))
        return bool(status.st_mode & bit)


def client_identity(pid: int | None, proc: Path = Path("/proc")) -> Identity:
    """Return the user of the running client, else user mqtick, else our own user."""
    if pid is not None:
        try:
            return _identity_of_process(pid, proc)
        except (OSError, KeyError, ValueError):
            pass  # the process has ended
    try:
        return Identity.named("mqtick")
    except KeyError:
        gids = frozenset((os.getegid(), *os.getgroups()))
        return Identity(user_name(os.geteuid()), os.geteuid(), gids)


def _identity_of_process(pid: int, proc: Path) -> Identity:
    text = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    uid, gid = int(fields["Uid"].split()[1]), int(fields["Gid"].split()[1])
    groups = (int(number) for number in fields["Groups"].split())
    return Identity(user_name(uid), uid, frozenset((gid, *groups)))


def user_name(uid: int) -> str:
    """Return a user's name, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """Return a group's name, or its number."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def check_clock(clock: Callable[[], float], *, needs_dates: bool) -> Check:
    """Check that the system clock is not in the past, where hosts without a battery clock start.

    `needs_dates`: certificates are judged by this clock before the time is known.
    """
    now_s = clock()
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
    if now_s >= _START_OF_2025_S:
        return ok("system clock", text)
    remedy = "chronyd sets it at once with `makestep 0.1 3`; fake-hwclock keeps it over a reboot"
    if needs_dates:
        return fail(
            "system clock",
            f"{text}: the broker's certificate will seem not yet valid",
            "a time after 2025",
            f"{remedy}; or use keys, with which dates are checked later",
        )
    return warn("system clock", text, "a time after 2025", remedy)


def vmware_syncs() -> bool:
    """Ask VMware's guest tools whether they steer the clock."""
    try:
        words = ["vmware-toolbox-cmd", "timesync", "status"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.stdout.strip() == "Enabled"


def _steers(process: Process, vmware: Callable[[], bool]) -> bool:
    if process.name == "vmtoolsd":
        return vmware()
    return process.name in _OTHER_DAEMONS and "--disable-timesync" not in process.words


def check_daemons(
    found: Sequence[Process], *, steers: bool, vmware: Callable[[], bool] = vmware_syncs
) -> Iterator[Check]:
    """Check that one daemon steers the clock; `steers`: whether chronyd shall do it for us."""
    name = "other time daemons"
    others = [each for each in found if _steers(each, vmware)]
    for each in others if steers else ():
        who, remedy = _OTHER_DAEMONS[each.name]
        yield fail(name, f"{who} (process {each.pid}) steers the clock, too", "none", remedy)
    chronyds = [each for each in found if each.name == "chronyd"]
    pids = {each.pid for each in chronyds}
    first = [each for each in chronyds if each.parent not in pids and "-x" not in each.words]
    if len(first) > 1:  # the second process of one is its helper, and its child
        who = " and ".join(f"process {each.pid}" for each in first)
        yield fail("chronyd", f"it runs twice ({who})", "one", f"end one: ps -fp {first[-1].pid}")
    if not others:
        yield ok(name, "none")
    elif not steers:
        who = ", ".join(f"{_OTHER_DAEMONS[one.name][0]} (process {one.pid})" for one in others)
        yield ok(name, f"{who}, which is fine: mqtick steers nothing")


def check_disk(*folders: str) -> Iterator[Check]:
    """Check that the file systems on which the client and chronyd write have room."""
    for folder in dict.fromkeys(filter(os.path.isdir, folders)):
        space = os.statvfs(folder)
        if not space.f_bavail or (space.f_files and not space.f_favail):
            remedy = f"df -h {folder}; df -i {folder}"
            yield warn("disk", f"no room in {folder}", "some", f"what is written there? {remedy}")


def probe_stamps() -> tuple[StampSource, StampSource]:
    """Send octets to ourselves by TCP; return the source of the receive and the transmit stamps."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = KernelSocket(socket.create_connection(server.getsockname(), 1.0))
        connected, _ = server.accept()
        receiver = KernelSocket(connected)
    sender.setblocking(False)
    receiver.settimeout(1.0)
    received = sent = StampSource.NONE
    try:
        for _ in range(5):  # the kernel begins to stamp a moment after it is first asked to
            sender.transmit = transmit = Transmit(time.time_ns())
            sender.send(b"?")
            receiver.read_chunk()
            time.sleep(0.005)
            sender.drain_error_queue()
            received = max(received, receiver.received.source)
            sent = max(sent, transmit.stamp.source)
            if min(received, sent) >= StampSource.KERNEL:
                break
        return received, sent
    finally:
        sender.close()
        receiver.close()


def check_stamps(probe: Callable[[], tuple[StampSource, StampSource]], mode: str) -> Check:
    """Check that the kernel stamps messages; `mode` is the setting `timestamps`."""
    if mode == "user":
        return warn(
            "timestamps",
            "the program's, as configured",
            "the kernel's",
            'set timestamps = "auto", unless you compare the two',
        )
    received, sent = probe()
    value = f"{received.name.lower()} on arrival, {sent.name.lower()} on transmission"
    if min(received, sent) >= StampSource.KERNEL:
        return ok("timestamps", value)
    return warn(
        "timestamps",
        value,
        "kernel or hardware on both",
        "tens of microseconds more noise; a container or an old kernel forbids SO_TIMESTAMPING",
    )


def check_keys(path: str, who: Identity) -> Check:
    """Check the key file: it is closed to others, the client can read it, it has no fleet key."""
    if not path:
        return warn(
            "keys",
            "none: anyone who may publish on the time topics can set the time",
            "a key file (keys_file)",
            "see docs/protocol.md, or guard the topics with the broker's access list",
        )
    try:
        keyring: Keyring = load_key_file(path)
        status = os.stat(path)
    except KeyFileError as error:
        return fail("keys", str(error), "a usable key file", "correct the file")
    except OSError as error:
        return fail("keys", f"{path}: {error.strerror}", "a file", "correct keys_file")
    mode = f"{path}, mode {status.st_mode & 0o777:04o}, group {group_name(status.st_gid)}"
    if not who.may(status, 4):
        return fail(
            "keys",
            f"{mode}: user {who.name} cannot read it",
            f"readable by {who.name}",
            f"sudo chgrp mqtick {path}; sudo chmod 0640 {path}",
        )
    if keyring.fleet:
        return warn(
            "keys",
            f"{mode}, holds the fleet key: whoever steals it can pose as the time server",
            "the two keys derived for this client",
            "give it `broadcast` and `client` lines only (docs/protocol.md)",
        )
    return ok("keys", mode)
