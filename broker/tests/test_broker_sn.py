"""`mqtick-broker` over MQTT-SN: the specification's conversations, TCP beside it, hostile input.

What it sends is read by decoders of other authors, scapy's and, where it is installed, tshark's.
"""

from __future__ import annotations

import functools
import json
import random
import re
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.tests.harness.brokers import METRICS, Broker, Launch
from broker.tests.harness.events import PATIENCE_S, until
from broker.tests.harness.sensors import (
    GOOD_BYE,
    INFO,
    PING,
    PONG,
    SEARCH,
    WILLMSGREQ,
    WILLTOPICREQ,
    Sensor,
    SnBroker,
    bears_65535_topics,
    bears_a_flood_of_subscribes,
    bears_every_lie_about_lengths,
    message,
    sn,
)
from broker.tests.harness.timing import UNKNOWN, trailer_of
from tests.decoders import tshark

theirs = pytest.importorskip("mqttsn.client")
inet = pytest.importorskip("scapy.layers.inet")

pytestmark = pytest.mark.broker
VECTORS = Path(__file__).parents[1] / "spec/vectors/mqtt-sn"


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
            tcp = tcp or broker.client()
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
def launch(launch: Launch) -> Launch:
    """Start a broker with these lines of configuration, and these of [sn]."""
    return functools.partial(launch, kind=SnBroker)


@pytest.fixture
def broker(launch: Launch) -> Broker:
    return launch("", '[[sn.topic]]\nid = 7\nname = "plant/temperature"\n')


def test_forty_sensors_and_ten_clients_get_the_same_messages_in_the_same_order(
    broker: Broker,
) -> None:
    sensors = [Sensor(broker).connect(f"sensor-{number}") for number in range(40)]
    for sensor in sensors:
        sensor.subscribe("room/1")
    clients = [broker.client(f"client-{number}") for number in range(10)]
    for client in clients:
        client.subscribe("room/1")
    wanted = [b"%d" % number for number in range(30)]
    clients[0].send(*(clients[0].encode.publish("room/1", payload) for payload in wanted))
    for client in clients:
        assert [client.message().payload for _ in wanted] == wanted
    for sensor in sensors:
        assert [sensor.message() for _ in wanted] == [("room/1", one, 0) for one in wanted]
        sensor.is_served()


def test_a_will_does_not_say_how_long_the_broker_had_it(broker: Broker) -> None:
    tcp, sensor = broker.client(), Sensor(broker)
    tcp.subscribe("mqtick/t")
    body = b"\x20" + bytes(31)

    def stated() -> int:
        return trailer_of(tcp.message().payload)[0] >> 16

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
    tcp, sensor = broker.client(), Sensor(broker).connect("sensor-1")
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
    tcp = broker.client()
    sensors = [Sensor(broker).connect(f"sensor-{number}") for number in range(5)]
    for sensor in sensors:
        sensor.subscribe("mqtick/t")
    for copy in range(11):
        tcp.publish("mqtick/t", b"\x20" + bytes(31))
        for sensor in sensors:
            stated, correction_ns, counted, _ = trailer_of(sensor.message()[1])
            assert counted == copy
            assert (0 < stated >> 16 < 10**10) == (copy > 0), "the first one waits for the proof"
            assert (correction_ns == UNKNOWN) == (copy < 2)


# -- IPv6 ------------------------------------------------------------------------------------------

BOTH = 'subnets = ["127.0.0.0/8", "::1/128"]\n'


def test_sensors_over_both_families_are_in_one_tree(launch: Launch) -> None:
    broker = launch("", BOTH, "[::]")
    tcp = broker.client()
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
    tcp, sensor = broker.client(), Sensor(broker, "::1").connect("sensor-1")
    sensor.subscribe("mqtick/t")
    for copy in range(4):
        tcp.publish("mqtick/t", b"\x20" + bytes(31))
        stated, correction_ns, *_ = trailer_of(sensor.message()[1])
        assert (0 < stated >> 16 < 10**10) == (copy > 0), "the first one waits for the proof"
        assert (correction_ns == UNKNOWN) == (copy < 2)


def test_no_message_over_ipv6_is_longer_than_its_frame(launch: Launch) -> None:
    broker = launch("", BOTH, "[::]")
    tcp = broker.client()
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
    sensor, tcp = Sensor(broker).connect("sensor-1"), broker.client("other")
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
    kept = {"clean": False, "properties": [("session_expiry", 1000)]}
    sensor, tcp = Sensor(broker).connect("sensor-1"), broker.client("waits", **kept)
    tcp.subscribe("room/#")
    tcp.close()
    for qos, mid in ((1, 5), (2, 6)):
        tid = sensor.register("room/1")
        answer = sensor.ask(sn.MQTTSNPublish(qos=qos, tid=tid, mid=mid, data=b"%d" % qos))
        assert answer.mid == mid
    broker.again()
    again = broker.client("waits", **kept)
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
    watcher = broker.client()
    watcher.subscribe("$SYS/broker/sn/#")
    found = {watcher.message().topic.decode().rpartition("/")[2] for _ in wanted}
    assert found == wanted


def test_prometheus_gets_what_is_counted_under_the_same_names(launch: Launch) -> None:
    broker = launch(METRICS)
    sensors = [Sensor(broker).connect(f"sensor-{number}") for number in range(2)]
    Sensor(broker).told(PING)
    there = {"sn_clients": len(sensors), 'sn_total{what="stranger"}': 1}
    until(lambda: there.items() <= broker.metrics().items(), "they are not counted")
    names = {name for row in refused_rows() for name in re.findall(r"`(\w+)`", row)}
    counted = {f'sn_total{{what="{name}"}}' for name in names - {"clients"}}
    found = {name for name in broker.metrics() if name.startswith("sn_")}
    assert found == {*counted, "sn_clients"}


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
    tcp, forged = broker.client(), Sensor(broker, ip)
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
    tcp = broker.client()
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
    sensor, tcp = Sensor(broker), broker.client()
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
