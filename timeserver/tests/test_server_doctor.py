"""`mqtick-timeserver doctor`: what keeps a time server from being followed is named."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from server_rig import PlainNode, Program

from demo.local_broker import Mosquitto, free_port, running
from mqtick.mqtt.link import Link
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keyring
from mqtick.protocol.precise import Claim, Leap, Time
from mqtick.service import Status, StatusError
from mqtick.service.check import Check
from mqtick.timeserver import Settings, cli, doctor
from mqtick.timeserver.doctor_listen import Heard
from mqtick.timeserver.reference import Reference, unsynchronised

RING = Keyring((bytes(range(32)),))
GOOD = {
    "state": "synchronised",
    "connected": True,
    "number": 0,
    "broker": "mqtt://b:1883",
    "lot": 7,
    "keys": [],
    "same_number": "",
    "echo_order": "kept",
    "refused": {},
}


def results(found: Check | Iterator[Check]) -> list[str]:
    checks = [found] if isinstance(found, Check) else list(found)
    assert all(one.result == "OK" or (one.expectation and one.remedy) for one in checks)
    return [one.result for one in checks]


# -- the host --------------------------------------------------------------------------------------


def test_formats_without_tags_are_a_remark() -> None:
    assert results(doctor.check_formats(Settings())) == []
    assert results(doctor.check_formats(Settings(formats=("precise", "1451.1.6")))) == ["WARN"]
    assert results(doctor.check_formats(Settings(formats=("1451.1.6",)))) == ["WARN", "WARN"]


@pytest.mark.parametrize(
    ("text", "mode", "in_use", "result", "value"),
    [
        ("fleet " + "00" * 32, 0o640, None, "OK", "mode 0640"),
        ("fleet " + "00" * 32, 0o644, None, "FAIL", "open to every user"),
        ("client " + "00" * 32, 0o600, None, "FAIL", "no `fleet` line"),
        ("nonsense", 0o600, None, "FAIL", "Line 1 is not"),
        ("fleet " + "00" * 32, 0o600, ["0badf00d"], "WARN", "the running server has others"),
    ],
)
def test_a_key_file_is_judged(
    tmp_path: Path, text: str, mode: int, in_use: list[str] | None, result: str, value: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(mode)
    found = doctor.check_keys(str(path), {} if in_use is None else {"keys": in_use})
    assert results(found) == [result]
    assert value in found.value
    assert "00" * 32 not in found.line()


def test_no_keys_are_a_remark_and_a_file_that_is_away_a_fault(tmp_path: Path) -> None:
    assert results(doctor.check_keys("", {})) == ["WARN"]
    assert results(doctor.check_keys(str(tmp_path / "away"), {})) == ["FAIL"]


@pytest.mark.parametrize(
    ("settings", "known", "result"),
    [
        (Settings(trust_system_clock=True), None, "OK"),
        (Settings(), Reference(True, 2, 21_000, Leap.NONE, "chronyd is synchronised."), "OK"),
        (Settings(), unsynchronised("chronyd does not answer"), "FAIL"),
        (Settings(virtual_clock="offset_s=1"), None, "WARN"),
    ],
)
def test_the_clock_that_is_served_is_judged(
    settings: Settings, known: Reference | None, result: str
) -> None:
    def ask(_host: str | None, _port: int | None) -> Reference:
        assert known is not None
        return known

    assert results(doctor.check_reference(settings, doctor.Host(ask))) == [result]


@pytest.mark.parametrize(
    ("changes", "age_ns", "expected"),
    [
        ({}, 0, ["OK", "OK"]),
        ({}, 60 * 10**9, ["FAIL"]),
        ({"connected": False, "last_error": "refused"}, 0, ["FAIL", "OK"]),
        ({"state": "unsynchronised", "reason": "no source"}, 0, ["FAIL", "OK"]),
        ({"state": "standing by", "reason": "x", "same_number": "x"}, 0, ["FAIL", "OK"]),
        ({"same_number": "9 time messages were not ours"}, 0, ["OK", "WARN", "OK"]),
        ({"root_distance_ns": 450_000, "lag_ns": -90_000}, 0, ["OK", "OK"]),
        ({"root_distance_ns": 450_000, "lag_ns": -110_000}, 0, ["OK", "WARN", "OK"]),
        ({"root_distance_ns": 9_000_000, "lag_ns": 1_000_000}, 0, ["OK", "OK"]),
        ({"echo_order": "broken"}, 0, ["OK", "WARN"]),
        ({"echo_order": "off", "refused": {"tag": 3, "length": 9}}, 0, ["OK", "OK", "WARN"]),
        ({"refused": {"tag": 3}, "done": {"replies": 301}}, 0, ["OK", "OK"]),
    ],
)
def test_the_running_server_is_judged_by_its_own_status(
    changes: dict[str, Any], age_ns: int, expected: list[str]
) -> None:
    found = Status("mqtick-timeserver", 4711, age_ns, GOOD | changes)
    assert results(doctor.check_server(found)) == expected
    assert results(doctor.check_server(StatusError("there is none"))) == ["WARN"]


@pytest.mark.parametrize(
    ("lag_ns", "says"),
    [(200_000, "200 us behind the system clock"), (-200_000, "200 us ahead of the system clock")],
)
def test_a_lag_is_told_with_its_direction(lag_ns: int, says: str) -> None:
    values = GOOD | {"root_distance_ns": 450_000, "lag_ns": lag_ns}
    (warned,) = [
        each
        for each in doctor.check_server(Status("mqtick-timeserver", 4711, 0, values))
        if each.name == "served clock"
    ]
    assert warned.value == says


# -- what the broker says --------------------------------------------------------------------------

OURS, THEIRS = Claim(0, 7, 1, bytes(8)), Claim(0, 8, 2, bytes(8))
TIME = Time(1, 1, 1, None, 0, 2, Leap.UNSYNCHRONISED, StampSource.NONE, 1)


@pytest.mark.parametrize(
    ("status", "holders", "count", "expected"),
    [
        (GOOD, [OURS], 3, ["OK held by this server alone", "OK 3 in 3 s"]),
        (GOOD, [OURS], 0, ["OK held by this server alone", "FAIL none came on mqtick/t/0"]),
        (GOOD, [OURS, THEIRS], 3, ["FAIL another server has it", "OK 3 in 3 s"]),
        (GOOD, [], 3, ["WARN the running server does not answer", "OK 3 in 3 s"]),
        ({}, [], 0, ["OK free"]),
        ({}, [THEIRS], 3, ["FAIL another server has it"]),
        ({}, [], 3, ["WARN 3 time messages in 3 s, but no server answers for them"]),
        (GOOD | {"state": "standing by"}, [OURS, THEIRS], 3, ["FAIL another server has it"]),
    ],
)
def test_the_number_is_judged(
    status: dict[str, Any], holders: list[Claim], count: int, expected: list[str]
) -> None:
    heard = Heard(Link("mqtt://b:1883"), listened_s=3.0)
    heard.holders = {claim.lot: claim for claim in holders}
    heard.counts[0] = count
    found = list(doctor.check_number(heard, Settings(), status))
    assert results(iter(found)) == [one.split()[0] for one in expected]
    for check, said in zip(found, expected, strict=True):
        assert check.value.startswith(said.partition(" ")[2])


def test_other_servers_are_listed_and_what_was_refused_is_a_remark() -> None:
    heard = Heard(Link("mqtt://b:1883"))
    heard.times = {0: replace(TIME, server=0), 1: TIME}
    (found,) = doctor.check_others(heard, 0)
    assert found.value == "1 (stratum 2, not synchronised)"
    heard.refused["tag"] += 2
    assert results(doctor.check_others(heard, 0)) == ["OK", "WARN"]


# -- before a real broker --------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with running(Mosquitto(tmp_path)) as made:
        yield made


@pytest.fixture
def keys(tmp_path: Path) -> str:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(f"fleet {RING.fleet[0].hex()}\n")
    return str(path)


Ask = Callable[..., tuple[int, dict[str, str]]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return a function that gives the exit code and each finding, by name."""

    def asked(url: str, folder: Path, *flags: str) -> tuple[int, dict[str, str]]:
        words = ["--broker", url, "--state-folder", str(folder), "--trust-system-clock", *flags]
        code = cli.main(["doctor", "--json", *words])
        checks = json.loads(capsys.readouterr().out)
        return code, {one["name"]: f"{one['result']} {one['value']}" for one in checks}

    return asked


