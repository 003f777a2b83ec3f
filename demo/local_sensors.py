"""Clients of MQTT-SN and mqtt-udp, mqtick-broker and mqtick-accelerate, also between namespaces."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import select
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo.local_broker import MqtickBroker, newest_build
from demo.local_programs import wait_until

PATIENCE_S = 20.0
CONNECT, CONNACK, REGISTER, REGACK, PUBLISH, PUBACK = 0x04, 0x05, 0x0A, 0x0B, 0x0C, 0x0D
SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 0x12, 0x13, 0x16, 0x17, 0x18
UNSUBSCRIBE, UNSUBACK = 0x14, 0x15
CHOSEN = os.environ.get("MQTICK_ACCELERATE")
"""Which mqtick-accelerate is meant; None: the one that was built last."""


def program() -> str:
    """Where it is."""
    if CHOSEN:
        return CHOSEN
    found = newest_build("mqtick-accelerate")
    if found is None:
        raise FileNotFoundError("mqtick-accelerate is not built: run make accelerate")
    return found


until = functools.partial(wait_until, timeout_s=PATIENCE_S)
"""Wait until something is so."""


def comes(one: socket.socket, patience_s: float) -> bool:
    """Whether there is something to read; select() is for the first 1,024 descriptors only."""
    waiting = select.poll()
    waiting.register(one, select.POLLIN)
    return bool(waiting.poll(patience_s * 1000))


class Sensor:
    """A client of MQTT-SN."""

    def __init__(self, at: tuple[str, int], name: str, namespace: str | None = None) -> None:
        with inside(namespace):
            family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
            self.socket = socket.socket(family, socket.SOCK_DGRAM)
            self.socket.connect(at)
        self.name = name
        self.names: dict[int, str] = {}
        self.got: list[tuple[str, bytes]] = []
        self.kept: list[tuple[str, bytes]] = []
        self.others: list[int] = []

    def say(self, kind: int, octets: bytes = b"") -> None:
        """Send a message of this type."""
        self.socket.send(bytes([2 + len(octets), kind]) + octets)

    def hear(self, patience_s: float = PATIENCE_S) -> tuple[int, bytes] | None:
        """The next datagram: its type, and the rest; None: nothing comes."""
        if not comes(self.socket, patience_s):
            return None
        datagram = self.socket.recv(2048)
        assert datagram[0] == len(datagram)
        kind, rest = datagram[1], datagram[2:]
        if kind == REGISTER:
            self.names[struct.unpack("!H", rest[:2])[0]] = rest[4:].decode()
            self.say(REGACK, rest[:4] + b"\0")
        elif kind == PUBLISH:
            self.published(rest)
        else:
            self.others.append(kind)
        return kind, rest

    def published(self, rest: bytes) -> None:
        """A message has come."""
        assert rest[0] & 0xE0 == 0, "only QoS 0 is wanted"
        self.got.append((self.names[struct.unpack("!H", rest[1:3])[0]], rest[5:]))

    def ask(self, kind: int, octets: bytes, answer: int) -> bytes:
        """Say something, and wait for the answer of this type."""
        self.say(kind, octets)
        while heard := self.hear():
            if heard[0] == answer:
                return heard[1]
        raise AssertionError(f"{self.name}: no answer to {kind:#x}")

    def connect(self, keep_alive_s: int = 60, *, clean: bool = True) -> Sensor:
        """Connect, and be accepted."""
        flags = bytes([4 if clean else 0, 1]) + struct.pack("!H", keep_alive_s)
        assert self.ask(CONNECT, flags + self.name.encode(), CONNACK) == b"\0"
        return self

    def register(self, topic: str) -> int:
        """Return the id of a name."""
        rest = self.ask(REGISTER, struct.pack("!HH", 0, 9) + topic.encode(), REGACK)
        topic_id = int(struct.unpack("!H", rest[:2])[0])
        self.names[topic_id] = topic
        return topic_id

    def subscribe(self, topic: str) -> Sensor:
        """Subscribe, and be granted it."""
        rest = self.ask(SUBSCRIBE, struct.pack("!BH", 0, 7) + topic.encode(), SUBACK)
        assert rest[5] == 0
        if topic_id := struct.unpack("!H", rest[1:3])[0]:
            self.names[topic_id] = topic
        return self

    def ping(self) -> None:
        """Be answered."""
        self.ask(PINGREQ, b"", PINGRESP)

    def leave(self) -> None:
        """Say good-bye."""
        self.ask(DISCONNECT, b"", DISCONNECT)

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe."""
        self.ask(UNSUBSCRIBE, struct.pack("!BH", 0, 7) + topic.encode(), UNSUBACK)

    def publish(self, topic_id: int, payload: bytes, flags: int = 0) -> None:
        """Publish; QoS 0 if the flags do not say otherwise."""
        self.say(PUBLISH, struct.pack("!BHH", flags, topic_id, 1 if flags & 0x60 else 0) + payload)

    def has(self, *wanted: tuple[str, bytes]) -> None:
        """Exactly these messages come, in this order."""
        while len(self.got) < len(wanted) and self.hear():
            pass
        assert self.got == list(wanted)


