"""The doctor's checks of the way to chronyd: version, refclock lines, sockets, arriving samples."""

from __future__ import annotations

import errno
import fnmatch
import os
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqtick.client.chrony_lines import DELAYS_NS, refid_for, socket_of
from mqtick.client.doctor.host import Identity, group_name, user_name
from mqtick.service import ChronydError, ChronyVersion, Source, Tracking, why_not_synchronised
from mqtick.service.check import Check, fail, ok, warn

# Below, a poll needs four samples unless `filter 1` says otherwise (chrony commit 12237bf).
_SINGLE_SAMPLE = ChronyVersion(4, 7)
_OLDEST = ChronyVersion(4, 0)
# @{run}/chrony.*.sock and @{run}/chrony/* of Debian's profile.
_APPARMOR_ALLOWS = ("/run/chrony.*.sock", "/run/chrony/*")
_LINES = "mqtick-client chrony-config | sudo tee /etc/chrony/conf.d/mqtick.conf; restart chrony"
_MODE = "srwxrwx--- group mqtick"
_DROP_IN = "install chrony.service.d/mqtick.conf (client/systemd) and restart chrony"


@dataclass(frozen=True, slots=True)
class Refclock:
    """A `refclock SOCK` line."""

    path: str
    options: Mapping[str, str]


def parse_refclocks(lines: Iterable[str]) -> list[Refclock]:
    """Find the `refclock SOCK` lines of a chrony configuration."""
    found = []
    for line in lines:
        words = line.split()
        if [word.lower() for word in words[:2]] != ["refclock", "sock"] or len(words) < 3:
            continue
        path = words[2].split(":")[0]  # options of the driver follow a colon
        options: dict[str, str] = {}
        for name, value in zip(words[3:], [*words[4:], ""], strict=False):
            options.setdefault(name.lower(), value)
        found.append(Refclock(path, options))
    return found


def server_numbers(
    pattern: str, refclocks: Iterable[Refclock], heard: Iterable[int], told: Iterable[str]
) -> list[int]:
    """Return the servers that were heard, are named by the client, or are configured; else [0].

    `pattern` is the setting `chrony.socket`, in which {server} stands for the number.
    """
    paths = {pattern.replace("{server}", str(number)): number for number in range(256)}
    configured = (paths[clock.path] for clock in refclocks if clock.path in paths)
    numbers = {*heard, *configured, *(int(text) for text in told if text.isdecimal())}
    return sorted(numbers) or [0]


def check_version(version: Callable[[], ChronyVersion]) -> Check:
    """Check that chrony is installed and not too old."""
    try:
        found = version()
    except ChronydError as error:
        return fail("chrony", str(error), "chrony 4.0 or later", "sudo apt-get install chrony")
    if found < _OLDEST:
        return fail("chrony", f"version {found}", "4.0 or later", "upgrade the distribution")
    rule = "each line needs `filter 1`" if found < _SINGLE_SAMPLE else "no `filter` needed"
    return ok("chrony", f"version {found}: {rule}")


def check_lines(
    version: Callable[[], ChronyVersion],
    refclocks: Sequence[Refclock],
    pattern: str,
    numbers: list[int],
) -> Iterator[Check]:
    """Check the refclock lines of each server in chrony's configuration, one for each delay."""
    try:
        found = version()
    except ChronydError:
        found = _SINGLE_SAMPLE  # `check_version` has reported it
    by_path = {clock.path: clock for clock in refclocks}
    for number in numbers:
        name, missing = f"refclock lines of server {number}", list[str]()
        remedy = _LINES.replace("config |", f"config --servers {number} |")
        for delay_ns in DELAYS_NS:
            path, delay = socket_of(pattern, number, delay_ns), f"{delay_ns / 1e9:g}"
            if (clock := by_path.get(path)) is None:
                missing.append(delay)
                continue
            options, refid = clock.options, refid_for(number, delay_ns)
            if options.get("refid") != refid:
                yield warn(name, f"refid {options.get('refid', 'not set')}", refid, remedy)
            if _seconds(options.get("delay", "")) < delay_ns / 1e9:
                value = f"delay {options.get('delay', 'not set')}: chronyd claims too much"
                yield warn(name, value, f"delay {delay}", remedy)
            if found < _SINGLE_SAMPLE and options.get("filter") != "1":
                value = f"filter {options.get('filter', 'not set')} with chrony {found}"
                yield fail(name, f"{value}: every sample is dropped silently", "filter 1", remedy)
        if len(missing) == len(DELAYS_NS):
            first = socket_of(pattern, number, DELAYS_NS[0])
            yield fail(name, f"no `refclock SOCK {first}`", "one for each delay", remedy)
        elif missing:
            value = f"none with delay {', '.join(missing)}: chronyd gets nothing less certain"
            yield warn(name, value, "one for each delay", remedy)
        else:
            yield ok(name, f"one for each delay, {refid_for(number)} and others")


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def check_socket(path: str, who: Identity) -> Check:
    """Check that the socket exists, is a socket, can be written by the client, and has a reader."""
    name = f"socket {path}"
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return fail(name, "is missing", "made by chronyd", "see the refclock line; is chronyd up?")
    except OSError as error:
        return fail(name, f"cannot be looked at: {error.strerror}", "a socket", "run this as root")
    owner = f"{user_name(status.st_uid)}:{group_name(status.st_gid)}"
    value = f"{stat.filemode(status.st_mode)} {owner}"
    if not stat.S_ISSOCK(status.st_mode):
        return fail(name, f"{value} is not a socket", "a socket", "remove it and restart chrony")
    if not who.may(status, 2):
        return fail(name, f"{value}: user {who.name} may not write", _MODE, _DROP_IN)
    if status.st_mode & stat.S_IWOTH:
        return warn(name, f"{value}: every user can set the clock", _MODE, _DROP_IN)
    if not _has_reader(path):
        return fail(name, f"{value}, nobody listens", "chronyd", "systemctl start chrony")
    return ok(name, f"{value}, writable by {who.name}")


