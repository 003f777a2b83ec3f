"""`mqtick-accelerate` before `mqtick-broker`: what clients see must be as without it.

As a proxy and, as root, in the kernel between two network namespaces.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from accelerate_rig import where_the_kernel_can

from demo.local_broker import running
from demo.local_sensors import (
    BROKER_SIDE,
    CLIENT_SIDE,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBLISH,
    REGACK,
    REGISTER,
    SUBACK,
    SUBSCRIBE,
    Accelerator,
    SensorBroker,
    between_namespaces,
    in_the_kernel,
    inside,
    program,
    until,
)

pytestmark = pytest.mark.broker

Launch = Callable[..., Accelerator]


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Launch]:
    """Start broker and proxy."""
    with contextlib.ExitStack() as open_ones:

        def start(only: str = "#") -> Accelerator:
            broker = open_ones.enter_context(running(SensorBroker(tmp_path)))
            way = ["--proxy", "127.0.0.1:0"]
            one = Accelerator(tmp_path, ("127.0.0.1", broker.port), way, only=only)
            open_ones.callback(one.end)
            return one

        yield start


@contextlib.contextmanager
def in_kernel(folder: Path, *, bridged: bool) -> Iterator[Launch]:
    """Start the broker in a namespace; what starts the kernel's data plane before it."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with contextlib.ExitStack() as open_ones:
        at = open_ones.enter_context(between_namespaces(folder, bridged=bridged))

        def start(only: str = "#", *more: str) -> Accelerator:
            with where_the_kernel_can():
                one = in_the_kernel(folder, at, only, *more, bridged=bridged)
            open_ones.callback(one.process.wait)
            open_ones.callback(one.process.terminate)
            return one

        yield start


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Launch]:
    """On the broker's host."""
    with in_kernel(tmp_path, bridged=False) as start:
        yield start


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Launch]:
    """On a bridge between clients and broker."""
    with in_kernel(tmp_path, bridged=True) as start:
        yield start


@pytest.fixture(params=["proxy", "kernel", "bridge"])
def launch(request: pytest.FixtureRequest) -> Launch:
    """In user space, in the kernel of the broker's host, and of a bridge before it."""
    found: Launch = request.getfixturevalue(request.param)
    return found


def test_subscribers_get_everything_in_order_and_the_broker_is_left_alone(launch: Launch) -> None:
    one = launch()
    subscribers = [one.sensor(f"subscriber-{number}").connect() for number in range(3)]
    for number, subscriber in enumerate(subscribers):
        for other in range(number):
            subscriber.register(f"other/{other}")
        subscriber.subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    before = one.is_open(publisher, topic_id, "room/1", *subscribers)
    count = before + 100
    for number in range(before, count):
        publisher.publish(topic_id, b"%d" % number)
    for subscriber in subscribers:
        subscriber.has(*(("room/1", b"%d" % number) for number in range(count)))
    # What was on its way when the rule opened may be copied too.
    until(lambda: one.topic("room/1")["fast"] >= 100, "not all were copied")
    topic = one.topic("room/1")
    assert topic["fast"] <= count
    assert 0 < topic["slow"] <= before
    assert topic["copies"] == 3 * topic["fast"]


def test_one_id_for_two_names_of_two_publishers_is_told_apart(launch: Launch) -> None:
    one = launch()
    subscriber = one.sensor("subscriber").connect().subscribe("room/1").subscribe("room/2")
    publishers = [one.sensor(f"publisher-{number}").connect() for number in (1, 2)]
    names = ("room/1", "room/2")
    ids = [each.register(name) for each, name in zip(publishers, names, strict=True)]
    wanted = []
    for publisher, name, topic_id in zip(publishers, names, ids, strict=True):
        count = one.is_open(publisher, topic_id, name, subscriber)
        publisher.publish(topic_id, b"copied")
        wanted += [(name, b"%d" % number) for number in range(count)] + [(name, b"copied")]
    subscriber.has(*wanted)


