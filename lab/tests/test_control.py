"""Real programs that obey over a real Mosquitto, and what is said where they do not."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from crowd_rig import Running

from demo.local_broker import Mosquitto, free_port, running
from mqtick.lab.runner.control import Control, NodeError, NodeSilentError
from mqtick.mqtt.broker import parse_broker_url

pytestmark = pytest.mark.needs("mosquitto")


class Bench:
    """A broker, a server and two clients with memory pins; one of the clients does not obey."""

    def __init__(self, folder: Path, broker: Mosquitto) -> None:
        self.folder, self.broker = folder, broker
        self.control = Control(parse_broker_url(broker.url))
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, name: str, *flags: str) -> None:
        state = self.folder / name
        state.mkdir()
        with (state / "log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", module, "--broker", self.broker.url),
                        *("--state-folder", str(state), "--pin-backend", "memory", *flags),
                    ],
                    stderr=log,
                )
            )

    def sequence(self, node: str, pin: str) -> int:
        """Return the sequence of the last message that made an edge."""
        edges = self.control.ask(node, "edges", last=1)["edges"]
        found = [edge.get("sequence", 0) for edge in edges if edge["pin"] == pin]
        return int(found[-1]) if found else 0

    def wait(self, node: str, pin: str, limit_s: float = 60.0) -> int:
        """Wait for an edge of a node, while it starts or after it joined."""
        end = time.monotonic() + limit_s
        while True:
            with contextlib.suppress(NodeError):
                if found := self.sequence(node, pin):
                    return found
            assert time.monotonic() < end, (self.folder / node[-1] / "log").read_text()
            time.sleep(0.05)

    def info(self, node: str) -> dict[str, Any]:
        """Ask until it answers: it leaves out what it is asked too often."""
        end = time.monotonic() + 60
        while True:
            try:
                return self.control.ask(node, "info", timeout_s=0.5)
            except NodeError:
                assert time.monotonic() < end
                time.sleep(0.1)

    def until_refused(
        self, node: str, reason: str, count: int, again: Callable[[], None] = lambda: None
    ) -> None:
        end = time.monotonic() + 60
        while (refused := self.info(node)["refused"]).get(reason, 0) < count:
            assert time.monotonic() < end, refused
            again()
            time.sleep(0.03)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("control")
    with running(Mosquitto(folder)) as broker:
        made = Bench(folder, broker)
        fast = ("--interval-s", "0.1", "--trust-system-clock", "--pps-backend", "memory")
        made.start("mqtick.timeserver.cli", "0", "--experiments", *fast)
        made.start("mqtick.client.cli", "a", "--experiments", "--fast", "--name", "a")
        made.start("mqtick.client.cli", "b", "--fast", "--name", "b")
        made.start("mqtick.client.cli", "c", "--experiments", "--fast", "--name", "c")
        try:
            with made.control:
                made.wait("server:0", "time")
                made.wait("client:a", "arrival")
                yield made
        finally:
            for process in made.processes:
                process.terminate()
            for process in made.processes:
                process.wait(10)


def test_a_node_says_what_the_record_of_a_run_needs(bench: Bench) -> None:
    for node, pin in (("server:0", "time"), ("client:a", "arrival")):
        info = bench.control.ask(node, "info")
        assert info["node"] == node
        assert info["software"].startswith("mqtick ")
        assert all(info[name] for name in ("host", "kernel", "python", "machine"))
        assert info["pins"][pin]["backend"] == "memory"
        assert info["simulated"] is True
        assert info["settings"]["broker"] == bench.broker.url
        assert "chrony" in info


def test_the_edges_of_one_message_on_both_sides_have_its_sequence(bench: Bench) -> None:
    sent = bench.control.ask("server:0", "edges", last=64)["edges"]
    came = bench.control.ask("client:a", "edges", last=64)["edges"]
    at = {edge["sequence"]: edge for edge in sent if edge["pin"] == "time"}
    pairs = [(at[edge["sequence"]], edge) for edge in came if edge.get("sequence") in at]
    assert pairs
    for out, back in pairs:
        assert 0 < out["before_ns"] <= out["after_ns"]
        assert abs(back["before_ns"] - out["after_ns"]) < 90_000_000  # less than an interval
    assert [edge["pin"] for edge in sent].count("pps") <= 64


def test_who_left_hears_nothing_until_it_joined_again(bench: Bench) -> None:
    assert bench.control.ask("client:a", "leave") == {}
    left_at = bench.sequence("client:a", "arrival")
    before = bench.sequence("server:0", "time")
    while bench.sequence("server:0", "time") < before + 2:
        time.sleep(0.02)
    assert bench.sequence("client:a", "arrival") == left_at
    assert bench.control.ask("client:a", "info")["joined"] is False
    assert bench.control.ask("client:a", "join") == {}
    while bench.sequence("client:a", "arrival") == left_at:
        time.sleep(0.02)


@pytest.mark.slow
def test_who_joins_last_is_served_last(bench: Bench) -> None:
    bench.wait("client:c", "arrival")
    with Running(parse_broker_url(bench.broker.url)) as crowd:
        for first, last in (("client:a", "client:c"), ("client:c", "client:a")):
            bench.control.ask(first, "join")
            assert crowd.ask("join", count=400)["granted"] == 400
            bench.control.ask(last, "join")
            after = bench.sequence("server:0", "time")
            while bench.sequence("server:0", "time") < after + 11:
                time.sleep(0.1)
            at = [
                {
                    edge["sequence"]: edge["before_ns"]
                    for edge in bench.control.ask(node, "edges", last=64)["edges"]
                    if edge.get("sequence", 0) > after
                }
                for node in (first, last)
            ]
            both = at[0].keys() & at[1].keys()
            assert len(both) >= 10
            # 400 others lie between; on a busy machine somebody may wake up late now and then.
            later = sorted(at[1][sequence] - at[0][sequence] for sequence in both)
            assert later[len(later) // 2] > 200_000


def test_an_additional_message_makes_an_edge_on_both_sides(bench: Bench) -> None:
    before = bench.sequence("server:0", "time")
    fired = bench.control.ask("server:0", "fire", after_ms=30)
    assert fired["sequence"] > before
    # not at the schedule's instants, nor near them
    assert 4_000_000 < fired["at_ns"] % 100_000_000 < 96_000_000
    for node in ("server:0", "client:a"):
        edges = bench.control.ask(node, "edges", last=64)["edges"]
        assert fired["sequence"] in [edge.get("sequence") for edge in edges]


def test_an_order_that_makes_no_sense_is_refused_with_a_sentence(bench: Bench) -> None:
    with pytest.raises(NodeError, match=r"last is '65'; it must be a whole number from 1 to 64"):
        bench.control.ask("client:a", "edges", last=65)
    with pytest.raises(NodeError, match=r"after_ms is 'soon'"):
        bench.control.ask("server:0", "fire", after_ms="soon")
    with pytest.raises(
        NodeError, match=r"'dance' is not a command here: use edges, info, join, lea"
    ):
        bench.control.ask("client:a", "dance")


def test_who_is_not_to_obey_does_not_and_the_sentence_says_what_to_do(bench: Bench) -> None:
    with pytest.raises(NodeError, match=r"client:b did not answer .* experiments = true"):
        bench.control.ask("client:b", "info", timeout_s=0.2)
    with pytest.raises(NodeError, match=r"client:b did not answer to info within 5 s"):
        bench.control.ask("client:b", "info", timeout_s=0.123456, before_s=4.876543)
    with pytest.raises(NodeError, match=r"is not a node: write client:NAME"):
        bench.control.ask("oscilloscope", "info")


def test_rubbish_is_counted_and_nothing_else_happens(bench: Bench) -> None:
    rubbish = [b"", b"{", b"null", b"[" * 1000, b"\xff", b'{"id": 1, "do": "leave"}']
    rubbish += [b'{"id": "01234567"}', b'{"do": "leave"}', b'{"id": "01234567", "do": ["leave"]}']
    rubbish += [json.dumps({"id": "01234567", "do": "leave", "x": "x" * 2000}).encode()]
    with plain(bench.broker.port) as node:
        for payload in rubbish:
            for topic in ("mqtick/x/c/a", "mqtick/x/s/0"):
                node.publish(topic, payload)
        bench.until_refused("server:0", "command", len(rubbish))
        bench.until_refused("client:a", "command", len(rubbish))
    assert bench.control.ask("client:a", "info")["joined"] is True


def test_a_flood_is_counted_and_time_goes_on(bench: Bench) -> None:
    flood = json.dumps({"id": "01234567", "do": "info"})
    before = bench.sequence("server:0", "time")
    with plain(bench.broker.port) as node:
        for name, topic in (("server:0", "mqtick/x/s/0"), ("client:a", "mqtick/x/c/a")):

            def pour(topic: str = topic) -> None:
                for _ in range(300):
                    node.publish(topic, flood)

            # a busy machine may pour so slowly that less than that is too much
            bench.until_refused(name, "command-rate", 150, pour)
    for name, kind in (("server:0", "time"), ("client:a", "arrival")):
        sequence = -1
        while sequence <= before:
            with contextlib.suppress(NodeSilentError):  # what is left of the flood goes first
                sequence = bench.sequence(name, kind)


def test_without_a_broker_the_sentence_says_so() -> None:
    control = Control(parse_broker_url(f"mqtt://127.0.0.1:{free_port()}"))
    try:
        with pytest.raises(NodeError, match=r"cannot be asked: cannot connect to mqtt://127"):
            control.start(0.5)
        with pytest.raises(NodeError, match=r"server:0 cannot be asked to info: cannot connect"):
            control.ask("server:0", "info")
    finally:
        control.close()


@contextlib.contextmanager
def plain(port: int) -> Iterator[paho.Client]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()
