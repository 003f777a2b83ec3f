"""A crowd of subscribers over UDP, each a socket of its own, on the reference broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from crowd_rig import Running
from hypothesis import given
from hypothesis import strategies as st
from udp_peer import Door, Peer

from mqtick.lab.load import udp_member
from mqtick.lab.load.member import ConnectTarget, State
from mqtick.lab.load.udp_member import UdpMember
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.loop import Loop

ACCEPTED, GRANTED = b"\x20\x02\x00\x00", b"\x90\x03\x00\x01\x00"
TIME = b"\x30\x0d\x00\x0amqtick/t/0x"


@pytest.fixture
def door() -> Iterator[Door]:
    with Door().open() as made:
        yield made


def publish(door: Door, times: int = 1) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _ in range(times):
            sock.sendto(TIME, (door.host, door.port))


def test_a_hundred_are_up_and_each_counts_each_message(door: Door) -> None:
    with Running(parse_broker_url(door.url)) as crowd:
        answer = crowd.ask("join", count=100, timeout_s=30)
        assert answer == {"members": 100, "granted": 100, "refused": 0}
        assert len(door.broker.subscriptions[b"mqtick/t/+"]) == 100
        publish(door, 3)
        crowd.counted(members=100, messages=300, least=3, most=3, lost=0)
        assert crowd.ask("leave") == {}
        assert b"mqtick/t/+" not in door.broker.subscriptions


def test_those_who_join_take_the_place_of_those_who_were_there(door: Door) -> None:
    with Running(parse_broker_url(door.url)) as crowd:
        crowd.ask("join", count=20, timeout_s=30)
        crowd.ask("join", count=10, timeout_s=30)
        assert len(door.broker.subscriptions[b"mqtick/t/+"]) == 10
        publish(door)
        crowd.counted(members=10, messages=10, least=1, most=1, lost=0)


def test_a_broker_without_room_for_more_is_named(door: Door) -> None:
    door.broker.settings.subscribers_an_address = 7  # crowd and runner have one each
    with Running(parse_broker_url(door.url)) as crowd:
        answer = crowd.ask("join", count=10, timeout_s=30)
    assert (answer["granted"], answer["refused"]) == (5, 5)
    assert "it has no room for another subscriber" in answer["problem"]


class Alone:
    """One member, and a broker of a few words."""

    def __init__(self, answers: dict[int, list[bytes]]) -> None:
        self.loop = Loop()
        self.peer = Peer(lambda datagram: answers.get(datagram[0], []))
        self.ended: list[State] = []
        target = ConnectTarget(socket.AF_INET, ("127.0.0.1", self.peer.port), "", "mqtick/t/+")
        with self.peer.open():
            self.member = UdpMember(
                self.loop, target, "w1", lambda one: self.ended.append(one.state)
            )
            self.loop.turn_until(lambda: self.ended, 10)


def test_a_lease_is_renewed_by_counting(door: Door) -> None:
    with Running(parse_broker_url(door.url)) as crowd:
        crowd.ask("join", count=5, timeout_s=30)
        before = door.count(0xC0)
        for member in crowd.crowd._members:
            member._answered_s -= 400  # type: ignore[union-attr]
        crowd.counted(members=5)
        while door.count(0xC0) < before + 5:  # or the time-out of the test
            time.sleep(0.01)
        crowd.counted(members=5, lost=0)


def test_a_silent_broker_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Alone({0x10: [ACCEPTED], 0x82: [GRANTED]})
    assert alone.ended == [State.UP]
    monkeypatch.setattr(udp_member, "_KEEPALIVE_S", 0.0)
    time.sleep(0.001)
    alone.member.count()
    assert alone.ended == [State.UP, State.LOST]
    alone.loop.close()


def test_what_is_answered_twice_is_asked_for_once() -> None:
    alone = Alone({0x10: [ACCEPTED] * 9, 0x82: [ACCEPTED] * 9 + [GRANTED] * 9})
    assert alone.ended == [State.UP]
    assert [one[0] for one in alone.peer.taken] == [0x10, 0x82]
    alone.member.close()
    alone.loop.close()


REFUSED = b"\x90\x03\x00\x01\x80"


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({0x10: [b"\x20\x02\x00\x03"]}, "refused the connection: it has no room"),
        ({0x10: [ACCEPTED], 0x82: [REFUSED]}, "refused the subscription to mqtick"),
        ({0x10: [GRANTED, ACCEPTED], 0x82: [REFUSED]}, "refused the subscription to mqtick"),
        ({0x10: [ACCEPTED], 0x82: [GRANTED[:-1] + b"\x03"]}, "refused the subscription to mqtick"),
    ],
)
def test_a_refusal_is_told(answers: dict[int, list[bytes]], problem: str) -> None:
    alone = Alone(answers)
    assert alone.ended == [State.REFUSED]
    assert problem in alone.member.problem
    alone.loop.close()


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_octets_of_a_broker_raise(datagrams: list[bytes]) -> None:
    loop = Loop()
    ended: list[Any] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as broker:
        broker.bind(("127.0.0.1", 0))
        target = ConnectTarget(socket.AF_INET, broker.getsockname(), "", "mqtick/t/+")
        member = UdpMember(loop, target, "w1", ended.append)
        for one in [ACCEPTED, *datagrams, GRANTED, *datagrams]:
            member._take(one)
        member.close()
    loop.close()
    assert ended
