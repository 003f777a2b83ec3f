"""Time over brokers that are not Mosquitto: server and client as processes of their own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nats_cluster import cluster
from rig import US, Rig, wait_until

from demo.local_broker import Mosquitto, Nats, running
from demo.simulated_bench import bench, experiment_text
from mqtick.recording.run_folder import load_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("nats-server"),
]
LOAD = Path(__file__).parent.parent / "broker/server/target/debug/mqtick-load"
OLDER = ("--mqtt-version", "3.1.1")
PRECISE = ("--formats", "precise")


def test_nats_carries_time(rig: Rig) -> None:
    with running(Nats(rig.new_folder("nats"))) as broker:
        server = rig.server(broker.url, *OLDER, *PRECISE)
        server.wait_ready()
        client = rig.client(broker.url, "c1", *OLDER)
        client.wait_synchronised()
        client.wait_for(lambda _: client.is_right(within_ns=500 * US), "it is right within 0.5 ms")
        assert client.row()["format"] == "precise"
        client.wait_for(lambda _: client.samples("two-way", "used"), "exchanges count")
        assert server.log.count("connected to") == 1


@pytest.mark.broker
@pytest.mark.skipif(not LOAD.exists(), reason="mqtick-load is not built: make test-broker does")
def test_a_cluster_of_nats_carries_time_from_each_node_to_each_other(rig: Rig) -> None:
    """As the inventory points at one: each site at the node next to it."""
    with cluster(rig.new_folder("nats"), str(LOAD)) as brokers:
        for number, node in enumerate(brokers[:2]):
            rig.server(f"mqtt://{node}", *OLDER, *PRECISE, number=number).wait_ready()
        for name, node in zip(("c1", "c2", "c3"), brokers, strict=True):
            client = rig.client(f"mqtt://{node}", name, *OLDER)
            client.wait_synchronised(60.0)
            for number in range(2):
                client.wait_for(
                    lambda _, asked=(client, number): asked[0].samples("two-way", "used", asked[1]),
                    f"{name} exchanges with server {number}",
                    60.0,
                )
            assert client.is_right(), client.look()


def test_the_server_gives_up_a_format_whose_topics_nats_does_not_take(rig: Rig) -> None:
    with running(Nats(rig.new_folder("nats"))) as broker:
        both = ("--formats", "precise,1451.1.6")
        server = rig.server(broker.url, *OLDER, *both, "--interval-s", "0.1")
        wait_until(lambda: "1451.1.6 is off" in server.log, "it gives up", timeout_s=20.0)
        connections = server.log.count("connected to")
        time.sleep(3.0)
        assert server.log.count("connected to") == connections
        server.wait_ready()


def test_a_client_comes_back_after_nats_was_away(rig: Rig) -> None:
    broker = Nats(rig.new_folder("nats"))
    broker.start()
    rig.on_close(broker.stop)
    rig.server(broker.url, *OLDER, *PRECISE).wait_ready()
    client = rig.client(broker.url, "c1", *OLDER)
    client.wait_synchronised()
    broker.stop()
    client.wait_for(lambda values: not values["connected"], "it notices")
    broker.start()
    client.wait_for(lambda values: values["connected"], "it comes back")
    client.wait_synchronised(timeout_s=20.0)


@pytest.mark.alone
@pytest.mark.needs("mosquitto")
def test_one_experiment_runs_over_mosquitto_and_nats(rig: Rig) -> None:
    out, tables = rig.folder / "out", []
    with contextlib.ExitStack() as stack:
        for made in (Mosquitto(rig.new_folder("mosquitto")), Nats(rig.new_folder("nats"))):
            broker = stack.enter_context(running(made))
            resource = stack.enter_context(bench(broker.folder, broker))
            (broker.folder / "experiment.toml").write_text(
                experiment_text(broker, resource, subscribers=(2, 10), shots=2)
            )
            name = "nats" if isinstance(broker, Nats) else "mosquitto"
            tables.append(
                f'[broker.{name}]\nbroker = "{broker.url}"\n'
                f'mqtt_version = "{broker.mqtt_version}"\n'
                f'experiment = "{broker.folder / "experiment.toml"}"\n'
            )
        (rig.folder / "brokers.toml").write_text("".join(tables))
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-c",
                    "from mqtick.lab.cli import main; raise SystemExit(main())",
                ),
                *("run", str(made.folder / "experiment.toml"), "--quiet", "--out", str(out)),
                *("--broker-matrix", str(rig.folder / "brokers.toml")),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr + done.stdout
    words = [line.split() for line in done.stdout.splitlines()]
    rows = [row for row in words if len(row) == 9 and row[0] in ("mosquitto", "nats")]
    rows = rows[:8]  # if mqtick-load is built, its own rows follow
    assert [(row[0], row[1]) for row in rows] == [
        (name, number)
        for _quantity in ("skew", "latency")
        for number in ("2", "10")
        for name in ("mosquitto", "nats")
    ]
    # A machine that stands still for a moment may cost a shot; it is counted then.
    assert all(int(captured) + int(failed) == 2 for _, _, captured, failed, *_ in rows)
    assert sum(int(row[2]) for row in rows) >= 12
    assert "SIMULATED: skew" in done.stdout
    runs = [load_run(out / name) for name in ("mosquitto", "nats")]
    assert [run.record["settings"]["mqtt_version"] for run in runs] == ["5", "3.1.1"]
