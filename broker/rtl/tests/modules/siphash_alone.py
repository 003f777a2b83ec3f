"""mqtick_siphash against what its authors published, and against their description in Python."""

from __future__ import annotations

from typing import Any

import cocotb
from alone import begin, dice, edge, put, until

from broker.rtl.sim.siphash import siphash

KEY = bytes(range(16))


async def hashed(dut: Any, unit: Any, key: bytes, message: bytes, other: bool = False) -> bytes:
    key_bits, message_bits = int.from_bytes(key, "little"), int.from_bytes(message, "little")
    put(unit, key=key_bits, message=message_bits, other=other, start=1)
    await edge(dut)
    unit.start.value = 0
    await until(dut, unit.done)
    return int(unit.hash.value).to_bytes(8, "little")


@cocotb.test()
async def siphash_gives_the_published_vectors(dut: Any) -> None:
    """Appendix A of the paper for the description; the authors' list has one of eight octets."""
    unit = await begin(dut, "siphash", start=0)
    assert siphash(KEY, bytes(range(15))) == (0xA129CA6149BE45E5).to_bytes(8, "little")
    assert await hashed(dut, unit, KEY, bytes(range(8))) == bytes.fromhex("6224939a79f5f593")


@cocotb.test()
async def siphash_is_that_of_its_description_for_any_key(dut: Any) -> None:
    """The other function is that of the eight octets and a zero, which are nine."""
    unit, random = await begin(dut, "siphash", start=0), dice()
    for _ in range(60):
        key, message = random.randbytes(16), random.randbytes(8)
        other = random.random() < 0.5
        expected = siphash(key, message + bytes(other))
        assert await hashed(dut, unit, key, message, other) == expected
        await edge(dut)
        assert not unit.done.value
