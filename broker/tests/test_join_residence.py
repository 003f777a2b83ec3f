"""Each copy states how long it was in nodes and brokers of any kind, without the links."""

from __future__ import annotations

import contextlib
import random
import signal
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from broker.conformance.client import V3, V5, Client
from broker.tests.harness.clock import slew, stepped_clock
from broker.tests.harness.sites import MARKS, Site, running_site, settled, wanted
from broker.tests.harness.timing import (
    APART_S,
    LINK_S,
    NOT_STATED,
    OTHER,
    TIMED,
    TOPIC,
    UNKNOWN,
    LongWire,
    Node,
    Rounds,
    TimeBroker,
    payload,
    relayed,
    trailer_of,
    until_stated,
)
from demo.local_broker import Mosquitto
from mqtick.mqtt import Broker
from mqtick.protocol.residence import Copies, Residence

pytestmark = [*MARKS, pytest.mark.slow]
LINK_NS = round(LINK_S * 1e9)
MS = 1_000_000
CHRONYDS_PPM = 83_333
"""How fast chronyd slews at most by default (maxslewrate)."""
UNNOTICED_PPM = 500
QUIET_S = 3.0


class Ground:
    """Sites, and long wires between their parts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = contextlib.ExitStack()
        self.sites: list[Site] = []

    def wire(self, port: int) -> str:
        """A long wire to a port. Returns the URL of its near end."""
        wire = LongWire(port)
        self.stack.callback(wire.close)
        return wire.url

    def site(
        self,
        kind: type[Mosquitto] = Mosquitto,
        *neighbours: str,
        slow: bool = False,
        lines: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Site:
        """One more site; `slow`: between its node and its broker is a long wire."""
        own = self.folder / f"site-{len(self.sites)}"
        own.mkdir()
        broker = kind(own)
        url = self.wire(broker.port) if slow else None
        options = {"neighbours": neighbours, "url": url, "lines": lines}
        site = running_site(own, broker, **options, environment=environment)
        self.sites.append(self.stack.enter_context(site))
        return self.sites[-1]

    def row(self, *lines: str) -> tuple[Node, Node]:
        """Sites in a row with these settings: a subscriber at the last one, a publisher at the
        first one."""
        for setting in lines:
            before = [self.sites[-1].url] if self.sites else []
            self.site(Mosquitto, *before, lines=setting)
        return self.ends()

    def ends(self) -> tuple[Node, Node]:
        """A subscriber at the last site, and a publisher at the first one."""
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


@pytest.mark.parametrize("kind", [Mosquitto, TimeBroker])
def test_time_on_the_way_to_the_broker_and_back_is_stated_whatever_broker_it_is(
    kind: type[Mosquitto], ground: Ground
) -> None:
    site = ground.site(kind, slow=True)
    hearer, writer = Node(site.port, "mqtick/#"), Node(site.port)
    copy, took_ns = until_stated(lambda octets: relayed(hearer, writer, octets))
    stated, _, _, source = trailer_of(copy)
    assert 2 * LINK_NS < stated >> 16 < took_ns
    assert source == 1


def test_a_clock_that_is_slewed_makes_no_residence_longer(ground: Ground, tmp_path: Path) -> None:
    clock, environment = stepped_clock(tmp_path)
    site = ground.site(slow=True, environment=environment)
    hearer, writer = Node(site.port, "mqtick/#"), Node(site.port)
    longest_ns = 0
    for number in range(20):
        relayed(hearer, writer, payload(2 * number))
        begin_ns = time.monotonic_ns()
        writer.say(TOPIC, payload(2 * number + 1))
        slew(clock, CHRONYDS_PPM)
        stated, _, _, _ = trailer_of(hearer.hear()[1])
        assert stated >> 16 < time.monotonic_ns() - begin_ns
        longest_ns = max(longest_ns, stated >> 16)
        slew(clock, 0)
    assert longest_ns > 2 * LINK_NS


def test_what_comes_while_the_clock_is_slewed_is_not_stated(ground: Ground, tmp_path: Path) -> None:
    clock, environment = stepped_clock(tmp_path)
    slew(clock, CHRONYDS_PPM)
    site = ground.site(environment=environment)
    hearer, writer = Node(site.port, "mqtick/#"), Node(site.port)
    for number in range(5):
        assert relayed(hearer, writer, payload(number))[-16:] == NOT_STATED


def test_a_slew_that_begins_while_the_node_is_suspended_makes_no_residence_longer(
    ground: Ground, tmp_path: Path
) -> None:
    """Residence is less than the clock may gain unnoticed since the last message."""
    clock, environment = stepped_clock(tmp_path)
    site = ground.site(environment=environment)
    hearer, writer = Node(site.port, "mqtick/#"), Node(site.port)
    assert site.process is not None
    for number in range(10):
        relayed(hearer, writer, payload(3 * number))
        time.sleep(QUIET_S)
        relayed(hearer, writer, payload(3 * number + 1))
        time.sleep(QUIET_S)
        site.process.send_signal(signal.SIGSTOP)
        slew(clock, CHRONYDS_PPM)
        begin_ns = time.monotonic_ns()
        writer.say(TOPIC, payload(3 * number + 2))
        time.sleep(0.9 * QUIET_S * UNNOTICED_PPM / CHRONYDS_PPM)
        site.process.send_signal(signal.SIGCONT)
        stated, *_, source = trailer_of(hearer.hear()[1])
        assert stated >> 16 <= time.monotonic_ns() - begin_ns
        if source:
            return
        slew(clock, 0)
    raise AssertionError("it is noticed each time, as the machine is busy")


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


def test_what_is_stated_and_its_correction_are_what_the_kernels_stamps_allow(
    ground: Ground,
) -> None:
    rounds = Rounds(Broker("mqtt", "127.0.0.1", ground.site().port))
    timed = []
    for number in range(40):
        timed.append((rounds.between_ns(TIMED, payload(number)), rounds.heard[-1][1]))
        if number % 4 == 1:  # octets that no stamp is asked for
            rounds.between_ns(OTHER, bytes(20_000 + number))
        rounds.loop.turn_for(APART_S)
    rounds.close()
    corrected = 0
    for between_ns, residence in timed:
        if between_ns is not None and residence is not None:
            assert 0 < residence.stated >> 16 <= residence.ns <= between_ns
            corrected += residence.correction_ns is not None
    assert corrected > 20


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
    """If one node does not touch payloads on this topic, the others must not state a sum."""
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
    """Any client can publish a message again, with a trailer of its own."""
    hearer, writer = ground.row(*[""] * sites)
    first = 1000 * MS << 16
    said = [(first, 7 << 8 | 3), (first, 1), (first, 0), (first, 4), (2**64 - 1, 1), (0, 1)]
    for number, (stated, source) in enumerate(3 * said):
        octets = payload(number)[:-16] + struct.pack(">QiI", stated, 70, source)
        assert relayed(hearer, writer, octets)[-16:] == NOT_STATED


def test_nobody_tells_a_node_how_long_anothers_message_was_here(ground: Ground) -> None:
    """A client publishes it elsewhere, with a lie, before the message comes past the node."""
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


class Witness:
    """A subscriber that compares each copy with the time at which its message was first sent."""

    def __init__(self, client: Client, sent_ns: dict[bytes, int], last: bytes) -> None:
        self.client, self.sent_ns, self.last = client, sent_ns, last
        self.stated = self.corrected = 0
        self.wrong: list[str] = []
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        copies = Copies()
        before: tuple[Residence, int] | None = None
        while (message := self.client.message()).payload[:-16] != self.last[:-16]:
            age_ns = time.monotonic_ns() - self.sent_ns.get(message.payload[:-16], 0)
            if message.topic == b"other/a":
                if message.payload[-16:] == NOT_STATED:
                    self.wrong.append(f"written into: {message}")
                continue
            copies.note(message.payload)
            if before is not None and before[0].correction_ns is not None:
                self.corrected += 1
                self._judge(*before)
            before = None
            if copies.current is not None:
                before = copies.current, age_ns
                self.stated += 1
                self._judge(*before)

    def _judge(self, residence: Residence, age_ns: int) -> None:
        if residence.ns > age_ns:
            self.wrong.append(f"{residence} of a message that is {age_ns} ns old")


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_clients_do_no_copy_states_more_than_the_age_of_its_message(
    seed: int, ground: Ground
) -> None:
    near = ground.site()
    far = ground.site(Mosquitto, near.url)
    settled(near, far)
    chance, sent_ns, last = random.Random(seed), dict[bytes, int](), payload(2**32)
    witnesses = []
    for site in (near, far):
        for name, version, filters in [
            ("plain", V3, ["mqtick/#", "other/#"]),
            ("twice", V5, ["mqtick/#", "mqtick/+/a", "other/#"]),
            ("shared", V5, [f"$share/{site.name}/mqtick/#", "mqtick/end/a"]),
        ]:
            client = site.client(name, version)
            client.subscribe(*((one, chance.randrange(3)) for one in filters))
            witnesses.append(Witness(client, sent_ns, last))
    settled(near, far)
    places = [site.port for site in (near, far)] * 2 + [site.broker.port for site in (near, far)]
    writers = []
    for number, port in enumerate(places):
        writers.append(Client(("127.0.0.1", port), chance.choice([V3, V5]), f"writer-{number}"))
        writers[-1].connect()
    lies = [(1000 * MS << 16, UNKNOWN, 1), (1, 1000 * MS, 0), (5 * MS << 16, 0, 2), (0, UNKNOWN, 0)]
    for number in range(400):
        octets = payload(chance.randrange(max(number - 5, 0), number + 3))
        if chance.random() < 0.3:
            stated, correction_ns, source = chance.choice(lies)
            copy = chance.randrange(1, number + 2)
            octets = octets[:-16] + struct.pack(">QiI", stated, correction_ns, copy << 8 | source)
        topic = chance.choice([TOPIC, TOPIC, "mqtick/t/1", "mqtick/c/liar", "other/a"])
        writer, qos = chance.choice(writers), chance.randrange(3)
        is_mistaken = writer in writers[-2:] and writer.version == V5 and chance.random() < 0.3
        sent_ns.setdefault(octets[:-16], time.monotonic_ns())
        writer.publish(
            topic,
            octets,
            qos=qos,
            retain=chance.random() < 0.1,
            properties=[("response_topic", "")] if is_mistaken else (),
        )
    for site in (near, far):
        end = Client(("127.0.0.1", site.broker.port), V3, "end")
        end.connect()
        end.publish("mqtick/end/a", last, qos=2)
    for witness in witnesses:
        witness.thread.join(60)
        assert not witness.thread.is_alive()
        assert not witness.wrong, witness.wrong[:3]
    assert sum(witness.stated for witness in witnesses) > 100
    assert sum(witness.corrected for witness in witnesses) > 10
