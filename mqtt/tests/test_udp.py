"""MQTT over UDP with the reference broker on a real socket, and with peers that misbehave."""

from __future__ import annotations

import itertools
import logging
import socket
import time
from collections.abc import Iterator

import pytest
from live import Node
from udp_peer import Door, Peer

from broker.rtl.sim.golden import packet, publish
from demo.local_broker import free_port
from mqtick.mqtt import udp_session
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.causes import Cause
from mqtick.mqtt.connection import Connection, Will
from mqtick.mqtt.link import Link
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.packets import subscribe_packet, unsubscribe_packet
from mqtick.mqtt.stamps import StampSource

TOPIC = "mqtick/l/0"
CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT = 0x10, 0x30, 0x82, 0xA2, 0xC0, 0xE0
ACCEPTED = b"\x20\x02\x00\x00"
CHALLENGE = publish(b"$proof", b"01234567")


@pytest.fixture
def door() -> Iterator[Door]:
    with Door().open() as made:
        yield made


def settle(node: Node, seconds: float = 0.1) -> None:
    """Let what should not happen happen."""
    node.loop.turn_for(seconds)


# -- what works ------------------------------------------------------------------------------------


def test_a_message_goes_to_the_broker_and_back_with_stamps_of_the_kernel(door: Door) -> None:
    with Node(door.url) as node:
        assert node.up().subscribed(TOPIC)
        before_ns = time.time_ns()
        sent = node.connection.publish(TOPIC, b"\x00there and back\xff")
        node.until(lambda: node.arrivals)
        node.connection.collect_stamps()
    arrival = node.arrivals[0]
    assert sent is not None
    assert (arrival.topic, arrival.payload, arrival.retain) == (
        TOPIC,
        b"\x00there and back\xff",
        False,
    )
    assert sent.stamp.source is arrival.stamp.source is StampSource.KERNEL
    assert before_ns <= sent.stamp.realtime_ns < arrival.stamp.realtime_ns <= time.time_ns()
    assert not arrival.maybe_held


def test_who_asks_for_user_stamps_gets_them(door: Door) -> None:
    with Node(door.url, kernel_stamps="user") as node:
        node.up().subscribed(TOPIC)
        sent = node.connection.publish(TOPIC, b"x")
        node.until(lambda: node.arrivals)
    assert sent is not None
    assert sent.stamp.source is node.arrivals[0].stamp.source is StampSource.USER


def test_an_unstamped_message_goes_too(door: Door) -> None:
    with Node(door.url) as node:
        node.up().subscribed(TOPIC)
        assert node.connection.publish_unstamped(TOPIC, b"x") is not None
        node.until(lambda: node.arrivals)


def test_the_address_is_proven_once_and_the_keep_alive_is_told(door: Door) -> None:
    with Node(door.url, keepalive_s=20) as node:
        node.up()
        lease = next(iter(door.broker.leases.values()))
        assert lease.length_ns == 30_000_000_000
    assert 1 <= door.count(PUBLISH) <= door.count(CONNECT)


def test_a_status_is_retained_by_the_broker_and_says_so(door: Door) -> None:
    with Node(door.url) as node:
        node.up().connection.publish_retained("mqtick/s/7", b"there")
        node.connection.subscribe_retained("mqtick/s/7")
        node.until(lambda: node.arrivals)
        assert [(one.payload, one.retain) for one in node.arrivals] == [(b"there", True)]


def test_a_hook_is_called_for_its_topic_only_before_the_message(door: Door) -> None:
    calls: list[int] = []
    with Node(door.url) as node:
        node.connection.hooks[TOPIC.encode()] = lambda: calls.append(len(node.arrivals))
        node.up().subscribed(TOPIC, "other")
        for topic in ("other", TOPIC, "other", TOPIC):
            node.connection.publish(topic, b"")
        node.until(lambda: len(node.arrivals) == 4)
    assert calls == [1, 3]


