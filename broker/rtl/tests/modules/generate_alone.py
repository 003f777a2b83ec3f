"""mqtick_generate: who gets a copy, in which order, and how many he had."""

from __future__ import annotations

from random import Random
from typing import Any

import cocotb
from alone import HANGS_CYCLES, begin, dice, edge, get, put
from cocotb.triggers import FallingEdge, RisingEdge

TOPICS, ENTRIES, CLIENTS = 16, 128, 64
MOST = 2**24 - 1
END = (1, 0, 0, 0)


class Tables:
    """Lists of subscriptions and their clients, read in one cycle; and what is due by them."""

    def __init__(self, dut: Any, unit: Any, random: Random, topics: int = TOPICS) -> None:
        self.dut, self.unit, self.random = dut, unit, random
        self.tick = random.getrandbits(32)
        self.clients = [
            (
                int(random.random() < 0.9),
                random.getrandbits(32),
                random.getrandbits(16),
                (self.tick + random.choice((-5, 0, 1, 2, 1000, 2**31))) % 2**32,
            )
            for _ in range(CLIENTS)
        ]
        self.copies = [random.choice((0, 1, 77, MOST - 1, MOST)) for _ in range(CLIENTS)]
        self.due_copies = [*self.copies]
        self.first, self.next, self.client = {}, {}, {}
        self.lists: list[list[int]] = []
        places = random.sample(range(ENTRIES), ENTRIES)
        for topic in range(topics):
            count = random.choice((1, 2, random.randrange(1, 1 + ENTRIES // topics)))
            members = random.sample(range(CLIENTS), min(count, CLIENTS))
            entries = [places.pop() for _ in members]
            self.first[topic] = entries[0]
            for entry, after, client in zip(
                entries, [*entries[1:], entries[-1]], members, strict=True
            ):
                self.next[entry], self.client[entry] = after, client
            self.lists.append(members)
        unit.tick.value = self.tick
        cocotb.start_soon(self.serve())

    def due(self, topic: int, counted: bool) -> list[tuple[int, ...]]:
        """Say who gets a copy by this topic's list."""
        given = []
        for client in self.lists[topic]:
            valid, ip, port, expiry = self.clients[client]
            if valid and (expiry - self.tick) % 2**32 - 1 < 2**31 and expiry != self.tick:
                copies = self.due_copies[client]
                given.append((0, ip, port, copies))
                if counted:
                    self.due_copies[client] = copies % MOST + 1
        return given

    async def serve(self) -> None:
        unit = self.unit
        while True:
            await RisingEdge(self.dut.clk)
            unit.topic_first.value = self.first.get(int(unit.topic_at.value), 0)
            writes = bool(unit.copies_we.value)
            if unit.entry_re.value:
                entry = int(unit.entry_at.value)
                put(unit, entry_next=self.next[entry], entry_client=self.client[entry])
            if unit.client_re.value:
                at = int(unit.client_at.value)
                assert not (writes and at == int(unit.copies_at.value)), "read while written"
                valid, ip, port, expiry = self.clients[at]
                put(unit, client_valid=valid, client_ip=ip, client_port=port)
                put(unit, client_expiry=expiry, client_copies=self.copies[at])
            if writes:
                self.copies[int(unit.copies_at.value)] = int(unit.copies.value)


class Transmitter:
    """Takes who is named, when it likes."""

    def __init__(self, dut: Any, unit: Any, random: Random, busy: float) -> None:
        self.dut, self.unit, self.random, self.busy = dut, unit, random, busy
        self.given: list[tuple[int, ...]] = []
        self.cycles: list[int] = []
        self.sent = self.cycle = 0
        cocotb.start_soon(self.take())

    async def take(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            pops = bool(self.unit.who_valid.value) and self.random.random() >= self.busy
            self.unit.who_pop.value = pops
            await RisingEdge(self.dut.clk)
            self.cycle += 1
            self.sent += int(self.unit.sent.value)
            if pops:
                (who,) = get(self.unit, "who")
                fields = (who >> 72, who >> 40 & 0xFFFF_FFFF, who >> 24 & 0xFFFF, who & MOST)
                self.given.append(END if fields[0] else fields)
                self.cycles.append(self.cycle)

    async def all_given(self, count: int) -> None:
        for _ in range(HANGS_CYCLES):
            if len(self.given) >= count:
                break
            await edge(self.dut)
        await edge(self.dut, 20)


async def look_up(dut: Any, unit: Any, topics: list[int], counted: bool) -> None:
    """Do as the look-up does: begin a datagram, then name its topics and the end."""
    put(unit, begin_datagram=1, begin_counted=counted)
    await edge(dut)
    unit.begin_datagram.value = 0
    for topic in (*topics, None):
        for _ in range(HANGS_CYCLES):
            await FallingEdge(dut.clk)
            if unit.match_ready.value:
                break
        put(unit, match=1, match_end=topic is None, match_topic=topic or 0)
        await RisingEdge(dut.clk)
        unit.match.value = 0


@cocotb.test()
@cocotb.parametrize(busy=[0.0, 0.4, 0.9])
async def generate_names_who_is_alive_in_the_order_of_the_lists(dut: Any, busy: float) -> None:
    """With the copies that he had, which are counted where they have to be."""
    unit, random = await begin(dut, "generate", begin_datagram=0, match=0, who_pop=0), dice()
    tables, transmitter = Tables(dut, unit, random), Transmitter(dut, unit, random, busy)
    due = []
    for _ in range(40):
        topics = random.sample(range(TOPICS), random.randrange(4))
        counted = random.random() < 0.6
        for topic in topics:
            due += tables.due(topic, counted)
        due.append(END)
        await look_up(dut, unit, topics, counted)
    await transmitter.all_given(len(due))
    assert transmitter.given == due
    assert tables.copies == tables.due_copies
    assert transmitter.sent == len(due) - due.count(END)


@cocotb.test()
async def generate_names_one_a_cycle(dut: Any) -> None:
    """Of one list, when all are taken at once."""
    unit, random = await begin(dut, "generate", begin_datagram=0, match=0, who_pop=0), dice()
    tables = Tables(dut, unit, random, topics=1)
    tables.lists[0] = [*range(50)]
    entries = random.sample(range(ENTRIES), 50)
    tables.first[0] = entries[0]
    tables.next = dict(zip(entries, [*entries[1:], entries[-1]], strict=True))
    tables.client = {entry: at for at, entry in enumerate(entries)}
    tables.clients = [(1, at, at, (tables.tick + 9) % 2**32) for at in range(CLIENTS)]
    transmitter = Transmitter(dut, unit, random, 0.0)
    await look_up(dut, unit, [0], False)
    await transmitter.all_given(51)
    assert len(transmitter.given) == 51
    assert transmitter.cycles[49] - transmitter.cycles[0] == 49
