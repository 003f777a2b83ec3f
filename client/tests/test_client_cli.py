"""mqtick-client as it is typed: help, configuration, status, now, wait, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqtick.client.cli import EXAMPLES, _parser, main, parse_duration_ns
from mqtick.client.interval import NowError, boot_id, now, now_from
from mqtick.client.metrics import metrics
from mqtick.client.status_text import summary
from mqtick.protocol.auth import Keyring
from mqtick.service import Status
from mqtick.service.metrics import render

SECOND, MS, US = 1_000_000_000, 1_000_000, 1_000
PROGRAM = [sys.executable, "-m", "mqtick.client.cli"]


def raw_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def row(
    at_ns: int, half_ns: int, state: str = "synchronised", offset_ns: int = 0
) -> dict[str, Any]:
    """A row of the forecast: UTC is the system clock plus `offset_ns`, give or take `half_ns`."""
    utc_minus_raw_ns = time.time_ns() - raw_ns() + offset_ns
    return {
        "local_ns": at_ns,
        "offset_ns": utc_minus_raw_ns,
        "lower_ns": utc_minus_raw_ns - half_ns,
        "upper_ns": utc_minus_raw_ns + half_ns,
        "narrow_lower_ns": None,
        "narrow_upper_ns": None,
        "state": state,
    }


def values_of(
    *,
    half_ns: int = 20 * US,
    state: str = "synchronised",
    offset_ns: int = 0,
    age_ns: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """What a client wrote `age_ns` ago."""
    written_ns = raw_ns() - age_ns
    known = state != "unsynchronised"
    forecast = [
        row(written_ns + later_s * SECOND, half_ns * (1 + later_s), state, offset_ns)
        for later_s in (0, 1, 4, 16, 64, 256)
    ]
    return {
        "name": "pi7",
        "state": state,
        "chosen": 0 if known else None,
        "servers": [server_row(state, half_ns)] if known else [],
        "disagreements": [],
        "keys": [],
        "follow_unsigned": False,
        "trust_broker": False,
        "forecast": forecast if known else [],
        "boot_id": boot_id(),
        "virtual_clock": "",
        "broker": "mqtt://broker.lan:1883",
        "connected": True,
        "mqtt_version": "5",
        "attempts": 1,
        "connects": 1,
        "last_error": "",
        "kernel_timestamps": True,
        "clock_steps": 0,
        "suspends": 0,
        "refused": {"replayed": 2},
        **more,
    }


def server_row(state: str, half_ns: int) -> dict[str, Any]:
    return {
        "server": 0,
        "format": "precise",
        "state": state,
        "offset_ns": 3 * US,
        "earliest_offset_ns": 3 * US - half_ns,
        "latest_offset_ns": 3 * US + half_ns,
        "bound_ns": half_ns,
        "bound_is_assumed": False,
        "narrow_bound_ns": None,
        "root_distance_ns": 0,
        "delay_ns": 300 * US,
        "frequency_ppb": 1200.0,
        "age_ns": 2 * SECOND,
        "kind": "echo",
        "stratum": 1,
        "authenticated": False,
        "trouble": None,
        "verdicts": [
            {"kind": "echo", "verdict": "used", "reason": "selected", "count": 40},
            {"kind": "two-way", "verdict": "kept", "reason": "better-kind", "count": 160},
            {"kind": "echo", "verdict": "refused", "reason": "echo-order", "count": 2},
        ],
    }


def write(folder: Path, values: dict[str, Any], *, age_ns: int = 0, version: int = 1) -> None:
    content = {
        "version": version,
        "program": "mqtick-client",
        "pid": os.getpid(),
        "written_boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME) - age_ns,
        "status": values,
    }
    (folder / "status.json").write_text(json.dumps(content))


Out = pytest.CaptureFixture[str]


def ask(folder: Path, *words: str) -> int:
    return main([*words, "--state-folder", str(folder)])


# -- help, version, configuration ------------------------------------------------------------------


def test_help_shows_examples_and_every_command(capsys: Out) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert EXAMPLES in text
    for command in ("run", "status", "sources", "now", "wait", "doctor", "chrony-config"):
        assert re.search(rf"^    {command}\s", text, re.MULTILINE)


def test_every_example_of_the_help_is_accepted() -> None:
    examples = [line for line in EXAMPLES.splitlines() if line.startswith("  mqtick-client")]
    assert len(examples) >= 6
    for line in examples:
        words = shlex.split(line.partition("|")[0])[1:]
        if words[0].startswith("-"):
            words = ["run", *words]
        assert _parser().parse_args(words).command == words[0]


def test_version_is_the_packages(capsys: Out) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert re.fullmatch(r"mqtick-client \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_a_printed_configuration_reads_back_as_itself(tmp_path: Path, capsys: Out) -> None:
    flags = ["--broker", "mqtts://b.lan", "--name", "pi7", "--estimator-late-s", "3.5", "--fast"]
    assert main([*flags, "--print-config"]) == 0
    printed = capsys.readouterr().out
    file = tmp_path / "client.toml"
    file.write_text(printed)
    assert main(["--config", str(file), "--print-config"]) == 0
    assert capsys.readouterr().out == printed
    assert 'name = "pi7"' in printed


def test_the_example_configuration_is_the_defaults_commented_out(
    tmp_path: Path, capsys: Out
) -> None:
    assert main(["run", "--example-config"]) == 0
    example = capsys.readouterr().out
    assert main(["run", "--print-config", "--config", os.devnull]) == 0
    defaults = capsys.readouterr().out
    for text in (example, re.sub(r"^#(\w+ = )", r"\1", example, flags=re.MULTILINE)):
        file = tmp_path / "client.toml"
        file.write_text(text)
        assert main(["--config", str(file), "--print-config"]) == 0
        assert capsys.readouterr().out == defaults


def test_a_good_configuration_is_called_good(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "client.toml"
    file.write_text('broker = "mqtt://broker.lan"\n[estimator]\nuse_echo = false\n')
    assert main(["--config", str(file), "--check-config"]) == 0
    assert f"the configuration is good ({file})" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('borker = "mqtt://b"', "broker"),
        ('broker = "http://b"', "scheme 'http'"),
        ('name = "kitchen #1"', "is not a client name"),
        ('name = "n23456789012345"\nprefix = "site/building/fl.2"', "Shorten"),
        ("exchange_burst = 0", "exchange_burst"),
        ('broker = "mqtts://b"\nca_file = "/nowhere/ca.pem"', "/nowhere/ca.pem"),
        ('format = "draft-2021"\nmqtt_version = "3.1.1"', "set mqtt_version to 5"),
        ('draft_location = "a/#"', "wildcard #"),
        ('virtual_clock = "offset=3"', "virtual clock"),
        ('virtual_clock = "offset_s=3"\ndiscipline = "chrony"', "as wrong as the virtual one"),
    ],
)
def test_a_bad_configuration_is_wrong_use_with_a_sentence(
    tmp_path: Path, capsys: Out, line: str, said: str
) -> None:
    file = tmp_path / "client.toml"
    file.write_text(line + "\n")
    assert main(["--config", str(file), "--check-config"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error


def test_a_key_file_that_is_missing_is_named(capsys: Out) -> None:
    assert main(["--keys-file", "/nowhere/keys", "--check-config"]) == 1
    assert capsys.readouterr().err == "error: /nowhere/keys: No such file or directory\n"


def test_keys_that_are_not_enough_are_found_before_a_server_is(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "keys"
    file.write_text(f"broadcast {'ab' * 16}\n")
    file.chmod(0o600)
    assert main(["--keys-file", str(file), "--check-config"]) == 2
    assert "no `client` line" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--nonsense"],
        ["frobnicate"],
        ["status", "--within", "1ms"],
        ["wait", "--within", "5"],
        ["wait", "--within", "-1us"],
        ["wait", "--timeout", "soon"],
        ["wait", "--of", "moon"],
        ["run", "--exchange-burst", "many"],
    ],
)
def test_wrong_flags_are_wrong_use(words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        raise SystemExit(main(words))
    assert left.value.code == 2


def said_by_wrong_use(capsys: Out, *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    return capsys.readouterr().err


def test_a_wrong_flag_is_one_line_that_names_the_right_one(capsys: Out) -> None:
    error = said_by_wrong_use(capsys, "doctor", "--brokr", "mqtt://b")
    assert error.count("\n") == 1
    assert error.startswith(
        "error: unrecognized arguments: --brokr mqtt://b; did you mean --broker"
    )


def test_a_negative_duration_is_called_negative(capsys: Out) -> None:
    assert "'-1us' is negative" in said_by_wrong_use(capsys, "wait", "--within", "-1us")


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_the_help_of_a_command_fits_a_screen_and_the_settings_are_listed_apart(
    command: str, capsys: Out
) -> None:
    for flag, holds in (("-h", False), ("--help-settings", True)):
        with pytest.raises(SystemExit) as left:
            main([command, flag])
        assert left.value.code == 0
        text = capsys.readouterr().out
        assert ("--estimator-holdover-after-s" in text) is holds
        assert holds or text.count("\n") < 30
        assert holds or "--help-settings" in text


def test_with_keys_and_without_exchanges_nothing_would_ever_be_believed(
    tmp_path: Path, capsys: Out
) -> None:
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    keys.write_text(f"broadcast {'ab' * 16}\nclient pi7 {'cd' * 16}\n")
    flags = ["--name", "pi7", "--keys-file", str(keys), "--no-estimator-use-two-way"]
    for more in (["--check-config"], []):
        assert main([*flags, *more]) == 2
        assert "never be synchronised" in capsys.readouterr().err


def test_holdover_comes_after_broadcasts_had_their_chance(capsys: Out) -> None:
    assert main(["--estimator-holdover-after-s", "45", "--check-config"]) == 2
    assert "in holdover before it uses" in capsys.readouterr().err


def test_a_configuration_that_is_a_pipe_is_refused_and_not_waited_for(
    tmp_path: Path, capsys: Out
) -> None:
    pipe = tmp_path / "client.toml"
    os.mkfifo(pipe)
    assert main(["--config", str(pipe), "--check-config"]) == 2
    assert f"{pipe}: is a pipe" in capsys.readouterr().err


def test_a_client_name_with_a_wildcard_is_refused_with_a_sentence(capsys: Out) -> None:
    assert main(["--name", "kitchen#1"]) == 2
    assert "'kitchen#1' is not a client name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("100us", 100_000),
        ("1.5ms", 1_500_000),
        ("60s", 60 * SECOND),
        ("2m", 120 * SECOND),
        ("2min", 120 * SECOND),
    ],
)
def test_durations_are_read_with_their_unit(text: str, duration_ns: int) -> None:
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize(
    ("version", "filter_"), [("4.3", True), ("4.6.1", True), ("4.7", False), ("5", False)]
)
def test_chrony_config_fits_the_version(version: str, filter_: bool, capsys: Out) -> None:
    assert main(["chrony-config", "--chrony-version", version, "--servers", "0,12"]) == 0
    comment, *lines = capsys.readouterr().out.splitlines()
    assert comment.startswith("# chrony")
    assert [line.split()[4] for line in lines] == ["MQT0", "MQ12"]
    assert all((" filter 1 " in line) is filter_ for line in lines)
    assert all(" poll 2 " in line for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        ["--servers", "256"],
        ["--servers", "a"],
        ["--poll", "99"],
        ["--delay-us", "0"],
        ["--chrony-version", "new"],
    ],
)
def test_chrony_config_never_prints_what_chronyd_would_not_read(
    words: list[str], capsys: Out
) -> None:
    assert main(["chrony-config", "--chrony-version", "4.3", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")


# -- status ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["status", "now", "sources"])
def test_without_a_client_there_is_one_sentence(tmp_path: Path, capsys: Out, command: str) -> None:
    assert ask(tmp_path, command) == 3
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/status.json: there is no status; is the program running?\n"
    )


def test_status_tells_how_good_the_time_is(tmp_path: Path, capsys: Out) -> None:
    write(tmp_path, values_of())
    assert ask(tmp_path, "status") == 0
    text = capsys.readouterr().out
    assert "client            pi7, synchronised" in text
    assert "offset          +3.0 us (server minus this clock)" in text
    assert "bound           20.0 us" in text
    assert "samples         40 used, 160 kept, 2 refused (echo-order 2)" in text
    assert "refused           replayed 2" in text


def test_status_tells_what_became_of_the_samples(tmp_path: Path, capsys: Out) -> None:
    feed = {"sent": {"sent": 3, "missing": 1}, "says": "the socket is missing"}
    pins = {"arrival": {"backend": "gpiod", "errors": 2, "last": "no permission"}}
    write(tmp_path, values_of(chrony={"0": feed}, pins=pins))
    assert ask(tmp_path, "status") == 0
    text = capsys.readouterr().out
    assert "chrony            server 0: 3 sent, 1 missing; the socket is missing" in text
    assert "pin               arrival: gpiod, 2 errors, the last: no permission" in text


def test_status_for_machines_holds_everything(tmp_path: Path, capsys: Out) -> None:
    values = values_of()
    write(tmp_path, values)
    assert ask(tmp_path, "status", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pid"] == os.getpid()
    assert found["age_ns"] < SECOND
    assert {name: found[name] for name in values} == values


def test_a_client_that_is_not_connected_says_why(tmp_path: Path, capsys: Out) -> None:
    values = values_of(
        state="unsynchronised", connected=False, attempts=7, last_error="no route to host"
    )
    write(tmp_path, values)
    assert ask(tmp_path, "status") == 3
    text = capsys.readouterr().out
    assert "not connected after 7 attempts: no route to host" in text
    assert "none heard yet" in text


def test_an_old_status_begins_with_that_and_never_with_synchronised(
    tmp_path: Path, capsys: Out
) -> None:
    write(tmp_path, values_of(), age_ns=90 * SECOND)
    assert ask(tmp_path, "status") == 3
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("this status is 90 s old: the client is not running")
    assert second == "client            pi7, synchronised 90 s ago"


@pytest.mark.parametrize(
    ("row", "keys", "said"),
    [
        ({"authenticated": True}, ["a1b2"], "yes"),
        ({}, ["a1b2"], "not yet, no exchange has succeeded"),
        ({}, [], "no, without keys"),
        ({"format": "1451.1.6", "server": None}, ["a1b2"], "no, this format has no tags"),
    ],
)
def test_status_tells_whether_the_time_is_authenticated(
    tmp_path: Path, capsys: Out, row: dict[str, Any], keys: list[str], said: str
) -> None:
    values = values_of(keys=keys)
    values["servers"][0] |= row
    write(tmp_path, values)
    ask(tmp_path, "status")
    assert f"\n  authenticated   {said}\n" in capsys.readouterr().out


def test_sources_are_a_line_each_with_a_mark(tmp_path: Path, capsys: Out) -> None:
    values = values_of(disagreements=[{"servers": ["0", "1"], "gap_ns": SECOND // 2}])
    row = values["servers"][0]
    unknown = {"age_ns": None, "offset_ns": None, "bound_ns": None, "state": "unsynchronised"}
    values["servers"] += [row | {"server": 1}, row | {"server": 2}, row | unknown | {"server": 3}]
    write(tmp_path, values)
    assert ask(tmp_path, "sources") == 0
    head, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head[:4] == ["server", "format", "stratum", "state"]
    assert [line[0] for line in lines] == ["*", "x", "+", "?"]
    assert " ".join(lines[0]) == (
        "* 0 precise 1 synchronised 2.0 s +3.0 us 20.0 us - 0.0 us 300.0 us no"
    )
    write(tmp_path, values, age_ns=90 * SECOND)
    assert ask(tmp_path, "sources") == 3
    assert capsys.readouterr().out.startswith("this status is 90 s old")


ASSUMED = "us if the broker delivers in order and links are symmetric"


def test_what_is_assumed_stands_apart_from_what_is_certain(tmp_path: Path, capsys: Out) -> None:
    values = values_of(half_ns=200 * US)
    values["servers"][0]["narrow_bound_ns"] = 30 * US
    for one in values["forecast"]:
        one["narrow_lower_ns"] = one["offset_ns"] - 30 * US
        one["narrow_upper_ns"] = one["offset_ns"] + 30 * US
    write(tmp_path, values)
    ask(tmp_path, "status")
    text = capsys.readouterr().out
    assert (
        f"  bound           200.0 us, root distance 0.0 us\n  assumed         +-30.0 {ASSUMED}\n"
        in text
    )
    assert summary(values) == "synchronised: offset +3.0 us, bound 200.0 us, assumed 30.0 us"
    ask(tmp_path, "now")
    assert capsys.readouterr().out.splitlines()[3] == f"assumed  +-30.0 {ASSUMED}"
    text = render(metrics(values))
    assert 'mqtick_client_bound_seconds{server="0"} 0.0002' in text
    assert 'mqtick_client_narrow_bound_seconds{server="0"} 3e-05' in text


def test_the_guaranteed_bound_decides_what_is_waited_for(tmp_path: Path) -> None:
    values = values_of(half_ns=2 * MS)
    for one in values["forecast"]:
        one["narrow_lower_ns"] = one["narrow_upper_ns"] = one["offset_ns"]
    write(tmp_path, values)
    assert wait(tmp_path, "1ms") == 4


def test_where_servers_disagree_the_time_is_not_said_to_be_right(
    tmp_path: Path, capsys: Out
) -> None:
    write(tmp_path, values_of(disagreements=[{"servers": ["0", "1"], "gap_ns": SECOND // 2}]))
    assert wait(tmp_path, "1ms") == 4
    said = "servers 0 and 1 disagree by at least 500.000 ms: one of them is wrong"
    assert said in capsys.readouterr().err
    assert wait(tmp_path, "1s") == 0
    ask(tmp_path, "now")
    assert f"but      {said}" in capsys.readouterr().out


def test_open_doors_are_said(tmp_path: Path, capsys: Out) -> None:
    values = values_of(follow_unsigned=True, trust_broker=True)
    write(tmp_path, values)
    ask(tmp_path, "status")
    text = capsys.readouterr().out
    assert "open door         follow_unsigned: any publisher can set this clock" in text
    assert "open door         trust_broker: " in text
    assert "mqtick_client_follow_unsigned 1" in render(metrics(values))
    assert "mqtick_client_follow_unsigned 0" in render(metrics(values_of()))


def test_a_frequency_that_nobody_knows_yet_is_no_number(tmp_path: Path, capsys: Out) -> None:
    values = values_of()
    values["servers"][0]["frequency_ppb"] = None
    write(tmp_path, values)
    ask(tmp_path, "status")
    assert "\n  frequency       unknown yet\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"version": 1}', b"[" * 100_000, b"9" * 5000],
)
@pytest.mark.parametrize("command", ["status", "now"])
def test_a_status_file_that_is_none_is_a_sentence(
    tmp_path: Path, capsys: Out, content: bytes, command: str
) -> None:
    (tmp_path / "status.json").write_bytes(content)
    assert ask(tmp_path, command) == 3
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "Traceback" not in error


@pytest.mark.parametrize("command", ["status", "now"])
def test_a_status_of_another_version_is_a_sentence(
    tmp_path: Path, capsys: Out, command: str
) -> None:
    write(tmp_path, {"boot_id": boot_id(), "forecast": [{}], "servers": 7})
    assert ask(tmp_path, command) == 3
    assert "version" in capsys.readouterr().err
    write(tmp_path, values_of(), version=2)
    assert ask(tmp_path, command) == 3
    assert "version" in capsys.readouterr().err


def test_every_sample_and_every_refusal_is_in_the_metrics() -> None:
    feed = {"sent": {"sent": 3, "missing": 1}, "says": "the socket is missing"}
    text = render(metrics(values_of(chrony={"0": feed})))
    for line in (
        "mqtick_client_synchronised 1",
        'mqtick_client_offset_seconds{server="0"} 3e-06',
        'mqtick_client_sample_age_seconds{server="0"} 2.0',
        'mqtick_client_server_in_use{server="0"} 1',
        'samples_total{kind="echo",reason="echo-order",server="0",verdict="refused"} 2',
        'mqtick_client_chrony_total{outcome="missing",server="0"} 1',
        'mqtick_client_refused_total{reason="replayed"} 2',
    ):
        assert line in text


@pytest.mark.parametrize(("early_us", "late_us", "worst_us"), [(-30, 50, 57), (-80, 50, 87)])
def test_the_clock_error_of_the_metrics_is_the_far_end_and_the_root_distance(
    early_us: int, late_us: int, worst_us: int
) -> None:
    values = values_of()
    values["servers"][0] |= {
        "earliest_offset_ns": early_us * US,
        "latest_offset_ns": late_us * US,
        "root_distance_ns": 7 * US,
    }
    found = {metric.name: metric.value for metric in metrics(values)}
    assert found["mqtick_client_clock_error_seconds"] == pytest.approx(worst_us / 1e6)


def test_a_client_in_holdover_says_so_and_one_without_time_states_no_error() -> None:
    found = {metric.name: metric.value for metric in metrics(values_of(state="holdover"))}
    assert (found["mqtick_client_holdover"], found["mqtick_client_synchronised"]) == (1, 0)
    lost = {metric.name: metric.value for metric in metrics(values_of(state="unsynchronised"))}
    assert lost["mqtick_client_holdover"] == 0
    assert lost["mqtick_client_clock_error_seconds"] is None


# -- now -------------------------------------------------------------------------------------------


def status_of(values: dict[str, Any], age_ns: int = 0) -> Status:
    return Status("mqtick-client", 1, age_ns, values)


def test_now_is_an_interval_that_holds_the_time(tmp_path: Path, capsys: Out) -> None:
    write(tmp_path, values_of(half_ns=5 * MS))
    present = now(str(tmp_path))
    assert present.earliest_ns <= present.estimate_ns <= present.latest_ns
    assert present.earliest_ns < time.time_ns() < present.latest_ns + SECOND
    assert present.bound_ns >= 5 * MS
    assert ask(tmp_path, "now") == 0
    earliest, latest, state = capsys.readouterr().out.splitlines()
    assert earliest < latest.replace("latest  ", "earliest")
    assert re.fullmatch(r"state    synchronised, give or take [0-9]+\.[0-9] us", state)


def test_now_for_machines(tmp_path: Path, capsys: Out) -> None:
    write(tmp_path, values_of())
    assert ask(tmp_path, "now", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["earliest_ns"] < found["estimate_ns"] < found["latest_ns"]
    assert abs(found["clock_ns"] - found["estimate_ns"]) < MS
    assert found["state"] == "synchronised"


def test_between_two_rows_of_the_forecast_the_interval_is_drawn_straight() -> None:
    written_ns = raw_ns() - 5 * SECOND
    values = values_of()
    values["forecast"] = [row(written_ns, 100 * US), row(written_ns + 10 * SECOND, 300 * US)]
    present = now_from(status_of(values, 5 * SECOND))
    assert present.bound_ns == pytest.approx(200 * US, rel=0.01)


def test_the_bound_counts_from_the_estimate_and_not_from_the_middle_of_the_interval() -> None:
    values = values_of(half_ns=100 * US)
    for one in values["forecast"]:
        one["offset_ns"] += 80 * US
    present = now_from(status_of(values))
    assert present.bound_ns == pytest.approx(180 * US, rel=0.02)
    assert present.estimate_ns - present.bound_ns <= present.earliest_ns
    assert present.estimate_ns + present.bound_ns >= present.latest_ns


def test_the_state_is_that_of_the_later_row() -> None:
    written_ns = raw_ns() - 5 * SECOND
    values = values_of()
    values["forecast"] = [
        row(written_ns, 100 * US),
        row(written_ns + 10 * SECOND, 300 * US, "holdover"),
    ]
    assert now_from(status_of(values, 5 * SECOND)).state == "holdover"


def test_the_interval_of_a_client_that_died_only_grows() -> None:
    fresh = now_from(status_of(values_of()))
    old = now_from(status_of(values_of(age_ns=100 * SECOND), 100 * SECOND))
    assert old.bound_ns > 50 * fresh.bound_ns


def test_the_error_of_the_clock_counts_its_offset_and_the_bound() -> None:
    present = now_from(status_of(values_of(half_ns=20 * US, offset_ns=-3 * MS)))
    assert present.clock_error_ns == pytest.approx(3 * MS + 20 * US, rel=0.02)
    assert present.bound_ns == pytest.approx(20 * US, rel=0.1)


def test_a_reader_that_is_held_up_between_two_clocks_reads_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As wide a bracket as a scheduler leaves it would make the clock look as far off."""
    read, late_ns = time.clock_gettime_ns, [40 * MS]

    def interrupted(clock: int) -> int:
        if clock == time.CLOCK_REALTIME and late_ns:
            time.sleep(late_ns.pop() / SECOND)
        return read(clock)

    values = values_of(half_ns=20 * US)
    status = status_of(values)
    monkeypatch.setattr("mqtick.client.interval.time.clock_gettime_ns", interrupted)
    assert now_from(status).clock_error_ns < 1 * MS