@pytest.mark.needs("mosquitto")
@pytest.mark.slow
def test_nothing_is_wrong_with_a_server_that_runs_and_is_alone(
    broker: Mosquitto, tmp_path: Path, keys: str, ask: Ask
) -> None:
    folder, flags = tmp_path / "a", ("--interval-s", "0.2", "--keys-file", keys)
    with Program(broker.url, folder, *flags) as server, PlainNode(broker.port, "#") as node:
        node.until(lambda: node.on("mqtick/s/0"))
        code, found = ask(broker.url, folder, *flags)
        assert code == 0
        assert [one for one in found.values() if not one.startswith("OK ")] == []
        assert found["number 0"] == "OK held by this server alone"
        assert found["subscriptions"] == "OK all 5 granted"
        # Its question makes nobody believe in a second server.
        values = json.loads((folder / "status.json").read_text())["status"]
        assert (values["same_number"], values["conflicts"]) == ("", 0)
        assert server.terminate() == 0


@pytest.mark.needs("mosquitto")
@pytest.mark.slow
def test_a_number_that_another_server_holds_is_a_fault_before_the_second_one_starts(
    broker: Mosquitto, tmp_path: Path, ask: Ask
) -> None:
    with (
        Program(broker.url, tmp_path / "a", "--interval-s", "0.2"),
        PlainNode(broker.port, "#") as node,
    ):
        node.until(lambda: node.on("mqtick/s/0"))
        code, found = ask(broker.url, tmp_path / "elsewhere")
        assert code == 1
        assert found["number 0"].startswith("FAIL another server has it")
        assert "there is no status: mqtick-timeserver is not running" in found["time server"]
        assert found["keys"].startswith("WARN there are no keys")
        code, found = ask(broker.url, tmp_path / "elsewhere", "--number", "1")
        assert (code, found["number 1"]) == (0, "OK free")
        assert found["other servers"] == "OK 0 (stratum 1)"


@pytest.mark.needs("mosquitto")
@pytest.mark.slow
def test_an_access_list_in_the_way_is_named_with_the_topic(tmp_path: Path, ask: Ask) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic read mqtick/#\n")
    rules.chmod(0o600)
    with running(Mosquitto(tmp_path, f"acl_file {rules}")) as broker:
        code, found = ask(broker.url, tmp_path / "a")
    assert code == 1
    assert found["messages to itself"] == "FAIL nothing came back on mqtick/l/0"


def test_a_broker_that_is_away_and_settings_that_cannot_work_are_said(
    tmp_path: Path, ask: Ask
) -> None:
    began_s = time.monotonic()
    url = f"mqtt://127.0.0.1:{free_port()}"
    code, found = ask(url, tmp_path, "--keys-file", str(tmp_path / "away"))
    assert code == 1
    assert {name for name, said in found.items() if said.startswith("FAIL")} == {
        *("settings", "keys", "broker")
    }
    code, found = ask(url, tmp_path)
    assert "Connection refused" in found["broker"]
    assert time.monotonic() - began_s < 20
