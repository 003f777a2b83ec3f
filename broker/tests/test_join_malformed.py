"""`mqtick-join` and malformed packets: from a client, its broker, or a neighbour.

Meanwhile all others are served: they keep their connections from the beginning to the end, and none
of their messages is lost or comes twice.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.conformance.client import PUBREL, V3, V5, Client, Encoder, packet, text
from broker.tests.harness.events import until
from broker.tests.harness.servers import Server
from broker.tests.harness.sites import MARKS, Site, hello, joined, settled
from demo.local_broker import Mosquitto

pytestmark = MARKS
SEEDS = Path(__file__).parents[1] / "server/fuzz/seeds/words"


class Steady:
    """A publisher at one site and a subscriber at each, which connect only once."""

    def __init__(self, writes: Site, *sites: Site) -> None:
        self.readers = [site.client(f"steady-{site.name}") for site in sites]
        for reader in self.readers:
            reader.subscribe("steady")
        settled(*sites)
        self.writer = writes.client("steady-writer")
        self.count = 0

    def is_served(self) -> None:
        """Check that one more message reaches all subscribers, and nothing else."""
        self.count += 1
        payload = b"%d" % self.count
        self.writer.publish("steady", payload, qos=2)
        assert [reader.message().payload for reader in self.readers] == [payload] * len(
            self.readers
        )


def damaged(octets: bytes, chance: random.Random) -> bytes:
    """Change it one to three times: replace, remove or insert octets, or cut off the rest."""
    some = bytearray(octets)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(some)) if some else 0
        how = chance.randrange(5)
        if how == 0 and some:
            some[at] ^= 1 << chance.randrange(8)
        elif how == 1 and some:
            some[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif how == 2:
            del some[at : at + chance.randrange(1, 4)]
        elif how == 3:
            some[at:at] = chance.randbytes(chance.randrange(1, 20))
        elif len(some) > 1:
            del some[max(at, 1) :]
    return bytes(some)


def to_the_end(one: socket.socket, octets: bytes) -> None:
    """Send octets, and read until the other end has closed the connection."""
    one.settimeout(60)
    with contextlib.suppress(ConnectionError):
        one.sendall(octets)
        one.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionError):
        while one.recv(65536):
            pass


# -- clients ---------------------------------------------------------------------------------------


def conversation(version: int, name: str, chance: random.Random) -> list[bytes]:
    """The packets of a client: a CONNECT, then packets of all kinds in any order."""
    encode = Encoder(version)
    alias = [("topic_alias", 1)] if version == V5 else []
    rest = [
        encode.subscribe(1, ("steady", 1), ("x/#", 2)),
        encode.unsubscribe(2, "x/#"),
        encode.publish("x/a", b"0" * 30),
        encode.publish("x/a", b"1", qos=1, packet_id=3, retain=True),
        encode.publish("x/a", b"2", qos=2, packet_id=4, properties=alias),
        encode.ack(PUBREL, 4),
        packet(12, 0, b""),
        encode.publish("x/a", b"3", qos=1, packet_id=5, dup=True),
    ]
    chance.shuffle(rest)
    return [encode.connect(name, keep_alive=60), *rest, encode.disconnect()]


@pytest.mark.slow
def test_clients_whose_packets_are_damaged_anywhere_end_their_own_connection_only(
    pair: list[Site],
) -> None:
    here, there = pair
    steady = Steady(here, here, there)
    chance = random.Random(15)
    for turn in range(300):
        said = conversation(V5 if turn % 2 else V3, f"hostile{turn}", chance)
        wrong = chance.randrange(len(said))
        said[wrong] = damaged(said[wrong], chance) if turn % 5 else chance.randbytes(40)
        with socket.create_connection(("127.0.0.1", here.port)) as one:
            to_the_end(one, b"".join(said))
        if turn % 10 == 0:
            steady.is_served()
    steady.is_served()
    until(lambda: here.now("clients") == 2, "the others are gone")
    assert here.now("refused_packets") > 50
    assert [site.now("neighbours") for site in pair] == [1, 1]


# -- the broker ------------------------------------------------------------------------------------


class Middle(Server):
    """Relays between a node and Mosquitto, and can change what Mosquitto says.

    Attributes:
        change: Gets the client identifier of a connection and octets of the broker, and returns
            the octets to relay instead.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.real = Mosquitto(folder)
        self.change: Callable[[str, bytes], bytes] = lambda _, octets: octets

    def start(self) -> None:
        """Start Mosquitto, and listen before it."""
        self.real.start()
        super().start()

    def stop(self) -> None:
        """Stop both."""
        super().stop()
        self.real.stop()

    def serve(self, one: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.real.port)) as other:
            for it in (one, other):
                it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first = one.recv(65536)
            start = 12 if first[8:9] == b"\x04" else first[12] + 13  # of its identifier
            name = first[start + 2 : start + 2 + first[start + 1]].decode(errors="replace")
            other.sendall(first)
            said = threading.Thread(target=_hand_on, args=(one, other, bytes), daemon=True)
            said.start()
            _hand_on(other, one, lambda octets: self.change(name, octets))
            said.join()


