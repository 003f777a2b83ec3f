"""`mqtick-broker --upstream` where something is wrong with a sensor, the upstream, or the way.

Where an upstream has to say what no broker says at will, the test itself is the upstream.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.conformance.client import (
    CONNACK,
    CONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBLISH,
    PUBREC,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V3,
    V5,
    Encoder,
    packet,
)
from broker.tests.harness.brokers import Broker, Launch
from broker.tests.harness.events import PATIENCE_S
from broker.tests.harness.sensors import (
    CONGESTION,
    GOOD_BYE,
    NOT_SUPPORTED,
    PING,
    PONG,
    Sensor,
    bears_65535_topics,
    bears_a_flood_of_subscribes,
    bears_every_lie_about_lengths,
    client_of,
    publish,
    sn,
)
from demo.local_broker import Mosquitto, MqtickBroker, running
from tests.rig import Wire

pytestmark = pytest.mark.broker
GRANTED = {0: b"\x00", 1: b"\x01", 2: b"\x02"}
QUOTA, NOT_ALLOWED = b"\x97", b"\x87"

only_aggregating = pytest.mark.parametrize("mode", ["aggregating"])
only_transparent = pytest.mark.parametrize("mode", ["transparent"])


class Told(NamedTuple):
    """A packet of the gateway's: its type, its flags, what follows the fixed header."""

    kind: int
    flags: int
    body: bytes

    @property
    def id(self) -> bytes:
        """Its packet identifier."""
        at = 2 + int.from_bytes(self.body[:2]) if self.kind == PUBLISH else 0
        return self.body[at : at + 2]


@dataclass
class Link:
    """A connection of the gateway's to the test."""

    socket: socket.socket
    version: int = V5
    unread: bytes = b""
    identifiers: list[int] = field(default_factory=list)

    def read(self) -> Told:
        """The next packet but for PINGREQ, which is answered."""
        while True:
            found = self._packet()
            if found.kind != PINGREQ:
                return found
            self.say(packet(PINGRESP, 0, b""))

    def _packet(self) -> Told:
        while True:
            length, at = 0, 1
            while at < len(self.unread):
                length |= (self.unread[at] & 0x7F) << 7 * (at - 1)
                at += 1
                if not self.unread[at - 1] & 0x80:
                    if len(self.unread) < at + length:
                        break
                    first, body = self.unread[0], self.unread[at : at + length]
                    self.unread = self.unread[at + length :]
                    return Told(first >> 4, first & 15, body)
            octets = self.socket.recv(65536)
            assert octets, "the gateway has ended the connection"
            self.unread += octets

    def expect(self, kind: int, holds: bytes = b"") -> Told:
        """The next packet, which is of this type and has these octets."""
        found = self.read()
        assert found.kind == kind, found
        assert holds in found.body, found
        return found

    def say(self, *packets: bytes) -> None:
        self.socket.sendall(b"".join(packets))

    def grant(self, asked: Told, code: bytes = GRANTED[1]) -> None:
        """Answer a SUBSCRIBE."""
        self.say(packet(SUBACK, 0, asked.id + (b"\0" if self.version == V5 else b"") + code))

    def subscribed(self, filter: str, code: bytes = GRANTED[1]) -> int:
        """Answer the next packet, a SUBSCRIBE for this filter; its subscription identifier."""
        asked = self.expect(SUBSCRIBE, filter.encode())
        self.grant(asked, code)
        return asked.body[4]

    def publish(self, topic: str, payload: bytes, identifier: int, **fields: Any) -> None:
        named = [("subscription_id", identifier)]
        self.say(Encoder(V5).publish(topic, payload, properties=named, **fields))

    def end(self) -> None:
        self.socket.close()


class Script:
    """An upstream that says what the test says."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(PATIENCE_S)
        self.url = f"mqtt://127.0.0.1:{self.server.getsockname()[1]}"

    def come(self) -> tuple[Link, bytes]:
        """The next connection and its CONNECT, not answered."""
        link = Link(self.server.accept()[0])
        link.socket.settimeout(PATIENCE_S)
        body = link.expect(CONNECT).body
        link.version = body[6]
        return link, body

    def accept(self, *, present: bool = False, properties: Any = ()) -> Link:
        """The next connection, let in."""
        link, _ = self.come()
        connack = bytes([present, 0]) + Encoder(link.version).properties(properties)
        link.say(packet(CONNACK, 0, connack))
        return link

    def close(self) -> None:
        self.server.close()


@pytest.fixture
def launch(launch_gateway: Launch) -> Launch:
    """Start a gateway before a broker, connected unless that is not wanted."""
    return launch_gateway


@pytest.fixture
def script() -> Iterator[Script]:
    with contextlib.closing(Script()) as script:
        yield script


@pytest.fixture
def gateway(launch: Launch, script: Script) -> Broker:
    """A gateway before the test."""
    return launch(script.url, connects=False)


@pytest.fixture
def link(gateway: Broker, script: Script) -> Link:
    """That gateway's first connection to the test."""
    link = script.accept()
    gateway.says("connected, MQTT")
    return link


