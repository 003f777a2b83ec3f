"""mqtick-client as it is typed: help, configuration, status, now, wait, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqtick.client.cli import EXAMPLES, _parser, main, parse_duration_ns
from mqtick.client.config import Settings, client_name
from mqtick.client.interval import Now, NowError, boot_id, now, now_from, slept_ns
from mqtick.client.metrics import metrics
from mqtick.client.status import clock_error_ns
from mqtick.client.status_text import summary
from mqtick.protocol.auth import Keyring
from mqtick.protocol.topics import check_client_name
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
    servers = more.pop("servers", [server_row(state, half_ns)] if known else [])
    return {
        "name": "pi7",
        "name_heard_twice": False,
        "state": state,
        "chosen": 0 if known else None,
        "clock_error_ns": clock_error_ns(servers[0]) if known and servers else None,
        "servers": servers,
        "disagreements": [],
        "keys": [],
        "follow_unsigned": False,
        "trust_broker": False,
        "trust_broker_residence": False,
        "broker_fills": False,
        "forecast": forecast if known else [],
        "boot_id": boot_id(),
        "slept_ns": slept_ns(),
        "virtual_clock": "",
        "broker": "mqtt://broker.lan:1883",
        "connected": True,
        "mqtt_version": "5",
        "attempts": 1,
        "connects": 1,
        "last_error": "",
        "kernel_timestamps": True,
        "unasked": 0,
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
        "why_unknown": "",
        "offset_ns": 3 * US,
        "earliest_offset_ns": 3 * US - half_ns,
        "latest_offset_ns": 3 * US + half_ns,
        "bound_ns": half_ns,
        "bound_is_assumed": False,
        "narrow_bound_ns": None,
        "root_distance_ns": 0,
        "slew_ppb": 750,
        "slew_is_assumed": False,
        "delay_ns": 300 * US,
        "frequency_ppb": 1200.0,
        "age_ns": 2 * SECOND,
        "kind": "echo",
        "stratum": 1,
        "authenticated": False,
        "jumps": 0,
        "resets": 0,
        "in_doubt": False,
        "trouble": None,
        "verdicts": [
            {"kind": "echo", "verdict": "used", "reason": "selected", "count": 40},
            {"kind": "two-way", "verdict": "kept", "reason": "better-kind", "count": 160},
            {"kind": "echo", "verdict": "refused", "reason": "echo-order", "count": 2},
        ],
    }


class Cli:
    """The command line beside a folder with what a client wrote."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def write(self, values: dict[str, Any], *, age_ns: int = 0, version: int = 1) -> None:
        """Write a status as a client does, or did."""
        content = {
            "version": version,
            "program": "mqtick-client",
            "pid": os.getpid() if age_ns == 0 else 1 << 30,  # which no process has
            "written_boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME) - age_ns,
            "status": values,
        }
        (self.folder / "status.json").write_text(json.dumps(content))

    def config(self, text: str) -> str:
        """Write a configuration; returns its path."""
        file = self.folder / "client.toml"
        file.write_text(text)
        return str(file)

    def keys(self, text: str) -> str:
        """Write a key file; returns its path."""
        file = self.folder / "keys"
        file.touch(mode=0o600)
        file.write_text(text)
        return str(file)

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command; returns what it said, on the one channel where it should."""
        try:
            ended = main(words)
        except SystemExit as left:
            ended = left.code  # type: ignore[assignment]
        said = self._capsys.readouterr()
        assert ended == code, said
        assert not (said.out and said.err)
        return said.out + said.err

    def ask(self, *words: str, code: int = 0) -> str:
        """Run a command that reads the status."""
        return self.run(*words, "--state-folder", str(self.folder), code=code)

    def wait(self, within: str, timeout: str = "0s", *more: str, code: int = 0) -> str:
        return self.ask("wait", "--within", within, "--timeout", timeout, *more, code=code)


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path, capsys)


# -- help, version, configuration ------------------------------------------------------------------


def test_help_shows_examples_and_every_command(cli: Cli) -> None:
    text = cli.run("--help")
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


def test_version_is_the_packages(cli: Cli) -> None:
    assert re.fullmatch(r"mqtick-client \d+\.\d+\.\d+\n", cli.run("--version"))


def test_a_printed_configuration_reads_back_as_itself(cli: Cli) -> None:
    flags = ["--broker", "mqtts://b.lan", "--name", "pi7", "--estimator-late-s", "3.5", "--fast"]
    printed = cli.run(*flags, "--print-config")
    assert cli.run("--config", cli.config(printed), "--print-config") == printed
    assert 'name = "pi7"' in printed


def test_the_example_configuration_is_the_defaults_commented_out(cli: Cli) -> None:
    example = cli.run("run", "--example-config")
    defaults = cli.run("run", "--print-config", "--config", os.devnull)
    for text in (example, re.sub(r"^#(\w+ = )", r"\1", example, flags=re.MULTILINE)):
        assert cli.run("--config", cli.config(text), "--print-config") == defaults


def test_a_good_configuration_is_called_good(cli: Cli) -> None:
    file = cli.config('broker = "mqtt://broker.lan"\n[estimator]\nuse_echo = false\n')
    assert f"the configuration is good ({file})" in cli.run("--config", file, "--check-config")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('borker = "mqtt://b"', "broker"),
        ('broker = "mqtt+udp://b"\nformat = "draft-2021"', "MQTT over UDP is MQTT 3.1.1"),
        ('broker = "mqtt+udp://b"\nusername = "x"', "where there are no accounts"),
        ('broker = "mqtt+udp://b?dialect=published"', "which only precise has"),
        ('broker = "http://b"', "scheme 'http'"),
        ('name = "kitchen #1"', "is not a client name"),
        ('name = "n23456789012345"\nprefix = "site/building/fl.2"', "Shorten"),
        ("exchange_burst = 0", "exchange_burst"),
        ('broker = "mqtts://b"\nca_file = "/nowhere/ca.pem"', "/nowhere/ca.pem"),
        ('format = "draft-2021"\nmqtt_version = "3.1.1"', "set mqtt_version to 5"),
        ('draft_location = "a/#"', "wildcard #"),
        ('virtual_clock = "offset=3"', "virtual clock"),
        ('virtual_clock = "offset_s=3"\ndiscipline = "chrony"', "as wrong as the virtual one"),
        ("[estimator]\nholdover_after_s = 45.0", "in holdover before it uses"),
    ],
)
def test_a_bad_configuration_is_wrong_use_with_a_sentence(cli: Cli, line: str, said: str) -> None:
    error = cli.run("--config", cli.config(line + "\n"), "--check-config", code=2)
    assert error.startswith("error: ")
    assert said in error


def test_a_configuration_that_is_a_pipe_is_refused_and_not_waited_for(cli: Cli) -> None:
    pipe = cli.folder / "client.toml"
    os.mkfifo(pipe)
    assert f"{pipe}: is a pipe" in cli.run("--config", str(pipe), "--check-config", code=2)


def test_a_key_file_that_is_missing_is_named(cli: Cli) -> None:
    error = cli.run("--keys-file", "/nowhere/keys", "--check-config", code=1)
    assert error == "error: /nowhere/keys: No such file or directory\n"


def test_keys_that_are_not_enough_are_found_before_a_server_is(cli: Cli) -> None:
    keys = cli.keys(f"broadcast {'ab' * 16}\n")
    assert "no `client` line" in cli.run("--keys-file", keys, "--check-config", code=2)


def test_with_keys_and_without_exchanges_nothing_would_ever_be_believed(cli: Cli) -> None:
    keys = cli.keys(f"broadcast {'ab' * 16}\nclient pi7 {'cd' * 16}\n")
    flags = ["--name", "pi7", "--keys-file", keys, "--no-estimator-use-two-way"]
    for more in (["--check-config"], []):
        assert "never be synchronised" in cli.run(*flags, *more, code=2)


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["--format", "1451.1.6"], "format"),
        (["--pin-backend", "memory"], "pin.backend"),
        (["--experiments"], "experiments"),
        (["--no-estimator-use-two-way"], "estimator.use_two_way"),
    ],
)
def test_with_low_traffic_nothing_may_need_broadcasts(
    cli: Cli, words: list[str], setting: str
) -> None:
    error = cli.run("--traffic", "low", *words, "--check-config", code=2)
    assert f"traffic is low, so no broadcast is heard, but {setting} needs them" in error


def test_a_client_name_with_a_wildcard_is_refused_before_it_connects(cli: Cli) -> None:
    assert "'kitchen#1' is not a client name" in cli.run("--name", "kitchen#1", code=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nonsense"], "--nonsense"),
        (["frobnicate"], "frobnicate"),
        (["status", "--within", "1ms"], "--within"),
        (["wait", "--within", "5"], "'5' is not a duration"),
        (["wait", "--within", "-1us"], "'-1us' is negative"),
        (["wait", "--timeout", "soon"], "'soon' is not a duration"),
        (["wait", "--of", "moon"], "'moon'"),
        (["run", "--exchange-burst", "many"], "many"),
        (
            ["doctor", "--brokr", "mqtt://b"],
            "error: unrecognized arguments: --brokr mqtt://b; did you mean --broker",
        ),
    ],
)
def test_wrong_flags_are_wrong_use_in_one_line(cli: Cli, words: list[str], said: str) -> None:
    error = cli.run(*words, code=2)
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_the_help_of_a_command_fits_a_screen_and_the_settings_are_listed_apart(
    command: str, cli: Cli
) -> None:
    short, long = cli.run(command, "-h"), cli.run(command, "--help-settings")
    assert "--estimator-holdover-after-s" in long
    assert "--estimator-holdover-after-s" not in short
    assert short.count("\n") < 30
    assert "--help-settings" in short


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
def test_chrony_config_fits_the_version(version: str, filter_: bool, cli: Cli) -> None:
    text = cli.run("chrony-config", "--chrony-version", version, "--servers", "0,12")
    comment, *lines = text.splitlines()
    assert comment.startswith("# chrony")
    assert [line.split()[4] for line in lines] == [
        *("MQT0", "NQT0", "OQT0", "PQT0", "MQ12", "NQ12", "OQ12", "PQ12")
    ]
    assert all((" filter 1 " in line) is filter_ for line in lines)
    assert all(" poll 2 " in line for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        ["--servers", "256"],
        ["--servers", "a"],
        ["--poll", "99"],
        ["--chrony-version", "new"],
    ],
)
def test_chrony_config_never_prints_what_chronyd_would_not_read(words: list[str], cli: Cli) -> None:
    error = cli.run("chrony-config", "--chrony-version", "4.3", *words, code=2)
    assert error.startswith("error: ")


# -- status ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["status", "now", "sources"])
def test_without_a_client_there_is_one_sentence(cli: Cli, command: str) -> None:
    assert cli.ask(command, code=3) == (
        f"error: {cli.folder}/status.json: there is no status: mqtick-client is not running\n"
    )


FEED = {
    "sent": {"sent": 3, "missing": 1},
    "says": "the socket is missing",
    "withheld": {"unsynchronised": 2},
    "clock_says": "this clock is 100.0 s behind the time",
}
PINS = {"arrival": {"backend": "gpiod", "errors": 2, "last": "no permission"}}
LOST: dict[str, Any] = {
    "state": "unsynchronised",
    "connected": False,
    "attempts": 7,
    "last_error": "no route to host",
}


NO_TAGS = {"format": "1451.1.6", "server": None}
STATUS: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    (
        {},
        {},
        [
            "client            pi7, synchronised\n",
            "  offset          +3.0 us (server minus this clock)\n",
            "  bound           20.0 us",
            "  authenticated   no, without keys\n",
            "  samples         40 used, 160 kept, 2 refused (echo-order 2)\n",
            "refused           replayed 2\n",
        ],
    ),
    (
        {"chrony": {"0": FEED}, "pins": PINS},
        {},
        [
            "chrony            server 0: 3 sent, 1 missing; the socket is missing\n",
            "  withheld        unsynchronised 2\n",
            "  clock           this clock is 100.0 s behind the time\n",
            "pin               arrival: gpiod, 2 errors, the last: no permission\n",
        ],
    ),
    (
        {"follow_unsigned": True, "trust_broker": True, "trust_broker_residence": True},
        {"frequency_ppb": None},
        [
            "open door         follow_unsigned: any publisher can set this clock",
            "open door         trust_broker: ",
            "open door         trust_broker_residence: ",
            "  frequency       unknown yet\n",
        ],
    ),
    ({"broker_fills": True}, {}, ["kernel timestamps, says how long each message was in it\n"]),
    (LOST, {}, ["not connected after 7 attempts: no route to host", "none heard yet"]),
    ({}, {"why_unknown": "because"}, ["  not known       because\n"]),
    ({"keys": ["a1b2"]}, {"authenticated": True}, ["  authenticated   yes\n"]),
    ({"keys": ["a1b2"]}, {}, ["  authenticated   not yet, no exchange has succeeded\n"]),
    ({"keys": ["a1b2"]}, NO_TAGS, ["  authenticated   no, this format has no tags\n"]),
]


@pytest.mark.parametrize(("values", "row", "said"), STATUS)
def test_status_tells_it(
    cli: Cli, values: dict[str, Any], row: dict[str, Any], said: list[str]
) -> None:
    given = values_of(**values)
    if row:
        given["servers"][0] |= row
    cli.write(given)
    text = cli.ask("status", code=3 if values is LOST else 0)
    assert [line for line in said if line not in text] == []


def test_status_for_machines_holds_everything(cli: Cli) -> None:
    values = values_of()
    cli.write(values)
    found = json.loads(cli.ask("status", "--json"))
    assert found["pid"] == os.getpid()
    assert found["age_ns"] < SECOND
    assert {name: found[name] for name in values} == values


def test_an_old_status_begins_with_that_and_never_with_synchronised(cli: Cli) -> None:
    cli.write(values_of(), age_ns=90 * SECOND)
    first, second, *_ = cli.ask("status", code=3).splitlines()
    assert first.startswith("this status is 90 s old: mqtick-client is not running; it last said:")
    assert second == "client            pi7, synchronised 90 s ago"


APART = [{"servers": ["0", "1"], "gap_ns": SECOND // 2}]


def test_sources_are_a_line_each_with_a_mark(cli: Cli) -> None:
    values = values_of(disagreements=APART)
    row = values["servers"][0]
    unknown = {"age_ns": None, "offset_ns": None, "bound_ns": None, "state": "unsynchronised"}
    values["servers"] += [row | {"server": 1}, row | {"server": 2}, row | unknown | {"server": 3}]
    cli.write(values)
    head, *lines = [line.split() for line in cli.ask("sources").splitlines()]
    assert head[:4] == ["server", "format", "stratum", "state"]
    assert [line[0] for line in lines] == ["*", "x", "+", "?"]
    assert " ".join(lines[0]) == (
        "* 0 precise 1 synchronised 2.0 s +3.0 us 20.0 us - 0.0 us 300.0 us no"
    )
    cli.write(values, age_ns=90 * SECOND)
    assert cli.ask("sources", code=3).startswith("this status is 90 s old")


def narrowed(half_ns: int, narrow_ns: int) -> dict[str, Any]:
    """A status with an interval that is narrower if the broker is honest."""
    values = values_of(half_ns=half_ns)
    values["servers"][0]["narrow_bound_ns"] = narrow_ns
    for one in values["forecast"]:
        one["narrow_lower_ns"] = one["offset_ns"] - narrow_ns
        one["narrow_upper_ns"] = one["offset_ns"] + narrow_ns
    return values


def test_what_is_assumed_stands_apart_from_what_is_certain(cli: Cli) -> None:
    values = narrowed(200 * US, 30 * US)
    cli.write(values)
    assumed = "+-30.0 us if the broker is honest and links are symmetric"
    certain = "  bound           200.0 us, root distance 0.0 us"
    assert f"{certain}\n  assumed         {assumed}\n" in cli.ask("status")
    assert summary(values) == "synchronised: offset +3.0 us, bound 200.0 us, assumed 30.0 us"
    assert cli.ask("now").splitlines()[3] == f"assumed  {assumed}"
    text = render(metrics(values))
    assert 'mqtick_client_bound_seconds{server="0"} 0.0002' in text
    assert 'mqtick_client_narrow_bound_seconds{server="0"} 3e-05' in text


def test_an_interval_that_nothing_bounds_but_an_assumption_says_so_wherever_it_is_told(
    cli: Cli,
) -> None:
    values = values_of(half_ns=200 * US)
    for one in (*values["forecast"], *values["servers"]):
        one["bound_is_assumed"] = True
    cli.write(values)
    said = "(assumed: only broadcasts are heard)"
    assert cli.ask("now").splitlines()[2].endswith(f" us {said}")
    assert json.loads(cli.ask("now", "--json"))["bound_is_assumed"]
    assert cli.wait("10ms").endswith(f" us {said}\n")
    assert f"200.0 us {said}" in cli.ask("status")


def test_status_says_why_a_time_that_exchanges_contradict_is_not_known(cli: Cli) -> None:
    values = values_of(state="unsynchronised")
    cli.write({**values, "servers": [{**server_row("unsynchronised", MS), "in_doubt": True}]})
    assert "\n  in doubt        the newest exchanges contradict" in cli.ask("status", code=3)


def test_the_guaranteed_bound_decides_what_is_waited_for(cli: Cli) -> None:
    cli.write(narrowed(2 * MS, 0))
    cli.wait("1ms", code=4)


def test_where_servers_disagree_the_time_is_not_said_to_be_right(cli: Cli) -> None:
    cli.write(values_of(disagreements=APART))
    said = "servers 0 and 1 disagree by at least 500.000 ms: one of them is wrong"
    assert said in cli.wait("1ms", code=4)
    cli.wait("1s")
    assert f"but      {said}" in cli.ask("now")
    assert json.loads(cli.ask("now", "--json"))["disagreement_ns"] == SECOND // 2


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"version": 1}', b"[" * 100_000, b"9" * 5000],
)
@pytest.mark.parametrize("command", ["status", "now"])
def test_a_status_file_that_is_none_is_a_sentence(cli: Cli, content: bytes, command: str) -> None:
    (cli.folder / "status.json").write_bytes(content)
    error = cli.ask(command, code=3)
    assert error.startswith("error: ")
    assert "Traceback" not in error


@pytest.mark.parametrize("command", ["status", "now"])
def test_a_status_of_another_version_is_a_sentence(cli: Cli, command: str) -> None:
    cli.write({"boot_id": boot_id(), "forecast": [{}], "servers": 7})
    assert "version" in cli.ask(command, code=3)
    cli.write(values_of(), version=2)
    assert "version" in cli.ask(command, code=3)


def test_every_sample_and_every_refusal_is_in_the_metrics() -> None:
    text = render(metrics(values_of(chrony={"0": FEED})))
    for line in (
        "mqtick_client_synchronised 1",
        'mqtick_client_offset_seconds{server="0"} 3e-06',
        'mqtick_client_sample_age_seconds{server="0"} 2.0',
        'mqtick_client_server_in_use{server="0"} 1',
        'samples_total{kind="echo",reason="echo-order",server="0",verdict="refused"} 2',
        'mqtick_client_chrony_total{outcome="missing",server="0"} 1',
        'mqtick_client_chrony_withheld_total{reason="unsynchronised",server="0"} 2',
        'mqtick_client_refused_total{reason="replayed"} 2',
    ):
        assert line in text


def metric_values(**values: Any) -> dict[str, float | None]:
    return {metric.name: metric.value for metric in metrics(values_of(**values))}


@pytest.mark.parametrize(("early_us", "late_us", "worst_us"), [(-30, 50, 57), (-80, 50, 87)])
def test_the_clock_error_of_the_metrics_is_the_far_end_and_the_root_distance(
    early_us: int, late_us: int, worst_us: int
) -> None:
    row = server_row("synchronised", 20 * US) | {
        "earliest_offset_ns": early_us * US,
        "latest_offset_ns": late_us * US,
        "root_distance_ns": 7 * US,
    }
    error_s = metric_values(servers=[row])["mqtick_client_clock_error_seconds"]
    assert error_s == pytest.approx(worst_us / 1e6)


def test_metrics_tell_holdover_and_open_doors_and_without_time_no_error() -> None:
    found = metric_values(state="holdover", follow_unsigned=True)
    assert (found["mqtick_client_holdover"], found["mqtick_client_synchronised"]) == (1, 0)
    assert found["mqtick_client_follow_unsigned"] == 1
    lost = metric_values(state="unsynchronised")
    assert lost["mqtick_client_holdover"] == lost["mqtick_client_follow_unsigned"] == 0
    assert lost["mqtick_client_clock_error_seconds"] is None


# -- now -------------------------------------------------------------------------------------------


def told(values: dict[str, Any], age_ns: int = 0) -> Now:
    return now_from(Status("mqtick-client", 1, age_ns, values))


def test_now_is_an_interval_that_holds_the_time(cli: Cli) -> None:
    cli.write(values_of(half_ns=5 * MS))
    found = now(str(cli.folder))
    assert found.earliest_ns <= found.estimate_ns <= found.latest_ns
    assert found.earliest_ns < time.time_ns() < found.latest_ns + SECOND
    assert found.bound_ns >= 5 * MS
    earliest, latest, state = cli.ask("now").splitlines()
    assert earliest < latest.replace("latest  ", "earliest")
    assert re.fullmatch(r"state    synchronised, give or take [0-9]+\.[0-9] us", state)


def test_now_for_machines(cli: Cli) -> None:
    cli.write(values_of())
    found = json.loads(cli.ask("now", "--json"))
    assert found["earliest_ns"] < found["estimate_ns"] < found["latest_ns"]
    assert abs(found["clock_ns"] - found["estimate_ns"]) < MS
    assert found["state"] == "synchronised"
    assert found["narrow_earliest_ns"] is found["narrow_latest_ns"] is None
    assert not found["bound_is_assumed"]
    assert found["disagreement_ns"] == 0
    assert len(found) == 9


def test_between_two_rows_the_interval_is_drawn_straight_and_the_state_is_the_laters() -> None:
    written_ns = raw_ns() - 5 * SECOND
    later = row(written_ns + 10 * SECOND, 300 * US, "holdover")
    found = told(values_of(forecast=[row(written_ns, 100 * US), later]), 5 * SECOND)
    assert found.bound_ns == pytest.approx(200 * US, rel=0.01)
    assert found.state == "holdover"


def test_the_bound_counts_from_the_estimate_and_not_from_the_middle_of_the_interval() -> None:
    values = values_of(half_ns=100 * US)
    for one in values["forecast"]:
        one["offset_ns"] += 80 * US
    found = told(values)
    assert found.bound_ns == pytest.approx(180 * US, rel=0.02)
    assert found.estimate_ns - found.bound_ns <= found.earliest_ns
    assert found.estimate_ns + found.bound_ns >= found.latest_ns


def test_the_interval_of_a_client_that_died_only_grows() -> None:
    old = told(values_of(age_ns=100 * SECOND), 100 * SECOND)
    assert old.bound_ns > 50 * told(values_of()).bound_ns


def test_the_error_of_the_clock_counts_its_offset_and_the_bound() -> None:
    found = told(values_of(half_ns=20 * US, offset_ns=-3 * MS))
    assert found.clock_error_ns == pytest.approx(3 * MS + 20 * US, rel=0.02)
    assert found.bound_ns == pytest.approx(20 * US, rel=0.1)


def test_a_reader_that_is_held_up_between_two_clocks_reads_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As wide a bracket as a scheduler leaves it would look like an error, or like sleep."""
    read, late_ns = (
        time.clock_gettime_ns,
        {time.CLOCK_REALTIME: 40 * MS, time.CLOCK_BOOTTIME: 5 * MS},
    )

    def interrupted(clock: int) -> int:
        time.sleep(late_ns.pop(clock, 0) / SECOND)
        return read(clock)

    values = values_of(half_ns=20 * US)
    monkeypatch.setattr("mqtick.client.interval.time.clock_gettime_ns", interrupted)
    assert told(values).clock_error_ns < 1 * MS
    assert not late_ns


