"""`mqtick-lab run --broker-matrix` launches mqtick-broker itself; its nodes come by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from demo.local_broker import MqtickBroker
from demo.simulated_bench import bench, experiment_text
from mqtick.lab.brokers.launch import listens
from mqtick.mqtt.broker import parse_broker_url
from mqtick.recording.run_folder import load_run

pytestmark = pytest.mark.broker
LAB = "from mqtick.lab.cli import main; raise SystemExit(main())"


def test_the_matrix_launches_our_broker_for_its_turn(tmp_path: Path) -> None:
    broker, out = MqtickBroker(tmp_path), tmp_path / "out"
    broker.start()
    with bench(tmp_path, broker) as resource:
        broker.stop()
        experiment, brokers = tmp_path / "experiment.toml", tmp_path / "brokers.toml"
        experiment.write_text(experiment_text(broker, resource, subscribers=(2, 10), shots=2))
        brokers.write_text(
            f'[broker.mqtick]\nbroker = "{broker.url}"\n'
            f'launch = ["{broker.built()}", "--config", "{broker.config}"]\n'
        )
        command = ("run", experiment, "--out", out, "--quiet", "--broker-matrix", brokers)
        done = subprocess.run(
            [sys.executable, "-c", LAB, *command],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "mqtick " in done.stdout
    assert load_run(out / "mqtick").record["ended"]["early_because"] == ""
    assert not listens(parse_broker_url(broker.url))
