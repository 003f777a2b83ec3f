"""The served clock: equal to a steady system clock, a straight line while that one is slewed."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from mqtick.protocol.precise import Leap
from mqtick.timeserver.reference import Reference
from mqtick.timeserver.served import RATE_CHANGE_PPB, Reading, ServedClock, most_lag_ns

US, MS, S = 1_000, 1_000_000, 1_000_000_000
RETAKE_NS = most_lag_ns(0)
START_NS = 1_790_000_000 * S
LOOK_NS = S
SLEWS = [(500, 10), (5_000, 100), (20_000, 500), (50_000, 83_333), (-500, 10), (-50_000, 83_333)]
"""Microseconds by which the system clock is behind UTC, and ppm of their correction."""


class Machine:
    """A steady timeline and a system clock that a test slews; a reading of either takes a while.

    `error_ns` is the system clock minus UTC, `left_ns` what is still to be slewed away.
    """

    def __init__(self, *, ppm: float = 20.0, seed: int = 1) -> None:
        self.raw, self.rate, self.left_ns, self.error_ns = 1e12, ppm * 1e-6, 0.0, 0.0
        self.slew_rate = 0.0
        self.random = random.Random(seed)
        self.slow_reads = 0.0
        self.runs_true: Callable[[float], bool] = lambda _rate_ppb: True
        self.served = ServedClock(self, self.steady)  # type: ignore[arg-type]
        self.anew = 0

    def advance(self, ns: float) -> None:
        """Let time pass: UTC runs at `rate`, the system clock with the slew besides."""
        self.raw += ns
        slewed = min(abs(self.left_ns), self.slew_rate * ns) * math.copysign(1, self.left_ns)
        self.left_ns -= slewed
        self.error_ns += slewed
        self.utc += ns * (1 + self.rate)

    utc = float(0)

    def steady(self) -> int:
        is_slow = self.random.random() < self.slow_reads
        self.advance(self.random.uniform(2, 30) * US if is_slow else self.random.uniform(20, 150))
        return int(self.raw)

    def time_ns(self) -> int:
        return START_NS + round(self.utc + self.error_ns)

    def time_of_kernel_ns(self, realtime_ns: int) -> int:
        return realtime_ns

    def off(self, behind_us: float) -> None:
        """Let UTC be found so far ahead of the system clock; nothing corrects it yet."""
        self.utc += behind_us * US
        self.error_ns -= behind_us * US
        self.left_ns, self.slew_rate = -self.error_ns, 0.0

    def slew(self, ppm: float) -> None:
        """Correct the system clock from now on, as chronyd does."""
        self.slew_rate = ppm * 1e-6

    def run(self, ns: float, *, step_ns: float = LOOK_NS / 8) -> Iterator[Reading]:
        """Let so much time pass, look each second, and yield what is read meanwhile."""
        end, due = self.raw + ns, self.raw + LOOK_NS
        while self.raw < end:
            self.advance(step_ns)
            yield self.served.read()
            if self.raw >= due:
                due = self.raw + LOOK_NS
                self.anew += self.served.look(RETAKE_NS, self.runs_true)

    def wait(self, ns: float) -> None:
        for _ in self.run(ns):
            pass


@pytest.fixture
def machine() -> Machine:
    made = Machine()
    made.wait(10 * S)
    assert made.served.rate_change_ppb == RATE_CHANGE_PPB
    return made


def departs(readings: list[Reading], noise_ns: int = 400) -> float:
    """By how many ppb two parts of a timeline differ in rate at most, the first up to 1000 s long.

    Less what the noise of the readings makes of parts that are short.
    """
    ends = [readings[round(at * (len(readings) - 1) / 40)] for at in range(41)]
    most = 0.0
    for first, middle, last in itertools.combinations(ends, 3):
        past, future = middle.raw_ns - first.raw_ns, last.raw_ns - middle.raw_ns
        if past and future and past <= 1000 * S and future <= 1000 * S:
            rates = (
                (middle.served_ns - first.served_ns) / past,
                (last.served_ns - middle.served_ns) / future,
            )
            most = max(most, abs(rates[0] - rates[1]) * 1e9 - noise_ns * (S / past + S / future))
    return most


def test_it_promises_nothing_before_it_has_learned_the_rate() -> None:
    machine = Machine()
    machine.wait(3 * S)
    assert machine.served.rate_change_ppb is None
    machine.wait(3 * S)
    assert (machine.served.rate_change_ppb, machine.anew) == (750, 0)


@pytest.mark.parametrize("wander_ppb", [0, 200])
def test_it_equals_a_system_clock_that_keeps_its_rate(machine: Machine, wander_ppb: int) -> None:
    for second in range(200):
        machine.rate = (20_000 + machine.random.uniform(-1, 1) * wander_ppb) * 1e-9
        assert all(one.lag_ns == 0 for one in machine.run(S)), second
    assert machine.anew == 0


def test_readings_that_take_30_us_disturb_nothing() -> None:
    machine = Machine()
    machine.slow_reads = 0.3
    machine.wait(10 * S)
    readings = list(machine.run(300 * S))
    assert max(abs(one.lag_ns) for one in readings) < US
    assert (departs(readings, noise_ns=60 * US) <= RATE_CHANGE_PPB, machine.anew) == (True, 0)


@pytest.mark.parametrize(("behind_us", "ppm"), SLEWS)
def test_while_the_system_clock_is_slewed_it_keeps_its_promise(
    machine: Machine, behind_us: int, ppm: int
) -> None:
    machine.off(behind_us)
    machine.slew(ppm)
    began, part, parts, most_lag_ns = machine.anew, list[Reading](), list[list[Reading]](), 0
    for reading in machine.run(240 * S):
        if machine.anew > began:
            assert reading.lag_ns == 0
            parts.append(part)
            part, began = [], machine.anew
        part.append(reading)
        most_lag_ns = max(most_lag_ns, abs(reading.lag_ns))
    parts.append(part)
    assert most_lag_ns > RETAKE_NS / 2, "it was slewed"
    assert all(departs(part) <= RATE_CHANGE_PPB for part in parts)
    assert len(parts) in (2, 3), "once after the slew, and perhaps once in a long one"
    assert abs(parts[-1][-1].lag_ns) <= RETAKE_NS


@pytest.mark.parametrize("ppm", [1, 10, 100])
def test_small_corrections_begin_no_generation(machine: Machine, ppm: int) -> None:
    readings: list[Reading] = []
    for _ in range(30):
        machine.off(machine.random.uniform(-20, 20))
        machine.slew(ppm)
        readings += machine.run(32 * S, step_ns=S / 2)
    assert machine.anew == 0
    assert departs(readings[80:]) <= RATE_CHANGE_PPB


def test_the_drift_of_a_day_begins_no_generation(machine: Machine) -> None:
    most_lag_ns = 0
    for at in range(0, 86_400, 5):
        machine.rate = (20 + 1.5 * math.sin(at / 86_400 * math.tau)) * 1e-6
        (reading, *_) = machine.run(5 * S, step_ns=5 * S)
        most_lag_ns = max(most_lag_ns, abs(reading.lag_ns))
    assert machine.anew == 0
    assert most_lag_ns < 10 * US


def test_a_new_frequency_of_chronyd_is_taken_once_it_is_steady(machine: Machine) -> None:
    machine.rate += 5e-6
    machine.wait(120 * S)
    assert machine.anew == 1
    assert machine.served.read().lag_ns == 0


def test_a_clock_that_is_slewed_from_the_beginning_begins_to_promise_with_a_generation() -> None:
    machine = Machine()
    machine.off(1_000)
    machine.slew(500)
    machine.wait(10 * S)
    assert (machine.served.rate_change_ppb, machine.anew) == (RATE_CHANGE_PPB, 1)


@pytest.mark.parametrize("ppm", [10, 700, 80_000])
def test_a_slew_is_not_taken_for_the_rate_of_utc_however_steady_it_is(
    machine: Machine, ppm: int
) -> None:
    """It would serve the slew itself, and a client allows no clock such a frequency."""
    machine.runs_true = lambda rate_ppb: abs(rate_ppb - 20_000) <= 1_000
    machine.off(60 * ppm)
    machine.slew(ppm)
    first, *_, last = machine.run(30 * S)
    rate = (last.served_ns - first.served_ns) / (last.raw_ns - first.raw_ns) - 1
    assert machine.anew == 0
    assert rate == pytest.approx(20e-6, abs=0.3e-6)
    machine.wait(40 * S)
    assert machine.anew == 1, "it is taken anew once the slew is over"


def test_after_a_step_it_is_the_system_clock_again(machine: Machine) -> None:
    machine.error_ns += 3 * S
    assert machine.served.read().lag_ns > 2 * S
    machine.served.begin()
    assert machine.served.read().lag_ns == 0
    assert machine.served.rate_change_ppb is None


def test_without_looks_the_corridor_widens_and_no_reading_is_lost(machine: Machine) -> None:
    machine.rate += 200e-9
    machine.advance(3600 * S)
    assert machine.served.read().lag_ns == 0


# -- UTC -------------------------------------------------------------------------------------------

UTC = Reference(True, 2, 0, Leap.NONE, "")


@pytest.mark.parametrize(("behind_us", "ppm"), SLEWS)
@pytest.mark.parametrize("asked_every_s", [0, 4, 60])
def test_the_root_distance_holds_utc_at_every_moment(
    behind_us: int, ppm: int, asked_every_s: int
) -> None:
    """What the reference says is exact: it knows by how much the system clock is wrong.

    Every 0 s: it says so at any time, as a clock does that is trusted by configuration.
    """
    machine = Machine()
    machine.runs_true = lambda rate_ppb: abs(rate_ppb - machine.rate * 1e9) <= 1000
    machine.off(behind_us)
    machine.wait(10 * S)
    reference, asked_ns, most_ns = UTC, -math.inf, 0
    for reading in itertools.chain(slewing(machine, 20, 0), slewing(machine, 120, ppm)):
        utc_ns = START_NS + machine.utc
        if asked_every_s and machine.raw - asked_ns >= asked_every_s * S:
            before, left_ns = machine.served.look_at_system(), machine.error_ns
            machine.advance(10 * MS)
            after, asked_ns = machine.served.look_at_system(), machine.raw
            reference = replace(
                UTC,
                root_distance_ns=math.ceil(abs(left_ns)),
                rate_ppb=machine.rate * 1e9,
                rate_error_ppb=1000,
            ).between(before, after)
            continue
        if not asked_every_s:
            reference = replace(UTC, root_distance_ns=math.ceil(abs(machine.error_ns)))
        distance_ns = reference.distance_ns(reading)
        assert abs(utc_ns - reading.served_ns) <= distance_ns + US
        most_ns = max(most_ns, distance_ns)
    assert most_ns < 3 * abs(behind_us) * US + 100 * US


def test_the_root_distance_holds_utc_although_a_reading_is_interrupted(machine: Machine) -> None:
    """The served clock lags; a reading that comes late must not make that look like less."""
    machine.off(5_000)
    machine.slew(83_333)
    machine.wait(S)
    look, steady = machine.served.look_at_system(), machine.steady
    asked = replace(UTC, rate_ppb=machine.rate * 1e9).between(look, look)

    def interrupted() -> int:
        raw_ns = steady()
        machine.advance(10 * MS)
        return raw_ns

    machine.served._steady = interrupted
    reading = machine.served.read()
    utc_ns = START_NS + machine.utc - 10 * MS  # when the system clock was read
    assert utc_ns - reading.served_ns > 4 * MS
    assert utc_ns - reading.served_ns <= asked.distance_ns(reading)


def slewing(machine: Machine, seconds: int, ppm: int) -> Iterator[Reading]:
    machine.slew(ppm)
    yield from machine.run(seconds * S, step_ns=S / 7)


def test_chronyds_answer_grows_by_what_its_frequency_may_be_wrong() -> None:
    machine = Machine()
    look = machine.served.look_at_system()
    asked = replace(UTC, rate_ppb=20_000.0, rate_error_ppb=1500.0).between(look, look)
    machine.wait(40 * S)
    said_ns = asked.distance_ns(machine.served.read())
    ahead_ns = 500 * 1000  # what clients do not add themselves until they ask again
    assert said_ns == pytest.approx(60 * US + ahead_ns, abs=20 * US)
    served_at = machine.served.read()._replace(rate_ppb=22_000.0)
    assert asked.distance_ns(served_at) == pytest.approx(said_ns + 2000 * 1000, abs=20 * US)


# -- stamps of the kernel --------------------------------------------------------------------------


def test_a_stamp_is_what_was_read_then_while_nothing_is_slewed(machine: Machine) -> None:
    for _ in range(50):
        machine.wait(S)
        then = machine.served.read()
        machine.advance(machine.random.uniform(0, S))
        assert machine.served.span_of_kernel_ns(then.time_ns) == (then.served_ns, then.served_ns)


def test_looks_that_were_interrupted_do_not_hide_a_slew() -> None:
    for seed in range(50):
        machine = Machine(seed=seed)
        machine.slow_reads = 1.0
        machine.off(-50_000)
        machine.wait(12 * S)
        machine.slow_reads = 0.0
        machine.advance(machine.random.uniform(0, S))
        machine.slew(83_333)
        then = machine.served.read()
        machine.advance(200 * US)
        earliest_ns, latest_ns = machine.served.span_of_kernel_ns(then.time_ns)
        assert earliest_ns - 8 * US <= then.served_ns <= latest_ns + 8 * US


def test_a_stamp_holds_though_the_clock_was_slewed_the_other_way_just_before() -> None:
    for seed in range(30):
        machine = Machine(seed=seed)
        machine.wait(10 * S)
        machine.off(-5_000)
        machine.slew(83_333)
        machine.advance(machine.random.uniform(50, 70) * MS)
        machine.off(5_000)
        machine.slew(6_910)
        machine.advance(machine.random.uniform(0, 600) * MS)
        then = machine.served.read()
        machine.advance(20 * MS)
        earliest_ns, latest_ns = machine.served.span_of_kernel_ns(then.time_ns)
        assert earliest_ns - US <= then.served_ns <= latest_ns + US


def any_moment(machine: Machine) -> None:
    machine.advance(machine.random.uniform(0, 2 * S))


def just_before_the_slew(machine: Machine) -> None:
    machine.advance(machine.random.uniform(0.8, 1) * S)


@pytest.mark.parametrize(("behind_us", "ppm"), SLEWS)
@pytest.mark.parametrize("moment", [any_moment, just_before_the_slew])
def test_a_stamp_is_told_neither_too_early_nor_too_late_while_the_clock_is_slewed(
    behind_us: int, ppm: int, moment: Callable[[Machine], None]
) -> None:
    for seed in range(30):
        machine = Machine(seed=seed)
        machine.off(behind_us)
        machine.wait(10 * S)
        moment(machine)
        machine.slew(ppm * (moment is any_moment))
        for _ in range(5):
            machine.advance(machine.random.uniform(0, 300 * MS))
            then, age_ns = machine.served.read(), machine.random.choice([100 * US, 5 * MS, S])
            machine.slew(ppm)
            machine.advance(machine.random.uniform(0, age_ns))
            earliest_ns, latest_ns = machine.served.span_of_kernel_ns(then.time_ns)
            assert earliest_ns - US <= then.served_ns <= latest_ns + US
            assert latest_ns - earliest_ns <= 0.28 * (machine.raw - then.raw_ns) + US
            machine.anew += machine.served.look(RETAKE_NS)