def _hand_on(source: socket.socket, to: socket.socket, change: Callable[[bytes], bytes]) -> None:
    with contextlib.suppress(OSError):
        while octets := source.recv(65536):
            to.sendall(change(octets))
    for one in (source, to):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[tuple[Middle, list[Site]]]:
    """Two sites; the second broker can be made to say anything."""
    with joined(tmp_path, [Mosquitto, Middle]) as sites:
        broker = sites[1].broker
        assert isinstance(broker, Middle)
        yield broker, sites


@pytest.mark.slow
def test_a_broker_whose_packets_are_damaged_ends_the_connection_of_that_client_only(
    behind: tuple[Middle, list[Site]],
) -> None:
    broker, (here, there) = behind
    steady = Steady(here, here, there)
    chance = random.Random(15)
    left: dict[str, int] = {}

    def change(name: str, octets: bytes) -> bytes:
        if not name.startswith("victim"):
            return octets
        # Seldom the first one: whoever is not taken then waits for a time.
        first = chance.randrange(0 if name.endswith("0") else 1, 8)
        left[name] = left.get(name, first) - 1
        return damaged(octets, chance) if left[name] == -1 else octets

    broker.change = change
    for turn in range(80):
        version = V5 if turn % 2 else V3
        said = conversation(version, f"victim{turn}", chance)
        with socket.create_connection(("127.0.0.1", there.port)) as one:
            one.settimeout(0.5)  # an answer may be cut off
            with contextlib.suppress(ConnectionError, TimeoutError):
                for each in said[:-1]:
                    one.sendall(each + packet(12, 0, b""))
                    if not one.recv(65536):
                        break
            to_the_end(one, said[-1])
        if turn % 10 == 0:
            steady.is_served()
    steady.is_served()
    until(lambda: there.now("clients") == 1, "the others are gone")
    assert there.now("refused_packets") > 10


@pytest.mark.parametrize(
    "wrong",
    [
        packet(0, 0, b""),
        packet(4, 0, b"\0"),
        packet(5, 3, b"\0\1"),
        packet(9, 0, b"\0"),
        packet(3, 6, text("a") + b"\0\1\0"),
        b"\x20\xff\xff\xff\xff",
        b"HTTP/1.1 400 Bad Request\r\n" * 5,
    ],
    ids=str,
)
def test_a_broker_that_talks_nonsense_to_the_node_is_named_and_loses_nothing(
    behind: tuple[Middle, list[Site]], wrong: bytes
) -> None:
    broker, (here, there) = behind
    local = there.client("local")
    local.subscribe(("all/#", 2), ("own", 2))
    settled(here, there)
    writer = here.client("writer")
    spoilt: set[str] = set()

    def change(name: str, octets: bytes) -> bytes:
        if name.startswith("mqtick-join-") and octets[0] >> 4 in (4, 5) and name not in spoilt:
            spoilt.add(name)
            return wrong + octets
        return octets

    broker.change = change
    sent = [b"%d" % number for number in range(40)]
    for number, payload in enumerate(sent):
        writer.publish(f"all/{number}", payload, qos=1 + number % 2)
    came = [local.message().payload for _ in sent]
    while len(set(came)) < len(sent):
        came.append(
            local.message().payload
        )  # of QoS 1, some come twice: they were not acknowledged
    local.publish("own", b"works", qos=2)
    while local.message().payload != b"works":
        pass
    settled(here, there)
    assert spoilt
    assert there.now("refused_packets") == len(spoilt)
    there.says("away: ")
    for number in range(1, len(sent), 2):
        assert came.count(b"%d" % number) == 1, "QoS 2 comes once even so"


