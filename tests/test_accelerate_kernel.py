"""The data plane in the kernel, between two namespaces: exact copies, and nothing left behind.

On one side of a veth stands the broker's host with the programs, on the other all clients.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from decoders import others_read

from broker.bpf.model import UDP, checksum, ones_sum
from broker.bpf.vectors import MACS, V4, V6, sn_publish, udp_frame, vectors

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", "broker/server/target"))
PROGRAM = TARGET / "debug/examples/kernel_rules"
BPF, BPF_PROG_QUERY, TCX_INGRESS = {"x86_64": 321, "aarch64": 280}, 16, 46
CLONE_NEWNET, SO_RCVBUFFORCE = 0x40000000, 33
SOL_PACKET, PACKET_AUXDATA, VLAN_VALID = 263, 8, 0x10
ASK = bytes.fromhex("ffffffffffff" + MACS["publisher"] + "0806" + "0001080006040001")
ASK += bytes.fromhex(MACS["publisher"]) + bytes([10, 0, 0, 2]) + bytes(6) + bytes([10, 0, 0, 1])

T = TypeVar("T")

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(os.geteuid() != 0, reason="making namespaces takes root"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="not built: make accelerate"),
]


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


def within(space: str, function: Callable[[], T]) -> T:
    """Call the function in a network namespace: a socket stays in the one where it was made."""
    result: list[T] = []

    def call() -> None:
        with Path(f"/run/netns/{space}").open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        result.append(function())

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return result[0]


class Wire:
    """Frames as they are on the clients' side."""

    def __init__(self, space: str) -> None:
        self._socket = within(space, self._open)

    @staticmethod
    def _open() -> socket.socket:
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        wire.bind(("clients", 0))
        wire.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
        wire.settimeout(20)
        return wire

    def send(self, frame: bytes) -> None:
        self._socket.send(frame)

    def _receive(self) -> bytes | None:
        frame, extra, _, sender = self._socket.recvmsg(4096, 64)
        if sender[2] == socket.PACKET_OUTGOING:
            return None
        for _, _, data in extra:
            status, *_, tci, _ = struct.unpack("=IIIHHHH", data)
            if status & VLAN_VALID:
                frame = frame[:12] + b"\x81\x00" + tci.to_bytes(2, "big") + frame[12:]
        return frame

    def until_answered(self) -> list[bytes]:
        """Return what comes before the answer to a question asked now."""
        self.send(ASK)
        frames: list[bytes] = []
        while True:
            frame = self._receive()
            if frame and frame[12:14] == b"\x08\x06" and frame[20:22] == b"\x00\x02":
                return frames
            if frame and frame[:6] != b"\xff" * 6 and frame[:2] != b"\x33\x33":
                frames.append(frame)

    def close(self) -> None:
        self._socket.close()


