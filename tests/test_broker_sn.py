"""`mqtick-broker` over MQTT-SN: the specification's conversations, TCP beside it, hostile input.

What it sends is read by decoders of other authors, scapy's and, where it is installed, tshark's.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import select
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from decoders import tshark

from broker.conformance.client import V5, Client
from demo.local_broker import MqtickBroker, free_port, running

theirs = pytest.importorskip("mqttsn.client")
sn = pytest.importorskip("scapy.contrib.mqttsn")
inet = pytest.importorskip("scapy.layers.inet")

pytestmark = pytest.mark.broker
Packet = Any  # scapy's

VECTORS = Path(__file__).parent.parent / "broker/spec/vectors/mqtt-sn"
PATIENCE_S = 30.0
UNKNOWN = -(1 << 31)
SEARCH = bytes.fromhex("030100")
INFO = bytes.fromhex("030201")
PING, PONG, GOOD_BYE = bytes.fromhex("0216"), bytes.fromhex("0217"), bytes.fromhex("0218")
WILLTOPICREQ, WILLMSGREQ = bytes.fromhex("0206"), bytes.fromhex("0208")


class Broker(MqtickBroker):
    """The broker, on the same port over TCP and, with MQTT-SN, over UDP."""

    def __init__(
        self, folder: Path, lines: str = "", sn_lines: str = "", at: str = "127.0.0.1"
    ) -> None:
        super().__init__(folder, lines)
        if "subnets" not in sn_lines:
            sn_lines = f'subnets = ["127.0.0.0/8"]\n{sn_lines}'
        own = f'[sn]\naddress = "{at}:{self.port}"\n{sn_lines}\n'
        self.config.write_text(self.config.read_text() + own)

    def tcp(self, name: str = "over-tcp") -> Client:
        """A connected client of MQTT 5 over TCP."""
        client = Client(("127.0.0.1", self.port), V5, name)
        assert client.connect().reason == 0
        return client


Launch = Callable[..., Broker]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start a broker with these lines of configuration, and these of [sn]; it must not panic."""
    with contextlib.ExitStack() as open_ones:

        def start(lines: str = "", sn_lines: str = "", at: str = "127.0.0.1") -> Broker:
            broker = open_ones.enter_context(running(Broker(tmp_path, lines, sn_lines, at)))
            assert isinstance(broker, Broker)
            return broker

        yield start
    log = (tmp_path / "broker.log").read_text()
    assert "panicked" not in log
    assert "a worker failed" not in log


def message(kind: Packet, *, node: bytes | None = None) -> bytes:
    """What scapy makes of a message, from a client behind a forwarder if that is named."""
    inner = bytes(sn.MQTTSN() / kind)
    if node is None:
        return inner
    return bytes([3 + len(node), 0xFE, 0]) + node + inner


class Sensor:
    """A port of somebody who speaks MQTT-SN; it knows what names the broker's ids stand for."""

    def __init__(self, broker: Broker, ip: str = "127.0.0.1", port: int = 0) -> None:
        is_v6 = ":" in ip
        self.socket = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((ip, port))
        self.socket.connect(("::1" if is_v6 else "127.0.0.1", broker.port))
        self.heard: list[bytes] = []
        self.names: dict[int, str] = {}

    def say(self, *datagrams: bytes | Packet) -> None:
        for one in datagrams:
            self.socket.send(one if isinstance(one, bytes) else message(one))

    def hear(self, patience_s: float = PATIENCE_S) -> bytes:
        """The next datagram."""
        self.socket.settimeout(patience_s)
        self.heard.append(self.socket.recv(2048))
        return self.heard[-1]

    def told(self, kind: bytes | Packet) -> bytes:
        """The octets of the answer; scapy makes nothing of a message without fields."""
        self.say(kind)
        return self.hear()

    def ask(self, kind: bytes | Packet) -> Packet:
        """The answer, as scapy reads it."""
        self.say(kind)
        return self.answer()

    def answer(self) -> Packet:
        return sn.MQTTSN(self.hear()).payload

    def connect(self, name: str, **fields: Any) -> Sensor:
        fields = {"cleansess": 1, "duration": 600, **fields}
        assert self.ask(sn.MQTTSNConnect(client_id=name, **fields)).return_code == 0
        return self

    def subscribe(self, topic: str, qos: int = 0) -> None:
        suback = self.ask(sn.MQTTSNSubscribe(qos=qos, mid=7, topic_name=topic))
        assert (suback.mid, suback.return_code, suback.qos) == (7, 0, qos)
        self.names[suback.tid] = topic

    def register(self, topic: str) -> int:
        regack = self.ask(sn.MQTTSNRegister(mid=9, topic_name=topic))
        assert (regack.mid, regack.return_code) == (9, 0)
        self.names[regack.tid] = topic
        return int(regack.tid)

    def message(self) -> tuple[str, bytes, int]:
        """The next message, answered as its QoS says: topic, payload, QoS."""
        while True:
            found = self.answer()
            if isinstance(found, sn.MQTTSNRegister):
                self.names[found.tid] = found.topic_name.decode()
                self.say(sn.MQTTSNRegack(tid=found.tid, mid=found.mid))
                continue
            assert isinstance(found, sn.MQTTSNPublish), found.summary()
            if found.qos == 1:
                self.say(sn.MQTTSNPuback(tid=found.tid, mid=found.mid))
            elif found.qos == 2:
                assert self.ask(sn.MQTTSNPubrec(mid=found.mid)).mid == found.mid
                self.say(sn.MQTTSNPubcomp(mid=found.mid))
            short = found.tid.to_bytes(2).decode(errors="replace")
            topic = short if found.tid_type == 2 else self.names[found.tid]
            return topic, bytes(found.data), found.qos

    def is_served(self) -> None:
        """All that was sent before has been served, and nothing else comes of it."""
        self.say(SEARCH)
        assert self.hear() == INFO


