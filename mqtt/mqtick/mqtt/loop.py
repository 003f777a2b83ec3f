"""An event loop: one thread, one epoll, timers. It is small, to be fast between arrival and pin.

asyncio costs 20 to 30 us per event and spins on a socket with an undrained error queue; paho's own
loop uses select(). Timers run on CLOCK_MONOTONIC. For `precise` ones the last part of the wait is a
sleep, because epoll counts in milliseconds.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType

_PRECISE_LEAD_NS = 1_500_000
# This long before a precise timer, no lazy call is made.
_QUIET_NS = 3_000_000


class Timer:
    """A call in the future; `cancel` revokes it."""

    __slots__ = ("callback", "due_ns", "precise")

    def __init__(self, due_ns: int, callback: Callable[[], None] | None, precise: bool) -> None:
        self.due_ns = due_ns
        self.callback = callback
        self.precise = precise

    def cancel(self) -> None:
        """Revoke the call."""
        self.callback = None


class Loop:
    """Calls back on readiness and time. Only `call_soon_threadsafe` may come from other threads."""

    READ, WRITE, ERROR = select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._lazy: list[tuple[int, int, Timer]] = []
        self._count = itertools.count()
        self._ready: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._lock = threading.Lock()
        self._closed = False
        self.running = False
        self._stopping = False

    def add(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` when the descriptor is ready."""
        self._callbacks[fd] = callback
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        """Change the events to wait for."""
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        """Forget the descriptor (it may be closed already)."""
        self._callbacks.pop(fd, None)
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(fd)

    def call_at(self, due_ns: int, callback: Callable[[], None], *, precise: bool = False) -> Timer:
        """Call at a CLOCK_MONOTONIC instant, never before it."""
        timer = Timer(due_ns, callback, precise)
        lead = _PRECISE_LEAD_NS if precise else 0
        heapq.heappush(self._timers, (due_ns - lead, next(self._count), timer))
        return timer

    def call_later(self, delay_ns: int, callback: Callable[[], None]) -> Timer:
        """Call after `delay_ns`."""
        return self.call_at(time.monotonic_ns() + delay_ns, callback)

    def call_lazily(self, delay_ns: int, slack_ns: int, callback: Callable[[], None]) -> Timer:
        """Call after `delay_ns` when something else has woken the loop, `slack_ns` later at most.

        A wake-up costs more than most of the work that it is for, so work that can wait should not
        cause one. The call comes after everything else, and not close to precise timers.
        """
        due_ns = time.monotonic_ns() + delay_ns
        timer = self.call_at(due_ns + slack_ns, callback)
        heapq.heappush(self._lazy, (due_ns, next(self._count), timer))
        return timer

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        """Call in the loop's thread; the one method that other threads may use.

        After `close` it does nothing: a thread may outlive its loop.
        """
        with self._lock:
            if not self._closed:
                self._ready.append(callback)
                os.eventfd_write(self._wake, 1)

    def stop_on_signals(self, *signals: signal.Signals) -> None:
        """Stop cleanly on the given signals (default SIGTERM and SIGINT)."""

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.stop()

        for number in signals or (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)

    def call_on_signal(self, number: signal.Signals, callback: Callable[[], None]) -> None:
        """Call in a turn of the loop after each of these signals."""

        def remember(_number: int, _frame: FrameType | None) -> None:
            self._ready.append(callback)  # no lock: the interrupted code may hold it
            os.eventfd_write(self._wake, 1)

        signal.signal(number, remember)

    def stop(self) -> None:
        """Leave `run` after the current turn, or at once if it has not started yet."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Run until `stop`."""
        self.running = True
        while not self._stopping:
            self.turn()
        self.running = self._stopping = False

    def turn(self, longest_s: float = 60.0) -> None:
        """Wait once and call everything that is due."""
        wait_s = longest_s
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if self._timers:
            wait_s = min(wait_s, max(0.0, (self._timers[0][0] - time.monotonic_ns()) / 1e9))
        if self._ready:
            wait_s = 0.0
        for fd, events in self._epoll.poll(wait_s):
            if fd == self._wake:
                os.eventfd_read(self._wake)
                continue
            callback = self._callbacks.get(fd)
            if callback is not None:
                callback(events)
        while self._ready:
            self._ready.popleft()()
        if not self._run_timers():
            self._run_lazy()

    def turn_until(self, condition: Callable[[], object], limit_s: float) -> bool:
        """Run turns until the condition is true or the time is over; return whether it is true."""
        end_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > end_s:
                return False
            self.turn(0.02)
        return True

    def turn_for(self, duration_s: float) -> None:
        """Run turns for this long."""
        end_s = time.monotonic() + duration_s
        while (left_s := end_s - time.monotonic()) > 0:
            self.turn(left_s)

    def _run_timers(self) -> bool:
        """Call the timers that are due; return whether a precise one was among them."""
        was_precise = False
        while self._timers and self._timers[0][0] <= time.monotonic_ns():
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is None:
                continue
            if timer.precise:
                was_precise = True
                rest_ns = timer.due_ns - time.monotonic_ns()
                if rest_ns > 0:
                    time.sleep(rest_ns / 1e9)
            callback()
        return was_precise

    def _run_lazy(self) -> None:
        now_ns = time.monotonic_ns()
        if self._timers:
            due_ns, _, timer = self._timers[0]
            if timer.precise and due_ns - now_ns < _QUIET_NS:
                return
        while self._lazy and self._lazy[0][0] <= now_ns:
            timer = heapq.heappop(self._lazy)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()

    def close(self) -> None:
        """Release the descriptors."""
        with self._lock:
            self._closed = True
            self._epoll.close()
            os.close(self._wake)
