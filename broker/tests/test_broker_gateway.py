"""`mqtick-broker --upstream`: a gateway for MQTT-SN before other brokers, in both modes."""

from __future__ import annotations

import contextlib
import random
import re
import resource
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.tests.harness.brokers import Broker, Gateway, Launch
from broker.tests.harness.events import until
from broker.tests.harness.sensors import (
    CONGESTION,
    GOOD_BYE,
    INFO,
    NOT_SUPPORTED,
    PING,
    PONG,
    SEARCH,
    WILLMSGREQ,
    WILLTOPICREQ,
    Sensor,
    SnBroker,
    client_of,
    publish,
    sn,
)
from broker.tests.harness.servers import Server
from demo.local_broker import Mosquitto, MqtickBroker, Nats, free_port, running
from tests.rig import Authority

pytestmark = pytest.mark.broker


@pytest.fixture
def launch(launch_gateway: Launch) -> Launch:
    """Start a gateway before a broker, connected unless that is not wanted."""
    return launch_gateway


# -- every message in both directions --------------------------------------------------------------

Place = tuple[Broker, Mosquitto]
"""Where sensors are, and the broker of clients over TCP."""


@pytest.fixture(params=["one broker", "aggregating", "transparent"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """One broker for both, or a gateway in either mode before another broker."""
    topic = '[[sn.topic]]\nid = 7\nname = "plant/temperature"\n'
    if request.param == "one broker":
        with running(SnBroker(tmp_path, "", topic)) as broker:
            yield broker, broker
        return
    upstream: Mosquitto = request.getfixturevalue("upstream")
    with running(Gateway(tmp_path, upstream.url, request.param, topic)) as gateway:
        gateway.says("connected, MQTT 5")
        yield gateway, upstream


def test_messages_of_each_qos_pass_both_ways(place: Place) -> None:
    gateway, tcp = place[0], client_of(place[1])
    tcp.subscribe("room/#", "plant/#")
    sensors = [Sensor(gateway).connect(f"sensor-{qos}") for qos in range(3)]
    for qos, sensor in enumerate(sensors):
        sensor.subscribe("in/+", qos)
    topic = sensors[0].register("room/1")
    for qos in range(3):
        publish(sensors[0], topic, b"%d" % qos, qos, qos and 20 + qos)
        found = tcp.message()
        assert (found.topic, found.payload, found.qos) == (b"room/1", b"%d" % qos, qos)
        tcp.publish("in/1", b"%d" % qos, qos=qos)
        for granted, sensor in enumerate(sensors):
            assert sensor.message() == ("in/1", b"%d" % qos, min(qos, granted))
    Sensor(gateway).say(sn.MQTTSNPublish(qos=3, tid_type=1, tid=7, data=b"20.5"))
    found = tcp.message()
    assert (found.topic, found.payload, found.qos) == (b"plant/temperature", b"20.5", 0)
    for sensor in sensors:
        sensor.is_served()


def test_what_was_unsubscribed_does_not_come_any_more(place: Place) -> None:
    gateway, tcp = place[0], client_of(place[1])
    sensors = [Sensor(gateway).connect(f"sensor-{number}") for number in range(2)]
    for sensor in sensors:
        sensor.subscribe("in/1", 1)
    sensors[0].ask(sn.MQTTSNUnsubscribe(mid=8, topic_name="in/1"))
    sensors[0].subscribe("in/2", 1)
    tcp.publish("in/1", b"1", qos=1)
    tcp.publish("in/2", b"2", qos=1)
    assert sensors[1].message() == ("in/1", b"1", 1)
    assert sensors[0].message() == ("in/2", b"2", 1)


def test_filters_that_overlap_bring_each_sensor_its_own_copies_only(place: Place) -> None:
    gateway, tcp = place[0], client_of(place[1])
    filters = ["in/#", "in/+", "in/1", "+/1"]
    sensors = [Sensor(gateway).connect(f"sensor-{number}") for number in range(4)]
    for sensor, wanted in zip(sensors, filters, strict=True):
        sensor.subscribe(wanted, 1)
    for number in range(3):
        tcp.publish("in/1", b"%d" % number, qos=1)
    for sensor in sensors:
        assert [sensor.message()[1] for _ in range(3)] == [b"0", b"1", b"2"]
        sensor.is_served()


def test_retained_messages_come_to_who_subscribes_and_to_nobody_else(place: Place) -> None:
    gateway, tcp = place[0], client_of(place[1])
    sensors = [Sensor(gateway).connect(f"sensor-{number}") for number in range(3)]
    publish_kept = sn.MQTTSNPublish(
        qos=1, retain=1, tid=sensors[0].register("kept/1"), mid=1, data=b"kept"
    )
    assert sensors[0].ask(publish_kept).return_code == 0
    tcp.publish("other/tcp", b"from tcp", qos=1, retain=True)
    tcp.subscribe("kept/+")
    found = tcp.message()
    assert (found.payload, found.retain) == (b"kept", True)
    for sensor in sensors:
        sensor.subscribe("kept/+", 1)
        assert sensor.message() == ("kept/1", b"kept", 1)
        sensor.subscribe("other/+", 1)
        assert sensor.message() == ("other/tcp", b"from tcp", 1)
    for sensor in sensors:
        sensor.is_served()
    tcp.publish("kept/1", b"new", qos=1)
    for sensor in sensors:
        assert sensor.message() == ("kept/1", b"new", 1)


def test_a_sleeping_sensor_finds_its_messages_when_it_asks(place: Place) -> None:
    gateway, tcp = place[0], client_of(place[1])
    sensor = Sensor(gateway).connect("sleeper")
    sensor.subscribe("in/1", 1)
    tcp.publish("in/1", b"awake", qos=1)
    assert sensor.message()[1] == b"awake"
    assert sensor.told(bytes.fromhex("0418003c")) == GOOD_BYE
    for number in range(5):
        tcp.publish("in/1", b"%d" % number, qos=1)
    other = Sensor(gateway).connect("other")
    other.subscribe("in/2", 1)
    tcp.publish("in/2", b"all is there", qos=1)
    assert other.message()[1] == b"all is there"
    assert not select.select([sensor.socket], [], [], 0)[0]
    sensor.say(sn.MQTTSNPingReq(client_id="sleeper"))
    assert [sensor.message()[1] for _ in range(5)] == [b"%d" % number for number in range(5)]
    assert sensor.hear() == PONG


def test_a_session_that_is_kept_gets_what_came_while_it_was_gone(place: Place) -> None:
    gateway, tcp = place[0], client_of(place[1])
    sensor = Sensor(gateway).connect("kept", cleansess=0)
    sensor.subscribe("in/1", 1)
    assert sensor.told(GOOD_BYE) == GOOD_BYE
    for number in range(3):
        tcp.publish("in/1", b"%d" % number, qos=1)
    sensor.connect("kept", cleansess=0)
    assert [sensor.message()[1] for _ in range(3)] == [b"0", b"1", b"2"]


def with_will(sensor: Sensor, name: str, duration: int) -> None:
    connect = sn.MQTTSNConnect(client_id=name, will=1, cleansess=1, duration=duration)
    assert sensor.told(connect) == WILLTOPICREQ
    topic = sn.MQTTSNWillTopic(qos=1, retain=1, will_topic=f"gone/{name}")
    assert sensor.told(topic) == WILLMSGREQ
    assert sensor.ask(sn.MQTTSNWillMsg(will_msg="silent")).return_code == 0


def test_the_will_of_a_silent_sensor_is_published_and_not_that_of_one_that_said_good_bye(
    place: Place,
) -> None:
    gateway, tcp = place[0], client_of(place[1])
    tcp.subscribe("gone/#")
    polite, silent = Sensor(gateway), Sensor(gateway)
    with_will(polite, "polite", 1)
    assert polite.told(GOOD_BYE) == GOOD_BYE
    with_will(silent, "silent", 1)
    found = tcp.message()
    assert (found.topic, found.payload, found.qos) == (b"gone/silent", b"silent", 1)


def test_a_transparent_gateway_dies_and_the_upstream_publishes_wills(
    upstream: Mosquitto, tmp_path: Path
) -> None:
    gateway = Gateway(tmp_path, upstream.url, "transparent")
    with running(gateway):
        gateway.says("connected, MQTT")
        tcp = client_of(upstream)
        tcp.subscribe("gone/#")
        sensor = Sensor(gateway)
        with_will(sensor, "orphan", 600)
        refused = sensor.ask(sn.MQTTSNWillTopicUpd(will_topic="elsewhere"))
        assert refused.return_code == NOT_SUPPORTED
        assert gateway.process is not None
        gateway.process.kill()
        assert tcp.message().topic == b"gone/orphan"


def test_a_gateway_that_is_stopped_says_good_bye(
    upstream: Mosquitto, tmp_path: Path, mode: str
) -> None:
    tcp = client_of(upstream)
    tcp.subscribe("gone/#", "end")
    gateway = Gateway(tmp_path, upstream.url, mode)
    with running(gateway):
        gateway.says("connected, MQTT")
        with_will(Sensor(gateway), "polite", 600)
    client_of(upstream, "other").publish("end", b"end", qos=1)
    assert tcp.message().topic == b"end"


# -- what the upstream says ------------------------------------------------------------------------


def test_what_the_upstream_refuses_is_refused(launch: Launch, tmp_path: Path, mode: str) -> None:
    (tmp_path / "acl").write_text("topic readwrite open/#\n")
    with running(Mosquitto(tmp_path, f"acl_file {tmp_path / 'acl'}")) as upstream:
        sensor = Sensor(launch(upstream.url)).connect("sensor-1")
        answer = sensor.ask(sn.MQTTSNPublish(qos=1, tid=sensor.register("no/1"), mid=3, data=b"x"))
        assert answer.return_code == NOT_SUPPORTED
        answer = sensor.ask(sn.MQTTSNPublish(qos=2, tid=sensor.register("no/1"), mid=4, data=b"x"))
        assert answer.return_code == NOT_SUPPORTED
        publish(sensor, sensor.register("open/1"), b"x", 1, 5)
    with running(Answering(refuses=True)) as fake:
        gateway = Gateway(tmp_path, fake.url, mode)
        with running(gateway):
            gateway.says("connected, MQTT", 2)
            sensor = Sensor(gateway).connect("sensor-1")
            suback = sensor.ask(sn.MQTTSNSubscribe(qos=1, mid=7, topic_name="no/#"))
            assert suback.return_code == NOT_SUPPORTED


def test_our_own_access_list_holds_too(upstream: Mosquitto, launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("pattern readwrite own/%c/#\n")
    gateway = launch(upstream.url, lines=f'[access]\nacl_file = "{tmp_path / "acl"}"\n')
    sensors = {name: Sensor(gateway).connect(name) for name in ("a", "b")}
    for sensor in sensors.values():
        sensor.subscribe("own/#", 1)
    tcp = client_of(upstream)
    for name in sensors:
        tcp.publish(f"own/{name}/in", name.encode(), qos=1)
    for name, sensor in sensors.items():
        assert sensor.message() == (f"own/{name}/in", name.encode(), 1)
        sensor.is_served()
    tid = sensors["a"].register("own/b/in")
    puback = sensors["a"].ask(sn.MQTTSNPublish(qos=1, tid=tid, mid=3, data=b"x"))
    assert puback.return_code == NOT_SUPPORTED


def test_a_wrong_password_is_said_and_a_right_one_lets_in(launch: Launch, tmp_path: Path) -> None:
    passwords = tmp_path / "passwd"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "gate", "right%"], check=True)
    lines = f"password_file {passwords}"
    with running(Mosquitto(tmp_path, lines, anonymous=False)) as upstream:
        place = f"127.0.0.1:{upstream.port}"
        (tmp_path / "secret").write_text("wrong\n")
        file = f'password_file = "{tmp_path / "secret"}"'
        gateway = launch(f"mqtt://gate@{place}", lines=file, connects=False)
        gateway.says("away: it does not let this user in")
        answer = Sensor(gateway).ask(sn.MQTTSNConnect(client_id="sensor-1", duration=60))
        assert answer.return_code == CONGESTION
        gateway.stop()
        (tmp_path / "secret").write_text("right%\n")
        gateway.start()
        gateway.says("connected, MQTT 5")
        Sensor(gateway).connect("sensor-1")
        gateway.stop()
        gateway.config.write_text(
            gateway.config.read_text().replace("gate@", "gate:right%25@").replace(file, "")
        )
        gateway.start()
        gateway.says("connected, MQTT 5", 2)
        assert "right" not in gateway.log()


# -- the upstream goes and comes -------------------------------------------------------------------


def test_no_acknowledged_message_is_lost_while_the_upstream_is_killed_and_comes_back(
    launch: Launch, tmp_path: Path, mode: str
) -> None:
    kept = f"persistence true\npersistence_location {tmp_path}/\nautosave_on_changes true\n"
    kept += "autosave_interval 1\n"
    with running(Mosquitto(tmp_path, kept)) as upstream:
        gateway = launch(upstream.url)
        sensor = Sensor(gateway).connect("sensor-1", cleansess=0)
        sensor.subscribe("in/1", 1)
        topic = sensor.register("out")
        heard = []
        acknowledged = []
        for life in range(3):
            reader = client_of(upstream, "reader")
            reader.subscribe("out")
            for number in range(20):
                payload = b"%d-%d" % (life, number)
                publish(sensor, topic, payload, 1 + number % 2, 1 + number)
                acknowledged.append(payload)
                heard.append(reader.message().payload)
            assert upstream.process is not None
            upstream.process.kill()
            upstream.process.wait()
            gateway.says("away: ", life + 1)
            if mode == "aggregating":
                lost = sn.MQTTSNPublish(qos=1, tid=topic, mid=99, data=b"lost")
                assert sensor.ask(lost).return_code == CONGESTION
            else:
                assert sensor.hear() == GOOD_BYE, "so that it connects again"
                connect = sn.MQTTSNConnect(client_id="sensor-1", duration=600)
                assert sensor.ask(connect).return_code == CONGESTION
            upstream.start()
            gateway.says("connected, MQTT", life + 2)
            if mode == "transparent":
                sensor.connect("sensor-1", cleansess=0)
            tcp = client_of(upstream)
            tcp.publish("in/1", b"again %d" % life, qos=1)
            assert sensor.message()[1] == b"again %d" % life, "its subscription was made again"
        assert heard == acknowledged


def test_a_gateway_that_starts_before_its_upstream_waits_for_it(
    launch: Launch, tmp_path: Path
) -> None:
    upstream = Mosquitto(tmp_path)
    gateway = launch(upstream.url, connects=False)
    gateway.says("away: ")
    sensor = Sensor(gateway)
    answer = sensor.ask(sn.MQTTSNConnect(client_id="sensor-1", duration=60))
    assert answer.return_code == CONGESTION
    with running(upstream):
        gateway.says("connected, MQTT")
        sensor.connect("sensor-1")


class Answering(Server):
    """An upstream that does what no broker should: it is silent, babbles, or refuses."""

    def __init__(self, *, silent: bool = False, refuses: bool = False) -> None:
        super().__init__()
        self.babble, self.silent, self.refuses = b"", silent, refuses

    def serve(self, one: socket.socket) -> None:
        while octets := one.recv(4096):
            if self.silent:
                continue
            if octets[0] == 0x10:
                one.sendall(bytes.fromhex("2003000000") + self.babble)
            elif octets[0] == 0xC0:
                one.sendall(bytes.fromhex("d000"))
            elif octets[0] == 0x82 and self.refuses:
                one.sendall(b"\x90\x04" + octets[2:4] + b"\x00\x87")


def test_an_upstream_that_never_answers_is_given_up(launch: Launch) -> None:
    with running(Answering(silent=True)) as upstream:
        gateway = launch(upstream.url, connects=False)
        sensor = Sensor(gateway)
        answer = sensor.ask(sn.MQTTSNConnect(client_id="sensor-1", duration=60))
        assert answer.return_code == CONGESTION
        gateway.says("away: it has not answered for 10 s")


def test_an_upstream_that_acknowledges_nothing_has_nothing_acknowledged(launch: Launch) -> None:
    with running(Answering()) as upstream:
        gateway = launch(upstream.url)
        sensor = Sensor(gateway).connect("sensor-1")
        topic = sensor.register("out")
        for mid in range(1, 1200):
            sensor.say(sn.MQTTSNPublish(qos=1, tid=topic, mid=mid, data=b"x"))
            if mid % 50 == 0:
                sensor.say(PING)
                answers = [sensor.hear()]
                while answers[-1] != PONG:
                    assert sn.MQTTSN(answers[-1]).payload.return_code == CONGESTION
                    answers.append(sensor.hear())
        assert len(answers) > 1, "as many wait as may: limits.queue_messages"


def test_after_any_octets_of_the_upstream_sensors_are_answered(
    launch: Launch, tmp_path: Path, mode: str
) -> None:
    rng = random.Random(1)
    seeds = [
        "300a00046f75742f68656c6c6f",
        "320600016100010000",
        "40020001",
        "50020001",
        "62020001",
        "90040001000091",
        "b003000100",
        "d000",
        "e000",
        "f000",
        "2003000000",
        "30ffffff7f",
        "3200",
        "1000",
        "34080001610001000178",
    ]
    with running(Answering()) as upstream:
        gateway = launch(upstream.url)
        for number in range(40):
            octets = bytearray(bytes.fromhex(rng.choice(seeds)) * rng.randrange(1, 4))
            for _ in range(rng.randrange(3)):
                octets[rng.randrange(len(octets))] = rng.randrange(256)
            upstream.babble = bytes(octets)
            for one in upstream.open_ones:
                with contextlib.suppress(OSError):
                    one.sendall(bytes(octets))
            sensor = Sensor(gateway)
            answer = sensor.ask(sn.MQTTSNConnect(client_id=f"s{number}", duration=60))
            assert isinstance(answer, (sn.MQTTSNConnack, sn.MQTTSNDisconnect))
            heard = sensor.told(SEARCH)
            if heard == GOOD_BYE:  # what follows the CONNACK may end its connection
                heard = sensor.hear()
            assert heard == INFO


# -- many ------------------------------------------------------------------------------------------


def test_a_thousand_sensors_share_one_connection(upstream: Mosquitto, tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gateway = Gateway(tmp_path, upstream.url, "aggregating", "proof = false\n")
    with running(gateway):
        gateway.says("connected, MQTT 5")
        tcp = client_of(upstream)
        tcp.subscribe("out/#")
        sensors = [Sensor(gateway).connect(f"sensor-{number}") for number in range(1000)]
        for number, sensor in enumerate(sensors):
            sensor.subscribe("all")
            sensor.subscribe(f"own/{number}", 1)
        tcp.publish("all", b"to all")
        for sensor in sensors:
            assert sensor.message() == ("all", b"to all", 0)
        for number, sensor in enumerate(sensors):
            tcp.publish(f"own/{number}", b"%d" % number, qos=1)
            assert sensor.message() == (f"own/{number}", b"%d" % number, 1)
        topics = [sensor.register("out/1") for sensor in sensors]
        for number, (sensor, topic) in enumerate(zip(sensors, topics, strict=True)):
            sensor.say(sn.MQTTSNPublish(qos=1, tid=topic, mid=1, data=b"%d" % number))
        assert {sensor.answer().return_code for sensor in sensors} == {0}
        found = {tcp.message().payload for _ in sensors}
        assert found == {b"%d" % number for number in range(1000)}
    connected = re.findall(
        r"New client connected .* as (\S+)", (tmp_path / "broker.log").read_text()
    )
    assert connected == ["mqtick-gateway", "over-tcp"]


# -- other brokers, TLS, the command line ----------------------------------------------------------


@pytest.mark.parametrize("kind", [Nats, MqtickBroker], ids=["nats-server", "mqtick-broker"])
def test_other_brokers_are_upstreams_too(
    kind: type[Mosquitto], launch: Launch, tmp_path: Path
) -> None:
    folder = tmp_path / "upstream"
    folder.mkdir()
    try:
        upstream = kind(folder)
        upstream.start()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    try:
        gateway = launch(upstream.url)
        gateway.says(f"connected, MQTT {'3.1.1' if kind is Nats else '5'}")
        tcp = client_of(upstream)
        tcp.subscribe(("out", 1))
        sensors = [Sensor(gateway).connect(f"sensor-{number}") for number in range(2)]
        for sensor in sensors:
            sensor.subscribe("in/1", 1)
        publish(sensors[0], sensors[0].register("out"), b"up", 1, 1)
        assert tcp.message().payload == b"up"
        tcp.publish("in/1", b"down", qos=1)
        for sensor in sensors:
            assert sensor.message() == ("in/1", b"down", 1)
            sensor.is_served()
    finally:
        upstream.stop()


@pytest.mark.needs("openssl")
def test_an_upstream_over_tls_is_believed_with_the_right_authority_only(
    launch: Launch, tmp_path: Path
) -> None:
    authority, port = Authority(tmp_path), free_port()
    with running(Mosquitto(tmp_path, authority.listener(port))) as upstream:
        url = f"mqtts://127.0.0.1:{port}"
        gateway = launch(url, lines=f'ca_file = "{authority.certificate}"')
        sensor, tcp = Sensor(gateway).connect("sensor-1"), client_of(upstream)
        sensor.subscribe("in/1", 1)
        tcp.publish("in/1", bytes(1000), qos=1)
        assert sensor.message() == ("in/1", bytes(1000), 1)
        gateway.stop()
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        other = Authority(elsewhere).certificate
        text = gateway.config.read_text()
        gateway.config.write_text(text.replace(str(authority.certificate), str(other)))
        gateway.start()
        gateway.says("away: invalid peer certificate")


@pytest.mark.needs("openssl")
def test_an_upstream_that_wants_a_certificate_is_shown_one(launch: Launch, tmp_path: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    certificate, key = authority.issue("gateway")
    asks = f"cafile {authority.certificate}\nrequire_certificate true"
    with running(Mosquitto(tmp_path, f"{authority.listener(port)}{asks}")) as upstream:
        ca = f'ca_file = "{authority.certificate}"'
        gateway = launch(f"mqtts://127.0.0.1:{port}", lines=ca, connects=False)
        gateway.says("away: .*ertificate")
        gateway.stop()
        own = f'{ca}\ncertificate = "{certificate}"\nkey = "{key}"'
        gateway.config.write_text(gateway.config.read_text().replace(ca, own))
        gateway.start()
        gateway.says("connected, MQTT 5")
        sensor, tcp = Sensor(gateway).connect("sensor-1"), client_of(upstream)
        sensor.subscribe("in/1", 1)
        tcp.publish("in/1", b"down", qos=1)
        assert sensor.message() == ("in/1", b"down", 1)
        gateway.stop()
        # What cannot be used is said before anything is opened.
        right, other = gateway.config.read_text(), authority.issue("other")[1]
        for wrong, named in (("none", "none"), (certificate, certificate), (other, certificate)):
            gateway.config.write_text(right.replace(f'"{key}"', f'"{wrong}"'))
            assert f"{named}: " in gateway.refuses("--check-config", code=2)


def test_one_command_makes_a_gateway(upstream: Mosquitto, tmp_path: Path) -> None:
    program, log = MqtickBroker(tmp_path).built(), tmp_path / "out"
    refused = subprocess.run(
        [program, "--upstream", "http://x"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "mqtt://[user[:password]@]host[:port]" in refused.stderr
    (tmp_path / "sn.toml").write_text(
        f'[sn]\naddress = "127.0.0.1:{free_port()}"\nsubnets = ["127.0.0.0/8"]\n'
    )
    command = [program, "--config", str(tmp_path / "sn.toml"), "--upstream"]
    with log.open("wb") as out:
        url = f"mqtt://localhost:{upstream.port}"
        process = subprocess.Popen([*command, url, "--mode", "transparent"], stderr=out)
    until(lambda: "connected, MQTT 5" in log.read_text(), "it does not connect")
    assert "listens on 127" not in log.read_text(), "it serves sensors only"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
