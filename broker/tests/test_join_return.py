"""What `mqtick-join` sends to its broker, and when, seen by a broker that is part of the test.

A client that comes back at once finds its session as it left it.
"""

from __future__ import annotations

import contextlib
import queue
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.conformance.client import PUBACK, V3, V5, Client
from broker.tests.harness.events import PATIENCE_S, until
from broker.tests.harness.servers import Server
from broker.tests.harness.sites import JOIN, Site, hello, running_site, settled

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not JOIN.exists(), reason="mqtick-join is not built: make test-broker does"),
]
CONNACK = bytes.fromhex("20020000")


class Broker(Server):
    """Accepts all connections, and leaves reading to the test."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: queue.Queue[socket.socket] = queue.Queue()
        self.others: list[socket.socket] = []

    def serve(self, one: socket.socket) -> None:
        """Answer its CONNECT."""
        one.settimeout(PATIENCE_S)
        who = one.recv(4096)
        if b"unanswered" in who:
            one.close()
            return
        if b"comes-back" in who:
            self.clients.put(one)
            if b"waits" in who:
                return
        else:
            self.others.append(one)
        one.sendall(CONNACK)


@pytest.fixture
def broker() -> Broker:
    """A broker, for `site`."""
    return Broker()


@pytest.fixture
def site(tmp_path: Path, broker: Broker) -> Iterator[Site]:
    """A node before that broker."""
    with running_site(tmp_path, broker) as found:
        yield found


@pytest.mark.parametrize("is_told", [True, False], ids=["it disconnects", "it vanishes"])
def test_the_broker_has_what_a_client_sent_before_that_client_connects_again(
    site: Site, broker: Broker, is_told: bool
) -> None:
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


def test_whoever_the_broker_has_not_taken_keeps_nobody_of_that_name_waiting(
    site: Site, broker: Broker
) -> None:
    name = "comes-back-waits"
    thief = Client(("127.0.0.1", site.port), V3, name)
    thief.send(thief.encode.connect(name))
    before = broker.clients.get(timeout=PATIENCE_S)
    thief.socket.close()
    assert before.recv(1) == b"", "it has left, and this broker does not look"
    again = Client(("127.0.0.1", site.port), V3, name)
    again.send(again.encode.connect(name))
    # Less than the seconds after which the node gives up that this broker ever looks.
    broker.clients.get(timeout=4).sendall(CONNACK)
    assert again.receive().raw == CONNACK


def test_a_client_that_the_broker_does_not_answer_costs_the_next_one_nothing(
    tmp_path: Path, broker: Broker
) -> None:
    url = broker.url.replace("127.0.0.1", "localhost")  # a name, which is looked up
    with running_site(tmp_path, broker, url=url) as site:
        until(lambda: site.status()["broker_connected"], "it has its broker")
        for number in range(20):
            rude = Client(("127.0.0.1", site.port), V3, "unanswered")
            rude.send(rude.encode.connect("unanswered"))
            assert rude.receive().reason == 3, "the broker is unavailable"
            site.client(f"other-{number}", V3).disconnect()


def test_what_several_publish_on_one_topic_comes_to_another_broker_over_one_connection(
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as open_ones:
        brokers = [Broker(), Broker()]
        sites: list[Site] = []
        for number, one in enumerate(brokers):
            near = [site.url for site in sites]
            site = running_site(tmp_path / f"site-{number}", one, neighbours=near)
            sites.append(open_ones.enter_context(site))
        settled(*sites)
        for number in range(16):
            writer = sites[0].client(f"writer-{number}", V3)
            writer.publish("topic", b"payload", retain=True)
            writer.disconnect()
        came: dict[socket.socket, int] = {}
        end = time.monotonic() + PATIENCE_S
        with selectors.DefaultSelector() as ready:
            for other in brokers[1].others:
                ready.register(other, selectors.EVENT_READ)
            while sum(came.values()) < 16:
                assert time.monotonic() < end
                for key, _ in ready.select(1):
                    assert isinstance(key.fileobj, socket.socket)
                    octets = key.fileobj.recv(65536)
                    if not octets:
                        ready.unregister(key.fileobj)
                    came[key.fileobj] = came.get(key.fileobj, 0) + octets.count(b"payload")
        assert sorted(came.values())[-1] == 16


def test_a_neighbour_that_does_not_wait_for_answers_is_parted_with(
    site: Site, broker: Broker
) -> None:
    until(lambda: site.status()["broker_connected"], "it has its broker, which answers nothing")
    stranger = Client(("127.0.0.1", site.port), V5, hello(rest="subscriptions/bad"))
    assert stranger.connect().reason == 0

    def send(number: int) -> None:
        tag = b"abc 0 %x 1 %x" % (number, number)
        said = [("user", (b"mqtick-join", tag)), ("user", (b"", b""))]
        stranger.send(
            stranger.encode.publish("t", b"", qos=1, retain=True, packet_id=number, properties=said)
        )

    for number in range(1, 513):
        send(number)
    until(lambda: site.now("unconfirmed") == 512, "so many may be under way")
    assert site.now("neighbours") == 1
    send(513)
    site.says("more unconfirmed messages than a neighbour may send")
    until(lambda: site.now("neighbours") == 0, "it is parted with")


class Breaking(Broker):
    """Takes QoS 2 on one connection of the node, and then closes the other one at it twice."""

    def __init__(self) -> None:
        super().__init__()
        self.has_taken_2 = threading.Event()
        self.breaks = 2
        self.sent: set[int] = set()

    def serve(self, one: socket.socket) -> None:
        """Answer each packet."""
        with one:
            name = self._packet(one)
            one.sendall(CONNACK)
            while packet := self._packet(one):
                first, rest = packet[0], packet[2:]
                if first >> 4 == 3 and name.endswith(b"-1"):
                    self.sent.add(first & 6)
                    if self.breaks:
                        self.has_taken_2.wait(PATIENCE_S)
                        self.breaks -= 1
                        return
                if first >> 4 == 3:
                    at = 2 + int.from_bytes(rest[:2], "big")
                    one.sendall((b"\x50\2" if first & 4 else b"\x40\2") + rest[at : at + 2])
                elif first == 0x62:
                    one.sendall(b"\x70\2" + rest)
                    self.has_taken_2.set()

    def _packet(self, one: socket.socket) -> bytes:
        """Read a whole packet, which has to be short."""
        head = one.recv(2, socket.MSG_WAITALL)
        return head + one.recv(head[1], socket.MSG_WAITALL) if len(head) == 2 else b""


def test_a_broker_that_took_qos_2_on_one_connection_gets_it_on_the_other_one_too(
    tmp_path: Path,
) -> None:
    broker = Breaking()
    with running_site(tmp_path, broker) as site:
        until(lambda: site.status()["broker_connected"], "it has its broker")
        stranger = Client(("127.0.0.1", site.port), V5, hello(rest="subscriptions/other"))
        assert stranger.connect().reason == 0
        for number in range(1, 17):  # some of these topics take each of both connections
            tag = b"abc 0 %x 2 %x" % (number, number)
            said = [("user", (b"mqtick-join", tag)), ("user", (b"", b""))]
            stranger.send(
                stranger.encode.publish(
                    f"t{number}", b"x", qos=1, retain=True, packet_id=number, properties=said
                )
            )
        until(lambda: site.now("messages_delivered") == 16, "all came")
        until(lambda: site.now("broker_waiting") == 0, "the broker has taken all")
        assert broker.breaks == 0
        assert broker.sent == {4}, "never with QoS 1"
        assert "with QoS 1 from now on" not in site.log.read_text()
