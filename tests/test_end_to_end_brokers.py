"""Time over brokers that are not Mosquitto: server and client as processes of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from demo.local_broker import Nats, program, running

sys.path.insert(0, str(Path(__file__).parent))
from rig import US, Rig

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        program("nats-server") is None,
        reason="nats-server is not installed (apt-get install nats-server)",
    ),
]
OLDER = ("--mqtt-version", "3.1.1")


def test_nats_carries_time(rig: Rig) -> None:
    with running(Nats(rig.new_folder("nats"))) as broker:
        server = rig.server(broker.url, *OLDER)
        server.wait_ready()
        client = rig.client(broker.url, "c1", *OLDER)
        client.wait_synchronised()
        client.wait_for(lambda _: client.is_right(within_ns=500 * US), "it is right within 0.5 ms")
        assert client.row()["format"] == "precise"
        client.wait_for(lambda _: client.samples("two-way", "used"), "exchanges count")


def test_a_client_comes_back_after_nats_was_away(rig: Rig) -> None:
    broker = Nats(rig.new_folder("nats"))
    broker.start()
    rig.on_close(broker.stop)
    rig.server(broker.url, *OLDER).wait_ready()
    client = rig.client(broker.url, "c1", *OLDER)
    client.wait_synchronised()
    broker.stop()
    client.wait_for(lambda values: not values["connected"], "it notices")
    broker.start()
    client.wait_for(lambda values: values["connected"], "it comes back")
    client.wait_synchronised(timeout_s=20.0)