# -- the specification's conversations -------------------------------------------------------------

ALL = [one for path in sorted(VECTORS.glob("*.json")) for one in json.loads(path.read_text())]


def is_ours(conversation: dict[str, Any]) -> bool:
    """Whether it waits for nothing that takes long, or does not come at all.

    The others are in broker/server/sn/tests/conversations.rs.
    """
    waits = [step for step in conversation["steps"] if "at_s" in step]
    return all(step["at_s"] <= 5 and step["expect"] for step in waits)


HELD = [one for one in ALL if is_ours(one)]


@pytest.mark.parametrize("conversation", HELD, ids=[one["name"] for one in HELD])
def test_the_conversation_goes_as_the_specification_says(
    conversation: dict[str, Any], launch: Launch
) -> None:
    topics = conversation["settings"].get("predefined", {}).items()
    broker = launch(
        "", "".join(f'[[sn.topic]]\nid = {id}\nname = "{name}"\n' for id, name in topics)
    )
    peers: dict[str, Sensor] = {}
    ids: dict[str, str] = {}
    tcp = None

    def peer(address: str) -> Sensor:
        if address not in peers:
            ip = "127.0.0." + address.partition(":")[0].rpartition(".")[2]
            peers[address] = Sensor(broker, ip)
        return peers[address]

    def filled(text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: ids[found[1]], text)

    for step in conversation["steps"]:
        if "from" in step:
            peer(step["from"]).say(bytes.fromhex(filled(step["send"])))
        if given := step.get("publish"):
            tcp = tcp or broker.tcp()
            payload = bytes.fromhex(given["payload"])
            tcp.publish(given["topic"], payload, qos=given["qos"], retain=bool(given["retain"]))
            tcp.settle()
        for wanted in step["expect"]:
            found = peer(wanted["to"]).hear().hex()
            known = re.sub(r"\{(\w+)\}", lambda one: ids.get(one[1], one[0]), wanted["send"])
            pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[0-9a-f]{4})", known)
            fits = re.fullmatch(pattern, found)
            assert fits, (step, found, known)
            ids.update(fits.groupdict())
    for one in peers.values():
        one.is_served()


def test_each_message_of_1_2_and_each_kind_of_topic_has_a_conversation() -> None:
    kinds, topics = set(), set()
    for conversation in ALL:
        for step in conversation["steps"]:
            for text in (step.get("send", ""), *(one["send"] for one in step["expect"])):
                octets = bytes.fromhex(re.sub(r"\{\w+\}", "8001", text))
                if octets[1:2] == b"\xfe":
                    octets = octets[octets[0] :]
                if len(octets) < 2 or octets[0] != len(octets):
                    continue  # with a length that lies
                kinds.add(octets[1])
                if octets[1] in (0x0C, 0x12, 0x14):  # PUBLISH, SUBSCRIBE, UNSUBSCRIBE
                    topics.add((octets[1], octets[2] & 3))
    messages = {*range(0x1E)} - {0x03, 0x11, 0x19}
    assert len(messages) == 27
    assert kinds >= messages
    assert topics >= {(kind, topic) for kind in (0x0C, 0x12, 0x14) for topic in range(3)}


# -- one tree --------------------------------------------------------------------------------------


