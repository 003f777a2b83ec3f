"""`mqtick-accelerate --feed` before `mqtick-broker`: each message once, whoever is subscribed.

Over MQTT-SN and mqtt-udp, as a proxy and, as root, in the kernel between two network namespaces.
"""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from accelerate_rig import Launch, Place, hear_all, numbers

from demo.local_sensors import (
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBLISH,
    Sensor,
    SensorBroker,
    until,
)

pytestmark = pytest.mark.broker


def test_nothing_has_to_be_declared_and_the_broker_is_left_alone(launch: Launch) -> None:
    place = launch()
    named, wild = place.sensor("named"), place.sensor("wild")
    named.subscribe("room/1")
    wild.subscribe("room/+")
    publisher = place.publisher()
    publisher.is_open(named, wild, copies=2)
    publisher.is_copied(200, named, wild)
    named.has(*publisher.all())
    wild.has(*publisher.all())
    place.has_counted("accelerated", "accelerated", 200)
    place.has_counted("accelerated", "accelerated_copies", 400)


def test_clients_that_were_there_before_are_known(launch: Launch) -> None:
    place = launch()
    if place.namespace is None:
        pytest.skip("a proxy's clients come with it")
    place.one.end()
    before = place.sensor("before").subscribe("room/1")
    publisher = place.publisher()
    place.accelerate()
    before.ping()  # so that the way to it is known
    publisher.is_open(before)
    publisher.is_copied(1, before)
    before.has(*publisher.all())


def test_clients_over_tcp_get_each_message_once_too(launch: Launch) -> None:
    place = launch()
    tcp = place.tcp()
    tcp.subscribe("room/#")
    sensors = [place.sensor(f"sensor-{number}").subscribe("room/1") for number in range(3)]
    publisher = place.publisher()
    publisher.is_open(*sensors)
    publisher.is_copied(100, *sensors)
    for sensor in sensors:
        sensor.has(*publisher.all())
    assert numbers(tcp, publisher.count - 1) == list(range(publisher.count))


def test_who_comes_and_goes_over_tcp_misses_nothing_between_and_nobody_gets_anything_twice(
    launch: Launch,
) -> None:
    place = launch()
    sensors = [place.sensor(f"sensor-{number}").subscribe("room/1") for number in range(2)]
    stays = place.tcp("stays")
    stays.subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(*sensors)
    ends, faults = threading.Event(), []

    def come_and_go() -> None:
        chance = random.Random(14)
        while not ends.is_set():
            client = place.tcp("comes-and-goes")
            client.subscribe(chance.choice(["room/1", "room/+", "#"]))
            # Between SUBACK and UNSUBSCRIBE nothing is missing.
            got = [int(client.message().payload) for _ in range(chance.randrange(1, 40))]
            if got != list(range(got[0], got[0] + len(got))):
                faults.append(got)
            if chance.random() < 0.5:
                client.unsubscribe("#", "room/1", "room/+")
                client.disconnect()
            else:
                client.vanish()

    guest = threading.Thread(target=come_and_go)
    guest.start()
    end = time.monotonic() + 15
    while time.monotonic() < end:
        publisher.publish()
        hear_all(*sensors)
    ends.set()
    while guest.is_alive():
        publisher.publish()
        hear_all(*sensors)
    guest.join()
    publisher.publish()
    assert faults == []
    for sensor in sensors:
        sensor.has(*publisher.all())
    assert numbers(stays, publisher.count - 1) == list(range(publisher.count))
    place.has_counted("accelerated", "accelerated", 101)


def test_sensors_that_come_go_and_sleep_get_what_they_would_without(launch_sn: Launch) -> None:
    place = launch_sn()
    stays = place.sensor("stays").subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(stays)
    for turn in range(10):
        guest = place.sensor("guest").subscribe("room/1")
        first = publisher.count
        publisher.is_open(stays, guest, copies=2)
        publisher.publish()
        if turn % 2:
            guest.has(*publisher.all()[first:])
            guest.ask(DISCONNECT, struct.pack("!H", 60), DISCONNECT)
            publisher.publish()
            publisher.is_served()
            assert guest.hear(0.1) is None
            guest.say(PINGREQ, b"guest")
            guest.has(*publisher.all()[first:])
            guest.ask(DISCONNECT, b"", DISCONNECT)
        else:
            guest.has(*publisher.all()[first:])
            guest.ask(DISCONNECT, b"", DISCONNECT)
        publisher.publish()
        publisher.is_served()
        assert guest.hear(0.05) is None
    stays.has(*publisher.all())


