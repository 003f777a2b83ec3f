"""The published dialect, with a peer that behaves as that board does (simulated, never tried)."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest
from live import Node
from udp_peer import Board

from mqtick.mqtt.published_session import PublishedSession

TIME, LOOP = "m/t/0", "m/l/0"


@pytest.fixture
def board() -> Iterator[Board]:
    with Board().open() as made:
        yield made


def local_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("", 0))
        return int(sock.getsockname()[1])


def node_of(board: Board, port: int | None = None) -> Node:
    return Node(f"{board.url}&port={port or local_port()}")


def test_it_is_up_at_once_and_says_nothing_to_connect(board: Board) -> None:
    with node_of(board) as node:
        node.up()
        node.loop.turn_for(0.2)
    assert board.taken == []


def test_a_message_keeps_its_first_octet_and_comes_once_for_each_level(board: Board) -> None:
    with node_of(board) as node:
        assert node.up().subscribed(LOOP)
        node.connection.publish(LOOP, b"whole")
        node.until(lambda: len(node.arrivals) == 3)
    assert {(one.topic, one.payload) for one in node.arrivals} == {(LOOP, b"whole")}
    assert board.taken == [
        b"\x80\x07\x00\x05m/l/0",
        b"\x30\x0d\x00\x05m/l/0\x00whole",
    ]


@pytest.mark.slow
def test_a_subscription_is_sent_once_also_after_a_new_connection(board: Board) -> None:
    with node_of(board) as node:
        for _ in range(2):
            assert node.up().subscribed(LOOP, TIME)
            assert node.subscribed(LOOP)
            node.connection.drop("to connect again")
        node.up().subscribed(LOOP)
        node.connection.publish(LOOP, b"behind them")
        node.until(lambda: node.arrivals)
    assert board.filters == [LOOP.encode(), TIME.encode()]


def test_what_nobody_asked_for_is_counted_and_dropped(board: Board) -> None:
    board.stale = [b"\x30\x0b\x00\x05m/l/1\x00old", b"\x30\x0b\x00\x05x\xff/l/\x00old"]
    with node_of(board) as node:
        node.up().subscribed(LOOP)
        calls: list[int] = []
        node.connection.hooks[b"m/l/1"] = lambda: calls.append(1)
        node.connection.publish(LOOP, b"new")
        node.until(lambda: len(node.arrivals) == 3)
        assert {one.payload for one in node.arrivals} == {b"new"}
        assert node.connection._session.foreign == 2  # type: ignore[attr-defined]
        assert calls == []


def test_one_level_of_any_name_is_asked_for_by_everything_below_and_compared_here(
    board: Board,
) -> None:
    with node_of(board) as node:
        assert node.up().subscribed("m/t/+", "m/f/+/kitchen", "m/f/+/hall")
        node.until(lambda: board.filters == [b"m/t/#", b"m/f/#"])
        for topic in ("m/f/0/stranger", "m/f/0/kitchen", "m/t/0/x", "m/t/0"):
            node.connection.publish(topic, b"x")
        node.until(lambda: any(one.topic == "m/t/0" for one in node.arrivals))
    assert {one.topic for one in node.arrivals} == {"m/f/0/kitchen", "m/t/0"}


def test_what_is_unsubscribed_is_dropped_here_and_asked_for_no_second_time(board: Board) -> None:
    with node_of(board) as node:
        node.up().subscribed(LOOP, TIME)
        node.connection.unsubscribe([LOOP])
        node.connection.publish(LOOP, b"not heard")
        node.connection.publish(TIME, b"heard")
        node.until(lambda: node.arrivals)
        assert {one.payload for one in node.arrivals} == {b"heard"}
        assert node.subscribed(LOOP)
        node.connection.publish(LOOP, b"again")
        node.until(lambda: any(one.payload == b"again" for one in node.arrivals))
    assert board.filters == [LOOP.encode(), TIME.encode()]


@pytest.mark.parametrize("topic", ["#", "+/t", "m/" + "x" * 31])
def test_a_filter_that_the_board_cannot_have_is_refused(board: Board, topic: str) -> None:
    with node_of(board) as node:
        assert not node.up().subscribed(topic)
    assert board.taken == []


def test_what_the_board_would_cut_is_not_sent(board: Board) -> None:
    with node_of(board) as node:
        node.up()
        assert node.connection.publish(LOOP, bytes(32)) is not None
        assert node.connection.publish(LOOP, bytes(33)) is None
        assert node.connection.publish("m/" + "x" * 31, b"") is None
        assert node.connection.dropped == 2
        node.connection.publish_retained("m/s/0", b"status")
        node.until(lambda: board.taken)
    assert len(board.taken) == 1


def test_the_port_is_the_same_after_a_restart_and_the_next_one_beside_a_running_program(
    board: Board,
) -> None:
    port, used = local_port(), []
    for _ in range(2):
        with node_of(board, port) as node:
            node.up()
            used.append(node.connection._session.kernel.sock.getsockname()[1])  # type: ignore[union-attr]
            with node_of(board, port) as beside:
                beside.up()
                used.append(beside.connection._session.kernel.sock.getsockname()[1])  # type: ignore[union-attr]
    assert used[:2] == used[2:]
    assert port == used[0] < used[1]


def test_where_nobody_listens_it_is_said_once_and_the_port_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = f"mqtt+udp://127.0.0.1:{local_port()}?dialect=published&port={local_port()}"
    with Node(url) as node:
        node.up()
        for _ in range(5):
            node.connection.publish(LOOP, b"x")
            node.loop.turn_for(0.05)
        assert node.connection.connected
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert "nobody listens on that UDP port" in said[0].getMessage()


def test_who_makes_the_board_come_and_go_makes_no_long_log(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    with node_of(board) as node:
        session = node.up().connection._session
        for _ in range(100):
            session._take(b"")  # type: ignore[attr-defined]
            session._broken(ConnectionRefusedError(111, "refused"))  # type: ignore[attr-defined]
    assert sum(record.levelno >= logging.WARNING for record in caplog.records) == 1


def test_what_strangers_sent_before_the_socket_was_connected_is_dropped(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = b"\x30\x0e\x00\x05m/l/0\x00forged"
    bind = PublishedSession._bind

    def bind_and_be_sent(session: PublishedSession, sock: socket.socket) -> None:
        bind(session, sock)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(forged, ("127.0.0.1", sock.getsockname()[1]))

    monkeypatch.setattr(PublishedSession, "_bind", bind_and_be_sent)
    with node_of(board) as node:
        node.connection._on_up = lambda: node.connection.subscribe([LOOP])
        node.up().connection.publish(LOOP, b"true")
        node.until(lambda: node.arrivals)
        assert {one.payload for one in node.arrivals} == {b"true"}


def test_what_is_no_packet_is_counted(board: Board) -> None:
    bad = [b"", b"\x30", b"\x30\x01\x00\x05", b"\x30\x07\x00\x05m/l/0", b"\x20\x02\x00\x00"]
    bad += [b"\x30\xff\x00\x05m/l/0\x00x", b"\x31\x09\x00\x05m/l/0\x00x"]
    board.stale = bad
    with node_of(board) as node:
        node.up().subscribed(LOOP)
        node.connection.publish(LOOP, b"good")
        node.until(lambda: len(node.arrivals) == 3)
        assert node.connection.unread["malformed"] == len(bad)