def test_unsubscribing_ends_it_and_subscriptions_keep_their_order(door: Door) -> None:
    with Node(door.url) as node:
        node.up().subscribed(TOPIC, "other")
        for _ in range(20):  # each UNSUBSCRIBE is done before the SUBSCRIBE behind it
            node.connection.unsubscribe([TOPIC])
            node.connection.subscribe([TOPIC])
        node.connection.unsubscribe(["other"])
        assert node.subscribed("third")
        assert set(door.broker.subscriptions) == {TOPIC.encode(), b"third"}


def test_many_filters_are_shared_among_packets_and_answered_together(door: Door) -> None:
    door.broker.settings.subscriptions_a_subscriber = 100
    topics = [f"{'long' * 12}/{number}" for number in range(90)]
    with Node(door.url) as node:
        assert node.up().subscribed(*topics)
        assert len(door.broker.subscriptions) == 90
        node.connection.unsubscribe(topics)
        node.until(lambda: not door.broker.subscriptions)
    packets = {one for one in door.taken if one[0] in (SUBSCRIBE, UNSUBSCRIBE)}
    assert len(packets) == 8
    assert max(map(len, packets)) <= 1472


def test_two_brokers_are_two_connections(door: Door) -> None:
    with Door().open() as second, Node(door.url) as node, Node(second.url) as other:
        node.up().subscribed(TOPIC)
        other.up().subscribed(TOPIC)
        node.connection.publish(TOPIC, b"first")
        other.connection.publish(TOPIC, b"second")
        node.until(lambda: node.arrivals)
        other.until(lambda: other.arrivals)
        assert [one.payload for one in node.arrivals] == [b"first"]
        assert [one.payload for one in other.arrivals] == [b"second"]


def test_closing_says_goodbye_and_the_broker_forgets(door: Door) -> None:
    with Node(door.url) as node:
        node.up().subscribed(TOPIC)
        assert door.broker.leases
    while not door.count(DISCONNECT):  # or the time-out of the test
        time.sleep(0.005)
    assert not door.broker.leases
    assert not door.broker.subscriptions
    assert node.downs == []


def test_a_will_is_said_once_to_be_missing(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mqtick")
    loop = Loop()
    connection = Connection(
        loop,
        parse_broker_url(door.url),
        "node",
        on_publish=lambda _arrival: None,
        on_up=lambda: None,
        will=Will("mqtick/s/0", b"gone"),
    )
    connection.start()
    assert loop.turn_until(lambda: connection.connected, 10)
    connection.drop("to connect again")
    assert loop.turn_until(lambda: connection.connects == 2, 10)
    connection.close()
    said = [record.getMessage() for record in caplog.records if "wills" in record.getMessage()]
    assert len(said) == 1
    assert "mqtick/s/0 stays as it is" in said[0]


def test_an_idle_connection_lets_its_loop_sleep(door: Door) -> None:
    with Node(door.url) as node:
        node.up().subscribed(TOPIC)
        node.connection.publish(TOPIC, b"x")  # its transmit stamp comes on the error queue
        node.until(lambda: node.arrivals)
        end, turns = time.monotonic() + 0.3, 0
        while time.monotonic() < end:
            node.loop.turn(0.05)
            turns += 1
    assert turns < 20


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["a/#/b", "$broker/x", "x" * 65, "x" * 2000])
def test_a_refused_subscription_is_reported(door: Door, topic: str) -> None:
    with Node(door.url) as node:
        assert not node.up().subscribed("good", topic)
        assert node.subscribed("good")
        assert node.connection.connected
        assert "share, shape and table" in Link.of(node.connection).refusal_remedy


def test_what_was_refused_is_asked_for_again_and_granted_once_there_is_room(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp_session, "_AGAIN_NS", 50_000_000)
    door.broker.settings.subscriptions_a_subscriber = 1
    with Node(door.url) as node:
        assert not node.up().subscribed("first", "second", "third", "fourth")
        node.connection.unsubscribe(["third"])
        door.broker.settings.subscriptions_a_subscriber = 9
        node.until(lambda: b"fourth" in door.broker.subscriptions)
        asked = door.count(SUBSCRIBE)
        settle(node)
        assert door.count(SUBSCRIBE) == asked, "nothing is left to ask for"
        assert set(door.broker.subscriptions) == {b"first", b"second", b"fourth"}


