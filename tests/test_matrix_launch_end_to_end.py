"""`mqtick-lab run --broker-matrix` launches a broker itself, and has mqtick-load measure it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_load import program

from demo.local_broker import Mosquitto, MqtickBroker
from demo.local_broker import program as program_named
from demo.simulated_bench import bench, experiment_text
from mqtick.lab.brokers.launch import listens
from mqtick.mqtt.broker import parse_broker_url
from mqtick.recording.run_folder import load_run

pytestmark = pytest.mark.broker
LAB = "from mqtick.lab.cli import main; raise SystemExit(main())"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Mosquitto, MqtickBroker])
def test_the_matrix_launches_a_broker_for_its_turn_and_finds_its_limit(
    tmp_path: Path, kind: type[Mosquitto]
) -> None:
    broker, out = kind(tmp_path), tmp_path / "out"
    if isinstance(broker, MqtickBroker):
        launch = [broker.built(), "--config", str(broker.config)]
    else:
        launch = [
            program_named("mosquitto") or pytest.skip(broker.missing),
            "-c",
            str(broker.config),
        ]
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mqtick-load").symlink_to(program())
    broker.start()
    with bench(tmp_path, broker) as resource:
        broker.stop()
        experiment, brokers = tmp_path / "experiment.toml", tmp_path / "brokers.toml"
        experiment.write_text(experiment_text(broker, resource, subscribers=(2, 10), shots=2))
        brokers.write_text(f'[broker.one]\nbroker = "{broker.url}"\nlaunch = {launch}\n')
        command = ("run", experiment, "--out", out, "--quiet", "--broker-matrix", brokers)
        done = subprocess.run(
            [sys.executable, "-c", LAB, *command],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        )
    assert done.returncode == 0, done.stderr + done.stdout
    # Both tables have the same columns: the simulated bench's, and mqtick-load's.
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("one ")]
    *rows, limits = lines
    counts = [(row[0], int(row[1]) + int(row[2])) for row in rows]
    assert [count for count, _ in counts] == ["2", "10"] * 4
    assert all(shots == 2 for _, shots in counts[:4])
    # 50 of the messages a second measure the latency, at any load.
    limit, low, high = (float(value) - 50 for value in limits)
    assert 100 < limit < 10_000_000
    # A factor up and down; the search alone does not know it better than to 1 %.
    assert high / limit == pytest.approx(limit / low, rel=0.02)
    assert high / limit > 1.009
    assert load_run(out / "one").record["ended"]["early_because"] == ""
    assert not listens(parse_broker_url(broker.url))
