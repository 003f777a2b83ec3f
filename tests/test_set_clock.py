"""The clock of this machine is set and slewed while messages are under way; then it is put back.

Runs only with MQTICK_STEER_CLOCK=1 and the right to set the clock: see test_steer_clock.py. It is
set by less than a millisecond, for milliseconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from live_world import MS, SECOND, US, Client, World, world

from bench.clock_keeper import ADJ_NANO, ADJ_TICK, ClockKeeper, adjtimex, may_set_the_clock
from mqtick.client.sample import Kind, Sample
from mqtick.protocol.clocks import SystemClock, VirtualClock, VirtualClockSettings
from mqtick.protocol.steps import Change, StepDetector

__all__ = ["world"]  # a fixture

ADJ_SETOFFSET = 0x0100  # linux/timex.h
SERVED_NS = 3 * MS

pytestmark = [
    pytest.mark.steers_clock,
    pytest.mark.skipif(
        os.environ.get("MQTICK_STEER_CLOCK") != "1",
        reason="it sets the clock of this machine: only with MQTICK_STEER_CLOCK=1",
    ),
    pytest.mark.skipif(not may_set_the_clock(), reason="no right to set the clock (CAP_SYS_TIME)"),
]


@pytest.fixture(autouse=True)
def _clock_keeper() -> Iterator[None]:
    keeper = ClockKeeper()
    try:
        yield
    finally:
        print(keeper.put_back())


def step(by_ns: int) -> None:
    seconds, rest_ns = divmod(by_ns, SECOND)
    adjtimex(ADJ_SETOFFSET | ADJ_NANO, time_s=seconds, time_us=rest_ns)


def step_and_back(by_ns: int) -> None:
    """Have messages arrive in between."""
    step(by_ns)
    time.sleep(0.005)
    step(-by_ns)


def set_anew(by_ns: int) -> None:
    time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns() + by_ns)


def slew(by_ns: int) -> None:
    """For five milliseconds, as fast as the kernel can: by a tenth of them."""
    normal = adjtimex().tick
    adjtimex(ADJ_TICK, tick=normal * 11 // 10 if by_ns > 0 else normal * 9 // 10)
    time.sleep(0.005)
    adjtimex(ADJ_TICK, tick=normal)


@pytest.mark.parametrize("move", [step, step_and_back, set_anew])
@pytest.mark.parametrize("by_ns", [20 * US, -20 * US])
def test_the_kernel_tells_of_each_step_and_tells_once(
    move: Callable[[int], None], by_ns: int
) -> None:
    detector = StepDetector()
    assert detector.look() is None
    move(by_ns)
    assert [detector.look(), detector.look()] == [Change.SET, None]


def test_a_clock_that_is_slewed_is_not_taken_for_one_that_was_set() -> None:
    detector = StepDetector()
    slew(1)
    assert detector.look() is None


# -- an exchange under way -------------------------------------------------------------------------


class Hall:
    """A server whose clock goes by CLOCK_MONOTONIC_RAW, so that the truth is known all the time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.served = VirtualClock(VirtualClockSettings.starting_now(offset_ns=SERVED_NS))
        self.server = world.serve(clock=self.served, client_requests_per_s=100.0)
        self.server._steps = StepDetector(was_set=lambda: False)  # the client has to notice
        self.client: Client = world.follow(
            clock=SystemClock(), exchange_interval_s=0.5, exchange_burst=2
        )
        world.run(lambda: self.client.knows_time)

    def while_a_reply_is_under_way(self, move: Callable[[int], None], by_ns: int) -> list[Sample]:
        """Do it when the server has just sent a reply; returns what is made of that one."""
        replies = self.server.counters.done
        before = replies["replies"]
        self.world.run(lambda: replies["replies"] > before)
        sequence = max(number for _, number in self.server.responder._pending)
        move(by_ns)
        self.world.run(lambda: replies["replies"] > before + 2)  # at least one came after it
        self.world.run_for(0.1)
        samples = [wall.sample for wall in self.client.samples if wall.sample.kind is Kind.TWO_WAY]
        assert all(map(self.holds, samples))
        self.says_the_truth()
        return [sample for sample in samples if sample.sequence == sequence]

    def truth_ns(self, raw_ns: int) -> int:
        return self.served.at_monotonic_raw_ns(raw_ns) - raw_ns

    def holds(self, sample: Sample) -> bool:
        assert sample.lower_ns is not None
        assert sample.upper_ns is not None
        return sample.lower_ns <= self.truth_ns(sample.local_ns) <= sample.upper_ns

    def says_the_truth(self) -> None:
        (track,) = self.client.agent.tracks
        told = track.estimator.at(self.client.clock.raw_ns())
        if told.state.is_known:
            assert told.lower_ns is not None
            assert told.upper_ns is not None
            assert told.lower_ns <= self.truth_ns(told.local_ns) <= told.upper_ns


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("move", [step, step_and_back])
@pytest.mark.parametrize("by_ns", [150 * US, -150 * US])
def test_no_sample_is_made_of_a_reply_during_which_the_clock_was_set(
    world: World, move: Callable[[int], None], by_ns: int
) -> None:
    hall = Hall(world)
    for _ in range(3):
        assert hall.while_a_reply_is_under_way(move, by_ns) == []
    assert hall.client.agent.steps >= 3
    assert hall.client.agent.refused["clock-changed"] >= 3
    world.run(lambda: hall.client.knows_time)
    hall.says_the_truth()


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("by_ns", [1, -1])
def test_a_sample_of_a_reply_during_which_the_clock_was_slewed_is_as_much_wider(
    world: World, by_ns: int
) -> None:
    hall = Hall(world)
    for _ in range(3):
        for sample in hall.while_a_reply_is_under_way(slew, by_ns):
            assert sample.lower_ns is not None
            assert sample.upper_ns is not None
            assert sample.upper_ns - sample.lower_ns > sample.delay_ns + 2 * 450 * US
    assert hall.client.agent.steps == 0
