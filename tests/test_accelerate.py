"""`mqtick-accelerate` before `mqtick-broker`: what clients see must be as without it.

As a proxy and, as root, in the kernel between two network namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.local_broker import MqtickBroker, running

pytestmark = pytest.mark.broker

PATIENCE_S = 20.0
CONNECT, CONNACK, REGISTER, REGACK, PUBLISH, PUBACK = 0x04, 0x05, 0x0A, 0x0B, 0x0C, 0x0D
SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 0x12, 0x13, 0x16, 0x17, 0x18
BUILT = Path(__file__).parent.parent / "broker/server/target"


def program() -> str:
    """Where it is."""
    found = [BUILT / kind / "mqtick-accelerate" for kind in ("release", "debug")]
    there = [path for path in found if path.exists()]
    if not there:
        pytest.fail("mqtick-accelerate is not built: run make test-broker")
    return str(max(there, key=lambda path: path.stat().st_mtime))


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


class Sensor:
    """A client of MQTT-SN."""

    def __init__(self, at: tuple[str, int], name: str, namespace: str | None = None) -> None:
        with inside(namespace):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.connect(at)
        self.name = name
        self.names: dict[int, str] = {}
        self.got: list[tuple[str, bytes]] = []
        self.others: list[int] = []

    def say(self, kind: int, octets: bytes = b"") -> None:
        self.socket.send(bytes([2 + len(octets), kind]) + octets)

    def hear(self, patience_s: float = PATIENCE_S) -> tuple[int, bytes] | None:
        """The next datagram: its type, and the rest; None: nothing comes."""
        if not select.select([self.socket], [], [], patience_s)[0]:
            return None
        datagram = self.socket.recv(2048)
        assert datagram[0] == len(datagram)
        kind, rest = datagram[1], datagram[2:]
        if kind == REGISTER:
            self.names[struct.unpack("!H", rest[:2])[0]] = rest[4:].decode()
            self.say(REGACK, rest[:4] + b"\0")
        elif kind == PUBLISH:
            assert rest[0] & 0xE0 == 0, "only QoS 0 is wanted"
            self.got.append((self.names[struct.unpack("!H", rest[1:3])[0]], rest[5:]))
        else:
            self.others.append(kind)
        return kind, rest

    def ask(self, kind: int, octets: bytes, answer: int) -> bytes:
        """Say something, and wait for the answer of this type."""
        self.say(kind, octets)
        while heard := self.hear():
            if heard[0] == answer:
                return heard[1]
        raise AssertionError(f"{self.name}: no answer to {kind:#x}")

    def connect(self, keep_alive_s: int = 60, *, clean: bool = True) -> Sensor:
        flags = bytes([4 if clean else 0, 1]) + struct.pack("!H", keep_alive_s)
        assert self.ask(CONNECT, flags + self.name.encode(), CONNACK) == b"\0"
        return self

    def register(self, topic: str) -> int:
        rest = self.ask(REGISTER, struct.pack("!HH", 0, 9) + topic.encode(), REGACK)
        topic_id = int(struct.unpack("!H", rest[:2])[0])
        self.names[topic_id] = topic
        return topic_id

    def subscribe(self, topic: str) -> Sensor:
        rest = self.ask(SUBSCRIBE, struct.pack("!BH", 0, 7) + topic.encode(), SUBACK)
        assert rest[5] == 0
        if topic_id := struct.unpack("!H", rest[1:3])[0]:
            self.names[topic_id] = topic
        return self

    def publish(self, topic_id: int, payload: bytes, flags: int = 0) -> None:
        self.say(PUBLISH, struct.pack("!BHH", flags, topic_id, 1 if flags & 0x60 else 0) + payload)

    def has(self, *wanted: tuple[str, bytes]) -> None:
        """Exactly these messages come, in this order."""
        while len(self.got) < len(wanted) and self.hear():
            pass
        assert self.got == list(wanted)


@contextlib.contextmanager
def inside(namespace: str | None) -> Iterator[None]:
    """What is opened here belongs to that network namespace."""
    if namespace is None:
        yield
        return
    enter = ctypes.CDLL(None, use_errno=True).setns
    with open("/proc/self/ns/net") as here, open(f"/run/netns/{namespace}") as there:
        assert enter(there.fileno(), 0) == 0
        try:
            yield
        finally:
            assert enter(here.fileno(), 0) == 0


class Accelerator:
    """The program, and the place where clients find it."""

    def __init__(
        self,
        folder: Path,
        broker: tuple[str, int],
        way: list[str],
        *,
        only: str = "#",
        run: tuple[str, ...] = (),
        clients: str | None = None,
        at: tuple[str, int] | None = None,
    ) -> None:
        self.control = str(folder / "control")
        self.clients = clients
        arguments = ["--broker", f"{broker[0]}:{broker[1]}", "--only", only, "--fresh", *way]
        self.process = subprocess.Popen(
            [*run, program(), *arguments, "--control", self.control],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.plane = self.process.stdout.readline()
        if not self.plane:
            pytest.skip("the kernel's data plane is not there")
        place = self.plane.rpartition(" at ")[2].partition(",")[0]
        self.at = at or (place.rpartition(":")[0], int(place.rpartition(":")[2]))

    def sensor(self, name: str) -> Sensor:
        return Sensor(self.at, name, self.clients)

    def status(self) -> dict[str, Any]:
        command = [program(), "status", "--json", "--control", self.control]
        found: dict[str, Any] = json.loads(subprocess.check_output(command))
        return found

    def topic(self, name: str) -> dict[str, Any]:
        """What is said of the topic's publisher that publishes most."""
        found = [one for one in self.status()["topics"] if one["name"] == name]
        return max(found, key=lambda one: one["fast"] + one["slow"], default={"open": False})

    def is_open(self, publisher: Sensor, topic_id: int, name: str, *subscribers: Sensor) -> int:
        """Publish until a topic is accelerated; how many messages that took."""
        count = 0

        def opens() -> bool:
            nonlocal count
            if self.topic(name)["open"]:
                return True
            publisher.publish(topic_id, b"%d" % count)
            count += 1
            for subscriber in subscribers:
                while subscriber.hear(0.01):
                    pass
            return False

        until(opens, f"{name} is not accelerated")
        return count

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0


