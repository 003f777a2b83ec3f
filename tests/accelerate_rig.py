"""A broker that says what may be copied, and who copies: over MQTT-SN and mqtt-udp, as a proxy
and, as root, in the kernel between two network namespaces."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.conformance.client import V5, Client
from demo.local_broker import free_port, running
from demo.local_sensors import (
    BROKER_SIDE,
    CHOSEN,
    PATIENCE_S,
    Accelerator,
    Sensor,
    SensorBroker,
    between_namespaces,
    in_the_kernel,
    inside,
    start_inside,
    until,
)


class Place:
    """A broker that says what may be copied, and who copies."""

    namespace: str | None = None

    def __init__(
        self, folder: Path, lines: str = "", address: str = "127.0.0.1", *, udp: bool = False
    ) -> None:
        self.folder, self.is_udp = folder, udp
        self.more: tuple[str, ...] = ()
        self.mark = 0x08  # by chance both protocols have the same bit
        self.metrics = (address, free_port())
        metrics = f'[metrics]\naddress = "{address}:{self.metrics[1]}"\n'
        self.broker = SensorBroker(folder, address, lines + metrics, udp=udp)
        self.feed = self.broker.told()
        self.one: Accelerator

    def accelerate(self) -> None:
        """Start who copies."""
        way = ["--proxy", "127.0.0.1:0", *self.more]
        at = ("127.0.0.1", self.broker.port)
        self.one = Accelerator(self.folder, at, way, feed=self.feed, udp=self.is_udp)

    def end(self) -> None:
        """End who copies."""
        self.one.end()

    def start_again(self) -> None:
        """Start the broker."""
        self.broker.start()

    def tcp(self, name: str = "over-tcp") -> Client:
        """A client over TCP, at the broker itself."""
        with inside(self.namespace):
            client = Client(("127.0.0.1", self.broker.port), V5, name)
        assert client.connect().reason == 0
        return client

    def sensor(self, name: str) -> Sensor:
        """A client over UDP that is connected, on the way that is accelerated."""
        return self.one.sensor(name).connect()

    def publisher(self, topic: str = "room/1") -> Publisher:
        """A client that publishes."""
        return Publisher(self, topic)

    def counted(self, name: str, what: str) -> int:
        """What the broker says in its metrics: at once, and not every ten seconds as in `$SYS`."""
        with inside(self.namespace):
            asking = socket.create_connection(self.metrics, PATIENCE_S)
        with asking, asking.makefile("rb") as answer:
            asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            lines = answer.read().decode().splitlines()
        begin = f'mqtick_broker_{name}_total{{what="{what}"}} '
        (value,) = (line.removeprefix(begin) for line in lines if line.startswith(begin))
        return int(value)

    def has_counted(self, name: str, what: str, least: int) -> None:
        """Wait until it says so many."""
        until(lambda: self.counted(name, what) >= least, f"fewer than {least} {what}")


class KernelPlace(Place):
    """The same in the kernel of the broker's host."""

    namespace = BROKER_SIDE

    def __init__(self, folder: Path, lines: str = "", *, udp: bool = False) -> None:
        super().__init__(folder, lines, "10.77.0.1", udp=udp)

    def accelerate(self) -> None:
        """Start who copies."""
        at = ("10.77.0.1", self.broker.port)
        self.one = in_the_kernel(self.folder, at, "#", *self.more, feed=self.feed, udp=self.is_udp)

    def start_again(self) -> None:
        """Start the broker."""
        start_inside(self.broker)


class Publisher:
    """It counts what it publishes."""

    def __init__(self, place: Place, topic: str, name: str = "publisher") -> None:
        self.place, self.topic = place, topic
        self.sensor = place.sensor(name)
        self.topic_id = self.sensor.register(topic)
        self.count = 0

    def publish(self, flags: int = 0) -> None:
        """Publish the next number."""
        if self.place.is_udp and flags == self.place.mark:
            # Refused as ever: no client's message of QoS 0 has DUP.
            self.sensor.publish(self.topic_id, b"refused", flags)
            return
        self.sensor.publish(self.topic_id, b"%d" % self.count, flags)
        self.count += 1

    def is_open(self, *sensors: Sensor, copies: int | None = None) -> None:
        """Publish until it is copied, to so many."""

        def opens() -> bool:
            found = self.place.one.topic(self.topic)
            if found["open"] and copies in (None, found["subscribers"]):
                return True
            self.publish()
            hear_all(*sensors)
            return False

        until(opens, f"{self.topic} is not copied")

    def is_copied(self, count: int, *sensors: Sensor) -> None:
        """Publish until so many more are copied: on a busy machine nothing is lent for a while."""
        enough = self.place.one.topic(self.topic)["fast"] + count

        def suffices() -> bool:
            for _ in range(20):
                self.publish()
            hear_all(*sensors)
            return bool(self.place.one.topic(self.topic)["fast"] >= enough)

        until(suffices, f"not so many messages of {self.topic} are copied")

    def all(self) -> list[tuple[str, bytes]]:
        """What it published."""
        return [(self.topic, b"%d" % number) for number in range(self.count)]

    def is_served(self) -> None:
        """All that went through the broker has been served."""
        self.sensor.ping()


def hear_all(*sensors: Sensor, patience_s: float = 0.01) -> None:
    """Hear what has come."""
    for sensor in sensors:
        while sensor.hear(patience_s):
            pass


def numbers(client: Client, last: int) -> list[int]:
    """What a client over TCP gets, up to this number."""
    got = [int(client.message().payload)]
    while got[-1] != last:
        got.append(int(client.message().payload))
    return got


Launch = Callable[..., Place]


@contextlib.contextmanager
def where_the_kernel_can() -> Iterator[None]:
    """Leave out what needs the kernel's data plane where it does not start, unless chosen."""
    try:
        yield
    except OSError:
        if CHOSEN:
            raise
        pytest.skip("not built for the kernel (make accelerate), or it cannot")


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Launch]:
    """Start broker and proxy; the broker must not panic."""
    with contextlib.ExitStack() as open_ones:

        def start(
            lines: str = "", *, alone: bool = False, udp: bool = False, more: tuple[str, ...] = ()
        ) -> Place:
            place = Place(tmp_path, lines, udp=udp)
            place.more = more
            open_ones.enter_context(running(place.broker))
            if not alone:
                place.accelerate()
                open_ones.callback(place.end)
            return place

        yield start
    assert "panicked" not in (tmp_path / "broker.log").read_text()


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Launch]:
    """Start the broker in a namespace, and the kernel's data plane before it."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with contextlib.ExitStack() as open_ones:

        def start(lines: str = "", *, udp: bool = False, more: tuple[str, ...] = ()) -> Place:
            place = KernelPlace(tmp_path, lines, udp=udp)
            place.more = more
            open_ones.enter_context(between_namespaces(tmp_path, broker=place.broker))
            with where_the_kernel_can():
                place.accelerate()
            open_ones.callback(place.end)
            return place

        yield start
    log = tmp_path / "broker.log"
    assert not log.exists() or "panicked" not in log.read_text()


@pytest.fixture(params=["proxy", "kernel"])
def launch_sn(request: pytest.FixtureRequest) -> Launch:
    """In user space and in the kernel."""
    found: Launch = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["mqtt-sn", "mqtt-udp"])
def launch(launch_sn: Launch, request: pytest.FixtureRequest) -> Launch:
    """The same, over both protocols."""
    return functools.partial(launch_sn, udp=request.param == "mqtt-udp")
