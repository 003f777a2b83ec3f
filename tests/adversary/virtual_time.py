"""Virtual time: one true timeline, hosts whose clocks err on it, and a loop that waits for nothing.

Client and server are the real ones. What they take from the machine (time, chance, threads, the
connection) is replaced by name in their modules while a world runs, so that a world is the same
whenever its seed is.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import mqtick.client.discipline as client_discipline
import mqtick.mqtt.frames as mqtt_frames
import mqtick.mqtt.stamps as mqtt_stamps
import mqtick.timeserver.echo as server_echo
from mqtick.mqtt.loop import Timer
from mqtick.protocol.steps import StepDetector
from mqtick.service import ChronyVersion

__all__ = ["MS", "SECOND", "US", "HostClock", "Slew", "World"]

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
_START_NS = 1_000 * SECOND
"""CLOCK_MONOTONIC of every host when a world begins."""
EPOCH_NS = 1_790_000_000 * SECOND
"""True Unix time then."""


class World:
    """The true time, everything that is due, and chance; in place of the loop of each program."""

    def __init__(self, seed: int) -> None:
        self.now_ns = _START_NS
        self.random = random.Random(seed)
        self.kernel_now_ns: Callable[[], int] = lambda: self.utc_ns
        """CLOCK_REALTIME of the host whose stamps and frames run now."""
        self._timers: list[tuple[int, int, Timer]] = []
        self._count = itertools.count()

    @property
    def elapsed_ns(self) -> int:
        """True time since the world began."""
        return self.now_ns - _START_NS

    @property
    def utc_ns(self) -> int:
        """True Unix time."""
        return EPOCH_NS + self.elapsed_ns

    def chance_ns(self, below_ns: int) -> int:
        """Return a duration by chance."""
        return int(self.random.random() * below_ns)

    def call_at(self, due_ns: int, callback: Callable[[], None], *, precise: bool = False) -> Timer:
        timer = Timer(due_ns, callback, precise)
        heapq.heappush(self._timers, (due_ns, next(self._count), timer))
        return timer

    def call_later(self, delay_ns: int, callback: Callable[[], None]) -> Timer:
        return self.call_at(self.now_ns + delay_ns, callback)

    def call_lazily(self, delay_ns: int, _slack_ns: int, callback: Callable[[], None]) -> Timer:
        return self.call_at(self.now_ns + delay_ns, callback)

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.call_at(self.now_ns, callback)

    def run(self, until_ns: int = 0) -> None:
        """Do what is due up to this instant of the true time."""
        timers = self._timers
        while timers and timers[0][0] <= until_ns:
            due_ns, _, timer = heapq.heappop(timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self.now_ns = max(self.now_ns, due_ns)
                callback()
        self.now_ns = max(self.now_ns, until_ns)

    def _kernel_time_ns(self) -> int:
        return self.kernel_now_ns()

    def stop(self) -> None:
        """A program ends; the world goes on."""

    # -- in place of the modules time, random, secrets, threading --------------------------------

    @contextlib.contextmanager
    def installed(self, *more: tuple[Any, str, Any]) -> Iterator[None]:
        """Give the programs this world's time and chance for as long as the context lasts.

        `more`: module, name and value of what else is replaced.
        """
        virtual = {
            time: _virtual_time(self),
            random: self.random,
            _secrets: _virtual_secrets(self.random),
        }
        changes = [*more, *((module, name, virtual[what]) for module, name, what in _uses())]
        kernel_time = SimpleNamespace(time_ns=self._kernel_time_ns)
        changes += [(mqtt_stamps, "time", kernel_time), (mqtt_frames, "time", kernel_time)]
        no_thread = SimpleNamespace(start=lambda: None, join=lambda _s: None, is_alive=lambda: True)
        changes += [
            (server_echo, "Loop", lambda: self),
            (server_echo, "threading", SimpleNamespace(Thread=lambda **_: no_thread)),
            (client_discipline, "chronyd", SimpleNamespace(version=lambda: ChronyVersion(4, 7))),
        ]
        before = [(where, name, getattr(where, name)) for where, name, _ in changes]
        try:
            for change in changes:
                setattr(*change)
            yield
        finally:
            for change in before:
                setattr(*change)


_secrets = sys.modules["secrets"]
_cached: list[tuple[ModuleType, str, ModuleType]] = []


def _uses() -> list[tuple[ModuleType, str, ModuleType]]:
    """Find the modules of the programs that use the time of the machine, or chance."""
    if not _cached:
        wanted = {"time": time, "random": random, "secrets": _secrets}
        _cached.extend(
            (module, name, what)
            for full_name, module in list(sys.modules.items())
            if full_name.startswith(
                ("mqtick.client.", "mqtick.timeserver.", "mqtick.protocol.", "mqtick.mqtt.")
            )
            for name, what in wanted.items()
            if getattr(module, name, None) is what
        )
    return _cached


def _virtual_time(world: World) -> SimpleNamespace:
    """Everything that is read is the true time: no program judges a clock by it."""
    clocks = {name: getattr(time, name) for name in dir(time) if name.startswith("CLOCK_")}
    return SimpleNamespace(
        **clocks,
        monotonic_ns=lambda: world.now_ns,
        monotonic=lambda: world.now_ns / 1e9,
        time_ns=lambda: world.utc_ns,
        time=lambda: world.utc_ns / 1e9,
        clock_gettime_ns=lambda _clock: world.now_ns,
        gmtime=time.gmtime,
        strftime=time.strftime,
    )


def _virtual_secrets(chance: random.Random) -> SimpleNamespace:
    return SimpleNamespace(
        token_bytes=chance.randbytes,
        token_hex=lambda octets: chance.randbytes(octets).hex(),
        randbelow=chance.randrange,
        randbits=chance.getrandbits,
    )


class Slew(NamedTuple):
    """A correction of a system clock by chronyd: from when, by how much, how fast (ppm)."""

    start_s: float
    by_ns: int
    ppm: float

    @property
    def took_ns(self) -> int:
        return round(abs(self.by_ns) * 1e6 / self.ppm) + 1


class HostClock:
    """The clocks of one host: a crystal that errs and wanders, and a system clock.

    `offset_ns`: what the crystal's timeline reads when the world begins, minus true Unix time.
    `ppm`: by how much it runs fast. `wander_ppb`: deviation of the step that its frequency takes
    each second, at most twice that. `slew_ppm`: how fast the system clock is moved against it all
    the time; `slews`: in addition, by corrections. `set` steps the system clock. `sleep` stops the
    crystal's timeline for so long, which here takes no time; `pause` stops the system clock too,
    and nothing on the host tells: a virtual machine.
    """

    def __init__(
        self,
        world: World,
        *,
        offset_ns: int = 0,
        ppm: float = 0.0,
        wander_ppb: float = 0.0,
        slew_ppm: float = 0.0,
        slews: Sequence[Slew] = (),
        seed: int = 0,
    ) -> None:
        self._world = world
        self._start_ns = EPOCH_NS + offset_ns
        self._wander, self._slew = wander_ppb, slew_ppm * 1e-6
        self._slews = [
            (_START_NS + round(one.start_s * SECOND), one.by_ns, one.took_ns) for one in slews
        ]
        self._random = random.Random(seed)
        self._rate, self._phase = [ppm * 1e3], [0.0]
        self._sets: list[tuple[int, int]] = []
        self._sleeps: list[tuple[int, int]] = []
        self._pauses: list[tuple[int, int]] = []
        self._last = 0, 0

    def at(self, true_ns: int) -> int:
        """Read the free-running timeline at an instant of the true time."""
        if true_ns == self._last[0]:  # programs read all their clocks at one instant
            return self._last[1]
        elapsed_ns = true_ns - _START_NS
        second, rest = divmod(elapsed_ns, SECOND) if elapsed_ns > 0 else (0, elapsed_ns)
        while len(self._rate) <= second:
            self._phase.append(self._phase[-1] + self._rate[-1])
            step = min(max(self._random.gauss(0.0, 1.0), -2.0), 2.0) * self._wander
            self._rate.append(self._rate[-1] + step)
        read_ns = self._start_ns + elapsed_ns
        read_ns += round(self._phase[second] + self._rate[second] * (rest / SECOND))
        if self._sleeps or self._pauses:
            read_ns -= _until(self._sleeps, true_ns) + _until(self._pauses, true_ns)
        self._last = true_ns, read_ns
        return read_ns

    def _ahead_ns(self, true_ns: int) -> int:
        """The system clock minus the free-running timeline."""
        ahead_ns = self._slew * (true_ns - _START_NS)
        for start_ns, by_ns, took_ns in self._slews:
            if true_ns > start_ns:
                since_ns = true_ns - start_ns
                ahead_ns += by_ns * (since_ns / took_ns) if since_ns < took_ns else by_ns
        if self._sets or self._sleeps:
            ahead_ns += _until(self._sets, true_ns) + _until(self._sleeps, true_ns)
        return round(ahead_ns)

    def rate_ppb(self, true_ns: int) -> float:
        """How fast the crystal is."""
        self.at(true_ns)
        return self._rate[max(true_ns - _START_NS, 0) // SECOND]

    def slewed_ppm(self) -> float:
        """The fastest slew so far."""
        now_ns = self._world.now_ns
        return max(
            (abs(by) / took * 1e6 for start, by, took in self._slews if start <= now_ns),
            default=0.0,
        )

    def set_ns(self, true_ns: int) -> int:
        """How far the system clock was stepped up to an instant of the true time."""
        return _until(self._sets, true_ns)

    def realtime_at(self, true_ns: int) -> int:
        """Read the system clock at an instant of the true time."""
        return self.at(true_ns) + self._ahead_ns(true_ns)

    def slept_ns(self) -> int:
        """How long the host has slept by now."""
        return _until(self._sleeps, self._world.now_ns)

    def set(self, by_ns: int, true_ns: int) -> None:
        """Step the system clock at an instant that has not come yet."""
        self._sets.append((true_ns, by_ns))

    def sleep(self, for_ns: int, true_ns: int) -> None:
        """Have the host sleep at an instant that has not come yet."""
        self._sleeps.append((true_ns, for_ns))
        self._last = 0, 0

    def pause(self, for_ns: int) -> None:
        """Have the host stand still, now."""
        self._pauses.append((self._world.now_ns, for_ns))
        self._last = 0, 0

    def detector(self, noticed: Callable[[], None] = lambda: None) -> StepDetector:
        """Return what a program of this host notices that by; `noticed` is called when it does."""
        seen = 0

        def was_set() -> bool:
            nonlocal seen
            now_ns, before = self._world.now_ns, seen
            seen = sum(at_ns <= now_ns for at_ns, _ in (*self._sets, *self._sleeps))
            if seen > before:
                noticed()
            return seen > before

        def read(clock: int) -> int:
            slept_ns = self.slept_ns() if clock == time.CLOCK_BOOTTIME else 0
            return self._world.now_ns + slept_ns

        return StepDetector(read, was_set)

    # -- what a program reads --------------------------------------------------------------------

    def raw_ns(self) -> int:
        return self.at(self._world.now_ns)

    def time_ns(self) -> int:
        return self.realtime_at(self._world.now_ns)

    def time_minus_raw_ns(self) -> int:
        return self._ahead_ns(self._world.now_ns)

    def raw_of_kernel_ns(self, realtime_ns: int) -> int:
        return realtime_ns - self._ahead_ns(self._world.now_ns)

    def time_of_kernel_ns(self, realtime_ns: int) -> int:
        return realtime_ns

    def monotonic_raw_ns(self, raw_ns: int) -> int:
        return raw_ns


def _until(changes: list[tuple[int, int]], true_ns: int) -> int:
    total_ns = 0
    for at_ns, by_ns in changes:
        if at_ns <= true_ns:
            total_ns += by_ns
    return total_ns
