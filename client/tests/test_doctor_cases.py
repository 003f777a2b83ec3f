"""Faults from public reports, each with the line that names it; and set-ups without a fault.

The host is simulated: processes, chrony's configuration, what chronyc printed, and what the client
wrote. Where a broker is the fault, it is a real one.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from live import House, house
from test_client_cli import server_row, values_of
from test_doctor import DERIVED, KERNEL, OLD, USER, add_process

from demo.local_broker import program
from mqtick.client.chrony_lines import refclock_lines
from mqtick.client.config import ChronyKeys, Settings
from mqtick.client.doctor import examine as doctor
from mqtick.client.doctor.listen import Heard, Server
from mqtick.mqtt.causes import Cause
from mqtick.mqtt.link import Link
from mqtick.mqtt.stamps import StampSource
from mqtick.service import ChronydError, ChronyVersion, StatusFile
from mqtick.service.check import Check
from mqtick.service.chronyd_csv import parse_sources, parse_tracking

__all__ = ["house"]  # a fixture

MS, SECOND = 1_000_000, 1_000_000_000
LINES = refclock_lines(OLD, [0], run_folder="{folder}")
MAKESTEP = "makestep 1.0 3"
TRACKING = (
    "4D515430,MQT0,2,1800000000.0,0.000001,0.000002,0.000003,1.5,0.001,0.5,0.002,0.0001,16.0,Normal"
)
NO_TRACKING = "00000000,,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised"
SOURCES = "#,*,MQT0,1,2,377,5,0.000001,0.000002,0.001"
SERVER = Server(times=3, leap=0, stratum=1, exchanges=8, least_delay_ns=300_000, announced=True)
GOOD_LINK = Link("mqtt://broker.lan:1883")
FEED = {"sent": {"sent": 40}, "says": "they arrive"}
PINS = {"pin arrival": "There is no GPIO chip at /dev/gpiochip*, so no pin is opened"}


def none_here() -> Any:
    raise ChronydError("not-running", "chronyd does not answer")


@dataclass(frozen=True)
class Setup:
    """A host where chronyd follows mqtick with keys, and all is well; a case changes some of it."""

    settings: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] | None = field(default_factory=dict)
    age_ns: int = 0
    folder_mode: int = 0o755
    socket_mode: int = 0o770
    lines: tuple[str, ...] = (*LINES, MAKESTEP)
    running: tuple[str, ...] = ("systemd", "chronyd -F 1", "mqtick-client run")
    vmware: bool = False
    tracking: str = TRACKING
    sources: str = SOURCES
    version: ChronyVersion = OLD
    stamps: StampSource = KERNEL
    now_s: Callable[[], float] = time.time
    heard: dict[str, Any] = field(default_factory=dict)
    url: str = ""
    """A real broker's address; empty: nobody is asked."""


