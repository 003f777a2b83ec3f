"""mqtick_retained against a dictionary, and MQTT's rules as the reference has them."""

from __future__ import annotations

from random import Random
from typing import Any

import cocotb
from alone import HANGS_CYCLES, begin, dice, get, put, record_of
from cocotb.triggers import FallingEdge, RisingEdge

from broker.rtl.sim.golden import matches, publish

# As many places as a power of two: one beyond the last is the first again.
PLACES, OCTETS, PLACE_WORDS, SLOT = 4, 64, 17, 2
ADDRESS = (0x0A00_0002, 5000)
LONG = b"abcdefgh/" * 6 + b"end/of/it"
TOPICS = (b"a", b"a/b", b"a/b/c", b"a/c", b"ab", b"/", b"a/", b"/a", b"b//c", LONG, LONG[:-1])
FILTERS = (
    *TOPICS,
    *(b"#", b"+", b"a/#", b"+/b", b"a/+", b"+/+", b"a/b/#", b"a/+/c", b"a//#", b"/+", b"/#"),
    *(b"b/+/c", b"+//c", b"abc/#", b"+/+/+/+/+/#", LONG[:-3] + b"+", LONG + b"/#", LONG + b"/+"),
)


class Memories:
    """The packet buffer and the pool, and a transmitter that reads from there."""

    def __init__(self, dut: Any, unit: Any, random: Random, busy: float) -> None:
        self.dut, self.unit, self.random, self.busy = dut, unit, random, busy
        self.octets = bytes(2048)
        self.pool = [bytes(8)] * (PLACES * PLACE_WORDS + 8)
        self.sent: list[bytes] = []
        self.trailers: list[bool] = []
        self.counts = self.copies = 0
        cocotb.start_soon(self.serve())

    def record(self) -> bytes:
        """Read the datagram of the record that is offered."""
        fields, who = get(self.unit, "send_record", "send_who")
        record = record_of(fields)
        assert (record["kept"], record["as_is"], record["chained"]) == (1, 0, 0)
        assert who == ADDRESS[0] << 40 | ADDRESS[1] << 24, "no copies are counted"
        self.trailers.append(bool(record["trailer"]))
        begins = PLACE_WORDS * record["place"]
        words = self.pool[begins : begins + PLACE_WORDS]
        return b"".join(words)[: record["length"]]

    async def serve(self) -> None:
        unit, ends, word = self.unit, False, bytes(8)
        while True:
            await FallingEdge(self.dut.clk)
            pops = bool(unit.send_valid.value) and self.random.random() >= self.busy
            unit.send_pop.value = pops
            await RisingEdge(self.dut.clk)
            at, words_at, pool_at = get(unit, "at", "words_at", "pool_at")
            assert not unit.reads.value or words_at >> 8 == SLOT
            if unit.pool_we.value:
                self.pool[int(unit.pool_into.value)] = word
            word = self.octets[8 * (words_at & 0xFF) :][:8]
            shown = self.pool[pool_at] if pool_at < len(self.pool) else bytes(8)
            put(unit, octet=self.octets[at], pool=int.from_bytes(shown, "little"))
            self.counts += int(unit.count.value)
            self.copies += int(unit.copy.value)
            if pops:
                if ends:
                    assert int(unit.send_who.value) >> 72 == 1
                else:
                    self.sent.append(self.record())
                ends = not ends

    async def work(self, signal: str, done: str) -> int:
        """Have one thing done; return how many cycles it took."""
        getattr(self.unit, signal).value = 1
        await RisingEdge(self.dut.clk)
        getattr(self.unit, signal).value = 0
        for cycle in range(HANGS_CYCLES):
            await RisingEdge(self.dut.clk)
            if getattr(self.unit, done).value:
                await FallingEdge(self.dut.clk)
                return cycle
        raise TimeoutError(f"{done} stays low")

    async def keep(self, topic: bytes, payload: bytes, trailer: bool) -> bytes:
        """Have a message kept, wherever it can stand in the slot; return its octets."""
        datagram = publish(topic, payload, retain=True)
        begins = len(datagram) - len(payload) - len(topic)
        self.octets = datagram + self.random.randbytes(2048 - len(datagram))
        put(self.unit, length=len(datagram), topic_begins=begins, topic_length=len(topic))
        self.unit.trailer.value = trailer
        await self.work("keep", "keep_done")
        return datagram

    async def deliver(self, wanted: bytes) -> list[bytes]:
        """Have sent what a filter matches."""
        begins = self.random.randrange(6, 1300)
        self.octets = self.random.randbytes(begins) + wanted + self.random.randbytes(700)
        put(self.unit, filter_begins=begins, filter_length=len(wanted))
        self.sent.clear()
        self.trailers.clear()
        await self.work("deliver", "deliver_done")
        return [*self.sent]


async def memories(dut: Any, busy: float) -> Memories:
    unit = await begin(dut, "retained", keep=0, deliver=0, slot=SLOT, send_pop=0)
    put(unit, ip=ADDRESS[0], port=ADDRESS[1])
    return Memories(dut, unit, dice(), busy)


@cocotb.test()
@cocotb.parametrize(busy=[0.0, 0.7])
async def retained_keeps_and_sends_as_mqtt_says(dut: Any, busy: float) -> None:
    """One for each topic, the newest; none without payload; what has no room is counted."""
    pool = await memories(dut, busy)
    random, kept, refused, copies = pool.random, {}, 0, 0
    for _ in range(150):
        if random.random() < 0.6:
            topic, trailer = random.choice(TOPICS), random.random() < 0.5
            payload = random.randbytes(random.choice((0, 1, 8, 40, OCTETS, OCTETS + 1)))
            datagram = await pool.keep(topic, payload, trailer)
            if not payload:
                kept.pop(topic, None)
            elif len(payload) > OCTETS or (topic not in kept and len(kept) == PLACES):
                refused += 1
            else:
                kept[topic] = (datagram, trailer)
        else:
            wanted = random.choice(FILTERS)
            sent = await pool.deliver(wanted)
            due = [one for topic, one in kept.items() if matches(wanted, topic)]
            copies += len(due)
            assert sorted(zip(sent, pool.trailers, strict=True)) == sorted(due), wanted
    assert refused > 5
    assert (pool.counts, pool.copies) == (refused, copies)


@cocotb.test()
async def retained_matches_every_filter_as_mqtt_says(dut: Any) -> None:
    """Each of these filters against each of these topics."""
    pool = await memories(dut, 0.0)
    for first in range(0, len(TOPICS), PLACES):
        topics = TOPICS[first : first + PLACES]
        kept = {topic: await pool.keep(topic, b"x", False) for topic in topics}
        for wanted in FILTERS:
            due = [kept[topic] for topic in topics if matches(wanted, topic)]
            assert sorted(await pool.deliver(wanted)) == sorted(due), wanted
        for topic in topics:
            await pool.keep(topic, b"", False)
        assert await pool.deliver(b"#") == []
