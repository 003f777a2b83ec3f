"""mqtick-load against real brokers: what it counts is what was sent, and a limit is found."""

from __future__ import annotations

import csv
import json
import math
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from load_stamps import MESSAGES, differences
from nats_cluster import cluster, through
from rig import Authority

from demo.local_broker import Mosquitto, MqtickBroker, Nats, free_port, running
from demo.local_broker import program as program_named
from mqtick.analysis.broker_limit import BrokerLimit
from mqtick.analysis.report.broker_limit_page import limit_page

pytestmark = [pytest.mark.broker, pytest.mark.needs("mosquitto")]
BUILT = Path(__file__).resolve().parent.parent / "broker/server/target"
# Fewer messages than Mosquitto takes at once: a busy machine may send them together.
SCENARIO = """
seconds = 60
ramp_up_s = 0
ramp_down_s = 0
[[group]]
topics = 2
publishers = 3
subscribers = 4
qos = {qos}
interval_us = 2000
messages = 15
[[group]]
name = "l"
kind = "latency"
subscribers = 5
qos = {qos}
interval_us = 2000
messages = 15
retain = true
[[group]]
name = "shared"
subscribers = 3
qos = {qos}
shared = true
interval_us = 2000
messages = 15
"""


class Debug(MqtickBroker):
    """Ours, as `make test-broker` built it."""

    builds = "release", "debug"