def test_a_publisher_is_kept_alive_and_hears_nothing_of_it(launch: Launch) -> None:
    one = launch()
    subscriber = one.sensor("subscriber").connect().subscribe("room/1")
    publisher = one.sensor("publisher").connect(keep_alive_s=2)
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", subscriber)
    for number in range(count, count + 30):
        publisher.publish(topic_id, b"%d" % number)
        time.sleep(0.2)
    rest = publisher.ask(PUBLISH, struct.pack("!BHH", 0x20, topic_id, 5) + b"last", PUBACK)
    assert rest[4] == 0
    assert publisher.others == [CONNACK, REGACK, PUBACK]
    messages = [("room/1", b"%d" % number) for number in range(count + 30)]
    subscriber.has(*messages, ("room/1", b"last"))
    assert one.topic("room/1")["fast"] >= 29


def test_a_wildcard_waits_for_the_brokers_register(launch: Launch) -> None:
    one = launch()
    named = one.sensor("named").connect().subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", named)
    wild = one.sensor("wild").connect().subscribe("room/+")
    publisher.publish(topic_id, b"first")
    wild.has(("room/1", b"first"))
    more = 0
    until(lambda: one.topic("room/1").get("subscribers") == 2, "not both are copied to")
    while not one.topic("room/1")["open"]:
        publisher.publish(topic_id, b"more")
        more += 1
        while wild.hear(0.05) or named.hear(0):
            pass
    publisher.publish(topic_id, b"last")
    tail = [("room/1", b"first"), *[("room/1", b"more")] * more, ("room/1", b"last")]
    wild.has(*tail)
    named.has(*(("room/1", b"%d" % number) for number in range(count)), *tail)


def test_who_sleeps_gets_its_messages_when_it_wakes(launch: Launch) -> None:
    one = launch()
    sleeper = one.sensor("sleeper").connect().subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", sleeper)
    messages = [("room/1", b"%d" % number) for number in range(count)]
    sleeper.has(*messages)
    sleeper.ask(DISCONNECT, struct.pack("!H", 60), DISCONNECT)
    for payload in (b"a", b"b"):
        publisher.publish(topic_id, payload)
        messages.append(("room/1", payload))
    publisher.ask(PINGREQ, b"", PINGRESP)
    assert sleeper.hear(0.2) is None
    sleeper.say(PINGREQ, b"sleeper")
    sleeper.has(*messages)
    assert "sleeps" in one.topic("room/1")["reason"]


def test_who_unsubscribes_or_leaves_gets_no_more(launch: Launch) -> None:
    one = launch()
    stays = one.sensor("stays").connect().subscribe("room/1")
    leaves = one.sensor("leaves").connect().subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", stays, leaves)
    messages = [("room/1", b"%d" % number) for number in range(count)]
    leaves.has(*messages)
    leaves.ask(DISCONNECT, b"", DISCONNECT)
    publisher.publish(topic_id, b"after")
    stays.has(*messages, ("room/1", b"after"))
    while leaves.hear(0.2):  # Bisquitt says good-bye twice
        pass
    assert leaves.got == messages


def test_who_comes_back_from_another_port_gets_its_messages_there(launch: Launch) -> None:
    one = launch()
    before = one.sensor("moves").connect().subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", before)
    before.has(*(("room/1", b"%d" % number) for number in range(count)))
    after = one.sensor("moves").connect().subscribe("room/1")
    count = one.is_open(publisher, topic_id, "room/1", after)
    publisher.publish(topic_id, b"there")
    after.has(*(("room/1", b"%d" % number) for number in range(count)), ("room/1", b"there"))
    assert before.hear(0.2) is None


def test_a_session_that_outlives_its_connection_goes_through_the_broker(launch: Launch) -> None:
    one = launch()
    keeps = one.sensor("keeps").connect(clean=False).subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    for number in range(20):
        publisher.publish(topic_id, b"%d" % number)
    keeps.has(*(("room/1", b"%d" % number) for number in range(20)))
    assert "CleanSession 0" in one.topic("room/1")["reason"]


