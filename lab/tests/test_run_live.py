"""Runs with a real broker, server, clients and crowd; pins and oscilloscope are simulated."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.local_broker import Mosquitto, UdpReference, running
from demo.simulated_bench import bench, experiment_text
from mqtick.recording.run_folder import load_run
from mqtick.recording.shot import CAPTURED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("mosquitto"),
]
LAB = Path(sys.executable).with_name("mqtick-lab")


@dataclass
class Live:
    """A bench of real programs, and the experiment on it."""

    folder: Path
    broker: Mosquitto
    resource: str

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def write(self, subscribers: str, shots: int) -> Path:
        file = self.folder / "experiment.toml"
        numbers = [int(number) for number in subscribers.split(",")]
        text = experiment_text(
            self.broker, self.resource, subscribers=numbers, shots=shots, span_us=20_000
        )
        file.write_text(text)
        return file

    def start(self, *arguments: str, files: int = 0) -> subprocess.Popen[str]:
        limited = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"] if files else []
        return subprocess.Popen(
            [*limited, str(LAB), "run", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def shots(self) -> int:
        folder = self.out / "shots"
        return len(list(folder.glob("*.npz"))) if folder.exists() else 0

    def wait_for_shots(self, count: int) -> None:
        end = time.monotonic() + 30
        while self.shots() < count:
            assert time.monotonic() < end, "the run does not get on"
            time.sleep(0.02)

    def crowds(self) -> list[str]:
        """Return command lines of crowd processes at this bench's broker."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_text().split("\0")
                if "crowd" in words and self.broker.url in words:
                    found.append(" ".join(words))
        return found


@pytest.fixture
def live(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Live]:
    os.chmod(tmp_path, 0o755)
    broker = getattr(request, "param", Mosquitto)(tmp_path)
    with running(broker), bench(tmp_path, broker) as name:
        yield Live(tmp_path, broker, name)


@pytest.mark.parametrize("live", [Mosquitto, UdpReference], indirect=True)
def test_the_published_experiment_runs_by_one_command(live: Live) -> None:
    file = live.write("2, 10", 4)
    process = live.start(str(file), "--out", str(live.out), "--json")
    said, progress = process.communicate(timeout=60)
    assert process.returncode == 0, progress
    result = json.loads(said)
    assert result["complete"]
    assert result["simulated"]
    assert {row["subscribers"] for row in result["rows"]} == {2, 10}
    run = load_run(live.out)
    captured = [shot for shot in run.shots() if shot.outcome == CAPTURED]
    assert len(captured) >= 6
    for shot in captured:
        assert shot.latency_fs is not None
        assert abs(shot.latency_fs) < 10**14
    session = run.record["sessions"][0]
    assert set(session["nodes"]) == {"server:0", "client:first", "client:last", "crowd:local1"}
    assert session["nodes"]["client:first"]["kernel"] == session["runner"]["kernel"]
    crowd = [shot.nodes["crowd:local1"] for shot in run.shots() if "crowd:local1" in shot.nodes]
    assert max(each["members"] for each in crowd) == 8
    assert live.crowds() == []


def test_messages_can_be_asked_for(live: Live) -> None:
    file = live.write("3", 4)
    process = live.start(str(file), "--out", str(live.out), "--fire", "request", "--json")
    said, progress = process.communicate(timeout=60)
    assert process.returncode == 0, progress
    skews = [row for row in json.loads(said)["rows"] if row["quantity"] == "skew"]
    assert skews[0]["statistics"]["n"] >= 3, progress


def test_a_run_that_was_interrupted_goes_on_by_the_command_that_it_names(live: Live) -> None:
    file = live.write("2, 5", 6)
    process = live.start(str(file), "--out", str(live.out))
    live.wait_for_shots(2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert live.crowds() == []
    kept = live.shots()
    assert 2 <= kept < 12
    words = shlex.split(said.strip().splitlines()[-1].partition("Continue with: ")[2])
    assert words[:2] == ["mqtick-lab", "run"]
    process = live.start(*words[2:])
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert [shot.number for shot in load_run(live.out).shots()] == list(range(1, 13))


def test_a_broker_that_is_restarted_costs_no_run(live: Live) -> None:
    file = live.write("3", 32)
    process = live.start(str(file), "--out", str(live.out))
    live.wait_for_shots(2)
    live.broker.stop()
    time.sleep(0.5)
    live.broker.start()
    _, said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    assert "Trying again" in said
    assert live.shots() == 32


def test_a_runner_that_is_killed_leaves_no_crowd(live: Live) -> None:
    file = live.write("5", 50)
    process = live.start(str(file), "--out", str(live.out))
    live.wait_for_shots(1)
    assert live.crowds()
    process.kill()
    process.communicate(timeout=20)
    end = time.monotonic() + 10
    while live.crowds():
        assert time.monotonic() < end, "the crowd stayed"
        time.sleep(0.05)
    process = live.start(str(file), "--out", str(live.out), "--resume")
    live.wait_for_shots(live.shots() + 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert load_run(live.out).damaged == []


def test_a_limit_of_open_files_is_said_before_the_run_begins(live: Live) -> None:
    file = live.write("600", 2)
    process = live.start(str(file), "--out", str(live.out), files=256)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "ulimit -Hn" in said
    assert "crowd.processes" in said
    assert not live.out.exists()


def test_an_access_list_that_keeps_the_time_from_clients_is_suspected(
    live: Live, tmp_path: Path
) -> None:
    rules = tmp_path / "acl"
    rules.write_text(
        "topic write mqtick/t/#\ntopic readwrite mqtick/x/#\ntopic readwrite mqtick/y/#\n"
    )
    os.chmod(rules, 0o644)
    config = live.broker.config
    config.write_text(config.read_text() + f"acl_file {rules}\n")
    live.broker.stop()
    live.broker.start()
    file = live.write("2", 2)
    process = live.start(str(file), "--out", str(live.out), "--broker", live.broker.url)
    _, said = process.communicate(timeout=90)
    assert process.returncode == 1
    assert "client:first and client:last made no edge meanwhile" in said
    assert "access list" in said


@pytest.mark.alone
def test_the_clock_of_a_client_is_seen_at_its_pps_pin(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    broker = Mosquitto(tmp_path)
    with running(broker), bench(tmp_path, broker, kind="clock") as name:
        file = tmp_path / "experiment.toml"
        file.write_text(experiment_text(broker, name, kind="clock", shots=10))
        one = Live(tmp_path, broker, name)
        _, progress = one.start(str(file), "--out", str(one.out)).communicate(timeout=60)
    shots = [shot for shot in load_run(one.out).shots() if shot.outcome == CAPTURED]
    assert len(shots) >= 6, progress
    late_us = sorted(abs(shot.clock_fs["first"]) / 1e9 for shot in shots)
    assert late_us[len(late_us) // 2] < 50
