"""A broker that says how long each message was in it, and the real programs that make use of it.

pytest tests/test_residence_end_to_end.py -k links -s      prints how wrong single samples were
"""

from __future__ import annotations

import statistics
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import FLEET, Client, Rig, Server, client_lines, fleet_lines

from broker.tests.harness.timing import NOT_STATED, UNKNOWN, Node, logged, trailer_of, uses
from demo.local_broker import MqtickBroker, free_port, wait_for_port
from mqtick.protocol.clocks import VirtualClock, read_kernel_time
from mqtick.protocol.precise import Loop, Time, without_trailer

BROKER = Path(__file__).parent / "filling_broker.py"


class Filling:
    """The broker as a process, which can be replaced by one that fills nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, fills: bool = True) -> None:
        self.stop()
        self.process = subprocess.Popen(self._command(fills))
        wait_for_port(self.port, self.process)

    def _command(self, fills: bool) -> list[str]:
        return [sys.executable, str(BROKER), str(self.port), *([] if fills else ["--silent"])]

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)

    def other(self) -> Filling:
        """Another one of its kind."""
        return type(self)(self.folder)


class OurBroker(Filling):
    """`mqtick-broker`, which does the same in Rust."""

    prefix = "mqtick"

    def _command(self, fills: bool) -> list[str]:
        config = self.folder / f"{self.port}.toml"
        rule = f'filter = "{self.prefix}/#"\nmode = "ordered"\nresidence = {str(fills).lower()}'
        listener = f'[[listener]]\naddress = "127.0.0.1:{self.port}"'
        config.write_text(f"{listener}\n[[delivery.topic]]\n{rule}\n")
        return [MqtickBroker(self.folder).built(), "--config", str(config)]


@pytest.fixture(
    params=[Filling, pytest.param(OurBroker, marks=pytest.mark.broker)],
    ids=["page", "mqtick-broker"],
)
def filling(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filling]:
    broker: Filling = request.param(tmp_path)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


# -- the broker ------------------------------------------------------------------------------------


def test_each_copy_says_how_long_it_was_there_and_how_wrong_the_one_before_was(
    filling: Filling,
) -> None:
    hearers = [Node(filling.port, "mqtick/+/a"), Node(filling.port, "mqtick/#")]
    sender = Node(filling.port)
    payload = Loop(3, b"12345678").payload()
    corrected = 0
    for copy in range(1, 51):  # on a busy machine the next one may come before the kernel's stamp
        sender.say("mqtick/c/a", payload)
        for hearer in hearers:
            topic, came = hearer.hear()
            assert (topic, without_trailer(came)) == ("mqtick/c/a", without_trailer(payload))
            stated, correction_ns, *counted = trailer_of(came)
            assert counted == [copy, 1], "a program made the stamps"
            assert 0 < stated >> 16 < 10**10
            if correction_ns != UNKNOWN:
                assert copy > 1
                assert correction_ns >= 0, "it is said before it leaves"
                corrected += 1
    assert corrected > 50


def test_what_one_broker_did_not_state_no_other_one_states(filling: Filling) -> None:
    """A retained copy goes through a bridge to another broker: nobody knows how long it waited."""
    payload = Loop(3, b"12345678").payload()
    other = filling.other()
    other.start()
    try:
        now = Node(filling.port, "mqtick/#")
        Node(filling.port).say("mqtick/c/a", payload, retain=True)
        assert now.hear()[1] != payload, "it has come, so it is kept"
        hearer, bridge = Node(other.port, "mqtick/#"), Node(other.port)
        topic, kept = Node(filling.port, "mqtick/#").hear()
        assert kept[-16:] == NOT_STATED
        bridge.say(topic, kept)
        assert hearer.hear() == (topic, kept)
        bridge.say(topic, payload)
        assert trailer_of(hearer.hear()[1])[2:] == (1, 1), "and it was not counted"
    finally:
        other.stop()


def test_two_brokers_add_what_each_states(filling: Filling) -> None:
    hearer, sender = Node(filling.port, "mqtick/#"), Node(filling.port)
    payload = Loop(3, b"12345678").payload()
    for source, counts in ((3, True), (1, True), (0, False), (4, False)):
        first = struct.pack(">QiI", 10**9 << 16, 70, 7 << 8 | source)
        sender.say("mqtick/c/a", payload[:-16] + first)
        came = hearer.hear()[1]
        if counts:
            stated, *rest = trailer_of(came)
            assert 10**9 < stated >> 16 < 10**10
            assert rest == [UNKNOWN, 0, 1]
        else:
            assert came[-16:] == NOT_STATED


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("mqtick/l/0", b"\x27" + bytes(15)),
        ("mqtick/l/0", b"\x27" + bytes(64)),
        ("mqtick/l/0", b"\x17" + bytes(31)),
        ("mqticks/l/0", b"\x27" + bytes(31)),
        ("hall/l/0", b"\x27" + bytes(31)),
    ],
    ids=["16 octets", "65 octets", "version 1", "a prefix that only begins so", "another prefix"],
)
def test_nobody_elses_payload_is_written_into(filling: Filling, topic: str, payload: bytes) -> None:
    hearer, sender = Node(filling.port, "#"), Node(filling.port)
    sender.say(topic, payload)
    assert hearer.hear() == (topic, payload)


# -- the programs ----------------------------------------------------------------------------------

OLD = ("--mqtt-version", "3.1.1")


def programs(rig: Rig, filling: Filling, *settings: str) -> tuple[Server, Client, Path]:
    """A server and a client with keys; `settings` of the client's estimator; and its sample log."""
    keys = rig.keys(*fleet_lines(FLEET)), rig.keys(*client_lines("c1", FLEET))
    server = rig.server(filling.url, *OLD, "--keys-file", keys[0])
    server.wait_ready()
    folder = rig.new_folder("settings")
    config, log = folder / "client.toml", folder / "samples"
    config.write_text("[estimator]\n" + "".join(f"{line}\n" for line in settings))
    more = ("--config", str(config), "--sample-log", str(log), "--keys-file", keys[1])
    return server, rig.client(filling.url, "c1", *OLD, *more), log


