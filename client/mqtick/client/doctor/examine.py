"""`mqtick-client doctor`: looks for obstacles to good time, one line per check."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mqtick.client.chrony_lines import DELAYS_NS, socket_of
from mqtick.client.config import Settings, check_together, client_name
from mqtick.client.disagreement import Disagreement
from mqtick.client.doctor import broker as at_broker
from mqtick.client.doctor import chrony as at_chrony
from mqtick.client.doctor import client as at_client
from mqtick.client.doctor import host as at_host
from mqtick.client.doctor import probes as probing
from mqtick.client.doctor.listen import Heard, listen
from mqtick.client.doctor.result import Off, Steering, check_result
from mqtick.client.first_time import Trouble
from mqtick.client.interval import PROGRAM, NowError, now_from
from mqtick.client.settings_check import check_settings
from mqtick.mqtt.broker import broker_from
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keyring, load_key_file
from mqtick.service import (
    ChronydError,
    ChronyVersion,
    Source,
    Status,
    StatusError,
    Tracking,
    chronyd,
)
from mqtick.service.broker_checks import check_link
from mqtick.service.check import Check, fail, fresh_values, guarded, known_status, ok, report
from mqtick.service.commandline import Exit
from mqtick.service.processes import Process, processes
from mqtick.service.status_file import status_path

_FOREIGN = ("1451.1.6", "draft-2021")


def _configuration() -> list[str]:
    """Return chrony's configuration, included files and all, as chronyd itself prints it."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
    done = subprocess.run(
        ["chronyd", "-p"],
        env={"PATH": path, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=5,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise ChronydError("failed", f"chronyd does not start with its configuration: {said}")
    return done.stdout.splitlines()


@dataclass(frozen=True, slots=True)
class Host:
    """The places at which the doctor looks; tests use others."""

    proc: Path = Path("/proc")
    apparmor: Path = Path("/sys/module/apparmor/parameters/enabled")
    profile: Path = Path("/etc/apparmor.d/usr.sbin.chronyd")
    local_profile: Path = Path("/etc/apparmor.d/local/usr.sbin.chronyd")
    now_s: Callable[[], float] = time.time
    stamps: Callable[[], tuple[StampSource, StampSource]] = at_host.probe_stamps
    version: Callable[[], ChronyVersion] = chronyd.version
    configuration: Callable[[], list[str]] = _configuration
    vmware_syncs: Callable[[], bool] = at_host.vmware_syncs
    tracking: Callable[..., Tracking] = chronyd.tracking
    sources: Callable[..., tuple[Source, ...]] = chronyd.sources
    listen_s: float = 3.0


def examine(settings: Settings, host: Host, *, broker_only: bool = False) -> Iterator[Check]:
    """Yield the findings one by one; never raises."""
    path = status_path(PROGRAM, settings.state_folder)
    status = known_status(path, PROGRAM)
    running = fresh_values(status)
    heard: list[Heard] = []
    if broker_only:
        yield from guarded("broker", _at_broker, settings, host, heard, running)
        return
    who = at_host.client_identity(status.pid if isinstance(status, Status) else None, host.proc)
    steers = settings.discipline == "chrony"
    running_here = list(processes(host.proc))
    lines = functools.cache(host.configuration)
    at_the_broker: Iterable[Check] = guarded("broker", _at_broker, settings, host, heard, running)
    off = _off(status)
    if isinstance(off, str):  # no client knows: find out ourselves, before the first line
        at_the_broker = list(at_the_broker)
        faults = (each for each in at_the_broker if each.result != "OK")
        why = next((f"{each.name}: {each.value}" for each in faults), off)
        off = next((each.off for each in heard if each.off), None) or why
    steering = _steering(settings, host, lines, running_here) if steers else None
    yield from guarded("result", check_result, off, steering)
    dates = settings.broker.startswith(("mqtts", "wss")) and not settings.keys_file
    yield from guarded("system clock", at_host.check_clock, host.now_s, needs_dates=dates)
    yield from guarded(
        "other time daemons",
        at_host.check_daemons,
        running_here,
        steers=steers,
        vmware=host.vmware_syncs,
    )
    folders = str(path.parent), os.path.dirname(settings.sample_log), "/var/lib/chrony"
    yield from guarded("disk", at_host.check_disk, *folders)
    yield from guarded("timestamps", at_host.check_stamps, host.stamps, settings.timestamps)
    yield from guarded("keys", at_host.check_keys, settings.keys_file, who)
    yield from at_client.check_doors(
        follow_unsigned=settings.follow_unsigned and bool(settings.keys_file),
        trust_broker=settings.estimator.trust_broker,
        trust_broker_residence=settings.estimator.trust_broker_residence,
    )
    yield from guarded("client", at_client.check_client, status)
    yield from at_the_broker
    if not steers:
        yield ok("discipline", 'none: nobody steers the clock (discipline = "chrony" would)')
        return
    numbers = [number for each in heard for number in each.servers]
    feeds = status.values.get("chrony", {}) if isinstance(status, Status) else {}
    yield from guarded("chrony", _at_chrony, settings, host, who, numbers, feeds, lines)


def _off(status: Status | StatusError) -> Off | str:
    """Return how far off the clock is by the client that runs, or why that is not known."""
    if isinstance(status, StatusError):
        return str(status)
    if status.is_old:
        return status.why_old()
    try:
        now = now_from(status)
    except NowError as error:
        return str(error)
    return Off(now.estimate_ns - now.clock_ns, now.bound_ns)


def _steering(
    settings: Settings, host: Host, lines: Callable[[], list[str]], found: Sequence[Process]
) -> Steering:
    tracking, said, keys = None, list[str](), settings.chrony
    with contextlib.suppress(ChronydError):
        tracking = host.tracking(host=keys.host or None, port=keys.port)
    with contextlib.suppress(ChronydError, OSError, subprocess.SubprocessError):
        said = [] if keys.host else lines()
    chronyds = [] if keys.host else [each for each in found if each.name == "chronyd"]
    touches_nothing = bool(chronyds) and all("-x" in each.words for each in chronyds)
    return Steering.of(tracking, said, touches_nothing=touches_nothing)


def _at_broker(
    settings: Settings, host: Host, found: list[Heard], running: Mapping[str, Any]
) -> Iterator[Check]:
    name = client_name(settings)
    try:
        check_together(settings)
        broker = broker_from(settings)
        keyring = load_key_file(settings.keys_file) if settings.keys_file else Keyring()
        check_settings(settings, keyring, name)
    except (ValueError, OSError) as error:
        yield fail("broker", str(error), "usable settings", "correct the configuration")
        return
    use_two_way = settings.estimator.use_two_way
    # Two clients with the same name would count each other's answers as unasked.
    asks = use_two_way and not (running.get("connected") and running.get("name") == name)
    settings = replace(settings, estimator=replace(settings.estimator, use_two_way=asks))
    if settings.format == "auto" and settings.keys_file and not settings.follow_unsigned:
        settings = replace(settings, format="precise")  # the client does the same
    # 1451.1.6 is published every 5 s by the open implementation.
    listen_s = host.listen_s * (2 if settings.format in _FOREIGN else 1)
    heard = listen(settings, broker, keyring, name, listen_s=listen_s)
    found.append(heard)
    yield from check_link(heard.link)
    if heard.link.connected:
        yield at_broker.check_subscriptions(heard, settings.format)
        yield from at_broker.check_times(heard, settings.format, listen_s)
        yield from at_broker.check_statuses(heard)
        yield from at_broker.check_exchanges(heard, use_two_way=asks)
        if use_two_way and not asks:
            yield from at_client.check_rows(running.get("servers", ()))
        if settings.format == "auto" and heard.foreign and not heard.servers and not running:
            # By now the client would follow one of these formats, and judge its time.
            again = replace(settings, format=min(heard.foreign))
            heard.troubles = listen(again, broker, keyring, name, listen_s=2 * listen_s).troubles
        yield from at_broker.check_belief(heard.troubles | _troubles(running))
        yield from at_broker.check_agreement(_disagreements(running, heard))
        yield from probing.check_promptness(heard.probes)
        yield from probing.check_access(
            heard.probes,
            hears_time=any(server.times for server in heard.servers.values()),
            has_keys=bool(settings.keys_file),
            has_accounts=not heard.link.lease_s,
            account=settings.username,
        )


def _disagreements(running: Mapping[str, Any], heard: Heard) -> Sequence[Disagreement]:
    """Return what the running client found, or else what we heard in some seconds."""
    if "disagreements" not in running:
        return heard.disagreements
    return [Disagreement(tuple(row["servers"]), row["gap_ns"]) for row in running["disagreements"]]


def _troubles(running: Mapping[str, Any]) -> dict[str, Trouble]:
    """Return which servers' time the running client does not believe, and why."""
    rows = [row for row in running.get("servers", ()) if row.get("trouble")]
    return {
        str(row["format"] if row["server"] is None else row["server"]): Trouble(**row["trouble"])
        for row in rows
    }


def _at_chrony(
    settings: Settings,
    host: Host,
    who: at_host.Identity,
    heard: Iterable[int],
    feeds: dict[str, Any],
    lines: Callable[[], list[str]],
) -> Iterator[Check]:
    pattern, where = settings.chrony.socket, (settings.chrony.host or None, settings.chrony.port)
    sources = functools.partial(host.sources, host=where[0], port=where[1])
    version = functools.cache(host.version)
    yield from guarded("chrony", at_chrony.check_version, version)
    refclocks: list[at_chrony.Refclock] | None = None
    try:
        if not settings.chrony.host:  # the configuration of a chronyd elsewhere cannot be read
            refclocks = at_chrony.parse_refclocks(lines())
    except (ChronydError, OSError, subprocess.SubprocessError) as error:
        remedy = "chronyd -p -f /etc/chrony/chrony.conf names the line"
        yield fail("chrony's configuration", str(error), "one that chronyd reads", remedy)
    numbers = at_chrony.server_numbers(pattern, refclocks or (), heard, feeds)
    if refclocks is not None:
        yield from guarded(
            "refclock lines", at_chrony.check_lines, version, refclocks, pattern, numbers
        )
    for number in numbers:  # of its sockets, the one in use
        first = socket_of(pattern, number, DELAYS_NS[0])
        path = feeds.get(str(number), {}).get("socket", first)
        profile = host.apparmor, host.profile, host.local_profile
        yield from guarded("AppArmor", at_chrony.check_apparmor, path, *profile)
        yield from guarded("socket", at_chrony.check_socket, path, who)
    yield from guarded("chronyd's sources", at_chrony.check_sources, feeds, sources, numbers)
    tracking = functools.partial(host.tracking, host=where[0], port=where[1])
    yield from guarded("clock discipline", at_chrony.check_tracking, tracking)


def run(
    settings: Settings, as_json: bool, host: Host | None = None, *, broker_only: bool = False
) -> int:
    """Make all checks and print them as they come; exit code 1 when one failed."""
    checks = examine(settings, host or Host(), broker_only=broker_only)
    return Exit.GOOD if report(checks, as_json=as_json) else Exit.FAILED