@pytest.mark.parametrize(
    ("code", "says", "cause"),
    [
        (1, "it does not speak MQTT 3.1.1", Cause.VERSION),
        (3, "it has no room for another subscriber", Cause.BUSY),
        (9, "return code 9", Cause.UNKNOWN),
    ],
)
def test_a_refused_connection_is_reported_and_tried_again(
    code: int, says: str, cause: Cause
) -> None:
    with (
        Peer(lambda _: [bytes((0x20, 2, 0, code))]).open() as peer,
        Node(peer.url) as node,
    ):
        assert f":{peer.port} refused the connection: {says}" in node.error()
        assert node.connection.last_cause is cause
        node.until(lambda: node.connection.attempts >= 2)
        assert len(node.downs) == 1


def test_what_is_longer_than_a_frame_is_dropped_and_counted(door: Door) -> None:
    with Node(door.url) as node:
        node.up()
        room = 1472 - 3 - 2 - len(TOPIC)
        assert node.connection.publish(TOPIC, bytes(room)) is not None
        assert node.connection.publish(TOPIC, bytes(room + 1)) is None
        assert node.connection.publish(TOPIC, bytes(70_000)) is None
        assert node.connection.dropped == 2
        assert node.connection.connected


# -- trouble on the way ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [0x20, 0x30, 0x90, 0xB0])
def test_a_lost_answer_is_asked_for_again(door: Door, kind: int) -> None:
    lost: list[bytes] = []

    def lose_two(octets: bytes) -> list[bytes]:
        if octets[0] == kind and len(lost) < 2:
            lost.append(octets)
            return []
        return [octets]

    door.mangle = lose_two
    with Node(door.url) as node:
        assert node.up().subscribed(TOPIC)
        node.connection.unsubscribe([TOPIC])
        assert node.subscribed("next")
        assert set(door.broker.subscriptions) == {b"next"}
    assert len(lost) == 2


def test_duplicated_and_reordered_datagrams_change_nothing(door: Door) -> None:
    held: list[bytes] = []

    def twice_and_late(octets: bytes) -> list[bytes]:
        earlier, held[:] = held[:], [octets]
        return [octets, *earlier, octets]

    door.mangle = twice_and_late
    with Node(door.url) as node:
        for number in range(10):
            assert node.up().subscribed(f"topic/{number}")
            node.connection.unsubscribe([f"topic/{number - 1}"])
        assert node.subscribed("topic/9")
        assert set(door.broker.subscriptions) == {b"topic/9"}
        assert node.connection.connects == 1
        assert node.downs == []


@pytest.mark.slow
def test_a_reply_from_another_address_never_arrives() -> None:
    """The kernel drops it: the socket is connected."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))

        def answer(datagram: bytes) -> list[bytes]:
            stranger.sendto(ACCEPTED, peer.known)
            return [ACCEPTED] if datagram[0] == SUBSCRIBE else []

        with Peer(answer).open() as peer:
            with Node(peer.url, connect_timeout_s=0.5) as node:
                assert "did not answer within 0.5 s" in node.error()
                assert node.connection.connects == 0
            assert len(peer.taken) > 1


def test_an_answer_that_leaves_out_filters_answers_nothing() -> None:
    codes = iter([b"\0", b"\0\0", b"\0\0\0\0", b"\0\0\x80"])

    def answer(datagram: bytes) -> list[bytes]:
        if datagram[0] == CONNECT:
            return [ACCEPTED]
        return [packet(0x90, datagram[2:4] + next(codes))] if datagram[0] == SUBSCRIBE else []

    with Peer(answer).open() as peer, Node(peer.url) as node:
        assert not node.up().subscribed("a", "b", "c"), "the only whole answer refuses one"
        assert sum(one[0] == SUBSCRIBE for one in peer.taken) == 4


def test_nobody_can_guess_which_identifier_comes_next(door: Door) -> None:
    for _ in range(3):
        with Node(door.url) as node:
            assert node.up().subscribed(TOPIC)
    assert len({one[2:4] for one in door.taken if one[0] == SUBSCRIBE}) > 1


@pytest.mark.slow
def test_one_challenge_is_answered_for_each_request_and_no_more() -> None:
    """Who forges the broker's address must not make many datagrams of one."""
    with Peer(lambda datagram: [CHALLENGE] * 50 if datagram[0] == CONNECT else []).open() as peer:
        with Node(peer.url, connect_timeout_s=0.5) as node:
            node.error()
        proofs = peer.taken.count(CHALLENGE)
        connects = sum(one[0] == CONNECT for one in peer.taken)
        assert 1 < proofs <= connects - proofs  # each proof is followed by a CONNECT, at once