def failure(values: dict[str, Any], age_ns: int = 0) -> str:
    with pytest.raises(NowError) as caught:
        now_from(status_of(values, age_ns))
    return str(caught.value)


def test_a_status_of_another_boot_tells_no_time(tmp_path: Path, capsys: Out) -> None:
    values = values_of(boot_id="00000000-0000-0000-0000-000000000000")
    assert "an earlier boot" in failure(values)
    write(tmp_path, values)
    assert ask(tmp_path, "now") == 3
    assert "an earlier boot" in capsys.readouterr().err


def test_the_boot_is_the_one_that_systemd_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes no hyphens, the kernel does; both are one boot."""
    assert "-" not in boot_id.__wrapped__()
    monkeypatch.setenv("MQTICK_BOOT_ID", "0" * 32)
    assert boot_id.__wrapped__() == "0" * 32


def test_a_status_from_before_the_host_slept_tells_no_time() -> None:
    """The raw timeline stands still in sleep, so the forecast would be as late as the sleep was."""
    assert "has slept" in failure(values_of(age_ns=1 * SECOND), age_ns=3600 * SECOND)


def test_an_estimate_beyond_the_forecast_tells_no_time() -> None:
    assert "too old" in failure(values_of(age_ns=300 * SECOND), age_ns=300 * SECOND)


def test_a_client_that_knows_no_time_tells_none() -> None:
    assert "not synchronised" in failure(values_of(state="unsynchronised"))


@pytest.mark.parametrize(
    "damage",
    [
        {"forecast": 7},
        {"forecast": [{"local_ns": "x"}]},
        {"forecast": None},
        {"virtual_clock": 7},
        {"virtual_clock": "nonsense"},
    ],
)
def test_a_damaged_status_tells_no_time(damage: dict[str, Any]) -> None:
    assert "not this version's" in failure(values_of(**damage))


def test_two_rows_of_the_same_instant_tell_no_time() -> None:
    later_ns = raw_ns() + SECOND // 5
    values = values_of()
    values["forecast"] = [row(later_ns, US), row(later_ns, US)]
    assert "not this version's" in failure(values)


def test_in_holdover_now_tells_the_time_and_the_exit_code_says_so(
    tmp_path: Path, capsys: Out
) -> None:
    write(tmp_path, values_of(state="holdover"))
    assert ask(tmp_path, "now") == 3
    assert "state    holdover" in capsys.readouterr().out


# -- wait ------------------------------------------------------------------------------------------


def wait(folder: Path, within: str, timeout: str = "0s", *more: str) -> int:
    return ask(folder, "wait", "--within", within, "--timeout", timeout, *more)


def test_wait_ends_at_once_when_the_time_is_good(tmp_path: Path, capsys: Out) -> None:
    write(tmp_path, values_of(half_ns=200 * US))
    assert wait(tmp_path, "1ms", "60s") == 0
    assert "the time is right within 2" in capsys.readouterr().out


def test_wait_tells_not_good_enough_from_not_synchronised(tmp_path: Path, capsys: Out) -> None:
    write(tmp_path, values_of(half_ns=2 * MS))
    assert wait(tmp_path, "1ms") == 4
    assert (
        "not within 1000 us after 0 s: the time is only right within 2" in capsys.readouterr().err
    )
    write(tmp_path, values_of(state="holdover"))
    assert wait(tmp_path, "1ms") == 3
    assert "in holdover" in capsys.readouterr().err
    write(tmp_path, values_of(state="unsynchronised"))
    assert wait(tmp_path, "1ms") == 3


def test_wait_without_a_client_or_with_a_dead_one_is_not_synchronised(
    tmp_path: Path, capsys: Out
) -> None:
    assert wait(tmp_path, "1ms") == 3
    assert "there is no status" in capsys.readouterr().err
    write(tmp_path, values_of(age_ns=60 * SECOND), age_ns=60 * SECOND)
    assert wait(tmp_path, "1s") == 3
    assert "is not running any more" in capsys.readouterr().err


def test_wait_gives_up_when_its_time_is_up(tmp_path: Path) -> None:
    began_s = time.monotonic()
    assert wait(tmp_path, "1ms", "300ms") == 3
    assert 0.3 <= time.monotonic() - began_s < 2.0


def test_wait_notices_when_the_time_becomes_good(tmp_path: Path) -> None:
    write(tmp_path, values_of(half_ns=900 * MS))
    late = threading.Timer(0.3, lambda: write(tmp_path, values_of()))
    late.start()
    began_s = time.monotonic()
    assert wait(tmp_path, "1ms", "10s") == 0
    assert time.monotonic() - began_s < 5.0
    late.join()


def test_wait_asks_for_the_system_clock_unless_told_otherwise(tmp_path: Path) -> None:
    """An application that reads the system clock is not helped by a good estimate beside it."""
    write(tmp_path, values_of(half_ns=20 * US, offset_ns=5 * MS))
    assert wait(tmp_path, "1ms") == 4
    assert wait(tmp_path, "1ms", "0s", "--of", "estimate") == 0


# -- the process -----------------------------------------------------------------------------------


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    def made(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *words, "--state-folder", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell's background job ignores Ctrl-C, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    return made


def interrupt(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Let it get going, send it a signal; returns exit code and what it said."""
    time.sleep(0.5)
    process.send_signal(number)
    out, error = process.communicate(timeout=10)
    return process.returncode, out + error


