"""`mqtick-accelerate` before mqtt-udp brokers that tell it nothing.

They are `mqtick-broker` without its feed, the reference in Python, and the hardware broker's RTL
(simulated); it runs as a proxy and, as root, in the kernel of the broker's host and of a bridge.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from test_accelerate_udp import World, wrong_publishes
from told import Launch, Place, Publisher, hear_all, where_the_kernel_can

from demo.local_broker import running
from demo.local_sensors import (
    BROKER_SIDE,
    CLIENT_SIDE,
    Accelerator,
    Peer,
    between_namespaces,
    in_the_kernel,
    inside,
    start_inside,
    until,
)
from demo.udp_brokers import Model, Plain, Reference
from mqtick.lab.hardware.program import ModelError, find_model
from mqtick.protocol.precise import Loop

pytestmark = pytest.mark.broker
KINDS = {"mqtick-broker": Plain, "reference": Reference, "rtl": Model}


class Nobody:
    """Nobody is subscribed over TCP."""

    def subscribe(self, _filter: str) -> None:
        """Do nothing."""

    def settle(self) -> list[object]:
        """Nothing has come."""
        return []


class Watched:
    """A broker, and a program before it that watches."""

    is_udp, mark = True, 0x08

    def __init__(self, broker: Plain, start: Callable[..., Accelerator], where: str) -> None:
        self.broker, self.start, self.where = broker, start, where
        self.one: Accelerator

    def sensor(self, name: str) -> Peer:
        """A client that is connected, on the way that is accelerated."""
        return cast(Peer, self.one.sensor(name).connect())

    def publisher(self, topic: str = "room/1") -> Publisher:
        """A client that publishes, and has a lease."""
        return Publisher(cast(Place, self), topic)

    def stranger(self, topic: str = "room/1") -> Publisher:
        """One that publishes, and never asked for a lease."""
        publisher = self.publisher(topic)
        publisher.sensor = Peer(self.one.at, "stranger", self.one.clients)
        return publisher

    def tcp(self) -> Nobody:
        """Nobody."""
        return Nobody()

    def restart(self) -> None:
        """Have the broker forget everything, without a word."""
        self.broker.stop()
        if self.where == "proxy":
            self.broker.start()
        else:
            start_inside(self.broker)


@contextlib.contextmanager
def watched(folder: Path, kind: str, where: str) -> Iterator[Callable[..., Watched]]:
    """Start the broker; what starts the program before it."""
    if kind == "rtl":
        try:
            find_model()
        except ModelError:
            pytest.skip("the model is not built (make model-rtl)")
    if where != "proxy" and os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    broker = KINDS[kind](folder, "127.0.0.1" if where == "proxy" else "10.77.0.1")
    bridged = where == "bridge"
    with contextlib.ExitStack() as open_ones:
        if where == "proxy":
            open_ones.enter_context(running(broker))
        else:
            open_ones.enter_context(between_namespaces(folder, bridged=bridged, broker=broker))

        def start(*more: str, only: str = "#") -> Accelerator:
            if where == "proxy":
                way = ["--proxy", "127.0.0.1:0", *more]
                at = ("127.0.0.1", broker.port)
                return Accelerator(folder, at, way, only=only, udp=True)
            at = ("10.77.0.1", broker.port)
            with where_the_kernel_can():
                return in_the_kernel(folder, at, only, *more, bridged=bridged, udp=True)

        def launch(*more: str, only: str = "#") -> Watched:
            place = Watched(broker, start, where)
            place.one = start(*more, only=only)
            open_ones.callback(end, place)
            return place

        yield launch


def end(place: Watched) -> None:
    """Stop the program, if it runs."""
    if place.one.process.poll() is None:
        place.one.end()


WAYS = [
    ("mqtick-broker", "proxy"),
    ("mqtick-broker", "kernel"),
    ("mqtick-broker", "bridge"),
    ("reference", "proxy"),
    ("reference", "kernel"),
    ("rtl", "proxy"),
    ("rtl", "kernel"),
]


@pytest.fixture(params=WAYS, ids="-".join)
def launch(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Watched]]:
    """Before each broker."""
    kind, where = request.param
    with watched(tmp_path, kind, where) as start:
        yield start


@pytest.fixture(params=["proxy", "kernel"])
def plain(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Watched]]:
    """Before our broker, without its feed."""
    with watched(tmp_path, "mqtick-broker", request.param) as start:
        yield start


def test_each_subscription_gets_everything_in_order_and_nobody_else_does(
    launch: Callable[..., Watched],
) -> None:
    place = launch()
    exact = place.sensor("exact").subscribe("room/1")
    wild = place.sensor("wild").subscribe("room/+")
    both = place.sensor("both").subscribe("room/1").subscribe("#")
    other = place.sensor("other").subscribe("room/2")
    for publisher in (place.stranger(), place.publisher()):
        for sensor in (exact, wild, both):
            sensor.got.clear()
        publisher.is_open(exact, wild, both, copies=4)
        publisher.is_copied(100, exact, wild, both)
        exact.has(*publisher.all())
        wild.has(*publisher.all())
        both.has(*(message for message in publisher.all() for _ in range(2)))
        assert publisher.sensor.others in ([], [0x20])
    assert other.got == []
    # What we ask in their names, they do not hear of.
    assert [one.challenges for one in (exact, wild, both, other)] == [1] * 4
    assert exact.others == [0x20, 0x90]


def test_nothing_is_copied_after_the_end_of_a_lease_and_nothing_is_missing_before(
    launch: Callable[..., Watched],
) -> None:
    place = launch()
    stays = place.sensor("stays").subscribe("room/1")
    publisher = place.stranger()
    publisher.is_open(stays)
    ends = cast(Peer, place.one.sensor("ends").connect(keep_alive_s=4))  # a lease of 6 s
    before_s = time.monotonic()
    ends.subscribe("room/1")
    after_s = time.monotonic()
    said: list[tuple[float, bytes]] = []
    while time.monotonic() < after_s + 8:
        said.append((time.monotonic(), b"%d" % publisher.count))
        publisher.publish()
        hear_all(stays, ends)
    stays.has(*publisher.all())
    got = [payload for _, payload in ends.got]
    assert got == [payload for _, payload in said[: len(got)]]
    sent_s = [at for at, _ in said]
    # The RTL's clock is simulated, and slower.
    assert sent_s[len(got) - 1] < after_s + (7 if place.broker.name == "rtl" else 6)
    assert sent_s[len(got)] > before_s + 6 - 0.05
    until(lambda: place.one.status()["clients"] == 2, "whoever has gone is still waited for")
    publisher.is_open(stays, copies=1)


def test_who_leaves_or_unsubscribes_gets_nothing_more_and_others_get_all(
    launch: Callable[..., Watched],
) -> None:
    place = launch()
    stays, leaves, ends = (place.sensor(name).subscribe("room/1") for name in ("a", "b", "c"))
    publisher = place.stranger()
    publisher.is_open(stays, leaves, ends, copies=3)
    publisher.is_copied(20, stays, leaves, ends)
    count = publisher.count
    leaves.has(*publisher.all())
    ends.has(*publisher.all())
    leaves.leave()
    ends.unsubscribe("room/1")
    publisher.publish()
    publisher.is_open(stays, copies=1)
    publisher.is_copied(20, stays)
    stays.has(*publisher.all())
    ends.ping()
    hear_all(leaves, ends)
    assert len(leaves.got) == len(ends.got) == count


def test_a_broker_that_was_started_again_is_noticed_within_a_second_or_so(
    launch: Callable[..., Watched],
) -> None:
    place = launch()
    stays, gone = (place.sensor(name).subscribe("room/1") for name in ("stays", "gone"))
    publisher = place.stranger()
    publisher.is_open(stays, gone, copies=2)
    publisher.is_copied(20, stays, gone)
    place.restart()
    until(lambda: place.one.status()["controller"]["restarts"] > 0, "it is not noticed")
    hear_all(stays, gone)
    count = len(gone.got)
    for _ in range(20):
        publisher.publish()
    stays.connect()
    stays.subscribe("room/1")
    stays.got.clear()
    publisher.count = 0
    publisher.is_open(stays, copies=1)
    publisher.is_copied(20, stays)
    stays.has(*publisher.all())
    hear_all(gone)
    assert len(gone.got) == count


def test_whatever_others_say_costs_nobody_a_message(launch: Callable[..., Watched]) -> None:
    place = launch()
    sensor = place.sensor("sensor").subscribe("room/1")
    publisher = place.stranger()
    publisher.is_open(sensor)
    forger = Peer(place.one.at, "forger", place.one.clients)
    control = [b"", b"\x82", b"\x82\x02\0\1", b"\xa2\x06\0\0\0\1a\0", b"\x20\x02\0\0", b"\xe3\0"]
    control += [b"\x82\x06\0\7\0\1#\0", b"\x82\xff\x7f" + bytes(1400), b"\xc0\1x", b"\x10\0"]
    control += [b"\x30\x10\0\6$proof" + os.urandom(8), b"\x30\x08\0\6$proof"]
    for octets in [*wrong_publishes(b"room/1", place.mark), *control]:
        forger.socket.send(octets)
        publisher.publish()
        hear_all(sensor, patience_s=0)
    publisher.is_open(sensor)
    publisher.is_copied(20, sensor)
    sensor.has(*publisher.all())


@pytest.mark.parametrize("seed", range(2))
def test_random_sessions_get_exactly_what_they_are_subscribed_to(
    launch: Callable[..., Watched], seed: int
) -> None:
    place = launch()

    class WithoutTcp(World):
        def over_tcp(self, _who: int) -> None:
            """Nobody is there."""

    world = WithoutTcp(cast(Place, place), seed)
    for _ in range(200):
        world.step()
    world.check()
    assert place.one.status()["frames"]["hits"] > 0


def answers(host: str, to: Peer, *datagrams: bytes) -> None:
    """Send these from where clients are, in the name of the broker."""
    address, port = to.socket.getpeername()
    with inside(host):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    for datagram in datagrams:
        udp = struct.pack("!HHHH", port, to.socket.getsockname()[1], 8 + len(datagram), 0)
        header = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, 64, 17, 0)
        raw.sendto(header + socket.inet_aton(address) * 2 + udp + datagram, (address, 0))
    raw.close()


def test_answers_that_do_not_come_from_the_broker_change_nothing(tmp_path: Path) -> None:
    with watched(tmp_path, "mqtick-broker", "kernel") as start:
        place = start()
        sensor = place.sensor("sensor").subscribe("room/1")
        publisher = place.stranger()
        publisher.is_open(sensor)
        wants = Peer(place.one.at, "wants", CLIENT_SIDE)
        wants.say(0x82, b"\0\7\0\6room/1\0")
        forged = (b"\x90\3\0\7\0", b"\xb0\2\0\7", b"\xd0\0", b"\x20\2\0\0", b"\x20\2\0\1")
        answers(CLIENT_SIDE, wants, *forged)
        answers(CLIENT_SIDE, sensor, *forged, b"\x30\x10\0\6$proof" + bytes(8))
        until(lambda: place.one.status()["controller"]["forged"] >= 10, "they are not refused")
        publisher.is_open(sensor, copies=1)
        publisher.is_copied(20, sensor)
        sensor.has(*publisher.all())
        assert place.one.status()["strangers"] == 0
        hear_all(wants)
        assert wants.got == []


def test_a_program_that_is_killed_and_started_late_copies_nothing_that_it_did_not_see(
    tmp_path: Path,
) -> None:
    with watched(tmp_path, "mqtick-broker", "kernel") as start:
        starts_late(start())


def starts_late(place: Watched) -> None:
    """Kill the program, and start another one."""
    before = place.sensor("before").subscribe("room/#")
    publisher = place.stranger()
    publisher.is_open(before)
    place.one.process.send_signal(signal.SIGKILL)
    place.one.process.wait()
    place.one = Accelerator(
        place.broker.folder,
        ("10.77.0.1", place.broker.port),
        ["--interface", "b0", "--settle", "1"],
        run=("ip", "netns", "exec", BROKER_SIDE),
        clients=CLIENT_SIDE,
        at=place.one.at,
        udp=True,
        fresh=False,
    )
    after = place.sensor("after").subscribe("room/1")
    before.ping()
    until(lambda: place.one.status()["strangers"] == 1, "it is not missed")
    for _ in range(50):
        publisher.publish()
    hear_all(before, after)
    assert place.one.status()["frames"]["hits"] == 0
    before.has(*publisher.all())


def test_copies_state_their_residence_only_where_that_is_declared(
    launch: Callable[..., Watched],
) -> None:
    place = launch("--residence", "mqtick/#")
    names = ("mqtick/t/0", "other/0")
    sensors = [place.sensor(name).subscribe(name) for name in names]
    for name, sensor in zip(names, sensors, strict=True):
        publisher = place.stranger(name)
        publisher.is_open(sensor)
        fast = place.one.topic(name)["fast"]
        payload = Loop(0, os.urandom(8)).payload()

        def is_copied(
            name: str = name, publisher: Publisher = publisher, fast: int = fast,
            payload: bytes = payload, sensor: Peer = sensor,
        ) -> bool:  # fmt: skip
            sensor.got.clear()
            publisher.sensor.publish(name, payload)
            while sensor.hear() and sensor.got[-1][1][:-16] != payload[:-16]:
                pass
            # Nothing is stated before the clock was looked at twice.
            is_due = name == "other/0" or sensor.got[-1][1][-1] > 0
            return bool(place.one.topic(name)["fast"] > fast) and is_due

        until(is_copied, "nothing is copied, or nothing stated")
        last = sensor.got[-1][1]
        if name == "mqtick/t/0":
            assert last[-1] == (1 if place.where == "proxy" else 2)
        else:
            assert last == payload


def test_who_states_no_keep_alive_is_copied_to_only_where_the_lease_is_declared(
    plain: Callable[..., Watched],
) -> None:
    place = plain()
    sensor = cast(Peer, place.one.sensor("sensor").connect(keep_alive_s=0).subscribe("room/1"))
    publisher = place.stranger()

    def is_said() -> bool:
        publisher.publish()
        hear_all(sensor)
        return "(--lease)" in (place.one.topic("room/1").get("reason") or "")

    until(is_said, "status does not say why")
    sensor.has(*publisher.all())
    sensor.leave()
    place.one.end()
    place.one = place.start("--lease", "60")
    sensor = cast(Peer, place.one.sensor("sensor").connect(keep_alive_s=0).subscribe("room/1"))
    publisher = place.stranger()
    publisher.is_open(sensor)
    publisher.is_copied(20, sensor)
    sensor.has(*publisher.all())


def fills(place: Place | Watched) -> None:
    """Two rules are all that there is room for."""
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


def test_what_finds_no_room_goes_through_the_broker(plain: Callable[..., Watched]) -> None:
    fills(plain("--rules", "2"))


def test_what_a_broker_offers_and_finds_no_room_goes_through_it(launch_sn: Launch) -> None:
    place = launch_sn(udp=True, more=("--rules", "2"))
    fills(place)