class Broker(MqtickBroker):
    """The broker with MQTT-SN on its port."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        super().__init__(folder)
        own = f'[sn]\naddress = "{address}:{self.port}"\nsubnets = ["127.0.0.0/8", "10.0.0.0/8"]\n'
        self.config.write_text(self.config.read_text() + own)


Launch = Callable[..., Accelerator]


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Launch]:
    """Start broker and proxy."""
    with contextlib.ExitStack() as open_ones:

        def start(only: str = "#") -> Accelerator:
            broker = open_ones.enter_context(running(Broker(tmp_path)))
            way = ["--proxy", "127.0.0.1:0"]
            one = Accelerator(tmp_path, ("127.0.0.1", broker.port), way, only=only)
            open_ones.callback(one.end)
            return one

        yield start


BROKER_SIDE, CLIENT_SIDE = "mqtick-acc-b", "mqtick-acc-c"


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Launch]:
    """Start the broker in a namespace, the kernel's data plane on its interface."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with contextlib.ExitStack() as open_ones:

        def ip(*words: str) -> None:
            subprocess.run(["ip", *words], check=True)

        for name in (BROKER_SIDE, CLIENT_SIDE):
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
            ip("netns", "add", name)
            open_ones.callback(ip, "netns", "del", name)
        peer = ("peer", "name", "c0", "netns", CLIENT_SIDE)
        ip("-n", BROKER_SIDE, "link", "add", "b0", "type", "veth", *peer)
        for name, link, address in ((BROKER_SIDE, "b0", 1), (CLIENT_SIDE, "c0", 2)):
            ip("-n", name, "address", "add", f"10.77.0.{address}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
        broker = Broker(tmp_path, "10.77.0.1")
        run = ("ip", "netns", "exec", BROKER_SIDE)
        command = [*run, broker.built(), "--config", str(broker.config)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        open_ones.callback(process.wait)
        open_ones.callback(process.terminate)
        at = ("10.77.0.1", broker.port)

        def answers() -> bool:
            asker = Sensor(at, "asker", CLIENT_SIDE)
            with contextlib.suppress(ConnectionError):
                asker.say(0x01, b"\0")
                return asker.hear(0.1) is not None
            return False

        until(answers, "the broker does not answer")

        def start(only: str = "#") -> Accelerator:
            way = ["--interface", "b0"]
            one = Accelerator(tmp_path, at, way, only=only, run=run, clients=CLIENT_SIDE, at=at)
            open_ones.callback(one.process.wait)
            open_ones.callback(one.process.terminate)
            return one

        yield start


@pytest.fixture(params=["proxy", "kernel"])
def launch(request: pytest.FixtureRequest) -> Launch:
    """Both data planes."""
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
    until(lambda: one.topic("room/1")["fast"] == 100, "not all were copied")
    assert one.topic("room/1")["copies"] == 300
    assert one.topic("room/1")["slow"] == before


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
    assert leaves.hear(0.2) is None


def test_who_comes_back_from_another_port_gets_its_messages_there(launch: Launch) -> None:
    one = launch()
    before = one.sensor("moves").connect(clean=False).subscribe("room/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("room/1")
    count = one.is_open(publisher, topic_id, "room/1", before)
    before.has(*(("room/1", b"%d" % number) for number in range(count)))
    after = one.sensor("moves").connect(clean=False)
    publisher.publish(topic_id, b"there")
    after.names = dict(before.names)
    after.has(("room/1", b"there"))
    assert before.hear(0.2) is None


def test_topics_that_are_not_declared_go_through_the_broker(launch: Launch) -> None:
    one = launch(only="fast/#")
    subscriber = one.sensor("subscriber").connect().subscribe("slow/1")
    publisher = one.sensor("publisher").connect()
    topic_id = publisher.register("slow/1")
    publisher.publish(topic_id, b"through the broker")
    subscriber.has(("slow/1", b"through the broker"))
    until(lambda: "--only" in (one.topic("slow/1").get("reason") or ""), "no reason is given")


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
        (["--broker", "127.0.0.1", "--interface", "a", "--proxy", "127.0.0.1:1"], "exclude"),
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


def test_a_second_one_at_the_same_place_is_refused(proxy: Launch, tmp_path: Path) -> None:
    one = proxy()
    command = [program(), "--proxy", "127.0.0.1:0", "--broker", "127.0.0.1:9"]
    done = subprocess.run(
        [*command, "--control", one.control], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "another mqtick-accelerate" in done.stderr
    assert one.status()["topics"] == []
