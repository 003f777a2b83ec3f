"""`mqtick-accelerate` before an MQTT-SN broker that tells it nothing: `mqtick-broker` without its
feed. As a proxy and, as root, in the kernel of the broker's host and of a router before it.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from accelerate_rig import Place, Publisher, hear_all, where_the_kernel_can

from broker.tests.harness.clock import slew, stepped_clock
from demo.local_broker import running
from demo.local_sensors import (
    BRIDGE,
    BROKER_SIDE,
    CLIENT_SIDE,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBLISH,
    REGISTER,
    SUBACK,
    SUBSCRIBE,
    Accelerator,
    Sensor,
    SensorBroker,
    between_namespaces,
    in_the_kernel,
    program,
    start_inside,
    until,
)

pytestmark = pytest.mark.broker
QOS_1, RETAIN, QOS_MINUS_1, SHORT = 0x20, 0x10, 0x60, 0x02
SEED = int(
    os.environ.get("MQTICK_SEED")
    or (1 if os.environ.get("MQTICK_SAME_EXAMPLES") else random.randrange(2**32))
)


class Alone:
    """A broker that says nothing of its clients, and who copies before it."""

    is_udp, mark = False, 0x08

    def __init__(self, broker: SensorBroker, where: str) -> None:
        self.broker, self.where = broker, where
        self.clients = None if where == "proxy" else CLIENT_SIDE
        self.under: tuple[str, ...] = ()
        self.one: Accelerator

    def accelerate(self, *more: str, fresh: bool = False) -> Accelerator:
        """Start who copies."""
        at = (self.broker.address, self.broker.port)
        if self.where == "proxy":
            home = "[::1]:0" if ":" in at[0] else "127.0.0.1:0"
            way = ["--proxy", home, *more]
            self.one = Accelerator(self.broker.folder, at, way, fresh=fresh, run=self.under)
            return self.one
        with where_the_kernel_can():
            self.one = in_the_kernel(
                self.broker.folder,
                at,
                "#",
                *more,
                bridged=self.where == "router",
                fresh=fresh,
                under=self.under,
            )
        return self.one

    def sensor(self, name: str) -> Sensor:
        """A client that is connected, on the way that is accelerated."""
        return self.one.sensor(name).connect()

    def publisher(self, topic: str = "room/1", name: str = "publisher") -> Publisher:
        """A client that publishes."""
        return Publisher(cast(Place, self), topic, name)

    def start_again(self) -> None:
        """Start the broker."""
        if self.where == "proxy":
            self.broker.start()
        else:
            start_inside(self.broker)


class Careful(Sensor):
    """A client that wants its messages with QoS 1."""

    def __init__(self, at: tuple[str, int], name: str, namespace: str | None = None) -> None:
        super().__init__(at, name, namespace)
        self.qos: list[int] = []

    def published(self, rest: bytes) -> None:
        """Answer what wants it."""
        flags, topic_id, number = struct.unpack("!BHH", rest[:5])
        if flags & QOS_1:
            self.say(PUBACK, struct.pack("!HHB", topic_id, number, 0))
        self.qos.append(flags >> 5)
        super().published(bytes([flags & 0x1F]) + rest[1:])

    def subscribe(self, topic: str) -> Careful:
        """Subscribe with QoS 1."""
        rest = self.ask(SUBSCRIBE, struct.pack("!BH", QOS_1, 7) + topic.encode(), SUBACK)
        assert rest[5] == 0
        self.names[struct.unpack("!H", rest[1:3])[0]] = topic
        return self


def routes() -> None:
    """Make a router of the bridge: clients in another network than the broker."""

    def ip(space: str, words: str) -> None:
        subprocess.run(["ip", "-n", space, *words.split()], check=True)

    ip(BRIDGE, "link del br0")
    ip(BRIDGE, "link set lo up")
    for link, address in (("rb", "10.77.0.254/24"), ("rc", "10.78.0.254/24")):
        ip(BRIDGE, f"address add {address} dev {link}")
    forward = ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]
    subprocess.run(["ip", "netns", "exec", BRIDGE, *forward], check=True)
    ip(CLIENT_SIDE, "address flush dev c0")
    ip(CLIENT_SIDE, "address add 10.78.0.2/24 dev c0")
    ip(CLIENT_SIDE, "route add default via 10.78.0.254")
    ip(BROKER_SIDE, "route add 10.78.0.0/24 via 10.77.0.254")


@contextlib.contextmanager
def alone(folder: Path, where: str, *, ipv6: bool = False) -> Iterator[Alone]:
    """Start the broker."""
    if where != "proxy" and os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    four, six = ("127.0.0.1", "::1") if where == "proxy" else ("10.77.0.1", "fd77::1")
    broker = SensorBroker(folder, six if ipv6 else four)
    place = Alone(broker, where)
    with contextlib.ExitStack() as open_ones:
        if where == "proxy":
            open_ones.enter_context(running(broker))
        else:
            is_routed = where == "router"
            open_ones.enter_context(between_namespaces(folder, bridged=is_routed, broker=broker))
            if is_routed:
                routes()
        yield place
        if hasattr(place, "one") and place.one.process.poll() is None:  # a test may be left out
            place.one.end()
    assert "panicked" not in (folder / "broker.log").read_text()


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Alone]:
    """In the kernel of the broker's host; nobody copies yet."""
    with alone(tmp_path, "kernel") as place:
        yield place