def test_control_c_ends_a_wait_without_a_traceback(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    process = start("wait", "--timeout", "60s")
    deadline_s = time.monotonic() + 20
    asleep = 0  # as long as it still reads its modules it would say where it was
    while asleep < 5 and time.monotonic() < deadline_s:
        time.sleep(0.05)
        asleep = asleep + 1 if _sleeps(process.pid) else 0
    code, said = interrupt(process, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in said


@pytest.mark.slow
def test_watch_goes_on_while_the_client_comes_and_goes(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = start("status", "--watch")
    assert process.stderr is not None
    assert "there is no status" in process.stderr.readline()
    write(tmp_path, values_of())
    assert process.stdout is not None
    assert "pi7, synchronised" in process.stdout.readline()
    code, said = interrupt(process, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in said


def _sleeps(pid: int) -> bool:
    """Whether a process waits for something, with nothing to compute."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_client_cleanly_even_while_no_broker_answers(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    process = start("run", "--broker", "mqtt://127.0.0.1:1")
    deadline_s = time.monotonic() + 10
    while not (tmp_path / "status.json").exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    code, said = interrupt(process, number)
    assert code == 0
    assert "Traceback" not in said
    values = json.loads((tmp_path / "status.json").read_text())["status"]
    assert values["state"] == "unsynchronised"


@pytest.mark.slow
def test_hung_up_on_the_client_reads_its_keys_again(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)

    def names_of(*fleet: bytes) -> list[str]:
        keys.write_text("".join(f"fleet {key.hex()}\n" for key in fleet))
        return Keyring(fleet).broadcast().names

    def shown() -> object:
        path = tmp_path / "status.json"
        return json.loads(path.read_text())["status"]["keys"] if path.exists() else None

    def wait_until_shown(names: list[str]) -> None:
        deadline_s = time.monotonic() + 10
        while shown() != names and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert shown() == names

    before = names_of(b"1" * 32)
    process = start("run", "--broker", "mqtt://127.0.0.1:1", "--keys-file", str(keys))
    wait_until_shown(before)
    after = names_of(b"2" * 32, b"1" * 32)
    process.send_signal(signal.SIGHUP)
    wait_until_shown(after)
    assert interrupt(process, signal.SIGTERM)[0] == 0


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    write(tmp_path, values_of())
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*PROGRAM, "status", "--json", "--state-folder", str(tmp_path)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=20,
    )
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 0)