@pytest.fixture
def broker(launch: Launch) -> Broker:
    return launch("", '[[sn.topic]]\nid = 7\nname = "plant/temperature"\n')


def test_what_sensors_publish_reaches_clients_over_tcp_with_its_qos(broker: Broker) -> None:
    tcp, sensor = broker.tcp(), Sensor(broker).connect("sensor-1")
    tcp.subscribe("#")
    topic = sensor.register("room/1")
    for qos in (0, 1, 2):
        sensor.say(sn.MQTTSNPublish(qos=qos, tid=topic, mid=qos and 20 + qos, data=b"%d" % qos))
        found = tcp.message()
        assert (found.topic, found.payload, found.qos) == (b"room/1", b"%d" % qos, qos)
        if qos == 1:
            assert isinstance(sensor.answer(), sn.MQTTSNPuback)
        if qos == 2:
            assert isinstance(sensor.answer(), sn.MQTTSNPubrec)
            assert isinstance(sensor.ask(sn.MQTTSNPubrel(mid=22)), sn.MQTTSNPubcomp)
    Sensor(broker).say(sn.MQTTSNPublish(qos=3, tid_type=1, tid=7, data=b"20.5"))
    found = tcp.message()
    assert (found.topic, found.payload, found.qos) == (b"plant/temperature", b"20.5", 0)


def test_what_clients_publish_over_tcp_reaches_sensors_with_the_lower_qos(broker: Broker) -> None:
    tcp = broker.tcp()
    sensors = [Sensor(broker).connect(f"sensor-{qos}") for qos in (0, 1, 2)]
    for qos, sensor in enumerate(sensors):
        sensor.subscribe("room/+", qos)
    for qos in (0, 1, 2):
        tcp.publish("room/1", b"%d" % qos, qos=qos)
        for granted, sensor in enumerate(sensors):
            assert sensor.message() == ("room/1", b"%d" % qos, min(qos, granted))
    for sensor in sensors:
        sensor.is_served()


def test_one_pool_keeps_retained_messages_of_both(broker: Broker) -> None:
    tcp, sensor = broker.tcp(), Sensor(broker).connect("sensor-1")
    tcp.publish("kept/tcp", b"1", qos=1, retain=True)
    sensor.say(sn.MQTTSNPublish(qos=1, retain=1, tid=sensor.register("kept/sn"), mid=1, data=b"2"))
    assert isinstance(sensor.answer(), sn.MQTTSNPuback)
    tcp.subscribe("kept/#")
    assert {tcp.message().payload for _ in range(2)} == {b"1", b"2"}
    sensor.subscribe("kept/#")
    assert {sensor.message()[:2] for _ in range(2)} == {("kept/tcp", b"1"), ("kept/sn", b"2")}


def test_forty_sensors_and_ten_clients_get_the_same_messages_in_the_same_order(
    broker: Broker,
) -> None:
    sensors = [Sensor(broker).connect(f"sensor-{number}") for number in range(40)]
    for sensor in sensors:
        sensor.subscribe("room/1")
    clients = [broker.tcp(f"client-{number}") for number in range(10)]
    for client in clients:
        client.subscribe("room/1")
    wanted = [b"%d" % number for number in range(30)]
    clients[0].send(*(clients[0].encode.publish("room/1", payload) for payload in wanted))
    for client in clients:
        assert [client.message().payload for _ in wanted] == wanted
    for sensor in sensors:
        assert [sensor.message() for _ in wanted] == [("room/1", one, 0) for one in wanted]
        sensor.is_served()


def test_a_will_of_a_sensor_that_is_silent_reaches_clients_over_tcp(broker: Broker) -> None:
    tcp, sensor = broker.tcp(), Sensor(broker)
    tcp.subscribe("gone/+")
    connect = sn.MQTTSNConnect(client_id="sensor-1", will=1, cleansess=1, duration=1)
    assert sensor.told(connect) == WILLTOPICREQ
    topic = sn.MQTTSNWillTopic(qos=1, retain=1, will_topic="gone/sensor-1")
    assert sensor.told(topic) == WILLMSGREQ
    assert isinstance(sensor.ask(sn.MQTTSNWillMsg(will_msg="silent")), sn.MQTTSNConnack)
    found = tcp.message()
    assert (found.topic, found.payload, found.qos) == (b"gone/sensor-1", b"silent", 1)