def test_a_status_of_another_boot_tells_no_time(cli: Cli) -> None:
    cli.write(values_of(boot_id="00000000-0000-0000-0000-000000000000"))
    assert "an earlier boot" in cli.ask("now", code=3)


def test_the_boot_is_the_one_that_systemd_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes no hyphens, the kernel does; both are one boot."""
    assert "-" not in boot_id.__wrapped__()
    monkeypatch.setenv("MQTICK_BOOT_ID", "0" * 32)
    assert boot_id.__wrapped__() == "0" * 32


@pytest.mark.parametrize(
    ("values", "written_s", "age_s", "said"),
    [
        # The raw timeline stands still in sleep: the forecast would be as late as the sleep was.
        ({"slept_ns": slept_ns() - 10 * MS}, 1, 1, "has slept"),
        ({}, 300, 300, "too old"),
        ({"state": "unsynchronised"}, 0, 0, "not synchronised"),
        ({"forecast": 7}, 0, 0, "not this version's"),
        ({"forecast": [{"local_ns": "x"}] * 2}, 0, 0, "not this version's"),
        ({"forecast": None}, 0, 0, "not this version's"),
        ({"virtual_clock": 7}, 0, 0, "not this version's"),
        ({"virtual_clock": "nonsense"}, 0, 0, "not this version's"),
    ],
)
def test_what_tells_no_time_is_a_sentence(
    values: dict[str, Any], written_s: int, age_s: int, said: str
) -> None:
    with pytest.raises(NowError, match=said):
        told(values_of(age_ns=written_s * SECOND, **values), age_s * SECOND)


def test_two_rows_of_the_same_instant_tell_no_time() -> None:
    later = row(raw_ns() + SECOND // 5, US)
    with pytest.raises(NowError, match="not this version's"):
        told(values_of(forecast=[later, later]))


def test_in_holdover_now_tells_the_time_and_the_exit_code_says_so(cli: Cli) -> None:
    cli.write(values_of(state="holdover"))
    assert "state    holdover" in cli.ask("now", code=3)


# -- wait ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("within", "values", "code", "said"),
    [
        ("1s", {"half_ns": 200 * US}, 0, "the time is right within "),
        ("1ms", {"half_ns": 2 * MS}, 4, "not within 1000 us after 0 s: the time is only right wi"),
        ("1ms", {"state": "holdover"}, 3, "in holdover"),
        ("1ms", {"state": "unsynchronised"}, 3, "not synchronised"),
        ("1ms", None, 3, "there is no status"),
        ("1s", {"age_ns": 60 * SECOND}, 3, "60 s old: mqtick-client is not running"),
    ],
)
def test_wait_tells_not_good_enough_from_not_synchronised(
    cli: Cli, within: str, values: dict[str, Any] | None, code: int, said: str
) -> None:
    if values is not None:
        cli.write(values_of(**values), age_ns=values.get("age_ns", 0))
    assert said in cli.wait(within, "0s" if code else "60s", code=code)


def test_wait_gives_up_when_its_time_is_up(cli: Cli) -> None:
    began_s = time.monotonic()
    cli.wait("1ms", "300ms", code=3)
    assert 0.3 <= time.monotonic() - began_s < 2.0


def test_wait_notices_when_the_time_becomes_good(cli: Cli) -> None:
    cli.write(values_of(half_ns=900 * MS))
    late = threading.Timer(0.3, lambda: cli.write(values_of()))
    late.start()
    began_s = time.monotonic()
    cli.wait("1ms", "10s")
    assert time.monotonic() - began_s < 5.0
    late.join()


def test_wait_asks_for_the_system_clock_unless_told_otherwise(cli: Cli) -> None:
    """An application that reads the system clock is not helped by a good estimate beside it."""
    cli.write(values_of(half_ns=20 * US, offset_ns=5 * MS))
    cli.wait("1ms", code=4)
    cli.wait("1ms", "0s", "--of", "estimate")


# -- the process -----------------------------------------------------------------------------------

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
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
    start: Start,
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
def test_watch_goes_on_while_the_client_comes_and_goes(start: Start, cli: Cli) -> None:
    process = start("status", "--watch")
    assert process.stderr is not None
    assert "there is no status" in process.stderr.readline()
    cli.write(values_of())
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
    start: Start, tmp_path: Path, number: signal.Signals
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
def test_hung_up_on_the_client_reads_its_keys_again(start: Start, cli: Cli) -> None:
    def names_of(*fleet: bytes) -> list[str]:
        cli.keys("".join(f"fleet {key.hex()}\n" for key in fleet))
        return Keyring(fleet).broadcast().names

    def shown() -> object:
        path = cli.folder / "status.json"
        return json.loads(path.read_text())["status"]["keys"] if path.exists() else None

    def wait_until_shown(names: list[str]) -> None:
        deadline_s = time.monotonic() + 10
        while shown() != names and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert shown() == names

    before = names_of(b"1" * 32)
    process = start(
        "run", "--broker", "mqtt://127.0.0.1:1", "--keys-file", str(cli.folder / "keys")
    )
    wait_until_shown(before)
    after = names_of(b"2" * 32, b"1" * 32)
    process.send_signal(signal.SIGHUP)
    wait_until_shown(after)
    assert interrupt(process, signal.SIGTERM)[0] == 0


def test_a_reader_that_has_seen_enough_is_no_error(cli: Cli) -> None:
    cli.write(values_of())
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*PROGRAM, "status", "--json", "--state-folder", str(cli.folder)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=20,
    )
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("kitchen", "kitchen"),
        ("exactly-16-chars", "exactly-16-chars"),
        ("measuring-station-north", "measuring-09b2af"),
        ("measuring-station-south", "measuring-2c9460"),
        ("küche", "k-che-d4b04d"),
    ],
)
def test_hosts_with_long_names_have_different_ones(
    host: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert client_name(Settings()) == check_client_name(name)
    assert client_name(Settings(name="pi7")) == "pi7"
