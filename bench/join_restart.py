"""How many messages with QoS 1 another site misses while their publisher's node is restarted.

The publisher connects again as soon as it can, and sends unacknowledged messages again, as usual.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness import Report, progress
from bench.join_nodes import node, settled
from broker.conformance.client import PUBACK, V3, Client, ClosedError
from demo.local_broker import Mosquitto, free_port, running

__all__ = ["restarts"]

_RESTARTS = 4
_UNDER_WAY = 100
"""The most messages that wait for their acknowledgement."""
_PATIENCE_S = 30.0


def _connected(port: int) -> Client:
    """Connect the publisher, as soon as the node and its broker accept."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            client = Client(("127.0.0.1", port), V3, "writer")
            if client.connect().reason == 0:
                return client
        except (OSError, ClosedError):
            pass
        if time.monotonic() > end:
            raise RuntimeError("the node does not come back")
        time.sleep(0.02)


def _lost(
    start: Callable[[], subprocess.Popen[bytes]],
    settle: Callable[[], None],
    ports: tuple[int, int],
    how: signal.Signals,
    count: int,
    restarts: int,
) -> int:
    """Restart a node while messages flow. Returns how many did not reach the other site.

    `start` starts the publisher's node. `settle` waits until it knows the other node and the filter
    of the client there. `ports`: of both nodes. `how`: the signal that ends the node.
    """
    process = start()
    reader = Client(("127.0.0.1", ports[1]), V3, "reader")
    reader.connect()
    reader.subscribe(("t", 1))
    settle()
    open_ones: dict[int, int] = {}
    sent = acknowledged = ended = 0
    writer = _connected(ports[0])
    while acknowledged < count:
        while sent < count and len(open_ones) < _UNDER_WAY:
            packet_id = sent % 60_000 + 1
            open_ones[packet_id] = sent
            say = writer.encode.publish("t", b"%d" % sent, qos=1, packet_id=packet_id)
            writer.send(say)
            sent += 1
        if ended < restarts and acknowledged >= count * (ended + 1) // (restarts + 1):
            settle()  # else this node may still hold messages from before the other was back
            process.send_signal(how)
            ended += 1
        try:
            answer = writer.receive()
        except ClosedError:
            process.wait()
            process = start()
            writer = _connected(ports[0])
            for packet_id, number in open_ones.items():
                payload = b"%d" % number
                writer.send(
                    writer.encode.publish("t", payload, qos=1, packet_id=packet_id, dup=True)
                )
            continue
        if answer.kind == PUBACK and answer.packet_id in open_ones:
            del open_ones[answer.packet_id]
            acknowledged += 1
    missing = set(range(count))
    try:
        while missing:
            missing.discard(int(reader.message().payload))
    except AssertionError:  # no message came for half a minute
        pass
    process.terminate()
    process.wait()
    return len(missing)


def restarts(report: Report, folder: Path, count: int) -> None:
    """Report how many messages another site misses when a publisher's node is restarted."""
    for how, reliability, words in (
        (signal.SIGTERM, "broker", "ended by SIGTERM"),
        (signal.SIGKILL, "all", 'killed, reliability = "all"'),
    ):
        progress(f"a node that is {words}")
        here, there = folder / f"{reliability}-here", folder / f"{reliability}-there"
        for own in (here, there):
            own.mkdir()
        settings = f'reliability = "{reliability}"\nstate = "{here}/kept"\n'
        with running(Mosquitto(here)) as broker, running(Mosquitto(there)) as far_broker:
            port = free_port()

            def start(
                here: Path = here,
                broker: Mosquitto = broker,
                settings: str = settings,
                port: int = port,
            ) -> subprocess.Popen[bytes]:
                return node(here, broker, settings=settings, port=port)[0]

            def settle(here: Path = here) -> None:
                settled(here, 2, 1)

            far, far_port = node(there, far_broker, port)
            try:
                missed = _lost(start, settle, (port, far_port), how, count, _RESTARTS)
            finally:
                far.terminate()
                far.wait()
        text = f"{_RESTARTS} restarts of a node, {words}: lost with QoS 1"
        report.add(f"{text}, of {count:,}", "messages", "joined", [missed], digits=0)
        report.compare(f"{text}, and one", missed + 1, 1, 1.0)