@pytest.fixture(params=["proxy", "kernel"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Alone]:
    """In user space and in the kernel; nobody copies yet."""
    with alone(tmp_path, request.param) as made:
        yield made


# -- the beginning, and the broker's end -----------------------------------------------------------


def test_who_was_there_before_it_is_not_missed(kernel: Alone) -> None:
    at = (kernel.broker.address, kernel.broker.port)
    before = Sensor(at, "before", CLIENT_SIDE).connect(keep_alive_s=3).subscribe("room/#")
    kernel.accelerate("--settle", "5")
    before.ping()
    until(lambda: kernel.one.status()["strangers"] == 1, "the broker's answer is not noticed")
    after = kernel.sensor("after").subscribe("room/1")
    publisher = kernel.publisher()

    def waits_for_it() -> bool:
        publisher.publish()
        before.ping()
        hear_all(before, after)
        return "was not seen" in (kernel.one.topic("room/1").get("reason") or "")

    until(waits_for_it, "it does not say what it waits for")
    for _ in range(50):
        publisher.publish()
    before.has(*publisher.all())
    after.has(*publisher.all())
    assert kernel.one.status()["frames"]["hits"] == 0
    # Once it was seen what it is subscribed to, it gets copies.
    before.connect().subscribe("room/#")
    publisher.is_open(before, after, copies=2)
    publisher.is_copied(20, before, after)
    for sensor in (before, after):
        sensor.has(*publisher.all())


def test_nothing_is_copied_before_it_has_listened_long_enough(place: Alone) -> None:
    begin_s = time.monotonic()
    place.accelerate("--settle", "3")
    subscriber = place.sensor("subscriber").subscribe("room/1")
    publisher = place.publisher()
    said = []

    def is_copied() -> bool:
        publisher.publish()
        hear_all(subscriber)
        said.append(place.one.topic("room/1").get("reason"))
        return bool(place.one.status()["frames"]["hits"] > 0)

    until(is_copied, "it never begins")
    assert time.monotonic() >= begin_s + 3
    assert any("(--settle, --fresh)" in (reason or "") for reason in said)
    publisher.is_copied(20, subscriber)
    subscriber.has(*publisher.all())


@pytest.mark.parametrize("is_told", [True, False], ids=["it is told", "it is not told"])
def test_a_broker_that_was_started_again_is_served_as_a_new_one(
    place: Alone, is_told: bool
) -> None:
    place.accelerate(fresh=True)
    subscribers = [place.sensor(name).subscribe("room/1") for name in ("comes back", "is away")]
    publisher = place.publisher()
    publisher.sensor.connect(keep_alive_s=4)  # so that it is asked for each second
    publisher.topic_id = publisher.sensor.register("room/1")
    publisher.is_open(*subscribers, copies=2)
    publisher.is_copied(20, *subscribers)
    for each in subscribers:
        each.has(*publisher.all())
    place.broker.stop()
    if is_told:
        command = [program(), "broker-started", "--control", place.one.control]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = place.one.status()
        assert (found["clients"], found["topics"]) == (0, [])
        assert found["controller"]["restarts"] == 1
    place.start_again()

    def is_over() -> bool:
        publisher.publish()
        hear_all(*subscribers)
        return not place.one.topic("room/1")["open"]

    if not is_told:
        until(is_over, "it still copies")
    hear_all(*subscribers)
    back, away = subscribers
    count = len(away.got)
    publisher.sensor.connect()
    publisher.topic_id = publisher.sensor.register("room/1")
    for _ in range(20):
        publisher.publish()
    # An answer to what was asked in its name while no broker ran may be missing: it asks again.
    until(lambda: is_answered(publisher.sensor), "the new broker does not answer")
    away.say(PINGREQ)  # and so it is known that it is subscribed to nothing
    hear_all(back, away, patience_s=0.1)
    back.got.clear()
    publisher.count = 0
    back.connect().subscribe("room/1")
    publisher.is_open(back, copies=1)
    publisher.is_copied(20, back)
    back.has(*publisher.all())
    hear_all(away)
    assert len(away.got) == count, "who is not subscribed any more got copies"


def is_answered(sensor: Sensor) -> bool:
    """Ask for an answer, and wait for it for a while."""
    sensor.say(PINGREQ)
    while heard := sensor.hear(0.5):
        if heard[0] == PINGRESP:
            return True
    return False


# -- who gets copies -------------------------------------------------------------------------------


def test_who_is_silent_for_longer_than_its_keep_alive_gets_no_more(place: Alone) -> None:
    one = place.accelerate(fresh=True)
    stays = place.sensor("stays").subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(stays)
    first = publisher.count
    ends = one.sensor("ends").connect(keep_alive_s=2)
    before_s = time.monotonic()
    ends.subscribe("room/1")
    said_s: list[float] = []
    hits: list[int] = []  # since it is overdue

    def is_given_up() -> bool:
        said_s.append(time.monotonic())
        publisher.publish()
        publisher.is_served()
        hear_all(stays, ends)
        if "has not been heard for its keep-alive" in (one.topic("room/1").get("reason") or ""):
            hits.append(one.status()["frames"]["hits"])
        return bool(len(ends.got) + 5 < publisher.count - first)

    until(is_given_up, "the broker does not give it up")
    count = len(ends.got)
    assert ends.got == publisher.all()[first : first + count]
    assert said_s[count] > before_s + 2, "it was given up too soon"
    assert hits, "it does not say why it does not copy"
    assert len(set(hits)) == 1, "it has copied although the broker may have given it up"
    ends.say(PINGREQ)
    ends.hear()
    assert ends.others[-1] == DISCONNECT
    # That is no sign of a broker that was started again: the others need not be asked.
    publisher.is_open(stays, copies=1)
    publisher.is_copied(20, stays)
    stays.has(*publisher.all())
    assert len(hear(ends)) == count


def test_who_wants_qos_1_gets_it_from_the_broker_and_others_get_theirs_once(place: Alone) -> None:
    one = place.accelerate(fresh=True)
    plain = place.sensor("plain").subscribe("room/1").subscribe("room/2")
    careful = Careful(one.at, "careful", place.clients)
    careful.connect()
    careful.subscribe("room/1")
    other = place.publisher("room/2", "other")
    publisher = place.publisher()
    other.is_open(plain)
    for flags in [0, QOS_1] * 10:
        if flags:
            wanted = struct.pack("!BHH", QOS_1, publisher.topic_id, 9) + b"%d" % publisher.count
            assert publisher.sensor.ask(PUBLISH, wanted, PUBACK)[4] == 0
            publisher.count += 1
        else:
            publisher.publish()
        other.publish()
        hear_all(careful, plain)
    assert "uses QoS 1 or 2" in one.topic("room/1")["reason"]
    assert one.topic("room/1")["fast"] == 0
    careful.has(*publisher.all())
    assert careful.qos == [0, 1] * 10
    careful.leave()
    # A publisher that used no QoS 1 is copied once nobody wants it.
    again = place.publisher(name="again")
    again.count = publisher.count
    again.is_open(plain)
    again.is_copied(20, plain)
    hear_all(plain)
    for each in (again, other):
        assert [one for one in plain.got if one[0] == each.topic] == each.all()


def test_retained_messages_and_those_of_qos_1_keep_their_order_without_a_feed(
    place: Alone,
) -> None:
    one = place.accelerate(fresh=True)
    subscriber = place.sensor("subscriber").subscribe("room/1")
    publisher = place.publisher()
    for _ in range(5):
        publisher.is_open(subscriber)
        for flags in (0, 0, RETAIN, 0, 0):
            publisher.publish(flags)
    publisher.is_copied(20, subscriber)
    for flags in (0, QOS_1, 0, RETAIN, QOS_1, 0):
        publisher.publish(flags)
    publisher.is_served()
    for _ in range(20):
        publisher.publish()
    subscriber.has(*publisher.all())
    assert one.topic("room/1")["reason"] is not None, "a broker may hold back what follows"
    late = place.sensor("late")
    late.subscribe("room/1")
    late.has(("room/1", b"%d" % (publisher.count - 23)))  # the last one that was retained


def test_messages_of_those_who_never_connect_come_once_beside_the_copies(place: Alone) -> None:
    one = place.accelerate(fresh=True)
    subscriber, publisher = place.sensor("subscriber"), place.sensor("publisher")
    rest = subscriber.ask(SUBSCRIBE, struct.pack("!BH", SHORT, 7) + b"ab", SUBACK)
    assert rest[5] == 0
    short = struct.unpack("!H", b"ab")[0]
    subscriber.names[short] = "ab"
    wanted: list[bytes] = []

    def is_copied() -> bool:
        wanted.append(b"%d" % len(wanted))
        publisher.publish(short, wanted[-1], SHORT)
        hear_all(subscriber)
        return bool(one.topic("ab")["open"])

    until(is_copied, "the short name is not copied")
    nobody = one.sensor("nobody")
    for number in range(20):
        for who, flags, name in ((publisher, 0, b"copied"), (nobody, QOS_MINUS_1, b"of nobody")):
            payload = b"%s %d" % (name, number)
            who.say(PUBLISH, struct.pack("!BHH", flags | SHORT, short, 0) + payload)
            wanted.append(payload)
    until(lambda: len(hear(subscriber)) >= len(wanted), "messages are missing")
    publisher.ping()
    hear_all(subscriber)
    got = [payload for _, payload in subscriber.got]
    for is_of_nobody in (False, True):
        ordered = [
            [one for one in all_ if (b"nobody" in one) == is_of_nobody] for all_ in (got, wanted)
        ]
        assert ordered[0] == ordered[1]
    assert one.status()["frames"]["hits"] > 0
    assert nobody.hear(0) is None


def hear(sensor: Sensor) -> list[tuple[str, bytes]]:
    """What has come."""
    hear_all(sensor)
    return sensor.got


def test_after_lost_events_nothing_is_copied_that_may_be_wrong(kernel: Alone) -> None:
    one = kernel.accelerate("--settle", "2")
    subscriber = kernel.sensor("subscriber").subscribe("room/1")
    publisher = kernel.publisher()
    publisher.is_open(subscriber)
    one.process.send_signal(signal.SIGSTOP)
    unseen = kernel.sensor("unseen")
    noise = one.sensor("noise")
    for _ in range(20_000):  # more than there is room for: 1 MB
        noise.say(0xFD, bytes(60))
    unseen.subscribe("room/1")
    hear_all(subscriber)
    one.process.send_signal(signal.SIGCONT)
    first = publisher.count
    until(lambda: one.status()["controller"]["lost"] > 0, "nothing was lost")
    fast = one.status()["frames"]["hits"]
    for each in (unseen, publisher.sensor, subscriber):
        each.ping()
    until(lambda: one.status()["strangers"] > 0, "it takes them for known")
    for _ in range(50):
        publisher.publish()
    unseen.has(*publisher.all()[first:])
    subscriber.has(*publisher.all())
    assert one.status()["frames"]["hits"] == fast
    for each in (unseen, subscriber):
        each.connect().subscribe("room/1")
    publisher.sensor.connect()
    publisher.topic_id = publisher.sensor.register("room/1")
    publisher.is_open(unseen, subscriber, copies=2)
    publisher.is_copied(20, unseen, subscriber)
    unseen.has(*publisher.all()[first:])
    subscriber.has(*publisher.all())


# -- ways ------------------------------------------------------------------------------------------


def test_sensors_with_ipv6_get_copies(tmp_path: Path) -> None:
    for where in ("proxy", "kernel"):
        (tmp_path / where).mkdir()
        with alone(tmp_path / where, where, ipv6=True) as place:
            is_copied_to_three(place)


def test_a_router_before_the_broker_copies(tmp_path: Path) -> None:
    with alone(tmp_path, "router") as place:
        is_copied_to_three(place)


def is_copied_to_three(place: Alone) -> None:
    """All get all, once and in order, and the broker nothing of what is copied."""
    place.accelerate(fresh=True)
    sensors = [place.sensor(f"subscriber-{number}") for number in range(3)]
    for sensor in sensors:
        sensor.subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(*sensors, copies=3)
    publisher.is_copied(50, *sensors)
    for sensor in sensors:
        sensor.has(*publisher.all())


def test_the_rights_in_its_unit_are_enough(kernel: Alone) -> None:
    text = (
        Path(__file__).parent.parent / "broker/server/systemd/mqtick-accelerate.service"
    ).read_text()
    found = re.search(r"^CapabilityBoundingSet=(.+)$", text, re.MULTILINE)
    assert found
    rights = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in found[1].split())
    kernel.under = ("setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set=-all,{rights}")
    is_copied_to_three(kernel)