def test_a_will_does_not_say_how_long_the_broker_had_it(broker: Broker) -> None:
    tcp, sensor = broker.tcp(), Sensor(broker)
    tcp.subscribe("mqtick/t")
    body = b"\x20" + bytes(31)

    def stated() -> int:
        return int(struct.unpack(">QiI", tcp.message().payload[-16:])[0]) >> 16

    connect = sn.MQTTSNConnect(client_id="sensor-1", will=1, cleansess=1, duration=60)
    assert sensor.told(connect) == WILLTOPICREQ
    assert sensor.told(sn.MQTTSNWillTopic(will_topic="mqtick/t")) == WILLMSGREQ
    assert isinstance(sensor.ask(sn.MQTTSNWillMsg(will_msg=body)), sn.MQTTSNConnack)
    sensor.say(sn.MQTTSNPublish(tid=sensor.register("mqtick/t"), data=body))
    assert 0 < stated() < 10**10
    Sensor(broker).connect("sensor-1")  # from elsewhere: who was there is lost
    assert not 0 < stated() < 10**10


def test_a_sleeping_sensor_gets_as_many_messages_as_may_wait(launch: Launch) -> None:
    broker = launch("[limits]\nqueue_messages = 5\n")
    tcp, sensor = broker.tcp(), Sensor(broker).connect("sensor-1")
    sensor.subscribe("room/1")
    tcp.publish("room/1", b"awake")
    assert sensor.message() == ("room/1", b"awake", 0)
    assert sensor.told(bytes.fromhex("0418003c")) == GOOD_BYE
    for number in range(9):
        tcp.publish("room/1", b"%d" % number, qos=1)
    sensor.say(sn.MQTTSNPingReq(client_id="sensor-1"))
    assert [sensor.message()[1] for _ in range(5)] == [b"%d" % number for number in range(5)]
    assert sensor.hear() == PONG
    sensor.is_served()


def test_each_copy_says_how_long_the_broker_had_it_but_for_what_waited(broker: Broker) -> None:
    tcp = broker.tcp()
    sensors = [Sensor(broker).connect(f"sensor-{number}") for number in range(5)]
    for sensor in sensors:
        sensor.subscribe("mqtick/t")
    for copy in range(11):
        tcp.publish("mqtick/t", b"\x20" + bytes(31))
        for sensor in sensors:
            stated, correction_ns, tail = struct.unpack(">QiI", sensor.message()[1][-16:])
            assert tail >> 8 == copy
            assert (0 < stated >> 16 < 10**10) == (copy > 0), "the first one waits for the proof"
            assert (correction_ns == UNKNOWN) == (copy < 2)


# -- IPv6 ------------------------------------------------------------------------------------------

BOTH = 'subnets = ["127.0.0.0/8", "::1/128"]\n'


def test_sensors_over_both_families_are_in_one_tree(launch: Launch) -> None:
    broker = launch("", BOTH, "[::]")
    tcp = broker.tcp()
    sensors = [Sensor(broker, ip).connect(f"of {ip}") for ip in ("::1", "127.0.0.1")]
    for sensor in sensors:
        sensor.subscribe("room/+", 1)
    tcp.publish("room/1", b"x", qos=1)
    for sensor in sensors:
        assert sensor.message() == ("room/1", b"x", 1)
    topic = sensors[0].register("room/2")
    sensors[0].say(sn.MQTTSNPublish(tid=topic, data=b"y"))
    for sensor in sensors:
        assert sensor.message() == ("room/2", b"y", 0)
        sensor.is_served()


def test_each_copy_over_ipv6_says_how_long_the_broker_had_it(launch: Launch) -> None:
    broker = launch("", BOTH, "[::1]")
    tcp, sensor = broker.tcp(), Sensor(broker, "::1").connect("sensor-1")
    sensor.subscribe("mqtick/t")
    for copy in range(4):
        tcp.publish("mqtick/t", b"\x20" + bytes(31))
        stated, correction_ns, _ = struct.unpack(">QiI", sensor.message()[1][-16:])
        assert (0 < stated >> 16 < 10**10) == (copy > 0), "the first one waits for the proof"
        assert (correction_ns == UNKNOWN) == (copy < 2)


def test_no_message_over_ipv6_is_longer_than_its_frame(launch: Launch) -> None:
    broker = launch("", BOTH, "[::]")
    tcp = broker.tcp()
    sensors = [Sensor(broker, ip).connect(f"of {ip}") for ip in ("::1", "127.0.0.1")]
    for sensor in sensors:
        sensor.subscribe("ab")
    for octets in (1472 - 9, 1452 - 9):  # with a header of 9 octets
        tcp.publish("ab", bytes(octets))
    assert len(sensors[0].message()[1]) == 1452 - 9
    assert len(sensors[1].message()[1]) == 1472 - 9


