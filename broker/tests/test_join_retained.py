"""`mqtick-join`: messages retained before sites were joined are at all sites afterwards."""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.conformance.client import PUBLISH, V3, V5, Client, Packet
from broker.tests.harness.events import until
from broker.tests.harness.servers import Server
from broker.tests.harness.sites import MARKS, Site, running_site, settled
from demo.local_broker import Mosquitto, MqtickBroker, Nats, program, running

pytestmark = MARKS


@contextlib.contextmanager
def site(folder: Path, broker: Mosquitto, **options: Any) -> Iterator[Site]:
    """A site without neighbours, whose node starts now."""
    one = Site(folder, broker, **options)
    one.start()
    try:
        settled(one)
        until(lambda: one.status()["retained_known"], "the node knows what its broker has")
        yield one
    finally:
        one.stop()


@contextlib.contextmanager
def brokers(folder: Path, *kinds: type[Mosquitto]) -> Iterator[list[Mosquitto]]:
    """Brokers of these kinds, each in a folder of its own."""
    with contextlib.ExitStack() as open_ones:
        found = []
        for number, kind in enumerate(kinds):
            own = folder / f"site-{number}"
            own.mkdir()
            found.append(open_ones.enter_context(running(kind(own))))
        yield found


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Site]]:
    """Two sites that do not know each other."""
    with (
        brokers(tmp_path, Mosquitto, Mosquitto) as (one, other),
        site(one.folder, one) as here,
        site(other.folder, other) as there,
    ):
        yield [here, there]


number = itertools.count()


def version(where: Site | Mosquitto) -> int:
    """The MQTT version that a broker speaks."""
    broker = where.broker if isinstance(where, Site) else where
    return V5 if broker.mqtt_version == "5" else V3


def keep(
    where: Site | Mosquitto,
    topic: str,
    payload: bytes,
    properties: Sequence[tuple[str, Any]] = (),
) -> None:
    """Publish a retained message at a node, or at a broker past its node."""
    client = Client(("127.0.0.1", where.port), version(where), f"w-{topic}")
    assert client.connect().reason == 0
    client.publish(topic, payload, qos=1, retain=True, properties=properties)
    client.disconnect()


def kept(where: Site, *filters: str) -> dict[str, Packet]:
    """The retained messages that a new subscriber of a site gets, by topic."""
    # Of a name that comes and goes too fast nats-server wants to know nothing.
    reader = where.client(f"looker-{next(number)}", version(where))
    reader.subscribe(*((one, 1) for one in filters or ("#",)))
    found = {one.topic.decode(): one for one in reader.settle() if one.kind == PUBLISH}
    reader.disconnect()
    return found


def has(where: Site, **wanted: bytes) -> None:
    """Wait until a site has exactly these retained messages."""

    # When a session with `#` ends, nats-server 2.9 answers nobody for 4 s and then refuses some.
    filters = list(wanted) if isinstance(where.broker, Nats) else ["#"]

    def holds() -> bool:
        found = kept(where, *filters)
        return {topic: one.payload for topic, one in found.items()} == wanted

    until(holds, f"{where.name} has not {wanted}")


def join(here: Site, there: Site) -> None:
    """Make neighbours of two nodes that run."""
    assert here.ask("add", there.url).returncode == 0
    settled(here, there)


KINDS = [Mosquitto, MqtickBroker, *([Nats] if program("nats-server") else [])]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_retained_before_two_sites_are_joined_is_at_both_afterwards(
    tmp_path: Path, kind: type[Mosquitto]
) -> None:
    with brokers(tmp_path, kind, Mosquitto) as (one, other):
        keep(one, "old", b"before the node")
        with site(one.folder, one) as here, site(other.folder, other) as there:
            keep(here, "new", b"through the node")
            keep(there, "back", b"the other way")
            join(here, there)
            for at in (here, there):
                has(at, old=b"before the node", new=b"through the node", back=b"the other way")
            assert kept(there)["new"].qos == 1
            assert there.now("retained") == 3


def test_clients_that_are_subscribed_hear_of_it_once_with_its_properties(two: list[Site]) -> None:
    here, there = two
    keep(here, "a", b"x", properties=[("content_type", b"text"), ("user", (b"k", b"v"))])
    reader = there.client("reader")
    reader.subscribe("a")
    join(here, there)
    found = reader.message()
    assert (found.payload, found.get("content_type"), found.get("user")) == (
        b"x",
        b"text",
        (b"k", b"v"),
    )
    # A node that starts anew makes both compare again, and nobody hears of it.
    reader = here.client("reader")
    reader.subscribe("a")
    assert reader.message().payload == b"x"
    there.kill()
    there.start()
    settled(here, there)
    until(lambda: there.now("retained_handed") == 1, "it is handed back")
    until(lambda: not here.now("unconfirmed") + there.now("unconfirmed"), "all is compared")
    assert reader.settle() == []


def test_of_two_that_nodes_saw_the_later_one_is_kept_and_what_was_deleted_stays_so(
    two: list[Site],
) -> None:
    here, there = two
    keep(here, "a", b"first")
    keep(there, "a", b"second")
    keep(there, "b", b"first")
    keep(here, "b", b"second")
    keep(here, "c", b"gone")
    keep(there, "c", b"gone")
    keep(there, "c", b"")
    join(here, there)
    for at in two:
        has(at, a=b"second", b=b"second")


