"""The doctor: each probe finds the fault it is for, says what to do, and never breaks."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqtick.client.config import ChronyKeys, Settings
from mqtick.client.doctor import broker as doctor_broker
from mqtick.client.doctor import chrony as doctor_chrony
from mqtick.client.doctor import client as doctor_client
from mqtick.client.doctor import examine as doctor
from mqtick.client.doctor import host as doctor_host
from mqtick.client.doctor import listen as doctor_listen
from mqtick.client.doctor import probes as doctor_probes
from mqtick.client.doctor.examine import Host
from mqtick.client.doctor.host import Identity
from mqtick.client.doctor.listen import Heard, Server
from mqtick.client.doctor.probes import Probes
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.stamps import Source as Stamped
from mqtick.mqtt.stamps import Stamp
from mqtick.protocol.auth import Keyring
from mqtick.protocol.topics import TopicTree
from mqtick.service import (
    ChronydError,
    ChronyVersion,
    Source,
    Status,
    StatusError,
    StatusFile,
    Tracking,
)
from mqtick.service.check import Check, fail, guarded, ok, warn
from mqtick.service.chronyd_csv import parse_sources, parse_tracking

sys.path.insert(0, str(Path(__file__).parent))
from chronyd_rig import ChronydRig, chronyds, needs_chronyd

__all__ = ["chronyds"]  # a fixture

NOW_S = 1_800_000_000.0
ROOT = Identity("root", 0, frozenset({0}))
CLIENT = Identity("mqtick", 990, frozenset({991}))
OLD, NEW = ChronyVersion(4, 3), ChronyVersion(4, 7)
PATTERN = "/run/chrony.mqtick{server}.sock"
GOOD_LINE = (
    "refclock SOCK /run/chrony.mqtick0.sock refid MQT0 poll 2 filter 1 precision 0.00001 "
    "delay 0.002 stratum 1"
)


# -- what a finding looks like ---------------------------------------------------------------------


def test_a_finding_is_a_line_with_result_value_expectation_and_remedy() -> None:
    check = fail("broker", "silent", "an answer", "start it")
    assert check.line() == "FAIL broker: silent (expected an answer) -> start it"
    assert ok("clock", "good").line() == "OK   clock: good"


def test_colours_surround_the_result_only() -> None:
    line = warn("keys", "none", "some", "make some").line(colours=True)
    assert line.startswith("\033[33mWARN\033[0m keys: none")


def test_a_probe_that_breaks_is_a_finding_of_its_own() -> None:
    def probe() -> Iterator[Check]:
        yield ok("first", "good")
        raise RuntimeError("no such thing")

    first, broken = guarded("probe", probe)
    assert first.result == "OK"
    assert broken.result == "FAIL"
    assert "RuntimeError: no such thing" in broken.value


# -- this host -------------------------------------------------------------------------------------


def test_a_clock_of_this_decade_is_good() -> None:
    assert doctor_host.check_clock(NOW_S, needs_dates=True).result == "OK"


@pytest.mark.parametrize(("needs_dates", "result"), [(False, "WARN"), (True, "FAIL")])
def test_a_clock_in_the_past_matters_most_to_certificates(needs_dates: bool, result: str) -> None:
    check = doctor_host.check_clock(0.0, needs_dates=needs_dates)
    assert check.result == result
    assert "1970-01-01" in check.value


def processes(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names, 100):
        (folder / str(number)).mkdir()
        (folder / str(number) / "comm").write_text(f"{name}\n")
    (folder / "self").mkdir()
    return folder


def test_nobody_else_steers_the_clock(tmp_path: Path) -> None:
    proc = processes(tmp_path, "systemd", "chronyd", "mqtick-client", "ntpdsomething")
    assert doctor_host.check_daemons(proc, steers=True).result == "OK"


@pytest.mark.parametrize(
    ("comm", "name"),
    [
        ("systemd-timesyn", "systemd-timesyncd"),
        ("ntpd", "ntpsec"),
        ("ntp-daemon", "ntpd-rs"),
        ("phc2sys", "linuxptp"),
    ],
)
def test_another_time_daemon_is_found_by_its_process(tmp_path: Path, comm: str, name: str) -> None:
    proc = processes(tmp_path, "systemd", comm)
    check = doctor_host.check_daemons(proc, steers=True)
    assert check.result == "FAIL"
    assert name in check.value
    assert "101" in check.value
    assert "systemctl disable --now" in check.remedy
    assert doctor_host.check_daemons(proc, steers=False).result == "OK"


def test_the_probe_finds_the_kernels_timestamps_on_this_host() -> None:
    assert doctor_host.probe_stamps() == (Stamped.KERNEL, Stamped.KERNEL)


@pytest.mark.parametrize(
    ("stamps", "result"),
    [
        ((Stamped.KERNEL, Stamped.KERNEL), "OK"),
        ((Stamped.HARDWARE, Stamped.KERNEL), "OK"),
        ((Stamped.KERNEL, Stamped.USER), "WARN"),
        ((Stamped.USER, Stamped.USER), "WARN"),
    ],
)
def test_timestamps_by_the_program_are_worth_a_warning(
    stamps: tuple[Stamped, Stamped], result: str
) -> None:
    check = doctor_host.check_stamps(lambda: stamps, "auto")
    assert check.result == result
    assert check.value.startswith(stamps[0].name.lower())


def test_timestamps_that_are_switched_off_are_not_probed() -> None:
    def probe() -> tuple[Stamped, Stamped]:
        raise AssertionError

    assert doctor_host.check_stamps(probe, "user").result == "WARN"


def key_file(folder: Path, text: str, mode: int = 0o600) -> str:
    file = folder / "keys"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


DERIVED = f"broadcast {'ab' * 16}\nclient {'cd' * 16}\n"


def test_keys_that_only_the_client_can_read_are_good(tmp_path: Path) -> None:
    path = key_file(tmp_path, DERIVED, 0o640)
    check = doctor_host.check_keys(path, ROOT)
    assert check.result == "OK"
    assert "mode 0640" in check.value


def test_no_keys_are_worth_a_warning() -> None:
    assert doctor_host.check_keys("", ROOT).result == "WARN"


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (DERIVED, 0o644, "open to every user"),
        ("fleet abc\n", 0o600, "pairs of hexadecimal digits"),
        ("", 0o600, "holds no key"),
        (f"broadcast {'ab' * 16}\n", 0o600, ""),
    ],
)
def test_a_key_file_that_cannot_be_used_is_explained(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    check = doctor_host.check_keys(key_file(tmp_path, text, mode), ROOT)
    assert said in check.value
    assert check.result == ("FAIL" if said else "OK")


def test_a_key_file_that_is_missing_is_explained(tmp_path: Path) -> None:
    check = doctor_host.check_keys(str(tmp_path / "nothing"), ROOT)
    assert check.result == "FAIL"
    assert "No such file" in check.value


def test_a_key_file_that_the_client_may_not_read_is_found(tmp_path: Path) -> None:
    check = doctor_host.check_keys(key_file(tmp_path, DERIVED), CLIENT)
    assert check.result == "FAIL"
    assert "user mqtick cannot read it" in check.value
    assert "chgrp mqtick" in check.remedy


def test_the_fleet_key_does_not_belong_on_a_client(tmp_path: Path) -> None:
    path = key_file(tmp_path, f"fleet {'ab' * 16}\n")
    assert doctor_host.check_keys(path, ROOT).result == "WARN"


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
    who = doctor_host.client_identity(77, tmp_path)
    assert (who.uid, who.gids) == (4343, {11, 5, 6})


def test_a_client_that_has_ended_leaves_the_user_mqtick_or_ourselves(tmp_path: Path) -> None:
    who = doctor_host.client_identity(77, tmp_path)
    assert who.name == "mqtick" or who.uid == os.geteuid()


def status_of(age_s: float = 0.5, **values: Any) -> Status:
    known = {"state": "synchronised", "connected": True, "refused": {}, **values}
    return Status("mqtick-client", 77, int(age_s * 1e9), known)


@pytest.mark.parametrize(
    ("status", "result", "said"),
    [
        (status_of(), "OK", "process 77, synchronised"),
        (status_of(state="holdover"), "WARN", "holdover"),
        (status_of(60.0), "FAIL", "60 s old"),
        (status_of(connected=False, last_error="no route"), "FAIL", "not connected: no route"),
    ],
)
def test_the_clients_own_status_is_judged(status: Status, result: str, said: str) -> None:
    (check,) = doctor_client.check_client(lambda: status)
    assert check.result == result
    assert said in check.value


def test_an_open_door_is_worth_a_warning() -> None:
    doors = doctor_client.check_doors(follow_unsigned=True, trust_broker=True)
    assert [(check.result, check.name) for check in doors] == [
        ("WARN", "follow_unsigned"),
        ("WARN", "trust_broker"),
    ]
    assert list(doctor_client.check_doors(follow_unsigned=False, trust_broker=False)) == []


def test_without_a_client_the_doctor_says_so() -> None:
    def read() -> Status:
        raise StatusError("/run/x: there is no status")

    (check,) = doctor_client.check_client(read)
    assert (check.result, check.value) == ("WARN", "/run/x: there is no status")


def test_what_the_client_refused_is_explained() -> None:
    refused = {"tag": 3, "replayed": 9, "no-reply": 2, "before-exchange": 7}
    checks = list(doctor_client.check_client(lambda: status_of(refused=refused)))[1:]
    assert [check.value for check in checks] == ["3 tag"], "the others are past, or nobody's fault"
    assert "keys differ" in checks[0].remedy
    waiting = status_of(state="unsynchronised", refused=refused)
    checks = list(doctor_client.check_client(lambda: waiting))[1:]
    assert [check.value for check in checks] == ["3 tag", "7 before-exchange"]


def test_a_client_that_runs_tells_itself_whether_it_is_answered() -> None:
    row = {"server": 3, "delay_ns": 250_000, "kind": "echo"}
    (good,) = doctor_client.check_rows([row])
    assert good.line() == (
        "OK   exchange with server 3: the client that runs uses echo, round trip 250 us"
    )
    (good,) = doctor_client.check_rows([{**row, "bound_ns": 200_000, "narrow_bound_ns": 30_000}])
    assert good.value.endswith(
        "round trip 250 us, bound 200 us, assumed 30 us if the broker delivers in order and links "
        "are symmetric"
    )
    (bad,) = doctor_client.check_rows([{**row, "delay_ns": None}])
    assert bad.result == "FAIL"


# -- chrony ----------------------------------------------------------------------------------------


def not_there() -> Any:
    raise ChronydError("not-installed", "chronyd is not installed")


@pytest.mark.parametrize(
    ("version", "result", "said"),
    [
        (OLD, "OK", "needs `filter 1`"),
        (NEW, "OK", "no `filter`"),
        (ChronyVersion(3, 5), "FAIL", ""),
    ],
)
def test_the_version_decides_the_rule_of_the_filter(
    version: ChronyVersion, result: str, said: str
) -> None:
    check = doctor_chrony.check_version(lambda: version)
    assert check.result == result
    assert said in check.value


def test_a_missing_chrony_is_a_fault() -> None:
    check = doctor_chrony.check_version(not_there)
    assert check.result == "FAIL"
    assert "apt-get install chrony" in check.remedy


def lines_of(
    *lines: str, version: ChronyVersion = OLD, numbers: tuple[int, ...] = (0,)
) -> list[Check]:
    refclocks = doctor_chrony.parse_refclocks(lines)
    return list(doctor_chrony.check_lines(version, refclocks, PATTERN, list(numbers)))


def test_the_line_that_chrony_config_prints_is_good() -> None:
    assert [check.result for check in lines_of("pool x iburst", GOOD_LINE)] == ["OK"]


def test_a_missing_line_names_the_command_that_makes_it() -> None:
    (check,) = lines_of("pool x iburst", numbers=(3,))
    assert check.result == "FAIL"
    assert "chrony-config --servers 3 |" in check.remedy


@pytest.mark.parametrize(("version", "result"), [(OLD, "FAIL"), (NEW, "OK")])
def test_without_filter_1_chrony_before_4_7_drops_every_sample(
    version: ChronyVersion, result: str
) -> None:
    (check,) = lines_of(GOOD_LINE.replace("filter 1 ", ""), version=version)
    assert check.result == result


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("delay 0.002 ", "", "delay not set"),
        ("delay 0.002", "delay 1e-9", "delay 1e-9"),
        ("delay 0.002", "delay nonsense", "delay nonsense"),
        ("refid MQT0 ", "", "refid not set"),
        ("MQT0", "GPS", "refid GPS"),
    ],
)
def test_a_line_that_lies_about_itself_is_worth_a_warning(old: str, new: str, said: str) -> None:
    (check,) = lines_of(GOOD_LINE.replace(old, new))
    assert check.result == "WARN"
    assert check.value == said


def test_refclock_lines_are_read_as_chrony_reads_them() -> None:
    (clock,) = doctor_chrony.parse_refclocks(
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
    refclocks = doctor_chrony.parse_refclocks(
        [GOOD_LINE.replace("mqtick0", "mqtick12"), "refclock SOCK /run/chrony.gps.sock"]
    )
    assert doctor_chrony.server_numbers(PATTERN, refclocks, [3], ["7"]) == [3, 7, 12]
    assert doctor_chrony.server_numbers(PATTERN, [], [], []) == [0]


def make_socket(path: Path, mode: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(path))
    path.chmod(mode)
    return sock


def test_a_socket_for_the_clients_group_is_good(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with make_socket(path, 0o770):
        member = Identity("mqtick", 990, frozenset({path.stat().st_gid}))
        check = doctor_chrony.check_socket(str(path), member)
    assert check.result == "OK"
    assert check.value.startswith("srwxrwx---")


def test_a_socket_as_chronyd_makes_it_is_closed_to_the_client(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with make_socket(path, 0o755):
        check = doctor_chrony.check_socket(str(path), CLIENT)
    assert check.result == "FAIL"
    assert "user mqtick may not write" in check.value
    assert "chrony.service.d" in check.remedy


def test_a_socket_that_everybody_may_write_lets_everybody_set_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with make_socket(path, 0o777):
        check = doctor_chrony.check_socket(str(path), CLIENT)
    assert check.result == "WARN"
    assert "every user can set the clock" in check.value


def test_a_socket_that_chronyd_left_behind_has_no_reader(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    make_socket(path, 0o770).close()
    check = doctor_chrony.check_socket(str(path), ROOT)
    assert check.result == "FAIL"
    assert "nobody listens" in check.value


def test_a_missing_socket_and_a_file_in_its_place_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    assert "is missing" in doctor_chrony.check_socket(str(path), ROOT).value
    path.touch()
    assert "is not a socket" in doctor_chrony.check_socket(str(path), ROOT).value
    below_a_file = doctor_chrony.check_socket(str(path / "sock"), ROOT)
    assert below_a_file.result == "FAIL"


@pytest.mark.parametrize(
    ("enabled", "path", "local", "result"),
    [
        ("Y\n", "/run/chrony.mqtick0.sock", "", "OK"),
        ("Y\n", "/run/chrony/mqtick0.sock", "", "OK"),
        ("Y\n", "/run/mqtick/0.sock", "", "FAIL"),
        ("Y\n", "/run/mqtick/0.sock", "/run/mqtick/0.sock rw,\n", "OK"),
        ("N\n", "/run/mqtick/0.sock", "", "OK"),
        (None, "/run/mqtick/0.sock", "", "OK"),
    ],
)
def test_apparmor_allows_chrony_its_own_names_only(
    tmp_path: Path, enabled: str | None, path: str, local: str, result: str
) -> None:
    if enabled is not None:
        (tmp_path / "enabled").write_text(enabled)
    (tmp_path / "profile").touch()
    (tmp_path / "local").write_text(local)
    check = doctor_chrony.check_apparmor(
        path, tmp_path / "enabled", tmp_path / "profile", tmp_path / "local"
    )
    assert check.result == result


def source(state: str = "*", reach: str = "377", last: int = 5, name: str = "MQT0") -> Source:
    return parse_sources(f"#,{state},{name},1,4,{reach},{last},0.000001,0.000002,0.001")[0]


@pytest.mark.parametrize(
    ("state", "result"), [("*", "OK"), ("+", "OK"), ("-", "OK"), ("x", "WARN"), ("?", "WARN")]
)
def test_what_chronyd_thinks_of_a_source_is_told_in_words(state: str, result: str) -> None:
    (check,) = doctor_chrony.check_sources(lambda: [source(state)], [0])
    assert check.result == result
    assert "reach 377" in check.value


def test_a_line_that_chronyd_has_not_read_is_found() -> None:
    (check,) = doctor_chrony.check_sources(lambda: [source(name="GPS")], [0])
    assert check.result == "FAIL"
    assert "(GPS)" in check.value
    assert "restart chrony" in check.remedy


def test_a_chronyd_that_does_not_answer_is_a_fault() -> None:
    (check,) = doctor_chrony.check_sources(not_there, [0, 1])
    assert check.result == "FAIL"


def feed(**sent: int) -> dict[str, Any]:
    return {"0": {"sent": sent, "says": "the socket says so"}}


@pytest.mark.parametrize(
    ("feeds", "source_", "result"),
    [
        (feed(sent=9), source(), "OK"),
        (feed(sent=9), source(reach="0"), "FAIL"),
        (feed(sent=9), source(last=500), "FAIL"),
        (feed(sent=9), source(reach="0", last=4294967295), "FAIL"),
        (feed(sent=2), source(reach="0", last=4294967295), "WARN"),
        (feed(missing=4), source(), "FAIL"),
        (feed(), source(), "FAIL"),
        ({}, source(), "WARN"),
        (feed(sent=9), source(name="GPS"), "FAIL"),
    ],
)
def test_samples_that_are_sent_have_to_arrive(
    feeds: dict[str, Any], source_: Source, result: str
) -> None:
    (check,) = doctor_chrony.check_reach(feeds, lambda: [source_], [0])
    assert check.result == result


TRACKING = (
    "4D515430,MQT0,2,1800000000.0,0.000001,0.000002,0.000003,1.5,0.001,0.5,0.002,0.0001,16.0,Normal"
)


def test_the_clock_discipline_tells_what_it_follows() -> None:
    check = doctor_chrony.check_tracking(lambda: parse_tracking(TRACKING))
    assert check.result == "OK"
    assert "follows MQT0, stratum 2, root distance 1101 us" in check.value


@pytest.mark.parametrize(
    ("old", "new"), [("Normal", "Not synchronised"), (",0.5,", ",1000000,"), (",0.0001,", ",3.0,")]
)
def test_a_clock_that_is_not_disciplined_is_a_fault(old: str, new: str) -> None:
    check = doctor_chrony.check_tracking(lambda: parse_tracking(TRACKING.replace(old, new)))
    assert check.result == "FAIL"


def test_no_chronyd_means_no_discipline() -> None:
    def tracking() -> Tracking:
        raise ChronydError("not-running", "chronyd does not answer")

    assert doctor_chrony.check_tracking(tracking).result == "FAIL"


# -- the broker ------------------------------------------------------------------------------------


def heard(**facts: Any) -> Heard:
    known = {"connected": True, "connect_ns": 1_000_000, "kernel_stamps": True}
    return replace(Heard("mqtt://broker:1883"), **{**known, **facts})


GOOD_SERVER = Server(
    times=3, leap=0, stratum=1, exchanges=8, least_delay_ns=300_000, announced=True
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("mqtt://b refused the connection: Not authorized", "password_file"),
        ("cannot connect: [SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", "ca_file"),
        ("cannot connect: [Errno 111] Connection refused", "`listener`"),
        ("cannot connect: [Errno -2] Name or service not known", "getent"),
        ("mqtt://b accepted but did not answer within 5 s", "mosquitto_sub"),
    ],
)
def test_a_broker_that_cannot_be_reached_is_explained(error: str, said: str) -> None:
    check = doctor_broker.check_broker(heard(connected=False, error=error))
    assert check.result == "FAIL"
    assert check.value == error
    assert said in check.remedy


def test_certificates_that_only_newer_pythons_refuse_are_to_be_made_anew() -> None:
    cause = ssl.SSLCertVerificationError("CA cert does not include key usage extension")
    cause.verify_code = 92
    check = doctor_broker.check_broker(heard(connected=False, error=str(cause), cause=cause))
    assert check.result == "FAIL"
    assert "make new ones: docs/operations.md" in check.remedy


def test_a_broker_that_answers_is_good_and_better_with_kernel_timestamps() -> None:
    assert doctor_broker.check_broker(heard()).result == "OK"
    assert doctor_broker.check_broker(heard(kernel_stamps=False)).result == "WARN"


def test_a_broker_without_mqtt_5_is_told_with_the_setting() -> None:
    (check,) = doctor_broker.check_version(heard(error_5="mqtt://b refused the connection"))
    assert check.result == "WARN"
    assert 'set mqtt_version = "3.1.1"' in check.remedy
    assert list(doctor_broker.check_version(heard())) == []


def test_a_refused_subscription_is_named() -> None:
    granted = {"mqtick/t/+": True, "mqtick/r/0/pi7": False}
    check = doctor_broker.check_subscriptions(heard(granted=granted), "auto")
    assert check.result == "FAIL"
    assert "mqtick/r/0/pi7" in check.value
    assert "mqtick/t/+" not in check.value
    assert doctor_broker.check_subscriptions(heard(granted={"a": True}), "auto").result == "OK"
    assert doctor_broker.check_subscriptions(heard(), "auto").result == "WARN"


@pytest.mark.parametrize(
    ("format_", "servers", "result"),
    [
        ("precise", {}, "OK"),
        ("auto", {0: GOOD_SERVER}, "OK"),
        ("auto", {}, "FAIL"),
        ("1451.1.6", {0: GOOD_SERVER}, "FAIL"),
    ],
)
def test_a_topic_with_a_dot_that_nats_refuses_matters_only_to_who_needs_it(
    format_: str, servers: dict[int, Server], result: str
) -> None:
    topic = "_1451.1.6/BRSU/SYN"
    granted = {"mqtick/t/+": True, topic: False}
    facts = heard(granted=granted, servers=servers, foreign_topics=frozenset({topic}))
    check = doctor_broker.check_subscriptions(facts, format_)
    assert check.result == result
    assert topic in check.value


def times(format_: str, **facts: Any) -> list[Check]:
    return list(doctor_broker.check_times(heard(**facts), format_, 3.0))


def test_servers_that_are_heard_are_told_by_number() -> None:
    checks = times("auto", servers={7: GOOD_SERVER, 0: replace(GOOD_SERVER, leap=3)})
    assert [check.result for check in checks] == ["WARN", "OK"]
    assert "not synchronised" in checks[0].value
    assert checks[1].name == "time of server 7"


def test_silence_is_a_fault() -> None:
    (check,) = times("auto")
    assert check.result == "FAIL"
    assert "none in 3 s" in check.value


@pytest.mark.parametrize(
    ("format_", "facts", "result"),
    [
        ("auto", {"foreign": Counter({"1451.1.6": 1})}, "OK"),
        ("precise", {"foreign": Counter({"1451.1.6": 1})}, "FAIL"),
        ("1451.1.6", {"foreign": Counter({"1451.1.6": 1})}, "OK"),
        ("draft-2021", {"foreign": Counter({"1451.1.6": 1})}, "FAIL"),
        ("1451.1.6", {"servers": {0: GOOD_SERVER}}, "FAIL"),
        ("precise", {"servers": {0: GOOD_SERVER}}, "OK"),
    ],
)
def test_time_in_another_format_than_the_configured_one_does_not_help(
    format_: str, facts: dict[str, Any], result: str
) -> None:
    assert times(format_, **facts)[-1].result == result


def test_retained_time_is_a_fault_of_somebody() -> None:
    checks = times("auto", servers={0: replace(GOOD_SERVER, retained=1)})
    assert [check.result for check in checks] == ["OK", "WARN"]


def exchanges(**facts: Any) -> list[Check]:
    return list(doctor_broker.check_exchanges(heard(**facts), use_two_way=True))


def test_a_server_that_answers_is_told_with_its_round_trip() -> None:
    (check,) = exchanges(servers={0: GOOD_SERVER})
    assert check.result == "OK"
    assert "round trip 300 us" in check.value


def test_a_server_that_is_heard_but_does_not_answer_is_a_fault() -> None:
    silent = replace(GOOD_SERVER, exchanges=0, least_delay_ns=None)
    checks = exchanges(servers={0: silent}, refused=Counter({"tag": 8, "replayed": 1}))
    assert [check.result for check in checks] == ["FAIL", "WARN"]
    assert checks[1].value == "8 tag"


def test_a_status_that_the_broker_did_not_keep_is_a_remark() -> None:
    servers = {0: GOOD_SERVER, 7: replace(GOOD_SERVER, announced=False)}
    (check,) = doctor_broker.check_statuses(heard(servers=servers))
    assert check.name == "status of server 7"
    assert check.result == "WARN"
    assert "retained" in check.remedy


def test_a_server_that_has_gone_is_not_asked_for() -> None:
    loop = Loop()
    broker = parse_broker_url("mqtt://127.0.0.1:1")
    listener = doctor_listen._Listener(Settings(), loop, broker, Keyring(), "pi7")
    for number, state in ((3, "gone"), (4, "synchronised")):
        payload = json.dumps({"state": state}).encode()
        stamp = Stamp(0, Stamped.KERNEL)
        listener._on_publish(Arrival(f"mqtick/s/{number}", payload, stamp, True, b""))
    listener.agent.close()
    loop.close()
    assert listener.heard.servers == {4: Server(announced=True)}


def promptness(*pairs_ms: tuple[float, float]) -> Check:
    pairs = [(round(first * 1e6), round(second * 1e6)) for first, second in pairs_ms]
    (check,) = doctor_probes.check_promptness(
        Probes(sent=8, pairs_ns=pairs, loop_topic="mqtick/c/pi7")
    )
    return check


def test_a_broker_that_sends_at_once_is_prompt_though_one_message_was_late() -> None:
    assert promptness((0.3, 0.3), (0.3, 45.0), (0.2, 0.3)).result == "OK"


def test_a_broker_that_waits_for_the_acknowledgement_is_told_how_not_to() -> None:
    check = promptness((0.3, 40.3), (0.3, 41.0), (0.2, 0.3))
    assert check.result == "WARN"
    assert "set_tcp_nodelay true" in check.remedy


def test_a_broker_that_lets_everything_wait_is_not_prompt() -> None:
    check = promptness((90.0, 89.0), (40.0, 60.0), (30.0, 30.0))
    assert check.result == "WARN"
    assert "bridge" in check.remedy


def test_messages_to_itself_that_are_refused_are_a_remark() -> None:
    check = promptness()
    assert check.result == "WARN"
    assert "mqtick/c/pi7" in check.value


TIME, REQUEST, REPLY = "mqtick/t/255", "mqtick/q/255/x", "mqtick/r/255/x"


def test_a_broker_that_takes_no_second_connection_is_a_remark() -> None:
    loop = Loop()
    broker = replace(parse_broker_url("mqtt://127.0.0.1:1"), connect_timeout_s=0.1)
    first = Connection(loop, broker, "pi7", on_publish=lambda _: None, on_up=lambda: None)
    prober = doctor_probes.Prober(loop, first, TopicTree(), "pi7")
    prober.measure()
    loop.close()
    (check,) = doctor_probes.check_promptness(prober.found)
    assert check.result == "WARN"
    assert "a second connection fails: " in check.value
    assert "refused" in check.value
    assert "max_connections" in check.remedy


def access(*let_through: str, hears: bool = True, keys: bool = True) -> list[Check]:
    probes = Probes(
        time_topic=TIME, others_topics=(REQUEST, REPLY), let_through=frozenset(let_through)
    )
    return doctor_probes.check_access(probes, hears_time=hears, has_keys=keys, account="pi7")


def test_an_access_list_that_refuses_what_it_has_to_is_good() -> None:
    assert [check.result for check in access()] == ["OK"]


def test_nothing_is_said_for_an_access_list_that_lets_no_time_be_heard() -> None:
    assert access(hears=False) == []


@pytest.mark.parametrize(
    ("keys", "worth"), [(True, "keys protect this client"), (False, "nothing else protects")]
)
def test_an_access_list_that_lets_clients_publish_time_is_a_warning(keys: bool, worth: str) -> None:
    (check,) = access(TIME, REQUEST, keys=keys)
    assert check.result == "WARN"
    assert "account 'pi7' may publish time" in check.value
    assert worth in check.remedy


def test_an_access_list_that_mixes_up_clients_is_a_warning() -> None:
    (check,) = access(REPLY)
    assert check.result == "WARN"
    assert REPLY in check.value
    assert REQUEST not in check.value


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


def test_a_good_host_has_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listen(*_args: object, **_more: object) -> Heard:
        return heard(servers={0: GOOD_SERVER}, granted={"mqtick/t/+": True})

    monkeypatch.setattr(doctor, "listen", listen)
    settings = Settings(state_folder=str(tmp_path), keys_file=key_file(tmp_path, DERIVED))
    StatusFile(tmp_path / "status.json", "mqtick-client").write(status_of().values)
    results = [check.result for check in doctor.examine(settings, Host(proc=tmp_path))]
    assert set(results) == {"OK"}
    assert doctor.run(settings, True, Host(proc=tmp_path)) == 0


@needs_chronyd
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
    assert results["chronyd's source MQT0"].result == "WARN", "it has no sample yet"
    assert results["samples of server 0"].result == "FAIL", "nine were sent and none arrived"
    assert results["clock discipline"].result == "FAIL"
