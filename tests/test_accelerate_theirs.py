"""`mqtick-accelerate` before an MQTT-SN gateway of other authors: Bisquitt, before Mosquitto.

Each of its clients has topic ids of its own, and a connection of its own to Mosquitto.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from accelerate_rig import where_the_kernel_can
from test_accelerate import (
    Launch,
    test_a_publisher_is_kept_alive_and_hears_nothing_of_it,
    test_a_session_that_outlives_its_connection_goes_through_the_broker,
    test_a_wildcard_waits_for_the_brokers_register,
    test_one_id_for_two_names_of_two_publishers_is_told_apart,
    test_subscribers_get_everything_in_order_and_the_broker_is_left_alone,
    test_who_unsubscribes_or_leaves_gets_no_more,
)

from demo.local_broker import Mosquitto, free_port, program, running
from demo.local_sensors import (
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    Accelerator,
    SensorBroker,
    between_namespaces,
    in_the_kernel,
    until,
)

BISQUITT = Path(__file__).parent.parent / "build/bisquitt"

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not BISQUITT.exists(), reason="Bisquitt is not built: make build/bisquitt"),
    pytest.mark.needs("mosquitto"),
]
__all__ = [
    "test_a_publisher_is_kept_alive_and_hears_nothing_of_it",
    "test_a_session_that_outlives_its_connection_goes_through_the_broker",
    "test_a_wildcard_waits_for_the_brokers_register",
    "test_one_id_for_two_names_of_two_publishers_is_told_apart",
    "test_subscribers_get_everything_in_order_and_the_broker_is_left_alone",
    "test_who_unsubscribes_or_leaves_gets_no_more",
]


class Bisquitt(SensorBroker):
    """The gateway, and Mosquitto behind it, which ends with it."""

    name = "Bisquitt"
    question = (DISCONNECT, b"", DISCONNECT)

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self.folder, self.address, self.port, self.is_udp = folder, address, free_port(), False
        self.behind = Mosquitto(folder)
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """What runs both."""
        both = 'setpriv --pdeathsig KILL "$1" -c "$2" & shift 2; exec "$@"'
        mosquitto = [str(program("mosquitto")), str(self.behind.config)]
        to = ["--mqtt-host", "127.0.0.1", "--mqtt-port", str(self.behind.port)]
        at = ["--host", self.address, "--port", str(self.port)]
        return ["sh", "-c", both, "sh", *mosquitto, str(BISQUITT), *to, *at]

    def start(self) -> None:
        """Start and wait until it answers."""
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        until(self.answers, "the gateway does not answer")


@pytest.fixture(params=["proxy", "kernel", "bridge"])
def launch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Launch]:
    """In user space, in the kernel of the gateway's host, and of a bridge before it."""
    where = request.param
    if where != "proxy" and os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    bridged = where == "bridge"
    with contextlib.ExitStack() as open_ones:
        if where == "proxy":
            broker = Bisquitt(tmp_path)
            open_ones.enter_context(running(broker))
        else:
            broker = Bisquitt(tmp_path, "10.77.0.1")
            open_ones.enter_context(between_namespaces(tmp_path, bridged=bridged, broker=broker))
        at = (broker.address, broker.port)

        def start(only: str = "#") -> Accelerator:
            if where == "proxy":
                one = Accelerator(tmp_path, at, ["--proxy", "127.0.0.1:0"], only=only)
            else:
                with where_the_kernel_can():
                    one = in_the_kernel(tmp_path, at, only, bridged=bridged)
            open_ones.callback(one.end)
            return one

        yield start


def test_who_sleeps_gets_each_message_once_and_in_order(launch: Launch) -> None:
    one = launch()
    sleeper = one.sensor("sleeper").connect().subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", sleeper)
    messages = [("room/1", b"%d" % number) for number in range(count)]
    sleeper.has(*messages)
    # It lets a client sleep after it has answered, so a message may still come at once.
    sleeper.ask(DISCONNECT, struct.pack("!H", 60), DISCONNECT)
    for payload in (b"a", b"b"):
        publisher.publish(topic_id, payload)
        messages.append(("room/1", payload))
    publisher.ping()
    assert "sleeps" in one.topic("room/1")["reason"]
    sleeper.say(PINGREQ, b"sleeper")
    sleeper.has(*messages)
    while PINGRESP not in sleeper.others:
        assert sleeper.hear()
    assert sleeper.got == messages