def links() -> list[int]:
    """Interfaces with an address of their link."""
    with open("/proc/net/if_inet6") as lines:
        rows = [line.split() for line in lines]
    return [int(row[1], 16) for row in rows if row[0].startswith("fe80")]


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists() or not links(), reason="no link")
def test_who_looks_for_a_gateway_on_its_link_finds_it(launch: Launch) -> None:
    broker = launch("", 'subnets = ["fe80::/10"]\n', "[::]")
    seeker = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    seeker.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 0)  # not out of this host
    seeker.settimeout(PATIENCE_S)
    seeker.sendto(SEARCH, ("ff02::1", broker.port, 0, links()[0]))
    assert seeker.recv(99) == INFO


# -- the rest of the broker ------------------------------------------------------------------------


def test_what_the_access_list_says_of_those_without_a_name_is_true(
    launch: Launch, tmp_path: Path
) -> None:
    rules = "topic readwrite open/#\ntopic write in/#\npattern readwrite own/%c\n"
    (tmp_path / "acl").write_text(rules)
    broker = launch(f'acl_file = "{tmp_path / "acl"}"\n')
    sensor, tcp = Sensor(broker).connect("sensor-1"), broker.tcp("other")
    sensor.subscribe("#")
    for topic in ("in/a", "own/other", "open/a"):
        tcp.publish(topic, b"x", qos=1)
    assert sensor.message() == ("open/a", b"x", 0)
    for topic, code in (("in/a", 0), ("own/other", 3), ("elsewhere", 3)):
        tid = sensor.register(topic)
        puback = sensor.ask(sn.MQTTSNPublish(qos=1, tid=tid, mid=3, data=b"x"))
        assert puback.return_code == code, topic
    sensor.is_served()


def test_what_was_acknowledged_survives_a_crash(launch: Launch, tmp_path: Path) -> None:
    broker = launch(f'[store]\npath = "{tmp_path / "store"}"\n')
    sensor, tcp = (
        Sensor(broker).connect("sensor-1"),
        Client(("127.0.0.1", broker.port), V5, "waits"),
    )
    tcp.connect(properties=[("session_expiry", 1000)])
    tcp.subscribe("room/#")
    tcp.close()
    for qos, mid in ((1, 5), (2, 6)):
        tid = sensor.register("room/1")
        answer = sensor.ask(sn.MQTTSNPublish(qos=qos, tid=tid, mid=mid, data=b"%d" % qos))
        assert answer.mid == mid
    assert broker.process is not None
    broker.process.kill()
    broker.process.wait()
    broker.start()
    again = Client(("127.0.0.1", broker.port), V5, "waits")
    assert again.connect(clean=False, properties=[("session_expiry", 1000)]).reason == 0
    assert [again.message().payload for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize("at", ["127.0.0.1", "::1"])
def test_it_says_that_it_is_there_where_it_was_told_to(launch: Launch, at: str) -> None:
    ear = socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET, socket.SOCK_DGRAM)
    ear.bind((at, 0))
    ear.settimeout(PATIENCE_S)
    port, place = ear.getsockname()[1], f"[{at}]" if ":" in at else at
    lines = f'{BOTH}gateway = 9\nadvertise_to = "{place}:{port}"\nadvertise_s = 60\n'
    launch("", lines, "[::]")
    found = sn.MQTTSN(ear.recv(99)).payload
    assert (found.gw_id, found.duration) == (9, 60)


def refused_rows() -> list[str]:
    """The names in the specification's table of what is counted, row by row."""
    text = (VECTORS.parents[1] / "mqtt-sn.md").read_text()
    table = text[text.index("## 8.") : text.index("## 9.")]
    return [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]


def test_what_is_counted_is_in_sys_under_the_names_of_the_specification(broker: Broker) -> None:
    wanted = {name for row in refused_rows() for name in re.findall(r"`(\w+)`", row)}
    watcher = broker.tcp()
    watcher.subscribe("$SYS/broker/sn/#")
    found = {watcher.message().topic.decode().rpartition("/")[2] for _ in wanted}
    assert found == wanted


