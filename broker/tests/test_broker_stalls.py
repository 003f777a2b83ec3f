"""What one client has `mqtick-broker` do at once: it is cut, and the others come between.

The fast test is judged by who is served first. The slow ones measure what the others wait for, and
need the machine for themselves.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from broker.conformance.client import (
    CONNACK,
    PING,
    PINGRESP,
    SUBACK,
    UNSUBACK,
    Client,
    Will,
)
from broker.conformance.launch import PASSWORD, USER, write_rules
from broker.tests.harness.brokers import Broker, Launch
from broker.tests.harness.events import until
from broker.tests.harness.others import ONE_THREAD, Others, connection, deaf_client, others_of
from demo.local_broker import MqtickBroker

pytestmark = pytest.mark.broker
WORST_S = 0.05
"""What the 99th of 100 messages of others may take meanwhile."""


def retain(broker: Broker, count: int) -> None:
    """Have this many retained messages, each below a level of its own."""
    owner = broker.client()
    for number in range(count):
        owner.send(owner.encode.publish(f"r/{number}/x", b"v", retain=True))
    owner.settle()


def test_who_searches_all_that_is_retained_for_nothing_waits_alone(launch: Launch) -> None:
    broker = launch(first=ONE_THREAD)
    others = others_of(broker)
    retain(broker, 5000)
    attacker = broker.client()
    filters = [(f"r/+/none-{number}", 0) for number in range(1000)]
    attacker.send(attacker.encode.subscribe(1, *filters), PING)
    assert set(attacker.expect(SUBACK).reasons) == {0}
    for _ in range(20):
        others.are_served()
    attacker.socket.settimeout(0)
    with pytest.raises(BlockingIOError):  # it still waits for its own searches
        attacker.socket.recv(1)


@pytest.mark.parametrize("qos", [0, 1])
def test_all_that_is_retained_comes_however_much_it_is_and_slowly_it_is_read(
    launch: Launch, qos: int
) -> None:
    """More than may wait for a client is not looked for before it has taken what is found."""
    broker = launch("[limits]\nqueue = 300000\npacket = 100000\nqueue_messages = 20")
    owner = broker.client()
    for number in range(500):
        owner.send(owner.encode.publish(f"r/{number}", bytes(4000), qos=0, retain=True))
    owner.settle()
    client = deaf_client(broker, "slow")
    client.send(client.encode.subscribe(1, ("r/#", qos)), PING)
    client.expect(SUBACK)
    found = set()
    while len(found) < 500:
        found.add(client.message().topic)
    assert broker.report("publish/messages/dropped") == 0


def watch(others: Others, done: Event, said: Connection) -> None:
    """How long messages of others take, one after another, while something goes on."""
    took_s = []
    while not done.is_set():
        began_s = time.perf_counter()
        others.are_served()
        took_s.append(time.perf_counter() - began_s)
        time.sleep(0.001)
    said.send(sorted(took_s))


@contextlib.contextmanager
def watched(broker: Broker, worst_s: float = WORST_S) -> Iterator[None]:
    """Others, which are in another process, are served in time meanwhile."""
    processes = multiprocessing.get_context("fork")
    hears, says = processes.Pipe()
    done = processes.Event()
    watcher = processes.Process(target=watch, args=(others_of(broker), done, says), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
    assert hears.poll(60), "they are not served at all"
    took_s = hears.recv()
    watcher.join()
    p99_s = took_s[len(took_s) * 99 // 100]
    assert p99_s < worst_s, f"of {len(took_s)} messages, {took_s[-1]} s at most"


def searches(broker: Broker) -> None:
    retain(broker, 20_000)
    with watched(broker):
        attacker = broker.client()
        filters = [(f"r/+/none-{number}", 0) for number in range(500)]
        attacker.send(attacker.encode.subscribe(1, *filters), PING)
        attacker.expect(SUBACK)
        attacker.expect(PINGRESP)


def subscriptions(broker: Broker) -> None:
    """10,000 subscriptions come, go by UNSUBSCRIBE, come again and go with their session."""
    names = [f"a/{number}/+/b" for number in range(10_000)]
    with watched(broker):
        for _ in range(5):
            client = broker.client()
            client.send(client.encode.subscribe(1, *((name, 0) for name in names)))
            client.expect(SUBACK)
            client.send(client.encode.unsubscribe(2, *names))
            client.expect(UNSUBACK)
            client.send(client.encode.subscribe(3, *((name, 0) for name in names)))
            client.expect(SUBACK)
            again = broker.client(client.id)
            client.closed()
            again.close()


def one_read_of_many_copies(broker: Broker) -> None:
    """128 KiB of messages of 5 octets, each to 200 subscribers."""
    crowd = [broker.client() for _ in range(200)]
    for one in crowd:
        one.subscribe(("x", 0))
    sender = broker.client()
    with watched(broker):
        sender.send(sender.encode.publish("x", b"") * 10_000, PING)
        sender.expect(PINGRESP)


def all_leave_at_once(broker: Broker) -> None:
    """2,000 clients break off, each with a will and a subscription.

    Whoever comes after them waits for all of them: as long as that takes, about 80 ms.
    """
    crowd = []
    for number in range(2000):
        client = Client(("", 0), 5, f"w{number}", connection(broker.port))
        client.send(client.encode.connect(client.id, will=Will(f"will/{number}", b"gone")))
        client.send(client.encode.subscribe(1, (f"own/{number}", 0)))
        crowd.append(client)
    for one in crowd:
        one.expect(CONNACK)
        one.expect(SUBACK)
    hearer = broker.client()
    hearer.subscribe(("will/#", 0))
    with watched(broker, 0.2):
        for one in crowd:
            one.socket.shutdown(socket.SHUT_RDWR)  # the other process has the socket, too
        for _ in crowd:
            hearer.message()


def sessions_expire(broker: Broker) -> None:
    """3,000 sessions with 20 subscriptions each end in the same second."""
    kept = [("session_expiry", 20)]
    for number in range(3000):
        client = Client(("", 0), 5, f"s{number}", connection(broker.port))
        client.send(client.encode.connect(client.id, clean=False, properties=kept))
        filters = [(f"own/{number}/{one}", 0) for one in range(20)]
        client.send(
            client.encode.subscribe(1, *filters),
            client.encode.disconnect(0, [("session_expiry", 5)]),
        )
        client.closed()
    with watched(broker):
        until(lambda: broker.report("subscriptions/count") < 100)


@pytest.fixture
def _optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """What measures takes no debug build; `make test-alone` makes the other one."""
    monkeypatch.setattr(MqtickBroker, "builds", ("release",))


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.usefixtures("_optimised")
@pytest.mark.parametrize(
    "attack",
    [
        searches,
        subscriptions,
        one_read_of_many_copies,
        all_leave_at_once,
        sessions_expire,
    ],
)
def test_others_are_served_in_time_while(
    launch: Launch, descriptors: int, attack: Callable[[Broker], None]
) -> None:
    limits = "[limits]\nconnections_a_second = 0\nmemory = 4000000000"
    attack(launch(limits, first=ONE_THREAD))


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.usefixtures("_optimised")
def test_others_are_served_in_time_while_the_rules_are_read_again(
    launch: Launch, tmp_path: Path
) -> None:
    """500 clients with 500 queued messages each, and 20,000 retained ones, are judged."""
    passwords, rules = write_rules(tmp_path)
    broker = launch(
        f'password_file = "{passwords}"\nacl_file = "{rules}"\n[limits]\nconnections_a_second = 0',
        first=ONE_THREAD,
    )
    rules.write_text(f"topic readwrite #\ntopic read $SYS/#\nuser {USER}\ntopic readwrite #\n")
    broker.read_again()
    crowd = []
    for _ in range(500):
        client = broker.client(properties=[("receive_maximum", 1)])
        client.subscribe(("q", 1))
        crowd.append(client)
    retain(broker, 20_000)
    sender = broker.client()
    for number in range(500):
        sender.publish("q", b"%d" % number, qos=1)
    rules.write_text(f"topic readwrite others\ntopic read $SYS/#\nuser {USER}\ntopic readwrite #\n")
    reader = broker.client(username=USER, password=PASSWORD)
    with watched(broker):
        broker.send_signal(signal.SIGHUP)
        until(lambda: broker.report("retained messages/count") == 0)
    reader.subscribe("r/#")
    assert reader.settle() == []
