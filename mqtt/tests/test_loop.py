"""The event loop: descriptors, timers and other threads, one thing after another."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from mqtick.mqtt.loop import Loop

MS = 1_000_000


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def run_until(loop: Loop, done: list[object], count: int = 1) -> None:
    loop.turn_until(lambda: len(done) >= count, 30)


# -- timers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("delays_ms", [(3, 1, 2), (1, 1, 1, 1, 1)], ids=["apart", "of one instant"])
def test_timers_run_in_the_order_of_their_instants_and_then_as_they_were_made(
    loop: Loop, delays_ms: tuple[int, ...]
) -> None:
    ran: list[object] = []
    now = time.monotonic_ns()
    made = list(enumerate(delays_ms))
    for place, delay in made:
        loop.call_at(now + delay * MS, partial(ran.append, place))
    run_until(loop, ran, len(made))
    assert ran == [place for place, _ in sorted(made, key=lambda one: one[1])]


@pytest.mark.parametrize("precise", [False, True])
def test_a_timer_never_runs_early(loop: Loop, precise: bool) -> None:
    early: list[object] = []
    for step in range(10):
        due = time.monotonic_ns() + 3 * MS + step * 100_000
        loop.call_at(due, lambda due=due: early.append(time.monotonic_ns() - due), precise=precise)  # type: ignore[misc]
        run_until(loop, early, step + 1)
    assert len(early) == 10
    assert all(isinstance(late, int) and late >= 0 for late in early)


def test_a_cancelled_timer_does_not_run_though_it_was_the_one_before_that_cancelled_it(
    loop: Loop,
) -> None:
    ran: list[object] = []
    due = time.monotonic_ns() + MS

    def first() -> None:
        ran.append("first")
        second.cancel()

    loop.call_at(due, first)
    second = loop.call_at(due, lambda: ran.append("second"))
    loop.call_lazily(0, MS, lambda: ran.append("lazy")).cancel()
    loop.call_later(MS, lambda: ran.append("cancelled")).cancel()
    loop.call_later(5 * MS, lambda: ran.append("end"))
    run_until(loop, ran, 2)
    loop.turn(0)
    assert ran == ["first", "end"]


# -- descriptors -----------------------------------------------------------------------------------


def test_a_descriptor_that_is_ready_is_told_what_it_is_ready_for(loop: Loop) -> None:
    one, other = socket.socketpair()
    events: list[object] = []
    loop.add(one.fileno(), Loop.READ, events.append)
    loop.turn(0)
    assert events == []
    other.send(b"x")
    run_until(loop, events)
    loop.modify(one.fileno(), Loop.WRITE)
    run_until(loop, events, 2)
    assert events == [Loop.READ, Loop.WRITE]
    one.close()
    other.close()


def test_a_forgotten_descriptor_is_left_alone_though_it_is_closed_already(loop: Loop) -> None:
    one, other = socket.socketpair()
    number = one.fileno()
    loop.add(number, Loop.READ, lambda _events: pytest.fail("called"))
    one.close()
    loop.remove(number)
    loop.remove(number)
    loop.turn(0)
    other.close()


# -- other threads and signals ---------------------------------------------------------------------


def test_another_thread_wakes_the_loop_and_its_calls_run_in_the_loops_thread(loop: Loop) -> None:
    ran: list[object] = []

    def other() -> None:
        for _ in range(3):
            loop.call_soon_threadsafe(lambda: ran.append(threading.get_ident()))

    thread = threading.Thread(target=other)
    began = time.monotonic()
    thread.start()
    while len(ran) < 3:
        loop.turn(10.0)
    thread.join()
    assert ran == [threading.get_ident()] * 3
    assert time.monotonic() - began < 5


def test_a_thread_that_comes_after_the_end_harms_no_descriptor() -> None:
    ended = Loop()
    number = ended._wake
    ended.close()
    reused = os.eventfd(0, os.EFD_NONBLOCK)
    if reused != number:
        os.dup2(reused, number)
        os.close(reused)
    ended.call_soon_threadsafe(lambda: None)
    with pytest.raises(BlockingIOError):  # nothing was written to whoever has the number now
        os.eventfd_read(number)
    os.close(number)


def test_stop_ends_the_loop_after_the_turn(loop: Loop) -> None:
    ran: list[object] = []
    loop.call_later(MS, loop.stop)
    loop.call_later(MS, lambda: ran.append("same turn"))
    loop.run()
    assert ran == ["same turn"]
    assert not loop.running


def test_a_signal_ends_the_loop(loop: Loop) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    try:
        loop.stop_on_signals(signal.SIGUSR1)
        loop.call_later(MS, lambda: signal.raise_signal(signal.SIGUSR1))
        loop.run()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not loop.running


def test_a_signal_is_answered_in_a_turn_each_time(loop: Loop) -> None:
    ran: list[object] = []
    before = signal.getsignal(signal.SIGUSR1)
    try:
        loop.call_on_signal(signal.SIGUSR1, lambda: ran.append("called"))
        for count in (1, 2):
            signal.raise_signal(signal.SIGUSR1)
            assert len(ran) == count - 1
            run_until(loop, ran, count)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_stop_before_the_run_is_not_forgotten(loop: Loop) -> None:
    loop.stop()
    loop.run()
    assert not loop.running


# -- what can wait ---------------------------------------------------------------------------------


def test_what_can_wait_is_called_when_something_else_wakes_the_loop(loop: Loop) -> None:
    ran: list[object] = []
    loop.call_lazily(MS, 10_000 * MS, lambda: ran.append("lazy"))
    loop.call_later(3 * MS, lambda: ran.append("timer"))
    run_until(loop, ran, 2)
    assert ran == ["timer", "lazy"]


def test_before_its_delay_nothing_makes_it_run(loop: Loop) -> None:
    ran: list[object] = []
    loop.call_lazily(10_000 * MS, 0, lambda: ran.append("lazy"))
    loop.call_later(MS, lambda: ran.append("timer"))
    run_until(loop, ran, 1)
    loop.turn(0)
    assert ran == ["timer"]


def test_after_its_slack_it_is_called_without_any_other_reason(loop: Loop) -> None:
    ran: list[object] = []
    began_ns = time.monotonic_ns()
    loop.call_lazily(5 * MS, 15 * MS, lambda: ran.append(time.monotonic_ns() - began_ns))
    run_until(loop, ran, 1)
    assert isinstance(ran[0], int)
    assert ran[0] >= 20 * MS
    loop.turn(0.03)
    assert len(ran) == 1


def test_nothing_that_can_wait_is_called_around_a_precise_timer(loop: Loop) -> None:
    ran: list[object] = []
    now_ns = time.monotonic_ns()
    loop.call_at(now_ns + 20 * MS, lambda: ran.append("precise"), precise=True)
    loop.call_lazily(0, 10_000 * MS, lambda: ran.append("lazy"))
    loop.call_at(now_ns + 17 * MS, lambda: ran.append("shortly before"))
    time.sleep(0.017)
    run_until(loop, ran, 2)
    assert ran == ["shortly before", "precise"]
    loop.call_later(0, lambda: ran.append("after"))
    run_until(loop, ran, 4)
    assert ran == ["shortly before", "precise", "after", "lazy"]


def test_a_cancelled_timer_wakes_nobody(loop: Loop) -> None:
    loop.call_later(5 * MS, lambda: None).cancel()
    began_ns = time.monotonic_ns()
    loop.turn(0.05)
    assert time.monotonic_ns() - began_ns >= 40 * MS