@pytest.fixture
def sensor(link: Link, gateway: Broker) -> Sensor:
    """A sensor that is connected to that gateway."""
    return Sensor(gateway).connect("sensor-1")


def subscribe(sensor: Sensor, topic: str, mid: int = 7, qos: int = 1) -> None:
    """Ask, without waiting for the answer."""
    sensor.say(sn.MQTTSNSubscribe(qos=qos, mid=mid, topic_name=topic))


def is_puback(sensor: Sensor, code: int, mid: int) -> None:
    """The answer to PUBLISH."""
    found = sensor.answer()
    assert isinstance(found, sn.MQTTSNPuback), found.summary()
    assert (found.return_code, found.mid) == (code, mid)


def suback(sensor: Sensor, topic: str, code: int = 0, mid: int = 7) -> None:
    """The answer to SUBSCRIBE."""
    found = sensor.answer()
    assert isinstance(found, sn.MQTTSNSuback), found.summary()
    assert (found.return_code, found.mid) == (code, mid)
    sensor.names[found.tid] = topic


def granted(sensor: Sensor, link: Link, topic: str) -> int:
    """Subscribe, and have it granted; the subscription identifier."""
    subscribe(sensor, topic)
    identifier = link.subscribed(topic)
    suback(sensor, topic)
    return identifier


# -- one sensor against all others -----------------------------------------------------------------

UNSOUND = ["a\tb", "a\x7f", "a\x85", "a\ufdd0", "a\uffff", "a\U0001fffe", "/" * 201]


@pytest.mark.parametrize("topic", UNSOUND, ids=ascii)
def test_no_topic_of_a_sensor_makes_the_upstream_end_the_connection_of_all(
    topic: str, upstream: Mosquitto, launch: Launch, tmp_path: Path
) -> None:
    gateway = launch(upstream.url)
    bad, good = (Sensor(gateway).connect(name) for name in ("bad", "good"))
    good.subscribe("in/1", 1)
    for qos in range(3):
        tid = bad.register(topic)
        bad.say(sn.MQTTSNPublish(qos=qos, tid=tid, mid=qos and 3, data=b"x"))
        assert bad.answer().return_code == NOT_SUPPORTED
    for filter in (topic, f"{topic}/#"):
        subscribe(bad, filter)
        suback(bad, filter, NOT_SUPPORTED)
    client_of(upstream).publish("in/1", b"x", qos=1)
    assert good.message()[1] == b"x"
    assert "away" not in gateway.log()
    assert "disconnect" not in (tmp_path / "broker.log").read_text()


def test_what_the_upstream_takes_from_nobody_does_not_end_the_connection_of_all(
    tmp_path: Path, launch: Launch, mode: str
) -> None:
    lines = "max_qos 1\nretain_available false\nmax_packet_size 200"
    with running(Mosquitto(tmp_path, lines)) as upstream:
        gateway = launch(upstream.url)
        bad, good = (Sensor(gateway).connect(name) for name in ("bad", "good"))
        tid = bad.register("out")
        for fields in ({"qos": 2}, {"qos": 1, "retain": 1}, {"qos": 1, "data": bytes(200)}):
            answer = bad.ask(sn.MQTTSNPublish(**{"tid": tid, "mid": 3, "data": b"x", **fields}))
            assert answer.return_code == NOT_SUPPORTED
        tcp = client_of(upstream)
        tcp.subscribe("#")
        subscribe(good, "in/1", qos=2)
        found = good.answer()
        assert (found.return_code, found.qos) == (0, 1), "as MQTT has it, what can be granted is"
        publish(good, good.register("out"), b"y", 1, 4)
        assert tcp.message().payload == b"y"
        if mode == "aggregating":
            dies = Sensor(gateway)
            dies.told(sn.MQTTSNConnect(client_id="dies", will=1, cleansess=1, duration=1))
            dies.told(sn.MQTTSNWillTopic(qos=2, will_topic="gone"))
            dies.told(sn.MQTTSNWillMsg(will_msg="x"))
            found = tcp.message()
            assert (found.topic, found.qos) == (b"gone", 1), "as surely as can be"
        assert "away" not in gateway.log()