def test_of_two_that_no_node_saw_each_site_keeps_its_own(tmp_path: Path) -> None:
    with brokers(tmp_path, Mosquitto, Mosquitto) as (one, other):
        keep(one, "a", b"here")
        keep(other, "a", b"there")
        keep(other, "b", b"only there")
        with site(one.folder, one) as here, site(other.folder, other) as there:
            join(here, there)
            has(here, a=b"here", b=b"only there")
            has(there, a=b"there", b=b"only there")


def test_a_site_behind_another_one_gets_it_too_and_only_once(tmp_path: Path) -> None:
    with (
        brokers(tmp_path, Mosquitto, Mosquitto, Mosquitto) as (one, middle, far),
        site(one.folder, one) as here,
        site(middle.folder, middle) as between,
        site(far.folder, far) as there,
    ):
        join(between, there)
        keep(here, "a", b"x")
        reader = there.client("watcher")
        reader.subscribe("a")
        assert here.ask("add", between.url).returncode == 0
        settled(here, between, there)
        assert reader.message().payload == b"x"
        has(there, a=b"x")
        assert reader.settle() == []


def test_a_broker_that_came_back_with_nothing_gets_what_the_other_site_has(
    two: list[Site],
) -> None:
    here, there = two
    join(here, there)
    keep(here, "a", b"x")
    has(there, a=b"x")
    there.broker.stop()
    until(lambda: not there.status()["broker_connected"], "it is noticed")
    there.broker.start()
    settled(here, there)
    has(there, a=b"x")


@pytest.mark.parametrize("slow", ["neighbour", "broker"])
def test_who_is_slow_gets_once_it_is_quick_again_what_is_retained_and_it_had_no_room_for(
    tmp_path: Path, slow: str
) -> None:
    tables = "[neighbours]\nconnections = 1\n[limits]\nqueue = 1000000\n"
    with (
        brokers(tmp_path, Mosquitto, Mosquitto) as (one, other),
        site(one.folder, one, tables=tables, keep_alive_s=600) as here,
        site(other.folder, other, tables=tables, keep_alive_s=600) as there,
    ):
        keep(here, "gone", b"x")
        keep(here, "same", b"x")
        join(here, there)
        has(there, gone=b"x", same=b"x")
        until(lambda: here.now("retained_handed") == 2, "all that was before is handed")
        settled(here, there)
        reader = there.client("reader")
        reader.subscribe("news", "gone")
        reader.message()
        process = there.process if slow == "neighbour" else other.process
        at, count = (
            (here, "dropped_neighbour") if slow == "neighbour" else (there, "dropped_broker")
        )
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            writer = here.client("writer")

            def has_no_room() -> int:
                writer.publish("noise", bytes(100_000), retain=True)
                return at.now(count)

            until(has_no_room, "so much it does not hold")
            before = at.now(count)
            for text in (b"first", b"second", b"last"):
                writer.publish("news", text, retain=True)
            writer.publish("gone", b"", retain=True)
            until(lambda: at.now(count) >= before + 4, "there is no room for them")
        finally:
            process.send_signal(signal.SIGCONT)
        has(there, news=b"last", same=b"x", noise=bytes(100_000))
        assert {reader.message().topic for _ in range(2)} == {b"news", b"gone"}
        assert here.now("retained_handed") == 2 + 4, "each topic once"
        settled(here, there)
        assert reader.settle() == []
        for at in (here, there):
            assert "away" not in at.log.read_text()


def test_what_the_access_list_keeps_from_other_sites_stays_there(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("topic readwrite open/#\n")
    with brokers(tmp_path, Mosquitto, Mosquitto) as (one, other):
        keep(one, "closed/found", b"x")
        tables = f'[access]\nacl_file = "{rules}"'
        with (
            site(one.folder, one, tables=f"[neighbours]\n{tables}") as here,
            site(other.folder, other) as there,
        ):
            keep(here, "closed/seen", b"x")
            keep(here, "open/seen", b"x")
            join(here, there)
            until(lambda: kept(there), "what is open comes")
            assert set(kept(there)) == {"open/seen"}


def test_what_is_longer_than_a_node_takes_does_not_keep_the_rest_from_other_sites(
    tmp_path: Path,
) -> None:
    with brokers(tmp_path, Mosquitto, Mosquitto) as (one, other):
        keep(one, "a-long-one", bytes(2000))
        keep(one, "short", b"x")
        with (
            site(one.folder, one, tables="[limits]\npacket = 1024") as here,
            site(other.folder, other) as there,
        ):
            join(here, there)
            has(there, short=b"x")


def test_echo_messages_of_a_time_server_stay_on_their_site_also_retained(two: list[Site]) -> None:
    here, there = two
    keep(here, "mqtick/f/0/c1", bytes([0x18]) + bytes(31))
    keep(here, "other", b"x")
    join(here, there)
    has(there, other=b"x")


class Secretive(Server):
    """A broker that refuses every subscription."""

    def serve(self, one: socket.socket) -> None:
        while octets := one.recv(4096):
            if octets[0] == 0x10:
                one.sendall(b"\x20\x03\0\0\0")
            elif octets[0] == 0x82:
                one.sendall(b"\x90\x04" + octets[2:4] + b"\0\x87")


def test_a_broker_that_does_not_say_what_it_has_is_named_with_the_reason(tmp_path: Path) -> None:
    with running_site(tmp_path, Secretive()) as one:
        one.says("its retained messages cannot be read: the node's account may not subscribe to")
        assert not one.status()["retained_known"]
        assert one.status()["broker_connected"]