def test_what_is_no_packet_is_counted_and_changes_nothing(door: Door) -> None:
    good = publish(TOPIC.encode(), b"good")
    bad = [
        b"",
        b"\x30",
        b"\x00\x00",
        good[:-1],
        good + b"x",
        b"\x30\xff\xff\xff\xff\x01",
        b"\x90\x02\0\1",
    ]
    bad += [b"\x30\x03\x00\x09a", b"\x32\x07\x00\x01a\x00\x01abc", b"\x30\x04\x00\x01\xffx"]
    door.mangle = lambda octets: [*bad, octets] if octets == good else [octets]
    with Node(door.url) as node:
        node.up().subscribed(TOPIC)
        node.connection.publish(TOPIC, b"good")
        node.until(lambda: node.arrivals)
        assert [one.payload for one in node.arrivals] == [b"good"]
        assert node.connection.unread["malformed"] == len(bad)
        assert node.connection.connected


# -- a broker that is away -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_port_on_which_nobody_listens_is_told_at_once() -> None:
    port = free_port()
    with Node(f"mqtt+udp://127.0.0.1:{port}", connect_timeout_s=30) as node:
        said = node.error()
        assert said == (
            f"cannot connect to mqtt+udp://127.0.0.1:{port}: nobody listens on that UDP port "
            "([Errno 111] Connection refused)"
        )
        assert node.connection.last_cause is Cause.NOBODY_LISTENS
        with Door(port).open():
            node.up()


@pytest.mark.slow
def test_a_broker_that_never_answers_is_named_and_asked_again() -> None:
    with (
        Peer(lambda _: []).open() as peer,
        Node(peer.url, connect_timeout_s=0.2) as node,
    ):
        assert node.error() == f"{peer.url} did not answer within 0.2 s"
        assert node.connection.last_cause is Cause.SILENT
        node.until(lambda: node.connection.attempts >= 2)


@pytest.mark.slow
def test_a_silent_broker_is_noticed_within_one_keep_alive(door: Door) -> None:
    with Node(door.url, keepalive_s=2) as node:
        node.up().subscribed(TOPIC)
        node.loop.turn_for(3)
        assert node.downs == [], "pings keep an idle connection alive"
        assert door.count(PINGREQ) >= 3
        door.deaf = True
        node.until(lambda: node.downs)
        assert node.downs == [f"the connection to {door.url} was lost: no answer for 2 s"]
        assert node.connection.publish(TOPIC, b"") is None
        door.deaf = False
        node.up()
        assert node.subscribed(TOPIC)


@pytest.mark.slow
def test_a_broker_that_answers_pings_and_no_subscription_is_lost() -> None:
    answers = {CONNECT: [ACCEPTED], PINGREQ: [b"\xd0\x00"]}
    with (
        Peer(lambda datagram: answers.get(datagram[0], [])).open() as peer,
        Node(peer.url, keepalive_s=2) as node,
    ):
        node.up().connection.subscribe([TOPIC])
        node.until(lambda: node.downs)
        assert node.downs[0].endswith("was lost: no answer to a subscription for 2 s")
        node.up()
        node.loop.turn_for(3)
        assert len(node.downs) == 1, "it asked for nothing since"