class Peer(Sensor):
    """A client of mqtt-udp, with the same words."""

    is_connecting = False

    def say(self, kind: int, octets: bytes = b"") -> None:
        """Send a packet with this first octet."""
        length = bytes(
            [len(octets)] if len(octets) < 128 else [len(octets) & 127 | 128, len(octets) >> 7]
        )
        self.socket.send(bytes([kind]) + length + octets)

    def hear(self, patience_s: float = PATIENCE_S) -> tuple[int, bytes] | None:
        """The next datagram: its first octet, and the rest; None: nothing comes."""
        if not comes(self.socket, patience_s):
            return None
        datagram = self.socket.recv(2048)
        at = 3 if datagram[1] & 0x80 else 2
        kind, rest = datagram[0], datagram[at:]
        if kind & 0xFE != 0x30:
            self.others.append(kind)
            return kind, rest
        assert len(datagram) == at + (datagram[1] & 127 | (datagram[2] << 7 if at == 3 else 0))
        end = 2 + struct.unpack("!H", rest[:2])[0]
        if rest[2:end] == b"$proof":
            if self.is_connecting:
                self.say(0x30, rest)
        elif kind & 1:
            self.kept.append((rest[2:end].decode(), rest[end:]))
        else:
            self.got.append((rest[2:end].decode(), rest[end:]))
        return kind, rest

    def connect(self, keep_alive_s: int = 60, *, clean: bool = True) -> Peer:
        """Prove the address, and get a lease."""
        packet = b"\0\x04MQTT\x04" + struct.pack("!BHH", 2 if clean else 0, keep_alive_s, 0)
        self.is_connecting = True
        self.say(0x10, packet)
        while heard := self.hear():
            if heard[0] == 0x20:
                assert heard[1] == b"\0\0"
                self.is_connecting = False
                return self
            if b"$proof" in heard[1]:
                self.say(0x10, packet)
        raise AssertionError(f"{self.name}: no answer to CONNECT")

    def register(self, topic: str) -> str:  # type: ignore[override]
        """Return the name itself."""
        return topic

    def subscribe(self, topic: str) -> Peer:
        """Subscribe, and be granted it."""
        packet = struct.pack("!HH", 7, len(topic.encode())) + topic.encode() + b"\0"
        assert self.ask(0x82, packet, 0x90)[2:] == b"\0"
        return self

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe."""
        self.ask(0xA2, struct.pack("!HH", 7, len(topic.encode())) + topic.encode(), 0xB0)

    def publish(self, topic: str, payload: bytes, flags: int = 0) -> None:  # type: ignore[override]
        """Publish; the flags are the lower half of the first octet."""
        self.say(0x30 | flags, struct.pack("!H", len(topic.encode())) + topic.encode() + payload)

    def ping(self) -> None:
        """Be answered."""
        self.ask(0xC0, b"", 0xD0)

    def leave(self) -> None:
        """Say good-bye; nothing is answered."""
        self.say(0xE0)


@contextlib.contextmanager
def inside(namespace: str | None) -> Iterator[None]:
    """What is opened here belongs to that network namespace."""
    if namespace is None:
        yield
        return
    enter = ctypes.CDLL(None, use_errno=True).setns
    with open("/proc/self/ns/net") as here, open(f"/run/netns/{namespace}") as there:
        assert enter(there.fileno(), 0) == 0
        try:
            yield
        finally:
            assert enter(here.fileno(), 0) == 0


def in_url(address: str) -> str:
    """An address before a port."""
    return f"[{address}]" if ":" in address else address


class Accelerator:
    """The program, and the place where clients find it."""

    def __init__(
        self,
        folder: Path,
        broker: tuple[str, int],
        way: list[str],
        *,
        only: str = "#",
        run: tuple[str, ...] = (),
        clients: str | None = None,
        at: tuple[str, int] | None = None,
        feed: Path | None = None,
        udp: bool = False,
        fresh: bool = True,
    ) -> None:
        self.control = str(folder / "control")
        self.clients, self.kind = clients, Peer if udp else Sensor
        declared = ["--only", only, *(["--fresh"] if fresh else [])]
        knows = ["--feed", str(feed)] if feed else declared
        url = f"{'mqtt+udp' if udp else 'mqtt-sn'}://{in_url(broker[0])}:{broker[1]}"
        arguments = ["--broker", url, *knows, *way]
        self.process = subprocess.Popen(
            [*run, program(), *arguments, "--control", self.control],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.plane = self.process.stdout.readline()
        if not self.plane:
            raise OSError("mqtick-accelerate did not start")
        place = self.plane.partition(" at ")[2].partition(",")[0]
        self.at = at or (place.rpartition(":")[0].strip("[]"), int(place.rpartition(":")[2]))

    def sensor(self, name: str) -> Sensor:
        """Return a client that talks to where clients talk to."""
        return self.kind(self.at, name, self.clients)

    def status(self) -> dict[str, Any]:
        """Return what `status` says."""
        command = [program(), "status", "--json", "--control", self.control]
        found: dict[str, Any] = json.loads(subprocess.check_output(command))
        return found

    def topic(self, name: str) -> dict[str, Any]:
        """What is said of the topic's publisher that publishes most."""
        found = [one for one in self.status()["topics"] if one["name"] == name]
        return max(found, key=lambda one: one["fast"] + one["slow"], default={"open": False})

    def is_open(self, publisher: Sensor, topic_id: int, name: str, *subscribers: Sensor) -> int:
        """Publish until a topic is accelerated; how many messages that took."""
        count = 0

        def opens() -> bool:
            nonlocal count
            if self.topic(name)["open"]:
                return True
            publisher.publish(topic_id, b"%d" % count)
            count += 1
            for subscriber in subscribers:
                while subscriber.hear(0.01):
                    pass
            return False

        until(opens, f"{name} is not accelerated")
        return count

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0