@only_aggregating
def test_one_sensor_whose_messages_are_not_answered_does_not_hold_up_another(
    gateway: Broker, link: Link
) -> None:
    bad, good = (Sensor(gateway).connect(name) for name in ("bad", "good"))
    tid = bad.register("bad")
    for mid in range(1, 200):
        bad.say(sn.MQTTSNPublish(qos=1, tid=tid, mid=mid, data=b"x"))
        if mid > 16:
            is_puback(bad, CONGESTION, mid)
    good.say(sn.MQTTSNPublish(qos=1, tid=good.register("good"), mid=1, data=b"y"))
    for _ in range(16):
        link.expect(PUBLISH, b"bad")
    link.say(packet(PUBACK, 0, link.expect(PUBLISH, b"good").id))
    is_puback(good, 0, 1)


@only_transparent
def test_no_sensor_can_call_itself_as_the_gateway_does(upstream: Mosquitto, launch: Launch) -> None:
    gateway = launch(upstream.url)
    for name in ("mqtick-gateway", "a\tb"):
        answer = Sensor(gateway).ask(sn.MQTTSNConnect(client_id=name, duration=60))
        assert answer.return_code == NOT_SUPPORTED
    Sensor(gateway).connect("sensor-1")
    assert "away" not in gateway.log()


@pytest.mark.parametrize("kind", [Mosquitto, MqtickBroker], ids=["Mosquitto", "mqtick-broker"])
def test_lies_and_floods_of_sensors_are_borne_before_each_upstream(
    kind: type[Mosquitto], launch: Launch, tmp_path: Path
) -> None:
    folder = tmp_path / "upstream"
    folder.mkdir()
    with running(kind(folder)) as upstream:
        gateway = launch(upstream.url, '[[sn.topic]]\nid = 7\nname = "plant/temperature"\n')
        bears_every_lie_about_lengths(gateway)
        bears_a_flood_of_subscribes(gateway)
        assert "away" not in gateway.log()


@only_transparent
def test_a_sensor_that_connects_again_and_again_has_few_connections_opened(
    upstream: Mosquitto, launch: Launch
) -> None:
    gateway = launch(upstream.url)
    one = Sensor(gateway)
    opened = (upstream.folder / "broker.log").read_text().count("New connection from")
    began = time.monotonic()
    for number in range(500):
        name = "same" if number % 2 else f"another-{number}"
        one.say(sn.MQTTSNConnect(client_id=name, duration=60, cleansess=1))
    gateway.says("connects more than 4 times a second")
    # Somebody else comes in meanwhile, and so does this one, who asks again as sensors do.
    Sensor(gateway).connect("sensor-1")
    one.say(PING)
    while one.hear() != PONG:
        time.sleep(0.3)
        one.say(sn.MQTTSNConnect(client_id="same", duration=60, cleansess=1), PING)
    seconds = time.monotonic() - began + 2
    came = (upstream.folder / "broker.log").read_text().count("New connection from") - opened
    assert came <= 1 + 4 * seconds
    assert "away" not in gateway.log()


@pytest.mark.slow
@only_aggregating
def test_65535_topics_are_registered_with_a_gateway(upstream: Mosquitto, launch: Launch) -> None:
    bears_65535_topics(launch(upstream.url))


# -- subscriptions ---------------------------------------------------------------------------------


@only_aggregating
def test_what_ended_while_the_upstream_was_away_ends_there_when_it_is_back(
    link: Link, sensor: Sensor, script: Script
) -> None:
    for topic in ("kept", "over", "sent"):
        granted(sensor, link, topic)
    subscribe(sensor, "never granted")
    link.expect(SUBSCRIBE, b"never granted")
    sensor.say(sn.MQTTSNUnsubscribe(mid=8, topic_name="sent"))
    assert sensor.answer().mid == 8
    link.expect(UNSUBSCRIBE, b"sent")
    link.end()
    suback(sensor, "never granted", CONGESTION)
    sensor.ask(sn.MQTTSNUnsubscribe(mid=9, topic_name="over"))
    link = script.accept(present=True)
    ended = [link.expect(UNSUBSCRIBE) for _ in range(3)]
    filters = {one.body[5:] for one in ended}
    assert filters == {b"over", b"sent", b"never granted"}, "and it is not subscribed anew to kept"
    for one in ended:
        link.say(packet(UNSUBACK, 0, one.id + b"\0\0"))
    publish(sensor, sensor.register("out"), b"x")
    link.expect(PUBLISH, b"out")


