"""mqtick_lookup against a dictionary of filters, with hashes that collide as often as we like."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import cocotb
from alone import HANGS_CYCLES, begin, dice, edge, pieces, put, shape_bits
from cocotb.triggers import FallingEdge, RisingEdge

from broker.rtl.sim.golden import EXACT, matches, shape

TOPICS, SHAPES, KEY_POOL, TAG = 64, 4, 2, 4
BUCKETS, WAYS = 8, 4
HASH_BITS = 3 + TAG
SHORT_KEY = 8  # pieces, from which on the rest of a key stands in the pool
Shape = tuple[frozenset[int], int | None]


def key_of(text: bytes, of: Shape) -> tuple[bytes | None, ...]:
    """Keep the levels that count under a shape."""
    plus, depth = of
    levels = text.split(b"/")[:depth]
    return tuple(None if at in plus else level for at, level in enumerate(levels))


def words_of(text: bytes, of: Shape) -> int:
    """Count the pieces that something is left of."""
    plus, depth = of
    count = 0
    for packed in pieces(text):
        level, letters, slash = packed >> 36 & 15, packed >> 40 & 7, packed >> 43 & 1
        counts = level not in plus and (depth is None or level < depth) and letters
        count += bool(counts or (slash and (depth is None or level + 1 < depth)))
    return count


class Lookup:
    """Speaks to the module as parser, hash and control do, and knows what stands where."""

    def __init__(self, dut: Any, unit: Any, random: Random, busy: float, limit: int) -> None:
        self.dut, self.unit, self.random, self.busy, self.limit = dut, unit, random, busy, limit
        self.hashes: dict[object, int] = {}
        self.stored: dict[bytes, int] = {}  # place by filter
        self.shapes: list[Shape | None] = [EXACT, *[None] * (SHAPES - 1)]
        self.matched: list[int | None] = []
        self.refused: Counter[str] = Counter()
        unit.shape_limit.value = limit
        cocotb.start_soon(self.take())

    def hash(self, text: bytes, of: Shape) -> int:
        """Draw one for each key, with one of few tags."""
        key = key_of(text, of)
        drawn = self.random.randrange(BUCKETS) | self.random.choice((1, 6, 8, 9, 15)) << 3
        return self.hashes.setdefault((key, of), drawn)

    def set_hash(self, text: bytes) -> None:
        each = (of and self.hash(text, of) for of in self.shapes)
        value = sum((one or 0) << HASH_BITS * at for at, one in enumerate(each))
        self.unit.hash.value = value

    async def read(self, text: bytes) -> None:
        """Give the pieces of a topic or filter, and its hash under all shapes."""
        for packed in pieces(text):
            put(self.unit, piece=packed, piece_valid=1)
            await edge(self.dut)
            self.unit.piece_valid.value = 0
            while self.random.random() < 0.2:
                await edge(self.dut)
        self.set_hash(text)
        await edge(self.dut)

    async def command(self, name: str) -> None:
        getattr(self.unit, name).value = 1
        await edge(self.dut)
        getattr(self.unit, name).value = 0
        for _ in range(HANGS_CYCLES):
            await edge(self.dut)
            if self.unit.done.value:
                return
        raise TimeoutError(f"{name} is not done")

    def places(self, text: bytes, of: Shape) -> list[int]:
        """Name the eight places in which a filter may stand."""
        value, number = self.hash(text, of), self.shapes.index(of)
        first = (value ^ number << 1) % BUCKETS
        second = (first ^ value >> 3) % BUCKETS
        return [
            side << 5 | bucket << 2 | way
            for side, bucket in enumerate((first, second))
            for way in range(WAYS)
        ]

    def has_room(self, text: bytes, of: Shape) -> bool:
        places, tag = self.places(text, of), self.hash(text, of) >> 3
        for other, place in self.stored.items():
            if place in places and shape(other) == of and self.hash(other, of) >> 3 == tag:
                self.refused["tag"] += 1
                return False
        if not {*places} - {*self.stored.values()}:
            self.refused["full"] += 1
            return False
        long = sum(words_of(other, shape(other)) >= SHORT_KEY for other in self.stored)
        if words_of(text, of) >= SHORT_KEY and long == KEY_POOL:
            self.refused["pool"] += 1
            return False
        return True

    async def ask(self, text: bytes) -> int | None:
        """Look for a filter as SUBSCRIBE does; return its place, stored or found, or nothing."""
        of, unit = shape(text), self.unit
        put(unit, plus=shape_bits(*of)[0], depth=shape_bits(*of)[1])
        await self.read(text)
        unit.find_shape.value = 1
        await edge(self.dut)
        unit.find_shape.value = 0
        await edge(self.dut)
        free = [at for at in range(self.limit) if self.shapes[at] is None]
        assert unit.shape_found.value == (of in self.shapes), text
        assert unit.shape_room.value == (of not in self.shapes and bool(free)), text
        if of not in self.shapes:
            if not free:
                self.refused["shape"] += 1
                return None
            self.shapes[free[0]] = of
        await self.read(text)
        await self.command("find")
        found, place = bool(unit.found.value), int(unit.place.value)
        assert found == (text in self.stored), text
        if found:
            assert place == self.stored[text]
            return place
        assert unit.room.value == self.has_room(text, of), text
        if not unit.room.value:
            self.forget_unused()
            return None
        assert place in self.places(text, of)
        assert place not in self.stored.values()
        await self.command("store")
        self.stored[text] = place
        assert int(unit.topics.value) == len(self.stored)
        return place

    async def drop(self, text: bytes) -> None:
        self.unit.drop_topic.value = self.stored.pop(text)
        await self.command("drop")
        self.forget_unused()
        assert int(self.unit.topics.value) == len(self.stored)

    def forget_unused(self) -> None:
        """Free the shapes of which no filter is left, but the first."""
        used = {shape(text) for text in self.stored}
        self.shapes[1:] = [of if of in used else None for of in self.shapes[1:]]

    async def look(self, topic: bytes) -> list[int | None]:
        """Look a published topic up; return what has to match, in the order of shapes."""
        await self.read(topic)
        for _ in range(HANGS_CYCLES):
            await FallingEdge(self.dut.clk)
            if self.unit.look_ready.value:
                break
        self.unit.look.value = 1
        await RisingEdge(self.dut.clk)
        self.unit.look.value = 0
        due = [text for text in self.stored if matches(text, topic)]
        due.sort(key=lambda text: self.shapes.index(shape(text)))
        return [*(self.stored[text] for text in due), None]

    async def take(self) -> None:
        unit = self.unit
        while True:
            unit.match_ready.value = self.random.random() >= self.busy
            await RisingEdge(self.dut.clk)
            if unit.match.value:
                self.matched.append(None if unit.match_end.value else int(unit.match_topic.value))

    async def all_matched(self, due: list[int | None]) -> None:
        ends = due.count(None)
        for _ in range(HANGS_CYCLES):
            if self.matched.count(None) == ends:
                break
            await edge(self.dut)
        assert self.matched == due
        self.matched.clear()


def random_topic(random: Random) -> bytes:
    levels = random.choice((1, 2, 2, 3, 9, 16))
    return b"/".join(random.choice((b"a", b"b", b"", b"abcde")) for _ in range(levels))[:64] or b"a"


def random_filter(random: Random, wild: tuple[bytes, ...]) -> bytes:
    topic = random_topic(random)
    if random.random() < 0.6:
        return topic
    return random.choice(wild).replace(b"T", topic.split(b"/")[0] or b"b")


async def lookup(dut: Any, busy: float, limit: int = SHAPES) -> Lookup:
    inputs = ("piece_valid", "look", "find_shape", "find", "store", "drop", "clear", "match_ready")
    unit = await begin(dut, "lookup", **dict.fromkeys(inputs, 0))
    for at in range(BUCKETS):
        put(unit, clear=1, clear_at=at)
        await edge(dut)
    unit.clear.value = 0
    return Lookup(dut, unit, dice(), busy, limit)


@cocotb.test()
@cocotb.parametrize(busy=[0.0, 0.8])
async def lookup_finds_what_was_stored_and_nothing_else(dut: Any, busy: float) -> None:
    """Until the table, the pool of keys and the shapes are full; then some are dropped."""
    table = await lookup(dut, busy, SHAPES if busy else SHAPES - 1)
    random = table.random
    wild = (b"#", b"T/#", b"+/T", b"T/+", b"+", b"T/T/#", b"+/#")
    for _ in range(30):
        for _ in range(random.randrange(1, 8)):
            await table.ask(random_filter(random, wild))
        due: list[int | None] = []
        for _ in range(random.randrange(1, 8)):
            exact = [text for text in table.stored if shape(text) == EXACT]
            topic = random.choice(exact) if exact and random.random() < 0.5 else None
            due += await table.look(topic or random_topic(random))
        await table.all_matched(due)
        for _ in range(random.randrange(0, 5)):
            if table.stored:
                await table.drop(random.choice([*table.stored]))
    assert {"tag", "pool", "shape"} <= {*table.refused}, table.refused


@cocotb.test()
async def lookup_compares_keys_whole(dut: Any) -> None:
    """Topics of one hash, which differ in one octet wherever it stands, or in where levels end."""
    table = await lookup(dut, 0.0)
    filters = (b"a" * 40, b"a/" * 15 + b"a", b"abc/abcd/abc", b"a/+/abcd", b"abcd/#")
    for text in filters:
        table.hashes[key_of(text, shape(text)), shape(text)] = 17
    places = [await table.ask(filters[0]), *[await table.ask(text) for text in filters[3:]]]
    assert None not in places
    near = [b"a" * at + b"b" + b"a" * (39 - at) for at in range(40)]
    near += [
        b"a" * 36,
        b"a" * 39,
        b"a" * 41,
        b"a" * 36 + b"/aaa",
        b"a/b/abc",
        b"a/b/abcde",
        b"a/b/c/abcd",
    ]
    near += [b"abcde", b"abc", b"a/b/abcd", b"a//abcd", b"abcd", b"abcd/", b"abcd/e/f", b"a" * 40]
    for topic in near:
        for of in filter(None, table.shapes):
            table.hashes[key_of(topic, of), of] = 17
        await table.all_matched(await table.look(topic))
        if shape(topic) == EXACT and topic not in filters:
            assert await table.ask(topic) is None, topic
    assert table.refused["tag"] > 40


@cocotb.test()
async def lookup_asks_for_one_shape_a_cycle(dut: Any) -> None:
    """A topic that matches under none of four shapes ends 8 cycles later than its look-up began."""
    table = await lookup(dut, 0.0)
    for text in (b"a", b"a/+", b"+/a", b"a/#"):
        assert await table.ask(text) is not None
    due = await table.look(b"b/b")
    cycles = 0
    while not table.matched:
        await edge(dut)
        cycles += 1
    assert table.matched == due == [None]
    assert cycles <= 8