# -- residence -------------------------------------------------------------------------------------

CHRONYDS_PPM = 83_333
"""How fast chronyd slews at most, unless it is told otherwise (maxslewrate)."""


def test_no_copy_states_a_residence_while_the_clock_is_slewed(place: Alone, tmp_path: Path) -> None:
    clock, environment = stepped_clock(tmp_path)
    place.under = ("env", *(f"{name}={value}" for name, value in environment.items()))
    place.accelerate("--residence", "room/#", fresh=True)
    subscriber = place.sensor("subscriber").subscribe("room/1")
    publisher = place.publisher()
    publisher.is_open(subscriber)

    def states() -> bool:
        """Whether the next copy does."""
        trailer = through_the_broker = bytes(16)
        while trailer == through_the_broker:
            payload = b"\x20%015d" % publisher.count
            publisher.sensor.publish(publisher.topic_id, payload + bytes(16))
            publisher.count += 1
            while subscriber.got[-1][1][:16] != payload:
                assert subscriber.hear()
            trailer = subscriber.got[-1][1][16:]
        residence, source = struct.unpack("!Q7xB", trailer)
        assert (residence > 0) == (source > 0)
        return bool(source)

    def states_none() -> bool:
        """Whether no copy does for longer than it takes to look at the clock again."""
        end_s = time.monotonic() + 0.5
        while time.monotonic() < end_s:
            if states():
                return False
        return True

    until(states, "nothing is stated")
    slew(clock, CHRONYDS_PPM)  # and not back: CLOCK_MONOTONIC would be set
    until(states_none, "it is stated while the clock is slewed")