class SensorBroker(MqtickBroker):
    """The broker with MQTT-SN, or mqtt-udp, on its port."""

    question = (0x01, b"\0", 0x02)
    """What it answers at once over MQTT-SN: type and rest, and the type of the answer."""

    def __init__(
        self, folder: Path, address: str = "127.0.0.1", lines: str = "", *, udp: bool = False
    ) -> None:
        super().__init__(folder, lines)
        self.is_udp, self.address = udp, address
        own = f'[{"udp" if udp else "sn"}]\naddress = "{in_url(address)}:{self.port}"\n'
        over_ipv6 = "" if udp else ', "::1/128", "fd77::/64"'
        own += f'subnets = ["127.0.0.0/8", "10.0.0.0/8"{over_ipv6}]\n'
        self.config.write_text(self.config.read_text() + own)

    def command(self) -> list[str]:
        """What runs it."""
        return [self.built(), "--config", str(self.config)]

    def answers(self, namespace: str | None = None) -> bool:
        """Whether it does, if it is asked in that namespace."""
        asker = (Peer if self.is_udp else Sensor)((self.address, self.port), "asker", namespace)
        kind, octets, answer = (0x82, b"\0\1\0\1a\0", None) if self.is_udp else self.question
        with contextlib.suppress(ConnectionError):
            asker.say(kind, octets)
            heard = asker.hear(0.1)
            return heard is not None and answer in (None, heard[0])
        return False

    def told(self) -> Path:
        """Have it say what may be copied in its place; where."""
        path = self.folder / "feed"
        own = f'[delivery]\naccelerate = "{path}"\n'
        self.config.write_text(self.config.read_text() + own)
        return path