def test_whoever_may_not_publish_is_not_copied_also_once_that_changes(
    launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "acl").write_text("topic readwrite #\n")
    place = launch(f'acl_file = "{tmp_path / "acl"}"\n')
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(sensor)
    publisher.publish()
    sensor.has(*publisher.all())
    allowed = publisher.count
    (tmp_path / "acl").write_text("topic read #\n")
    assert place.broker.process
    place.broker.process.send_signal(signal.SIGHUP)
    until(lambda: "were read again" in (tmp_path / "broker.log").read_text(), "it was not read")
    for _ in range(50):
        publisher.publish()
    publisher.is_served()
    assert sensor.hear(0.2) is None
    assert place.one.status()["topics"] == []
    (tmp_path / "acl").write_text("topic readwrite #\n")
    place.broker.process.send_signal(signal.SIGHUP)
    sensor.got.clear()
    publisher.count = 0
    publisher.is_open(sensor)
    assert allowed


def test_a_publisher_that_the_broker_does_not_hear_is_kept_alive(launch_sn: Launch) -> None:
    place = launch_sn()
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.publisher()
    publisher.sensor.connect(keep_alive_s=2)
    publisher.topic_id = publisher.sensor.register("room/1")
    publisher.is_open(sensor)
    before = place.one.topic("room/1")["slow"]
    others = len(publisher.sensor.others)
    for _ in range(30):
        publisher.publish()
        time.sleep(0.2)
    publisher.is_served()
    assert len(publisher.sensor.others) == others + 1, "it heard what it did not ask for"
    sensor.has(*publisher.all())
    assert place.one.topic("room/1")["slow"] == before


def test_retained_messages_and_those_of_qos_1_keep_their_order(launch_sn: Launch) -> None:
    place = launch_sn()
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(sensor)
    rest = publisher.sensor
    for turn in range(5):
        publisher.is_open(sensor)
        publisher.publish()
        payload = struct.pack("!BHH", 0x20, publisher.topic_id, 5) + b"%d" % publisher.count
        assert rest.ask(PUBLISH, payload, PUBACK)[4] == 0
        publisher.count += 1
        publisher.publish(0x10 if turn % 2 else 0)
        publisher.publish()
    sensor.has(*publisher.all())


def test_a_topic_with_a_shared_subscription_is_left_to_the_broker(launch: Launch) -> None:
    place = launch()
    members = [place.tcp(f"member-{number}") for number in range(2)]
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(sensor)
    first = publisher.count
    for member in members:
        member.subscribe("$share/group/room/1")
    for _ in range(20):
        publisher.publish()
    sensor.has(*publisher.all())
    got = [int(each.payload) for member in members for each in member.settle() if each.payload]
    assert sorted(got) == list(range(first, publisher.count))


@pytest.mark.parametrize(
    "lines",
    [
        "[limits]\npublishes_a_second_a_client = 1000000\n",
        '[[delivery.topic]]\nfilter = "room/#"\nmode = "parallel"\n',
    ],
)
def test_what_the_broker_must_see_or_gives_to_several_threads_is_left_to_it(
    launch: Launch, lines: str
) -> None:
    place = launch(lines)
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.publisher()
    for _ in range(10):
        for _ in range(20):
            publisher.publish()
        publisher.is_served()
        hear_all(sensor)
        assert place.one.status()["topics"] == []
    sensor.has(*publisher.all())


def test_a_mark_that_a_client_sets_keeps_nobody_from_its_messages(launch: Launch) -> None:
    place = launch()
    tcp = place.tcp()
    tcp.subscribe("room/1")
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.publisher()
    for _ in range(3):  # before there is a rule
        publisher.publish(place.mark)
    publisher.is_served()
    publisher.is_open(sensor)
    for number in range(60):  # and while the rule has the mark
        publisher.publish(place.mark if number % 3 else 0)
    publisher.is_served()
    sensor.has(*publisher.all())
    assert numbers(tcp, publisher.count - 1) == list(range(publisher.count))


def test_a_mark_that_comes_past_the_data_plane_is_not_believed_without_a_rule(
    proxy: Launch,
) -> None:
    place = proxy()
    at = ("127.0.0.1", place.broker.port)
    sensor = Sensor(at, "sensor").connect().subscribe("room/1")
    stranger = Sensor(at, "stranger").connect()
    topic_id = stranger.register("room/1")
    for number in range(5):
        stranger.publish(topic_id, b"%d" % number, place.mark)
    sensor.has(*(("room/1", b"%d" % number) for number in range(5)))


def test_a_broker_that_is_killed_and_started_again_is_told_to_by_its_own_messages(
    launch: Launch,
) -> None:
    place = launch()
    for turn in range(2):
        tcp = place.tcp()
        tcp.subscribe("room/1")
        sensor = place.sensor("sensor").subscribe("room/1")
        publisher = place.publisher()
        publisher.is_open(sensor)
        publisher.publish()
        sensor.has(*publisher.all())
        assert numbers(tcp, publisher.count - 1) == list(range(publisher.count))
        if turn:
            break
        assert place.broker.process
        place.broker.process.kill()
        place.broker.process.wait()
        until(lambda: place.one.status()["topics"] == [], "it still copies")
        publisher.publish()
        assert sensor.hear(0.2) is None
        publisher.sensor.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # it was refused
        place.start_again()
        publisher.publish()
        if place.is_udp:
            sensor.say(0xC0)  # PINGREQ of nobody
        else:
            publisher.sensor.hear()
            assert publisher.sensor.others[-1] == DISCONNECT
        assert sensor.hear(0.2) is None