# -- anything --------------------------------------------------------------------------------------

TOPICS = ("room/1", "room/2", "hall/1")
FILTERS = (*TOPICS, "room/+", "#")
Got = dict[str, dict[str, list[bytes]]]


def is_served(sensor: Sensor) -> None:
    """Wait until it has all that it is due, also what waits behind one REGISTER after another."""
    waits = True
    while waits:
        waits = False
        sensor.say(PINGREQ)
        while (heard := sensor.hear()) and heard[0] != PINGRESP:
            waits |= heard[0] == REGISTER
        assert heard, f"{sensor.name}: no answer"


def plays(sensor: Callable[[str], Sensor], seed: int) -> Got:
    """Let sensors do anything; what each got of each topic, with the publishers' names in it.

    Whoever does something waits until the broker has served what was said before, so that the
    script alone decides who gets what.
    """
    chance = random.Random(seed)
    sensors = {f"sensor-{number}": sensor(f"sensor-{number}").connect() for number in range(4)}
    publishers = [sensor(f"publisher-{number}").connect() for number in range(2)]
    ids = [{topic: each.register(topic) for topic in TOPICS} for each in publishers]
    got: Got = {name: {} for name in sensors}
    asleep: dict[str, int] = {}  # since which step
    count = 0

    def keep(name: str) -> None:
        for topic, payload in sensors[name].got:
            got[name].setdefault(f"{topic} of {payload[:1].decode()}", []).append(payload)
        sensors[name].got.clear()

    def wake(name: str) -> None:
        if name in asleep:
            del asleep[name]
            sensors[name].ask(PINGREQ, name.encode(), PINGRESP)
            sensors[name].connect()
            keep(name)
        is_served(sensors[name])

    def publish(_name: str) -> None:
        nonlocal count
        who, topic = chance.randrange(2), chance.choice(TOPICS)
        for _ in range(chance.randrange(1, 12)):
            count += 1
            flags = RETAIN if chance.random() < 0.02 else 0
            publishers[who].publish(ids[who][topic], b"%d %d" % (who, count), flags)
        publishers[who].ping()

    def subscribe(name: str) -> None:
        wake(name)
        sensors[name].subscribe(chance.choice(FILTERS))

    def unsubscribe(name: str) -> None:
        wake(name)
        sensors[name].unsubscribe(chance.choice(FILTERS))

    def leave(name: str) -> None:
        wake(name)
        sensors[name].leave()
        keep(name)
        if chance.random() < 0.5:  # from another port
            sensors[name] = sensor(name)
        sensors[name].connect()

    def sleep(name: str) -> None:
        wake(name)
        sensors[name].ask(DISCONNECT, struct.pack("!H", 60), DISCONNECT)
        asleep[name] = step

    for step in range(250):
        # What it is sent when it wakes must find room in its socket.
        for name in [name for name, since in asleep.items() if step - since > 4]:
            wake(name)
        do = chance.choices([publish, subscribe, unsubscribe, leave, sleep], [70, 8, 4, 6, 2])[0]
        do(chance.choice(sorted(sensors)))
        hear_all(*(sensors[name] for name in sensors if name not in asleep), patience_s=0)
        if chance.random() < 0.2:
            time.sleep(0.02)  # so that rules are opened
    for name in sensors:
        wake(name)
        keep(name)
    return got


@pytest.mark.parametrize("nth", range(2))
def test_random_sessions_get_what_they_get_without_acceleration(
    place: Alone, tmp_path: Path, nth: int
) -> None:
    seed = SEED + nth
    (tmp_path / "without").mkdir()
    with running(SensorBroker(tmp_path / "without")) as broker:
        without = plays(lambda name: Sensor(("127.0.0.1", broker.port), name), seed)
    one = place.accelerate(fresh=True)
    accelerated = plays(one.sensor, seed)
    assert accelerated == without, f"MQTICK_SEED={seed}"
    assert sum(map(len, without["sensor-0"].values())) > 0
    assert one.status()["frames"]["hits"] > 0, f"MQTICK_SEED={seed}"
