"""`mqtick-broker` under load that is meant to harm: whoever else is there is served all the same.

That is judged by what arrives, never by when. One thread delivers to all where a test can have it
so: who harms shares it with who is served.
"""

from __future__ import annotations

import itertools
import mmap
import random
import shutil
import socket
import ssl
import struct
from pathlib import Path

import pytest

from broker.conformance.client import PUBACK, SUBACK, V5, Client, Encoder, Will
from broker.tests.harness.brokers import Launch
from broker.tests.harness.clock import stepped_clock
from broker.tests.harness.others import ONE_THREAD, Others, connection, deaf_client, others_of
from broker.tests.harness.tools import certificate, memory
from demo.local_broker import free_port, wait_for_port

pytestmark = pytest.mark.broker
CONNECT = Encoder(V5).connect
CONNACK_OCTET = 0x20


def is_closed(sock: socket.socket) -> bool:
    """Wait for the end; whatever comes before does not count."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def test_ten_thousand_may_connect_as_fast_as_they_can(launch: Launch, descriptors: int) -> None:
    broker = launch("[limits]\nconnections_a_second = 0", first=ONE_THREAD)
    others = others_of(broker)
    crowd = []
    for number in range(min(10_000, descriptors)):
        crowd.append(connection(broker.port))
        crowd[-1].sendall(CONNECT(f"crowd-{number}"))
        if number % 1000 == 0:
            others.are_served()
    for one in crowd:
        octets = one.recv(1000)
        assert (octets[0], octets[3]) == (CONNACK_OCTET, 0)
    others.are_served()
    for one in crowd:
        one.close()
    others.are_served()


def test_a_connect_that_announces_256_mib_is_refused_before_it_comes(launch: Launch) -> None:
    broker = launch(first=ONE_THREAD)
    others = others_of(broker)
    before = memory(broker.process)
    crowd = [connection(broker.port) for _ in range(200)]
    for one in crowd:
        one.sendall(b"\x10\xff\xff\xff\x7f" + bytes(1000))
    others.are_served()
    assert all(map(is_closed, crowd))
    assert memory(broker.process) - before < 200 * 100_000


def test_who_says_nothing_or_half_of_it_is_ended_in_time(launch: Launch) -> None:
    broker = launch("[limits]\nconnect_timeout_s = 2", first=ONE_THREAD)
    others = others_of(broker)
    crowd = [connection(broker.port) for _ in range(300)]
    whole = CONNECT("x" * 200)
    for number, one in enumerate(crowd):
        one.sendall(whole[: number % len(whole)])
    others.are_served()
    assert all(map(is_closed, crowd))
    others.are_served()


def test_garbage_instead_of_tls_ends_only_who_sends_it(launch: Launch, tmp_path: Path) -> None:
    port = free_port()
    tls = certificate(tmp_path)
    lines = f'{ONE_THREAD}\n[[listener]]\naddress = "127.0.0.1:{port}"\n{tls}'
    broker = launch("[limits]\nconnect_timeout_s = 2", first=lines)
    assert broker.process is not None
    wait_for_port(port, broker.process)
    context = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))

    def client(name: str) -> Client:
        wrapped = context.wrap_socket(connection(port), server_hostname="127.0.0.1")
        made = Client(("", 0), V5, name, wrapped)
        assert made.connect().reason == 0
        return made

    others = Others(client("sender"), client("hearer"))
    source = random.Random(13)
    hello = bytes.fromhex("16030100f8010000f40303")
    beginnings = (b"", hello, b"\x15\x03\x03", b"\x17\x03\x03\x40\x00", b"\x16\x03\x01\xff\xff")
    crowd = []
    for number in range(300):
        crowd.append(connection(port))
        crowd[-1].sendall(beginnings[number % 5] + source.randbytes(number * 7))
    others.are_served()
    assert all(map(is_closed, crowd))
    others.are_served()


def test_a_hundred_thousand_subscriptions_of_one_client_are_refused_by_the_limit(
    launch: Launch,
) -> None:
    broker = launch(first=ONE_THREAD)
    others = others_of(broker)
    greedy = broker.client()
    for part in range(10):
        filters = [(f"a/{part}/{number}/+", 0) for number in range(10_000)]
        greedy.send(greedy.encode.subscribe(part + 1, *filters))
        others.are_served()
    reasons = [reason for _ in range(10) for reason in greedy.expect(SUBACK).reasons]
    assert reasons == [0] * 10_000 + [0x97] * 90_000
    greedy.unsubscribe("a/0/0/+")
    assert greedy.subscribe("b").reasons == [2]
    others.are_served()


def test_topics_of_64_kib_pass(launch: Launch) -> None:
    broker = launch(first=ONE_THREAD)
    others = others_of(broker)
    hearer, sender = broker.client(), broker.client()
    hearer.subscribe(("#", 0))
    topics = ["a" * 65_535, "/" * 65_535, "é/" * 21_845, "a/" * 32_767]
    for number, topic in enumerate(topics * 5, 1):
        sender.send(sender.encode.publish(topic, b"x", qos=1, packet_id=number, retain=True))
    others.are_served()
    found = [hearer.message().topic for _ in range(21)]
    assert [topic for topic in found if topic != b"others"] == [one.encode() for one in topics * 5]
    for _ in topics * 5:
        sender.expect(PUBACK)
    late = broker.client()
    late.subscribe("#")
    found = [late.message().topic for _ in topics]
    assert sorted(found) == sorted(topic.encode() for topic in topics)


def test_filters_made_to_be_slow_cost_those_who_made_them(launch: Launch) -> None:
    """Each of the filters matches: `+/+/a`, `+/a/a` and so on, 100,000 of them in all."""
    broker = launch("[limits]\npacket = 300000\nqueue = 300000", first=ONE_THREAD)
    others = others_of(broker)
    levels = 13
    filters = [("/".join(each), 0) for each in itertools.product("a+", repeat=levels)]
    makers = [deaf_client(broker, f"maker-{number}") for number in range(12)]
    for maker in makers:
        maker.send(maker.encode.subscribe(1, *filters))
        others.are_served()
    for maker in makers:
        assert set(maker.expect(SUBACK).reasons) == {0}
    sender = broker.client()
    topic = "/".join("a" * levels)
    sender.send(*(sender.encode.publish(topic, b"x") for _ in range(5)))
    others.are_served()
    assert len(sender.settle()) == 0
    others.are_served()


def test_a_flood_to_many_who_want_everything_and_read_nothing(launch: Launch) -> None:
    limits = "[limits]\npacket = 100000\nqueue = 200000\nqueue_messages = 10"
    broker = launch(limits, first=ONE_THREAD)
    others = others_of(broker)
    deaf = [deaf_client(broker, f"deaf-{number}") for number in range(30)]
    for number, client in enumerate(deaf):
        client.subscribe(("#", number % 3))
    before = memory(broker.process)
    sender = broker.client()
    for number in range(200):
        qos, topic = number % 3, f"flood/{number}/{'x/' * (number % 50)}"
        sender.publish(topic, bytes(60_000), qos=qos)
        if number % 20 == 0:
            others.are_served()
    others.are_served()
    bound = 30 * (200_000 + 200_000)  # what waits to be written, and what waits for its turn
    assert memory(broker.process) - before < 2 * bound + 30_000_000
    assert len(deaf[0].message().payload) > 0, "who reads again goes on"


def test_retained_messages_are_bounded_and_who_asks_for_all_waits_alone(launch: Launch) -> None:
    broker = launch("[limits]\nretained_messages = 1000", first=ONE_THREAD)
    others = others_of(broker)
    bomber = broker.client()
    for number in range(5000):
        bomber.send(bomber.encode.publish(f"bomb/{number}", bytes(2000), retain=True))
    bomber.settle()
    others.are_served()
    deaf = [deaf_client(broker, f"deaf-{number}") for number in range(20)]
    for client in deaf:
        client.send(*(client.encode.subscribe(number, ("bomb/#", 0)) for number in range(1, 20)))
    others.are_served()
    late = broker.client()
    late.subscribe("bomb/+")
    # Some of the thousand are the broker's own, below $SYS.
    assert 980 < len({one.topic for one in late.settle()}) <= 1000


def test_a_step_of_the_clock_ends_no_session_and_no_message(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's clock is another one for the broker only, so nobody else is disturbed."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler, with which the clock is replaced")
    clock, environment = stepped_clock(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    broker = launch(first=ONE_THREAD)
    others = others_of(broker)
    kept = [("session_expiry", 3600)]
    absent = broker.client(
        clean=False, properties=kept, will=Will("will", properties=[("will_delay", 3600)])
    )
    absent.subscribe(("a", 1))
    absent.vanish()
    watcher = broker.client(keep_alive=60)
    watcher.subscribe("will", "second")
    others.sender.publish("a", b"late", qos=1, properties=[("message_expiry", 600)])
    with clock.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as step:
        for step_s in (86_400, -86_400, 0):
            step[:8] = struct.pack("q", step_s)
            others.are_served()
            # A second passes for the broker: it publishes this one's will.
            soon = Will("second", properties=[("will_delay", 1)])
            broker.client(properties=kept, will=soon).vanish()
            assert watcher.message().topic == b"second"
    again = broker.raw(absent.id)
    assert again.connect(clean=False, properties=kept).session_present
    found = again.message()
    assert (found.payload, 500 < found.get("message_expiry") <= 600) == (b"late", True)
    assert watcher.settle() == []