def test_prometheus_gets_what_is_counted_under_the_same_names(launch: Launch) -> None:
    metrics = free_port()
    broker = launch(f'[metrics]\naddress = "127.0.0.1:{metrics}"\n')
    sensors = [Sensor(broker).connect(f"sensor-{number}") for number in range(2)]
    stranger = Sensor(broker)
    stranger.told(PING)

    def values() -> dict[str, int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics") as page:
            lines = page.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line.startswith("mqtick_broker_sn_"))
        return {name: int(value) for name, _, value in pairs}

    def there(found: dict[str, int]) -> tuple[int, int]:
        return found["mqtick_broker_sn_clients"], found['mqtick_broker_sn_total{what="stranger"}']

    deadline_s = time.monotonic() + PATIENCE_S
    while there(found := values()) != (len(sensors), 1):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    names = {name for row in refused_rows() for name in re.findall(r"`(\w+)`", row)}
    counted = {f'mqtick_broker_sn_total{{what="{name}"}}' for name in names - {"clients"}}
    assert found.keys() == {*counted, "mqtick_broker_sn_clients"}


# -- hostile ---------------------------------------------------------------------------------------


def test_who_is_in_no_subnet_is_not_answered(launch: Launch) -> None:
    broker = launch("", 'subnets = ["127.0.0.1/32"]\n')
    stranger, sensor = Sensor(broker, "127.0.0.2"), Sensor(broker)
    stranger.say(SEARCH, sn.MQTTSNConnect(client_id="x", duration=60))
    sensor.is_served()
    assert not select.select([stranger.socket], [], [], 0)[0]


def test_a_subnet_of_one_family_is_none_of_the_other(launch: Launch) -> None:
    broker = launch("", 'subnets = ["::1/128"]\n', "[::]")
    stranger, sensor = Sensor(broker), Sensor(broker, "::1")
    stranger.say(SEARCH)
    sensor.is_served()
    assert not select.select([stranger.socket], [], [], 0)[0]


def test_after_any_octets_it_serves_others_as_before(broker: Broker) -> None:
    rng = random.Random(1)
    sensor = Sensor(broker).connect("steady")
    bad = Sensor(broker)
    seeds = [
        bytes.fromhex(step["send"])
        for one in ALL
        for step in one["steps"]
        if "send" in step and "{" not in step["send"]
    ]
    for number in range(6000):
        octets = bytearray(rng.choice(seeds) or b"\0")
        for _ in range(rng.randrange(4)):
            octets[rng.randrange(len(octets))] = rng.randrange(256)
        if rng.random() < 0.2:
            octets = bytearray(rng.randbytes(rng.randrange(1, 1600)))
        bad.say(bytes(octets))
        if number % 100 == 99:
            while select.select([bad.socket], [], [], 0)[0]:
                bad.hear()
            assert sensor.told(PING) == PONG
    for answer in bad.heard:
        assert not sn.MQTTSN(answer).haslayer("Raw"), answer.hex()


def test_a_flood_of_clients_fills_what_it_may_and_those_who_are_there_stay(launch: Launch) -> None:
    broker = launch("", "clients = 20\n")
    sensor = Sensor(broker).connect("sensor-1")
    flood = Sensor(broker)
    codes = []
    for number in range(60):
        node = number.to_bytes(2)
        flood.say(message(sn.MQTTSNConnect(client_id=f"f{number}", duration=60), node=node))
        codes.append(flood.hear()[-1])
    assert codes == [0] * 19 + [1] * 41
    assert sensor.told(PING) == PONG


def whole_messages() -> list[bytes]:
    """One message of each type, as scapy or the specification has it."""
    topic = {"tid": 7, "tid_type": 1}
    kinds = [
        sn.MQTTSNAdvertise(),
        sn.MQTTSNSearchGW(),
        sn.MQTTSNGwInfo(gw_id=1, gw_addr="addr"),
        sn.MQTTSNConnect(client_id="other", will=1, duration=60),
        sn.MQTTSNConnack(),
        sn.MQTTSNWillTopic(will_topic="gone"),
        sn.MQTTSNWillMsg(will_msg="x"),
        sn.MQTTSNRegister(mid=1, topic_name="room/1"),
        sn.MQTTSNRegack(),
        sn.MQTTSNPublish(qos=1, mid=1, data=b"x", **topic),
        sn.MQTTSNPuback(),
        sn.MQTTSNPubcomp(),
        sn.MQTTSNPubrec(),
        sn.MQTTSNPubrel(),
        sn.MQTTSNSubscribe(mid=1, topic_name="room/#"),
        sn.MQTTSNSuback(),
        sn.MQTTSNUnsubscribe(mid=1, topic_name="room/#"),
        sn.MQTTSNUnsuback(),
        sn.MQTTSNPingReq(client_id="other"),
        sn.MQTTSNWillTopicUpd(will_topic="gone"),
        sn.MQTTSNWillTopicResp(),
        sn.MQTTSNWillMsgUpd(will_msg="x"),
        sn.MQTTSNWillMsgResp(),
    ]
    return [message(one) for one in kinds] + [WILLTOPICREQ, WILLMSGREQ, PONG, b"\4\x18\0\x3c"]