def test_somebody_who_never_asked_gets_no_copies(launch: Launch) -> None:
    one = launch()
    subscriber = one.sensor("subscriber").connect().subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", subscriber)
    # Its datagrams are forged, so it knows nothing of them, and answers nothing.
    victim = one.sensor("victim")
    victim.say(CONNECT, b"\x04\x01" + struct.pack("!H", 60) + b"victim")
    victim.say(SUBSCRIBE, struct.pack("!BH", 0, 7) + b"room/1")
    until(lambda: "proves its address" in one.topic("room/1").get("reason", ""), "no reason")
    for number in range(count, count + 20):
        publisher.publish(topic_id, b"%d" % number)
    subscriber.has(*(("room/1", b"%d" % number) for number in range(count + 20)))
    came = [victim.socket.recv(2048)[1] for _ in range(3)]
    assert came == [CONNACK, SUBACK, REGISTER]
    assert victim.hear(0.2) is None


def test_a_flood_of_subscribes_costs_speed_and_no_message(launch: Launch) -> None:
    one = launch()
    subscriber = one.sensor("subscriber").connect().subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", subscriber)
    flood = one.sensor("flood").connect()
    for turn in range(100):
        for number in range(100):
            message_id = turn * 100 + number + 1
            flood.say(SUBSCRIBE, struct.pack("!BH", 0, message_id) + b"flood/%d" % message_id)
        publisher.publish(topic_id, b"%d" % (count + turn))
        flood.ping()  # or a socket's queue is full, which loses messages without us, too
    subscriber.has(*(("room/1", b"%d" % number) for number in range(count + 100)))
    status = one.status()
    assert status["clients"] + status["strangers"] == 3