@only_aggregating
def test_a_subscription_that_is_refused_when_it_is_renewed_goes_on(
    link: Link, sensor: Sensor
) -> None:
    first = granted(sensor, link, "in/1")
    subscribe(sensor, "in/1")
    link.subscribed("in/1", QUOTA)
    suback(sensor, "", CONGESTION)
    sensor.names = dict.fromkeys(sensor.names, "in/1")
    link.publish("in/1", b"x", first)
    assert sensor.message()[1] == b"x"
    sensor.ask(sn.MQTTSNUnsubscribe(mid=8, topic_name="in/1"))
    link.expect(UNSUBSCRIBE, b"in/1")


@only_aggregating
def test_an_answer_to_a_session_of_before_is_none_to_the_present_one(
    link: Link, sensor: Sensor
) -> None:
    subscribe(sensor, "old")
    old = link.expect(SUBSCRIBE, b"old")
    sensor.connect("sensor-1")
    link.expect(UNSUBSCRIBE, b"old")
    subscribe(sensor, "new")
    new = link.expect(SUBSCRIBE, b"new")
    link.grant(old)
    link.grant(new, NOT_ALLOWED)
    suback(sensor, "new", NOT_SUPPORTED)
    sensor.is_served()


@only_aggregating
def test_who_does_not_want_it_any_more_before_the_answer_gets_none_and_nothing_else(
    link: Link, sensor: Sensor
) -> None:
    subscribe(sensor, "in/1")
    asked = link.expect(SUBSCRIBE, b"in/1")
    sensor.ask(sn.MQTTSNUnsubscribe(mid=8, topic_name="in/1"))
    link.expect(UNSUBSCRIBE, b"in/1")
    link.grant(asked)
    link.publish("in/1", b"x", asked.body[4])
    publish(sensor, sensor.register("out"), b"x")
    link.expect(PUBLISH, b"out")
    sensor.is_served()


@only_aggregating
def test_what_is_retained_comes_before_what_is_newer_also_if_the_connection_breaks(
    gateway: Broker, link: Link
) -> None:
    first, second = (Sensor(gateway).connect(f"sensor-{number}") for number in range(2))
    identifier = granted(first, link, "in/+")
    for ends in (False, True):
        subscribe(second, "other")
        asked = link.expect(SUBSCRIBE, b"other")
        link.publish("in/1", b"retained", identifier, retain=True, qos=1, packet_id=1)
        link.publish("in/1", b"newer", identifier)
        link.publish("in/2", b"passes", identifier)
        link.expect(PUBACK)
        assert first.message()[1] == b"passes"
        if ends:
            link.end()
        else:
            link.grant(asked)
        assert [first.message()[1] for _ in range(2)] == [b"retained", b"newer"]
        suback(second, "other", CONGESTION if ends else 0)


@only_aggregating
def test_what_the_upstream_refuses_after_its_return_is_said(
    gateway: Broker, link: Link, sensor: Sensor, script: Script
) -> None:
    granted(sensor, link, "in/1")
    link.end()
    link = script.accept()
    link.subscribed("in/1", NOT_ALLOWED)
    gateway.says('"in/1": it does not grant what sensors are subscribed to any more')


@only_aggregating
def test_a_subscribe_that_is_never_answered_ends_the_connection_and_is_refused(
    gateway: Broker, link: Link, sensor: Sensor
) -> None:
    subscribe(sensor, "in/1")
    link.expect(SUBSCRIBE, b"in/1")
    suback(sensor, "in/1", CONGESTION)
    gateway.says("away: it has not answered for 10 s")