def print_errors(client: Client, log: Path) -> None:
    """Print how wrong the samples of each kind were, against the clock that the server serves."""
    kernel, clock = read_kernel_time(10), VirtualClock(client.clock)
    print("\n| sample | n | p25 | median | p75 | delay, median |\n|---|---|---|---|---|---|")
    kinds = "two-way", "residence"
    for kind, samples in zip(kinds, logged(log, *kinds), strict=True):
        rows, errors_us = list(samples.values()), []
        for row in rows:
            raw_ns = clock.monotonic_raw_ns(row["local_ns"])
            truth_ns = raw_ns + kernel.realtime_ns - kernel.raw_ns - row["local_ns"]
            errors_us.append((row["offset_ns"] - truth_ns) / 1e3)
        quartiles = " | ".join(f"{each:.1f} us" for each in statistics.quantiles(errors_us))
        delay_us = statistics.median(row["delay_ns"] for row in rows) / 1e3
        print(f"| {kind} | {len(rows)} | {quartiles} | {delay_us:.0f} us |")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_left_of_an_exchange_is_the_links(rig: Rig, filling: Filling) -> None:
    server, client, log = programs(rig, filling)
    uses(client, "residence")
    assert client.status()["broker_fills"]
    assert server.status()["broker_fills"]
    assert server.refused("number-in-use") == 0, "it knows its own messages"
    assert client.row()["authenticated"]
    client.wait_for(lambda _: client.samples("residence", "used") > 24, "some bursts", 120.0)
    print_errors(client, log)
    whole, left = logged(log, "two-way", "residence")
    assert len(left) > 10
    for sequence, row in left.items():
        exchange = whole[sequence]
        assert 0 <= row["delay_ns"] < exchange["delay_ns"]
        assert (row["lower_ns"], row["upper_ns"]) == (exchange["lower_ns"], exchange["upper_ns"])
    assert client.is_right(), client.look()
    hearer = Node(filling.port, "mqtick/l/0", "mqtick/t/0")
    before, (topic, payload) = "", hearer.hear()
    while topic != "mqtick/t/0":
        before, (topic, payload) = topic, hearer.hear()
    message = Time.decode(payload)
    assert (before, message.version, message.fills) == ("mqtick/l/0", 2, True)


def heard_time(filling: Filling) -> tuple[str, bytes]:
    return Node(filling.port, "mqtick/t/+").hear()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_who_trusts_the_brokers_has_an_interval_of_the_links(rig: Rig, filling: Filling) -> None:
    _, client, log = programs(rig, filling, "trust_broker_residence = true")
    uses(client, "residence")
    client.wait_for(lambda _: client.samples("residence", "used") > 4, "some bursts", 60.0)
    whole, left = logged(log, "two-way", "residence")
    assert left
    for sequence, row in left.items():
        exchange = whole[sequence]
        assert exchange["lower_ns"] <= row["lower_ns"] <= row["upper_ns"] <= exchange["upper_ns"]
        assert row["upper_ns"] - row["lower_ns"] < exchange["upper_ns"] - exchange["lower_ns"]
    assert client.is_right(), client.look()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_brokers_that_say_it_and_that_do_not_are_replaced_by_each_other(
    rig: Rig, filling: Filling
) -> None:
    server, client, _ = programs(rig, filling, "prefer_better_s = 2.0")
    uses(client, "residence")
    filling.start(fills=False)
    client.wait_for(lambda values: values["connects"] > 1, "it connects again", 90.0)
    server.wait_for(
        lambda values: values["connected"] and not values["broker_fills"], "it notices", 90.0
    )
    uses(client, "echo")
    assert not client.status()["broker_fills"]
    assert Time.decode(heard_time(filling)[1]).version == 1
    filling.start()
    uses(client, "residence")
    assert server.status()["broker_fills"]
    assert Time.decode(heard_time(filling)[1]).version == 2
