"""Time over UDP: server and client as processes of their own, through the reference broker.

And through the published board, simulated.
"""

from __future__ import annotations

import signal
import socket

import pytest
from rig import FLEET, US, Rig, client_lines, fleet_lines
from udp_peer import Board

from demo.local_broker import UdpReference, running

pytestmark = pytest.mark.slow


def test_a_broker_over_udp_carries_time_with_exchanges_and_residence(rig: Rig) -> None:
    with running(UdpReference(rig.new_folder("udp"))) as broker:
        keys = rig.keys(*fleet_lines(FLEET))
        server = rig.server(broker.url, "--keys-file", keys)
        server.wait_ready()
        keys = rig.keys(*client_lines("c1", FLEET))
        client = rig.client(broker.url, "c1", "--keys-file", keys)
        client.wait_synchronised()
        client.wait_for(lambda _: client.is_right(within_ns=500 * US), "it is right within 0.5 ms")
        assert client.row()["format"] == "precise"
        assert client.row()["authenticated"]
        assert client.status()["kernel_timestamps"]
        client.wait_for(lambda _: client.samples("two-way", "used"), "exchanges count")
        server.wait_for(lambda values: values["echo_order"] == "kept", "the broker keeps the order")
        client.wait_for(
            lambda _: client.samples("residence", "used") + client.samples("residence", "kept"),
            "residence is stated",
        )
        assert server.log.count("connected to") == client.log.count("connected to") == 1
        assert server.log.count("there are no wills over UDP") == 1


def test_a_broker_over_udp_that_was_restarted_has_everybody_back(rig: Rig) -> None:
    broker = UdpReference(rig.new_folder("udp"))
    broker.start()
    rig.on_close(broker.stop)
    short = ("--keepalive-s", "2")
    rig.server(broker.url, *short).wait_ready()
    client = rig.client(broker.url, "c1", *short)
    client.wait_synchronised()
    assert broker.process is not None
    broker.process.send_signal(signal.SIGKILL)
    broker.process.wait()
    client.wait_for(lambda values: not values["connected"], "it notices")
    broker.start()
    client.wait_for(lambda values: values["connected"], "it comes back", timeout_s=30.0)
    client.wait_synchronised(timeout_s=30.0)


def test_two_servers_over_udp_know_each_other_and_one_leaves(rig: Rig) -> None:
    """Without a will, the end of a server shows by its silence, or by its goodbye."""
    with running(UdpReference(rig.new_folder("udp"))) as broker:
        rig.server(broker.url).wait_ready()
        second = rig.server(broker.url, number=1)
        second.wait_ready()
        client = rig.client(broker.url)
        client.wait_for(lambda _: client.row(0) and client.row(1), "it follows both")
        second.stop()
        client.wait_synchronised()


def test_the_published_board_carries_time(rig: Rig) -> None:
    def free() -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            return int(sock.getsockname()[1])

    with Board().open() as board:
        ours = ("--prefix", "m")
        server = rig.server(f"{board.url}&port={free()}", *ours, "--no-echo")
        server.wait_ready()
        precise = (*ours, "--format", "precise")
        client = rig.client(f"{board.url}&port={free()}", "c1", *precise)
        client.wait_synchronised()
        client.wait_for(lambda _: client.samples("two-way", "used"), "exchanges count")
        client.wait_for(lambda _: client.is_right(), "the truth is inside its bound")
        assert len(board.filters) == len({*board.entries}), "nothing is subscribed to twice"
