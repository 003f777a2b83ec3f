"""The reference agrees with a real broker, survives all traffic, and answers on a socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from broker.rtl.sim.golden import REFUSALS, Golden, Settings
from broker.rtl.sim.over_tcp import OverTcp
from broker.rtl.sim.traffic import GOOD, Traffic
from demo.local_broker import Mosquitto, program, running

CONNECT = bytes.fromhex("100c00044d5154540402003c0000")


def refusals(broker: Golden) -> int:
    return sum(broker.counters[name] for name in REFUSALS)


@pytest.mark.skipif(
    program("mosquitto") is None, reason="mosquitto is not installed (make setup-test brings it)"
)
@pytest.mark.parametrize("seed", range(3))
def test_who_gets_what_is_as_with_mosquitto(tmp_path: Path, seed: int) -> None:
    broker = Golden(Settings(residence_prefix=""))
    traffic = Traffic(seed, broker, GOOD)
    with running(Mosquitto(tmp_path, "allow_duplicate_messages true")) as other:
        bridge = OverTcp(other.port)
        for _ in range(250):
            at_ns, ip, port, octets = traffic.next()
            before = refusals(broker)
            sent = broker.datagram(at_ns, ip, port, octets)
            bridge.follow(
                (ip, port), octets, sent, {*broker.leases}, refused=refusals(broker) > before
            )
        bridge.close()
    assert broker.counters["copies"] > 100


def test_random_traffic_reaches_everything_and_leaves_a_broker_that_serves() -> None:
    broker = Golden(Settings(subscriptions=30, subscriptions_a_subscriber=10, shapes=6))
    traffic = Traffic(1, broker)
    for _ in range(3_000):
        at_ns, ip, port, octets = traffic.next()
        for sent in broker.datagram(at_ns, ip, port, octets):
            assert 2 <= len(sent.octets) <= 1472
    missing = (
        {*REFUSALS, "filter", "share", "shape", "table"} - {*broker.counters} - {"full", "subnet"}
    )
    assert not missing
    assert broker.counters["copies"] > 500


def test_the_door_is_a_broker_on_a_socket() -> None:
    door = subprocess.Popen(
        [sys.executable, "-m", "broker.rtl.sim.udp_door"], stdout=subprocess.PIPE, text=True
    )
    assert door.stdout is not None
    host, _, port = door.stdout.readline().split()[-1].partition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as subscriber:
        subscriber.settimeout(10)
        subscriber.connect((host, int(port)))

        def ask(octets: bytes) -> bytes:
            subscriber.send(octets)
            return subscriber.recv(2048)

        subscriber.send(ask(CONNECT))
        assert ask(CONNECT).hex() == "20020000"
        assert ask(bytes.fromhex("82080001" + "0003612f2300")).hex() == "9003000100"
        assert ask(b"\x30\x05\x00\x01ahi") == b"\x30\x05\x00\x01ahi"
        assert ask(b"\xc0\x00").hex() == "d000"
        # A residence is stated: by a program, in the first copy of this connection.
        assert ask(bytes.fromhex("820b0002" + "0006") + b"mqtick\x00").hex() == "9003000200"
        sent = b"\x30\x19\x00\x06mqtick\x20" + bytes(16)
        copy = ask(sent)
        assert copy[:-16] == sent[:-16]
        assert int.from_bytes(copy[-16:-8], "big") > 0
        assert copy[-8:].hex() == "8000000000000101"
    door.terminate()
    counters = json.loads(door.communicate(timeout=10)[0])
    assert counters == {"challenges": 1, "copies": 2}
