"""`mqtick-accelerate` and mqtt-udp: random sessions, leases, forged and wrong datagrams."""

from __future__ import annotations

import os
import random
import select
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from accelerate_rig import Launch, Place, hear_all, numbers, where_the_kernel_can

from demo.local_broker import free_port
from demo.local_sensors import (
    CLIENT_SIDE,
    Accelerator,
    Peer,
    Sensor,
    SensorBroker,
    between_namespaces,
    in_the_kernel,
    until,
)
from mqtick.protocol.precise import Loop
from mqtick.protocol.residence import Copies

pytestmark = pytest.mark.broker
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
TOPICS = ("a/b", "a/c", "x")
FILTERS = (*TOPICS, "a/+", "a/#", "#", "+/b")


def matches(wanted: str, topic: str) -> bool:
    """Whether a filter fits one of these topics."""
    wants, levels = wanted.split("/"), topic.split("/")
    for at, one in enumerate(wants):
        if one == "#":
            return True
        if at >= len(levels) or one not in ("+", levels[at]):
            return False
    return len(wants) == len(levels)


class World:
    """Clients that do anything, and what each must have got."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place, self.chance = place, random.Random(seed)
        self.peers = [place.sensor(f"peer-{number}") for number in range(5)]
        self.publishers = [place.sensor(f"publisher-{number}") for number in range(2)]
        self.hears = ""  # the topic of its own that the second one hears
        self.filters: list[set[str]] = [set() for _ in self.peers]
        self.tcp = place.tcp()
        self.tcp_filter: str | None = None
        self.tcp_wanted: list[tuple[str, bytes]] = []
        self.wanted: dict[Peer, list[tuple[str, bytes]]] = defaultdict(list)
        self.kept_wanted: dict[Peer, Counter[tuple[str, bytes]]] = defaultdict(Counter)
        self.retained: dict[str, bytes] = {}
        self.all = self.peers + self.publishers
        self.number = 0

    def step(self) -> None:
        """Let somebody do something."""
        others = [self.subscribe, self.unsubscribe, self.leave, self.move, self.over_tcp, self.echo]
        do = self.chance.choices([self.publish, *others], [70, 8, 6, 2, 2, 3, 1])[0]
        do(self.chance.randrange(len(self.peers)))
        hear_all(*self.all, patience_s=0)
        if self.chance.random() < 0.2:
            time.sleep(0.02)  # so that rules are opened

    def publish(self, _who: int) -> None:
        who, topic = self.chance.randrange(2), self.chance.choice(TOPICS)
        publisher = self.publishers[who]
        for _ in range(self.chance.randrange(1, 12)):
            self.number += 1
            payload = b"%d %d" % (who, self.number)
            retain = self.chance.random() < 0.01
            publisher.publish(topic, payload, int(retain))
            if retain:
                self.retained[topic] = payload
            for peer, filters in zip(self.peers, self.filters, strict=True):
                copies = sum(matches(one, topic) for one in filters)
                self.wanted[peer] += copies * [(topic, payload)]
            if topic == self.hears:
                self.wanted[self.publishers[1]].append((topic, payload))
            if self.tcp_filter and matches(self.tcp_filter, topic):
                self.tcp_wanted.append((topic, payload))

    def echo(self, _who: int) -> None:
        """Have a publisher hear itself, or not any more."""
        publisher = self.publishers[1]
        if self.hears:
            publisher.unsubscribe(self.hears)
            self.hears = ""
            return
        self.hears = self.chance.choice(TOPICS)
        publisher.subscribe(self.hears)
        if self.hears in self.retained:
            self.kept_wanted[publisher][self.hears, self.retained[self.hears]] += 1

    def subscribe(self, who: int) -> None:
        peer, wanted = self.peers[who], self.chance.choice(FILTERS)
        peer.subscribe(wanted)
        self.filters[who].add(wanted)
        kept = {topic: kept for topic, kept in self.retained.items() if matches(wanted, topic)}
        self.kept_wanted[peer].update(kept.items())

    def unsubscribe(self, who: int) -> None:
        wanted = self.chance.choice(FILTERS)
        self.peers[who].unsubscribe(wanted)
        self.filters[who].discard(wanted)

    def leave(self, who: int) -> None:
        self.peers[who].ping()  # or the broker drops what it is about to send
        self.peers[who].leave()
        self.filters[who].clear()
        if self.chance.random() < 0.5:
            self.publish(who)
        self.peers[who].connect()

    def move(self, who: int) -> None:
        """Come back from another port; what was there before says good-bye later."""
        before, self.peers[who] = self.peers[who], self.place.sensor(f"peer-{who}")
        filters, self.filters[who] = self.filters[who], set()
        self.all.append(self.peers[who])
        self.peers.append(before)
        self.filters.append(filters)
        self.publish(who)
        before.ping()
        before.leave()
        del self.peers[-1], self.filters[-1]

    def over_tcp(self, _who: int) -> None:
        for publisher in self.publishers:
            publisher.ping()  # what it sent has been served
        if self.tcp_filter:
            self.tcp.unsubscribe(self.tcp_filter)
            self.tcp_filter = None
        else:
            self.tcp_filter = self.chance.choice(TOPICS)
            self.tcp.subscribe(self.tcp_filter)

    def check(self) -> None:
        """Each has got exactly that, of each publisher and topic in order."""
        for peer in self.peers + self.publishers:
            peer.ping()
        hear_all(*self.all, patience_s=0.2)
        for peer in self.all:
            assert by_publisher(peer.got) == by_publisher(self.wanted[peer])
            assert Counter(peer.kept) == self.kept_wanted[peer]
        got = [
            (one.topic.decode(), bytes(one.payload)) for one in self.tcp.settle() if not one.retain
        ]
        assert by_publisher(got) == by_publisher(self.tcp_wanted)


def by_publisher(got: list[tuple[str, bytes]]) -> dict[tuple[str, bytes], list[int]]:
    """What came, by topic and publisher."""
    found = defaultdict(list)
    for topic, payload in got:
        who, number = payload.split()
        found[topic, who].append(int(number))
    return dict(found)


@pytest.mark.parametrize("seed", range(2))
def test_random_sessions_get_exactly_what_they_are_subscribed_to(
    launch_sn: Launch, seed: int
) -> None:
    place = launch_sn(udp=True)
    world = World(place, seed)
    for _ in range(400):
        world.step()
    world.check()
    assert world.number > 500
    place.has_counted("accelerated", "accelerated", 101)


def test_nothing_is_copied_after_the_end_of_a_lease_and_nothing_is_missing_before(
    launch_sn: Launch,
) -> None:
    place = launch_sn(udp=True)
    stays = place.sensor("stays").subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(stays)
    ends = place.sensor("ends").connect(keep_alive_s=2)  # a lease of 3 s
    before_s = time.monotonic()
    ends.subscribe("room/1")
    after_s = time.monotonic()
    said: list[tuple[float, bytes]] = []
    while time.monotonic() < after_s + 5:
        said.append((time.monotonic(), b"%d" % publisher.count))
        publisher.publish()
        hear_all(stays, ends)
    stays.has(*publisher.all())
    got = [payload for _, payload in ends.got]
    assert got == [payload for _, payload in said[: len(got)]]
    sent_s = [at for at, _ in said]
    assert sent_s[len(got) - 1] < after_s + 3
    assert sent_s[len(got)] > before_s + 3 - 0.05  # what is sent just before may be served after
    assert place.one.topic("room/1")["fast"] > 10


def test_a_publisher_that_hears_itself_is_copied_and_the_broker_knows(launch_sn: Launch) -> None:
    place = launch_sn(udp=True)
    other = place.sensor("other").subscribe("room/1")
    publisher = place.publisher()
    publisher.sensor.subscribe("room/#")
    publisher.is_open(other, publisher.sensor, copies=2)
    publisher.is_copied(100, other, publisher.sensor)
    other.has(*publisher.all())
    publisher.sensor.has(*publisher.all())
    client = place.tcp("reads-sys")
    client.subscribe("$SYS/broker/messages/received", "$SYS/broker/accelerated")
    least = {b"$SYS/broker/messages/received": publisher.count, b"$SYS/broker/accelerated": 100}

    def knows() -> bool:
        message = client.message()
        if int(message.payload) >= least.get(message.topic, 0):
            least.pop(message.topic, None)
        return not least

    until(knows, "the broker does not know")


def test_what_sends_back_what_it_gets_goes_round_for_a_moment_only(launch_sn: Launch) -> None:
    place = launch_sn(udp=True)
    mirrors = [place.sensor(f"mirror-{number}").subscribe("room/1") for number in range(2)]
    publisher = place.publisher()
    publisher.publish()
    rounds, last_s = 0, time.monotonic()
    end_s = last_s + 60
    while time.monotonic() < min(end_s, last_s + 1):
        found, _, _ = select.select([one.socket for one in mirrors], [], [], 0.1)
        for one in found:
            one.send(one.recv(2048))
            rounds, last_s = rounds + 1, time.monotonic()
    assert time.monotonic() < end_s, "it still goes round"
    assert rounds > 64, "it never went round"


def test_who_never_asked_for_a_lease_may_publish_and_is_copied(launch_sn: Launch) -> None:
    place = launch_sn(udp=True)
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.publisher()
    publisher.sensor = Peer(place.one.at, "stranger", place.one.clients)
    publisher.is_open(sensor)
    publisher.is_copied(20, sensor)
    sensor.has(*publisher.all())


def test_names_that_differ_little_are_different_topics(launch_sn: Launch) -> None:
    place = launch_sn(udp=True)
    long = "x" * 63
    names = ["room/1", "room/2", "room/", "room/11", long + "1", long + "2", "room/1 %41\u00e9"]
    sensors = [place.sensor(name[-9:]).subscribe(name) for name in names]
    publishers = [place.publisher(name) for name in names]
    for publisher in publishers:
        publisher.sensor = publishers[0].sensor
    for publisher in publishers:
        publisher.is_open(*sensors)
    for publisher in publishers:
        publisher.is_copied(20, *sensors)
    for sensor, publisher in zip(sensors, publishers, strict=True):
        sensor.has(*publisher.all())


def wrong_publishes(topic: bytes, mark: int) -> Iterator[bytes]:
    """Datagrams that begin like a PUBLISH of a topic that has a rule, or are none."""
    good = b"\x30" + bytes([2 + len(topic) + 1]) + len(topic).to_bytes(2, "big") + topic + b"x"
    yield from (good[:end] for end in range(1, len(good)))
    yield from (good[:1] + bytes([length]) + good[2:] for length in (0, 1, 127, 128, 200, 255))
    yield from (good[:2] + struct.pack("!H", n) + good[4:] for n in (0, 5, 7, 64, 65, 0xFFFF))
    yield from (bytes([first]) + good[1:] for first in (0x32, 0x34, 0x36, 0x30 | mark, 0x3F))
    yield good + b"y"
    yield good[:1] + bytes([good[1] | 0x80, 0]) + good[2:]
    yield b"\x30\xff\x7f" + good[2:]
    yield b"\x30" + struct.pack("<H", 0x80 | 12) + good[2:] + bytes(1600)
    yield b"\x30\x1d\x00\x0b$accelerate" + os.urandom(16)
    yield b"\x30\x0d\x00\x0b$accelerate"


def test_wrong_datagrams_reach_nobody_and_cost_nobody_a_message(launch_sn: Launch) -> None:
    place = launch_sn(udp=True)
    tcp = place.tcp()
    tcp.subscribe("room/1")
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(sensor)
    forger = Peer(place.one.at, "forger", place.one.clients)
    for octets in wrong_publishes(b"room/1", place.mark):
        for who in (publisher.sensor, forger):
            who.socket.send(octets)
        publisher.publish()
    publisher.is_served()
    publisher.is_open(sensor)
    publisher.is_copied(20, sensor)
    sensor.has(*publisher.all())
    assert numbers(tcp, publisher.count - 1) == list(range(publisher.count))


def test_a_mark_that_comes_past_the_data_plane_is_refused_without_a_rule(proxy: Launch) -> None:
    place = proxy(udp=True)
    at = ("127.0.0.1", place.broker.port)
    sensor, stranger = Peer(at, "sensor").connect().subscribe("room/1"), Peer(at, "stranger")
    for number in range(5):
        stranger.publish("room/1", b"%d" % number, place.mark)
    stranger.publish("room/1", b"last")
    sensor.has(("room/1", b"last"))
    client = place.tcp()
    client.subscribe("$SYS/broker/udp/qos")
    until(lambda: int(client.message().payload) == 5, "they are not counted")


def test_a_question_that_whoever_copies_did_not_ask_is_refused(launch_sn: Launch) -> None:
    place = launch_sn(udp=True)
    sensor = place.sensor("sensor").subscribe("room/1")
    forger = Peer(place.one.at, "forger", place.one.clients)
    for _ in range(100):
        forger.say(0x30, b"\x00\x0b$accelerate" + os.urandom(16))
    place.publisher().is_open(sensor)
    place.has_counted("udp", "reserved", 100)
    assert place.counted("udp", "reserved") == 100


def test_a_rule_that_nobody_uses_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    broker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    broker.bind(("127.0.0.1", 0))
    one = Accelerator(
        tmp_path, broker.getsockname(), ["--proxy", "127.0.0.1:0"], feed=path, udp=True
    )
    link, _ = listener.accept()
    link.settimeout(20)
    try:
        peers = [Peer(one.at, name) for name in ("publisher", "subscriber")]
        seen_as = []
        for peer in peers:
            peer.publish("room/1", b"x")
            seen_as.append("{}:{}".format(*broker.recvfrom(99)[1]))
        until_ns = time.monotonic_ns() + 60 * 10**9
        rule = f"rule {seen_as[0]} nroom/1 - 1 room/1 {seen_as[1]}=n\n"
        link.sendall(f"mqtick-feed 2\ntoken {7:016x}\nuntil {until_ns} 1\n{rule}sync 2\n".encode())
        question = broker.recv(99)
        assert question[:15] + question[15:23] == b"\x30\x1d\x00\x0b$accelerate" + bytes(7) + b"\7"
        heard = int.from_bytes(question[23:], "big")
        link.sendall(b"heard %d\nsync 3\n" % heard)
        said = b""
        while b"ok 3" not in said:
            said += link.recv(4096)
        peers[0].publish("room/1", b"copied")
        peers[1].has(("room/1", b"copied"))
        while b"end " not in said:
            said += link.recv(4096)
        assert said.splitlines()[-1] == f"end {seen_as[0]} nroom/1".encode()
        assert one.status()["topics"] == []
        peers[0].publish("room/1", b"not copied")
        assert broker.recv(99).endswith(b"not copied")
        assert not select.select([peers[1].socket], [], [], 0.1)[0]
    finally:
        one.end()
        link.close()
        listener.close()


def test_what_a_broker_offers_and_finds_no_room_goes_through_it(launch_sn: Launch) -> None:
    place = launch_sn(udp=True, more=("--rules", "2"))
    names = [f"room/{number}" for number in range(4)]
    sensors = [place.sensor(name).subscribe(name) for name in names]
    publishers = [place.publisher(name) for name in names]

    def publish() -> list[str]:
        for publisher in publishers:
            publisher.publish()
        hear_all(*sensors)
        topics = place.one.status()["topics"]
        return [one["name"] for one in topics if "no room" in (one["reason"] or "")]

    until(lambda: len(publish()) == 2, "it is not said which topics have no room")
    full = publish()
    for sensor, publisher in zip(sensors, publishers, strict=True):
        sensor.has(*publisher.all())
    # Whoever goes makes room for the next.
    goes = next(at for at, name in enumerate(names) if name not in full)
    sensors[goes].unsubscribe(names[goes])
    until(lambda: len(publish()) == 1, "the room is not used again")
    for at, (sensor, publisher) in enumerate(zip(sensors, publishers, strict=True)):
        if at != goes:
            sensor.has(*publisher.all())


def test_time_messages_say_how_long_each_copy_was_under_way(launch_sn: Launch) -> None:
    place = launch_sn(udp=True)
    sensors = [place.sensor(f"sensor-{number}").subscribe("mqtick/t/0") for number in range(20)]
    publisher = place.publisher("mqtick/t/0")
    publisher.is_open(*sensors)
    source = 1 if place.namespace is None else 2  # a program's stamp, or the kernel's

    def is_stated() -> bool:
        fast = place.one.topic("mqtick/t/0")["fast"]
        publisher.sensor.publish("mqtick/t/0", Loop(0, os.urandom(8)).payload())
        stated = []
        for sensor in sensors:
            sensor.got.clear()
            sensor.hear()
            payload = sensor.got[0][1]
            copies = Copies()
            copies.note(payload)
            if copies.current is None or place.one.topic("mqtick/t/0")["fast"] == fast:
                return False
            assert payload[-1] == source
            assert payload[-8:-1] == b"\x80" + bytes(6)  # no correction, not counted
            stated.append(copies.current.stated >> 16)
        assert 0 < stated[0] < stated[-1] < 100_000_000
        assert stated == sorted(stated)  # who is served later, later
        return True

    until(is_stated, "nothing is copied")


@needs_root
def test_the_kernel_copies_both_protocols_of_one_broker(tmp_path: Path) -> None:
    broker, port = SensorBroker(tmp_path, "10.77.0.1", udp=True), free_port()
    own = f'[sn]\naddress = "10.77.0.1:{port}"\nsubnets = ["10.0.0.0/8"]\n'
    broker.config.write_text(broker.config.read_text() + own)
    feed = broker.told()
    with between_namespaces(tmp_path, broker=broker) as at:
        also = ("--broker", f"mqtt-sn://10.77.0.1:{port}")
        with where_the_kernel_can():
            one = in_the_kernel(tmp_path, at, "#", *also, feed=feed, udp=True)
        peer = one.sensor("peer").connect().subscribe("room/1")
        sensor = Sensor(("10.77.0.1", port), "sensor", CLIENT_SIDE).connect().subscribe("room/1")
        by_peer, by_sensor = one.sensor("p"), Sensor(("10.77.0.1", port), "s", CLIENT_SIDE)
        topic_id = by_sensor.connect().register("room/1")
        count = 0

        def both_are_copied() -> bool:
            nonlocal count
            by_peer.publish("room/1", b"%d" % count)
            by_sensor.publish(topic_id, b"%d" % count)
            count += 1
            hear_all(peer, sensor)
            found = one.status()["topics"]
            return [topic["fast"] >= 20 for topic in found] == [True, True]

        until(both_are_copied, "one of them is not copied")
        by_sensor.ping()
        hear_all(peer, sensor, patience_s=0.2)
        for got in (peer.got, sensor.got):
            assert sorted(int(payload) for _, payload in got) == sorted([*range(count)] * 2)
        one.end()