def test_who_copies_may_be_killed_and_started_again_at_any_time(kernel: Launch) -> None:
    place = kernel()
    tcp = place.tcp()
    tcp.subscribe("room/1")
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.publisher()
    for _ in range(3):
        publisher.is_open(sensor)
        for _ in range(20):
            publisher.publish()
        place.one.process.kill()
        place.one.process.wait()
        for _ in range(20):
            publisher.publish()
        guest = place.tcp("guest")  # who waits no longer than what was lent
        guest.subscribe("#")
        publisher.publish()
        assert numbers(guest, publisher.count - 1) == [publisher.count - 1]
        guest.disconnect()
        place.accelerate()
        sensor.ping()
        publisher.is_served()
    sensor.has(*publisher.all())
    assert numbers(tcp, publisher.count - 1) == list(range(publisher.count))


def test_one_that_hangs_costs_a_wait_and_copies_nothing_wrong(launch: Launch) -> None:
    place = launch()
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(sensor)
    place.one.process.send_signal(signal.SIGSTOP)
    guest = place.tcp("guest")
    guest.subscribe("room/1")  # answered although nobody says that the rule is closed
    for _ in range(20):
        publisher.publish()
    time.sleep(0.2)
    place.one.process.send_signal(signal.SIGCONT)
    publisher.is_served()
    publisher.is_open(sensor)
    publisher.publish()
    sensor.has(*publisher.all())
    got = numbers(guest, publisher.count - 1)
    assert got == list(range(publisher.count - len(got), publisher.count))
    assert len(got) > 20


def connected(place: Place) -> socket.socket:
    """Connect in the controller's place."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(20)
    link.connect(str(place.feed))
    return link


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"mqtick-feed 1\n",
        b"mqtick-feed 2\nok 1\n",
        b"mqtick-feed 2\nok 1 0 0\nok 1 0 0\n",
        b"mqtick-feed 2\nok 99999 0 0\n",
        b"mqtick-feed 2\nok -1 0 0\n",
        b"mqtick-feed 2\nok 1 18446744073709551616 0\n",
        b"mqtick-feed 2\n" + b"x" * 100_000,
        b"\xff\xfe\n",
        bytes(range(256)) * 64,
    ],
)
def test_who_says_nonsense_on_the_socket_is_disconnected_and_clients_are_served(
    proxy: Launch, octets: bytes
) -> None:
    place = proxy(alone=True)
    link = connected(place)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        link.sendall(octets)
        while link.recv(4096):
            pass
    link.close()
    client = place.tcp()
    client.subscribe("room/1")
    client.publish("room/1", b"served")
    assert client.message().payload == b"served"
    place.accelerate()
    sensor = place.sensor("sensor").subscribe("room/2")
    place.publisher("room/2").is_open(sensor)
    place.one.end()


def test_one_that_answers_but_closes_late_or_reads_nothing_keeps_nobody_waiting(
    proxy: Launch,
) -> None:
    place = proxy(alone=True)
    at = ("127.0.0.1", place.broker.port)
    sensor, publisher = (Sensor(at, name).connect() for name in ("sensor", "publisher"))
    sensor.subscribe("room/1")
    topic_id = publisher.register("room/1")
    link = connected(place)
    link.sendall(b"mqtick-feed 2\nok 1 0 0\n")
    heard = b""
    while b"\nrule " not in heard:
        publisher.publish(topic_id, b"x")
        heard += link.recv(65536)
        for line in heard.splitlines():
            if line.startswith(b"until"):
                with contextlib.suppress(OSError):
                    link.sendall(b"ok " + line.split()[2] + b" 0 0\n")
        sensor.hear(0.1)
    # It reads nothing from now on.
    client = place.tcp()
    client.subscribe("room/1")
    publisher.publish(topic_id, b"last")
    assert client.message().payload == b"last"
    link.close()


def test_the_socket_is_nobody_elses_and_another_broker_does_not_take_it(proxy: Launch) -> None:
    place = proxy()
    assert place.feed.stat().st_mode & 0o777 == 0o660
    (place.folder / "other").mkdir()
    other = SensorBroker(place.folder / "other")
    text = other.config.read_text() + f'[delivery]\naccelerate = "{place.feed}"\n'
    other.config.write_text(text)
    command = [other.built(), "--config", str(other.config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "delivery.accelerate" in done.stderr