def _has_reader(path: str) -> bool:
    """Connect without sending; False if the program that made the socket has ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(path)
        except OSError as error:
            return error.errno != errno.ECONNREFUSED  # EACCES for us does not matter
    return True


def check_apparmor(path: str, enabled: Path, profile: Path, local: Path) -> Check:
    """Check that Debian's AppArmor profile lets chronyd make the socket.

    `enabled`: the kernel's parameter; `profile`: chronyd's; `local`: what the owner added to it.
    """
    if _text(enabled).strip() != "Y" or not profile.exists():
        return ok("AppArmor", "not in force for chronyd")
    if any(fnmatch.fnmatchcase(path, allowed) for allowed in _APPARMOR_ALLOWS):
        return ok("AppArmor", f"its profile allows {path}")
    if path in _text(local):
        return ok("AppArmor", f"{local} allows {path}")
    return fail(
        "AppArmor",
        f"chronyd may not make {path}",
        " or ".join(_APPARMOR_ALLOWS),
        f"rename the socket (chrony.socket), or add `{path} rw,` to {local}",
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def check_sources(
    feeds: Mapping[str, Any], sources: Callable[[], Iterable[Source]], numbers: list[int]
) -> Iterator[Check]:
    """Check that samples reach chronyd, which drops silently what it cannot use, and its verdict.

    `feeds` is the table `chrony` of the running client's status.
    """
    try:
        found = {source.name: source for source in sources()}
    except ChronydError as error:
        yield fail("chronyd", str(error), "an answer", "systemctl status chrony")
        return
    for number in numbers:
        feed = feeds.get(str(number), {"sent": {}})
        refid = feed.get("refid", refid_for(number))
        name, source, sent = f"chronyd's source {refid}", found.get(refid), feed["sent"]
        if source is None:
            known = ", ".join(sorted(found)) or "none"
            remedy = "the line is not in what chronyd has read: restart chrony"
            yield fail(name, f"not among its sources ({known})", "known to chronyd", remedy)
        elif "says" not in feed:
            remedy = "the client has none: see the time messages above"
            yield warn(name, "the running client sends no sample", "samples", remedy)
        elif not sent.get("sent"):
            others = ", ".join(f"{count} {what}" for what, count in sent.items()) or "none sent"
            yield fail(name, f"{others}; {feed['says']}", "arriving", "see above")
        else:
            yield _check_source(name, source, sent["sent"], feed["says"])


def _check_source(name: str, source: Source, sent: int, says: str) -> Check:
    age = "never" if source.last_rx_s is None else f"{source.last_rx_s} s ago"
    arriving = f"{sent} samples sent, the last received {age}, reach {source.reach:o} (octal)"
    value = f"{source.state_meaning}; {arriving}"
    limit_s = max(60.0, 4 * 2.0**source.poll)
    if not source.reach or source.last_rx_s is None or source.last_rx_s > limit_s:
        if sent < 4:
            return warn(name, value, "a reach that moves", "wait a minute and ask again")
        return fail(name, value, f"one in the last {limit_s:g} s", says)
    if source.state in "*+-":
        return ok(name, value)
    if source.state == "x":
        remedy = "who is right? `delay` too small, or NTP servers behind an asymmetric line"
        return warn(name, value, "no falseticker", remedy)
    return warn(name, value, "selectable", "wait for some polls; then see reach")


def check_tracking(tracking: Callable[[], Tracking]) -> Check:
    """Check that chronyd disciplines the kernel's clock, and by which source."""
    try:
        found = tracking()
    except ChronydError as error:
        return fail("clock discipline", str(error), "chronyd's answer", "systemctl status chrony")
    reason = why_not_synchronised(found)
    if reason is not None:
        return fail("clock discipline", reason, "synchronised", "see the lines above")
    return ok(
        "clock discipline",
        f"follows {found.name}, stratum {found.stratum}, root distance "
        f"{found.root_distance_ns / 1000:.0f} us, skew {found.skew_ppm:g} ppm, "
        f"leap {found.leap.name.lower()}",
    )
