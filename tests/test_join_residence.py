"""Each copy says how long it was in nodes and brokers of any kind; links are left out."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from joined import JOIN, V5, Client, Site, settled, wanted
from test_join_time import LINK_S, LongWire
from test_residence_end_to_end import NOT_STATED, UNKNOWN, Node, OurBroker, trailer_of

from demo.local_broker import Mosquitto, program
from mqtick.protocol.precise import Loop

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif(program("mosquitto") is None, reason=Mosquitto.missing),
    pytest.mark.skipif(not JOIN.exists(), reason="mqtick-join is not built: make test-broker does"),
]
TOPIC = "mqtick/c/a"
LINK_NS = round(LINK_S * 1e9)
MS = 1_000_000


class Ground:
    """Sites, and long wires between what they are made of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = contextlib.ExitStack()
        self.sites: list[Site] = []

    def wire(self, port: int) -> str:
        """A long wire to a port: where it begins."""
        wire = LongWire(port)
        self.stack.callback(wire.close)
        return wire.url

    def site(
        self,
        kind: type[Mosquitto] = Mosquitto,
        *neighbours: str,
        slow: bool = False,
        lines: str = "",
    ) -> Site:
        """One more site; `slow`: between its node and its broker is a long wire."""
        own = self.folder / f"site-{len(self.sites)}"
        own.mkdir()
        broker = kind(own)
        broker.start()
        self.stack.callback(broker.stop)
        url = self.wire(broker.port) if slow else None
        site = Site(own, broker, neighbours=neighbours, url=url, lines=lines)
        site.start()
        self.stack.callback(site.stop)
        self.sites.append(site)
        return site

    def row(self, *lines: str) -> tuple[Node, Node]:
        """Sites in a row with these settings: somebody who hears at the last, and who speaks at the
        first one."""
        for setting in lines:
            before = [self.sites[-1].url] if self.sites else []
            self.site(Mosquitto, *before, lines=setting)
        return self.ends()

    def ends(self) -> tuple[Node, Node]:
        """Somebody who hears at the last site, and somebody who speaks at the first one."""
        settled(*self.sites)
        hearer = Node(self.sites[-1].port, "mqtick/#")
        for site in self.sites:
            wanted(site, 1)
        return hearer, Node(self.sites[0].port)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    with made.stack:
        yield made


def payload(number: int = 0) -> bytes:
    """A message like no other one."""
    return Loop(3, struct.pack(">Q", number)).payload()


def until_stated(say: Callable[[bytes], bytes]) -> tuple[bytes, int]:
    """Say one after the other until a copy states its residence, as a machine that is busy may lose
    a stamp; that copy, and how long it took from before it was said to after it was heard."""
    for number in range(20):
        begin_ns = time.monotonic_ns()
        copy = say(payload(number))
        took_ns = time.monotonic_ns() - begin_ns
        if copy[-16:] != NOT_STATED:
            return copy, took_ns
    raise AssertionError("no copy states anything")


def relayed(hearer: Node, writer: Node, octets: bytes) -> bytes:
    writer.say(TOPIC, octets)
    topic, copy = hearer.hear()
    assert (topic, copy[:-16]) == (TOPIC, octets[:-16])
    return copy


@pytest.mark.parametrize("kind", [Mosquitto, OurBroker])
def test_time_on_the_way_to_the_broker_and_back_is_stated_whatever_broker_it_is(
    kind: type[Mosquitto], ground: Ground
) -> None:
    site = ground.site(kind, slow=True)
    hearer, writer = Node(site.port, "mqtick/#"), Node(site.port)
    copy, took_ns = until_stated(lambda octets: relayed(hearer, writer, octets))
    stated, _, _, source = trailer_of(copy)
    assert 2 * LINK_NS < stated >> 16 < took_ns
    assert source == 1


def test_each_copy_corrects_the_one_before(ground: Ground) -> None:
    site = ground.site()
    hearer, writer = Node(site.port, "mqtick/+/a"), Node(site.port)
    corrected = 0
    counts = []
    for number in range(30):
        _, correction_ns, count, source = trailer_of(relayed(hearer, writer, payload(number)))
        if source:
            counts.append(count)
        if correction_ns != UNKNOWN:
            assert correction_ns >= 0, "it is said before it leaves"
            corrected += 1
    assert counts == list(range(1, len(counts) + 1))
    assert corrected > 10