def test_topics_that_are_not_declared_go_through_the_broker(launch: Launch) -> None:
    one = launch(only="fast/#")
    subscriber = one.sensor("subscriber").connect().subscribe("slow/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("slow/1")
    publisher.publish(topic_id, b"through the broker")
    subscriber.has(("slow/1", b"through the broker"))
    until(lambda: "--only" in (one.topic("slow/1").get("reason") or ""), "no reason is given")


def test_copies_of_time_topics_say_how_long_they_were_in_the_kernel(kernel: Launch) -> None:
    one = kernel("mqtick/#", "--residence", "mqtick/#")
    subscriber = one.sensor("subscriber").connect().subscribe("mqtick/time")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("mqtick/time")
    one.is_open(publisher, topic_id, "mqtick/time", subscriber)

    def is_stated() -> bool:
        """Whether a copy states it: not before its clock was looked at twice."""
        subscriber.got.clear()
        publisher.publish(topic_id, bytes([0x20]) + b"time" + bytes(16))
        while not subscriber.got:
            assert subscriber.hear()
        return subscriber.got[0][1][-1] > 0

    while subscriber.hear(0.01):
        pass
    until(is_stated, "nothing is stated")
    residence, correction, copy, source = struct.unpack("!Qi3sB", subscriber.got[0][1][5:])
    assert 0 < residence / 2**16 < 100_000_000
    assert (correction, copy, source) == (-(2**31), bytes(3), 2)


def test_after_a_kill_everything_goes_through_the_broker(kernel: Launch) -> None:
    one = kernel()
    subscriber = one.sensor("subscriber").connect().subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", subscriber)
    messages = [("room/1", b"%d" % number) for number in range(count)]
    one.process.kill()
    one.process.wait()
    publisher.publish(topic_id, b"after")
    subscriber.has(*messages, ("room/1", b"after"))
    filters = ["tc", "-n", BROKER_SIDE, "filter", "show", "dev", "b0", "ingress"]
    assert subprocess.check_output(filters, text=True) == ""


def test_answers_that_do_not_come_from_the_broker_make_no_rules(kernel: Launch) -> None:
    one = kernel()
    client = one.sensor("client").connect()
    host, port = one.at
    suback = bytes([8, SUBACK, 0]) + struct.pack("!HHB", 1, 7, 0)
    udp = struct.pack("!HHHH", port, client.socket.getsockname()[1], 8 + len(suback), 0)
    header = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, 64, 17, 0)
    with inside(CLIENT_SIDE):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw.sendto(header + socket.inet_aton(host) * 2 + udp + suback, (host, 0))
    raw.close()
    until(lambda: one.status()["controller"]["forged"] == 1, "nothing was refused")
    found = one.status()
    assert (found["clients"], found["strangers"], found["topics"]) == (1, 0, [])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "--broker"),
        (["--broker", "127.0.0.1"], "--interface"),
        (["--broker", "127.0.0.1:1", "--proxy", "127.0.0.1:1"], "own address"),
        (["--broker", "0.0.0.0", "--proxy", "127.0.0.1:1"], "nobody listens"),
        (["--broker", "127.0.0.1:0", "--interface", "a"], "nobody listens"),
        (["--broker", "127.0.0.1:99999", "--interface", "a"], "--broker"),
        (["--broker", "127.0.0.1", "--interface", "../a"], "not an interface"),
        (["--broker", "127.0.0.1", "--interface", "x" * 16], "not an interface"),
        (["--broker", "127.0.0.1", "--interface", "a", "--only", "a/#/b"], "not a filter"),
        (["--broker", "127.0.0.1", "--interface", "a", "--only", ""], "not a filter"),
        (["--broker", "127.0.0.1", "--interface", "a", "--predefined", "7"], "ID=NAME"),
        (["--broker", "127.0.0.1", "--interface", "a", "--predefined", "70000=a"], "ID=NAME"),
        (["--broker", "127.0.0.1", "--interface", "a", "--settle", "0"], "--settle"),
        (["--broker", "127.0.0.1", "--interface", "a", "--settle", "9", "--fresh"], "exclude"),
        (["--broker", "127.0.0.1", "--interface", "a", "--rules", "-1"], "--rules"),
        (["--broker", "mqtt+udp://127.0.0.1", "--interface", "a", "--only", "#"], "needs --feed"),
        (["--broker", "mqtts://127.0.0.1", "--interface", "a"], "neither mqtt-sn:// nor"),
        (["--broker", "mqtt+udp://", "--interface", "a", "--feed", "x"], "--broker"),
        (["--broker", "127.0.0.1", "--broker", "127.0.0.1:2", "--interface", "a"], "more than one"),
        (
            [*("--broker", "127.0.0.1", "--broker", "mqtt+udp://127.0.0.2"), "--interface", "a"],
            "at one address",
        ),
        (
            [
                *("--broker", "127.0.0.1:1", "--broker", "mqtt+udp://127.0.0.1:2"),
                *("--proxy", "127.0.0.1:3", "--feed", "x"),
            ],
            "before one",
        ),
        (["--vlan"], "vlan"),
        (["--no-such"], "no-such"),
        (["what"], "what"),
        (["status", "what"], "what"),
        ([b"\xff"], "command"),
    ],
)
def test_a_wrong_command_line_is_refused_with_the_reason(
    arguments: list[str | bytes], why: str
) -> None:
    done = subprocess.run([program(), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert why in done.stderr
    assert "panicked" not in done.stderr


def test_help_has_examples_and_status_says_when_nothing_runs(tmp_path: Path) -> None:
    text = subprocess.check_output([program(), "--help"], text=True)
    assert "Examples:" in text
    assert subprocess.check_output([program(), "--version"], text=True).split()[1][0].isdigit()
    command = [program(), "status", "--control", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "running" in done.stderr


def test_where_the_kernel_cannot_copy_the_same_rules_run_in_user_space(tmp_path: Path) -> None:
    with running(SensorBroker(tmp_path)) as broker:
        way = ["--interface", "no-such", "--proxy", "127.0.0.1:0"]
        one = Accelerator(tmp_path, ("127.0.0.1", broker.port), way)
        place = one.plane.partition(" at ")[2].partition(",")[0]
        one.at = (place.rpartition(":")[0], int(place.rpartition(":")[2]))
        subscriber = one.sensor("subscriber").connect().subscribe("room/1")
        publisher = one.sensor("publisher").connect()
        one.is_open(publisher, publisher.register("room/1"), "room/1", subscriber)
        said = one.status()["data_plane"]
        assert said.startswith("user space, sendmmsg")
        assert "because" in said
        one.end()


def test_a_second_one_at_the_same_place_is_refused(proxy: Launch, tmp_path: Path) -> None:
    one = proxy()
    command = [program(), "--proxy", "127.0.0.1:0", "--broker", "127.0.0.1:9"]
    done = subprocess.run(
        [*command, "--control", one.control], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "another mqtick-accelerate" in done.stderr
    assert one.status()["topics"] == []
