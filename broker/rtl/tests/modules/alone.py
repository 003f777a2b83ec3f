"""What the benches of single modules share.

Values are read as they are at a clock edge, before it changes anything; what is written holds from
then on.
"""

from __future__ import annotations

import os
import random
import re
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

CYCLE_PS = 6400
# Nothing that is asked of one module takes so long; who waits longer has found a hang.
HANGS_CYCLES = 20_000


def dice() -> random.Random:
    """Return this test's chances, which MQTICK_SEED changes."""
    return random.Random(int(os.environ.get("MQTICK_SEED", "1")))


def put(unit: Any, **values: int) -> None:
    """Set inputs."""
    for name, value in values.items():
        getattr(unit, name).value = value


def get(unit: Any, *names: str) -> tuple[int, ...]:
    """Read outputs."""
    return tuple(int(getattr(unit, name).value) for name in names)


async def begin(dut: Any, name: str, **inputs: int) -> Any:
    """Start the clock, reset the module of this name if it can be, and return it."""
    unit = getattr(dut, f"u_{name}")
    cocotb.start_soon(Clock(dut.clk, CYCLE_PS, "ps").start())
    put(unit, **inputs)
    if hasattr(unit, "rst"):
        unit.rst.value = 1
        await edge(dut, 2)
        unit.rst.value = 0
    await edge(dut)
    return unit


async def edge(dut: Any, count: int = 1) -> None:
    """Wait for clock edges."""
    for _ in range(count):
        await RisingEdge(dut.clk)


async def until(dut: Any, signal: Any) -> None:
    """Wait for the edge at which this is high."""
    for _ in range(HANGS_CYCLES):
        await RisingEdge(dut.clk)
        if signal.value:
            return
    raise TimeoutError(f"{signal._name} stays low")


def pieces(text: bytes) -> list[int]:
    """Cut a topic or filter as mqtick_text does, into `piece_t` of mqtick_pkg.

    A piece is up to three letters and the slash that ends its level, or up to four of one level.
    """
    packed, level, index = [], 0, 0
    for found in re.finditer(rb"[^/]{0,3}/|[^/]{1,4}", text):
        slash = found[0].endswith(b"/")
        letters = found[0].removesuffix(b"/")
        first, last = found.start() == 0, found.end() == len(text)
        fields = first << 2 | last << 1 | slash
        for value, bits in ((len(letters), 3), (level, 4), (index, 4)):
            fields = fields << bits | value & (1 << bits) - 1
        packed.append(fields << 32 | int.from_bytes(letters, "little"))
        level, index = (level + 1, 0) if slash else (level, index + 1)
    return packed


def shape_bits(plus: frozenset[int], depth: int | None) -> tuple[int, int]:
    """Write a shape as hardware does: a bit for each level with a `+`, the level of the `#`."""
    return sum(1 << level for level in plus), 16 if depth is None else depth


RECORD = (
    ("arrival", 64), ("source", 2), ("unstated", 1), ("chained", 1), ("trailer", 1), ("as_is", 1),
    ("length", 11), ("place", 8), ("kept", 1),
)  # fmt: skip


def record_of(packed: int) -> dict[str, int]:
    """Take a `record_t` of mqtick_pkg apart."""
    fields = {}
    for name, bits in RECORD:
        fields[name] = packed & (1 << bits) - 1
        packed >>= bits
    return fields