def lies(whole: bytes) -> Iterator[bytes]:
    """Every truncation of a message, with its length and with that of what is left, and every
    other length."""
    for length in range(len(whole)):
        yield whole[:length]
        yield bytes([length]) + whole[1:length]
    for length in {*range(256)} - {len(whole)}:
        yield bytes([length]) + whole[1:]
        yield b"\1" + length.to_bytes(2) + whole[1:]
        yield b"\1" + (256 * length).to_bytes(2) + whole[1:]
        yield bytes([length, 0xFE, 0]) + whole


def bears_every_lie_about_lengths(broker: MqtickBroker) -> None:
    """Who is connected is served as before, and all that is answered can be read."""
    steady, bad = Sensor(broker).connect("steady"), Sensor(broker).connect("bad")
    messages = whole_messages()
    assert len({one[1] for one in messages}) == 27
    for whole in messages:
        for number, one in enumerate(lies(whole)):
            if one:
                bad.say(one)
            if number % 64 == 63:
                assert steady.told(PING) == PONG
                while select.select([bad.socket], [], [], 0)[0]:
                    bad.hear()
    for answer in bad.heard:
        assert not sn.MQTTSN(answer).haslayer("Raw"), answer.hex()


def bears_a_flood_of_subscribes(broker: MqtickBroker, most: int = 256) -> None:
    """One sensor gets as many as it may, however many it asks for; another is served meanwhile."""
    steady, bad = Sensor(broker).connect("steady"), Sensor(broker).connect("bad")
    codes = []
    for number in range(2000):
        subscribe = sn.MQTTSNSubscribe(mid=1 + number, topic_name=f"flood/{number}/+")
        codes.append(bad.ask(subscribe).return_code)
        if number % 100 == 99:
            assert steady.told(PING) == PONG
    assert codes == [0] * most + [1] * (2000 - most)
    for number in range(5000):  # the same again and again
        bad.ask(sn.MQTTSNSubscribe(mid=1 + number, topic_name="flood/1/+"))
    assert steady.told(PING) == PONG


def bears_65535_topics(broker: MqtickBroker) -> None:
    """64 sensors behind a forwarder fill their tables of names; all ids differ for each of them."""
    forwarder = Sensor(broker)
    for node in range(64):
        name = bytes([node])
        forwarder.say(message(sn.MQTTSNConnect(client_id=f"n{node}", duration=600), node=name))
        assert forwarder.hear()[4:] == bytes.fromhex("030500")
        ids = set()
        for first in range(0, 1056, 32):
            for number in range(first, first + 32):
                register = sn.MQTTSNRegister(mid=1 + number, topic_name=f"topic/{node}/{number}")
                forwarder.say(message(register, node=name))
            answers = [sn.MQTTSN(forwarder.hear()[4:]).payload for _ in range(32)]
            ids |= {one.tid for one in answers if one.return_code == 0}
            assert {one.return_code for one in answers} == ({0} if first < 1024 else {1})
        assert len(ids) == 1024
        assert not ids & {0, 0xFFFF}
    Sensor(broker).connect("steady").register("one more")


def test_every_truncation_and_every_length_that_lies_is_borne(broker: Broker) -> None:
    bears_every_lie_about_lengths(broker)


def test_a_flood_of_subscribes_fills_what_one_client_may(broker: Broker) -> None:
    bears_a_flood_of_subscribes(broker)


@pytest.mark.slow
def test_65535_topics_are_registered_and_then_another_one(broker: Broker) -> None:
    bears_65535_topics(broker)


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1"])
def test_an_address_that_does_not_answer_gets_no_more_than_thrice_what_it_sent(
    launch: Launch, ip: str
) -> None:
    broker = launch("", BOTH, "[::]")
    tcp, forged = broker.tcp(), Sensor(broker, ip)
    said = [
        message(sn.MQTTSNConnect(client_id="forged", cleansess=1, duration=60)),
        message(sn.MQTTSNSubscribe(mid=1, topic_name="#")),
    ]
    forged.say(*said)
    for number in range(100):
        tcp.publish(f"room/{number}", bytes(1000))
    tcp.settle()
    forged.say(SEARCH)
    while forged.hear() != INFO:
        pass
    assert sum(map(len, forged.heard[:-1])) <= 3 * sum(map(len, said))


# -- software of other authors ---------------------------------------------------------------------


