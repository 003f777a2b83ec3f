"""mqtick_text against MQTT's rules, as the reference has them."""

from __future__ import annotations

from random import Random
from typing import Any

import cocotb
from alone import HANGS_CYCLES, begin, dice, edge, pieces, put, shape_bits
from boundary import pieces as prefix_pieces
from cocotb.triggers import RisingEdge

from broker.rtl.sim.golden import is_filter, is_topic, shape

ODD = (
    *(b"a", b"/", b"//", b"abcd", b"abcd/", b"abcde/f", b"abc/", b"$a", b"a$", b"$/#", b"#", b"+"),
    *(b"a/#/b", b"a#", b"#/", b"a+", b"+a", b"abcd+", b"a/+/b", b"+/+", b"abcd#", b"a\0b", b"/#"),
    *(b"/" * 15, b"/" * 16, b"a/" * 15 + b"#", b"a" * 64, b"+/" * 15 + b"+", b"abc/" * 16, b"//#"),
)
PREFIXES = (b"", b"mqtick", b"mqti", b"a", b"a/b", b"abcd/e", b"a/bcdefgh/i")


def random_text(random: Random, prefix: bytes) -> bytes:
    if random.random() < 0.4:
        return random.choice(ODD)
    text = bytes(random.choice(b"abc////++#\0$") for _ in range(random.randrange(1, 20)))
    if random.random() < 0.5:
        text = (
            prefix + random.choice((b"", b"/", b"x", b"x/y", b"/x/y")) + text[: random.randrange(2)]
        )
    return text or b"a"


class Octets:
    """The packet buffer around a text, of which not all has come yet."""

    def __init__(self, dut: Any, unit: Any, random: Random) -> None:
        self.dut, self.unit, self.random, self.octets = dut, unit, random, bytes(2048)
        cocotb.start_soon(self.serve())

    async def serve(self) -> None:
        while True:
            at_ok = self.random.random() < 0.7
            self.unit.at_ok.value = at_ok
            await RisingEdge(self.dut.clk)
            at = int(self.unit.at.value)
            shown = self.octets[at : at + 4] if at_ok else self.random.randbytes(4)
            self.unit.window.value = int.from_bytes(shown, "little")


class Prefix:
    """The residence prefix, as its registers have it."""

    def __init__(self, dut: Any, unit: Any) -> None:
        self.dut, self.unit, self.words = dut, unit, [0] * 8
        cocotb.start_soon(self.serve())

    def set(self, prefix: bytes) -> None:
        words = list(prefix_pieces(prefix.decode()))
        self.words = words + [0] * (8 - len(words))
        self.unit.prefix_pieces.value = len(words)
        self.unit.prefix.value = self.words[0]

    async def serve(self) -> None:
        while True:
            await self.unit.prefix_at.value_change
            self.unit.prefix.value = self.words[int(self.unit.prefix_at.value)]


@cocotb.test()
async def text_is_cut_and_judged_as_mqtt_says(dut: Any) -> None:
    """Any octets, at any place, while they come."""
    unit, random = await begin(dut, "text", start=0), dice()
    buffer, registers = Octets(dut, unit, random), Prefix(dut, unit)
    for _ in range(700):
        prefix = random.choice(PREFIXES)
        text, filtering = random_text(random, prefix), random.random() < 0.5
        place = random.randrange(2, 1400)
        buffer.octets = random.randbytes(place) + text + random.randbytes(600)
        registers.set(prefix)
        put(unit, start=1, start_at=place, start_length=len(text), filter=filtering)
        await edge(dut)
        put(unit, start=0, start_at=random.randrange(2048), start_length=random.randrange(128))
        given: list[int] = []
        for _ in range(HANGS_CYCLES):
            await edge(dut)
            if unit.piece_valid.value:
                given.append(int(unit.piece.value))
            if unit.done.value:
                break
        await edge(dut)
        assert not unit.busy.value
        assert given == pieces(text), text
        good = is_filter(text) if filtering else is_topic(text) and not text.startswith(b"$")
        assert good == (not unit.bad.value and not unit.reserved.value), (text, filtering)
        assert unit.reserved.value == text.startswith(b"$")
        if good:
            plus, depth = shape_bits(*shape(text)) if filtering else (0, 16)
            assert (int(unit.plus.value), int(unit.depth.value)) == (plus, depth), text
            below = prefix != b"" and (text + b"/").startswith(prefix + b"/")
            assert unit.below.value == below, (text, prefix)