def test_between_sites_nodes_and_brokers_are_stated_and_the_link_is_not(ground: Ground) -> None:
    first = ground.site()
    ground.site(Mosquitto, ground.wire(first.port), slow=True)
    hearer, writer = ground.ends()
    copy, took_ns = until_stated(lambda octets: relayed(hearer, writer, octets))
    stated, correction_ns, count, source = trailer_of(copy)
    assert 2 * LINK_NS < stated >> 16 < took_ns - LINK_NS
    assert (correction_ns, count, source) == (UNKNOWN, 0, 1), "it belongs to no single node"


def test_over_three_sites_the_sum_grows(ground: Ground) -> None:
    hearer, writer = ground.row("", "", "")
    copy, took_ns = until_stated(lambda octets: relayed(hearer, writer, octets))
    assert 0 < trailer_of(copy)[0] >> 16 < took_ns


@pytest.mark.parametrize("silent", range(3))
def test_where_one_node_states_nothing_nothing_is_stated(ground: Ground, silent: int) -> None:
    """A node that leaves payloads on this topic alone must not let the others' sum look whole."""
    settings = ["", "", ""]
    settings[silent] = "residence = false"
    hearer, writer = ground.row(*settings)
    for number in range(5):
        copy = relayed(hearer, writer, payload(number))
        assert trailer_of(copy)[3] == 0


def test_of_what_came_twice_or_is_retained_nothing_is_stated(ground: Ground) -> None:
    site = ground.site()
    hearer, writer = Node(site.port, "mqtick/#"), Node(site.port)
    relayed(hearer, writer, payload(1))
    assert relayed(hearer, writer, payload(1))[-16:] == NOT_STATED
    writer.say(TOPIC, payload(2), retain=True)
    assert hearer.hear()[1][-16:] == NOT_STATED
    assert Node(site.port, "mqtick/#").hear()[1][-16:] == NOT_STATED
    other = Node(site.broker.port)
    other.say(TOPIC, payload(3))
    assert hearer.hear()[1][-16:] == NOT_STATED, "it came past the node"


@pytest.mark.parametrize("sites", [1, 2])
def test_what_a_publisher_says_is_not_believed(sites: int, ground: Ground) -> None:
    """Whoever hears a message can publish it again, with a trailer of his own."""
    hearer, writer = ground.row(*[""] * sites)
    first = 1000 * MS << 16
    said = [(first, 7 << 8 | 3), (first, 1), (first, 0), (first, 4), (2**64 - 1, 1), (0, 1)]
    for number, (stated, source) in enumerate(3 * said):
        octets = payload(number)[:-16] + struct.pack(">QiI", stated, 70, source)
        assert relayed(hearer, writer, octets)[-16:] == NOT_STATED


def test_nobody_tells_a_node_how_long_anothers_message_was_here(ground: Ground) -> None:
    """On a topic of his own, with a lie behind it, before the message itself comes past the node."""
    site = ground.site()
    hearer, liar = Node(site.port, "mqtick/#"), Node(site.port)
    lie = payload()[:-16] + struct.pack(">QiI", 1000 * MS << 16, UNKNOWN, 1)
    liar.say("mqtick/c/liar", lie)
    assert hearer.hear()[0] == "mqtick/c/liar", "the node has it"
    Node(site.broker.port).say(TOPIC, payload())
    assert hearer.hear() == (TOPIC, payload()[:-16] + NOT_STATED)


def test_a_lie_in_a_message_with_a_mistake_does_not_go_on(ground: Ground) -> None:
    """Mosquitto passes on an empty response topic, and clients take it."""
    site = ground.site()
    hearer = site.client("hearer")
    hearer.subscribe(("mqtick/#", 0))
    liar = Client(("127.0.0.1", site.broker.port), V5, "liar")
    liar.connect()
    lie = payload()[:-16] + struct.pack(">QiI", 1000 * MS << 16, 1000 * MS, 8 << 8 | 1)
    liar.send(liar.encode.publish(TOPIC, lie, properties=[("response_topic", "")]))
    assert hearer.message().payload == payload()[:-16] + NOT_STATED


def test_nobody_elses_payload_is_written_into(ground: Ground) -> None:
    ground.site()
    ground.site(Mosquitto, ground.sites[0].url)
    settled(*ground.sites)
    hearer = Node(ground.sites[1].port, "#")
    for site in ground.sites:
        wanted(site, 1)
    writer = Node(ground.sites[0].port)
    for topic, octets in [
        ("mqtick/l/0", b"\x27" + bytes(15)),
        ("mqtick/l/0", b"\x27" + bytes(64)),
        ("mqtick/l/0", b"\x17" + bytes(31)),
        ("mqticks/l/0", b"\x27" + bytes(31)),
    ]:
        writer.say(topic, octets)
        assert hearer.hear() == (topic, octets)