@pytest.fixture(params=[Mosquitto, Debug], ids=["Mosquitto", "mqtick-broker"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mosquitto]:
    """A real broker."""
    with running(request.param(tmp_path)) as found:
        yield found


def program() -> str:
    found = [BUILT / kind / "mqtick-load" for kind in ("release", "debug")]
    built = [one for one in found if one.exists()]
    if not built:
        pytest.skip("mqtick-load is not built: make test-broker")
    return str(max(built, key=lambda one: one.stat().st_mtime))


def load(*words: str, code: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [program(), *words, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def values(result: dict[str, Any]) -> dict[str, float]:
    return {row["key"]: row["median"] for row in result["rows"]}


@pytest.mark.parametrize("mqtt", ["3.1.1", "5"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_copy_comes_once_and_in_order(
    broker: Mosquitto, tmp_path: Path, qos: int, mqtt: str
) -> None:
    if mqtt == "3.1.1" and isinstance(broker, Debug):
        pytest.skip("shared subscriptions of MQTT 3.1.1 are Mosquitto's own")
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO.format(qos=qos))
    found = values(load("run", str(file), "--broker", broker.url, "--mqtt", mqtt))
    for key in ("lost", "duplicates", "disorder", "refused", "unstamped"):
        assert found[key] == 0, key
    assert found["wire_p50_us"] > 0
    # It left nothing retained behind.
    again = load("run", str(file), "--broker", broker.url, "--mqtt", mqtt)
    assert not [note for note in again["notes"] if "retained before" in note]


LATENCY = """
seconds = 2
ramp_up_s = 0
ramp_down_s = 0
[[group]]
kind = "latency"
publishers = 1
subscribers = 4
interval_us = 5000
"""


def nearest_rank(found: list[int], share: float) -> int:
    ordered = sorted(found)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def test_percentiles_skew_and_rates_are_those_of_the_single_copies(
    broker: Mosquitto, tmp_path: Path
) -> None:
    file, out = tmp_path / "scenario.toml", tmp_path / "out.csv"
    file.write_text(LATENCY)
    found = values(load("run", str(file), "--broker", broker.url, "--csv", str(out)))
    lines = list(csv.reader(out.open()))[1:]
    copies = [line for line in lines if line[2] == "R"]
    # 400 messages are due; where the cores are busy, some are not sent in time.
    sent = sum(line[2] == "S" for line in lines)
    assert 200 < sent <= 400
    assert len(copies) == 4 * sent
    # The file is in whole us, rounded down; a histogram has three digits.
    for key, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)):
        delay = nearest_rank([int(line[3]) for line in copies], share)
        error = 0.5 + 0.002 * delay
        assert found[f"wire_{key}_us"] == pytest.approx(delay + 0.5, abs=error)
    stamps: dict[str, list[int]] = {}
    for line in copies:
        stamps.setdefault(line[1], []).append(int(line[0]))
    # One publisher: the first copy of each subscriber is that of the first message, and so on.
    skews = [max(one) - min(one) for one in zip(*stamps.values(), strict=True)]
    for key, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        skew = nearest_rank(skews, share)
        assert found[f"skew_{key}_us"] == pytest.approx(skew, abs=1.1 + 0.002 * skew)
    assert found["offered"] == pytest.approx(200)
    assert found["sp"] == 4
    assert found["ratio"] == pytest.approx(found["egress"] / (found["offered"] * 4), abs=1e-3)
    # The last copies may come after the window.
    assert 0.5 * 800 < found["egress"] <= 800
    assert 0.5 * 200 < found["ingress"] <= 200


@pytest.mark.slow
def test_the_limit_lies_between_a_rate_that_holds_and_one_that_does_not(
    broker: Mosquitto, tmp_path: Path
) -> None:
    small = tmp_path / "small.toml"
    latency = "[[group]]\nname = 'l'\nkind = 'latency'\nsubscribers = 2\ninterval_us = 9000\n"
    small.write_text(f"[[group]]\nsubscribers = 100\ninterval_us = 2000\n{latency}")
    flags = ("--scenario", str(small), "--trial", "0.4", "--repeats", "2")
    result = load("limit", broker.url, *flags, "--resolution", "10")
    found = values(result)
    assert found["limit_ingress_low"] < found["limit_ingress"] < found["limit_ingress_high"]
    told = BrokerLimit.of(result)
    held = [trial.ingress for trial in told.trials if trial.held]
    failed = [trial.ingress for trial in told.trials if not trial.held]
    assert min(failed) / 3 < found["limit_ingress"] < 3 * max(held)
    for levels in (told.latency, told.skew):
        assert [level.name for level in levels] == ["at 50 %", "at 90 %", "at the limit"]
    assert f"{told.ingress:,.0f} messages in and" in limit_page(told, [])


def test_ctrl_c_in_a_run_prints_what_was_measured(broker: Mosquitto, tmp_path: Path) -> None:
    file, out = tmp_path / "long.toml", tmp_path / "long.csv"
    lines = "[[group]]\nkind = 'latency'\ninterval_us = 1000\n"
    file.write_text(f"seconds = 600\nramp_up_s = 0\n{lines}")
    command = [program(), "run", str(file), "--broker", broker.url, "--csv", str(out), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running_load:
        while not out.exists() or out.stat().st_size < 10_000:
            assert running_load.poll() is None
            time.sleep(0.01)
        running_load.send_signal(signal.SIGINT)
        said, complained = running_load.communicate(timeout=60)
    assert running_load.returncode == 130, complained
    found = values(json.loads(said))
    assert found["lost"] < 100
    # What was due later does not count, nor does the time.
    assert 900 < found["offered"] < 1100
    assert found["egress"] > 100
    assert found["refused"] < 100
    lines = list(csv.reader(out.open()))
    assert {line[2] for line in lines[1:]} == {"S", "R"}
    assert all(len(line) == 4 for line in lines)


def test_a_csv_that_cannot_grow_costs_no_figure(broker: Mosquitto, tmp_path: Path) -> None:
    file, out = tmp_path / "scenario.toml", tmp_path / "out.csv"
    file.write_text(LATENCY)
    done = subprocess.run(
        [program(), "run", str(file), "--broker", broker.url, "--csv", str(out), "--json"],
        capture_output=True,
        text=True,
        check=False,
        # It is told of a file that is too long instead of ended by a signal.
        restore_signals=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)),
    )
    assert done.returncode == 1
    assert f"{out}: File too large" in done.stderr
    result = json.loads(done.stdout)
    assert not result["complete"]
    assert values(result)["wire_p50_us"] > 0


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("way", ["TCP", pytest.param("TLS", marks=pytest.mark.needs("openssl"))])
def test_stamps_are_those_of_a_packet_capture(tmp_path: Path, way: str) -> None:
    lines, port, ca = "", 0, None
    if way == "TLS":
        authority, port = Authority(tmp_path), free_port()
        lines, ca = authority.listener(port), authority.certificate
    try:
        with running(Mosquitto(tmp_path, lines)) as broker:
            found = differences(program(), port or broker.port, tmp_path, ca)
    except PermissionError:
        pytest.skip("a packet socket wants CAP_NET_RAW")
    assert len(found.left) == len(found.came) == MESSAGES
    assert found.wrong() == 0
    for values in (found.left, found.came):
        assert sorted(values)[len(values) // 2] < 5


@pytest.mark.slow
def test_subscribers_of_three_joined_nats_servers_hear_each_message_once(tmp_path: Path) -> None:
    if program_named("nats-server") is None:
        pytest.skip(Nats.missing)
    load_program = program()
    with cluster(tmp_path, load_program) as brokers:
        found = through(brokers, load_program, tmp_path, seconds=2.0, qos=0)
    assert (found["lost"], found["duplicates"], found["disorder"]) == (0, 0, 0)
