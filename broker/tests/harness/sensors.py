"""MQTT-SN: sensors, as decoders of other authors read and write their messages, and floods."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.conformance.client import V3, V5, Client
from broker.tests.harness.brokers import Broker
from broker.tests.harness.events import PATIENCE_S
from demo.local_broker import Mosquitto, MqtickBroker, Nats

sn = pytest.importorskip("scapy.contrib.mqttsn")

Packet = Any  # scapy's

SEARCH = bytes.fromhex("030100")
INFO = bytes.fromhex("030201")
PING, PONG, GOOD_BYE = bytes.fromhex("0216"), bytes.fromhex("0217"), bytes.fromhex("0218")
CONGESTION, NOT_SUPPORTED = 1, 3
WILLTOPICREQ, WILLMSGREQ = bytes.fromhex("0206"), bytes.fromhex("0208")


class SnBroker(Broker):
    """The broker, on the same port over TCP and, with MQTT-SN, over UDP."""

    def __init__(
        self, folder: Path, lines: str = "", sn_lines: str = "", at: str = "127.0.0.1"
    ) -> None:
        if "subnets" not in sn_lines:
            sn_lines = f'subnets = ["127.0.0.0/8"]\n{sn_lines}'
        super().__init__(folder, f'{lines}\n[sn]\naddress = "{at}:{{port}}"\n{sn_lines}')


def message(kind: Packet, *, node: bytes | None = None) -> bytes:
    """What scapy makes of a message, from a client behind a forwarder if that is named."""
    inner = bytes(sn.MQTTSN() / kind)
    if node is None:
        return inner
    return bytes([3 + len(node), 0xFE, 0]) + node + inner


class Sensor:
    """A port of somebody who speaks MQTT-SN; it knows what names the broker's ids stand for."""

    def __init__(self, broker: MqtickBroker, ip: str = "127.0.0.1", port: int = 0) -> None:
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


def client_of(broker: Mosquitto, name: str = "over-tcp") -> Client:
    """A connected client of the upstream's."""
    version = V3 if isinstance(broker, Nats) else V5
    client = Client(("127.0.0.1", broker.port), version, name)
    assert client.connect().reason == 0
    return client


def publish(sensor: Sensor, topic: int, payload: bytes, qos: int = 0, mid: int = 0) -> None:
    """Publish as its QoS says, repeating as sensors do where the gateway is congested."""
    message = sn.MQTTSNPublish(qos=qos, tid=topic, mid=mid, data=payload)
    sensor.say(message)
    if qos == 0:
        return
    while isinstance(answer := sensor.answer(), sn.MQTTSNPuback) and answer.return_code:
        assert answer.return_code == CONGESTION
        time.sleep(0.1)
        sensor.say(message)
    assert answer.mid == mid
    if qos == 2:
        assert isinstance(answer, sn.MQTTSNPubrec)
        assert isinstance(sensor.ask(sn.MQTTSNPubrel(mid=mid)), sn.MQTTSNPubcomp)


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