class Told:
    """What the other authors' client was told."""

    def __init__(self) -> None:
        self.messages: list[tuple[Any, bytes, int]] = []
        self.published_ids: list[int] = []
        self.new = threading.Condition()

    def message_arrived(self, topic: Any, data: Any, qos: int, retained: bool, id: int) -> bool:
        with self.new:
            self.messages.append((topic, data.encode() if isinstance(data, str) else data, qos))
            self.new.notify_all()
        return True

    def published(self, id: int) -> None:
        with self.new:
            self.published_ids.append(id)
            self.new.notify_all()

    def wait(self, until: Callable[[], bool]) -> None:
        with self.new:
            assert self.new.wait_for(until, PATIENCE_S)


def test_a_client_of_other_authors_publishes_and_subscribes(launch: Launch) -> None:
    broker = launch("", "proof = false\n")  # it answers no REGISTER
    tcp = broker.tcp()
    tcp.subscribe("#")
    told = Told()
    client = theirs.Client(b"theirs", "127.0.0.1", broker.port)
    client.register_callback(told)
    client.connect()
    topic = client.register(b"room/theirs")
    for number, qos in enumerate((0, 1, 2)):
        client.publish(topic, f"m{number}", qos=qos)
        found = tcp.message()
        assert (found.topic, found.payload, found.qos) == (b"room/theirs", b"m%d" % number, qos)
    told.wait(lambda: len(told.published_ids) == 2)
    client.publish("ab", "short")
    assert tcp.message().topic == b"ab"
    # It reads short names only, and makes no DISCONNECT that could be sent.
    assert client.subscribe("cd") == (0, 0)
    tcp.publish("cd", b"hello")
    told.wait(lambda: len(told.messages) == 1)
    assert told.messages == [("cd", b"hello", 0)]


def test_scapy_and_tshark_read_whatever_it_sends(broker: Broker, tmp_path: Path) -> None:
    sensor, tcp = Sensor(broker), broker.tcp()
    sensor.is_served()
    sensor.connect("sensor-1")
    sensor.subscribe("room/#", 2)
    for qos in (0, 1, 2):
        tcp.publish("room/1", bytes(300), qos=qos)
        sensor.message()
    tid = sensor.register("out")
    for qos in (1, 2):
        sensor.ask(sn.MQTTSNPublish(qos=qos, tid=tid, mid=30 + qos, data=b"x"))
    sensor.ask(sn.MQTTSNPubrel(mid=32))
    sensor.ask(sn.MQTTSNUnsubscribe(mid=8, topic_name="room/#"))
    sensor.told(PING)
    sensor.ask(sn.MQTTSNWillTopicUpd(will_topic="gone"))
    sensor.ask(sn.MQTTSNWillMsgUpd(will_msg="x"))
    sensor.told(GOOD_BYE)
    sensor.ask(sn.MQTTSNConnect(client_id="sensor-2", will=1))
    sensor.ask(sn.MQTTSNWillTopic(will_topic="gone"))
    sensor.ask(sn.MQTTSNWillMsg(will_msg="x"))
    sent = sensor.heard
    kinds = {sn.MQTTSN(octets).type for octets in sent}
    expected = bytes.fromhex("02 05 06 08 0a 0b 0c 0d 0e 0f 10 13 15 17 18 1b 1d")
    assert kinds == {*expected}
    others_read(sent, tmp_path)


def test_scapy_and_tshark_read_what_the_conversations_have(tmp_path: Path) -> None:
    said = [
        bytes.fromhex(re.sub(r"\{\w+\}", "8001", one["send"]))
        for conversation in ALL
        for step in conversation["steps"]
        for one in step["expect"]
    ]
    topics = {one[2] & 3 for one in said if one[1] == 0x0C}
    assert topics == {0, 1, 2}
    others_read(said, tmp_path)


def others_read(sent: list[bytes], folder: Path) -> None:
    """What is sent, without what is for a forwarder, is read whole by scapy, and by tshark where
    that is installed."""
    sent = [one[one[0] :] if one[1] == 0xFE else one for one in sent]
    for octets in sent:
        found = sn.MQTTSN(octets)
        assert not found.haslayer("Raw"), found.summary()
        assert found.len == len(octets)
    packets = [inet.IP() / inet.UDP(sport=1883, dport=5000) / one for one in sent]
    lines = tshark(packets, folder, "mqttsn.msg.type", "mqttsn.msg.len", "_ws.malformed")
    assert [(int(line[0], 0), int(line[1]), line[2:]) for line in lines] == [
        (sn.MQTTSN(one).type, len(one), [""]) for one in sent
    ]