@only_aggregating
def test_retained_messages_of_mqtt_3_1_1_come_to_who_asked_last(
    script: Script, launch: Launch
) -> None:
    gateway = launch(script.url, connects=False)
    script.come()[0].end()  # it does not know MQTT 5
    link = script.accept()
    gateway.says("connected, MQTT 3.1.1")
    assert link.version == V3
    sensors = [Sensor(gateway).connect(f"sensor-{number}") for number in range(2)]
    kept = Encoder(V3).publish("in/1", b"kept", retain=True)
    for sensor in sensors:
        subscribe(sensor, "in/+", qos=0)
        link.subscribed("in/+", GRANTED[0])
        suback(sensor, "in/+")
        link.say(kept)
        assert sensor.message()[1] == b"kept"
        assert link._packet().kind == PINGREQ, "behind the answer to which none is retained"
        link.say(packet(PINGRESP, 0, b""))
        publish(sensor, sensor.register("out"), b"x")
        link.expect(PUBLISH, b"out")
    for sensor in sensors:
        sensor.is_served()
    link.say(Encoder(V3).publish("in/1", b"live"))
    for sensor in sensors:
        assert sensor.message()[1] == b"live"


# -- connections -----------------------------------------------------------------------------------


@only_aggregating
def test_mqtt_5_is_tried_again_whenever_the_upstream_was_away(
    script: Script, launch: Launch
) -> None:
    launch(script.url, connects=False)
    script.come()[0].end()  # it was just being stopped
    link = script.accept()
    assert link.version == V3
    link.end()
    assert script.accept().version == V5


@only_aggregating
def test_who_says_that_it_does_not_know_mqtt_5_and_leaves_is_asked_with_3_1_1(
    script: Script, launch: Launch
) -> None:
    launch(script.url, connects=False)
    for _ in range(3):
        link, _ = script.come()
        assert link.version == V5
        link.say(packet(CONNACK, 0, b"\0\x84\0"))
        link.end()
        link, _ = script.come()
        assert link.version == V3
        link.end()


def test_no_longer_packet_is_asked_for_than_is_read(script: Script, launch: Launch) -> None:
    launch(script.url, lines="[limits]\npacket = 1024\n", connects=False)
    _, connect = script.come()
    assert bytes([0x27, 0, 0, 4, 0]) in connect


def test_the_upstream_says_how_often_it_wants_to_hear_of_the_gateway(
    script: Script, launch: Launch
) -> None:
    launch(script.url, connects=False)
    link = script.accept(properties=[("server_keep_alive", 2)])
    for _ in range(2):
        assert link._packet().kind == PINGREQ
        link.say(packet(PINGRESP, 0, b""))


@only_aggregating
def test_no_more_messages_are_under_way_than_the_upstream_takes(
    gateway: Broker, script: Script
) -> None:
    link = script.accept(properties=[("receive_maximum", 2)])
    gateway.says("connected, MQTT")
    sensor = Sensor(gateway).connect("sensor-1")
    tid = sensor.register("out")
    for mid in range(1, 5):
        sensor.say(sn.MQTTSNPublish(qos=1, tid=tid, mid=mid, data=b"x"))
    publish(sensor, tid, b"passes them")
    ids = [link.expect(PUBLISH).id for _ in range(2)]
    assert link.expect(PUBLISH, b"passes them").flags == 0
    for mid in range(1, 5):
        link.say(packet(PUBACK, 0, ids.pop(0)))
        is_puback(sensor, 0, mid)
        if mid < 3:
            ids.append(link.expect(PUBLISH).id)


@only_transparent
def test_a_session_ends_whose_client_comes_anew_and_is_refused(
    gateway: Broker, link: Link, script: Script
) -> None:
    sensor = Sensor(gateway)
    connect = sn.MQTTSNConnect(client_id="sensor-1", cleansess=1, duration=60)
    sensor.say(connect)
    first = script.accept()
    assert sensor.answer().return_code == 0
    sensor.say(connect)
    link, _ = script.come()
    first.end()
    link.say(packet(CONNACK, 0, b"\0\x97\0"))
    assert sensor.answer().return_code == CONGESTION
    assert sensor.told(PING) == GOOD_BYE, "nobody is left who could answer for it"