# -- neighbours ------------------------------------------------------------------------------------


def stranger(site: Site, number: int = 0) -> Client:
    """A neighbour with one connection, which the node has accepted."""
    name = hello(f"{number + 0xABC:x}", key=number + 5, rest=f"subscriptions/bad{number}")
    one = Client(("127.0.0.1", site.port), V5, name)
    assert one.connect().reason == 0
    return one


@pytest.mark.slow
def test_neighbours_whose_words_are_damaged_anywhere_are_parted_with_and_nobody_else(
    pair: list[Site],
) -> None:
    here, there = pair
    steady = Steady(here, here, there)
    words = [seed.read_bytes() for seed in sorted(SEEDS.iterdir())]
    assert len(words) > 10
    chance = random.Random(15)
    for turn in range(300):
        said = [chance.choice(words) for _ in range(5)]
        wrong = chance.randrange(len(said))
        said[wrong] = damaged(said[wrong], chance) if turn % 5 else chance.randbytes(40)
        one = stranger(here, turn)
        assert isinstance(one.socket, socket.socket)
        to_the_end(one.socket, b"".join(said))
        one.close()
        if turn % 10 == 0:
            steady.is_served()
    steady.is_served()
    until(lambda: here.now("neighbours") == 1, "they are gone")
    assert here.now("refused_packets") > 100
    here.says("neighbour bad0 at ")
    assert [site.now("nodes") for site in pair] == [2, 2]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (packet(0, 0, b""), "packet type"),
        (packet(3, 6, text("t") + b"\0\1\0"), "QoS"),
        (packet(8, 0, b"\0\1\0" + text("a") + b"\1"), "flags"),
        (b"\x30\xff\xff\xff\xff\x01", "byte integer"),
        (Encoder(V5).publish("$mqtick-join/topology", b"nonsense"), "topology"),
        (Encoder(V5).publish("$mqtick-join/topology", b"1 2 name 3"), "topology"),
        (Encoder(V5).publish("t", b"without a key"), "without a key"),
        (
            Encoder(V5).publish("$SYS/x", b"", properties=[("user", (b"mqtick-join", b"1 1 1 0"))]),
            "",
        ),
        (Encoder(V5).subscribe(1, ("$SYS/#", 1)), ""),
        (Encoder(V5).subscribe(1, ("a/#/b", 1)), "filter"),
        (Encoder(V5).connect("again"), "no neighbour sends"),
    ],
    ids=str,
)
def test_what_a_neighbour_said_wrong_is_in_the_log_and_counted(
    pair: list[Site], wrong: bytes, why: str
) -> None:
    steady = Steady(pair[0], *pair)
    one = stranger(pair[0])
    one.send(one.encode.subscribe(1, ("x/#", 2)))
    until(lambda: pair[0].now("neighbours") == 2, "it is taken for one")
    one.send(wrong)
    one.ended()
    assert pair[0].now("refused_packets") == 1
    line = next(
        each
        for each in pair[0].log.read_text().splitlines()
        if "neighbour bad0" in each and "away: " in each
    )
    assert why in line
    steady.is_served()
