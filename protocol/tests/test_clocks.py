"""Clocks: a virtual one is wrong by a known amount, everywhere alike; a step is noticed."""

from __future__ import annotations

import gc
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.protocol.clocks import (
    SystemClock,
    VirtualClock,
    VirtualClockSettings,
    read_kernel_time,
)
from mqtick.protocol.steps import Change, StepDetector

S = 1_000_000_000
EPOCH_RAW, EPOCH_TIME = 1_000 * S, 1_781_234_567 * S

offsets = st.integers(-(10**15), 10**15)
frequencies = st.floats(-500_000, 500_000)
instants = st.integers(EPOCH_RAW, EPOCH_RAW + 3_600 * S)


def clock(at: int = EPOCH_RAW, **values: float) -> VirtualClock:
    settings = VirtualClockSettings(
        epoch_raw_ns=EPOCH_RAW,
        epoch_time_ns=EPOCH_TIME,
        **values,  # type: ignore[arg-type]
    )
    return VirtualClock(settings, lambda: at)


# -- the host's clock ------------------------------------------------------------------------------


def test_the_clock_is_read_between_two_reads_of_the_free_running_one() -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    read = read_kernel_time(10)
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    assert before <= read.raw_ns <= after
    assert 0 < read.half_width_ns <= (after - before + 1) // 2 + 1


def test_a_kernel_stamp_is_the_host_clocks_time_already() -> None:
    assert SystemClock().time_of_kernel_ns(EPOCH_TIME) == EPOCH_TIME


def test_a_kernel_stamp_falls_on_the_raw_timeline_where_it_was_made() -> None:
    host = SystemClock()
    before, stamp, after = host.raw_ns(), time.time_ns(), host.raw_ns()
    slack = 200_000  # two bracketed reads, on a machine that others use too
    assert before - slack <= host.raw_of_kernel_ns(stamp) <= after + slack


# -- a virtual clock -------------------------------------------------------------------------------


@given(offsets)
def test_a_virtual_clock_is_ahead_by_its_offset(offset_ns: int) -> None:
    assert clock(offset_ns=offset_ns).time_ns() == EPOCH_TIME + offset_ns


def test_a_fast_virtual_clock_gains_a_microsecond_a_second_for_each_ppm() -> None:
    fast = clock(EPOCH_RAW + 10 * S, frequency_ppb=40_000)
    assert fast.time_ns() - EPOCH_TIME - 10 * S == 400_000


def test_before_its_epoch_a_virtual_clock_runs_at_its_constant_frequency() -> None:
    early = clock(EPOCH_RAW - 10 * S, frequency_ppb=40_000, wander_ppb=1000, seed=1)
    assert early.time_ns() - EPOCH_TIME + 10 * S == -400_000


@given(offsets, frequencies, st.floats(0, 1000), st.integers(0, 2**32), st.lists(instants))
def test_the_same_settings_give_the_same_clock_in_whatever_order_it_is_read(
    offset_ns: int, frequency_ppb: float, wander_ppb: float, seed: int, reads: list[int]
) -> None:
    settings = {
        "offset_ns": offset_ns,
        "frequency_ppb": frequency_ppb,
        "wander_ppb": wander_ppb,
        "seed": seed,
    }
    one, other = clock(**settings), clock(**settings)
    forwards = [one.at_monotonic_raw_ns(at) for at in reads]
    backwards = [other.at_monotonic_raw_ns(at) for at in reversed(reads)]
    assert forwards == backwards[::-1]


def test_another_seed_gives_another_wander() -> None:
    at = EPOCH_RAW + 100 * S
    errors = {clock(at, wander_ppb=100, seed=seed).time_ns() for seed in range(5)}
    assert len(errors) == 5


