"""mqtick_buffer against a string of octets."""

from __future__ import annotations

from typing import Any

import cocotb
from alone import begin, dice, edge, put

SLOTS, WORDS = 4, 256


@cocotb.test()
async def buffer_gives_any_four_octets_and_any_word(dut: Any) -> None:
    """Of each slot, while others are written; a word stays until the next is asked for."""
    unit, random = await begin(dut, "buffer", we=0, re=0), dice()
    slots = [bytearray(8 * WORDS) for _ in range(SLOTS)]
    for slot in range(SLOTS):
        for word in range(WORDS):
            octets = random.randbytes(8)
            slots[slot][8 * word : 8 * word + 8] = octets
            put(unit, we=1, waddr=slot << 8 | word, wdata=int.from_bytes(octets, "little"))
            await edge(dut)
    shown = window = None
    for _ in range(3000):
        writes, reads = random.random() < 0.3, random.random() < 0.6
        into, slot, other = random.sample(range(SLOTS), 3)
        at, word, place = (random.randrange(bound) for bound in (8 * WORDS - 4, WORDS, WORDS))
        octets = random.randbytes(8)
        put(unit, we=writes, waddr=into << 8 | place, wdata=int.from_bytes(octets, "little"))
        put(unit, slot=slot, at=at, re=reads, raddr=other << 8 | word)
        await edge(dut)
        if window is not None:
            assert int(unit.window.value).to_bytes(4, "little") == window
        if shown is not None:
            assert int(unit.rdata.value).to_bytes(8, "little") == shown
        window = bytes(slots[slot][at : at + 4])
        if reads:
            shown = bytes(slots[other][8 * word : 8 * word + 8])
        if writes:
            slots[into][8 * place : 8 * place + 8] = octets