def examined(at: Path, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the doctor finds on such a host."""
    folder, proc = at / "state", at / "proc"
    folder.mkdir()
    proc.mkdir()
    for pid, line in enumerate(setup.running, 100):
        add_process(proc, pid, line)
        if line.startswith("chronyd"):
            add_process(proc, pid + 1000, line, parent=pid)  # Debian's has a helper
    if setup.status is not None:
        values = values_of(**{"keys": ["k"], "refused": {}, "chrony": {"0": FEED}, **setup.status})
        StatusFile(folder / "status.json", "mqtick-client").write(values)
        if setup.age_ns:
            text = (folder / "status.json").read_text()
            written = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - setup.age_ns
            start = text.index('"written_boottime_ns": ')
            end = text.index(",", start)
            text = f'{text[:start]}"written_boottime_ns": {written}{text[end:]}'
            (folder / "status.json").write_text(text)
    keys = at / "keys"
    keys.touch(mode=0o600)
    keys.write_text(DERIVED)
    known: dict[str, Any] = {
        "name": "pi7",
        "discipline": "chrony",
        "keys_file": str(keys),
        "state_folder": str(folder),
        "chrony": ChronyKeys(socket=f"{at}/chrony.mqtick{{server}}.sock"),
        "connect_timeout_s": 0.5,
    }
    settings = Settings(**{**known, "broker": setup.url or "mqtt://broker.lan", **setup.settings})
    facts: dict[str, Any] = {
        "link": GOOD_LINK,
        "servers": {0: SERVER},
        "granted": {"mqtick/t/+": True},
    }
    found = Heard(**{**facts, **setup.heard})
    if not setup.url:
        monkeypatch.setattr(doctor, "listen", lambda *_args, **_more: found)
    host = doctor.Host(
        proc=proc,
        apparmor=at / "none",
        now_s=setup.now_s,
        stamps=lambda: (setup.stamps, setup.stamps),
        version=lambda: setup.version,
        configuration=lambda: [line.format(folder=at) for line in setup.lines],
        vmware_syncs=lambda: setup.vmware,
        tracking=lambda **_: parse_tracking(setup.tracking) if setup.tracking else none_here(),
        sources=lambda **_: parse_sources(setup.sources) if setup.tracking else none_here(),
        listen_s=0.3,
    )
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as door:
        door.bind(f"{at}/chrony.mqtick0.sock")
        os.chmod(f"{at}/chrony.mqtick0.sock", setup.socket_mode)
        folder.chmod(setup.folder_mode)
        try:
            return list(doctor.examine(settings, host))
        finally:
            folder.chmod(0o755)


def off(seconds: float, **more: Any) -> dict[str, Any]:
    """What a client writes whose clock is so far behind the time."""
    return {"offset_ns": round(seconds * SECOND), **more}


def row(**changes: Any) -> dict[str, Any]:
    """The status of a client with one server."""
    known = server_row(changes.get("state", "synchronised"), changes.pop("half_ns", 20_000))
    return {"servers": [{**known, **changes}]}


def unlinked(error: str, cause: Cause) -> dict[str, Any]:
    return {"link": replace(GOOD_LINK, connected=False, error=error, cause=cause)}


BEHIND_ANOTHER = {"servers": {0: replace(SERVER, leap=3)}}
SLOW = {
    "state": "unsynchronised",
    "verdicts": [{"kind": "two-way", "verdict": "refused", "reason": "delay", "count": 40}],
}
APART = {"disagreements": [{"servers": ["0", "1"], "gap_ns": SECOND // 2}]}

CASES: dict[str, tuple[Setup, str]] = {
    "100 s off, makestep used up": (
        Setup(status=off(100), tracking=TRACKING.replace(",0.000001,", ",100.0,", 1)),
        "FAIL result: your clock is off by +100.000 s +- ... us; chronyd will need at least "
        "20 min of slewing; makestep is used up (expected right, or soon) -> sudo chronyc makestep",
    ),
    "an hour off, and chronyd does not see it": (
        Setup(status=off(-3600)),
        "FAIL result: your clock is off by -3600.000 s +- ... us; chronyd does not know it",
    ),
    "an hour off, without makestep": (
        Setup(
            status=off(3600),
            lines=LINES,
            tracking=TRACKING.replace(",0.000001,", ",3600.0,", 1),
        ),
        "chronyd will need at least 12 h of slewing; chrony.conf has no makestep",
    ),
    "an hour off, and nobody is to steer": (
        Setup(settings={"discipline": "none"}, status=off(3600)),
        "WARN result: your clock is off by +3600.000 s +- ... us; nobody corrects it",
    ),
    "chronyd -x, as in a container": (
        Setup(status=off(0.5), running=("chronyd -F 1 -x",)),
        "FAIL result: your clock is off by +500.0 ms +- ... us; chronyd runs with -x",
    ),
    "chronyd has ended": (
        Setup(status=off(0.5), tracking=""),
        "FAIL result: your clock is off by +500.0 ms +- ... us; chronyd does not answer",
    ),
    "delays below the bound: 40 ms each way": (
        Setup(lines=(LINES[0], MAKESTEP)),
        "WARN refclock lines of server 0: none with delay 0.02, 0.1, 1: chronyd gets nothing less",
    ),
    "a delay that lets chronyd claim too much": (
        Setup(lines=tuple(line.replace("0.1 ", "0.0001 ") for line in LINES)),
        "WARN refclock lines of server 0: delay 0.0001: chronyd claims too much",
    ),
    "a round trip above the limit": (
        Setup(status={"state": "unsynchronised", **row(delay_ns=1200 * MS, **SLOW)}),
        "FAIL time of server 0: not known: a round trip of 1200 ms is above "
        "estimator.maximum_delay_us, 40 samples are refused",
    ),
    "two clients with one name": (
        Setup(status={"name_heard_twice": True}),
        "FAIL name: another client asks under the name pi7",
    ),
    "a pin without a chip": (
        Setup(status={"troubles": PINS}),
        "WARN pin arrival: There is no GPIO chip",
    ),
    "the port of the metrics is taken": (
        Setup(status={"troubles": {"metrics": "metrics cannot be served at 127.0.0.1:9753"}}),
        "WARN metrics: metrics cannot be served at 127.0.0.1:9753",
    ),
    "a status folder that takes no file": (
        Setup(age_ns=60 * SECOND, folder_mode=0o555),
        f"FAIL client: its status is 60 s old: mqtick-client runs (process {os.getpid()}), but "
        "cannot write its status: the folder",
    ),
    "a second chronyd": (
        Setup(running=("chronyd -F 1", "chronyd -f /etc/other.conf")),
        "FAIL chronyd: it runs twice (process 100 and process 101)",
    ),
    "timesyncd beside chronyd": (
        Setup(running=("chronyd", "systemd-timesyncd")),
        "systemd-timesyncd (process 101) steers the clock, too (expected none) -> sudo systemctl "
        "disable --now systemd-timesyncd",
    ),
    "ntpsec beside chronyd": (Setup(running=("chronyd", "ntpd -g")), "ntpd (ntp, ntpsec or open"),
    "ntpd-rs beside chronyd": (Setup(running=("chronyd", "ntp-daemon")), "disable --now ntpd-rs"),
    "VirtualBox sets the time": (
        Setup(running=("chronyd", "VBoxService --pidfile /run/x")),
        "VBoxService --disable-timesync",
    ),
    "VMware sets the time": (
        Setup(running=("chronyd", "vmtoolsd"), vmware=True),
        "sudo vmware-toolbox-cmd timesync disable",
    ),
    "a dead IPv6 address": (
        Setup(heard={"link": replace(GOOD_LINK, dead=("2001:db8::1",))}),
        "WARN broker's addresses: 2001:db8::1 does not answer",
    ),
    "TLS asked of a plain port": (Setup(url="mqtts at mqtt"), "without TLS: write mqtt://"),
    "a plain connection to TLS": (Setup(url="mqtt at mqtts"), "speaks TLS: write mqtts://"),
    "a certificate of another name": (Setup(url="other"), "a name that is in its certificate"),
    "a certificate not valid yet": (Setup(url="future"), "is the system clock right?"),
    "a broker that wants our certificate": (
        Setup(url="private"),
        "the broker wants a certificate of ours: certificate_file",
    ),
    "an identifier that is not taken": (
        Setup(heard=unlinked("Client identifier not valid", Cause.IDENTIFIER)),
        "FAIL broker: Client identifier not valid (expected a connection) -> client_id: ",
    ),
    "taken over again and again": (
        Setup(status={"connects": 400, "last_error": "Session taken over"}),
        "WARN connection: made 400 times, lost last because: Session taken over",
    ),
    "no battery clock, and it is 1970": (Setup(now_s=lambda: 60.0), "system clock: 1970-01-01T00"),
    "an old chrony without filter 1": (
        Setup(lines=tuple(line.replace(" filter 1", "") for line in LINES)),
        "every sample is dropped silently (expected filter 1)",
    ),
    "a socket that everybody may write": (Setup(socket_mode=0o777), "every user can set the clock"),
    "a falseticker behind an asymmetric line": (
        Setup(sources=SOURCES.replace("#,*", "#,x")),
        "WARN chronyd's source MQT0: a falseticker",
    ),
    "two servers that cannot both be right": (Setup(status=APART), "FAIL servers 0 and 1: at leas"),
    "a server that is not synchronised": (Setup(heard=BEHIND_ANOTHER), "its chronyd has no source"),
    "no kernel timestamps": (Setup(stamps=USER), "WARN timestamps: user on arrival"),
}

HEALTHY: dict[str, Setup] = {
    "chronyd follows mqtick": Setup(),
    "it measures only": Setup(settings={"discipline": "none"}, lines=(), tracking=""),
    "it measures only, beside timesyncd": Setup(
        settings={"discipline": "none"}, running=("systemd-timesyncd", "mqtick-client run")
    ),
    "a chrony that needs no filter": Setup(
        lines=tuple(line.replace(" filter 1", "") for line in LINES), version=ChronyVersion(4, 7)
    ),
    "beside NTP servers, combined": Setup(
        sources="^,*,192.0.2.1,1,6,377,5,0.0001,0.0002,0.01\n" + SOURCES.replace("#,*", "#,+")
    ),
    "a long way, 40 ms each": Setup(
        status={"half_ns": 41 * MS, **row(half_ns=41 * MS)},
    ),
    "a clock that is 3 ms off, being slewed": Setup(status=off(0.003)),
    "VMware, whose tools leave the clock alone": Setup(running=("chronyd", "vmtoolsd")),
    "VirtualBox, told to leave the clock alone": Setup(
        running=("chronyd", "VBoxService --disable-timesync")
    ),
    "a broker of MQTT 3.1.1 in the settings": Setup(
        settings={"mqtt_version": "3.1.1"}, heard={"link": replace(GOOD_LINK, version="3.1.1")}
    ),
    "pins, metrics and a few lost replies": Setup(
        status={"troubles": {}, "refused": {"no-reply": 2}, "connects": 3}
    ),
    "two servers that agree": Setup(
        heard={"servers": {0: SERVER, 1: SERVER}},
        lines=(*refclock_lines(OLD, [0, 1], run_folder="{folder}"), MAKESTEP),
        status={"chrony": dict.fromkeys("01", FEED)},
        sources=SOURCES + "\n" + SOURCES.replace("#,*,MQT0", "#,+,MQT1"),
    ),
    "over TLS": Setup(settings={"broker": "mqtts://broker.lan"}),
}


def address(house: House, url: str) -> dict[str, Any]:
    """The settings for one of the broker's doors: `SCHEME at DOOR`, or a door."""
    scheme, _, door = url.rpartition(" at ")
    there = house.urls[door]
    if scheme:
        there = f"{scheme}://{there.partition('://')[2]}"
    tls = {"ca_file": f"{house.folder}/authority.pem"} if there.startswith("mqtts") else {}
    return {"broker": there, **tls}


def lines_of(found: list[Check]) -> str:
    return "\n".join(check.line() for check in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_fault_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    setup, expected = CASES[name]
    if setup.url:
        if program("mosquitto") is None:
            pytest.skip("mosquitto is not installed; install it with: apt install mosquitto")
        at = address(request.getfixturevalue("house"), setup.url)
        setup = replace(setup, settings={**at, "keys_file": ""}, status=None)
    found = examined(tmp_path, setup, monkeypatch)
    pattern = ".*".join(map(re.escape, expected.split("...")))
    named = [check for check in found if re.search(pattern, check.line())]
    assert named, lines_of(found)
    assert {check.result for check in named} <= {"WARN", "FAIL"}
    assert found[0].name == "result"


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_host_has_no_false_alarm(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "two servers that agree":
        door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        door.bind(f"{tmp_path}/chrony.mqtick1.sock")
        (tmp_path / "chrony.mqtick1.sock").chmod(0o770)
    found = examined(tmp_path, HEALTHY[name], monkeypatch)
    assert {check.result for check in found} == {"OK"}, lines_of(found)
    assert found[0].line().startswith("OK   result: your clock is off by ")
