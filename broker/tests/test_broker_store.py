"""`mqtick-broker` with a store: what was acknowledged survives kill -9 and a full disk."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.conformance.client import (
    CONNACK,
    DISCONNECT,
    PING,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    V3,
    V5,
    Client,
    ClosedError,
    Will,
)
from broker.conformance.launch import PASSWORD, USER, write_rules
from broker.tests.harness.brokers import METRICS, Broker, Launch
from broker.tests.harness.events import until
from broker.tests.harness.tools import stand_in

pytestmark = pytest.mark.broker
KEPT = [("session_expiry", 3600)]
QUOTA, NO_IDENTIFIER = 0x97, 0x92


class Stored(Broker):
    """The broker with a store, which outlives it."""

    def __init__(self, folder: Path, lines: str = "", *, store: str = "") -> None:
        self.store = Path(store or folder / "store")
        super().__init__(folder, f'{lines}\n[store]\npath = "{self.store}"')

    def client(self, name: str = "", version: int = V5, **options: Any) -> Client:
        """A client that is connected; without options to a session that is kept."""
        if not options:
            options = {"clean": False, "properties": KEPT if version == V5 else ()}
        return super().client(name, version, **options)


@pytest.fixture
def launch(launch: Launch) -> Launch:
    """Start a broker with a store and these lines of configuration."""
    return functools.partial(launch, kind=Stored)


def waits(broker: Broker, *filters: str | tuple[str, int], name: str = "a") -> None:
    """Have a session that waits for messages, whose client is away."""
    client = broker.client(name)
    client.subscribe(*filters)
    client.vanish()


class Publisher:
    """Publishes without end, some messages at a time; each one until it is acknowledged."""

    def __init__(self, broker: Broker, name: str, qos: int) -> None:
        self.broker, self.id, self.qos = broker, name, qos
        self.client = broker.client(name)
        self.open: dict[int, tuple[bytes, bool]] = {}  # payload, and whether PUBREC came
        self.begun: list[bytes] = []
        self.acknowledged: list[bytes] = []

    def start(self) -> None:
        """Publish until the connection ends."""
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with contextlib.suppress(ClosedError):
            while True:
                while len(self.open) < 20:
                    packet_id = len(self.begun) % 60_000 + 1
                    payload = f"{self.id} {len(self.begun)}".encode()
                    self.begun.append(payload)
                    self.open[packet_id] = (payload, False)
                    self._publish(packet_id, dup=False)
                self._answer()

    def _publish(self, packet_id: int, *, dup: bool) -> None:
        payload, _ = self.open[packet_id]
        encode = self.client.encode
        message = encode.publish("load", payload, qos=self.qos, dup=dup, packet_id=packet_id)
        self.client.send(message)

    def _answer(self) -> None:
        found = self.client.receive()
        if found.kind == DISCONNECT:
            raise ClosedError
        if found.kind == PUBREC:
            assert found.reason == 0
            payload, _ = self.open[found.packet_id]
            self.open[found.packet_id] = (payload, True)
            self.client.send(self.client.encode.ack(PUBREL, found.packet_id))
        else:
            assert found.kind == (PUBACK if self.qos == 1 else PUBCOMP)
            # Of a PUBREL that came before the end and again after it, the identifier is unknown.
            assert found.reason in {0, NO_IDENTIFIER}
            self.acknowledged.append(self.open.pop(found.packet_id)[0])

    def finish(self) -> None:
        """Connect again and end what is open, as the standard says."""
        self.client = self.broker.client(self.id)
        for packet_id, (_, was_received) in list(self.open.items()):
            if was_received:
                self.client.send(self.client.encode.ack(PUBREL, packet_id))
            else:
                self._publish(packet_id, dup=True)
        while self.open:
            self._answer()


class Subscriber:
    """Takes messages as a receiver does that keeps its state."""

    def __init__(self, broker: Broker, *filters: str) -> None:
        self.broker = broker
        self.got: Counter[bytes] = Counter()
        self._ids: set[int] = set()
        self.client = broker.client("subscriber")
        if not self.client.connack.get("session_present"):
            self.client.subscribe(*filters)

    def take(self, until: Callable[[], bool]) -> None:
        """Take messages until then, or until the connection ends."""
        with contextlib.suppress(ClosedError):
            while not until():
                queue = self.client.received
                found = queue.popleft() if queue else self.client.receive()
                encode, packet_id = self.client.encode, found.packet_id
                if found.kind in (DISCONNECT, PINGRESP):
                    return
                if found.kind == PUBREL:
                    self._ids.discard(packet_id)
                    self.client.send(encode.ack(PUBCOMP, packet_id))
                    continue
                assert found.kind == PUBLISH
                if found.qos == 1:
                    self.got[found.payload] += 1
                    self.client.send(encode.ack(PUBACK, packet_id))
                else:
                    self.got[found.payload] += packet_id not in self._ids
                    self._ids.add(packet_id)
                    self.client.send(encode.ack(PUBREC, packet_id))

    def back(self) -> None:
        """Connect again."""
        self.client = self.broker.client("subscriber")
        assert self.client.connack.session_present


# -- what survives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_acknowledged_under_load_is_delivered_after_the_end(
    launch: Launch, how: signal.Signals
) -> None:
    """QoS 1 at least once and QoS 2 exactly once, with two ends in the middle of it."""
    broker = launch("[limits]\nqueue_messages = 1000000")
    subscriber = Subscriber(broker, "load")
    publishers = [Publisher(broker, f"{qos} {n}", qos) for qos in (1, 2) for n in range(2)]
    for _ in range(2):
        for publisher in publishers:
            publisher.start()
        enough = subscriber.got.total() + 300
        subscriber.take(lambda enough=enough: subscriber.got.total() >= enough)
        broker.end(how)
        for publisher in publishers:
            publisher.thread.join()
        broker.start()
        for publisher in publishers:
            publisher.finish()
        subscriber.back()
    wanted = {payload for publisher in publishers for payload in publisher.acknowledged}
    assert len(wanted) > 600
    subscriber.take(lambda: wanted <= subscriber.got.keys())
    subscriber.client.send(PING)
    subscriber.take(lambda: False)  # until it is answered
    once = [payload for payload in wanted if payload.startswith(b"2")]
    assert {subscriber.got[payload] for payload in once} == {1}


def test_what_a_session_waits_for_and_its_subscriptions_survive(launch: Launch) -> None:
    broker = launch()
    client = broker.client("a")
    client.subscribe(("one/+", 2), properties=[("subscription_id", 7)])
    client.subscribe(("own", 4 | 1))  # not what it publishes itself
    client.subscribe("gone")
    client.unsubscribe("gone")
    client.vanish()
    sender = broker.client("b")
    sender.publish("one/a", b"first", qos=2)
    broker.again()
    sender = broker.client("b")
    sender.publish("one/b", b"second", qos=1)
    sender.publish("gone", b"third", qos=1)
    client = broker.client("a")
    assert client.connack.session_present
    found = [client.message() for _ in range(2)]
    assert [(one.payload, one.get("subscription_id"), one.qos) for one in found] == [
        (b"first", 7, 2),
        (b"second", 7, 1),
    ]
    client.publish("own", b"mine", qos=1)
    sender.publish("own", b"not mine", qos=1)
    assert client.message().payload == b"not mine"
    assert client.settle() == []


def test_a_session_that_survived_may_change_its_subscriptions(launch: Launch) -> None:
    broker = launch()
    client = broker.client("a")
    filters = [f"plant/{number}/temperature" for number in range(20)]
    client.subscribe(*filters)
    client.vanish()
    broker.again()
    client = broker.client("a")
    for one in filters:
        assert client.unsubscribe(one).reasons == [0]
        assert client.subscribe("a").reasons == [2]
    client.publish("a", b"heard", qos=1)
    assert client.message().payload == b"heard"


def test_a_message_that_waits_for_many_sessions_is_in_memory_once_after_a_restart(
    launch: Launch,
) -> None:
    broker = launch("[limits]\nmemory = 67108864")
    for number in range(100):
        client = broker.client(f"away-{number}")
        client.subscribe("a")
        client.vanish()
    payloads = [bytes([number]) * 100_000 for number in range(10)]
    sender = broker.client("sender")
    for payload in payloads:
        sender.publish("a", payload, qos=1)
    broker.again()
    broker.client("new")  # were there a copy for each session, the limit would not let it in
    client = broker.client("away-99")
    assert [client.message().payload for _ in payloads] == payloads


def test_whoever_reconnects_while_the_disk_hangs_is_let_in_when_it_goes_on(
    launch: Launch, disk: Disk
) -> None:
    broker = launch()
    client = broker.client("a")
    client.subscribe("a")
    sender = broker.client("sender")
    disk.set("hang")
    sender.send(sender.encode.publish("a", b"x", qos=2, packet_id=1))
    disk.hangs()
    client.vanish()
    again = broker.raw("a")
    again.send(again.encode.connect("a", clean=False, properties=[("session_expiry", 100)]))
    disk.set()
    assert again.expect(CONNACK).reason == 0
    assert again.message().payload == b"x"


def test_an_unsubscribe_of_more_filters_than_a_client_may_have_is_refused(launch: Launch) -> None:
    broker = launch("[limits]\nsubscriptions_a_client = 10")
    client = broker.client("a")
    assert client.unsubscribe(*"0123456789").reasons == [0x11] * 10
    client.send(client.encode.unsubscribe(7, *"0123456789a"))
    assert client.expect(DISCONNECT).reason == 0x97


def test_an_exchange_goes_on_where_it_was(launch: Launch) -> None:
    broker = launch()
    client = broker.client("a")
    client.subscribe("t")
    sender = broker.client("b")
    for number in (1, 2):
        sender.send(sender.encode.publish("t", b"%d" % number, qos=2, packet_id=number))
        sender.expect(PUBREC)
    first, second = client.expect(PUBLISH), client.expect(PUBLISH)
    client.send(client.encode.ack(PUBREC, first.packet_id))
    client.expect(PUBREL)
    broker.again()
    client, sender = broker.client("a"), broker.client("b")
    assert client.expect(PUBREL).packet_id == first.packet_id
    again = client.expect(PUBLISH)
    assert (again.packet_id, again.payload, again.dup) == (second.packet_id, b"2", True)
    sender.send(sender.encode.publish("t", b"2", qos=2, dup=True, packet_id=2))
    assert sender.expect(PUBREC).reason == 0
    sender.send(sender.encode.ack(PUBREL, 2))
    assert sender.expect(PUBCOMP).reason == 0
    assert client.settle() == []  # it was not delivered again
    sender.send(sender.encode.publish("t", b"3", qos=2, packet_id=2))
    assert client.expect(PUBLISH).payload == b"3"


def test_retained_messages_survive_and_removed_ones_do_not_come_back(launch: Launch) -> None:
    broker = launch()
    sender = broker.client("a", clean=True)
    for topic in ("r/1", "r/2", "r/3"):
        sender.publish(topic, topic.encode(), qos=1, retain=True)
    sender.publish("r/2", b"", qos=1, retain=True)
    sender.publish("r/3", b"newer", qos=1, retain=True, properties=[("content_type", b"text")])
    broker.again()
    client = broker.client("b", clean=True)
    client.subscribe("r/+")
    found = {one.topic: one for one in client.settle()}
    assert sorted(one.payload for one in found.values()) == [b"newer", b"r/1"]
    assert all(one.retain for one in found.values())


def test_a_session_of_mqtt_3_survives_and_a_clean_one_ends_it(launch: Launch) -> None:
    broker = launch()
    client = broker.client("a", V3, clean=False)
    client.subscribe(("t", 1))
    client.vanish()
    broker.again(signal.SIGTERM)
    sender = broker.client("b", clean=True)
    sender.publish("t", b"x", qos=1)
    client = broker.client("a", V3, clean=False)
    assert client.connack.session_present
    assert client.message().payload == b"x"
    client.vanish()
    broker.client("a", V3, clean=True).vanish()
    broker.again()
    assert not broker.client("a", V3, clean=False).connack.session_present


def test_the_time_that_a_session_is_kept_goes_on_while_the_broker_is_away(launch: Launch) -> None:
    broker = launch()
    broker.client("short", clean=False, properties=[("session_expiry", 1)]).vanish()
    broker.client("long").vanish()
    broker.end()
    time.sleep(2.1)  # whole seconds count
    broker.start()
    assert not broker.client("short").connack.session_present
    assert broker.client("long").connack.session_present


def test_the_will_of_who_was_connected_at_the_crash_is_published(launch: Launch) -> None:
    broker = launch()
    watcher = broker.client("watcher")
    watcher.subscribe("will/+")
    broker.client("a", clean=False, properties=KEPT, will=Will("will/a", b"a", qos=1))
    ended = broker.client("b", clean=False, properties=KEPT, will=Will("will/b", b"b", qos=1))
    ended.disconnect()
    broker.client("b")  # the answer comes when the end of the will is on disk
    broker.again()
    watcher = broker.client("watcher")
    assert watcher.message().payload == b"a"
    assert watcher.settle() == []
    broker.again(signal.SIGTERM)
    assert broker.client("watcher").settle() == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_will_of_a_session_that_is_not_kept_survives(
    launch: Launch, how: signal.Signals
) -> None:
    """Else what it says of a client that is gone, such as `online`, is retained for ever."""
    broker = launch()
    status = Will("status", b"offline", qos=1, retain=True)
    client = broker.client("a", clean=True, will=status)
    client.publish("status", b"online", qos=1, retain=True)
    ended = broker.client("b", clean=True, will=Will("other", b"x", retain=True))
    ended.disconnect()
    broker.client("c").publish("on disk", b"x", qos=1)
    broker.again(how)
    watcher = broker.client("watcher")
    watcher.subscribe("#")
    while (found := watcher.message()).payload != b"offline":
        assert found.topic == b"status"
    broker.again()
    watcher = broker.client("late")
    watcher.subscribe("#")
    assert [(one.topic, one.payload) for one in watcher.settle()] == [(b"status", b"offline")]


def test_a_will_that_is_not_allowed_any_more_is_not_published(
    launch: Launch, tmp_path: Path
) -> None:
    passwords, rules = write_rules(tmp_path)
    broker = launch(f'password_file = "{passwords}"\nacl_file = "{rules}"\n')
    login = {"username": USER, "password": PASSWORD}
    will = Will("allowed/will", b"x", retain=True)
    client = broker.client("a", **login, will=will)
    rules.write_text(f"user {USER}\ntopic read allowed/#\n")
    broker.read_again()
    client.vanish()
    broker.again(signal.SIGTERM)  # all that a connection brought was done before that
    watcher = broker.client("watcher", **login)
    watcher.subscribe("allowed/#")
    assert watcher.settle() == []


def test_a_flood_is_taken_as_fast_as_the_disk_takes_it(launch: Launch) -> None:
    """Whoever has too much on its way to the disk is not read from for a while, and then again."""
    broker = launch("[limits]\nqueue_messages = 1000000")
    waits(broker, ("t", 1))
    sender = broker.client("b", clean=True)
    numbers = range(1, 20_001)
    for number in numbers:
        sender.send(sender.encode.publish("t", b"%d" % number, qos=1, packet_id=number))
    assert [sender.expect(PUBACK).packet_id for _ in numbers] == list(numbers)
    broker.again()
    client = broker.client("a")
    assert [int(client.message().payload) for _ in numbers] == list(numbers)


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can make a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_disk_is_told_and_costs_nothing_acknowledged(
    launch: Launch, small_disk: Path, qos: int
) -> None:
    broker = launch(store=str(small_disk / "store"))
    waits(broker, "t")
    sender = broker.client("b", clean=True)
    answers = []
    while QUOTA not in answers:
        payload = b"%04d" % len(answers) + os.urandom(50_000)
        answer = sender.publish("t", payload, qos=qos)
        assert answer is not None
        answers.append(answer.reason)
        assert len(answers) < 1000
    taken = answers.count(0)
    old = broker.raw("c", V3)
    assert old.connect().reason == 0
    message = old.encode.publish("t", os.urandom(50_000), qos=qos, packet_id=1)
    assert old.closed(message) == []
    assert broker.log().count("no room") == 1
    broker.again()
    client = broker.client("a")
    found = [client.message().payload[:4] for _ in range(taken)]
    assert found == [b"%04d" % number for number in range(taken)]
    client.settle()
    sender = broker.client("b", clean=True)
    answer = sender.publish("t", b"there is room again", qos=qos)
    assert answer is not None
    assert answer.reason == 0


def test_a_damaged_store_is_left_as_it_is(launch: Launch) -> None:
    broker = launch()
    client = broker.client("a")
    client.subscribe("t")
    broker.stop()
    file = broker.store / "store.redb"
    damaged = b"not a store" * 1000
    file.write_bytes(damaged)
    assert str(broker.store) in broker.refuses()
    assert file.read_bytes() == damaged


def test_two_brokers_cannot_share_a_store(launch: Launch, tmp_path: Path) -> None:
    broker = launch()
    other = tmp_path / "other"
    other.mkdir()
    assert str(broker.store) in Stored(other, store=str(broker.store)).refuses()
    broker.client("a")  # the first one goes on


def test_a_place_where_no_store_can_be_is_refused_before_and_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    broker = Stored(tmp_path, store=str(file / "store"))
    assert str(file) in broker.refuses()
    assert str(file) in broker.refuses("--check-config", code=2)


def test_checking_the_settings_makes_no_store(tmp_path: Path) -> None:
    broker = Stored(tmp_path, store=str(tmp_path / "deep/er/store"))
    subprocess.run([*broker.command, "--check-config"], check=True, capture_output=True)
    assert not (tmp_path / "deep").exists()


# -- what is on its way to a disk that fails -------------------------------------------------------


class Disk:
    """What the store's disk and the system's clock do, as `failing_disk.c` does it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "disk.says"
        self.stand_in = stand_in(Path(__file__).with_name("failing_disk.c"), folder)

    def set(self, word: str = "") -> None:
        """Hang, be full, be ahead by so many seconds, or do nothing of that."""
        new = self.file.with_suffix(".new")
        new.write_text(word)
        new.rename(self.file)

    def hangs(self) -> None:
        """Wait until a commit is on disk and nobody is told."""
        until(Path(f"{self.file}.hangs").exists, "it does not hang")

    def is_good(self, broker: Broker) -> None:
        """Be good again, and wait until what is new is kept again."""
        self.set()
        kept = {"clean": False, "properties": [("session_expiry", 1)]}
        until(lambda: broker.raw("probe").connect(**kept).reason == 0, "it is not good again")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A disk that can be made to fail, for a broker that starts after this."""
    disk = Disk(tmp_path)
    monkeypatch.setenv("LD_PRELOAD", disk.stand_in)
    monkeypatch.setenv("FAILING_DISK", str(disk.file))
    return disk


def test_the_identifier_of_a_message_is_never_kept_without_the_message(
    launch: Launch, disk: Disk
) -> None:
    broker = launch()
    waits(broker, "t")
    sender = broker.client("b")
    disk.set("hang")
    sender.send(sender.encode.publish("t", b"x", qos=2, packet_id=1))
    disk.hangs()
    broker.end()
    disk.set()
    broker.start()
    sender = broker.client("b")
    sender.send(sender.encode.publish("t", b"x", qos=2, dup=True, packet_id=1))
    assert sender.expect(PUBREC).reason == 0
    assert [one.payload for one in broker.client("a").settle()] == [b"x"]


def test_a_session_that_ended_while_the_disk_was_full_does_not_hide_the_next_one(
    launch: Launch, disk: Disk
) -> None:
    broker = launch()
    for number in range(8):
        broker.client(f"other {number}").vanish()
    waits(broker, "old")
    disk.set("full")
    client = broker.raw("a")
    assert client.connect(clean=True).reason == QUOTA  # that the old one ended is not kept yet
    client.closed()
    disk.is_good(broker)
    client = broker.client("a")
    assert not client.connack.session_present
    client.subscribe("new")
    client.vanish()
    broker.client("b").publish("new", b"x", qos=1)
    broker.again()
    client = broker.client("a")
    assert client.connack.session_present
    sender = broker.client("b")
    sender.publish("old", b"old", qos=1)
    assert [one.payload for one in client.settle()] == [b"x"]


def test_a_refused_message_whose_publisher_went_before_it_was_told_is_new_again(
    launch: Launch, disk: Disk
) -> None:
    broker = launch()
    waits(broker, "t")
    sender = broker.client("b")
    disk.set("full")
    sender.send(sender.encode.publish("t", b"x", qos=2, packet_id=1))
    sender.vanish()
    disk.is_good(broker)
    sender = broker.client("b")
    assert sender.connack.session_present
    sender.send(sender.encode.publish("t", b"x", qos=2, dup=True, packet_id=1))
    assert sender.expect(PUBREC).reason == 0
    broker.again()
    assert [one.payload for one in broker.client("a").settle()] == [b"x"]


def test_a_message_that_came_again_is_acknowledged_when_it_is_on_disk(
    launch: Launch, disk: Disk
) -> None:
    broker = launch()
    waits(broker, "t")
    sender = broker.client("b")
    disk.set("hang")
    encode = sender.encode
    sender.send(encode.publish("t", b"x", qos=2, packet_id=1))
    sender.send(encode.publish("t", b"x", qos=2, dup=True, packet_id=1))
    disk.hangs()
    disk.set()
    assert [sender.expect(PUBREC).reason for _ in range(2)] == [0, 0]
    assert [one.payload for one in broker.client("a").settle()] == [b"x"]


@pytest.mark.parametrize(("is_kept", "is_connected"), [(True, True), (True, False), (False, True)])
def test_a_message_that_was_refused_and_sent_again_is_delivered_once(
    launch: Launch, disk: Disk, is_kept: bool, is_connected: bool
) -> None:
    broker = launch()
    client = broker.client("a", clean=False, properties=KEPT if is_kept else ())
    client.subscribe(("t", 2), ("last", 1))
    if not is_connected:
        client.vanish()
    sender = broker.client("b", V3, clean=False)
    disk.set("full")
    message = sender.encode.publish("t", b"x", qos=2, packet_id=1)
    assert sender.closed(message) == []
    disk.is_good(broker)
    sender = broker.client("b", V3, clean=False)
    assert sender.connack.session_present
    sender.send(sender.encode.publish("t", b"x", qos=2, dup=True, packet_id=1))
    sender.expect(PUBREC)
    sender.publish("last", b"last", qos=1)
    if not is_connected:
        client = broker.client("a")
    assert [client.message().payload for _ in range(2)] == [b"x", b"last"]


def test_the_will_of_a_client_that_was_refused_is_not_published(launch: Launch, disk: Disk) -> None:
    broker = launch()
    watcher = broker.client("watcher", clean=True)
    watcher.subscribe("will")
    disk.set("full")
    client = broker.raw("a")
    will = Will("will", b"x", qos=1)
    assert client.connect(clean=False, properties=KEPT, will=will).reason == QUOTA
    client.closed()
    broker.client("b", clean=True).publish("will", b"later")
    assert watcher.message().payload == b"later"


def test_a_session_outlives_that_the_clock_is_set_after_the_start(
    launch: Launch, disk: Disk
) -> None:
    disk.set("-1500000000")
    broker = launch()
    waits(broker, "t")
    disk.set()
    sender = broker.client("b")
    sender.publish("t", b"x", qos=1, properties=[("message_expiry", 1000)])
    time.sleep(2.1)  # once a second it looks at the clock
    broker.again()
    client = broker.client("a")
    assert client.connack.session_present
    assert client.message().payload == b"x"


def test_retained_messages_that_a_full_disk_refused_are_kept_later_as_they_are_then(
    launch: Launch, disk: Disk
) -> None:
    broker = launch()
    sender = broker.client("a", clean=True)
    for topic in ("r/changed", "r/gone", "r/same"):
        sender.publish(topic, b"before", qos=1, retain=True)
    disk.set("full")
    sender.publish("r/changed", b"after", retain=True)
    sender.publish("r/gone", b"", retain=True)
    sender.settle()
    answer = sender.publish("other", b"x", qos=1, retain=True)
    assert answer is not None
    assert answer.reason == QUOTA  # and so was what came before it
    disk.is_good(broker)
    time.sleep(3.1)  # once a second they are written again
    broker.again()
    client = broker.client("b", clean=True)
    client.subscribe("r/+")
    found = {one.topic: one.payload for one in client.settle()}
    assert found == {b"r/changed": b"after", b"r/same": b"before"}


def test_a_ping_is_answered_while_the_disk_hangs(launch: Launch, disk: Disk) -> None:
    broker = launch()
    client = broker.client("a")
    disk.set("hang")
    client.send(client.encode.subscribe(1, ("t", 1)), PING)
    assert client.receive().kind == PINGRESP
    disk.set()
    assert client.receive().kind == SUBACK


def test_who_floods_a_disk_that_hangs_is_not_read_and_loses_nothing(
    launch: Launch, disk: Disk
) -> None:
    """64 reads of at most 128 KiB may wait for the disk; the rest stays with the sender."""
    broker = launch(f"[limits]\nqueue_messages = 100000\nqueue = 268435456\n{METRICS}")
    waits(broker, ("t", 1))
    sender, other = broker.client("b", clean=True), broker.client("c", clean=True)
    numbers = range(1, 1001)
    flood = [sender.encode.publish("t", bytes(60_000), qos=1, packet_id=n) for n in numbers]
    disk.set("hang")
    sending = threading.Thread(target=sender.send, args=flood, daemon=True)
    sending.start()
    disk.hangs()
    before, taken = -1, 0
    while taken != before:  # for two seconds: it is counted each second
        before, start = taken, received(broker)[0]
        while (now := received(broker))[0] < start + 2:
            other.settle()
        taken = now[1]
    assert 1 << 17 < taken * 60_000 < 66 << 17
    assert sending.is_alive()
    disk.set()
    assert [sender.expect(PUBACK).packet_id for _ in numbers] == list(numbers)
    sending.join()


def test_who_is_not_read_because_the_disk_hangs_is_not_late(launch: Launch, disk: Disk) -> None:
    broker = launch("[limits]\nqueue_messages = 1000\nqueue = 268435456")
    waits(broker, ("t", 1), name="away")
    client = broker.client("a", clean=True, keep_alive=2)
    numbers = range(1, 301)
    flood = [client.encode.publish("t", bytes(60_000), qos=1, packet_id=n) for n in numbers]
    disk.set("hang")
    sending = threading.Thread(target=client.send, args=flood, daemon=True)
    sending.start()
    disk.hangs()
    time.sleep(6)  # twice as long as a client may be silent
    disk.set()
    assert [client.expect(PUBACK).packet_id for _ in numbers] == list(numbers)
    sending.join()


def received(broker: Broker) -> tuple[int, int]:
    """For how many seconds the broker has run, and how many messages came by then."""
    found = broker.metrics()
    return found["uptime_seconds"], found["messages_received_total"]