def test_wander_moves_the_frequency_and_not_the_phase() -> None:
    walking = clock(wander_ppb=1000, seed=3)
    reads = [walking.at_monotonic_raw_ns(EPOCH_RAW + n * S // 10) for n in range(200)]
    errors = [read - EPOCH_TIME - n * S // 10 for n, read in enumerate(reads)]
    jumps = [later - earlier for earlier, later in pairwise(errors)]
    # within a second the rate is constant, give or take the rounding to a nanosecond
    assert all(abs(a - b) <= 2 for a, b in pairwise(jumps[:9]))
    assert len({round(jumps[10 * n + 5]) for n in range(19)}) > 5


@given(instants, offsets, frequencies, st.floats(0, 100), st.integers(0, 99))
def test_a_raw_reading_leads_back_to_the_instant_it_was_taken_at(
    at: int, offset_ns: int, frequency_ppb: float, wander_ppb: float, seed: int
) -> None:
    wrong = clock(
        offset_ns=offset_ns, frequency_ppb=frequency_ppb, wander_ppb=wander_ppb, seed=seed
    )
    back = wrong.monotonic_raw_ns(wrong.at_monotonic_raw_ns(at))
    assert abs(back - at) <= 1


def test_a_step_moves_the_judged_time_and_not_the_raw_one() -> None:
    stepped = clock()
    raw = stepped.raw_ns()
    stepped.step(5 * S)
    stepped.step(-2 * S)
    assert stepped.time_ns() == EPOCH_TIME + 3 * S
    assert stepped.raw_ns() == raw
    assert stepped.time_minus_raw_ns() == 3 * S


def test_a_kernel_stamp_becomes_the_virtual_clocks_time() -> None:
    wrong = VirtualClock(VirtualClockSettings.starting_now(offset_ns=7 * S))
    wrong.step(S)
    stamp = time.time_ns()
    assert abs(wrong.time_of_kernel_ns(stamp) - stamp - 8 * S) < 200_000
    assert wrong.time_of_kernel_ns(stamp) - wrong.raw_of_kernel_ns(stamp) == pytest.approx(S, 1e-3)


# -- its settings as text --------------------------------------------------------------------------


@given(
    st.builds(
        VirtualClockSettings,
        offsets,
        frequencies,
        st.floats(0, 1e6),
        st.integers(0, 2**31),
        st.integers(0, 2**62),
        st.integers(0, 2**62),
    )
)
def test_settings_as_text_are_the_same_clock_for_another_process(
    settings: VirtualClockSettings,
) -> None:
    assert VirtualClockSettings.from_text(settings.to_text()) == settings


def test_settings_are_written_in_seconds_and_ppm() -> None:
    read = VirtualClockSettings.from_text("offset_s=0.003,frequency_ppm=-40,wander_ppb=1,seed=7")
    assert (read.offset_ns, read.frequency_ppb) == (3_000_000, -40_000)
    assert (read.wander_ppb, read.seed) == (1.0, 7)


def test_without_an_epoch_the_epoch_is_now() -> None:
    read = VirtualClockSettings.from_text("offset_s=1")
    assert abs(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - read.epoch_raw_ns) < 10 * S
    assert abs(time.time_ns() - read.epoch_time_ns) < 10 * S


@pytest.mark.parametrize(
    "text", ["offset=1", "offset_s", "offset_s=x", "seed=nan", "offset_s=inf", "offset_s=1e300"]
)
def test_settings_that_say_nothing_about_a_clock_are_refused_with_what_is_known(text: str) -> None:
    with pytest.raises(ValueError, match="write NAME=NUMBER"):
        VirtualClockSettings.from_text(text)


def test_half_an_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="both epoch_raw_ns and epoch_time_ns, or neither"):
        VirtualClockSettings.from_text("epoch_raw_ns=5")


# -- steps and sleep -------------------------------------------------------------------------------


class Host:
    """The clocks of a host; each read takes `pause_ns`, the first ones `pauses` instead."""

    def __init__(self) -> None:
        self.monotonic_ns, self.slept_ns, self.is_set = 50 * S, 0, False
        self.pauses: list[int] = []

    def read(self, clock: int) -> int:
        self.monotonic_ns += self.pauses.pop(0) if self.pauses else 100
        slept_ns = {time.CLOCK_MONOTONIC: 0, time.CLOCK_BOOTTIME: self.slept_ns}[clock]
        return self.monotonic_ns + slept_ns

    def was_set(self) -> bool:
        was_set, self.is_set = self.is_set, False
        return was_set

    def detector(self) -> StepDetector:
        return StepDetector(self.read, self.was_set)


def test_a_clock_that_was_set_is_noticed_once() -> None:
    host = Host()
    detector = host.detector()
    host.is_set = True
    assert [detector.look(), detector.look()] == [Change.SET, None]


def test_sleep_is_noticed_once_and_is_no_step_although_the_kernel_takes_it_for_one() -> None:
    host = Host()
    detector = host.detector()
    host.slept_ns, host.is_set = 10_000, True
    assert [detector.look(), detector.look()] == [Change.SLEPT, None]


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("starting", [False, True])
def test_a_process_that_was_held_up_while_it_started_or_looked_sees_no_step(
    at: int, starting: bool
) -> None:
    host = Host()
    pauses = [100] * at + [20_000_000] + [100] * 3
    host.pauses = pauses if starting else []
    detector = host.detector()
    host.pauses += [] if starting else pauses
    assert [detector.look() for _ in range(3)] == [None] * 3
    host.slept_ns += 10_000
    assert detector.look() is Change.SLEPT


def test_the_kernel_is_asked_without_arguments() -> None:
    assert StepDetector().look() is None


def timers_open() -> int:
    gc.collect()
    paths = Path("/proc/self/fd").iterdir()
    return sum("timerfd" in os.readlink(path) for path in paths if path.is_symlink())


def test_detectors_that_are_dropped_leave_no_descriptor_open() -> None:
    before = timers_open()
    detectors = [StepDetector() for _ in range(3)]
    assert timers_open() == before + 3
    detectors.clear()
    assert timers_open() == before
