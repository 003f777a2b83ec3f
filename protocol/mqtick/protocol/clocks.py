"""Clocks: the host's own, and virtual ones whose truth is known exactly.

Two timelines are kept apart everywhere in mqtick:

- *raw*: free-running, never stepped and never slewed (CLOCK_MONOTONIC_RAW). Estimation runs on it.
- *time*: the clock that people read and that is judged or disciplined (CLOCK_REALTIME).

Kernel timestamps come on CLOCK_REALTIME; each clock converts them to its own timelines by reading
raw, realtime, raw and taking the middle (a *bracketed* read). The result is wrong by at most half
the bracket plus what chrony has slewed since the stamp, and useless if the clock was set since: see
`steps`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Protocol

from mqtick.protocol.time_types import NS_PER_S

_ZERO, _LARGEST = Decimal(0), Decimal(10) ** 12
_RAW = time.CLOCK_MONOTONIC_RAW
_REAL = time.CLOCK_REALTIME


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One bracketed read: `realtime_ns` was read at `raw_ns`, give or take `half_width_ns`."""

    raw_ns: int
    realtime_ns: int
    half_width_ns: int


def read_kernel_time(attempts: int = 3) -> KernelTime:
    """Read CLOCK_REALTIME between two reads of CLOCK_MONOTONIC_RAW; keep the tightest of a few."""
    best: KernelTime | None = None
    for _ in range(attempts):
        before = time.clock_gettime_ns(_RAW)
        realtime = time.clock_gettime_ns(_REAL)
        after = time.clock_gettime_ns(_RAW)
        width = after - before
        if best is None or width < 2 * best.half_width_ns:
            best = KernelTime((before + after) // 2, realtime, (width + 1) // 2)
        if width < 1_000:
            break
    assert best is not None
    return best


class Clock(Protocol):
    """The clock interface of the programs. All values are nanoseconds."""

    def raw_ns(self) -> int:
        """Read the free-running timeline."""

    def time_ns(self) -> int:
        """Read the clock that is judged: Unix time, UTC."""

    def time_minus_raw_ns(self) -> int:
        """Return what to add to a raw reading, now, to get the judged clock's reading."""

    def raw_of_kernel_ns(self, realtime_ns: int) -> int:
        """Convert a recent kernel timestamp (CLOCK_REALTIME) to this clock's raw timeline."""

    def time_of_kernel_ns(self, realtime_ns: int) -> int:
        """Convert a recent kernel timestamp (CLOCK_REALTIME) to this clock's Unix time."""

    def monotonic_raw_ns(self, raw_ns: int) -> int:
        """Convert this clock's raw timeline to CLOCK_MONOTONIC_RAW, for sleeping and pins."""


class SystemClock:
    """The host's clock: raw is CLOCK_MONOTONIC_RAW, time is CLOCK_REALTIME."""

    __slots__ = ()

    def raw_ns(self) -> int:
        """Read CLOCK_MONOTONIC_RAW."""
        return time.clock_gettime_ns(_RAW)

    def time_ns(self) -> int:
        """Read CLOCK_REALTIME."""
        return time.clock_gettime_ns(_REAL)

    def time_minus_raw_ns(self) -> int:
        """Return CLOCK_REALTIME minus CLOCK_MONOTONIC_RAW, by a bracketed read."""
        now = read_kernel_time()
        return now.realtime_ns - now.raw_ns

    def raw_of_kernel_ns(self, realtime_ns: int) -> int:
        """Convert a recent CLOCK_REALTIME stamp to CLOCK_MONOTONIC_RAW."""
        return realtime_ns - self.time_minus_raw_ns()

    def time_of_kernel_ns(self, realtime_ns: int) -> int:
        """Return the stamp: it is this clock's time already."""
        return realtime_ns

    def monotonic_raw_ns(self, raw_ns: int) -> int:
        """Return the value: both are the same timeline."""
        return raw_ns


@dataclass(frozen=True, slots=True)
class VirtualClockSettings:
    """How wrong a virtual clock is. The same settings give the same clock in every process."""

    offset_ns: int = 0
    """Virtual minus true at the epoch: positive means that the virtual clock is ahead."""
    frequency_ppb: float = 0.0
    """Positive: the virtual clock runs fast."""
    wander_ppb: float = 0.0
    """Random walk of the frequency: standard deviation after one second (grows with sqrt(t))."""
    seed: int = 0
    epoch_raw_ns: int = 0
    """CLOCK_MONOTONIC_RAW at which the offset holds."""
    epoch_time_ns: int = 0
    """True Unix time at the epoch."""

    @classmethod
    def from_text(cls, text: str) -> VirtualClockSettings:
        """Read `offset_s=0.003,frequency_ppm=40,wander_ppb=1,seed=7`; the epoch is now.

        With `epoch_raw_ns` and `epoch_time_ns` given too, the clock is the same in every process.
        ValueError, with a sentence, for anything else.
        """
        values: dict[str, Decimal] = {}
        epoch: dict[str, int] = {}
        known = ("offset_s", "frequency_ppm", "wander_ppb", "seed")
        for part in filter(None, text.split(",")):
            name, _, number = part.partition("=")
            try:
                if name in ("epoch_raw_ns", "epoch_time_ns"):
                    epoch[name] = int(number)
                    continue
                value = Decimal(number)
            except (ValueError, InvalidOperation):
                value = Decimal("nan")
            if name not in known or not (value.is_finite() and abs(value) < _LARGEST):
                raise ValueError(
                    f"{part!r} says nothing about a virtual clock: write NAME=NUMBER, separated by "
                    f"commas, with {', '.join(known)}"
                )
            values[name] = value
        if len(epoch) == 1:
            raise ValueError("a virtual clock has both epoch_raw_ns and epoch_time_ns, or neither")
        return replace(
            cls.starting_now(
                offset_ns=round(values.get("offset_s", _ZERO).scaleb(9)),
                frequency_ppb=float(values.get("frequency_ppm", _ZERO).scaleb(3)),
                wander_ppb=float(values.get("wander_ppb", _ZERO)),
                seed=int(values.get("seed", _ZERO)),
            ),
            **epoch,
        )

    def to_text(self) -> str:
        """Return what `from_text` reads, epoch included: the same clock for another process."""
        # Decimals, because binary fractions of a second or of a ppm would not be read back exactly.
        offset_s = Decimal(self.offset_ns).scaleb(-9)
        frequency_ppm = Decimal(repr(self.frequency_ppb)).scaleb(-3)
        return (
            f"offset_s={offset_s:f},frequency_ppm={frequency_ppm:f},"
            f"wander_ppb={self.wander_ppb!r},seed={self.seed},"
            f"epoch_raw_ns={self.epoch_raw_ns},epoch_time_ns={self.epoch_time_ns}"
        )

    @classmethod
    def starting_now(
        cls,
        *,
        offset_ns: int = 0,
        frequency_ppb: float = 0.0,
        wander_ppb: float = 0.0,
        seed: int = 0,
    ) -> VirtualClockSettings:
        """Fix the epoch at this moment of this host."""
        now = read_kernel_time(10)
        return cls(offset_ns, frequency_ppb, wander_ppb, seed, now.raw_ns, now.realtime_ns)


class VirtualClock:
    """A wrong clock derived from CLOCK_MONOTONIC_RAW, so that its error is known exactly.

    The frequency is constant within each whole second since the epoch and takes a Gaussian step
    (`wander_ppb`, from `seed`) at each: the random walk of a crystal. `step` moves the judged
    time only; raw, as on a real host, knows nothing of steps.
    """

    __slots__ = ("_monotonic_raw", "_phase", "_random", "_rate", "_stepped_ns", "settings")

    def __init__(
        self,
        settings: VirtualClockSettings,
        monotonic_raw: Callable[[], int] = lambda: time.clock_gettime_ns(_RAW),
    ) -> None:
        self.settings = settings
        self._monotonic_raw = monotonic_raw
        self._random = random.Random(settings.seed)
        self._rate = [settings.frequency_ppb]  # ppb within second k since the epoch
        self._phase = [0.0]  # ns gained up to the start of second k
        self._stepped_ns = 0

    def _gained_ns(self, elapsed_ns: int) -> int:
        second, rest = divmod(elapsed_ns, NS_PER_S)
        if second < 0:
            return round(self.settings.frequency_ppb * elapsed_ns / NS_PER_S)
        while len(self._rate) <= second:
            self._phase.append(self._phase[-1] + self._rate[-1])
            self._rate.append(self._rate[-1] + self._random.gauss(0.0, self.settings.wander_ppb))
        return round(self._phase[second] + self._rate[second] * rest / NS_PER_S)

    def at_monotonic_raw_ns(self, monotonic_raw_ns: int) -> int:
        """Return this clock's raw reading at a CLOCK_MONOTONIC_RAW instant."""
        elapsed = monotonic_raw_ns - self.settings.epoch_raw_ns
        start = self.settings.epoch_time_ns + self.settings.offset_ns
        return start + elapsed + self._gained_ns(elapsed)

    def raw_ns(self) -> int:
        """Read the virtual free-running timeline (it counts Unix time, wrongly)."""
        return self.at_monotonic_raw_ns(self._monotonic_raw())

    def time_ns(self) -> int:
        """Read the virtual clock: raw plus the steps it was given."""
        return self.raw_ns() + self._stepped_ns

    def time_minus_raw_ns(self) -> int:
        """Return the sum of all steps."""
        return self._stepped_ns

    def step(self, by_ns: int) -> None:
        """Move the judged time; positive sets it forward."""
        self._stepped_ns += by_ns

    def raw_of_kernel_ns(self, realtime_ns: int) -> int:
        """Convert a recent CLOCK_REALTIME stamp to the virtual raw timeline."""
        now = read_kernel_time()
        return self.at_monotonic_raw_ns(now.raw_ns - (now.realtime_ns - realtime_ns))

    def time_of_kernel_ns(self, realtime_ns: int) -> int:
        """Convert a recent CLOCK_REALTIME stamp to the virtual clock's time."""
        return self.raw_of_kernel_ns(realtime_ns) + self._stepped_ns

    def monotonic_raw_ns(self, raw_ns: int) -> int:
        """Invert `at_monotonic_raw_ns` (to the nanosecond, for errors below 1000 ppm)."""
        guess = raw_ns - self.settings.epoch_time_ns - self.settings.offset_ns
        guess += self.settings.epoch_raw_ns
        for _ in range(4):
            miss = raw_ns - self.at_monotonic_raw_ns(guess)
            guess += miss
            if miss == 0:
                break
        return guess
