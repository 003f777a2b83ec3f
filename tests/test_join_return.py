"""A client of `mqtick-join` that comes back at once finds its session as it left it."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from joined import JOIN, PATIENCE_S, Site

from broker.conformance.client import PUBACK, V3, Client
from demo.local_broker import Mosquitto

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not JOIN.exists(), reason="mqtick-join is not built: make test-broker does"),
]
CONNACK = bytes.fromhex("20020000")


class Broker:
    """Takes everybody, and reads no further: the test does."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "mqtt://127.0.0.1:{1}".format(*self.listener.getsockname())
        self.clients: queue.Queue[socket.socket] = queue.Queue()
        self.others: list[socket.socket] = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        """Answer each CONNECT."""
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            one.settimeout(PATIENCE_S)
            who = one.recv(4096)
            one.sendall(CONNACK)
            if b"comes-back" in who:
                self.clients.put(one)
            else:
                self.others.append(one)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One that listens."""
    made = Broker()
    yield made
    made.listener.shutdown(socket.SHUT_RDWR)
    made.listener.close()


@pytest.mark.parametrize("is_told", [True, False], ids=["it disconnects", "it vanishes"])
def test_the_broker_has_what_a_client_sent_before_that_client_connects_again(
    tmp_path: Path, broker: Broker, is_told: bool
) -> None:
    site = Site(tmp_path, Mosquitto(tmp_path), url=broker.url)
    site.start()
    try:
        first = site.client("comes-back", V3)
        before = broker.clients.get(timeout=PATIENCE_S)
        first.send(first.encode.ack(PUBACK, 7))
        if is_told:
            first.send(first.encode.disconnect())
        first.socket.close()
        again = Client(("127.0.0.1", site.port), V3, "comes-back")
        again.send(again.encode.connect("comes-back"))
        for number in range(20):  # so the node has seen it
            site.client(f"other-{number}", V3)
        assert broker.clients.empty()
        octets = b""
        while came := before.recv(4096):
            octets += came
        assert octets == bytes.fromhex("40020007") + bytes.fromhex("e000") * is_told
        before.close()
        assert again.receive().raw == CONNACK
    finally:
        site.stop()
