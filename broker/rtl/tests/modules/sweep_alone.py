"""mqtick_sweep: whose lease has ended is found, and nobody waits for it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import cocotb
from alone import begin, dice, edge, put
from cocotb.triggers import RisingEdge

CLIENTS, PERIOD = 8, 1024
ENDED = 1 << 31


class Clients:
    """The table, and a generator that reads it in most cycles."""

    def __init__(self, dut: Any, unit: Any, taken: float) -> None:
        self.dut, self.unit, self.taken, self.random = dut, unit, taken, dice()
        self.rows = [(0, 0)] * CLIENTS
        self.reads: list[tuple[int, int]] = []
        self.cycle = 0
        cocotb.start_soon(self.serve())

    async def serve(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.cycle += 1
            if self.unit.re.value:
                assert not self.unit.taken.value, "two read at once"
                at = int(self.unit.at.value)
                self.reads.append((self.cycle, at))
                valid, expiry = self.rows[at]
                put(self.unit, client_valid=valid, client_expiry=expiry)
            if self.taken:
                self.unit.taken.value = self.random.random() < self.taken

    async def due(self, cycles: int) -> bool:
        """Wait for a lease that has ended."""
        for _ in range(cycles):
            await edge(self.dut)
            if self.unit.due.value:
                return True
        return False


@cocotb.test()
async def sweep_looks_at_one_client_each_1024_cycles(dut: Any) -> None:
    """In turn; and at none before the broker is ready."""
    unit = await begin(dut, "sweep", ready=0, taken=0, sweep=0, tick=0)
    clients = Clients(dut, unit, 0)
    await edge(dut, PERIOD + 8)
    assert not clients.reads
    unit.ready.value = 1
    await edge(dut, (CLIENTS + 1) * PERIOD)
    at = [client for _, client in clients.reads]
    cycles = [cycle for cycle, _ in clients.reads]
    assert {*at[:CLIENTS]} == {*range(CLIENTS)}
    assert {later - earlier for earlier, later in pairwise(cycles)} == {PERIOD}
    assert not unit.due.value


@cocotb.test()
async def sweep_finds_who_has_ended_and_nobody_else(dut: Any) -> None:
    """Valid ones whose tick has come, also when it wraps; it waits until they are freed."""
    unit, random = await begin(dut, "sweep", ready=1, taken=0, sweep=0), dice()
    clients = Clients(dut, unit, 0.9)
    for tick in (1000, 2**32 - 1, 3):
        unit.tick.value = tick
        clients.rows = [(1, (tick + 1 + random.randrange(1000)) % 2**32)] * CLIENTS
        clients.rows[2] = (0, (tick - 1) % 2**32)
        ended = random.choice((0, 3, 7))
        clients.rows[ended] = (1, (tick - random.randrange(1000)) % 2**32)
        assert await clients.due((CLIENTS + 1) * PERIOD)
        await edge(dut, 2 * PERIOD)
        assert unit.due.value, "it has not been freed yet"
        assert clients.reads[-1][1] == int(unit.at.value) == ended
        clients.rows[ended] = (0, 0)
        unit.sweep.value = 1
        await edge(dut)
        unit.sweep.value = 0
        await edge(dut)
        assert not unit.due.value
    assert not await clients.due((CLIENTS + 1) * PERIOD)
    clients.rows = [(1, (3 + 1) % 2**32)] * CLIENTS
    assert not await clients.due((CLIENTS + 1) * PERIOD), "one tick before its end"