# Each process has namespaces of its own: two that run at the same time do not meet.
BROKER_SIDE, CLIENT_SIDE, BRIDGE = (f"mqtick-acc-{side}-{os.getpid()}" for side in "bcr")


@contextlib.contextmanager
def between_namespaces(
    folder: Path, *, bridged: bool = False, broker: SensorBroker | None = None
) -> Iterator[tuple[str, int]]:
    """Run the broker in one namespace, with a link to another one for clients; where it is.

    If it is bridged, a third one is between them, with `rb` and `rc` as ports of its bridge.
    """
    with contextlib.ExitStack() as open_ones:

        def ip(*words: str) -> None:
            subprocess.run(["ip", *words], check=True)

        for name in (BROKER_SIDE, CLIENT_SIDE, *([BRIDGE] if bridged else [])):
            ip("netns", "add", name)
            open_ones.callback(ip, "netns", "del", name)
        if bridged:
            ip("-n", BRIDGE, "link", "add", "br0", "type", "bridge")
            ip("-n", BRIDGE, "link", "set", "br0", "up")
            for name, link, port in ((BROKER_SIDE, "b0", "rb"), (CLIENT_SIDE, "c0", "rc")):
                peer = ("peer", "name", port, "netns", BRIDGE)
                ip("-n", name, "link", "add", link, "type", "veth", *peer)
                ip("-n", BRIDGE, "link", "set", port, "master", "br0", "up")
        else:
            peer = ("peer", "name", "c0", "netns", CLIENT_SIDE)
            ip("-n", BROKER_SIDE, "link", "add", "b0", "type", "veth", *peer)
        for name, link, address in ((BROKER_SIDE, "b0", 1), (CLIENT_SIDE, "c0", 2)):
            ip("-n", name, "address", "add", f"10.77.0.{address}/24", "dev", link)
            ip("-n", name, "address", "add", f"fd77::{address}/64", "dev", link, "nodad")
            ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
        broker = broker or SensorBroker(folder, "10.77.0.1")
        open_ones.callback(broker.stop)
        yield start_inside(broker)


def start_inside(broker: SensorBroker) -> tuple[str, int]:
    """Start a broker in its namespace; where it is."""
    command = ["ip", "netns", "exec", BROKER_SIDE, *broker.command()]
    with (broker.folder / "broker.log").open("ab") as log:
        broker.process = subprocess.Popen(command, stdout=log, stderr=log)
    until(lambda: broker.answers(CLIENT_SIDE), "the broker does not answer")
    return broker.address, broker.port


def in_the_kernel(
    folder: Path,
    at: tuple[str, int],
    only: str = "#",
    *more: str,
    bridged: bool = False,
    feed: Path | None = None,
    udp: bool = False,
    fresh: bool = True,
    under: tuple[str, ...] = (),
) -> Accelerator:
    """Start the kernel's data plane on the broker's interface, or on the bridge's."""
    run = ("ip", "netns", "exec", BRIDGE if bridged else BROKER_SIDE, *under)
    way = ["--interface", "rc", "--broker-side", "rb"] if bridged else ["--interface", "b0"]
    way += more
    return Accelerator(
        folder,
        at,
        way,
        only=only,
        run=run,
        clients=CLIENT_SIDE,
        at=at,
        feed=feed,
        udp=udp,
        fresh=fresh,
    )
