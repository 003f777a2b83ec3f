"""mqtick_time against whole numbers that do not wrap."""

from __future__ import annotations

from typing import Any

import cocotb
from alone import begin, dice, edge

EPOCH_NS, TICK_NS = 64_000_000_000, 1 << 20
CYCLE = 419_430  # of 2^-16 ns


class Time:
    """A counter that began at any value, and wraps."""

    def __init__(self, dut: Any, unit: Any, began: int) -> None:
        self.dut, self.unit, self.began = dut, unit, began

    async def check(self, since_ns: int, fraction: int = 0) -> None:
        """Go on to this time, wait until epochs were counted one by one, and compare."""
        behind = since_ns // EPOCH_NS - int(self.unit.epoch.value)
        now = (self.began & ~0xFFFF) + (since_ns << 16 | fraction)
        self.unit.now.value = now & (1 << 64) - 1
        await edge(self.dut, 4 + behind % (1 << 16))
        tick, epoch = int(self.unit.tick.value), int(self.unit.epoch.value)
        assert tick == since_ns // TICK_NS % (1 << 32), since_ns
        assert epoch == since_ns // EPOCH_NS % (1 << 16), since_ns


@cocotb.test()
async def time_counts_ticks_and_epochs_from_the_reset(dut: Any) -> None:
    """To the nanosecond at each boundary, in small and large steps."""
    random = dice()
    for began in (0, 1, (1 << 64) - 1, random.getrandbits(64), random.getrandbits(64)):
        time = Time(dut, await begin(dut, "time", now=began), began)
        since = 0
        for boundary in (TICK_NS, 5 * TICK_NS, EPOCH_NS, 2 * EPOCH_NS, 7 * EPOCH_NS):
            for since in (boundary - 1, boundary, boundary + 1):
                await time.check(since, random.getrandbits(16))
        for _ in range(30):
            since += random.choice((7, TICK_NS // 3, 900_000_000, 10 * EPOCH_NS))
            await time.check(since, random.getrandbits(16))


@cocotb.test()
async def time_goes_on_when_its_counter_wraps(dut: Any) -> None:
    """Each 2^48 ns, of which 16 are counted."""
    time = Time(dut, await begin(dut, "time", now=12_345 << 16), 12_345 << 16)
    for quarter in range(1, 10):
        await time.check(quarter << 46)
        await time.check((quarter << 46) + TICK_NS)


@cocotb.test()
async def time_of_a_running_counter_passes_each_epoch_once(dut: Any) -> None:
    """Cycle by cycle over a boundary: the epoch rises in one cycle, by one."""
    unit = await begin(dut, "time", now=0)
    now, seen = (EPOCH_NS << 16) - 40 * CYCLE, []
    for _ in range(80):
        unit.now.value = now
        now += CYCLE
        await edge(dut)
        seen.append(int(unit.epoch.value))
    assert sorted(seen) == seen
    assert set(seen) == {0, 1}
    assert 38 <= seen.index(1) <= 44
