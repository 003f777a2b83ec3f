"""The doctor: each probe finds the fault it is for, says what to do, and never breaks."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chronyd_rig import ChronydRig, chronyds
from udp_peer import Door

from mqtick.client.chrony_lines import refclock_lines
from mqtick.client.config import ChronyKeys, Settings
from mqtick.client.doctor import broker as at_broker
from mqtick.client.doctor import chrony as at_chrony
from mqtick.client.doctor import client as at_client
from mqtick.client.doctor import examine as doctor
from mqtick.client.doctor import host as at_host
from mqtick.client.doctor import listen as doctor_listen
from mqtick.client.doctor import probes as probing
from mqtick.client.doctor.examine import Host
from mqtick.client.doctor.host import Identity
from mqtick.client.doctor.listen import Heard, Server
from mqtick.client.doctor.probes import Probes
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.link import Link
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.stamps import Stamp, StampSource
from mqtick.protocol.auth import Keyring
from mqtick.protocol.topics import TopicTree
from mqtick.service import ChronydError, ChronyVersion, Source, Status, StatusError, StatusFile
from mqtick.service.check import Check, fail, guarded, ok, warn
from mqtick.service.chronyd_csv import parse_sources, parse_tracking
from mqtick.service.processes import processes

__all__ = ["chronyds"]  # a fixture

NOW_S = 1_800_000_000.0
ROOT = Identity("root", 0, frozenset({0}))
CLIENT = Identity("mqtick", 990, frozenset({991}))
OLD, NEW = ChronyVersion(4, 3), ChronyVersion(4, 7)
PATTERN = "/run/chrony.mqtick{server}.sock"
GOOD_LINES = refclock_lines(OLD, [0])
GOOD_LINE = GOOD_LINES[0]
DERIVED = f"broadcast {'ab' * 16}\nclient {'cd' * 16}\n"
KERNEL, USER = StampSource.KERNEL, StampSource.USER

Probe = Callable[[Path], Check | Iterable[Check]]
"""Looks at something that it has put into a folder."""


def judged(cases: dict[str, tuple[Probe, str, str]]) -> Callable[[Any], Any]:
    """Mark `test(probe, results, says, tmp_path)`, with a name for each case."""
    return pytest.mark.parametrize(("probe", "results", "says"), cases.values(), ids=[*cases])


def assert_judged(found: Check | Iterable[Check], results: str, says: str) -> None:
    """The results, in their order, and what some line of them says."""
    checks = [found] if isinstance(found, Check) else list(found)
    assert " ".join(check.result for check in checks) == results
    assert says in "\n".join(check.line() for check in checks)
    assert all(one.result == "OK" or (one.expectation and one.remedy) for one in checks)


# -- what a finding looks like ---------------------------------------------------------------------


def test_a_finding_is_a_line_with_result_value_expectation_and_remedy() -> None:
    check = fail("broker", "silent", "an answer", "start it")
    assert check.line() == "FAIL broker: silent (expected an answer) -> start it"
    assert ok("clock", "good").line() == "OK   clock: good"
    coloured = warn("keys", "none", "some", "make some").line(colours=True)
    assert coloured.startswith("\033[33mWARN\033[0m keys: none")


def test_a_probe_that_breaks_is_a_finding_of_its_own() -> None:
    def probe() -> Iterator[Check]:
        yield ok("first", "good")
        raise RuntimeError("no such thing")

    assert_judged(guarded("probe", probe), "OK FAIL", "RuntimeError: no such thing")


# -- this host -------------------------------------------------------------------------------------


def daemons(*names: str, steers: bool = True, vmware: bool = False) -> Probe:
    def probe(proc: Path) -> Iterator[Check]:
        for number, name in enumerate(names, 100):
            add_process(proc, number, name)
        found = list(processes(proc))
        return at_host.check_daemons(found, steers=steers, vmware=lambda: vmware)

    return probe


def add_process(proc: Path, pid: int, line: str, parent: int = 1) -> None:
    """Make what /proc says of a process: `line` is its command line."""
    words = line.split()
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({words[0][:15]}) S {parent} 0 0")
    (proc / str(pid) / "cmdline").write_text("\0".join(words) + "\0")


def key_file(folder: Path, text: str, mode: int = 0o600) -> str:
    file = folder / "keys"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def clock(now_s: float, *, dates: bool = False) -> Probe:
    return lambda _: at_host.check_clock(lambda: now_s, needs_dates=dates)


def keys(text: str | None, mode: int = 0o600, who: Identity = ROOT) -> Probe:
    return lambda at: at_host.check_keys(
        str(at / "away") if text is None else key_file(at, text, mode), who
    )


def stamps(*found: StampSource) -> Probe:
    return lambda _: at_host.check_stamps(lambda: (found[0], found[1]), "auto")


def not_asked() -> Any:
    raise AssertionError


@judged(
    {
        "a clock of this decade": (clock(NOW_S), "OK", "2027-01-15"),
        "a clock in the past": (clock(0.0), "WARN", "1970-01-01"),
        "and certificates": (clock(0.0, dates=True), "FAIL", "1970-01-01"),
        "nobody else steers": (daemons("systemd", "chronyd", "mqtick-client", "ntpdx"), "OK", ""),
        "timesyncd": (daemons("x", "systemd-timesyn"), "FAIL", "systemd-timesyncd (process 101)"),
        "ntpsec": (daemons("ntpd"), "FAIL", "ntpsec"),
        "ntpd-rs": (daemons("ntp-daemon"), "FAIL", "ntpd-rs"),
        "linuxptp": (daemons("phc2sys"), "FAIL", "disable --now phc2sys"),
        "somebody else may steer": (daemons("ntpd", steers=False), "OK", "which is fine"),
        "kernel stamps": (stamps(KERNEL, KERNEL), "OK", "kernel on arrival"),
        "hardware stamps": (stamps(StampSource.HARDWARE, KERNEL), "OK", "hardware on arrival"),
        "one without": (stamps(KERNEL, USER), "WARN", "user on transmission"),
        "both without": (stamps(USER, USER), "WARN", "user on arrival"),
        "stamps switched off are not probed": (
            lambda _: at_host.check_stamps(not_asked, "user"),
            "WARN",
            "as configured",
        ),
        "keys of this client": (keys(DERIVED, 0o640), "OK", "mode 0640"),
        "one key": (keys(f"broadcast {'ab' * 16}\n"), "OK", ""),
        "no keys": (lambda _: at_host.check_keys("", ROOT), "WARN", "anyone who may publish"),
        "keys open to all": (keys(DERIVED, 0o644), "FAIL", "open to every user"),
        "keys that are none": (keys("fleet abc\n"), "FAIL", "pairs of hexadecimal digits"),
        "an empty key file": (keys(""), "FAIL", "holds no key"),
        "a missing key file": (keys(None), "FAIL", "No such file"),
        "keys of somebody else": (keys(DERIVED, who=CLIENT), "FAIL", "user mqtick cannot read it"),
        "the fleet's key": (keys(f"fleet {'ab' * 16}\n"), "WARN", "holds the fleet key"),
    }
)
def test_this_host_is_judged(tmp_path: Path, probe: Probe, results: str, says: str) -> None:
    assert_judged(probe(tmp_path), results, says)


def test_the_probe_finds_the_kernels_timestamps_on_this_host() -> None:
    assert at_host.probe_stamps() == (KERNEL, KERNEL)


@pytest.mark.parametrize(
    ("uid", "gids", "mode", "may"),
    [
        (0, set(), 0o000, True),
        (990, {991}, 0o200, False),
        (990, {0}, 0o020, True),
        (990, {991}, 0o020, False),
        (990, {991}, 0o002, True),
        (990, {0}, 0o002, False),  # the class of the group decides, and it may not
    ],
)
def test_permission_is_judged_as_the_kernel_does(
    tmp_path: Path, uid: int, gids: set[int], mode: int, may: bool
) -> None:
    file = tmp_path / "file"
    file.touch()
    status = os.stat(file)
    as_root = os.stat_result((stat.S_IFREG | mode, *status[1:4], 0, 0, *status[6:]))
    assert Identity("somebody", uid, frozenset(gids)).may(as_root, 2) is may


def test_the_client_is_who_its_process_says(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "status").write_text(
        "Name:\tmqtick-client\nUid:\t4242\t4343\t4242\t4242\nGid:\t10\t11\t10\t10\nGroups:\t5 6 \n"
    )
    who = at_host.client_identity(77, tmp_path)
    assert (who.uid, who.gids) == (4343, {11, 5, 6})


def test_a_client_that_has_ended_leaves_the_user_mqtick_or_ourselves(tmp_path: Path) -> None:
    who = at_host.client_identity(77, tmp_path)
    assert who.name == "mqtick" or who.uid == os.geteuid()


# -- the client that runs --------------------------------------------------------------------------


def status_of(age_s: float = 0.5, **values: Any) -> Status:
    known = {"state": "synchronised", "connected": True, "refused": {}, **values}
    return Status("mqtick-client", 77, int(age_s * 1e9), known)


def client(*ages_s: float, **values: Any) -> Probe:
    return lambda _: at_client.check_client(status_of(*ages_s, **values))


REFUSED = {"tag": 3, "replayed": 9, "no-reply": 2, "before-exchange": 7}
ROW = {"server": 3, "delay_ns": 250_000, "kind": "echo"}
VERDICTS = (("used", "selected", 1500), ("kept", "not-least", 600), ("refused", "contradicts", 25))


def verdicts(*found: tuple[str, str, int]) -> list[dict[str, Any]]:
    keys = ("verdict", "reason", "count")
    return [{"kind": "two-way", **dict(zip(keys, one, strict=True))} for one in found]


def rows(**values: Any) -> Probe:
    return lambda _: at_client.check_rows([{**ROW, **values}])


def doors(are_open: bool) -> Probe:
    return lambda _: at_client.check_doors(
        follow_unsigned=are_open, trust_broker=are_open, trust_broker_residence=are_open
    )


@judged(
    {
        "all is well": (client(), "OK", "process 77, synchronised"),
        "holdover": (client(state="holdover"), "WARN", "holdover"),
        "an old status": (client(60.0), "FAIL", "60 s old"),
        "not connected": (
            client(connected=False, last_error="no route"),
            "FAIL",
            "connected: no route",
        ),
        "no client": (
            lambda _: at_client.check_client(StatusError("/run/x: there is no status")),
            "WARN",
            "client: /run/x: there is no status",
        ),
        "refused, but the rest is past or nobody's fault": (
            client(refused=REFUSED),
            "OK WARN",
            "3 tag (expected none) -> the keys differ",
        ),
        "refused, but a hundred times as many were good": (
            client(refused=REFUSED, servers=[{"verdicts": verdicts(*VERDICTS[:2])}]),
            "OK",
            "synchronised",
        ),
        "samples that contradict": (
            client(servers=[{"verdicts": verdicts(*VERDICTS)}]),
            "OK WARN",
            "25 contradicts (expected none) -> somebody steps the clock",
        ),
        "refused, and it waits for its exchange": (
            client(state="unsynchronised", refused=REFUSED),
            "WARN WARN WARN",
            "7 before-exchange",
        ),
        "closed doors": (doors(False), "", ""),
        "open doors": (doors(True), "WARN WARN WARN", "trust_broker"),
        "it is answered": (
            rows(),
            "OK",
            "with server 3: the client that runs uses echo, round trip 250 us",
        ),
        "certain and assumed are told apart": (
            rows(bound_ns=200_000, narrow_bound_ns=30_000),
            "OK",
            "round trip 250 us, bound 200 us, assumed 30 us if the broker is honest and "
            "links are symmetric",
        ),
        "it is not answered": (rows(delay_ns=None), "FAIL", "got no answer"),
    }
)
def test_the_client_that_runs_is_judged(
    tmp_path: Path, probe: Probe, results: str, says: str
) -> None:
    assert_judged(probe(tmp_path), results, says)


# -- chrony ----------------------------------------------------------------------------------------


def not_there() -> Any:
    raise ChronydError("not-installed", "chronyd is not installed")


def version(found: ChronyVersion | None) -> Probe:
    return lambda _: at_chrony.check_version(lambda: found or not_there())


def lines(*lines: str, version: ChronyVersion = OLD, number: int = 0) -> Probe:
    refclocks = at_chrony.parse_refclocks(["pool x iburst", *lines])
    return lambda _: at_chrony.check_lines(lambda: version, refclocks, PATTERN, [number])


def changed(old: str, new: str, version: ChronyVersion = OLD) -> Probe:
    return lines(*(line.replace(old, new) for line in GOOD_LINES), version=version)


def apparmor(enabled: str | None, path: str, local: str = "") -> Probe:
    def probe(at: Path) -> Check:
        if enabled is not None:
            (at / "enabled").write_text(enabled)
        (at / "profile").touch()
        (at / "local").write_text(local)
        return at_chrony.check_apparmor(path, at / "enabled", at / "profile", at / "local")

    return probe


def source(state: str = "*", reach: str = "377", last: int = 5, name: str = "MQT0") -> Source:
    return parse_sources(f"#,{state},{name},1,4,{reach},{last},0.000001,0.000002,0.001")[0]


def feed(**sent: int) -> dict[str, Any]:
    return {"0": {"sent": sent, "says": "the socket says so"}}


def sources(feeds: dict[str, Any] | None = None, **values: Any) -> Probe:
    feeds = feed(sent=9) if feeds is None else feeds
    return lambda _: at_chrony.check_sources(feeds, lambda: [source(**values)], [0])


TRACKING = (
    "4D515430,MQT0,2,1800000000.0,0.000001,0.000002,0.000003,1.5,0.001,0.5,0.002,0.0001,16.0,Normal"
)
NEVER = 4294967295


def tracking(old: str = "", new: str = "") -> Probe:
    return lambda _: at_chrony.check_tracking(
        lambda: parse_tracking(TRACKING.replace(old, new) if old else TRACKING)
    )


@judged(
    {
        "chrony 4.3": (version(OLD), "OK", "needs `filter 1`"),
        "chrony 4.7": (version(NEW), "OK", "no `filter`"),
        "chrony 3": (version(ChronyVersion(3, 5)), "FAIL", "4.0 or later"),
        "no chrony": (version(None), "FAIL", "apt-get install chrony"),
        "the lines that chrony-config prints": (lines(*GOOD_LINES), "OK", "one for each delay"),
        "no lines": (lines(number=3), "FAIL", "chrony-config --servers 3 |"),
        "only those of a LAN": (lines(GOOD_LINE), "WARN", "none with delay 0.02, 0.1, 1:"),
        "no filter 1": (changed("filter 1 ", ""), "FAIL FAIL FAIL FAIL OK", "dropped silently"),
        "none needed": (changed("filter 1 ", "", NEW), "OK", ""),
        "no delay": (changed("delay 0.002 ", ""), "WARN OK", ": delay not set: chronyd claims"),
        "too little delay": (changed("delay 0.1", "delay 1e-9"), "WARN OK", "(expected delay 0.1)"),
        "no number": (changed("delay 0.002", "delay nonsense"), "WARN OK", ": delay nonsense:"),
        "no refid": (changed("refid MQT0 ", ""), "WARN OK", ": refid not set ("),
        "another refid": (changed("MQT0", "GPS"), "WARN OK", ": refid GPS ("),
        "AppArmor allows this": (apparmor("Y\n", "/run/chrony.mqtick0.sock"), "OK", ""),
        "and this": (apparmor("Y\n", "/run/chrony/mqtick0.sock"), "OK", ""),
        "not that": (apparmor("Y\n", "/run/mqtick/0.sock"), "FAIL", "rename the socket"),
        "unless it is told to": (
            apparmor("Y\n", "/run/m/0.sock", "/run/m/0.sock rw,\n"),
            "OK",
            "allows",
        ),
        "AppArmor is off": (apparmor("N\n", "/run/mqtick/0.sock"), "OK", "not in force"),
        "no AppArmor": (apparmor(None, "/run/mqtick/0.sock"), "OK", "not in force"),
        "combined": (sources(state="+"), "OK", ""),
        "not combined": (sources(state="-"), "OK", ""),
        "a falseticker": (sources(state="x"), "WARN", "asymmetric line"),
        "unusable": (sources(state="?"), "WARN", "wait for some polls"),
        "a line that chronyd has not read": (
            sources(name="GPS"),
            "FAIL",
            "not among its sources (GPS)",
        ),
        "chronyd is silent": (lambda _: at_chrony.check_sources({}, not_there, [0, 1]), "FAIL", ""),
        "samples arrive": (sources(), "OK", "9 samples sent, the last received 5 s ago, reach 377"),
        "none arrives": (sources(reach="0"), "FAIL", "the socket says so"),
        "none any more": (sources(last=500), "FAIL", "500 s ago"),
        "none ever": (sources(reach="0", last=NEVER), "FAIL", "never"),
        "none yet": (sources(feed(sent=2), reach="0", last=NEVER), "WARN", "wait a minute"),
        "no socket": (sources(feed(missing=4)), "FAIL", "4 missing"),
        "nothing sent": (sources(feed()), "FAIL", "none sent"),
        "no samples": (sources({}), "WARN", "the running client sends no sample"),
        "disciplined": (tracking(), "OK", "follows MQT0, stratum 2, root distance 1101 us"),
        "not synchronised": (tracking("Normal", "Not synchronised"), "FAIL", ""),
        "too much skew": (tracking(",0.5,", ",1000000,"), "FAIL", ""),
        "too much dispersion": (tracking(",0.0001,", ",3.0,"), "FAIL", ""),
        "no discipline": (lambda _: at_chrony.check_tracking(not_there), "FAIL", "not installed"),
    }
)
def test_chrony_is_judged(tmp_path: Path, probe: Probe, results: str, says: str) -> None:
    assert_judged(probe(tmp_path), results, says)


def test_refclock_lines_are_read_as_chrony_reads_them() -> None:
    (clock,) = at_chrony.parse_refclocks(
        [
            "REFCLOCK sock /run/a.sock:perm=0660 poll 2 noselect",
            "refclock SHM 0",
            "refclock SOCK",
            "",
        ]
    )
    assert clock.path == "/run/a.sock"
    assert clock.options["poll"] == "2"
    assert "noselect" in clock.options


def test_the_servers_that_matter_are_heard_told_or_configured() -> None:
    refclocks = at_chrony.parse_refclocks(
        [GOOD_LINE.replace("mqtick0", "mqtick12"), "refclock SOCK /run/chrony.gps.sock"]
    )
    assert at_chrony.server_numbers(PATTERN, refclocks, [3], ["7"]) == [3, 7, 12]
    assert at_chrony.server_numbers(PATTERN, [], [], []) == [0]


def socket_of(mode: int, who: Identity | None = None, *, left_behind: bool = False) -> Probe:
    def probe(at: Path) -> Check:
        path = at / "sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind(str(path))
            path.chmod(mode)
            if left_behind:
                sock.close()
            member = Identity("mqtick", 990, frozenset({path.stat().st_gid}))
            return at_chrony.check_socket(str(path), who or member)

    return probe


def no_socket(place: str) -> Probe:
    def probe(at: Path) -> Check:
        (at / "file").touch()
        return at_chrony.check_socket(str(at / place), ROOT)

    return probe


@judged(
    {
        "for the client's group": (socket_of(0o770), "OK", ": srwxrwx---"),
        "as chronyd makes it": (socket_of(0o755, CLIENT), "FAIL", "user mqtick may not write"),
        "for everybody": (socket_of(0o777, CLIENT), "WARN", "every user can set the clock"),
        "left behind": (socket_of(0o770, ROOT, left_behind=True), "FAIL", "nobody listens"),
        "missing": (no_socket("sock"), "FAIL", "is missing"),
        "a file": (no_socket("file"), "FAIL", "is not a socket"),
        "below a file": (no_socket("file/sock"), "FAIL", "cannot be looked at"),
    }
)
def test_the_socket_is_judged(tmp_path: Path, probe: Probe, results: str, says: str) -> None:
    assert_judged(probe(tmp_path), results, says)


# -- the broker ------------------------------------------------------------------------------------


def heard(**facts: Any) -> Heard:
    return replace(Heard(Link("mqtt://broker:1883")), **facts)


GOOD = Server(times=3, leap=0, stratum=1, exchanges=8, least_delay_ns=300_000, announced=True)
SILENT = replace(GOOD, exchanges=0, least_delay_ns=None)
UNSURE, RETAINED = replace(GOOD, leap=3), replace(GOOD, retained=1)
HIDDEN = replace(GOOD, announced=False)
PROMPT, LATE = (0.3, 0.3), (0.3, 41.0)
DOT = "_1451.1.6/BRSU/SYN"
OLDER = Counter({"1451.1.6": 1})


UDP = parse_broker_url("mqtt+udp://broker")


def granted(
    format_: str = "auto", *, servers: bool = False, udp: bool = False, **granted: bool
) -> Probe:
    link = Link(UDP.address, lease_s=22.5, refusal_remedy=UDP.refusal_remedy)
    facts = heard(
        **({"link": link} if udp else {}),
        granted={"mqtick/t/+": True, **granted, DOT: False},
        servers={0: GOOD} if servers else {},
        foreign_topics=frozenset({DOT}),
    )
    return lambda _: at_broker.check_subscriptions(facts, format_)


def times(format_: str, **facts: Any) -> Probe:
    return lambda _: at_broker.check_times(heard(**facts), format_, 3.0)


def exchanges(**facts: Any) -> Probe:
    return lambda _: at_broker.check_exchanges(heard(**facts), use_two_way=True)


def statuses(**facts: Any) -> Probe:
    return lambda _: at_broker.check_statuses(heard(**facts))


def promptness(*pairs_ms: tuple[float, float]) -> Probe:
    pairs = [(round(first * 1e6), round(second * 1e6)) for first, second in pairs_ms]
    probes = Probes(sent=8, pairs_ns=pairs, loop_topic="mqtick/c/pi7")
    return lambda _: probing.check_promptness(probes)


TIME, REQUEST, REPLY = "mqtick/t/255", "mqtick/q/255/x", "mqtick/r/255/x"


def access(
    *let_through: str, hears: bool = True, keys: bool = True, accounts: bool = True
) -> Probe:
    probes = Probes(
        time_topic=TIME, others_topics=(REQUEST, REPLY), let_through=frozenset(let_through)
    )
    return lambda _: probing.check_access(
        probes, hears_time=hears, has_keys=keys, has_accounts=accounts, account="pi7"
    )


@judged(
    {
        "a dot that precise does not need": (granted("precise"), "OK", f"for precise time: {DOT}"),
        "nor auto, if it hears precise": (granted(servers=True), "OK", DOT),
        "auto that hears nobody needs it": (granted(), "FAIL", f"refused: {DOT} ("),
        "1451.1.6 needs it": (granted("1451.1.6", servers=True), "FAIL", f"refused: {DOT} ("),
        "a refused reply": (granted("precise", reply=False), "FAIL", "refused: reply ("),
        "its access list": (granted("precise", reply=False), "FAIL", "compare its access list"),
        "over UDP there is none": (
            granted("precise", reply=False, udp=True),
            "FAIL",
            "counters filter, share, shape and table say",
        ),
        "servers are told by number": (
            times("auto", servers={7: GOOD, 0: UNSURE}),
            "WARN OK",
            "server 7: precise, 3 in",
        ),
        "silence": (times("auto"), "FAIL", "none in 3 s"),
        "auto takes 1451.1.6": (times("auto", foreign=OLDER), "OK", "1451.1.6"),
        "precise does not": (times("precise", foreign=OLDER), "OK FAIL", "format precise"),
        "1451.1.6": (times("1451.1.6", foreign=OLDER), "OK", "1451.1.6"),
        "draft-2021 is not 1451.1.6": (times("draft-2021", foreign=OLDER), "OK FAIL", ""),
        "1451.1.6 is not precise": (times("1451.1.6", servers={0: GOOD}), "OK FAIL", ""),
        "precise": (times("precise", servers={0: GOOD}), "OK", "stratum 1, synchronised"),
        "retained time": (times("auto", servers={0: RETAINED}), "OK WARN", "-r -n"),
        "a server that answers": (exchanges(servers={0: GOOD}), "OK", "round trip 300 us"),
        "a server that does not": (exchanges(servers={0: SILENT}), "FAIL", "access list"),
        "a server with other keys": (
            exchanges(servers={0: SILENT}, refused=Counter({"tag": 8, "replayed": 1})),
            "FAIL WARN",
            ": 8 tag (",
        ),
        "a status that the broker did not keep": (
            statuses(servers={0: GOOD, 7: HIDDEN}),
            "WARN",
            "status of server 7: not kept",
        ),
        "prompt, though one was late": (
            promptness(PROMPT, LATE, PROMPT, PROMPT),
            "OK",
            "0.30 ms to the broker and",
        ),
        "the second is held": (
            promptness(LATE, LATE, PROMPT, LATE),
            "WARN",
            "set_tcp_nodelay true",
        ),
        "all wait": (promptness((90.0, 89.0), (40.0, 60.0), (30.0, 30.0)), "WARN", "a proxy"),
        "nothing comes back": (promptness(), "WARN", "mqtick/c/pi7"),
        "a good access list": (
            access(),
            "OK",
            "keeps this account from publishing time, and from both writing and reading what is",
        ),
        "one that lets no time be heard": (access(hears=False), "", ""),
        "anybody may publish time": (
            access(TIME, REQUEST),
            "WARN",
            "may publish time for every clock",
        ),
        "keys protect": (access(TIME), "WARN", "keys protect this client"),
        "over UDP only subnets do": (
            access(TIME, accounts=False),
            "WARN",
            "let the broker accept your subnets only; keys",
        ),
        "nothing else does": (access(TIME, keys=False), "WARN", "nothing else protects"),
        "clients are mixed up": (access(REPLY), "WARN", f"another client's: {REPLY} ("),
    }
)
def test_the_broker_is_judged(tmp_path: Path, probe: Probe, results: str, says: str) -> None:
    assert_judged(probe(tmp_path), results, says)


@pytest.mark.slow
def test_over_udp_a_refused_filter_is_not_blamed_on_an_access_list(tmp_path: Path) -> None:
    with Door().open() as door:
        door.broker.settings.subscriptions_a_subscriber = 1
        settings = Settings(broker=door.url, name="pi7", state_folder=str(tmp_path))
        host = Host(listen_s=0.5)
        found = {check.name: check for check in doctor.examine(settings, host, broker_only=True)}
    assert found["subscriptions"].result == "FAIL"
    assert found["subscriptions"].remedy == UDP.refusal_remedy
    assert "access list" not in found["access list"].remedy


def test_a_server_that_has_gone_is_not_asked_for() -> None:
    loop = Loop()
    broker = parse_broker_url("mqtt://127.0.0.1:1")
    listener = doctor_listen._Listener(Settings(), loop, broker, Keyring(), "pi7")
    for number, state in ((3, "gone"), (4, "synchronised")):
        payload = json.dumps({"state": state}).encode()
        stamp = Stamp(0, KERNEL)
        listener._on_publish(Arrival(f"mqtick/s/{number}", payload, stamp, True, b""))
    listener.agent.close()
    loop.close()
    assert listener.heard.servers == {4: Server(announced=True)}


def test_a_broker_that_takes_no_second_connection_is_a_remark() -> None:
    loop = Loop()
    broker = replace(parse_broker_url("mqtt://127.0.0.1:1"), connect_timeout_s=0.1)
    first = Connection(loop, broker, "pi7", on_publish=lambda _: None, on_up=lambda: None)
    prober = probing.Prober(loop, first, TopicTree(), "pi7")
    prober.measure()
    loop.close()
    found = [*probing.check_promptness(prober.found)]
    assert_judged(found, "WARN", "max_connections")
    assert_judged(found, "WARN", "a second connection fails: cannot connect")


# -- all of it -------------------------------------------------------------------------------------


def test_no_fault_of_a_probe_ends_the_examination(tmp_path: Path) -> None:
    def broken() -> Any:
        raise OSError("broken")

    host = Host(proc=tmp_path, now_s=broken, stamps=broken, version=broken, configuration=broken)
    settings = Settings(
        broker="mqtt://127.0.0.1:1",
        discipline="chrony",
        state_folder=str(tmp_path),
        chrony=ChronyKeys(socket=str(tmp_path / "{server}.sock"), host=str(tmp_path / "none")),
    )
    results = {check.name: check for check in doctor.examine(settings, host)}
    for name in ("system clock", "timestamps", "chrony"):
        assert "broke" in results[name].value
    assert results["broker"].value.startswith("cannot connect to mqtt://127.0.0.1:1")


def test_of_the_broker_only_nothing_else_is_looked_at(tmp_path: Path) -> None:
    settings = Settings(broker="mqtt://127.0.0.1:1", state_folder=str(tmp_path))
    checks = list(doctor.examine(settings, Host(proc=tmp_path), broker_only=True))
    assert [check.name for check in checks] == ["broker"]


def test_settings_that_cannot_work_are_one_finding(tmp_path: Path) -> None:
    settings = Settings(broker="foo://bar", state_folder=str(tmp_path))
    results = {check.name: check for check in doctor.examine(settings, Host(proc=tmp_path))}
    assert "scheme 'foo'" in results["broker"].value


@pytest.mark.parametrize("mode", [True, False])
def test_the_exit_code_says_whether_something_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: bool
) -> None:
    settings = Settings(broker="mqtt://127.0.0.1:1", state_folder=str(tmp_path))
    assert doctor.run(settings, mode, Host(proc=tmp_path)) == 1
    out = capsys.readouterr().out
    if mode:
        assert {check["result"] for check in json.loads(out)} == {"OK", "WARN", "FAIL"}
    else:
        assert "\nFAIL broker: cannot connect" in out
        assert "\033" not in out


@pytest.mark.parametrize(("name", "asks"), [("pi7", False), ("pi8", True)])
def test_the_doctor_does_not_ask_under_the_name_of_a_client_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, asks: bool
) -> None:
    used: list[Settings] = []

    def listen(settings: Settings, *_args: object, **_more: object) -> Heard:
        used.append(settings)
        return heard()

    monkeypatch.setattr(doctor, "listen", listen)
    row = {"server": 0, "delay_ns": 250_000, "kind": "echo"}
    values = {**status_of().values, "name": "pi7", "servers": [row]}
    StatusFile(tmp_path / "status.json", "mqtick-client").write(values)
    settings = Settings(name=name, state_folder=str(tmp_path))
    names = [check.name for check in doctor.examine(settings, Host(proc=tmp_path))]
    assert [each.estimator.use_two_way for each in used] == [asks]
    assert ("exchange with server 0" in names) is not asks


@pytest.mark.needs("chronyd")
def test_against_a_real_chronyd_the_chain_is_followed_to_its_end(
    chronyds: Callable[[], ChronydRig], tmp_path: Path
) -> None:
    rig = chronyds()
    line = "refclock SOCK {folder}/mqtick0.sock refid MQT0 poll -2 filter 1 delay 0.002 stratum 1"
    rig.start(line)
    settings = Settings(
        broker="mqtt://127.0.0.1:1",
        discipline="chrony",
        state_folder=str(tmp_path),
        chrony=ChronyKeys(socket=str(rig.folder / "mqtick{server}.sock"), host=rig.command_socket),
    )
    StatusFile(tmp_path / "status.json", "mqtick-client").write(
        {**status_of().values, "chrony": feed(sent=9)}
    )
    host = Host(proc=tmp_path)
    results = {check.name: check for check in doctor.examine(settings, host)}
    assert results[f"socket {rig.folder}/mqtick0.sock"].result == "OK"
    assert results["chronyd's source MQT0"].result == "FAIL", "nine were sent and none arrived"
    assert results["clock discipline"].result == "FAIL"
