"""mqtick_hash against its definition, written down here once more."""

from __future__ import annotations

from random import Random
from typing import Any

import cocotb
from alone import begin, dice, edge, pieces, put, shape_bits, until

from broker.rtl.sim.golden import matches, shape

BITS, SHAPES = 42, 4
ROUNDS = (0, 1, 2, 3, 4, 3, 4, 0, 1, 2)  # the words of the key, one a round
MASK = (1 << 24) - 1


def turned(word: int, left: int) -> int:
    return (word << left | word >> 24 - left) & MASK


def mixed(word: int, key: int) -> int:
    high, low = word >> 24, word & MASK
    return (low ^ turned(high, 1) & turned(high, 8) ^ turned(high, 2) ^ key) << 24 | high


def definition(keys: list[int], text: bytes, plus: frozenset[int], depth: int | None) -> int:
    """A word for each piece with letters, and one for each slash, of the levels that count."""
    total, slash_word = 0, keys[1] << 24 | keys[0]
    for packed in pieces(text):
        letters, index = packed & 0xFFFF_FFFF, packed >> 32 & 15
        level, count, slash = packed >> 36 & 15, packed >> 40 & 7, packed >> 43 & 1
        word = letters << 16 | index << 12 | level << 8 | 0x5A
        for at in ROUNDS:
            word = mixed(word, keys[at])
        if count and level not in plus and (depth is None or level < depth):
            total ^= word
        if slash:
            if depth is None or level + 1 < depth:
                total ^= slash_word
            slash_word = mixed(slash_word, keys[4])
    return total & (1 << BITS) - 1


class Hash:
    """The module under four shapes and a key."""

    def __init__(self, dut: Any, unit: Any, random: Random, filters: list[bytes]) -> None:
        self.dut, self.unit, self.random = dut, unit, random
        self.keys = [random.getrandbits(24) for _ in range(5)]
        self.shapes = [shape(wanted) for wanted in filters]
        plus = depth = 0
        for at, (levels, end) in enumerate(self.shapes):
            plus |= shape_bits(levels, end)[0] << 16 * at
            depth |= shape_bits(levels, end)[1] << 5 * at
        key = sum(word << 24 * at for at, word in enumerate(self.keys))
        put(unit, key=key, plus=plus, depth=depth)

    async def hashes(self, text: bytes) -> list[int]:
        for packed in pieces(text):
            while self.random.random() < 0.3:
                await edge(self.dut)
            put(self.unit, piece=packed, piece_valid=1)
            await edge(self.dut)
            put(self.unit, piece_valid=0, piece=self.random.getrandbits(46))
        await edge(self.dut)
        assert not self.unit.ready.value, "before the last piece is in"
        await until(self.dut, self.unit.ready)
        both = int(self.unit.hash.value)
        return [both >> BITS * at & (1 << BITS) - 1 for at in range(SHAPES)]


@cocotb.test()
async def hash_is_that_of_its_definition(dut: Any) -> None:
    """Under each shape, whatever was hashed before."""
    unit, random = await begin(dut, "hash", piece_valid=0), dice()
    for _ in range(12):
        choices = (b"a", b"+", b"a/+", b"+/a", b"#", b"a/#", b"a/a/+/#", b"+/a/+/a/a/+")
        module = Hash(dut, unit, random, random.sample(choices, SHAPES))
        for _ in range(12):
            length = random.randrange(1, 65)
            text = bytes(random.choice(b"ab/") for _ in range(length))
            text = b"/".join(text.split(b"/")[:16]) or b"a"
            expected = [definition(module.keys, text, *one) for one in module.shapes]
            assert await module.hashes(text) == expected, text


@cocotb.test()
async def hash_of_a_filter_is_that_of_all_topics_that_match(dut: Any) -> None:
    """And of no other topic of these, although only a part of the hash is compared here."""
    unit, random = await begin(dut, "hash", piece_valid=0), dice()
    filters = [b"a/bcdef/g", b"a/+/g", b"a/bcdef/#", b"+/+/g"]
    module = Hash(dut, unit, random, filters)
    wanted = [(await module.hashes(one))[at] for at, one in enumerate(filters)]
    for topic in (b"a/bcdef/g", b"a/x/g", b"a//g", b"a/bcdef", b"a/bcdef/h/i", b"a/g/bcdef", b"/"):
        found = [one == two for one, two in zip(wanted, await module.hashes(topic), strict=True)]
        assert found == [matches(one, topic) for one in filters], topic