@pytest.mark.parametrize("cleansess", [0, 1])
@pytest.mark.parametrize("before", [0, 1])
@only_transparent
def test_a_sensor_gets_an_answer_if_its_old_port_says_goodbye_while_the_upstream_is_asked(
    before: int, cleansess: int, gateway: Broker, link: Link, script: Script
) -> None:
    old, new = Sensor(gateway), Sensor(gateway)
    old.say(sn.MQTTSNConnect(client_id="sensor-1", cleansess=before, duration=60))
    links = [script.accept()]  # they stay open
    assert old.answer().return_code == 0
    connect = sn.MQTTSNConnect(client_id="sensor-1", cleansess=cleansess, duration=60)
    new.say(connect)
    links.append(script.come()[0])
    assert old.told(GOOD_BYE) == GOOD_BYE
    assert new.answer().return_code == CONGESTION
    new.say(connect)
    links.append(script.accept())
    assert new.answer().return_code == 0


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@only_aggregating
def test_a_message_that_is_repeated_before_the_answer_goes_to_the_upstream_once(
    qos: int, link: Link, sensor: Sensor
) -> None:
    tid = sensor.register("out")
    for dup in (0, 1, 1):
        sensor.say(sn.MQTTSNPublish(qos=qos, dup=dup, tid=tid, mid=5, data=b"x"))
    publish(sensor, tid, b"behind")
    sent = link.expect(PUBLISH)
    link.expect(PUBLISH, b"behind")
    link.say(packet(PUBACK if qos == 1 else PUBREC, 0, sent.id))
    assert sensor.answer().mid == 5
    sensor.is_served()


def surely(sensor: Sensor, topic: int, payload: bytes, mid: int, cut: Callable[[], None]) -> None:
    """Publish with QoS 2 as a sensor does that never gives up, cutting the wire at each step."""
    message = sn.MQTTSNPublish(qos=2, tid=topic, mid=mid, data=payload)
    for said, answered in (
        (message, sn.MQTTSNPubrec),
        (sn.MQTTSNPubrel(mid=mid), sn.MQTTSNPubcomp),
    ):
        sensor.say(said)
        cut()
        while True:
            try:
                octets = sensor.hear(0.3)
            except TimeoutError:
                if said is message:
                    message.dup = 1
                sensor.say(said)
                continue
            found = sn.MQTTSN(octets).payload
            if octets == GOOD_BYE:
                sensor.say(sn.MQTTSNConnect(client_id="sensor-1", cleansess=0, duration=600))
            elif isinstance(found, answered) and found.mid == mid:
                break


def test_each_message_of_qos_2_goes_up_once_however_often_the_wire_is_cut(
    upstream: Mosquitto, launch: Launch
) -> None:
    wire = Wire(upstream.port)
    gateway = launch(wire.url)
    sensor = Sensor(gateway).connect("sensor-1", cleansess=0)
    topic, reader = sensor.register("out"), client_of(upstream)
    reader.subscribe(("out", 2))
    for number in range(4):
        surely(sensor, topic, b"%d" % number, 1 + number, wire.cut)
    # The gateway may still owe the upstream the end of the last one. A transparent gateway sends it
    # when the sensor has connected again, which it does for another message.
    surely(sensor, topic, b"end", 5, lambda: None)
    found = [one.payload for one in reader.until(b"end")]
    assert found == [b"%d" % number for number in range(4)]
    wire.close()


def test_each_message_of_qos_2_comes_down_once_however_often_the_wire_is_cut(
    upstream: Mosquitto, launch: Launch, mode: str
) -> None:
    wire = Wire(upstream.port)
    gateway = launch(wire.url)
    sensor, tcp = Sensor(gateway).connect("sensor-1", cleansess=0), client_of(upstream)
    sensor.subscribe("in/1", 2)
    found: list[bytes] = []
    for number in range(4):
        for part in range(5):
            tcp.publish("in/1", b"%d-%d" % (number, part), qos=2)
        wire.cut()
        gateway.says("connected, MQTT", number + 2)
        while len(found) < 5 * (number + 1):
            octets = sensor.hear()
            if octets == GOOD_BYE:
                sensor.say(sn.MQTTSNConnect(client_id="sensor-1", cleansess=0, duration=600))
                continue
            message = sn.MQTTSN(octets).payload
            if isinstance(message, sn.MQTTSNConnack):
                assert message.return_code == 0, "it is connected again"
            elif isinstance(message, sn.MQTTSNRegister):
                sensor.say(sn.MQTTSNRegack(tid=message.tid, mid=message.mid))
            elif isinstance(message, sn.MQTTSNPublish):
                found.append(bytes(message.data))
                sensor.say(sn.MQTTSNPubrec(mid=message.mid))
            elif isinstance(message, sn.MQTTSNPubrel):
                sensor.say(sn.MQTTSNPubcomp(mid=message.mid))
    assert found == [b"%d-%d" % (number, part) for number in range(4) for part in range(5)]
    wire.close()