class Rules:
    """The programs in the kernel, with rules by hand."""

    def __init__(self, space: str, *words: str) -> None:
        command = ["ip", "netns", "exec", space, str(PROGRAM), *words, "broker"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self._answer() == f"ready {'Clsact' if '--clsact' in words else 'Tcx'}"

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, command: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        assert not answer.startswith("error"), answer
        return answer

    def counters(self) -> dict[str, int]:
        pairs = (word.split("=") for word in self.say("counters").split())
        return {name: int(n) for name, n in pairs}

    def events(self) -> list[str]:
        return list(iter(lambda: self.say("event"), ""))

    def hops(self, interface: int, hops: list[dict[str, Any]]) -> None:
        for number, hop in enumerate(hops):
            macs = f"{hop['destination']} {hop['source']}"
            up = str(hop["up"]).lower()
            self.say(f"hop {number} {interface} {macs} {hop['ttl']} {up} {hop.get('vlan', 0)}")

    @staticmethod
    def topic(one: dict[str, Any]) -> str:
        of_number = one["kind"] in ("registered", "predefined")
        return f"{one['kind']}={int(one['topic'], 16) if of_number else one['topic']}"

    def key(self, rule: dict[str, Any]) -> str:
        return f"{rule['broker']} {rule['publisher'] or '-'} {self.topic(rule)}"

    def rule(self, rule: dict[str, Any], *, opened: bool = True) -> None:
        key, topic = self.key(rule), self.topic
        flags = ",".join(rule.get("flags", [])) or "-"
        # Of mqtt-udp, all have the name that the rule has.
        named = [{**one, "topic": one["topic"] or rule["topic"]} for one in rule["subscribers"]]
        to = (f"{one['address']},{topic(one)},{one['hop']}" for one in named)
        self.say(f"rule {key} {flags} {' '.join(to)}")
        if opened:
            self.say(f"open {key} 0")
        self.say("done")

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(20) == 0


class World:
    """Two namespaces, and the veth between them."""

    def __init__(self, which: str = "one") -> None:
        self.broker, self.clients = (f"mqtick-{os.getpid()}-{which}-{side}" for side in "bc")
        for space in (self.broker, self.clients):
            ip(f"netns add {space}")
            ip(f"-n {space} link set lo up")
        ip(f"-n {self.broker} link add broker type veth peer name clients netns {self.clients}")
        for space, name, number, mac in (
            (self.broker, "broker", 1, MACS["broker"]),
            (self.clients, "clients", 2, MACS["publisher"]),
        ):
            colons = ":".join(mac[at : at + 2] for at in range(0, 12, 2))
            ip(f"-n {space} link set {name} address {colons} mtu 4000 addrgenmode none up")
            ip(f"-n {space} address add 10.0.0.{number}/24 dev {name}")
            ip(f"-n {space} address add fd00::{number}/64 dev {name} nodad")
        self.interface = within(self.broker, lambda: socket.if_nametoindex("broker"))

    def socket(self, space: str, host: str, port: int) -> socket.socket:
        def make() -> socket.socket:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            one = socket.socket(family, socket.SOCK_DGRAM)
            one.bind((host, port))
            one.settimeout(20)
            return one

        return within(space, make)

    def attached(self) -> list[str]:
        """Return the links, filters and queueing disciplines on the broker's interface."""
        return within(self.broker, self._attached)

    def _attached(self) -> list[str]:
        found = []
        for name, attach_type in (("ingress", TCX_INGRESS), ("egress", TCX_INGRESS + 1)):
            query = ctypes.create_string_buffer(64)
            struct.pack_into("=II", query, 0, self.interface, attach_type)
            if ctypes.CDLL(None).syscall(BPF[os.uname().machine], BPF_PROG_QUERY, query, 64) == 0:
                found += [f"tcx {name}"] * struct.unpack_from("=I", query, 24)[0]
        for words in ("qdisc show dev broker", "filter show dev broker ingress"):
            ran = subprocess.run(
                ["tc", *words.split()], check=False, capture_output=True, text=True
            )
            lines = ran.stdout.split("\n")
            found += [line for line in lines if "clsact" in line or "mqtick" in line]
        return found

    def close(self) -> None:
        for space in (self.broker, self.clients):
            ip(f"netns delete {space}")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    # On one processor frames keep their order from one end to the other.
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    made = World()
    yield made
    made.close()
    os.sched_setaffinity(0, before)


BROKERS = {"mqtt-sn": "sn", "mqtt-udp": "udp"}


def start(world: World, brokers: list[dict[str, Any]], *words: str) -> Rules:
    for broker in brokers:
        words += ("--broker", f"{broker['address']}/{broker['vlan']}/{BROKERS[broker['protocol']]}")
    return Rules(world.broker, *words)


def without_residence(frame: bytes, at: int) -> tuple[bytes, bytes]:
    """Blank the residence at the end of a frame and the checksum that covers it."""
    return frame[: at + 6], frame[at + 8 : -16] + frame[-8:]


def is_udp(frame: bytes) -> bool:
    """And not what a host says of a datagram that nobody wants."""
    ip = frame[18 if frame[12:14] == b"\x81\x00" else 14 :]
    return ip[9 if ip[0] >> 4 == 4 else 6] == UDP


def is_summed(frame: bytes) -> bool:
    start = 18 if frame[12:14] == b"\x81\x00" else 14
    six = frame[start] >> 4 == 6
    udp = start + (40 if six else 20)
    length = frame[udp + 4 : udp + 6]
    addresses = frame[start + (8 if six else 12) : udp]
    end = udp + int.from_bytes(length, "big")
    return ones_sum(addresses + b"\0\x11" + length + frame[udp:end]) == 0xFFFF


def same(got: bytes, expected: bytes) -> bool:
    if got == expected:
        return True
    # The residence depends on the clock.
    udp = 34 if got[12:14] == b"\x08\x00" else 54
    stated = expected[-1] and expected[-8:-1] == b"\x80" + bytes(6)
    spent = int.from_bytes(got[-16:-8], "big") - int.from_bytes(expected[-16:-8], "big")
    return (
        bool(stated)
        and without_residence(got, udp) == without_residence(expected, udp)
        and -(12_345 << 16) < spent < 100_000_000 << 16
        and is_summed(got)
    )


def verdict(name: str) -> str:
    """What is said of the UDP checksum of the copies in a vector of this name."""
    is_left = "card is to finish" in name
    return (
        "unfinished"
        if is_left
        else "none"
        if re.search("no checksum|without a ch", name)
        else "good"
    )


def test_the_kernel_does_what_the_vectors_say(world: World, tmp_path: Path) -> None:
    wire = Wire(world.clients)
    groups: dict[str, list[dict[str, Any]]] = {}
    for vector in vectors():
        groups.setdefault(vector["tables"], []).append(vector)
    copied: list[tuple[bytes, str]] = []
    for group in groups.values():
        rules = start(world, group[0]["brokers"])
        rules.hops(world.interface, group[0]["hops"])
        for vector in group:
            # "waiting" and "stale" are made elsewhere, as they come about.
            if vector.get("settings"):
                continue
            for rule in vector["rules"]:
                rules.rule(rule, opened=not rule.get("closed"))
            before = rules.counters()
            rules.events()
            wire.until_answered()
            wire.send(bytes.fromhex(vector["frame"]))
            copies = [frame for frame in wire.until_answered() if is_udp(frame)]
            after = rules.counters()
            counted = {name: n - before.get(name, 0) for name, n in after.items()}
            expect = vector["expect"]
            name = vector["name"]
            got = {name: n for name, n in counted.items() if n}
            assert got.pop("no_rule", 0) == expect.get("counters", {}).pop("no_rule", 0), name
            if "no_rule" not in name and (expect.get("event") or {}).get("reason") != "no_rule":
                assert got == expect.get("counters", {}), name
                assert len(rules.events()) == ("event" in expect), name
            wanted = [bytes.fromhex(copy["frame"]) for copy in expect.get("copies", [])]
            assert len(copies) == len(wanted), name
            assert all(map(same, copies, wanted)), (name, [copy.hex() for copy in copies])
            slow = [rules.say(f"counts {rules.key(rule)}").split()[0] for rule in vector["rules"]]
            assert [n for n, count in enumerate(slow) if count != "0"] == expect.get("closed", [])
            copied += [(frame, verdict(name)) for frame in copies]
        rules.stop()
    wire.close()
    assert len(copied) > 100
    others_read(copied, tmp_path)


@pytest.mark.parametrize("hosts", [V4, V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("subscribers", [3, 100])
@pytest.mark.parametrize("finished_by", ["nobody", "kernel"])
def test_each_subscriber_gets_one_datagram_of_the_broker_with_its_own_id(
    world: World, hosts: tuple[str, str], subscribers: int, finished_by: str
) -> None:
    if finished_by == "kernel" and shutil.which("ethtool") is None:
        pytest.skip("ethtool is not installed")
    offload = "off" if finished_by == "kernel" else "on"
    # With it on, a checksum is left unfinished from end to end; off, the kernel must finish ours.
    for space, device in ((world.broker, "broker"), (world.clients, "clients")):
        command = ["ip", "netns", "exec", space, "ethtool", "-K", device, "tx", offload]
        if shutil.which("ethtool"):
            subprocess.run(command, check=True, capture_output=True)
    client, broker = (f"[{host}]" if ":" in host else host for host in hosts)
    rules = start(world, [{"address": f"{broker}:1883", "vlan": 0, "protocol": "mqtt-sn"}])
    hop = {"destination": MACS["publisher"], "source": MACS["broker"], "ttl": 64, "up": True}
    rules.hops(world.interface, [hop])
    receivers = [world.socket(world.clients, hosts[0], 20_000 + n) for n in range(subscribers)]
    of = {"kind": "registered", "hop": 0}
    to = [
        {**of, "address": f"{client}:{20_000 + n}", "topic": f"{n + 256:04x}"}
        for n in range(subscribers)
    ]
    rule = {"broker": 0, "publisher": f"{client}:5000", "kind": "registered", "topic": "0007"}
    rules.rule({**rule, "flags": ["broker"], "subscribers": to})
    itself = world.socket(world.broker, hosts[1], 1883)
    publisher = world.socket(world.clients, hosts[0], 5000)
    message = sn_publish("0007", b"to everybody")
    publisher.sendto(message, (hosts[1], 1883))
    for number, receiver in enumerate(receivers):
        data, sender = receiver.recvfrom(2048)
        assert sender[:2] == (hosts[1], 1883)
        assert data == sn_publish(f"{number + 256:04x}", b"to everybody")
    assert itself.recv(2048) == message
    counters = rules.counters()
    assert (counters["hits"], counters["copies"]) == (1, subscribers)
    assert rules.say(f"counts 0 {client}:5000 registered=7") == f"0 1 {subscribers}"
    rules.rule({**rule, "subscribers": to})
    publisher.sendto(message, (hosts[1], 1883))
    assert all(receiver.recv(2048) for receiver in receivers)
    publisher.sendto(sn_publish("0008", b"nobody's"), (hosts[1], 1883))
    # The one before it was dropped.
    assert itself.recv(2048) == sn_publish("0008", b"nobody's")
    for one in (*receivers, itself, publisher):
        one.close()
    rules.stop()


@contextmanager
def frames_that_may_wait(most: int) -> Iterator[None]:
    """Set how many frames the kernel keeps on their way from one end of a veth to the other."""
    path = Path("/proc/sys/net/core/netdev_max_backlog")
    before = path.read_text()
    path.write_text(str(most))
    try:
        yield
    finally:
        path.write_text(before)


def accelerated(world: World, *words: str) -> Rules:
    rules = start(world, [{"address": "10.0.0.1:1883", "vlan": 0, "protocol": "mqtt-sn"}], *words)
    hop = {"destination": MACS["publisher"], "source": MACS["broker"], "ttl": 64, "up": True}
    rules.hops(world.interface, [hop])
    to = {"address": "10.0.0.2:6003", "kind": "registered", "topic": "0001", "hop": 0}
    rules.rule({"broker": 0, "publisher": "10.0.0.2:5000", "kind": "registered", "topic": "0007",
                "subscribers": [to]})  # fmt: skip
    return rules


def test_a_packet_that_may_change_receivers_stops_copying_until_it_is_known(world: World) -> None:
    rules, wire = accelerated(world), Wire(world.clients)
    publish = udp_frame(*V4, sn_publish("0007", b"x"))
    key = "0 10.0.0.2:5000 registered=7"
    wire.send(udp_frame(*V4, b"\x08\x12\x00\x00\x01a/b", ports=(6003, 1883)))
    wire.send(publish)
    wire.until_answered()
    assert rules.counters()["waiting"] == 1
    [event] = rules.events()
    assert event.startswith("Message 10.0.0.2:6003 10.0.0.1:1883 egress=false from_broker=false")
    assert event.endswith(" 08120000" + b"\x01a/b".hex())
    rules.say("done")
    # One went the slow way: the next must not overtake it.
    wire.send(publish)
    wire.until_answered()
    assert rules.counters()["closed"] == 1
    assert rules.say(f"counts {key}") == "2 0 0"
    rules.say(f"open {key} 2")
    wire.send(publish)
    wire.until_answered()
    assert rules.say(f"counts {key}") == "2 1 1"
    rules.stop()
    wire.close()


def test_of_4095_copies_none_is_lost_that_is_not_counted(world: World) -> None:
    rules, wire = accelerated(world), Wire(world.clients)
    to = [
        {"address": f"10.0.0.2:{20_000 + n}", "kind": "registered", "topic": f"{n:04x}", "hop": 0}
        for n in range(4095)
    ]
    rules.rule({"broker": 0, "publisher": None, "kind": "short", "topic": "6162",
                "subscribers": to})  # fmt: skip
    with frames_that_may_wait(10_000):
        wire.send(udp_frame(*V4, sn_publish("6162", b"x", 2)))
        topics = [frame[45:47] for frame in wire.until_answered() if is_udp(frame)]
    counters = rules.counters()
    assert counters["copies"] + counters.get("refused", 0) == 4095
    assert topics == sorted(topics)
    assert len(set(topics)) == counters["copies"]
    rules.stop()
    wire.close()


def test_a_rule_that_finds_no_room_is_refused_and_the_others_stay(world: World) -> None:
    rules, wire = accelerated(world), Wire(world.clients)
    to = [
        {"address": f"10.0.0.2:{20_000 + n}", "kind": "registered", "topic": f"{n:04x}", "hop": 0}
        for n in range(4095)
    ]
    key = {"broker": 0, "publisher": None, "kind": "predefined"}
    for number in range(15):
        rules.rule({**key, "topic": f"{number:04x}", "subscribers": to})
    with pytest.raises(AssertionError, match="storage"):
        rules.rule({**key, "topic": "000f", "subscribers": to})
    wire.send(udp_frame(*V4, sn_publish("0007", b"x")))
    assert [frame[45:47] for frame in wire.until_answered() if is_udp(frame)] == [b"\x00\x01"]
    wire.send(udp_frame(*V4, sn_publish("000f", b"x", 1)))
    assert not [frame for frame in wire.until_answered() if is_udp(frame)]
    assert rules.counters()["no_rule"] == 1
    rules.stop()
    wire.close()


def test_each_publisher_of_a_topic_without_a_rule_is_reported_once_a_second(world: World) -> None:
    rules, wire = accelerated(world), Wire(world.clients)
    for port in (5001, 5002) * 3:
        wire.send(udp_frame(*V4, sn_publish("0007", b"x"), ports=(port, 1883)))
    wire.until_answered()
    words = [event.split()[:2] for event in rules.events()]
    assert words == [["NoRule", "10.0.0.2:5001"], ["NoRule", "10.0.0.2:5002"]]
    assert rules.counters()["no_rule"] == 6
    rules.stop()
    wire.close()


def test_events_that_find_no_room_are_counted(world: World) -> None:
    rules, wire = accelerated(world), Wire(world.clients)
    connect = udp_frame(*V4, b"\x08\x04\x04\x01\x00\x3cme" + bytes(500))
    for _ in range(3000):
        wire.send(connect)
    wire.until_answered()
    counters = rules.counters()
    assert counters["events"] == 3000
    assert len(rules.events()) == 3000 - counters["events_lost"] > 1000
    assert counters["events_lost"] > 0
    rules.stop()
    wire.close()


def test_a_controller_that_hangs_stops_copying(world: World) -> None:
    rules, wire = accelerated(world), Wire(world.clients)
    itself = world.socket(world.broker, "10.0.0.1", 1883)
    rules.process.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 20
    while not select.select([itself], [], [], 0.05)[0]:  # copied; what is not, the broker gets
        assert time.monotonic() < end
        wire.send(udp_frame(*V4, sn_publish("0007", b"x")))
    rules.process.send_signal(signal.SIGCONT)
    assert rules.counters()["stale"] >= 1
    rules.stop()
    wire.close()
    itself.close()


def test_the_broker_answers_are_seen_and_one_pingresp_is_kept_back(world: World) -> None:
    rules, wire = accelerated(world), Wire(world.clients)
    itself = world.socket(world.broker, "10.0.0.1", 1883)
    publisher = world.socket(world.clients, "10.0.0.2", 5000)
    rules.say("client 10.0.0.2:5000 1")
    assert rules.say("heard 10.0.0.2:5000") == "None"
    # The controller's own PINGREQ, in the publisher's name.
    ping = udp_frame(*V4, b"\x02\x16")
    rules.say(f"inject {world.interface} {ping.hex()}")
    assert itself.recvfrom(64) == (b"\x02\x16", ("10.0.0.2", 5000))
    assert rules.say("heard 10.0.0.2:5000") == "None"
    wire.send(ping)
    assert itself.recv(64) == b"\x02\x16"
    assert rules.say("heard 10.0.0.2:5000").startswith("Some(")
    itself.sendto(b"\x02\x17", ("10.0.0.2", 5000))
    itself.sendto(bytes.fromhex("0813000007000100"), ("10.0.0.2", 5000))
    assert publisher.recv(64).hex() == "0813000007000100"
    itself.sendto(b"\x02\x17", ("10.0.0.2", 5000))
    assert publisher.recv(64) == b"\x02\x17"
    words = [event.split() for event in rules.events()]
    assert [(*word[3:6], word[-1]) for word in words] == [
        ("egress=false", "from_broker=false", "kept_back=false", "0216"),
        ("egress=true", "from_broker=true", "kept_back=true", "0217"),
        ("egress=true", "from_broker=true", "kept_back=false", "0813000007000100"),
        ("egress=true", "from_broker=true", "kept_back=false", "0217"),
    ]
    for one in (itself, publisher):
        one.close()
    rules.stop()
    wire.close()


def children(pid: int) -> list[int]:
    """Of all its threads."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="it takes two processors")
def test_two_processors_keep_back_no_more_answers_than_they_should(world: World) -> None:
    rules = accelerated(world)
    most, each = 40_000, 50_000
    rules.say(f"client 10.0.0.2:5000 {most}")
    answer = udp_frame("10.0.0.1", "10.0.0.2", b"\x02\x17", ports=(1883, 5000))

    def send(processor: int) -> None:
        os.sched_setaffinity(0, {processor})
        wire = Wire(world.clients)
        for _ in range(each):
            wire.send(answer)

    processors = range(2)
    senders = [
        multiprocessing.get_context("fork").Process(target=send, args=(n,)) for n in processors
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
        assert sender.exitcode == 0
    assert rules.counters()["kept_back"] == most
    rules.stop()


def test_a_flood_of_publishes_leaves_room_for_what_changes_who_receives(world: World) -> None:
    rules, wire = accelerated(world), Wire(world.clients)
    for number in range(20_000):
        publish = sn_publish("0009", b"x" * 30)
        wire.send(udp_frame(V4[0], V4[1], publish, ports=(2000 + number, 1883)))
    wire.send(udp_frame(*V4, b"\x08\x12\x00\x00\x01a/b", ports=(6003, 1883)))
    wire.until_answered()
    counters = rules.counters()
    assert counters["no_rule"] == 20_000
    assert "events_lost" not in counters
    assert 1000 < counters["events"] < 10_000
    assert "081200" in rules.events()[-1]
    rules.stop()
    wire.close()


FRAGMENTS = [
    # Octets of IP from, and to; what is told: its ports, and its message as far as it is there.
    (0, 24, "Fragment 10.0.0.2:5000 10.0.0.1:1883", 16),
    (0, 8, "Fragment 10.0.0.2:0 10.0.0.1:0", 0),
    (8, 24, "Fragment 10.0.0.2:0 10.0.0.1:0", 0),
    (16, 24, "Rest 10.0.0.2:0 10.0.0.1:0", 0),
]


@pytest.mark.parametrize(("start", "end", "told", "octets"), FRAGMENTS)
@pytest.mark.parametrize("hosts", [V4, V6], ids=["IPv4", "IPv6"])
def test_the_beginning_of_a_fragmented_message_is_told_where_it_is_whole(
    world: World, hosts: tuple[str, str], start: int, end: int, told: str, octets: int
) -> None:
    rules, wire = start_both(world), Wire(world.clients)
    message = b"\x01\x00\x20\x12\x00\x00\x01" + b"a/b/c/d/e/f/g/h/i/j/k/l/m"
    whole = udp_frame(*hosts, message)
    part = (start // 8 << (0 if hosts == V4 else 3)) | (0x2000 if hosts == V4 else 1)
    if hosts == V4:
        ip = whole[14:20] + part.to_bytes(2, "big") + whole[22:34]
        ip = ip[:2] + (20 + end - start).to_bytes(2, "big") + ip[4:10] + b"\0\0" + ip[12:]
        ip = ip[:10] + checksum(ip) + ip[12:]
        frame = whole[:14] + ip + whole[34 + start : 34 + end]
    else:
        header = bytes([UDP, 0]) + part.to_bytes(2, "big") + b"\0\0\0\7"
        ip = whole[14:18] + (8 + end - start).to_bytes(2, "big") + b"\x2c" + whole[21:54]
        frame = whole[:14] + ip + header + whole[54 + start : 54 + end]
        told = told.replace("10.0.0.2:", "[fd00::2]:").replace("10.0.0.1:", "[fd00::1]:")
    wire.send(frame)
    wire.until_answered()
    [event] = rules.events()
    assert event.startswith(told)
    assert event.split()[-1] == (message[:octets].hex() or "vlan=0")
    assert "raises=true" in event
    rules.stop()
    wire.close()


def start_both(world: World) -> Rules:
    """Start it for a broker with both addresses."""
    both = ("10.0.0.1:1883", "[fd00::1]:1883")
    return start(world, [{"address": at, "vlan": 0, "protocol": "mqtt-sn"} for at in both])


@pytest.mark.parametrize("words", [(), ("--clsact",)], ids=["tcx", "clsact"])
@pytest.mark.parametrize("end", ["stop", "kill", "crash", "service"])
def test_nothing_is_left_behind(world: World, words: tuple[str, ...], end: str) -> None:
    assert world.attached() == []
    rules, wire = accelerated(world, *words), Wire(world.clients)
    assert len(world.attached()) == 2
    if end == "stop":
        rules.stop()
    else:
        if end == "service":  # systemd tells all processes of a service to end
            for child in children(rules.process.pid):
                os.kill(child, signal.SIGTERM)
        rules.process.send_signal(signal.SIGABRT if end == "crash" else signal.SIGKILL)
        rules.process.wait(20)
    until = time.monotonic() + 20
    while world.attached() and time.monotonic() < until:
        time.sleep(0.05)
    assert world.attached() == []
    itself = world.socket(world.broker, "10.0.0.1", 1883)
    message = sn_publish("0007", b"x")
    wire.send(udp_frame(*V4, message))
    assert itself.recv(64) == message
    itself.close()
    # And another one can begin.
    accelerated(world, *words).stop()
    wire.close()


def test_a_second_one_on_the_same_interface_is_refused(world: World) -> None:
    rules = accelerated(world)
    command = ["ip", "netns", "exec", world.broker, str(PROGRAM), "broker"]
    ran = subprocess.run(command, input="", check=False, capture_output=True, text=True)
    assert ran.returncode != 0
    assert "AddrInUse" in ran.stderr
    rules.stop()


@pytest.mark.parametrize(("words", "copies"), [((), 0), (("--in-path",), 1)])
def test_frames_for_another_host_are_copied_only_on_their_way_through(
    world: World, words: tuple[str, ...], copies: int
) -> None:
    rules, wire = accelerated(world, *words), Wire(world.clients)
    frame = udp_frame(*V4, sn_publish("0007", b"x"))
    wire.send(bytes.fromhex("0200000000ee") + frame[6:])
    assert len([frame for frame in wire.until_answered() if is_udp(frame)]) == copies
    assert rules.counters().get("hits", 0) == copies
    rules.stop()
    wire.close()


@pytest.mark.parametrize("words", [(), ("--clsact",)], ids=["tcx", "clsact"])
def test_an_interface_that_goes_away_does_not_stop_the_controller(
    world: World, words: tuple[str, ...]
) -> None:
    another = World("other")
    rules = accelerated(another, *words)
    ip(f"-n {another.broker} link delete broker")
    assert rules.say("done") == "ok"
    rules.stop()
    another.close()
    assert world.attached() == []


def test_a_fragment_closes_the_rules_of_whoever_sent_it_and_those_for_anybody(
    world: World,
) -> None:
    rules, wire = accelerated(world), Wire(world.clients)
    to = {"address": "10.0.0.2:6003", "kind": "registered", "topic": "0001", "hop": 0}
    for publisher, kind in (("10.0.0.9:5000", "registered"), (None, "short")):
        rules.rule({"broker": 0, "publisher": publisher, "kind": kind, "topic": "6162",
                    "subscribers": [to]})  # fmt: skip
    keys = ("10.0.0.2:5000 registered=7", "10.0.0.9:5000 registered=24930", "- short=6162")
    publish = udp_frame(*V4, sn_publish("0007", b"x"))
    wire.send(publish[:20] + b"\x20\x00" + publish[22:])
    wire.until_answered()
    assert [rules.say(f"counts 0 {key}") for key in keys] == ["1 0 0", "0 0 0", "1 0 0"]
    [event] = rules.events()
    assert event.startswith("Fragment 10.0.0.2:5000 10.0.0.1:1883")
    assert "raises=true" in event
    rules.say("done")
    wire.send(publish)
    assert not [frame for frame in wire.until_answered() if is_udp(frame)]
    assert rules.say(f"counts 0 {keys[0]}") == "2 0 0"
    rules.say(f"open 0 {keys[0]} 2")
    wire.send(publish)
    assert len([frame for frame in wire.until_answered() if is_udp(frame)]) == 1
    rules.stop()
    wire.close()


def test_when_there_is_no_room_for_another_rule_it_is_refused_and_the_others_copy(
    world: World,
) -> None:
    rules, wire = accelerated(world), Wire(world.clients)
    assert rules.say("fill 17000") == "16383 StorageFull"
    rules.say("done")  # and so alive: that took a while
    message = sn_publish("0007", b"x")
    wire.send(udp_frame(*V4, message))
    assert len([frame for frame in wire.until_answered() if is_udp(frame)]) == 1
    itself = world.socket(world.broker, "10.0.0.1", 1883)
    wire.send(udp_frame(*V4, sn_publish("0008", b"x")))
    assert itself.recv(64) == sn_publish("0008", b"x")
    itself.close()
    rules.stop()
    wire.close()


def test_the_way_to_a_host_is_the_one_that_the_kernel_would_take(world: World) -> None:
    rules = accelerated(world)
    by = f"-n {world.broker} "

    def way(host: str) -> str:
        return rules.say(f"way {host}").replace(f"{world.interface} ", "b ", 1)

    ip(by + "neighbour replace 10.0.0.7 lladdr 02:00:00:00:00:07 nud permanent dev broker")
    assert way("10.0.0.7") == "b 02:00:00:00:00:07"
    ip(by + "neighbour replace 10.0.0.7 lladdr 02:00:00:00:00:77 nud reachable dev broker")
    assert way("10.0.0.7") == "b 02:00:00:00:00:77"
    # Beyond a router, then directly, then not at all.
    ip(by + "route add 10.9.0.0/16 via 10.0.0.7")
    assert way("10.9.1.1") == "b 02:00:00:00:00:77"
    ip(by + "neighbour replace 10.9.1.1 lladdr 02:00:00:00:09:01 nud permanent dev broker")
    ip(by + "route replace 10.9.1.0/24 dev broker")
    assert way("10.9.1.1") == "b 02:00:00:00:09:01"
    ip(by + "route replace blackhole 10.9.1.0/24")
    assert way("10.9.1.1") == "none"
    ip(by + "route delete 10.9.1.0/24")
    assert way("10.9.1.1") == "b 02:00:00:00:00:77"
    ip(by + "neighbour replace fd00::7 lladdr 02:00:00:00:00:06 nud permanent dev broker")
    assert way("10.0.0.1") == way("127.0.0.1") == "none"
    # An entry that has failed, and one that is gone.
    ip(by + "neighbour change 10.0.0.7 nud failed dev broker")
    assert way("10.0.0.7") == way("10.9.1.1") == "none"
    ip(by + "neighbour delete 10.9.1.1 dev broker")
    ip(by + "route delete 10.9.0.0/16")
    assert way("10.9.1.1") == "none"
    rules.stop()


def test_a_neighbour_that_nobody_confirms_is_asked_and_one_that_is_gone_fails(
    world: World,
) -> None:
    rules = accelerated(world)
    by = f"-n {world.broker} "
    entry = (
        f"lladdr {':'.join(MACS['publisher'][at : at + 2] for at in range(0, 12, 2))} dev broker"
    )
    ip(by + f"neighbour replace 10.0.0.2 {entry} nud stale")
    ip(by + f"neighbour replace 10.0.0.66 {entry} nud stale")
    until = time.monotonic() + 30
    while time.monotonic() < until:
        here, gone = (rules.say(f"way {host}") for host in ("10.0.0.2", "10.0.0.66"))
        show = ["ip", "-n", world.broker, "neighbour", "show", "10.0.0.2"]
        if gone == "none" and "REACHABLE" in subprocess.check_output(show, text=True):
            break
        time.sleep(0.1)
    assert (gone, here.split()[0]) == ("none", str(world.interface))
    rules.stop()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_filters_of_others_stay(world: World, end: str) -> None:
    def tc(words: str, *more: str) -> str:
        command = ["ip", "netns", "exec", world.broker, "tc", *words.split(), *more]
        return subprocess.check_output(command, text=True)

    rules = accelerated(world, "--clsact")
    # Made after ours, and so on a queueing discipline that we have added.
    # Classic BPF that never matches.
    nothing = ("bpf", "bytecode", "1,6 0 0 0")
    for direction in ("ingress", "egress"):
        for priority in ("7", "28018"):
            tc(f"filter add dev broker {direction} pref {priority}", *nothing)
    if end == "stop":
        rules.stop()
    else:
        rules.process.kill()
        rules.process.wait(20)
    until = time.monotonic() + 20
    while any("mqtick" in line for line in world.attached()) and time.monotonic() < until:
        time.sleep(0.05)
    for direction in ("ingress", "egress"):
        left = tc(f"filter show dev broker {direction}")
        assert "mqtick" not in left
        assert "pref 7 " in left
        assert "pref 28018 " in left
    assert "clsact" in tc("qdisc show dev broker")
    # One that begins on it does not take it away, nor what is in the place that it would like.
    tc("filter del dev broker ingress pref 28018")
    accelerated(world, "--clsact").stop()
    assert "pref 7 " in tc("filter show dev broker ingress")
    tc("qdisc del dev broker clsact")
    assert world.attached() == []