@pytest.mark.slow
def test_a_lost_pong_is_asked_for_again(door: Door) -> None:
    with Node(door.url, keepalive_s=2) as node:
        node.up()
        answers = itertools.count(1)
        door.mangle = lambda octets: [octets] if next(answers) % 3 == 0 else []
        node.loop.turn_for(4)
        assert node.downs == []


@pytest.mark.slow
def test_a_broker_that_was_restarted_is_subscribed_to_again(door: Door) -> None:
    with Node(door.url, keepalive_s=2) as node:
        node.connection._on_up = lambda: node.connection.subscribe([TOPIC])
        node.until(lambda: TOPIC.encode() in door.broker.subscriptions)
        door.forget()
        node.until(lambda: TOPIC.encode() in door.broker.subscriptions)
        assert node.connection.connects == 2


@pytest.mark.slow
def test_a_restart_is_noticed_by_a_subscription_though_the_keep_alive_is_long(door: Door) -> None:
    """The broker challenges it: a proof would begin a lease in which the others are missing."""
    with Node(door.url, keepalive_s=600) as node:
        node.connection._on_up = lambda: node.connection.subscribe([TOPIC])
        node.until(lambda: TOPIC.encode() in door.broker.subscriptions)
        door.forget()
        node.connection.subscribe(["another"])
        node.until(lambda: TOPIC.encode() in door.broker.subscriptions, 20)
        assert node.connection.connects == 2


@pytest.mark.parametrize("what", ["subscribed", "unsubscribed"])
def test_who_asks_in_our_name_is_noticed(door: Door, what: str) -> None:
    """The lease goes on, so no ping would show it; the broker's answer comes to us."""
    make, topic = {
        "subscribed": (subscribe_packet, "#"),
        "unsubscribed": (unsubscribe_packet, TOPIC),
    }[what]
    with Node(door.url, keepalive_s=600) as node:
        node.connection._on_up = lambda: node.connection.subscribe([TOPIC, "other"])
        node.until(lambda: TOPIC.encode() in door.broker.subscriptions)
        (who,) = door.broker.leases
        guess = (node.connection._session._identifier + 1000) % 0xFFFF + 1  # type: ignore[attr-defined]
        now_ns = time.monotonic_ns() - door.reset_ns
        (answer,) = door.broker.datagram(now_ns, *who, make([topic], guess))
        assert set(door.broker.subscriptions) != {TOPIC.encode(), b"other"}
        door.socket.sendto(answer.octets, who)
        node.until(lambda: node.connection.connects == 2)
        node.until(lambda: set(door.broker.subscriptions) == {TOPIC.encode(), b"other"})
        assert node.downs == [f"the connection to {door.url} was lost: somebody {what} in our name"]


def test_a_challenge_that_is_late_costs_nothing(door: Door) -> None:
    with Node(door.url, keepalive_s=600) as node:
        node.up()
        door.mangle = lambda octets: [CHALLENGE, octets]
        assert node.subscribed(TOPIC)
        node.until(lambda: door.count(PINGREQ))
        settle(node)
        assert node.connection.connects == 1
        assert node.downs == []


def test_a_broker_that_ends_is_missed_at_once_and_found_again(door: Door) -> None:
    with Door().open() as second:
        url, port = second.url, second.port
        node = Node(url, keepalive_s=600)
        node.connection.start()
        node.up()
    try:
        node.connection.publish(TOPIC, b"nobody hears it")
        node.until(lambda: node.downs)
        assert node.downs[0].startswith(f"the connection to {url} was lost: nobody listens")
        with Door(port).open():
            node.up()
            node.connection.close()
    finally:
        node.loop.close()


def test_ipv4_only_is_said_where_a_name_has_no_such_address() -> None:
    with Node("mqtt+udp://broker.invalid") as node:
        assert "MQTT over UDP needs an IPv4 address" in node.error()
        assert node.connection.last_cause is Cause.HOST_UNKNOWN


def test_the_reference_packets_are_those_that_we_send() -> None:
    """So that the tests above do not agree on a mistake."""
    assert packet(0x20, b"\x00\x00") == ACCEPTED
